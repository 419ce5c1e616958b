"""predict_links: missing edges, learned from the existing edges.

`links.suggest_links` differs: it finds new edges that would connect the graph better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_range, check_tensor
from graphmem_torch.coo import pointers
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.logistic import Logistic, fit_logistic
from graphmem_torch.ops.spmm import spmm
from graphmem_torch.ops.tiles import stable_topk

__all__ = [
    "MAX_DENSE",
    "LinkModel",
    "LinkSignals",
    "PredictedLinks",
    "adjacency",
    "fit_links",
    "linear_autoencoder",
    "nearest_nodes",
    "predict_links",
    "sparse_product",
    "steep_shares",
]

MAX_DENSE = 20_000
"""Maximum nodes of a dense [N, N] matrix: 1.6 GB in float32."""

_FLOOR = 1e-3  # minimum of a signal before its logarithm
_NEIGHBOURS = 20  # most similar nodes whose edges count
_TILE, _PAIRS = 512, 256  # rows of similarities, and of pairs with their signals, computed at once
_SHARE = 0.1  # share of the edges hidden in a draw
_HARD, _RANDOM = 16, 32  # absent pairs sampled from each row: the most likely, and random ones
_WANTED = 1000  # hidden edges of a fit, in several draws if one has fewer
_DRAWS = 8


def adjacency(graph: Graph) -> Tensor:  # [N, N] float32
    """Return dense A with A_ij = 1 if an edge leads from i to j, whatever its type and weight.

    Raises:
        InputError: There are more than `MAX_DENSE` nodes.
    """
    if graph.num_nodes > MAX_DENSE:
        raise InputError(
            f"graph: expected at most {MAX_DENSE} nodes for dense matrices, got "
            f"{graph.num_nodes}; take the part of it that is asked about"
        )
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, device=graph.device)
    dense[graph.source.long(), graph.target.long()] = 1.0
    return dense


def sparse_product(
    left: Tensor,  # [r, N], mostly zeros
    right: Tensor,  # [N, b]
) -> Tensor:  # [r, b]
    """Return `left @ right` in the time of the nonzeros of `left`."""
    row, column = left.nonzero(as_tuple=True)
    return spmm(pointers(row, left.shape[0]), column.to(torch.int32), left[row, column], right)


def linear_autoencoder(graph: Graph, *, penalty: float = 10.0) -> Tensor:  # [N, N] float32
    """Return the linear map B with zero diagonal that best reconstructs the rows of the adjacency.

    min ‖A - A B‖² + penalty ‖B‖² with diag(B) = 0: B = I - P diag(P)⁻¹, P = (AᵀA + penalty I)⁻¹
    (Steck 2019, EASE, eq. 8). Unlike a truncated SVD of A, it uses the full spectrum: every
    singular direction counts by σ² / (σ² + penalty), and a column cannot predict itself. Row u of A
    B scores the absent edges of u by what usually occurs with its present ones.

    Args:
        graph: N nodes, at most 20,000; edges count once, whatever their weight.
        penalty: Ridge penalty above 0; a larger one needs more edges for a pattern to count.

    Raises:
        InputError: There are too many nodes, or the penalty is not above 0.
    """
    check_range("penalty", penalty, 1e-6)
    dense = adjacency(graph)
    found = torch.zeros_like(dense)
    used = (graph.in_degree > 0).nonzero().squeeze(1)  # B is 0 for all others
    # Row v of AᵀA sums the rows of A of all u with an edge to v: the graph's incoming rows.
    gram = spmm(graph.indptr, graph.source, _pair_weights(graph), dense.index_select(1, used))[used]
    gram.diagonal().add_(penalty)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    diagonal = inverse.diagonal().clone()
    found[used[:, None], used] = inverse.div_(-diagonal)
    found.fill_diagonal_(0.0)
    return found


def _pair_weights(graph: Graph) -> Tensor:  # [E]
    """Return weights of 1 in which parallel edges of several types count once together."""
    pair = graph.target.long() * graph.num_nodes + graph.source.long()
    again = torch.zeros_like(pair, dtype=torch.bool)
    again[1:] = pair[1:] == pair[:-1]
    return (~again).float()


class LinkSignals:
    """Signals that an edge from i to j should exist, for every pair (i, j).

    - The linear autoencoder of the adjacency, which comes first: targets seen with those of i.
    - The edges of the nodes most similar to i, by shared targets and by each view of vectors.
    - The targets of the targets of i; also the logarithms of all these.
    - The degrees, the similarity in each view, and the distance and order of i and j.

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
    ) -> None:
        """Prepare the signals: O(N³) once, for the autoencoder, and O(N²) memory.

        Args:
            graph: At most 20,000 nodes; edges count once, whatever their weight.
            views: Vectors of the nodes, e.g. embeddings of their texts.
            place: Place of each node in its source; near nodes belong together.

        Raises:
            InputError: There are too many nodes, or views or places do not fit or are not finite.
        """
        self.num_nodes = graph.num_nodes
        given: list[tuple[str, Tensor, tuple[int | str, ...]]]
        given = [("views", view, (self.num_nodes, "d")) for view in views]
        given += [] if place is None else [("place", place, (self.num_nodes,))]
        for name, value, shape in given:
            check_tensor(name, value, "", shape, "give a row for each node, in their order")
            if not bool(value.isfinite().all()):
                raise InputError(
                    f"{name}: expected finite values, got NaN or infinity; leave such nodes out"
                )
        self._place = None if place is None else place.float()
        self.dense = adjacency(graph)
        self._out, self._in = self.dense.sum(1), self.dense.sum(0)
        self._views = [view.float() for view in views]
        self._reach = self._out.clamp(min=1).rsqrt()
        self._rare = self._in.clamp(min=1).rsqrt()
        self.pattern = linear_autoencoder(graph)
        # Two nodes are similar if they share targets; rare targets count more.
        idf = ((self.num_nodes + 1) / (self._in + 1)).log().sqrt()
        shared = torch.nn.functional.normalize(self.dense * idf, dim=1)
        self._peers = [nearest_nodes(shared, _NEIGHBOURS, sparse=True)]
        self._peers += [nearest_nodes(view, _NEIGHBOURS) for view in self._views]
        self.count = 3 + 2 * (2 + len(self._peers)) + len(self._views) + 2 * (place is not None)

    def tile(self, first: int, last: int) -> Tensor:  # [last - first, N, F]
        """Return the signals of the pairs (i, j) of `first <= i < last` and all j."""
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
    """Return the k nearest other nodes of each node, and shares that fall steeply with cosine.

    `sparse` says that `x` is mostly zeros; the time is then that of its nonzeros.
    """
    nodes = x.shape[0]
    k = min(k, nodes - 1)
    across = x.T.contiguous() if sparse else x.T
    column, value = [], []
    for first in range(0, nodes, _TILE):
        rows = x[first : first + _TILE]
        cosine = sparse_product(rows, across) if sparse else rows @ across
        cosine.diagonal(first).fill_(-torch.inf)
        best, nearest = stable_topk(cosine, k)
        column.append(nearest)
        value.append(best.clamp(min=0))
    return torch.cat(column), steep_shares(torch.cat(value))


