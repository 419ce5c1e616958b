"""leiden: communities of largest modularity, by the library graspologic-native."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import check_count
from graphmem_torch.spectral.components import number, roots_of
from graphmem_torch.spectral.symmetric import compress, undirected

__all__ = ["connected_parts", "leiden"]


def leiden(
    graph: Graph,  # N nodes
    *,
    resolution: float = 1.0,
    iterations: int = 1,
    seed: int = 0,
) -> Tensor:  # [N] int32
    """Communities of large modularity (Traag, Waltman and van Eck 2019), each of them connected.

    The modularity is that of |w|, the larger of both directions (`mathematics.md` 2.1): what
    contradicts each other is about the same. Computed on the CPU, by one thread, so one seed gives
    one result.

    Args:
        graph: Any; loops do not count.
        resolution: Larger values give more and smaller communities.
        iterations: Times the whole cycle is run, each from the result before.
        seed: Of the order in which nodes are looked at.

    Returns:
        Labels 0, 1, ... in order of each community's smallest node; an isolated node has its own.

    Raises:
        InputError: If graspologic-native is not installed, or a constant is out of range.
    """
    if not 0 < resolution < float("inf"):
        raise InputError(f"resolution must be above 0 and finite; got {resolution}. Try 1.0.")
    check_count("iterations", iterations)
    check_count("seed", seed, 0)
    library = _library()
    low, high, weight = undirected(graph)
    if low.numel() == 0:
        return torch.arange(graph.num_nodes, dtype=torch.int32, device=graph.device)
    indptr, column, edge = compress(low, high, graph.num_nodes)
    strength = weight.double().abs()
    strength = strength / strength.max()  # subnormal weights would vanish in the library's sums
    _, found = library.leiden_csr(
        indptr.to("cpu", torch.int64).numpy(),
        column.cpu().numpy(),
        strength[edge].cpu().numpy(),
        graph.num_nodes,
        resolution=resolution,
        iterations=iterations,
        seed=seed,
    )
    node = torch.tensor(list(found.keys()), dtype=torch.int64)
    label = torch.arange(len(found), len(found) + graph.num_nodes)
    label[node] = torch.tensor(list(found.values()), dtype=torch.int64)
    return connected_parts(label.to(graph.device), low, high)


def connected_parts(
    label: Tensor,  # [N] integers
    low: Tensor,  # [M]
    high: Tensor,  # [M]
) -> Tensor:  # [N] int32
    """The connected parts of every label, numbered in order of their smallest nodes."""
    inside = label[low] == label[high]
    root = roots_of(low[inside], high[inside], label.shape[0])
    return number(root).to(torch.int32)


def _library() -> Any:
    try:
        return importlib.import_module("graspologic_native")
    except ImportError as error:
        raise InputError(
            "method='leiden' expected the package graspologic-native, which is not installed. "
            "Install it (pip install graspologic-native), or choose method='fiedler'."
        ) from error
