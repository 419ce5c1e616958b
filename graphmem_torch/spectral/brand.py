"""TruncatedSum: a sum of rows' outer products kept as a few eigenpairs, and what that costs."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.spectral._orthonormal import extension
from graphmem_torch.spectral.whole_sum import UNIT, check_present

__all__ = ["TruncatedSum"]


class TruncatedSum:
    """Eᵀ E of the rows as Q Θ Qᵀ of at most m columns: memory d m instead of d².

    Block form of Brand (2006, "Fast low-rank modifications of the thin singular value
    decomposition", section 2): the rows' part outside Q extends the basis, the small matrix is
    decomposed, and the m eigenvalues largest in magnitude stay. Removal is the same with the other
    sign: no left vectors are needed for it. What is dropped is a symmetric matrix whose norm is
    known, and by Weyl's inequality the sum of these norms bounds how far any eigenvalue is off
    (`loss`); as long as rows only came, everything dropped was positive, and its trace bounds it
    too.

    Attributes:
        basis: [d, m] float64, orthonormal.
        values: [m] float64, largest first.
        energy: [] float64: sum of squares of the rows, exact.
    """

    def __init__(self, width: int, capacity: int, device: torch.device | str = "cpu") -> None:
        self.capacity = capacity
        self.basis = torch.zeros(width, 0, dtype=torch.float64, device=device)
        self.values = torch.zeros(0, dtype=torch.float64, device=device)
        self.energy = torch.zeros((), dtype=torch.float64, device=device)
        self._dropped = torch.zeros_like(self.energy)
        self._rounding = torch.zeros_like(self.energy)
        self._shrunk = False

    @property
    def loss(self) -> Tensor:  # [] float64
        """The smaller of both bounds."""
        bound = self._dropped
        if not self._shrunk:
            bound = torch.minimum(bound, (self.energy - self.values.sum()).clamp(min=0))
        return bound + self._rounding

    def add_(self, rows: Tensor, *, sign: int = 1) -> None:  # rows [n, d] float64
        """Adds the rows, or takes them out again with `sign` -1; cut so that they fit in m."""
        self._shrunk |= sign < 0
        for tile in rows.split(self.capacity):
            self._update(tile, sign)

    def leading(self, rank: int, tol: float) -> tuple[Tensor, Tensor, Tensor]:
        """Values [k], vectors [d, k], and a bound of the values' distance to the true ones.

        Args:
            rank: k; fewer where the basis has fewer columns.
            tol: Of no use here: the pairs are at hand.

        Raises:
            InputError: If the sum shows that rows were taken out that were not in it.
        """
        check_present(self.values.min(), self.loss)
        return self.values[:rank].clamp(min=0), self.basis[:, :rank], self.loss

    def _update(self, rows: Tensor, sign: int) -> None:
        self.energy += sign * rows.square().sum()
        inside = rows @ self.basis
        fresh = extension(self.basis, (rows - inside @ self.basis.T).T)
        seen = torch.cat([inside, rows @ fresh], 1)
        small = sign * (seen.T @ seen)
        small.diagonal()[: len(self.values)] += self.values
        values, weights = torch.linalg.eigh(small)
        order = values.abs().argsort(descending=True)
        kept, dropped = order[: self.capacity], order[self.capacity :]
        if len(dropped):
            self._dropped += values[dropped[0]].abs()
        kept = kept[values[kept].argsort(descending=True)]
        self.values = values[kept]
        self.basis = torch.cat([self.basis, fresh], 1) @ weights[:, kept]
        # Of projection, remainder, small product and its `eigh`: each len(small) u |E|².
        self._rounding += 4 * len(small) * UNIT * (self.energy.abs() + rows.square().sum())
