"""Rows with a known spectrum, and the distance of a factorisation from the best one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Best", "decaying_rows", "right_vectors"]


def decaying_rows(count: int, width: int, decay: float, *, seed: int = 0) -> Tensor:
    """Return unit vectors [count, width] with singular values like k^-decay; 0 is flat."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.arange(1, width + 1).float().pow(-decay)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    axes = scale[:, None] * turn
    out = torch.empty(count, width)
    for part in out.split(16_384):
        drawn = torch.randn(len(part), width, generator=generator) @ axes
        torch.nn.functional.normalize(drawn, dim=1, out=part)
    return out


@dataclass(frozen=True)
class Best:
    """Leading part of Eᵀ E / N by float64 sums and a full `eigh`.

    Attributes:
        right: [d, rank].
        left_over: Energy outside the best projection.
        energy: Total energy.
    """

    right: Tensor
    left_over: float
    energy: float
    _mean: Tensor

    @classmethod
    def of(cls, x: Tensor, rank: int) -> Best:
        """Decompose rows [N, d]."""
        mean = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
        for part in x.split(16_384):
            mean += part.double().T @ part.double() / len(x)
        values, vectors = torch.linalg.eigh(mean)
        return cls(vectors[:, -rank:], float(values[:-rank].sum()), float(values.sum()), mean)

    def sine(self, right: Tensor) -> float:
        """Return the sine of the largest angle to the best subspace, given this one [d, rank]."""
        basis = self._basis(right)
        rest = basis - self.right @ (self.right.T @ basis)
        return float(torch.linalg.matrix_norm(rest, 2))

    def excess(self, right: Tensor) -> float:
        """Return the energy lost by the projection beyond the best, as a share of all energy."""
        basis = self._basis(right)
        kept = float((basis * (self._mean @ basis)).sum())
        return (self.energy - kept - self.left_over) / self.energy

    def _basis(self, right: Tensor) -> Tensor:
        return torch.linalg.qr(right.to(self.right)).Q


def right_vectors(found: Any) -> Tensor:  # [d, rank]
    """Return the right vectors of a `Spectrum`, of torch's U, S, V, or of numpy's U, S, Vᵀ."""
    if hasattr(found, "right"):
        return found.right
    last = found[2]
    return last if isinstance(last, Tensor) else torch.from_numpy(np.ascontiguousarray(last.T))
