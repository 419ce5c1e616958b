"""LinkSignals: what a graph and the vectors of its nodes say about the edges that are not there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.adjacency import adjacency, sparse_product
from graphmem_torch.spectral.linear_autoencoder import linear_autoencoder

__all__ = ["LinkSignals", "nearest_nodes", "steep_shares"]

_FLOOR = 1e-3  # of a signal before its logarithm
_TILE = 512  # rows of similarities made at once


class LinkSignals:
    """Signals of every pair (i, j): should there be an edge from i to j?

    For i with the edges it has: the linear autoencoder of the adjacency (what goes together with
    them), the edges of the nodes most like i (by shared targets, and by each view of vectors), and
    where its edges' own edges lead; all these also as logarithms. Besides, the degrees, the
    similarity in each view, and how far apart and in which order i and j stand. The autoencoder's
    signal comes first.

    Attributes:
        num_nodes: N.
        count: F, the number of signals.
        dense: `[N, N]`, 1 where an edge leads from i to j.
        pattern: `[N, N]`, the linear autoencoder of `dense`.
    """

    def __init__(
        self,
        graph: Graph,  # N nodes
        views: Sequence[Tensor] = (),  # each [N, d], unit rows
        *,
        place: Tensor | None = None,  # [N]
        penalty: float = 10.0,
        neighbours: int = 20,
    ) -> None:
        """Prepares the signals: O(N³) once, for the autoencoder, and O(N²) memory.

        Args:
            graph: At most 20,000 nodes; edges count once, whatever their weight.
            views: Vectors of the nodes, e.g. embeddings of their texts.
            place: Where each node stands in its source; near ones belong together.
            penalty: Of the autoencoder.
            neighbours: Most similar nodes whose edges count.

        Raises:
            InputError: Too many nodes, or a view or places that do not fit them or are not finite.
        """
        for view in views:
            if view.dim() != 2 or view.shape[0] != graph.num_nodes:
                raise InputError(
                    f"views must have a row for each of the {graph.num_nodes} nodes; got "
                    f"{list(view.shape)}. Give vectors of all nodes, in their order."
                )
        if place is not None and place.shape != (graph.num_nodes,):
            raise InputError(
                f"place must be [{graph.num_nodes}]; got {list(place.shape)}. Give each node's."
            )
        for name, given in (*(("views", view) for view in views), ("place", place)):
            if given is not None and not bool(given.isfinite().all()):
                raise InputError(
                    f"{name} must be finite; got NaN or infinity. Leave such nodes out."
                )
        self.num_nodes = graph.num_nodes
        self._place = None if place is None else place.float()
        self.dense = adjacency(graph)
        self._out, self._in = self.dense.sum(1), self.dense.sum(0)
        self._views = [view.float() for view in views]
        self._reach = self._out.clamp(min=1).rsqrt()
        self._rare = self._in.clamp(min=1).rsqrt()
        self.pattern = linear_autoencoder(graph, penalty=penalty)
        # Two nodes are alike by the targets they share, rare ones first.
        idf = ((self.num_nodes + 1) / (self._in + 1)).log().sqrt()
        shared = torch.nn.functional.normalize(self.dense * idf, dim=1)
        self._peers = [nearest_nodes(shared, neighbours, sparse=True)]
        self._peers += [nearest_nodes(view, neighbours) for view in self._views]
        self.count = 3 + 2 * (2 + len(self._peers)) + len(self._views) + 2 * (place is not None)

    def tile(self, first: int, last: int) -> Tensor:  # [last - first, N, F]
        """Signals of the pairs (i, j) of `first <= i < last` and all j."""
        rows = slice(first, last)
        shape = (last - first, self.num_nodes)
        own = self.dense[rows]
        strong = [
            sparse_product(own, self.pattern),
            sparse_product(own * self._reach[rows, None], self.dense) * self._rare,
        ]
        strong += [
            sparse_product(_scatter(peers, rows, shape), self.dense) for peers in self._peers
        ]
        plain = [
            self._in.log1p().expand(shape),
            self._out.log1p().expand(shape),
            self._out[rows, None].log1p().expand(shape),
        ]
        plain += [view[rows] @ view.T for view in self._views]
        if self._place is not None:
            gap = self._place[rows, None] - self._place
            plain += [gap.abs().log1p(), gap.sign()]
        logs = [(signal.clamp(min=0) + _FLOOR).log() for signal in strong]
        return torch.stack([*strong, *logs, *plain], dim=2)


def nearest_nodes(
    x: Tensor,  # [N, d], unit rows
    k: int,
    *,
    sparse: bool = False,
) -> tuple[Tensor, Tensor]:  # [N, k] int64, [N, k]
    """The k nodes nearest to each node but itself, and shares that fall steeply with cosine.

    `sparse` says that `x` is mostly zeros: the time is then that of what is not.
    """
    nodes = x.shape[0]
    k = min(k, nodes - 1)
    across = x.T.contiguous() if sparse else x.T
    column, value = [], []
    for first in range(0, nodes, _TILE):
        rows = x[first : first + _TILE]
        cosine = sparse_product(rows, across) if sparse else rows @ across
        cosine.diagonal(first).fill_(-torch.inf)
        best = cosine.topk(k, dim=1)
        column.append(best.indices)
        value.append(best.values.clamp(min=0))
    return torch.cat(column), steep_shares(torch.cat(value))


def steep_shares(similarity: Tensor) -> Tensor:  # [..., k], best first, >= 0 -> [..., k]
    """(s / s_best)⁴ scaled to sum to 1: a vote counts by how near it comes to the best."""
    if similarity.shape[-1] == 0:
        return similarity
    ratio = (similarity / similarity[..., :1].clamp(min=1e-9)).pow(4)
    return ratio / ratio.sum(-1, keepdim=True).clamp(min=1e-9)


def _scatter(peers: tuple[Tensor, Tensor], rows: slice, shape: tuple[int, int]) -> Tensor:
    column, value = peers[0][rows], peers[1][rows]
    return value.new_zeros(shape).scatter_(1, column, value)
