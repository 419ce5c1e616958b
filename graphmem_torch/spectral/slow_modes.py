"""Slow modes: the axes along which neighbouring rows of a stream agree.

The spectrum of the kernel says along which axes rows differ; the lagged kernel says along which of
these a row resembles the ones before it. Both together, as a generalised eigenproblem, give axes
ordered by how long what they measure lasts (Molgedey and Schuster 1994; the same as slow feature
analysis and as time-lagged independent components): topics and tasks come first, the wording of a
single utterance last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["LaggedMoments", "SlowModes", "opening_axis", "slow_modes"]

_LAGS = 2  # neighbours that are compared: 1 and 2 steps apart
_RIDGE = 0.5  # of the mean variance, added to every axis: keeps those of hardly any out
_AXES = 128  # P: eigenvectors of C among which the slow modes are looked for
_NOISE = 1e-6  # of the rows' energy: what float32 products leave of a variance that is 0
_TILE = 4096  # rows multiplied at once


@dataclass(eq=False)
class LaggedMoments:
    """Sums over a stream from which its slow modes follow, of a size that does not grow.

    Attributes:
        sums: [d] float64, Σ x_t.
        same: [d, d] float64, Σ x_t x_tᵀ.
        lagged: [d, d] float64, Σ_l Σ_t x_t x_{t-l}ᵀ over the lags l = 1, 2.
        terms: [2] int64, how many `same` and `lagged` have; rows that are zero are none.
    """

    sums: Tensor
    same: Tensor
    lagged: Tensor
    terms: Tensor

    @classmethod
    def zeros(cls, dim: int) -> LaggedMoments:
        """Of no rows."""
        wide = torch.zeros(dim, dim, dtype=torch.float64)
        terms = torch.zeros(2, dtype=torch.int64)
        return cls(wide[0].clone(), wide, wide.clone(), terms)

    @classmethod
    def of(cls, parts: Mapping[str, Tensor]) -> LaggedMoments:
        """Of its parts by name; they are changed in place."""
        return cls(*(parts[field.name] for field in fields(cls)))

    def parts(self) -> dict[str, Tensor]:
        """Its parts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def count(self) -> int:
        """Rows that are not zero."""
        return int(self.terms[0])

    def add_(self, before: Tensor, rows: Tensor) -> None:  # [S, m, d] and [S, n, d] float32
        """Adds n steps of S streams; `before` are the m >= 0 steps before them."""
        before = before[:, max(0, before.shape[1] - _LAGS) :]
        whole, old = torch.cat([before, rows], 1), before.shape[1]
        for start in range(0, rows.shape[1], _TILE):
            begin, end = start + old, min(start + _TILE, rows.shape[1]) + old
            flat = whole[:, begin:end].flatten(0, 1)
            self.sums += flat.double().sum(0)
            self.same += flat.T @ flat
            self.terms[0] += flat.any(1).sum()
            for lag in range(1, _LAGS + 1):
                first = min(max(begin, lag), end)
                now, then = whole[:, first:end], whole[:, first - lag : end - lag]
                self.lagged += now.flatten(0, 1).T @ then.flatten(0, 1)
                self.terms[1] += (now.any(2) & then.any(2)).sum()

    def mean(self) -> Tensor:  # [d]
        """Mean row."""
        return self.sums / self.terms[0].clamp(min=1)

    def covariance(self) -> Tensor:  # [d, d]
        """C."""
        mean = self.mean()
        return self.same / self.terms[0].clamp(min=1) - torch.outer(mean, mean)

    def lagged_covariance(self) -> Tensor:  # [d, d]
        """Of rows and their neighbours, made symmetric."""
        mean = self.mean()
        lagged = self.lagged / self.terms[1].clamp(min=1) - torch.outer(mean, mean)
        return (lagged + lagged.T) / 2


@dataclass(frozen=True, eq=False)
class SlowModes:
    """K axes, the most persistent first.

    Attributes:
        mean: [d] float64, of the rows.
        axes: [d, K] float64: (x - mean) @ axes has variance 1 along each, 0 where rows have none.
        persistence: [K] float64 in (0, 1): correlation of neighbouring rows, which is the share of
            the variance that lies between regimes and not inside them.
        whiten: [d, P] float64, W with W Wᵀ = (C + ridge)⁻¹ on the P leading eigenvectors of C.
    """

    mean: Tensor
    axes: Tensor
    persistence: Tensor
    whiten: Tensor


def slow_modes(moments: LaggedMoments, rank: int) -> SlowModes:
    """The `rank` slowest modes of a stream: C_lag v = p (C + ridge) v.

    After few rows the luck of C_lag exceeds what it tells. It is shrunk towards equal persistence
    of all axes, as far as its sampling error asks for (Ledoit and Wolf 2004).
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
    opening: Tensor,  # [d], mean of the rows that open a regime
    opened: float,  # how many these are
    share: float,  # of all rows, in (0, 1)
) -> tuple[Tensor, Tensor]:  # [d], []
    """a, b of Fisher's discriminant: a (x - mean) + b = log p(x | opens) - log p(x | does not).

    The means are drawn together by what their distance owes to chance (James and Stein 1961).
    """
    apart = (opening - modes.mean) / (1 - share)  # of both means
    white = modes.whiten.T @ apart
    chance = (modes.whiten * (covariance @ modes.whiten)).sum() / (opened * (1 - share))
    apart = apart * (1 - chance / white.square().sum().clamp(min=1e-12)).clamp(min=0)
    axis = modes.whiten @ (modes.whiten.T @ apart)
    between = axis @ apart
    within = axis @ covariance @ axis - share * (1 - share) * between**2
    axis = axis * between / within.clamp(min=1e-12)
    return axis, -(1 - 2 * share) / 2 * (axis @ apart)
