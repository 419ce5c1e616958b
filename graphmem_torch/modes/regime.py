"""RegimeDetector: switches of topic or task, detected along the slow modes of a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_range
from graphmem_torch.config import RegimeConfig
from graphmem_torch.modes.detectors import Detector, EnergyDrift

__all__ = [
    "LaggedMoments",
    "RegimeDetector",
    "SlowModes",
    "advance",
    "detector_of",
    "log_evidence",
    "opening_axis",
    "slow_modes",
]
_TILE = 1 << 21  # floats of the largest temporary


def log_evidence(
    z: Tensor,  # [m + n, K]: m steps that are known and n new ones
    count: int,  # n
    persistence: Tensor,  # [K]
    longest: int,  # R
) -> Tensor:  # [n, R]
    """Return the evidence of each step that its regime began r steps ago, r = 1..R, and not now.

    log p(z_t | r steps before it are of its regime) - log p(z_t | none is).

    Given r steps of its regime, z_t has the mean r p / (r p + 1 - p) times theirs and the variance
    1 - p + p (1 - p) / (r p + 1 - p), with p the persistence. -inf if there are no r steps.
    """
    have = len(z) - count
    length = torch.arange(1, longest + 1)
    shrunk = length[:, None] * persistence + 1 - persistence
    gain = persistence / shrunk
    variance = 1 - persistence + (1 - persistence) * gain
    constant = -0.5 * variance.log().sum(1)
    total = torch.cat([z.new_zeros(1, z.shape[1]), z.cumsum(0)])
    out = torch.empty(count, longest, dtype=z.dtype)
    step = max(1, _TILE // (longest * max(1, z.shape[1])))
    for start in range(0, count, step):
        now = torch.arange(start, min(start + step, count)) + have  # [c]
        first = now[:, None] - length  # [c, R]
        run = total[now, None] - total[first.clamp(min=0)]
        new = z[now, None]
        misfit = ((new - gain * run).square() / variance).sum(2)
        part = constant + 0.5 * (new.square().sum(2) - misfit)
        out[now - have] = part.masked_fill(first < 0, -torch.inf)
    return out


def advance(
    log_run: Tensor,  # [F, R]: log P(r steps of the present regime were read), r = 1..R
    evidence: Tensor,  # [F, n, R], of `log_evidence`
    hazard: float,
) -> tuple[Tensor, Tensor]:  # [F, R], [F, n, 2]
    """Return the posteriors of F filters after n more steps, which a filter takes one by one.

    Returns:
        `log_run` after the last step, and after every step log P(r = 1) and log P(r = 2). Ages
        above R count as R.
    """
    stay, leave = math.log1p(-hazard), math.log(hazard)
    # Use numpy: a step is a few small operations, dominated by their launch.
    run, grown = log_run.numpy(), (evidence + stay).numpy()
    heads = np.empty((*grown.shape[:2], 2), dtype=run.dtype)
    for step in range(grown.shape[1]):
        older = run + grown[:, step]
        moved = np.empty_like(run)
        moved[:, 0] = np.logaddexp.reduce(run, 1) + leave
        moved[:, 1:] = older[:, :-1]
        moved[:, -1] = np.logaddexp(moved[:, -1], older[:, -1])
        run = moved - np.logaddexp.reduce(moved, 1)[:, None]
        heads[:, step] = run[:, :2]
    return torch.from_numpy(run), torch.from_numpy(heads)


_LAGS = 2  # compared neighbours are 1 and 2 steps apart
_RIDGE = 0.5  # of the mean variance, added to every axis; excludes axes of hardly any
_AXES = 128  # P: eigenvectors of C searched for slow modes
_NOISE = 1e-6  # of the rows' energy: rounding of float32 products around a variance of 0
_SLOW_MODES_TILE = 4096  # rows multiplied at once


@dataclass(eq=False)
class LaggedMoments:
    """Sums over a stream that determine its slow modes; their size is constant.

    Attributes:
        sums: [d] float64, Σ x_t.
        same: [d, d] float64, Σ x_t x_tᵀ.
        lagged: [d, d] float64, Σ_l Σ_t x_t x_{t-l}ᵀ over the lags l = 1, 2.
        terms: [2] int64, number of terms in `same` and `lagged`; rows of zeros do not count.
    """

    sums: Tensor
    same: Tensor
    lagged: Tensor
    terms: Tensor

    @classmethod
    def zeros(cls, dim: int) -> LaggedMoments:
        """Start without rows."""
        wide = torch.zeros(dim, dim, dtype=torch.float64)
        terms = torch.zeros(2, dtype=torch.int64)
        return cls(wide[0].clone(), wide, wide.clone(), terms)

    @classmethod
    def of(cls, parts: Mapping[str, Tensor]) -> LaggedMoments:
        """Build from the parts by name, which are changed in place."""
        return cls(*(parts[field.name] for field in fields(cls)))

    def parts(self) -> dict[str, Tensor]:
        """Return the parts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def count(self) -> int:
        """Number of nonzero rows."""
        return int(self.terms[0])

    def add_(self, before: Tensor, rows: Tensor) -> None:  # [m, d] and [n, d] float32
        """Add n steps; `before` are the m >= 0 steps before them."""
        before = before[max(0, len(before) - _LAGS) :]
        whole, old = torch.cat([before, rows]), len(before)
        for start in range(0, len(rows), _SLOW_MODES_TILE):
            begin, end = start + old, min(start + _SLOW_MODES_TILE, len(rows)) + old
            part = whole[begin:end]
            self.sums += part.double().sum(0)
            self.same += part.T @ part
            self.terms[0] += part.any(1).sum()
            for lag in range(1, _LAGS + 1):
                first = min(max(begin, lag), end)
                now, then = whole[first:end], whole[first - lag : end - lag]
                self.lagged += now.T @ then
                self.terms[1] += (now.any(1) & then.any(1)).sum()

    def mean(self) -> Tensor:  # [d]
        """Return the mean row."""
        return self.sums / self.terms[0].clamp(min=1)

    def covariance(self) -> Tensor:  # [d, d]
        """Return the covariance C."""
        mean = self.mean()
        return self.same / self.terms[0].clamp(min=1) - torch.outer(mean, mean)

    def lagged_covariance(self) -> Tensor:  # [d, d]
        """Return the symmetrised covariance of rows and their neighbours."""
        mean = self.mean()
        lagged = self.lagged / self.terms[1].clamp(min=1) - torch.outer(mean, mean)
        return (lagged + lagged.T) / 2


