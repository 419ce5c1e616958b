"""Dense adjacency of a graph that is not large, products with its rows, and who reaches whom."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.coo import pointers
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.spmm import spmm

__all__ = ["MAX_DENSE", "adjacency", "reach", "sparse_product"]

MAX_DENSE = 20_000
"""Nodes up to which a dense [N, N] matrix is made: 1.6 GB in float32."""


def adjacency(graph: Graph) -> Tensor:  # [N, N] float32
    """A dense with A_ij = 1 where an edge leads from i to j, whatever its type and weight.

    Raises:
        InputError: Above `MAX_DENSE` nodes.
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
    """`left @ right` in the time of what is not zero in `left`."""
    row, column = left.nonzero(as_tuple=True)
    return spmm(pointers(row, left.shape[0]), column.to(torch.int32), left[row, column], right)


def reach(graph: Graph, hops: int | None = None) -> Tensor:  # [N, N] float32
    """1 where a path of at least one edge, and at most `hops`, leads from i to j; else 0.

    Without `hops`, nodes are done level by level, each from the finished rows of its targets, so
    every edge is followed once; in a graph with circles, hop by hop until nothing changes.

    Raises:
        InputError: Above 20,000 nodes, or `hops` below 1.
    """
    dense = adjacency(graph)
    if hops is not None:
        check_count("hops", hops)
        found = dense
        for _ in range(hops - 1):
            found = torch.maximum(dense, sparse_product(dense, found).clamp_(max=1.0))
        return found
    level = _levels(graph)
    if level is None:
        found, known = dense, -1
        while (now := int(found.count_nonzero())) != known:
            known = now
            found = torch.maximum(found, sparse_product(dense, found).clamp_(max=1.0))
        return found
    found = torch.zeros_like(dense)
    for depth in range(1, int(level.max()) + 1 if len(level) else 0):
        rows = (level == depth).nonzero().squeeze(1)
        own = dense[rows]
        found[rows] = torch.maximum(own, sparse_product(own, found).clamp_(max=1.0))
    return found


def _levels(graph: Graph) -> Tensor | None:  # [N] int64
    """Length of the longest path that leaves each node; None where there is a circle."""
    source, target = graph.source.long(), graph.target.long()
    waiting = torch.bincount(source, minlength=graph.num_nodes)  # targets without a level
    level = torch.full_like(waiting, -1)
    depth = 0
    while bool((ready := (waiting == 0) & (level < 0)).any()):
        level[ready] = depth
        waiting -= torch.bincount(source[ready[target]], minlength=graph.num_nodes)
        depth += 1
    return level if bool((level >= 0).all()) else None
