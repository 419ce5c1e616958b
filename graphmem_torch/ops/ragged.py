"""Ragged rows: lists of different lengths, one after another in flat tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "array_ranges",
    "blocks",
    "lower_bounds",
    "ranges",
    "row_entries",
    "runs",
    "segment_topk",
]


def ranges(
    first: Tensor | int,  # [R] integers, or one for all
    count: Tensor,  # [R] integers, >= 0
    *,
    total: int | None = None,
) -> tuple[Tensor, Tensor]:  # [T], [T] int64
    """Return the numbers first[r], first[r] + 1, ... of every row r, and the row of each number.

    A gather over rows of unequal length needs these. For compressed rows, `first` is the begin of a
    row and `count` its number of entries.

    Args:
        first: First number of each row; with 0, a number is its place inside the row.
        count: Number of numbers in each row.
        total: T, the sum of `count`, if known; otherwise waits for the device.

    Returns:
        Row of every number, in the type of `count`, and the numbers.
    """
    ends = count.cumsum(0)
    if total is None:
        total = int(ends[-1]) if ends.shape[0] else 0
    row = torch.repeat_interleave(count, output_size=total)
    number = torch.arange(total, device=count.device)
    number += (first - ends + count).index_select(0, row)
    return row, number


def row_entries(
    indptr: Tensor,  # [N + 1] integers
    rows: Tensor,  # [R] int64, in 0..N-1
) -> tuple[Tensor, Tensor]:  # [T], [T] int64
    """Return the entries of some rows of a compressed matrix: index into `rows`, and entry."""
    first = indptr.index_select(0, rows)
    return ranges(first, indptr.index_select(0, rows + 1) - first)


def blocks(count: Tensor, budget: int) -> Iterator[tuple[slice, int]]:
    """Yield blocks of runs with about `budget` entries, at least one run each; no empty block."""
    if not count.shape[0]:
        return
    ends = count.cumsum(0)
    if (total := int(ends[-1])) <= budget:
        if total:
            yield slice(0, len(count)), total
        return
    block = torch.div((ends - 1).clamp(min=0), budget, rounding_mode="floor")
    last = torch.nn.functional.pad(block.diff() > 0, (0, 1), value=True).nonzero().squeeze(1)
    begin = before = 0
    for stop, end in zip((last + 1).tolist(), ends[last].tolist(), strict=True):
        if end > before:
            yield slice(begin, stop), end - before
        begin, before = stop, end


def segment_topk(
    values: Tensor,  # [n]
    segment: Tensor,  # [n] int64 in 0..S-1
    size: Tensor,  # [S] int64, number of values in each segment
    k: int,
) -> Tensor:  # [S, k] int64
    """Return the places of the k largest values of each segment, best first; -1 if missing.

    Ties keep their order. Two stable sorts, by value and then by segment.
    """
    if not len(values):
        return size.new_full((len(size), k), -1)
    ranked = values.argsort(descending=True, stable=True)
    ranked = ranked[segment[ranked].argsort(stable=True)]
    begin = size.cumsum(0) - size
    lane = torch.arange(k, device=values.device)
    place = (begin[:, None] + lane).clamp(max=len(values) - 1)
    return ranked[place].masked_fill(lane >= size[:, None], -1)


def array_ranges(
    first: np.ndarray,  # [R] integers
    count: np.ndarray,  # [R] integers, >= 0
) -> tuple[np.ndarray, np.ndarray]:  # [T], [T]
    """`ranges` of arrays, for data kept on the CPU that changes a few rows at a time.

    For so few numbers, a numpy call takes a third of a torch call.
    """
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) + (first - count.cumsum() + count)[row]


def runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [n] -> [r], [r] int64
    """Return begin and length of each run of equal values."""
    fresh = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=fresh[1:])
    begin = fresh.nonzero()[0]
    size = np.empty_like(begin)
    np.subtract(begin[1:], begin[:-1], out=size[:-1])
    size[-1:] = len(values) - begin[-1:]
    return begin, size


def lower_bounds(
    low: np.ndarray,  # [m] int64
    high: np.ndarray,  # [m] int64, ends of the runs
    values: np.ndarray,  # [E], ascending inside each run
    keys: np.ndarray,  # [m]
) -> np.ndarray:  # [m] int64
    """Return, for each run, the first entry not below its key, or the end of the run."""
    while True:
        opened = low < high
        if not opened.any():
            return low
        middle = (low + high) >> 1
        below = values.take(middle, mode="clip") < keys
        low = np.where(opened & below, middle + 1, low)
        high = np.where(opened & ~below, middle, high)
