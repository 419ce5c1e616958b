"""Ragged rows: lists of different lengths, one after another in flat tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "array_ranges",
    "array_row_entries",
    "lower_bounds",
    "ranges",
    "row_entries",
    "segment_topk",
    "splice",
]


def ranges(
    first: Tensor | int,  # [R] integers, or one for all
    count: Tensor,  # [R] integers, >= 0
    *,
    total: int | None = None,
) -> tuple[Tensor, Tensor]:  # [T], [T] int64
    """The numbers first[r], first[r] + 1, ... of every row r, and which row each belongs to.

    What a gather over rows of unequal length needs: of compressed rows, `first` is where a row
    begins and `count` how many entries it has.

    Args:
        first: First number of each row; with 0 a number is the place inside its row.
        count: How many numbers each row has.
        total: T, the sum of `count`, where it is known; else the device is waited for.

    Returns:
        The row of every number, in the type of `count`, and the numbers.
    """
    ends = count.cumsum(0)
    if total is None:
        total = int(ends[-1]) if len(ends) else 0
    row = torch.repeat_interleave(count, output_size=total)
    number = torch.arange(total, device=count.device)
    number += (first - ends + count).index_select(0, row)
    return row, number


def row_entries(
    indptr: Tensor,  # [N + 1] integers
    rows: Tensor,  # [R] int64, in 0..N-1
) -> tuple[Tensor, Tensor]:  # [T], [T] int64
    """The entries of some rows of a compressed matrix: the place among `rows`, and the entry."""
    first = indptr.index_select(0, rows)
    return ranges(first, indptr.index_select(0, rows + 1) - first)


def segment_topk(
    values: Tensor,  # [n]
    segment: Tensor,  # [n] int64 in 0..S-1
    size: Tensor,  # [S] int64, how many have each number
    k: int,
) -> Tensor:  # [S, k] int64
    """Places of the k largest values of each segment, best first, ties by place; -1 = none.

    Two stable sorts, by value and then by segment.
    """
    ranked = values.argsort(descending=True, stable=True)
    ranked = ranked[segment[ranked].argsort(stable=True)]
    begin = size.cumsum(0) - size
    lane = torch.arange(k, device=values.device)
    place = (begin[:, None] + lane).clamp(max=max(len(values) - 1, 0))
    return ranked[place].masked_fill(lane >= size[:, None], -1)


def array_ranges(
    first: np.ndarray,  # [R] integers
    count: np.ndarray,  # [R] integers, >= 0
) -> tuple[np.ndarray, np.ndarray]:  # [T], [T]
    """`ranges` of arrays: what is kept beside a memory on the CPU changes by a few rows at a time.

    On so few numbers a call of numpy takes a third of one of torch.
    """
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) + (first - count.cumsum() + count)[row]


def array_row_entries(
    indptr: np.ndarray,  # [N + 1] integers
    rows: np.ndarray,  # [R] integers, in 0..N-1
) -> tuple[np.ndarray, np.ndarray]:  # [T], [T]
    """`row_entries` of arrays."""
    first = indptr[rows]
    return array_ranges(first, indptr[rows + 1] - first)


def splice(
    values: np.ndarray,  # [n, ...]
    first: np.ndarray,  # [m] integers, ascending
    last: np.ndarray,  # [m] integers
    counts: np.ndarray,  # [m] integers
    inserted: np.ndarray,  # [counts.sum(), ...]
) -> np.ndarray:
    """A copy of `values` in which `values[first[i]:last[i]]` became the next `counts[i]` inserted.

    The spans do not overlap; an empty one takes its entries in front of `values[first[i]]`. What
    lies between is copied in whole pieces: few changes in many values cost little more than a copy.
    """
    parts: list[np.ndarray] = []
    at = begin = 0
    for start, stop, end in zip(
        first.tolist(), last.tolist(), counts.cumsum().tolist(), strict=True
    ):
        parts += (values[at:start], inserted[begin:end])
        at, begin = stop, end
    return np.concatenate([*parts, values[at:]])


def lower_bounds(
    indptr: np.ndarray,  # [N + 1] integers
    values: np.ndarray,  # [E], ascending inside each row
    rows: np.ndarray,  # [m] integers, in 0..N-1
    keys: np.ndarray,  # [m]
) -> np.ndarray:  # [m] int64
    """In each row the first entry that is not below a key, or the end of the row."""
    low, high = indptr[rows].astype(np.int64), indptr[rows + 1].astype(np.int64)
    while True:
        opened = low < high
        if not opened.any():
            return low
        middle = (low + high) >> 1
        below = values.take(middle, mode="clip") < keys
        low = np.where(opened & below, middle + 1, low)
        high = np.where(opened & ~below, middle, high)
