"""Gram: sums of products of columns, which add up over blocks, machines and time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError
from graphmem_torch.linalg.spectrum import Rows, Spectrum, check_block, check_rank, oriented

__all__ = ["Gram", "StreamingSpectrum", "gram_svd", "leading_eigenpairs"]

_FEW = 3  # up to 1 / 3 of the eigenpairs are computed without the others


@dataclass(eq=False)
class Gram:
    """Eᵀ E of the rows seen so far.

    Sums of blocks, workers or times add up: `a + b`, or an all-reduce of `sums` and `count`.

    Attributes:
        sums: [d, d] float64; only the upper triangle is valid.
        count: Number of rows.
    """

    sums: Tensor
    count: int = 0

    @classmethod
    def zeros(cls, width: int, device: torch.device | str = "cpu") -> Gram:
        """Start without rows."""
        return cls(torch.zeros(width, width, dtype=torch.float64, device=device))

    @classmethod
    def of(cls, x: Tensor | Iterable[Tensor] | Rows) -> Gram:
        """Sum rows [N, d], in any form that `gram_svd` takes, in one pass.

        Raises:
            InputError: x is not a floating-point matrix, is empty, or requires a gradient.
        """
        gram: Gram | None = None
        for tile in x if isinstance(x, Rows) else Rows(x):
            gram = gram or cls.zeros(tile.shape[1], tile.device)
            gram.add_(tile)
        if gram is None:
            raise InputError("x: expected at least one row, got none; give rows")
        return gram

    def add_(self, rows: Tensor, *, sign: int = 1) -> None:  # rows [n, d], float32 or float64
        """Add the rows, or subtract them with `sign` -1.

        Products are summed in the dtype of the rows over these n rows, and in float64 afterwards.
        Panels below the diagonal are skipped, which leaves 0.6 of the work of the whole product.
        """
        width = rows.shape[1]
        # A few large products suit a GPU better than many small ones.
        panel = max(512 if rows.is_cuda else 96, -(-width // 8))
        part = torch.empty(width, width, dtype=rows.dtype, device=rows.device)
        for start in range(0, width, panel):
            stop = min(start + panel, width)
            torch.mm(rows[:, start:stop].T, rows[:, start:], out=part[start:stop, start:])
            self.sums[start:stop, start:].add_(part[start:stop, start:], alpha=sign)
        self.count += sign * rows.shape[0]

    def __add__(self, other: Gram) -> Gram:
        """Return the sums over the rows of both."""
        if self.sums.shape != other.sums.shape:
            raise InputError(
                f"Grams: expected the same width to be added, got {len(self.sums)} and "
                f"{len(other.sums)}; encode all rows with one encoder"
            )
        return Gram(self.sums + other.sums, self.count + other.count)

    def mean(self) -> Tensor:  # [d, d] float64, symmetric
        """Return C = Eᵀ E / N (`docs/mathematics.md` 1.1).

        Raises:
            InputError: There are no rows, or they are not finite. Checked here, once, because
                non-finite values of a row stay in the sums.
        """
        if self.count < 1:
            raise InputError("x: expected at least one row, got none; add rows first")
        if not bool(self.sums.diagonal().isfinite().all()):
            raise InputError(
                "rows: expected finite rows whose squares are finite in float32, got others; "
                "find them with rows.isfinite().all(1)"
            )
        upper = self.sums.triu() / self.count
        return upper + upper.triu(1).T


def gram_svd(
    x: Tensor | Iterable[Tensor] | Gram,  # [N, d], or blocks [n, d] of it, or their Gram
    rank: int,
    *,
    left: bool = False,
) -> Spectrum:
    """Return the `rank` leading eigenpairs of E Eᵀ / N from the Gram matrix.

    See `docs/mathematics.md` 1.1. Takes one pass over the rows, tile by tile, and one `eigh` in
    float64; left vectors take a second pass. Work N d² + 13 d³, memory one tile and 4 d² float64.
    If N < d is known in advance, the N x N Gram matrix is decomposed instead. Half precision is
    multiplied in float32.

    Squaring costs digits: with float32 rows, eigenvalues below about 1e-7 of the largest are
    rounding noise. Pass float64 rows for smaller ones.

    Args:
        x: Tensor, slice of a memory-mapped safetensors file, or iterable of blocks of some hundred
            rows or more; or a `Gram`, such as the sum of several machines, which gives float64
            vectors and no left ones.
        rank: Number of eigenpairs, at most min(N, d).
        left: Whether to compute the left vectors too; x must then be readable twice.

    Raises:
        InputError: x is not a finite floating-point matrix, is empty, requires a gradient, or rank
            is out of range.
    """
    check_count("rank", rank)
    if isinstance(x, Gram):
        if left:
            raise InputError(
                "left: expected the rows themselves for left vectors, got left=True with a Gram; "
                "give the rows, or multiply them by right"
            )
        return _of_gram(x, rank, torch.float64)
    rows = Rows(x)
    if left:
        rows.require_repeatable("for the left vectors")
    if rows.count is not None and rows.width is not None:
        check_rank(rank, rows.count, rows.width)
    narrow = rows.count is None or rows.width is None or rows.count >= rows.width
    found = _of_gram(Gram.of(rows), rank, rows.dtype) if narrow else _of_few(rows, rank)
    if not left or found.right is None:
        return found
    return replace(found, left=_left_vectors(rows, found.right, found.values, found.count))


def leading_eigenpairs(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the leading eigenpairs of a symmetric positive semidefinite [n, n] float64 matrix.

    Some pairs take a third of the time of all (LAPACK's `syevr`; Dhillon and Parlett 2004), for
    which torch has no call.

    Returns:
        Values [rank], largest first, and vectors [n, rank].
    """
    count = len(matrix)
    if matrix.is_cuda or _FEW * rank > count:
        values, vectors = torch.linalg.eigh(matrix)
    else:
        from scipy.linalg import eigh

        found = eigh(matrix.numpy(), subset_by_index=[count - rank, count - 1], check_finite=False)
        values, vectors = (torch.from_numpy(part) for part in found)
    return values.flip(0)[:rank].clamp(min=0), vectors.flip(1)[:, :rank]