@dataclass(frozen=True, eq=False)
class SlowModes:
    """K axes, the most persistent first.

    Attributes:
        mean: [d] float64, mean of the rows.
        axes: [d, K] float64: (x - mean) @ axes has variance 1 along each axis, or 0 if the rows do.
        persistence: [K] float64 in (0, 1): correlation of neighbouring rows, the share of variance
            between regimes rather than inside them.
        whiten: [d, P] float64, W with W Wᵀ = (C + ridge)⁻¹ on the P leading eigenvectors of C.
    """

    mean: Tensor
    axes: Tensor
    persistence: Tensor
    whiten: Tensor


def slow_modes(moments: LaggedMoments, rank: int) -> SlowModes:
    """Return the `rank` slowest modes of a stream: C_lag v = p (C + ridge) v.

    For few rows, the sampling error of C_lag exceeds its information. It is therefore shrunk
    towards equal persistence of all axes, by its sampling error (Ledoit and Wolf 2004).
    """
    same, lagged = moments.covariance(), moments.lagged_covariance()
    tiny = torch.finfo(torch.float32).tiny
    values, vectors = torch.linalg.eigh(same)
    ridge = _RIDGE * values.mean().clamp(min=0) + tiny
    values, vectors = values[-_AXES:], vectors[:, -_AXES:]
    noise = _NOISE * moments.same.trace() / moments.terms[0].clamp(min=1)
    values = torch.where(values > noise, values, 0.0)
    whiten = vectors * (values + ridge).rsqrt()
    inner = whiten.T @ lagged @ whiten
    share = values / (values + ridge)
    equal = (inner.trace() / share.sum().clamp(min=tiny)).clamp(min=0) * share.diag()
    error = share.sum().square() / (2 * moments.terms[1].clamp(min=1))
    shrink = (error / (inner - equal).square().sum().clamp(min=tiny)).clamp(max=1)
    _, turn = torch.linalg.eigh(inner + shrink * (equal - inner))
    turn = turn.flip(1)[:, :rank]
    axes = whiten @ turn
    spread = (turn * share[:, None] * turn).sum(0)
    axes = axes * torch.where(spread > 1e-6, spread, torch.inf).rsqrt()
    estimate = (turn * ((inner + shrink * (equal - inner)) @ turn)).sum(0)
    persistence = estimate / spread.clamp(min=1e-6)
    return SlowModes(moments.mean(), axes, persistence.clamp(0.01, 0.95), whiten)


def opening_axis(
    modes: SlowModes,
    covariance: Tensor,  # [d, d]
    opening: Tensor,  # [d], mean of the rows that start a regime
    opened: float,  # number of these rows
    share: float,  # share of all rows, in (0, 1)
) -> tuple[Tensor, Tensor]:  # [d], []
    """Return Fisher's discriminant a, b: a (x - mean) + b = log p(x | opens) - log p(x | does not).

    The means are shrunk towards each other by the expected chance distance (James and Stein 1961).
    """
    apart = (opening - modes.mean) / (1 - share)  # difference of both means
    white = modes.whiten.T @ apart
    chance = (modes.whiten * (covariance @ modes.whiten)).sum() / (opened * (1 - share))
    apart = apart * (1 - chance / white.square().sum().clamp(min=1e-12)).clamp(min=0)
    axis = modes.whiten @ (modes.whiten.T @ apart)
    between = axis @ apart
    within = axis @ covariance @ axis - share * (1 - share) * between**2
    axis = axis * between / within.clamp(min=1e-12)
    return axis, -(1 - 2 * share) / 2 * (axis @ apart)


