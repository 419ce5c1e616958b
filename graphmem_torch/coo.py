"""COO: checks of edge lists, and sorting and merging them into compressed rows."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.checks import all_finite, check_count, check_entries, check_tensor
from graphmem_torch.errors import InputError

__all__ = [
    "MAX_TYPE",
    "check_edge_index",
    "check_finite",
    "column",
    "edge_keys",
    "expect_keyed",
    "expect_paired",
    "int32_offsets",
    "isin",
    "isin_pairs",
    "offsets_of",
    "pointers",
    "strongest_of_equal",
    "unique_pairs",
    "without_once",
]

Numbers = TypeVar("Numbers", Tensor, np.ndarray)

MAX_TYPE = 255
"""Largest edge type: types are stored in one byte."""

_MAX_NODES = 1 << 27  # (target, source, type) must fit one int64 sort key
_MAX_EDGES = (1 << 31) - 1  # indptr is int32


def isin_pairs(pairs: Tensor, others: Tensor) -> Tensor:  # [2, n], [2, m] -> [n] bool
    """Return the mask of columns of nonnegative numbers that are in the other columns."""
    size = 1 + max((int(each.max()) for each in (pairs, others) if each.numel()), default=0)
    expect_paired(size)
    return torch.isin(pairs[0] * size + pairs[1], others[0] * size + others[1])


def unique_pairs(pairs: Tensor) -> tuple[Tensor, Tensor]:  # [2, n] -> [2, m], [n] int64
    """Return the distinct columns of nonnegative numbers, ascending, and each one's place."""
    size = 1 + (int(pairs.max()) if pairs.numel() else 0)
    expect_paired(size)
    key, place = (pairs[0] * size + pairs[1]).unique(return_inverse=True)
    return torch.stack([key // size, key % size]), place


def check_edge_index(edge_index: Tensor, num_nodes: int | None) -> int:
    """Return the number of nodes; raise `InputError` unless `edge_index` is a valid `[2, E]`."""
    check_tensor("edge_index", edge_index, "integers", (2, "E"), "stack sources over targets")
    check_count("the edges of edge_index", edge_index.shape[1], 0, _MAX_EDGES)
    nodes = num_nodes
    if nodes is None:
        nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    if not 0 <= nodes <= _MAX_NODES:
        raise InputError(f"num_nodes: expected 0..{_MAX_NODES}, got {nodes}; shard the graph")
    check_entries("edge_index", edge_index, 0, nodes - 1, "give num_nodes or drop that edge")
    return nodes


def column(
    name: str, value: Tensor | None, count: int, device: torch.device, dtype: torch.dtype, fill: Any
) -> Tensor:
    """Return one attribute of the edges as `[count]` of `dtype`, or `fill` if it is None."""
    if value is None:
        return torch.full((count,), fill, dtype=dtype, device=device)
    do = "give one for each edge, where edge_index is"
    check_tensor(name, value, "", (count,), do, device=device)
    if value.is_complex():
        raise InputError(f"{name}: expected real numbers, got {value.dtype}; give value.real")
    if dtype == torch.uint8 and value.dtype != dtype:
        if value.is_floating_point():
            raise InputError(f"{name}: expected integers, got {value.dtype}; convert with .long()")
        check_entries(name, value, 0, MAX_TYPE, "use the numbers of EdgeType")
    return value.to(dtype)


def check_finite(weight: Tensor, given: Tensor | None = None) -> None:  # [E], [E]
    """Raise `InputError` for a weight that is not finite; waits for the device.

    Checks nothing in `torch.compile`, where values cannot be read.

    Args:
        weight: Weights.
        given: The same before they got their dtype, for the message.
    """
    if torch.compiler.is_compiling() or all_finite(weight):
        return
    bad = int((~weight.isfinite()).nonzero()[0])
    value = float(weight[bad]) if given is None else float(given[bad])
    what = f"numbers in the range of {weight.dtype}" if math.isfinite(value) else "finite numbers"
    raise InputError(
        f"weight: expected {what}, got {value} at edge {bad}; drop or repair that edge"
    )


def strongest_of_equal(key: Tensor, order: Tensor, weight: Tensor) -> Tensor:
    """Return the position of the largest |weight| of each run of equal keys, the first on a tie."""
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


def without_once(held: Tensor, gone: Tensor) -> Tensor:  # [F, n], [F, m] integers -> [n] bool
    """Return the mask of columns left after each of `gone` removes its first equal column.

    A missing column removes nothing. Removing few columns costs a scan of the others, and a sort of
    only those that may be equal.
    """
    stays = torch.ones(held.shape[1], dtype=torch.bool, device=held.device)
    near = torch.arange(held.shape[1], device=held.device)
    for own, leaving in zip(held, gone, strict=True):
        near = near[isin(own[near], leaving)]
    if not len(near):
        return stays
    # Row by row: sorting numbers is far quicker than sorting columns.
    group = torch.zeros(len(near) + gone.shape[1], dtype=torch.int64, device=held.device)
    for one in torch.cat([held[:, near], gone], 1):
        values, place = one.unique(return_inverse=True)
        group = (group * len(values) + place).unique(return_inverse=True)[1]
    own = group[: len(near)]
    leaving = torch.bincount(group[len(near) :], minlength=int(group.max()) + 1)
    order = own.argsort(stable=True)
    rank = torch.arange(len(own), device=own.device) - torch.searchsorted(own[order], own[order])
    stays[near[order]] = rank >= leaving[own[order]]
    return stays


def isin(values: Tensor, asked: Tensor) -> Tensor:  # [n], [m] integers -> [n] bool
    """Return `torch.isin`, without its sort if the range of `asked` is at most `len(values)`."""
    if not (len(values) and len(asked)):
        return torch.zeros(values.shape, dtype=torch.bool, device=values.device)
    first, last = int(asked.min()), int(asked.max())
    if last - first > len(values):
        return torch.isin(values, asked)
    there = torch.zeros(last - first + 3, dtype=torch.bool, device=values.device)
    there[asked.long() - (first - 1)] = True
    return there[values.long().clamp(first - 1, last + 1) - (first - 1)]


def pointers(ids: Tensor, nodes: int) -> Tensor:
    """Return `[N + 1]` int32: where the run of each id starts once the ids are sorted.

    Raises:
        InputError: There are more ids than an int32 can count.
    """
    _expect_counted(ids.shape[0])  # before any work
    return int32_offsets(torch.bincount(ids, minlength=nodes))


def int32_offsets(counts: Tensor) -> Tensor:  # [n] -> [n + 1] int32
    """Return `offsets_of` in 32 bits.

    Raises:
        InputError: There are more entries than an int32 can count.
    """
    offsets = offsets_of(counts)
    _expect_counted(int(offsets[-1]))
    return offsets.to(torch.int32)


def _expect_counted(edges: int) -> None:
    if edges > _MAX_EDGES:
        raise InputError(
            f"edges: expected at most {_MAX_EDGES:,} in one graph, got {edges:,}; divide it, such "
            "as a memory into shards (`graphmem index --shards`)"
        )


def expect_keyed(nodes: int) -> None:
    """Raise InputError for more nodes than a sort key of source, target and type can number."""
    most = math.isqrt((1 << 63) // (MAX_TYPE + 1))
    if nodes > most:
        raise InputError(
            f"nodes: expected at most {most:,} in one graph, got {nodes:,}; divide it, such as a "
            "memory into shards (`graphmem index --shards`)"
        )


def edge_keys(source: Numbers, target: Numbers, type: Numbers, nodes: int) -> Numbers:
    """Return the sort key [n] int64 of edges: source, then target, then type; see `expect_keyed`.

    Source and target are int64 columns, of torch or numpy.
    """
    expect_keyed(nodes)
    return (source * nodes + target) * (MAX_TYPE + 1) + type


def expect_paired(size: int) -> None:
    """Raise InputError if pairs of numbers below `size` have no int64 key."""
    if size > (most := math.isqrt(1 << 63)):
        raise InputError(
            f"pairs: expected numbers below {most:,}, got {size - 1:,}; number them from 0 on"
        )


def offsets_of(counts: Tensor) -> Tensor:  # [n] -> [n + 1] int64
    """Return where each of n consecutive runs starts, and where the last one ends."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))
