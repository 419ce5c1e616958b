"""Solution: what an iterative solver returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Solution"]


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of an iteration and how far it got; a solver that stops early warns as well.

    Attributes:
        values: The answer; for eigenproblems the eigenvalues.
        vectors: Eigenvectors, or None where the problem has none.
        residual: What is left of the equation, in the solver's own norm.
        iterations: How many were made.
        converged: Whether every residual is within the tolerance asked for.
    """

    values: Tensor
    vectors: Tensor | None
    residual: Tensor
    iterations: int
    converged: bool
