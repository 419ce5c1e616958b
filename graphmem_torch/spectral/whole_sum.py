"""WholeSum: a sum of rows' outer products kept entire, and how far rounding has moved it."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.spectral.gram import Gram
from graphmem_torch.spectral.refresh import refreshed

__all__ = ["UNIT", "WholeSum", "check_present"]

# Unit roundoff of float64.
UNIT = torch.finfo(torch.float64).eps / 2
# Rows multiplied at once: rounding inside a product grows with them.
_TILE = 1024


class WholeSum:
    """Eᵀ E [d, d] in float64 of rows that come and go, decomposed anew only where it must be.

    Attributes:
        loss: [] float64: bound of the norm of what rounding has changed: for each update n u |E|²
            by the product of its n rows and u |Eᵀ E| by the addition (Higham 2002, section 3.5), u
            the unit roundoff.
    """

    def __init__(self, width: int, device: torch.device) -> None:
        self._gram = Gram.zeros(width, device)
        self._warm: Tensor | None = None
        self.loss = torch.zeros((), dtype=torch.float64, device=device)

    @property
    def energy(self) -> Tensor:  # [] float64
        """Sum of squares of the rows."""
        return self._gram.sums.trace()

    def add_(self, rows: Tensor, *, sign: int = 1) -> None:  # rows [n, d] float64
        """Adds the rows, or takes them out again with `sign` -1."""
        for tile in rows.split(_TILE):
            self._gram.add_(tile, sign=sign)
            self.loss += UNIT * (len(tile) * tile.square().sum() + self.energy.abs())

    def leading(self, rank: int, tol: float) -> tuple[Tensor, Tensor, Tensor]:
        """Values [rank], vectors [d, rank], and a bound of the values' distance to the true ones.

        Args:
            rank: At most d and at most the rows present.
            tol: What the decomposition may add to `loss`.

        Raises:
            InputError: If the sum shows that rows were taken out that were not in it.
        """
        sums = self._gram.sums
        check_present(sums.diagonal().min(), self.loss)
        whole = sums.triu() + sums.triu(1).T
        values, self._warm, bound = refreshed(whole, rank, self._warm, tol)
        # The backward error of `eigh` and of the steps.
        rounding = len(whole) * UNIT * values[0]
        return values, self._warm[:, :rank], self.loss + bound + rounding


def check_present(lowest: Tensor, loss: Tensor) -> None:
    """Raises `InputError` where a sum of squares is further below 0 than its error."""
    if bool(lowest < -2 * loss):
        raise InputError(
            "rows to remove must have been added, with the same values; got others: a sum of "
            f"squares fell to {float(lowest):.3g}. Call redo(rows) with the rows present."
        )
