"""Means, deviations and correlations of signals over a question's candidates."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["NONE", "SMALLEST", "correlation", "even_share", "moments", "sharpened"]

SMALLEST = 1e-6  # a signal that differs by less carries no information
NONE = 1e-30  # minimum square, for the root


def sharpened(values: Tensor) -> Tensor:
    """Return the fourth power, 0 below 0: few near-exact matches outweigh many vague ones."""
    return values.clamp(min=0.0).square().square()


def correlation(values: Tensor, other: Tensor, share: Tensor) -> Tensor:  # [B, F, C], [B, C]
    """Return correlations [B, F] over the candidates, by their shares; 0 if constant."""
    both = torch.cat([values, other[:, None]], dim=1)
    mean, deviation = moments(both, share)
    unit = deviation.masked_fill(deviation <= SMALLEST, torch.inf)
    scaled = (both - mean[:, :, None]) / unit[:, :, None]
    return (scaled[:, :-1] * scaled[:, -1:] * share[:, None].to(scaled.dtype)).sum(2)


def even_share(there: Tensor) -> Tensor:  # [B or 1, C] bool -> float64
    """Return equal shares of the present entries; in float64, so padding changes nothing."""
    return there / there.sum(1, keepdim=True, dtype=torch.float64).clamp(min=1)


def moments(values: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:  # [B, F, C] -> [B, F] each
    """Return mean and deviation, where each candidate counts by its share [B or 1, C]."""
    weight = share.expand(len(values), -1)[:, :, None]  # [B, C, 1]
    inside = values.double()
    mean = inside @ weight  # [B, F, 1]
    square = (inside - mean).square_() @ weight
    # The root of 0 has no gradient.
    deviation = square.squeeze(2).clamp(min=NONE).sqrt()
    return mean.squeeze(2).to(values.dtype, copy=True), deviation.to(values.dtype, copy=True)
