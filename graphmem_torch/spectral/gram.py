"""Gram: sums of products of columns, which add up over blocks, machines and time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.spectral.rows import Rows

__all__ = ["Gram"]


@dataclass(eq=False)
class Gram:
    """Eᵀ E of the rows seen so far.

    Partial sums of different blocks, workers or times add up: `a + b`, or an all-reduce of `sums`
    and `count`.

    Attributes:
        sums: [d, d] float64; only the upper triangle is meant.
        count: Rows in it.
    """

    sums: Tensor
    count: int = 0

    @classmethod
    def zeros(cls, width: int, device: torch.device | str = "cpu") -> Gram:
        """Of no rows at all."""
        return cls(torch.zeros(width, width, dtype=torch.float64, device=device))

    @classmethod
    def of(cls, x: Tensor | Iterable[Tensor] | Rows, *, block_rows: int | None = None) -> Gram:
        """Of rows [N, d] in any of the forms that `gram_svd` takes, in one pass.

        Raises:
            InputError: For what is no floating-point matrix, is empty, or requires a gradient.
        """
        gram: Gram | None = None
        for tile in x if isinstance(x, Rows) else Rows(x, block_rows):
            gram = gram or cls.zeros(tile.shape[1], tile.device)
            gram.add_(tile)
        if gram is None:
            raise InputError("x must have at least one row; got none. Give it rows.")
        return gram

    def add_(self, rows: Tensor, *, sign: int = 1) -> None:  # rows [n, d], float32 or float64
        """Adds the rows, or takes them out again with `sign` -1.

        Products are summed in the dtype of the rows over these n rows, and in float64 from then
        on. Below the diagonal panels nothing is computed: 0.6 of the work of the whole product.
        """
        width = rows.shape[1]
        # A GPU is better served by a few large products than by many small ones.
        panel = max(512 if rows.is_cuda else 96, -(-width // 8))
        part = torch.empty(width, width, dtype=rows.dtype, device=rows.device)
        for start in range(0, width, panel):
            stop = min(start + panel, width)
            torch.mm(rows[:, start:stop].T, rows[:, start:], out=part[start:stop, start:])
            self.sums[start:stop, start:].add_(part[start:stop, start:], alpha=sign)
        self.count += sign * rows.shape[0]

    def __add__(self, other: Gram) -> Gram:
        """Of the rows of both."""
        if self.sums.shape != other.sums.shape:
            raise InputError(
                f"Grams must be of the same width to be added; got {len(self.sums)} and "
                f"{len(other.sums)}. Were the rows made by different encoders?"
            )
        return Gram(self.sums + other.sums, self.count + other.count)

    def mean(self) -> Tensor:  # [d, d] float64, symmetric
        """C = Eᵀ E / N (`mathematics.md` section 1.1).

        Raises:
            InputError: If there are no rows, or they are not finite: looked at here, once, because
                whatever is not finite in a row stays so in the sums.
        """
        if self.count < 1:
            raise InputError("x must have at least one row; got none. Add rows first.")
        if not bool(self.sums.diagonal().isfinite().all()):
            raise InputError(
                "rows must be finite, and so must their squares in float32; got others. Find them "
                "with rows.isfinite().all(1)."
            )
        upper = self.sums.triu() / self.count
        return upper + upper.triu(1).T
