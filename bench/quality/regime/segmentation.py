"""Run a detector on streams other than those that its thresholds were chosen on."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.modes.detectors import alarms
from graphmem_torch.modes.regime import RegimeDetector

from .streams import Stream
from .systems import System

__all__ = [
    "FALSE",
    "MEASURES",
    "NEAR",
    "SPARING",
    "Judgement",
    "chosen",
    "judged",
    "lags",
    "matched",
    "measures",
    "nearness",
    "segment_errors",
]
_GRID = 80  # thresholds tried
_FOLDS = 4  # folds of the development streams, for detectors that learn
FALSE = 1.0
"""Maximum false alarms per 100 steps for measuring the lag."""
SPARING = 3.0
"""Maximum false alarms for `Judgement.sparing`: a third of those of windowed cosine drift."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """Results of one system on n streams with m switches in total.

    Attributes:
        threshold: [3] float64, thresholds of best, sparing and quiet.
        best: [n, 6] `MEASURES` with the threshold of the best mean F1 in development.
        sparing: [n, 6] `MEASURES` with the best threshold of at most `SPARING` false alarms per 100
            steps there.
        lag: [m] steps to the alarm with the lowest threshold of at most `FALSE` there; inf without
            an alarm before the next switch.
        length: [m] steps to the next switch.
        quiet: [n, 6] `MEASURES` with that threshold.
        near: [n, 4] int64 `nearness` of the alarms with the threshold of `best`.
    """

    threshold: Tensor
    best: Tensor
    sparing: Tensor
    lag: Tensor
    length: Tensor
    quiet: Tensor
    near: Tensor


def chosen(system: System, develop: Sequence[Stream]) -> Tensor:  # [3] float64
    """Choose the thresholds of `Judgement`; a learner is trained on other folds of `develop`."""
    order, known = list(develop), []
    if system.learns and len(develop) > 1:
        folds = [develop[i::_FOLDS] for i in range(min(_FOLDS, len(develop)))]
        order = [stream for fold in folds for stream in fold]
        for i, fold in enumerate(folds):
            rest = [stream for j, other in enumerate(folds) if j != i for stream in other]
            known += _statistics(system, rest, fold)
    else:
        known = _statistics(system, develop, develop)
    if system.fixed is not None:
        return torch.full((3,), system.fixed, dtype=torch.float64)
    grid = torch.tensor(system.sweeps, dtype=torch.float64)
    if not system.sweeps:
        values = torch.cat([statistic[statistic > -torch.inf] for statistic, _ in known])
        share = torch.linspace(0.4, 0.995, _GRID, dtype=torch.float64)
        grid = torch.quantile(values, share) if len(values) else torch.zeros(1).double()
    f1, false = torch.zeros(len(grid)).double(), torch.zeros(len(grid)).double()
    for stream, pair in zip(order, known, strict=True):
        marks, alarm = _marks(system, stream, pair, grid)
        f1 += measures(marks, stream.switch)[:, 0]
        false += alarm.sum(1) - matched(alarm, stream.switch)
    false *= 100 / sum(len(stream.switch) for stream in order)
    sparing = torch.where(false <= SPARING, f1, -1.0)
    quiet = torch.where(false <= FALSE, -grid, -torch.inf)
    # The highest if none is quiet enough.
    last = grid.argmax()
    sparing_at = sparing.argmax() if bool((sparing >= 0).any()) else last
    quiet_at = quiet.argmax() if bool(quiet.isfinite().any()) else last
    return grid[torch.stack([f1.argmax(), sparing_at, quiet_at])]


def judged(
    system: System, threshold: Tensor, learn: Sequence[Stream], test: Sequence[Stream]
) -> Judgement:
    """Measure the system with thresholds [3], on every stream from its beginning."""
    points, delays, near = [], [], []
    for stream, pair in zip(test, _statistics(system, learn, test), strict=True):
        marks, alarm = _marks(system, stream, pair, threshold)
        points.append(measures(marks, stream.switch))
        delays.append(lags(alarm[2], stream.switch))
        near.append(nearness(alarm[0], stream.switch))
    best, sparing, quiet = torch.stack(points, 1)
    lag, length = (torch.cat(part) for part in zip(*delays, strict=True))
    return Judgement(threshold, best, sparing, lag, length, quiet, torch.stack(near))


def _statistics(
    system: System, learn: Sequence[Stream], mark: Sequence[Stream]
) -> list[tuple[Tensor, Tensor]]:
    """Return statistic [n] and steps back [n] of each stream, from a fresh detector each."""
    if system.make is None or not mark:
        return [(torch.empty(0), torch.empty(0)) for _ in mark]
    taught = system.make(mark[0].rows.shape[1])
    if system.learns and isinstance(taught, RegimeDetector):
        for stream in learn:
            taught.update(stream.rows)
            taught.restart()
    found = []
    for stream in mark:
        steps = copy.deepcopy(taught).update(stream.rows)
        found.append((steps.statistic, torch.arange(len(stream.rows)) - steps.position))
    return found


def _marks(
    system: System, stream: Stream, pair: tuple[Tensor, Tensor], grid: Tensor
) -> tuple[Tensor, Tensor]:  # [G, n] bool, [G, n] bool
    """Return the marks that count for switches, and the alarms."""
    statistic, back = pair
    if system.sweep is not None:
        statistic = system.sweep(stream.rows, grid)
    alarm, _ = alarms(statistic > grid[:, None], torch.zeros(len(grid), dtype=torch.int64))
    if not system.placed:
        return alarm, alarm
    marks = torch.zeros_like(alarm)
    number, step = alarm.nonzero(as_tuple=True)
    marks[number, (step - back[step]).clamp(min=0)] = True
    return marks, alarm


MEASURES = ("f1", "precision", "recall", "false_per_100", "p_k", "window_diff")
"""Columns of `measures`."""

_WITHIN = 1  # steps


def matched(
    marks: Tensor,  # [G, n] bool
    switch: Tensor,  # [n] bool
) -> Tensor:  # [G] int64
    """Return the maximum matching of switches to marks at most one step away.

    Assigning to each switch, in order, the first free mark is optimal on a line.
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
    """Return `MEASURES` of G markings of one stream; a marking without marks has precision 0."""
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


