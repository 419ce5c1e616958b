"""Scores of all pairs of nodes by the usual ways to foretell edges: the baselines of bridges."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.spectral.adjacency import adjacency, sparse_product

__all__ = ["PAIR_BASELINES", "betweenness"]

PairBaseline = Callable[[Graph, Tensor, torch.Generator], Tensor]
"""Graph, unit vectors of its nodes `[N, d]` and random numbers to scores `[N, N]`."""


def betweenness(
    graph: Graph,  # directions are ignored
    *,
    pivots: int = 64,
    generator: torch.Generator | None = None,
) -> Tensor:  # [N]
    """Share of shortest paths through each node, from a sample of starts (Brandes and Pich 2007).

    All starts advance together, a level a round.
    """
    near = _mutual(graph)
    nodes = graph.num_nodes
    start = torch.randperm(nodes, generator=generator)[:pivots]
    column = torch.arange(len(start))
    paths = torch.zeros(nodes, len(start))
    paths[start, column] = 1.0
    seen = paths > 0
    levels = [paths]
    while True:
        step = sparse_product(near, levels[-1]).masked_fill(seen, 0.0)
        if not bool(step.any()):
            break
        seen |= step > 0
        levels.append(step)
    through, total = torch.zeros(nodes, len(start)), torch.zeros(nodes)
    for depth in range(len(levels) - 1, 0, -1):
        here = levels[depth]
        share = torch.where(here > 0, (1 + through) / here.clamp(min=1e-30), 0.0)
        through = sparse_product(near, share) * levels[depth - 1]
        if depth > 1:
            total += through.sum(1)
    return total / max(1, len(start))


def _mutual(graph: Graph) -> Tensor:  # [N, N]
    dense = adjacency(graph)
    return torch.maximum(dense, dense.T)


def _random(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(graph.num_nodes, graph.num_nodes, generator=generator)


def _degree(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    degree = _mutual(graph).sum(1)
    return torch.outer(degree, degree)


def _directed_degree(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    return torch.outer(graph.out_degree, graph.in_degree)


def _common_neighbours(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    near = _mutual(graph)
    return sparse_product(near, near)


def _adamic_adar(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    near = _mutual(graph)
    return sparse_product(near / near.sum(1).clamp(min=2).log(), near)


def _paths3(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    """Paths of three edges, each inner node divided by the root of its degree (Kovacs 2019)."""
    near = _mutual(graph)
    fair = near.sum(1).clamp(min=1).rsqrt()
    return sparse_product(near * fair, sparse_product(near * fair, near))


def _betweenness(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    central = betweenness(graph, generator=generator)
    return torch.outer(central, central)


def _cosine(graph: Graph, view: Tensor, generator: torch.Generator) -> Tensor:
    return view @ view.T


PAIR_BASELINES: Mapping[str, PairBaseline] = {
    "random": _random,
    "degree": _degree,
    "directed_degree": _directed_degree,
    "common_neighbours": _common_neighbours,
    "adamic_adar": _adamic_adar,
    "paths3": _paths3,
    "betweenness": _betweenness,
    "cosine": _cosine,
}
"""By name."""
