"""Solution: the result of an iterative solver."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Solution"]


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of an iteration, with its residual; a solver that stops early also warns.

    Attributes:
        values: The answer; for eigenproblems, the eigenvalues.
        vectors: Eigenvectors, or None if the problem has none.
        residual: Residual of the equation, in the solver's norm.
        iterations: Number of iterations.
        converged: Whether every residual is within the tolerance.
    """

    values: Tensor
    vectors: Tensor | None
    residual: Tensor
    iterations: int
    converged: bool