NEAR = 3
"""Maximum steps between an alarm and a switch for `nearness`."""


def nearness(
    alarm: Tensor,  # [n] bool
    switch: Tensor,  # [n] bool
) -> Tensor:  # [4] int64
    """Count alarms, alarms near a switch, switches near an alarm, and steps near a switch.

    The last, as a share of all steps, is the value of random alarms.
    """
    around = torch.nn.functional.max_pool1d(
        torch.stack([switch, alarm])[:, None].float(), 2 * NEAR + 1, stride=1, padding=NEAR
    )[:, 0].bool()
    counts = (alarm, alarm & around[0], switch & around[1], around[0])
    return torch.stack([each.sum() for each in counts])


def segment_errors(marks: Tensor, switch: Tensor) -> tuple[Tensor, Tensor]:  # [G], [G] float64
    """Return P_k (Beeferman et al. 1999) and WindowDiff (Pevzner and Hearst 2002).

    k is half the mean length of the true segments. Over all pairs of steps k apart, these are the
    share wrongly assigned to one segment or to two, and the share with a wrong number of borders
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
    """Return steps from each switch to the first alarm before the next switch, inf without one.

    Also returns the length of each segment: the lag of a missed switch.
    """
    size = len(switch)
    begin = switch.nonzero().flatten()
    end = torch.cat([begin[1:], torch.tensor([size])])
    place = torch.where(alarm, torch.arange(size), size)
    following = place.flip(0).cummin(0).values.flip(0)  # the first alarm from each step on
    first = following[begin]
    lag = torch.where(first < end, first - begin, torch.inf).double()
    return lag, (end - begin).double()