def steep_shares(similarity: Tensor) -> Tensor:  # [..., k], best first, >= 0 -> [..., k]
    """Return (s / s_best)⁴ scaled to sum to 1: votes count by their ratio to the best."""
    if similarity.shape[-1] == 0:
        return similarity
    ratio = (similarity / similarity[..., :1].clamp(min=1e-9)).pow(4)
    return ratio / ratio.sum(-1, keepdim=True).clamp(min=1e-9)


def _scatter(peers: tuple[Tensor, Tensor], rows: slice, shape: tuple[int, int]) -> Tensor:
    column, value = peers[0][rows], peers[1][rows]
    return value.new_zeros(shape).scatter_(1, column, value)


@dataclass(frozen=True, eq=False)
class PredictedLinks:
    """Absent edges, most likely first.

    Attributes:
        pairs: `[2, k]` int64: sources, targets.
        probability: `[k]`, probability of being an edge like the existing ones.
    """

    pairs: Tensor
    probability: Tensor


@dataclass(frozen=True, eq=False)
class LinkModel:
    """Fitted model of all pairs of nodes.

    Attributes:
        signals: Signals of the whole graph.
        logistic: Weights of the signals.
        order: `[N]`; edges lead only to nodes of smaller order. None: anywhere.
    """

    signals: LinkSignals
    logistic: Logistic
    order: Tensor | None

    def tiles(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield first row, `[r, N]` log odds, and `[r, N]` mask of absent and possible pairs."""
        for first in range(0, self.signals.num_nodes, _PAIRS):
            last = min(first + _PAIRS, self.signals.num_nodes)
            score = self.logistic.log_odds(self.signals.tile(first, last))
            yield first, score, _absent(self.signals, self.order, first, last)


def fit_links(
    graph: Graph,  # N nodes
    views: Sequence[Tensor] = (),  # each [N, d], unit rows
    *,
    order: Tensor | None = None,  # [N]
    place: Tensor | None = None,  # [N]
    generator: torch.Generator | None = None,
) -> LinkModel:
    """Fit, from the graph itself, the signals that predict an edge.

    Hides a share of the edges; the signals of the rest should separate them from absent pairs.
    Absent pairs are sampled row by row, the most likely by the autoencoder and random ones,
    weighted by the inverse of their probability. With the fitted weights, the signals of the whole
    graph score its absent pairs. Uses no edge outside the given graph.

    Args:
        graph: At most 20,000 nodes, with two edges or more.
        views: Vectors of the nodes, e.g. embeddings of their texts.
        order: Order of the nodes if edges only lead back, e.g. from a theorem to earlier ones.
        place: Place of each node in its source, e.g. its line; near nodes belong together.
        generator: Random generator for the draws.

    Raises:
        InputError: The graph is too small, too large or complete, views or places are not finite or
            do not fit the nodes, or the order does not fit the edges.
    """
    if graph.num_edges < 2:
        raise InputError(
            f"graph: expected at least 2 edges to learn from, got {graph.num_edges}; add edges"
        )
    if order is not None:
        check_tensor("order", order, "", (graph.num_nodes,), "give each node's place")
        if not bool((order[graph.source] > order[graph.target]).all()):
            raise InputError(
                "order: expected to fall along every edge, got an edge that leads to a node of the "
                "same or larger order; leave the order out"
            )
    hidden = max(1, int(_SHARE * graph.num_edges))
    rows = []
    for _ in range(min(_DRAWS, -(-_WANTED // hidden))):
        drawn = torch.randperm(graph.num_edges, generator=generator).to(graph.device)
        keep = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
        keep[drawn[:hidden]] = False
        reduced = LinkSignals(graph.select(keep), views, place=place)
        rows.append(_examples(reduced, graph.edge_index[:, ~keep], order, generator))
    signals, positive, weight = (torch.cat(column) for column in zip(*rows, strict=True))
    if bool(positive.all()):
        raise InputError(
            f"graph: expected some edge to be absent, got all that {graph.num_nodes} nodes may "
            "have; ask of a graph in which something may be missing"
        )
    full = LinkSignals(graph, views, place=place)
    return LinkModel(full, fit_logistic(signals, positive, weight), order)


def predict_links(
    graph: Graph,  # N nodes
    views: Sequence[Tensor] = (),  # each [N, d], unit rows
    k: int = 10,
    *,
    order: Tensor | None = None,  # [N]
    place: Tensor | None = None,  # [N]
    generator: torch.Generator | None = None,
) -> PredictedLinks:
    """Return the k most likely absent edges, learned from the graph itself (`fit_links`).

    Raises:
        InputError: See `fit_links`, or k is below 1.
    """
    check_count("k", k)
    model = fit_links(graph, views, order=order, place=place, generator=generator)
    best = torch.empty(0, device=graph.device)
    place = torch.empty(0, dtype=torch.int64, device=graph.device)
    for first, score, absent in model.tiles():
        flat = score.masked_fill(~absent, -torch.inf).flatten()
        top, pair = (each[0] for each in stable_topk(flat[None], min(k, flat.shape[0])))
        best = torch.cat([best, top])
        place = torch.cat([place, pair + first * graph.num_nodes])
        place, order = place.sort()
        best, kept = (each[0] for each in stable_topk(best[order][None], min(k, len(order))))
        place = place[kept]
    real = best > -torch.inf
    best, place = best[real], place[real]
    pairs = torch.stack([place // graph.num_nodes, place % graph.num_nodes])
    return PredictedLinks(pairs, best.sigmoid())


def _examples(
    signals: LinkSignals,  # signals of the graph without the hidden edges
    hidden: Tensor,  # [2, H]
    order: Tensor | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:  # [n, F], [n] bool, [n]
    """Return the signals of hidden edges and of sampled absent pairs."""
    nodes = signals.num_nodes
    missing = hidden[0] * nodes + hidden[1]
    found = []
    for first in range(0, nodes, _PAIRS):
        last = min(first + _PAIRS, nodes)
        tile = signals.tile(first, last)
        positive = torch.zeros(last - first, nodes, dtype=torch.bool, device=hidden.device)
        inside = missing[(missing >= first * nodes) & (missing < last * nodes)] - first * nodes
        positive.view(-1)[inside] = True
        weight = _sampled(tile, _absent(signals, order, first, last) & ~positive, generator)
        weight[positive] = 1.0
        chosen = weight > 0
        found.append((tile[chosen], positive[chosen], weight[chosen]))
    features, labels, weights = (torch.cat(column) for column in zip(*found, strict=True))
    return features, labels, weights


def _sampled(
    tile: Tensor,  # [r, N, F]
    negative: Tensor,  # [r, N] bool
    generator: torch.Generator | None,
) -> Tensor:  # [r, N]
    """Return the weight of each absent pair in the fit; 0 if it is not sampled."""
    nodes = negative.shape[1]
    weight = torch.zeros(negative.shape, device=tile.device)
    likely = tile[..., 0].masked_fill(~negative, -torch.inf)
    hard = likely.topk(min(_HARD, nodes), dim=1).indices
    weight.scatter_(1, hard, 1.0)
    rest = negative & (weight == 0)
    chance = torch.rand(negative.shape, generator=generator).to(tile.device)
    drawn = chance.masked_fill(~rest, 2.0).topk(min(_RANDOM, nodes), dim=1, largest=False).indices
    left = rest.sum(1, keepdim=True)
    scale = left / left.clamp(max=drawn.shape[1]).clamp(min=1)
    random = torch.zeros_like(rest).scatter_(1, drawn, True) & rest
    return torch.where(random, scale, weight).masked_fill(~negative, 0.0)


def _absent(
    signals: LinkSignals, order: Tensor | None, first: int, last: int
) -> Tensor:  # [r, N] bool
    """Return the pairs without an edge in any direction that the order allows."""
    absent = (signals.dense[first:last] == 0) & (signals.dense[:, first:last].T == 0)
    absent.diagonal(first).fill_(False)
    if order is not None:
        absent &= order[first:last, None] > order
    return absent