# Number of rows for the first modes. Rows are about 384 wide: modes of 32 rows fit them so closely
# that nearly every later row looks like a switch.
_FIRST = 64
_GROWTH = 1.25  # and again after each growth by this factor
_FORGET = 0.9  # decay of estimated openings when modes change: older ones are less reliable
_CERTAIN = -1e-9  # maximum log-probability, which keeps log-odds finite
_TEMPER = 0.5  # power of the evidence of the modes, as rows are not independent Gaussians
_LONGEST = 24  # maximum steps of a regime that a row is compared with


class RegimeDetector(Detector):
    """Spectral detector: decides whether a regime began at this step or the one before.

    `docs/mathematics.md` 1.7. Rows are projected on the `rank` slow modes of the stream so far
    (`slow_modes`). A Bayesian filter weighs, for every possible age of the present regime, whether
    the row continues it (`log_evidence`). The difference between the first rows of regimes and
    other rows is learned without labels, as one more axis of the same spectrum (`opening_axis`). It
    is learned from the posterior of a filter that does not use this axis, so it cannot confirm
    itself. The statistic is the log-odds that the regime is one or two steps old. A switch is
    reported at its first row if that is clear enough, or else at the second: a delay, not a look
    ahead. Modes and axis are recomputed whenever the stream has grown by a quarter. The state is
    sums, of size d², and the last 24 rows.

    Args:
        dim: d.
        threshold: Log-odds above which there is an alarm.
        rank: Number of slow modes K.
        hazard: Probability of a switch at any step.
    """

    lag = 1

    def __init__(
        self,
        dim: int,
        *,
        threshold: float = 0.0,
        rank: int = 20,
        hazard: float = 0.1,
    ) -> None:
        super().__init__(dim, threshold=threshold)
        check_count("rank", rank)
        check_range("hazard", hazard, 1e-6, 0.5)
        self.rank, self.hazard = min(rank, dim), hazard
        self.state |= LaggedMoments.zeros(dim).parts()
        self.state |= {
            # Rows weighted by their probability of starting a regime, the weights, and all weighted
            # rows.
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
        """Start another stream of the same source: keep what was learned, drop what was read."""
        # Two filters: the teacher, which uses only the slow modes, and the one that decides.
        log_run = torch.full((2, _LONGEST), -torch.inf, dtype=torch.float64)
        log_run[:, 0] = 0
        self.state |= {
            "count": torch.zeros((), dtype=torch.int64),
            "streak": torch.zeros((), dtype=torch.int64),
            "rows": torch.zeros(0, self.dim),
            "log_run": log_run,
        }

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        parts, begin = [], self.count
        moments = LaggedMoments.of(self.state)
        while len(rows):
            # Modes change at the same step, however the stream is divided into calls.
            part = rows[: max(1, int(self.state["due"]) - moments.count)]
            parts.append(self._stretch(part, moments, begin))
            rows, begin = rows[len(part) :], begin + len(part)
            if moments.count >= int(self.state["due"]):
                self._refresh(moments)
        statistic, back = zip(*parts, strict=True)
        return torch.cat(statistic), torch.cat(back)

    def _stretch(self, rows: Tensor, moments: LaggedMoments, begin: int) -> tuple[Tensor, Tensor]:
        """Read the rows between two refreshes, the first of which is step `begin`."""
        moments.add_(self.state["rows"], rows)
        whole, count = self._recent("rows", rows, _LONGEST), len(rows)
        live = whole.any(1)
        centred = (whole.double() - self.state["mean"]) * live[:, None]
        evidence = _TEMPER * log_evidence(
            centred @ self.state["axes"], count, self.state["persistence"], _LONGEST
        )
        opens = (centred[-count:] @ self.state["axis"] + self.state["offset"]) * live[-count:]
        evidence = torch.stack([evidence, evidence - opens[:, None]])
        self.state["log_run"], (teacher, heads) = advance(
            self.state["log_run"], evidence, self.hazard
        )
        if self.state["axes"].shape[1] == 0:
            return torch.full_like(opens, -torch.inf), torch.zeros_like(opens, dtype=torch.int64)
        # The next row makes it more certain that a row was the first of a regime.
        end = len(whole) - 1
        size = min(count, end)
        before = slice(end - size, end)
        weight = teacher[count - size :, 1].exp() * live[before]
        self.state["opening"] += torch.einsum("n,nd->d", weight, whole[before].double())
        self.state["opened"] += torch.stack([weight.sum(), live[before].double().sum()])
        # The very first regime is not a switch.
        step = torch.arange(begin, begin + count)
        fresh = heads.masked_fill(step[:, None] < torch.tensor([1, 2]), -torch.inf)
        either = fresh.logsumexp(1).clamp(max=_CERTAIN)
        return either - torch.log(-either.expm1()), (fresh[:, 1] > fresh[:, 0]).long()

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


def detector_of(config: RegimeConfig, dim: int) -> Detector | None:
    """Return the configured detector for rows of d columns; None if the settings disable it."""
    if config.detector == "spectral":
        return RegimeDetector(dim, threshold=config.threshold)
    if config.detector == "published":
        return EnergyDrift(dim)
    return None
