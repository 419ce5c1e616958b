"""RegimeDetector: switches of topic or task, found along the slow modes of a stream."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops._check import check_count, check_range
from graphmem_torch.spectral.detector import Detector
from graphmem_torch.spectral.run_length import advance, log_evidence
from graphmem_torch.spectral.slow_modes import LaggedMoments, opening_axis, slow_modes

__all__ = ["RegimeDetector"]

_FIRST = 32  # rows after which modes are computed for the first time
_GROWTH = 1.25  # and again whenever there are so many times as many
_FORGET = 0.9  # what rows are taken for changes with the modes: older guesses count less
_CERTAIN = -1e-9  # the largest log-probability: log-odds stay finite


class RegimeDetector(Detector):
    """The spectral detector: did a regime begin at this step, or at the one before?

    `mathematics.md` section 1.7, redesigned as 8.5 asks for. Rows are seen along the `rank` slow
    modes of the stream so far (`slow_modes`); there a Bayesian filter weighs, for every possible
    age of the present regime, whether the row continues it (`run_length`). What the first rows of
    regimes look like, as opposed to all others, is learned beside it without labels, as one more
    axis of the same spectrum (`opening_axis`): from the posterior of a filter that does not know
    this axis, so that it cannot talk itself into anything. The statistic is the log-odds that the
    regime is one or two steps old: a switch is told when its first row is read, if that is clear
    enough, or else when the second is. That is a delay, no look ahead.

    Modes and axis are computed anew whenever the stream has grown by a quarter. The state is sums,
    of size d², and the last `longest` rows.

    Args:
        dim: d.
        threshold: Log-odds above which there is an alarm.
        rank: K slow modes.
        hazard: Probability of a switch at any step.
        temper: Power of the evidence of the modes; below 1, because rows are no independent
            Gaussians.
        opening: Power of the evidence of the opening axis; 0 leaves it out.
        longest: R, steps of a regime that a row is compared with.
        streams: S streams of one source: they share modes and axis.
    """

    lag = 1

    def __init__(
        self,
        dim: int,
        *,
        threshold: float = 0.0,
        rank: int = 20,
        hazard: float = 0.1,
        temper: float = 0.5,
        opening: float = 1.0,
        longest: int = 24,
        streams: int = 1,
    ) -> None:
        super().__init__(dim, threshold=threshold, streams=streams)
        check_count("rank", rank)
        check_count("longest", longest, 2)
        check_range("hazard", hazard, 1e-6, 0.5)
        check_range("temper", temper, 0.0, 1.0)
        check_range("opening", opening, 0.0)
        self.rank, self.hazard, self.longest = min(rank, dim), hazard, longest
        self.temper, self.opening = temper, opening
        self.state |= LaggedMoments.zeros(dim).parts()
        self.state |= {
            # Rows weighed by how surely they opened a regime, the weights, and all rows weighed.
            "opening": torch.zeros(dim, dtype=torch.float64),
            "opened": torch.zeros(2, dtype=torch.float64),
            "mean": torch.zeros(dim, dtype=torch.float64),
            "axes": torch.zeros(dim, 0, dtype=torch.float64),
            "persistence": torch.zeros(0, dtype=torch.float64),
            "axis": torch.zeros(dim, dtype=torch.float64),
            "offset": torch.zeros((), dtype=torch.float64),
            "due": torch.tensor(_FIRST),
        }
        self.restart()

    def restart(self) -> None:
        """Another stream of the same source begins: what was learned stays, what was read goes."""
        # Two filters: the teacher, which knows the slow modes alone, and the one that decides.
        log_run = torch.full((2 * self.streams, self.longest), -torch.inf, dtype=torch.float64)
        log_run[:, 0] = 0
        self.state |= {
            "count": torch.zeros((), dtype=torch.int64),
            "streak": torch.zeros(self.streams, dtype=torch.int64),
            "rows": torch.zeros(self.streams, 0, self.dim),
            "log_run": log_run,
        }

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        parts, begin = [], self.count
        moments = LaggedMoments.of(self.state)
        while rows.shape[1]:
            # Modes change at the same step however the stream is cut into calls.
            size = max(1, -(-(int(self.state["due"]) - moments.count) // self.streams))
            part = rows[:, :size]
            parts.append(self._stretch(part, moments, begin))
            rows, begin = rows[:, size:], begin + part.shape[1]
            if moments.count >= int(self.state["due"]):
                self._refresh(moments)
        statistic, back = zip(*parts, strict=True)
        return torch.cat(statistic, 1), torch.cat(back, 1)

    def _stretch(self, rows: Tensor, moments: LaggedMoments, begin: int) -> tuple[Tensor, Tensor]:
        """Rows between two refreshes, the first of them step `begin`."""
        moments.add_(self.state["rows"], rows)
        whole, count = self._recent("rows", rows, self.longest), rows.shape[1]
        live = whole.any(2)
        centred = (whole.double() - self.state["mean"]) * live[:, :, None]
        evidence = self.temper * log_evidence(
            centred @ self.state["axes"], count, self.state["persistence"], self.longest
        )
        opens = (centred[:, -count:] @ self.state["axis"] + self.state["offset"]) * live[:, -count:]
        evidence = torch.cat([evidence, evidence - self.opening * opens[:, :, None]])
        self.state["log_run"], heads = advance(self.state["log_run"], evidence, self.hazard)
        if self.state["axes"].shape[1] == 0:
            return torch.full_like(opens, -torch.inf), torch.zeros_like(opens, dtype=torch.int64)
        teacher, heads = heads.split(self.streams)
        # Which row was a first one is surer when one more was read.
        end = whole.shape[1] - 1
        size = min(count, end)
        before = slice(end - size, end)
        weight = teacher[:, count - size :, 1].exp() * live[:, before]
        self.state["opening"] += torch.einsum("sn,snd->d", weight, whole[:, before].double())
        self.state["opened"] += torch.stack([weight.sum(), live[:, before].double().sum()])
        # The very first regime is no switch.
        step = torch.arange(begin, begin + count)
        fresh = heads.masked_fill(step[:, None] < torch.tensor([1, 2]), -torch.inf)
        either = fresh.logsumexp(2).clamp(max=_CERTAIN)
        return either - torch.log(-either.expm1()), (fresh[:, :, 1] > fresh[:, :, 0]).long()

    def _refresh(self, moments: LaggedMoments) -> None:
        modes = slow_modes(moments, self.rank)
        opened, weighed = self.state["opened"].tolist()
        axis, offset = torch.zeros_like(modes.mean), torch.zeros((), dtype=torch.float64)
        if opened > 1:
            mean = self.state["opening"] / opened
            axis, offset = opening_axis(modes, moments.covariance(), mean, opened, opened / weighed)
        self.state |= {
            "mean": modes.mean,
            "axes": modes.axes,
            "persistence": modes.persistence,
            "axis": axis,
            "offset": offset,
            "opening": self.state["opening"] * _FORGET,
            "opened": self.state["opened"] * _FORGET,
            "due": torch.tensor(int(moments.count * _GROWTH) + 1),
        }

    def _wide(self) -> tuple[str, ...]:
        return ("rows", "sums", "same", "lagged", "opening", "mean", "axis")
