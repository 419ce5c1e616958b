"""StreamingSpectrum: the leading eigenpairs of rows that come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_range
from graphmem_torch.errors import InputError
from graphmem_torch.linalg.gram import Gram, leading_eigenpairs
from graphmem_torch.linalg.orthonormal import extension
from graphmem_torch.linalg.rows import Rows, check_block
from graphmem_torch.linalg.spectrum import Spectrum, oriented

__all__ = ["UNIT", "StreamingSpectrum", "TruncatedSum", "WholeSum", "check_present", "refreshed"]
# Narrower than this, a full `eigh` costs no more than the steps and their proof.
_SMALL = 512
_STEPS = 6
# Vectors kept beyond `rank`: the error falls with the gap behind them.
_SPARE = 16


def refreshed(
    matrix: Tensor,  # [n, n] float64, symmetric positive semidefinite
    rank: int,
    start: Tensor | None,  # [n, m], orthonormal, m >= rank
    tol: float,
) -> tuple[Tensor, Tensor, Tensor]:  # values [rank], vectors [n, m], bound []
    """The `rank` leading eigenpairs, each value proven to be within `bound` of its eigenvalue.

    Rayleigh-Ritz on the span of the old vectors U and of C U, a few times over. Proof: in the basis
    [U, U_perp], C differs from diag(Θ, C_perp) by the residual, of norm r. If β I - C + U Θ Uᵀ has
    a Cholesky factorisation, no eigenvalue of C_perp exceeds β, here halfway from θ_m up to θ_K.
    With the gap η = θ_K - β, no value is off by more than 2 r² / (η + sqrt(η² + 4 r²)) (Li and Li
    2005, "A note on eigenvalues of perturbed Hermitian matrices", theorem 2). The factorisation
    takes n³/3 operations where `eigh` takes about 13 n³; when the proof fails, `eigh` it is.

    Args:
        matrix: C.
        rank: K.
        start: U, the leading vectors first, or None.
        tol: The bound asked for, absolute.
    """
    width = min(len(matrix), rank + _SPARE)
    if start is not None and start.shape[1] == width and len(matrix) >= max(_SMALL, 3 * width):
        basis, before = start, matrix.new_full((), torch.inf)
        image = matrix @ basis
        for step in range(_STEPS + 1):
            values, weights = leading_eigenpairs(basis.T @ image, width)
            basis, image = basis @ weights, image @ weights
            rest = image - basis * values
            square = torch.linalg.eigvalsh(rest.T @ rest)[-1].clamp(min=0)  # r²
            gap = (values[rank - 1] - values[-1]) / 2
            bound = 2 * square / (gap + (gap.square() + 4 * square).sqrt())
            if bool(bound <= tol):
                if not _nothing_above(matrix, basis, values, values[rank - 1] - gap):
                    break
                return values[:rank], basis, bound
            # Steps that would not get there are not begun.
            if bool(bound * (bound / before) ** (_STEPS - step) > tol):
                break
            before = bound
            fresh = extension(basis, rest)
            basis = torch.cat([basis, fresh], 1)
            image = torch.cat([image, matrix @ fresh], 1)
    values, vectors = leading_eigenpairs(matrix, width)
    return values[:rank], vectors, matrix.new_zeros(())


def _nothing_above(matrix: Tensor, basis: Tensor, values: Tensor, limit: Tensor) -> bool:
    """Whether every eigenvalue of what the basis leaves is below the limit."""
    rest = (basis * values) @ basis.T - matrix
    rest.diagonal().add_(limit)
    return bool(torch.linalg.cholesky_ex(rest).info == 0)


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


_log = logging.getLogger(__name__)

# Up to here the whole Gram matrix is kept: at 4,096 columns, 128 MB.
_GRAM_WIDTH = 4096
# Columns of a truncated sum for each eigenpair wanted: the more, the slower the bound grows.
_CAPACITY = 3
# Rows converted at once.
_STREAMING_TILE = 8192


class StreamingSpectrum:
    """The `rank` leading eigenpairs of C = Eᵀ E / N while rows are added and removed.

    `docs/mathematics.md` 1.8. What is promised: every eigenvalue is within `error_bound` of that
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
        for tile in rows.split(_STREAMING_TILE):
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
