"""StreamingSpectrum: the leading eigenpairs of rows that come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._check import check_choice, check_count, check_range
from graphmem_torch.spectral.brand import TruncatedSum
from graphmem_torch.spectral.rows import Rows, check_block
from graphmem_torch.spectral.spectrum import Spectrum, oriented
from graphmem_torch.spectral.whole_sum import WholeSum

__all__ = ["StreamingSpectrum"]

_log = logging.getLogger(__name__)

# Up to here the whole Gram matrix is kept: at 4,096 columns, 128 MB.
_GRAM_WIDTH = 4096
# Columns of a truncated sum for each eigenpair wanted: the more, the slower the bound grows.
_CAPACITY = 3
# Rows converted at once.
_TILE = 8192


class StreamingSpectrum:
    """The `rank` leading eigenpairs of C = Eᵀ E / N while rows are added and removed.

    `mathematics.md` section 1.8. What is promised: every eigenvalue is within `error_bound` of that
    of a fresh decomposition, and `error_bound` stays at most `tol` times the total energy. Where
    updates alone cannot keep it, the decomposition is redone from `source`; without a source a
    warning is logged, `stale` turns true, and `redo(rows)` is due.

    Method "gram" keeps Eᵀ E [d, d] in float64, products included. Adding and removing are exact up
    to rounding, whose bound grows with all the energy that ever came or went: it takes about 10⁶
    times the energy present to reach a `tol` of 1e-6. Method "truncated" keeps some eigenpairs
    (Brand 2006), with memory for d x 3 rank numbers; its bound grows with what falls outside of
    them, so that a spectrum that decays slowly has to be redone often. "auto" takes the first up to
    d = 4,096.

    Eigenpairs are computed when they are asked for, from the last ones where that is provably
    within the tolerance.

    Args:
        rank: Eigenpairs wanted; fewer are returned while there are fewer rows.
        dim: d.
        tol: Relative to the total energy.
        method: "auto", "gram" or "truncated".
        source: Returns the rows present, in any of the forms that `gram_svd` takes, to start anew
            from.
        device: Where the sums live; rows are brought there.

    Raises:
        InputError: If a number is out of range.
    """

    def __init__(
        self,
        rank: int,
        dim: int,
        *,
        tol: float = 1e-6,
        method: str = "auto",
        source: Callable[[], Tensor | Iterable[Tensor]] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        check_count("dim", dim)
        check_count("rank", rank)
        if rank > dim:
            raise InputError(f"rank must be at most dim = {dim}; got {rank}. Ask for fewer.")
        check_range("tol", tol, 1e-12, 1.0)
        check_choice("method", method, ("auto", "gram", "truncated"))
        self.rank, self.dim, self.tol = rank, dim, tol
        self.source = source
        self._device = torch.device(device)
        chosen = "gram" if dim <= _GRAM_WIDTH else "truncated"
        self.method = chosen if method == "auto" else method
        self._start_anew()

    def _start_anew(self) -> None:
        self._count = 0
        self._sum: WholeSum | TruncatedSum
        if self.method == "gram":
            self._sum = WholeSum(self.dim, self._device)
        else:
            self._sum = TruncatedSum(self.dim, _CAPACITY * self.rank + 16, self._device)
        self._solved: Spectrum | None = None
        self._warned = False

    @property
    def count(self) -> int:
        """N: rows added and not removed."""
        return self._count

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
        if sign < 0 and len(rows) > self._count:
            raise InputError(
                f"rows to remove must be among the {self._count} present; got {len(rows)}. Remove "
                "only what was added, once."
            )
        if len(rows) == 0:
            return
        energy = torch.stack([tile.square().sum() for tile in self._tiles(rows)]).sum()
        if not bool(energy.isfinite()):
            raise InputError(
                "rows must be finite, and so must their squares; got others. Find them with "
                "rows.isfinite().all(1)."
            )
        if sign < 0 and len(rows) == self._count:
            self._start_anew()
            return
        for tile in self._tiles(rows):
            self._sum.add_(tile, sign=sign)
        self._count += sign * len(rows)
        self._solved = None

    def _tiles(self, rows: Tensor) -> Iterator[Tensor]:
        """The rows in float64, so many at a time that the copy stays small."""
        for tile in rows.split(_TILE):
            yield tile.to(self._device, torch.float64)

    def redo(self, rows: Tensor | Iterable[Tensor] | None = None) -> None:
        """Starts anew from the rows present, by default those of `source`.

        Raises:
            InputError: If there are neither rows nor a source, the rows are unusable, or the source
                returns another number of rows than are present; nothing has changed then.
        """
        given = rows
        if given is None:
            if self.source is None:
                raise InputError(
                    "redo needs the rows present; got neither rows nor a source. Call redo(rows)."
                )
            given = self.source()
        fresh = StreamingSpectrum(self.rank, self.dim, method=self.method, device=self._device)
        for tile in Rows(given):
            fresh.add(tile)
        if rows is None and fresh.count != self._count:
            raise InputError(
                f"source must return the {self._count} rows present; got {fresh.count}. Let it "
                "follow every add and remove."
            )
        self._start_anew()
        self._sum, self._count = fresh._sum, fresh.count

    def spectrum(self) -> Spectrum:
        """The eigenpairs, computed if anything changed; `residual` is `error_bound` for all.

        Raises:
            InputError: If there are no rows, or rows were removed that never had been added and it
                shows.
        """
        if self._solved is None:
            solved = self._solve()
            if self.source is not None and self._beyond(solved):
                self.redo()
                solved = self._solve()
            if self._beyond(solved) and not self._warned:
                self._warned = True
                _log.warning(
                    "streaming spectrum: eigenvalues may be off by %.1e, more than %.1e of the "
                    "energy: call redo(rows), take method 'gram', or raise tol",
                    float(solved.residual.max()),
                    self.tol,
                )
            self._solved = solved
        return self._solved

    def _solve(self) -> Spectrum:
        if self._count < 1:
            raise InputError("rows must be there to be decomposed; got none. Add some first.")
        energy = max(float(self._sum.energy), 0.0)
        rank = min(self.rank, self._count)
        values, vectors, bound = self._sum.leading(rank, self.tol / 2 * energy)
        values, total = values / self._count, energy / self._count
        return Spectrum(
            values=values,
            right=oriented(vectors),
            left=None,
            residual=(bound / self._count).expand_as(values),
            count=self._count,
            total_energy=total,
            discarded_energy=max(total - float(values.sum()), 0.0),
        )

    def _beyond(self, solved: Spectrum) -> bool:
        return float(solved.residual.max()) > self.tol * (solved.total_energy or 0.0)

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

    @property
    def stale(self) -> bool:
        """Whether `error_bound` exceeds `tol` times the total energy: `redo` is due."""
        return self._beyond(self.spectrum())
