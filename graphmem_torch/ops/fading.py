"""Fading: the share that is left of what halves in equal times (`docs/mathematics.md` 8.11)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphmem_torch.checks import as_scalar

__all__ = ["DAY", "fading", "half_life_of"]

DAY = 86_400.0
"""Seconds in a day."""


def fading(
    age_days: Tensor,  # [n]
    half_life_days: float | Tensor,  # one, or [n]
    *,
    dtype: torch.dtype = torch.float64,
) -> Tensor:  # [n]
    """Return f(t, h) = 2^(-t / h), the share left at age t.

    The exponent is computed in float64, as ages in days need more digits than float32 has.

    Args:
        age_days: Ages in days; a negative age counts as 0.
        half_life_days: Days in which half is lost; 0: nothing is ever lost.
        dtype: Precision of the result.
    """
    age_days = age_days.double()
    half = as_scalar(half_life_days, age_days)
    rate = torch.where(half > 0, math.log(2.0) / half, 0.0)
    return (-rate * age_days.clamp(min=0.0)).to(dtype).exp()


def half_life_of(factor_per_hour: float) -> float:
    """Return the half-life in days of what keeps a factor in (0, 1] each hour; 0 for a factor of 1.

    f(t, h) = factor^(24 t), so h = ln 2 / (-24 ln factor).
    """
    lost = -math.log(factor_per_hour)
    return math.log(2.0) / (24.0 * lost) if lost else 0.0
