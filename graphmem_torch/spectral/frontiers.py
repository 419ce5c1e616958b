"""frontiers: nodes that lie remote and have little that ties them to the rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import check_count
from graphmem_torch.spectral.centrality import centrality as spectral_centrality
from graphmem_torch.spectral.symmetric import undirected

__all__ = ["Frontiers", "frontiers"]


@dataclass(frozen=True, eq=False)
class Frontiers:
    """The most remote nodes, best first.

    Attributes:
        node: `[k]` int64.
        score: `[k]`, centrality / (degree + 1).
        centrality: `[k]`.
        degree: `[k]` float64, Σ|w|.
    """

    node: Tensor
    score: Tensor
    centrality: Tensor
    degree: Tensor

    def __len__(self) -> int:
        """Number of nodes k."""
        return self.node.shape[0]


def frontiers(
    graph: Graph,  # N nodes
    top: int = 10,
    *,
    centrality: Tensor | None = None,  # [N]
    columns: int = 256,
    generator: torch.Generator | None = None,
) -> Frontiers:
    """Nodes of the largest centrality / (degree + 1) (`mathematics.md` 2.5).

    Centrality means remoteness (`mathematics.md` 2.4) and the degree is d_i = Σ|w_ij|, so a
    frontier is known to the graph but hardly tied into it. Isolated nodes, of centrality 0, are
    none.

    Args:
        graph: Signs and directions are ignored.
        top: How many at most; on a tie the smaller node number.
        centrality: As `centrality` returns it, where it is there already.
        columns: Of the sketch by which it is estimated above 1,024 nodes.
        generator: Of the sketch.

    Raises:
        InputError: If the centrality does not fit the graph or a constant is out of range.
    """
    check_count("top", top)
    if centrality is None:
        found = spectral_centrality(graph, columns=columns, generator=generator)
        centrality = found.values
    if centrality.shape != (graph.num_nodes,) or centrality.device != graph.device:
        raise InputError(
            f"centrality must be [{graph.num_nodes}] on {graph.device}; got "
            f"{list(centrality.shape)} on {centrality.device}. Was the graph rebuilt since?"
        )
    low, high, weight = undirected(graph)
    size = weight.double().abs()
    degree = size.new_zeros(graph.num_nodes).index_add_(0, low, size).index_add_(0, high, size)
    score = centrality.double() / (degree + 1)
    node = torch.argsort(score, descending=True, stable=True)[:top]
    node = node[degree[node] > 0]
    return Frontiers(node, score[node], centrality[node], degree[node])
