"""COO: what an edge list must be, and how it is sorted and merged into compressed rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import InputError

__all__ = [
    "MAX_TYPE",
    "check_edge_index",
    "check_num_nodes",
    "check_type",
    "column",
    "offsets_of",
    "pointers",
    "pyg_columns",
    "strongest_of_equal",
]

MAX_TYPE = 255
"""Largest edge type: types are stored in one byte."""

_MAX_NODES = 1 << 27  # (target, source, type) must fit one int64 sort key
_MAX_EDGES = (1 << 31) - 1  # indptr is int32


def check_edge_index(edge_index: Tensor) -> None:
    """Raises `InputError` unless `edge_index` is `[2, E]` of integers."""
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError(
            f"edge_index must have shape [2, E]; got {list(edge_index.shape)}. Stack sources over "
            "targets."
        )
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise InputError(
            f"edge_index must hold integers; got {edge_index.dtype}. Convert it with .long()."
        )
    if edge_index.shape[1] > _MAX_EDGES:
        raise InputError(
            f"edge_index may hold at most {_MAX_EDGES} edges; got {edge_index.shape[1]}. Shard the "
            "graph."
        )


def check_num_nodes(edge_index: Tensor, num_nodes: int | None) -> int:
    """The number of nodes; raises `InputError` where an id does not fit it."""
    low, high = (int(v) for v in edge_index.aminmax()) if edge_index.numel() else (0, -1)
    nodes = high + 1 if num_nodes is None else num_nodes
    if not 0 <= nodes <= _MAX_NODES:
        raise InputError(f"num_nodes must be in 0..{_MAX_NODES}; got {nodes}. Shard the graph.")
    if low < 0 or high >= nodes:
        raise InputError(
            f"edge_index must hold node ids in 0..{nodes - 1}; got {low if low < 0 else high}. "
            "Give num_nodes or drop that edge."
        )
    return nodes


def check_type(kind: Tensor | None) -> None:
    """Raises `InputError` unless every type is an integer that fits one byte."""
    if kind is None or kind.numel() == 0 or kind.dtype == torch.uint8:
        return
    if kind.is_floating_point():
        raise InputError(f"type must hold integers; got {kind.dtype}. Convert it with .long().")
    low, high = (int(v) for v in kind.aminmax())
    if low < 0 or high > MAX_TYPE:
        raise InputError(
            f"type must be in 0..{MAX_TYPE}; got {low if low < 0 else high}. Use the numbers of "
            "EdgeType."
        )


def column(
    name: str, value: Tensor | None, count: int, device: torch.device, dtype: torch.dtype, fill: Any
) -> Tensor:
    """One attribute of the edges as `[count]` of `dtype`; `fill` when it is not given."""
    if value is None:
        return torch.full((count,), fill, dtype=dtype, device=device)
    if value.shape != (count,):
        raise InputError(
            f"{name} must have shape [{count}], one for each edge; got {list(value.shape)}."
            " Give as many as edge_index has columns."
        )
    if value.device != device:
        raise InputError(
            f"{name} must be on {device} like edge_index; got {value.device}. Move it."
        )
    return value.to(dtype)


def strongest_of_equal(key: Tensor, order: Tensor, weight: Tensor) -> Tensor:
    """Of each run of equal keys, the position of the largest |weight|; the first on a tie."""
    repeated = key[1:] == key[:-1]
    if not bool(repeated.any()):
        return order
    run = torch.nn.functional.pad((~repeated).to(torch.int64).cumsum(0), (1, 0))
    strength = weight.detach().abs()[order]
    runs = int(run[-1]) + 1
    best = strength.new_zeros(runs).scatter_reduce(0, run, strength, "amax")
    winner = torch.full((runs,), len(order), device=weight.device)
    place = torch.arange(len(order), device=weight.device)
    winner = winner.scatter_reduce(
        0, run, torch.where(strength == best[run], place, len(order)), "amin"
    )
    return order[winner]


def pointers(ids: Tensor, nodes: int) -> Tensor:
    """`[N + 1]` int32: where the run of each id starts once the ids are sorted.

    Raises:
        InputError: For more ids than an int32 can count.
    """
    if ids.shape[0] > _MAX_EDGES:
        raise InputError(
            f"edges: expected at most {_MAX_EDGES}, got {ids.shape[0]}; shard the graph"
        )
    return offsets_of(torch.bincount(ids, minlength=nodes)).to(torch.int32)


def offsets_of(counts: Tensor) -> Tensor:  # [n] -> [n + 1] int64
    """Where each of n runs starts when they lie one after another, and where the last one ends."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


def pyg_columns(stores: list[Any]) -> tuple[Tensor | None, Tensor | None]:
    """Weights and times of the edge types of a PyG graph; what only some of them have is filled."""
    weights, times = [], []
    for store in stores:
        weight, attributes = store.get("edge_weight"), store.get("edge_attr")
        if weight is None and attributes is not None and attributes.numel() == store.num_edges:
            weight = attributes
        weights.append(None if weight is None else weight.flatten())
        times.append(store.get("edge_time"))
    return _joined(weights, stores, 1.0), _joined(times, stores, torch.nan)


def _joined(values: list[Tensor | None], stores: list[Any], fill: float) -> Tensor | None:
    if all(value is None for value in values):
        return None
    parts = [
        torch.full((store.num_edges,), fill, device=store.edge_index.device)
        if value is None
        else value
        for value, store in zip(values, stores, strict=True)
    ]
    return torch.cat(parts)
