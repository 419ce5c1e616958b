"""Segments: runs of rows that belong together, and the best of each without a loop over them."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["segment_best"]


def segment_best(
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
