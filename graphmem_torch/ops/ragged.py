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
        total = int(ends[-1]) if ends.shape[0] else 0
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


def blocks(count: Tensor, budget: int) -> Iterator[tuple[slice, int]]:
    """Cuts runs into blocks of about `budget` entries, one run at least; no empty block."""
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
    size: Tensor,  # [S] int64, how many have each number
    k: int,
) -> Tensor:  # [S, k] int64
    """Places of the k largest values of each segment, best first, ties by place; -1 = none.

    Two stable sorts, by value and then by segment.
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
    """`ranges` of arrays: what is kept beside a memory on the CPU changes by a few rows at a time.

    On so few numbers a call of numpy takes a third of one of torch.
    """
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) + (first - count.cumsum() + count)[row]


def runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [n] -> [r], [r] int64
    """Where each run of equal values begins, and how long it is."""
    fresh = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=fresh[1:])
    begin = fresh.nonzero()[0]
    size = np.empty_like(begin)
    np.subtract(begin[1:], begin[:-1], out=size[:-1])
    size[-1:] = len(values) - begin[-1:]
    return begin, size


def lower_bounds(
    low: np.ndarray,  # [m] int64
    high: np.ndarray,  # [m] int64, where the runs end
    values: np.ndarray,  # [E], ascending inside each run
    keys: np.ndarray,  # [m]
) -> np.ndarray:  # [m] int64
    """In each run the first entry that is not below its key, or the end of the run."""
    while True:
        opened = low < high
        if not opened.any():
            return low
        middle = (low + high) >> 1
        below = values.take(middle, mode="clip") < keys
        low = np.where(opened & below, middle + 1, low)
        high = np.where(opened & ~below, middle, high)
