"""Chebyshev filter: a polynomial that damps an interval and lifts what lies below it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from graphmem_torch.spectral.operator import SymmetricOperator

__all__ = ["Interval"]

_DRIFT = 1e3  # growth of what is deflated, over the wanted, before it is projected out again


@dataclass(frozen=True)
class Interval:
    """Where the unwanted eigenvalues of `sign * operator` are: `cut..high`."""

    cut: float
    high: float

    def growth(self, value: float) -> float:
        """Logarithm of the factor that one more degree lifts an eigenvalue below `cut` by."""
        middle, half = (self.high + self.cut) / 2, (self.high - self.cut) / 2
        return math.acosh(max((middle - value) / half, 1.0))

    def filter(
        self,
        operator: SymmetricOperator,
        x: Tensor,  # [N, b]
        degree: int,
        *,
        sign: float,
        drift: float,
        purge: Callable[[Tensor], Tensor],
    ) -> Tensor:  # [N, b]
        """T_degree of the operator, the interval mapped to [-1, 1], times x.

        Zhou and Saad 2007, "A Chebyshev-Davidson algorithm", section 2. What was deflated is lifted
        the most and would return out of rounding, so it is purged again on the way; projections
        commute with the recurrence.

        Args:
            operator: One product a degree.
            x: The block.
            degree: At least 1.
            sign: -1 to work at the upper end of the operator.
            drift: Growth a degree of the lowest deflated eigenvalue over the wanted ones.
            purge: The projection away from what is deflated.
        """
        middle, half = (self.high + self.cut) / 2, (self.high - self.cut) / 2
        twice = operator.affine(2 * sign / half, -2 * middle / half)
        every = max(1, int(math.log(_DRIFT) / max(drift, 1e-9)))
        before, now = x, twice(x).mul_(0.5)
        for done in range(1, degree):
            before, now = now, twice(now).sub_(before)
            if done % every == 0:
                before, now = purge(before), purge(now)
        return now
