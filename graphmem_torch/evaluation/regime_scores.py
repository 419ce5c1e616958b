"""How well alarms mark switches: matches within one step, lag, P_k and WindowDiff."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MEASURES", "lags", "matched", "measures", "segment_errors"]

MEASURES = ("f1", "precision", "recall", "false_per_100", "p_k", "window_diff")
"""Columns of `measures`."""

_WITHIN = 1  # steps


def matched(
    marks: Tensor,  # [G, n] bool
    switch: Tensor,  # [n] bool
) -> Tensor:  # [G] int64
    """The most switches that can each be given a mark of its own, at most one step away.

    Taking for each switch, in their order, the first mark left is best: marks and switches lie on
    a line.
    """
    left = torch.nn.functional.pad(marks, (_WITHIN, _WITHIN))
    found = torch.zeros(len(marks), dtype=torch.int64)
    for step in switch.nonzero().flatten().tolist():
        window = left[:, step : step + 2 * _WITHIN + 1]
        first = window & (window.cumsum(1) == 1)
        found += first.any(1)
        window &= ~first
    return found


def measures(
    marks: Tensor,  # [G, n] bool
    switch: Tensor,  # [n] bool
) -> Tensor:  # [G, 6] float64
    """`MEASURES` of G markings of one stream; a marking without marks has precision 0."""
    hits, given, there = matched(marks, switch), marks.sum(1), switch.sum()
    p_k, window_diff = segment_errors(marks, switch)
    return torch.stack(
        [
            2 * hits / (given + there).clamp(min=1).double(),
            hits / given.clamp(min=1).double(),
            hits / there.clamp(min=1).double(),
            100 * (given - hits) / max(1, len(switch)),
            p_k,
            window_diff,
        ],
        1,
    )


def segment_errors(marks: Tensor, switch: Tensor) -> tuple[Tensor, Tensor]:  # [G], [G] float64
    """P_k (Beeferman et al. 1999) and WindowDiff (Pevzner and Hearst 2002).

    k is half the mean length of the true segments. Of all pairs of steps k apart: the share that
    is wrongly told to lie in one segment or in two, and the share with a wrong number of borders
    between.
    """
    size = len(switch)
    k = min(max(1, round(size / (2 * (int(switch.sum()) + 1)))), max(size - 1, 1))
    true = torch.nn.functional.pad(switch.long().cumsum(0), (0, 0)).double()
    told = marks.long().cumsum(1).double()
    between_true, between_told = true[k:] - true[:-k], told[:, k:] - told[:, :-k]
    if size <= k:
        return torch.zeros(len(marks)).double(), torch.zeros(len(marks)).double()
    p_k = ((between_true > 0) != (between_told > 0)).double().mean(1)
    return p_k, (between_true != between_told).double().mean(1)


def lags(
    alarm: Tensor,  # [n] bool
    switch: Tensor,  # [n] bool
) -> tuple[Tensor, Tensor]:  # [m] float64, [m]
    """Steps from each switch to the first alarm before the next switch, inf where there is none.

    Also the length of each segment: the lag that a missed switch is charged with.
    """
    size = len(switch)
    begin = switch.nonzero().flatten()
    end = torch.cat([begin[1:], torch.tensor([size])])
    place = torch.where(alarm, torch.arange(size), size)
    following = place.flip(0).cummin(0).values.flip(0)  # the first alarm from each step on
    first = following[begin]
    lag = torch.where(first < end, first - begin, torch.inf).double()
    return lag, (end - begin).double()
