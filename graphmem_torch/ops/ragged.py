"""Ragged rows: lists of different lengths, one after another in flat tensors."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["lower_bounds", "ranges", "row_entries", "segment_topk", "splice"]


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


def splice(
    values: Tensor,  # [n, ...]
    first: Tensor,  # [m] int64, ascending
    last: Tensor,  # [m] int64
    counts: Tensor,  # [m] int64
    inserted: Tensor,  # [counts.sum(), ...]
) -> Tensor:
    """A copy of `values` in which `values[first[i]:last[i]]` became the next `counts[i]` inserted.

    The spans do not overlap; an empty one takes its entries in front of `values[first[i]]`. What
    lies between is copied in whole pieces: few changes in many values cost little more than a copy.
    """
    if not len(values):
        return inserted
    ends = torch.stack([first, last], 1).flatten()
    sizes = ends.diff(prepend=ends.new_zeros(1), append=ends.new_tensor([len(values)])).tolist()
    kept = values.split(sizes)[::2]
    parts = [kept[0]]
    for new, old in zip(inserted.split(counts.tolist()), kept[1:], strict=True):
        parts += (new, old)
    return torch.cat(parts)


def lower_bounds(
    indptr: Tensor,  # [N + 1] integers
    values: Tensor,  # [E], ascending inside each row
    rows: Tensor,  # [m] int64, in 0..N-1
    keys: Tensor,  # [m]
) -> Tensor:  # [m] int64
    """In each row the first entry that is not below a key, or the end of the row."""
    low, high = indptr[rows].long(), indptr[rows + 1].long()
    while bool((open_ := low < high).any()):
        middle = torch.div(low + high, 2, rounding_mode="floor")
        below = open_ & (values[middle.clamp(max=len(values) - 1)] < keys)
        low = torch.where(below, middle + 1, low)
        high = torch.where(open_ & ~below, middle, high)
    return low
