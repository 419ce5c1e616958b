"""StreamingSpectrum: the leading eigenpairs of rows that come and go."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError
from graphmem_torch.linalg.gram import Gram, gram_svd
from graphmem_torch.linalg.rows import check_block
from graphmem_torch.linalg.spectrum import Spectrum

__all__ = ["StreamingSpectrum"]

_UNIT = torch.finfo(torch.float64).eps / 2  # unit roundoff
_TILE = 1024  # rows multiplied at once: rounding inside a product grows with them


class StreamingSpectrum:
    """The `rank` leading eigenpairs of C = Eᵀ E / N while rows are added and removed.

    `docs/mathematics.md` 1.8. Eᵀ E is kept [d, d] in float64 and decomposed when the eigenpairs
    are asked for. Adding and removing are exact up to rounding, whose bound grows with all the
    energy that ever came or went: about 10⁶ times the energy present moves an eigenvalue by 1e-6.

    Args:
        rank: Eigenpairs wanted; fewer are returned while there are fewer rows.
        dim: d.
        device: Where the sums live; rows are brought there.

    Raises:
        InputError: If a number is out of range.
    """

    def __init__(self, rank: int, dim: int, *, device: torch.device | str = "cpu") -> None:
        check_count("dim", dim)
        check_count("rank", rank)
        if rank > dim:
            raise InputError(f"rank: expected at most dim = {dim}, got {rank}; ask for fewer")
        self.rank, self.dim = rank, dim
        self._device = torch.device(device)
        self._start_anew()

    def _start_anew(self) -> None:
        self._gram = Gram.zeros(self.dim, self._device)
        self._rounding = torch.zeros((), dtype=torch.float64, device=self._device)
        self._solved: Spectrum | None = None

    @property
    def count(self) -> int:
        """N: rows added and not removed."""
        return self._gram.count

    def add(self, rows: Tensor) -> None:  # [n, d]
        """Counts the rows in.

        Raises:
            InputError: If they are not finite floating-point rows of d columns without gradient;
                nothing has changed then.
        """
        self._update(rows, 1)

    def remove(self, rows: Tensor) -> None:  # [n, d]
        """Counts out rows that were added before, in whatever order and grouping.

        Raises:
            InputError: As for `add`, or if there are more than are present.
        """
        self._update(rows, -1)

    def _update(self, rows: Tensor, sign: int) -> None:
        check_block(rows, self.dim)
        if sign < 0 and len(rows) > self.count:
            raise InputError(
                f"rows to remove: expected some of the {self.count} present, got {len(rows)}; "
                "remove only what was added, once"
            )
        if len(rows) == 0:
            return
        tiles = [tile.to(self._device, torch.float64) for tile in rows.split(_TILE)]
        energies = [tile.square().sum() for tile in tiles]
        if not bool(torch.stack(energies).sum().isfinite()):
            raise InputError(
                "rows: expected finite rows with finite squares, got others; find them with "
                "rows.isfinite().all(1)"
            )
        if sign < 0 and len(rows) == self.count:
            self._start_anew()
            return
        for tile, energy in zip(tiles, energies, strict=True):
            self._gram.add_(tile, sign=sign)
            # n u |E|² by the product of n rows and u |Eᵀ E| by the addition (Higham 2002, 3.5).
            whole = self._gram.sums.trace().abs()
            self._rounding += _UNIT * (len(tile) * energy + whole)
        self._solved = None

    def spectrum(self) -> Spectrum:
        """The eigenpairs, computed if anything changed; `residual` is `error_bound` for all.

        Raises:
            InputError: If there are no rows, or rows were removed that never had been added and it
                shows.
        """
        if self._solved is None:
            if self.count < 1:
                raise InputError("rows: expected some to be decomposed, got none; add some first")
            lowest = self._gram.sums.diagonal().min()
            if bool(lowest < -2 * self._rounding):
                raise InputError(
                    "rows to remove: expected rows that were added, with the same values, got "
                    f"others: a sum of squares fell to {float(lowest):.3g}; start anew with the "
                    "rows present"
                )
            found = gram_svd(self._gram, min(self.rank, self.count))
            # The backward error of the decomposition comes on top.
            bound = self._rounding / self.count + self.dim * _UNIT * found.values[0]
            self._solved = replace(found, residual=bound.expand_as(found.values))
        return self._solved

    @property
    def values(self) -> Tensor:  # [k] float64, k = min(rank, N)
        """Eigenvalues of Eᵀ E / N, largest first."""
        return self.spectrum().values

    @property
    def vectors(self) -> Tensor:  # [d, k] float64
        """Eigenvectors, the entry of largest magnitude of each positive."""
        right = self.spectrum().right
        assert right is not None
        return right

    @property
    def total_energy(self) -> float:
        """Mean squared length of the rows."""
        return self.spectrum().total_energy or 0.0

    @property
    def discarded_energy(self) -> float:
        """Mean squared error of the rows projected on `vectors`, within k times `error_bound`."""
        return self.spectrum().discarded_energy or 0.0

    @property
    def error_bound(self) -> float:
        """How far an eigenvalue may be from that of a fresh decomposition."""
        return float(self.spectrum().residual.max())