def _of_gram(gram: Gram, rank: int, dtype: torch.dtype) -> Spectrum:
    mean = gram.mean()
    check_rank(rank, gram.count, len(mean))
    values, vectors = leading_eigenpairs(mean, rank)
    return _spectrum(values, oriented(vectors).to(dtype), gram.count, mean)


def _of_few(rows: Rows, rank: int) -> Spectrum:
    """Decompose fewer rows than columns: they fit memory where a Gram matrix may not."""
    whole = torch.cat(list(rows)).double()
    gram = Gram.zeros(len(whole), whole.device)
    gram.add_(whole.T)
    gram.count = len(whole)
    mean = gram.mean()
    values, vectors = leading_eigenpairs(mean, rank)
    # The columns are already orthogonal; QR scales them to length 1 and replaces zero columns.
    right = oriented(torch.linalg.qr(whole.T @ vectors).Q).to(rows.dtype)
    return _spectrum(values, right, gram.count, mean)


def _spectrum(values: Tensor, right: Tensor, count: int, mean: Tensor) -> Spectrum:
    total = float(mean.trace())
    return Spectrum(
        values=values,
        right=right,
        left=None,
        residual=torch.zeros_like(values),
        count=count,
        total_energy=total,
        discarded_energy=max(total - float(values.sum()), 0.0),
    )


def _left_vectors(rows: Rows, right: Tensor, values: Tensor, count: int) -> Tensor:  # [N, K]
    """Return E u / sqrt(N λ), in one more pass over the rows."""
    floor = torch.finfo(right.dtype).eps * values[0]
    scale = torch.where(values > floor, (count * values).rsqrt(), 0.0)
    axes = (right.double() * scale).to(right.dtype)
    out = torch.empty(count, len(values), dtype=right.dtype, device=right.device)
    start = 0
    for tile in rows:
        torch.mm(tile.to(right.dtype), axes, out=out[start : start + len(tile)])
        start += len(tile)
    return out


_UNIT = torch.finfo(torch.float64).eps / 2  # unit roundoff
_TILE = 1024  # rows multiplied at once; rounding inside a product grows with them


class StreamingSpectrum:
    """Leading `rank` eigenpairs of C = Eᵀ E / N while rows are added and removed.

    `docs/mathematics.md` 1.8. Keeps Eᵀ E [d, d] in float64 and decomposes it on demand. Adding and
    removing are exact up to rounding, whose bound grows with the total energy ever added or
    removed: about 10⁶ times the present energy moves an eigenvalue by 1e-6.

    Args:
        rank: Number of eigenpairs; fewer while there are fewer rows.
        dim: d.
        device: Device of the sums; rows are moved to it.

    Raises:
        InputError: A number is out of range.
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
        """Add rows.

        Raises:
            InputError: The rows are not finite floating-point rows of d columns without gradient;
                the sums are then unchanged.
        """
        self._update(rows, 1)

    def remove(self, rows: Tensor) -> None:  # [n, d]
        """Remove rows that were added before, in any order and grouping.

        Raises:
            InputError: See `add`, or there are more rows than present.
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
            # n u |E|² for the product of n rows and u |Eᵀ E| for the addition (Higham 2002, 3.5).
            whole = self._gram.sums.trace().abs()
            self._rounding += _UNIT * (len(tile) * energy + whole)
        self._solved = None

    def spectrum(self) -> Spectrum:
        """Return the eigenpairs, cached until rows change; `residual` is `error_bound` for all.

        Raises:
            InputError: There are no rows, or removed rows are detected that had never been added.
        """
        if self._solved is None:
            if self.count < 1:
                raise InputError("rows: expected at least one row, got none; add rows first")
            lowest = self._gram.sums.diagonal().min()
            if bool(lowest < -2 * self._rounding):
                raise InputError(
                    "rows to remove: expected rows that were added, with the same values, got "
                    f"others: a sum of squares fell to {float(lowest):.3g}; start anew with the "
                    "rows present"
                )
            found = gram_svd(self._gram, min(self.rank, self.count))
            # Add the backward error of the decomposition.
            bound = self._rounding / self.count + self.dim * _UNIT * found.values[0]
            self._solved = replace(found, residual=bound.expand_as(found.values))
        return self._solved

    @property
    def values(self) -> Tensor:  # [k] float64, k = min(rank, N)
        """Eigenvalues of Eᵀ E / N, largest first."""
        return self.spectrum().values

    @property
    def vectors(self) -> Tensor:  # [d, k] float64
        """Eigenvectors, each with a positive entry of largest magnitude."""
        right = self.spectrum().right
        assert right is not None
        return right

    @property
    def error_bound(self) -> float:
        """Maximum difference between an eigenvalue and that of a fresh decomposition."""
        return float(self.spectrum().residual.max())
