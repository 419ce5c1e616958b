"""Symmetric edges: the undirected graph that spectra are taken of."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.coo import pointers, strongest_of_equal
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph

__all__ = ["compress", "undirected"]


def undirected(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:  # [M] low, [M] high, [M] weight
    """One edge for each connected pair `low < high`: the one of largest |w|, whatever its way.

    `mathematics.md` 2.1. On a tie of |w| a positive weight wins, so that the result does not
    depend on directions. Loops and weights of 0 are left out. Ordered by (low, high).

    Raises:
        InputError: If the weights require a gradient.
    """
    if graph.weight.requires_grad:
        raise InputError(
            "graph must have weights without a gradient, because spectra have no backward here; "
            "got weight.requires_grad=True. Call graph.with_weight(graph.weight.detach())."
        )
    kept = (graph.source != graph.target) & (graph.weight != 0)
    source, target = graph.source[kept].long(), graph.target[kept].long()
    weight = graph.weight[kept]
    if bool((weight < 0).any()):
        # Positive edges first: the merge takes the first of equally strong ones.
        order = torch.sort((weight < 0).to(torch.uint8), stable=True).indices
        source, target, weight = source[order], target[order], weight[order]
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    key, order = torch.sort(low * graph.num_nodes + high, stable=True)
    order = strongest_of_equal(key, order, weight)
    return low[order], high[order], weight[order]


def compress(
    low: Tensor,  # [M]
    high: Tensor,  # [M]
    nodes: int,
) -> tuple[Tensor, Tensor, Tensor]:  # [N + 1] int32, [2M] int32, [2M] int64
    """Rows of the symmetric matrix: `indptr`, `column`, and which undirected edge each entry is."""
    row, column = torch.cat([high, low]), torch.cat([low, high])
    # Given ordered by (low, high), a stable sort by row alone leaves columns ascending: first the
    # smaller neighbours (row = high), then the larger ones.
    order = torch.sort(row.to(torch.int32), stable=True).indices
    edge = order % max(low.shape[0], 1)
    return pointers(row, nodes), column[order].to(torch.int32), edge
