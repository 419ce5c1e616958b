"""Gram: sums of products of columns, which add up over blocks, machines and time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError
from graphmem_torch.linalg.rows import Rows
from graphmem_torch.linalg.spectrum import Spectrum, check_rank, left_vectors, oriented

__all__ = ["Gram", "gram_svd", "leading_eigenpairs"]

_FEW = 3  # up to 1 / 3 of the eigenpairs are computed alone


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
            raise InputError("x: expected at least one row, got none; give it rows")
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
                f"Grams: expected the same width to be added, got {len(self.sums)} and "
                f"{len(other.sums)}; were the rows made by different encoders?"
            )
        return Gram(self.sums + other.sums, self.count + other.count)

    def mean(self) -> Tensor:  # [d, d] float64, symmetric
        """C = Eᵀ E / N (`docs/mathematics.md` 1.1).

        Raises:
            InputError: If there are no rows, or they are not finite: looked at here, once, because
                whatever is not finite in a row stays so in the sums.
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
    block_rows: int | None = None,
) -> Spectrum:
    """The `rank` leading eigenpairs of E Eᵀ / N by the Gram matrix (`docs/mathematics.md` 1.1).

    One pass over the rows, tile by tile, and one `eigh` in float64; the left vectors take a second
    pass. Work N d² + 13 d³, memory one tile and 4 d² float64; where N < d is known before, the
    N x N Gram matrix is decomposed instead. Half precision is multiplied in float32.

    Squaring costs digits: with float32 rows, eigenvalues below about 1e-7 of the largest are
    rounding noise. Give float64 rows to go further.

    Args:
        x: A tensor, a slice of a memory-mapped safetensors file, or an iterable of blocks of some
            hundred rows or more; or a `Gram`, as of several machines' rows summed, which gives
            float64 vectors and no left ones.
        rank: Eigenpairs wanted, at most min(N, d).
        left: Whether to compute the left vectors too; x must then be readable twice.
        block_rows: Rows of a tile; by default as many as pay on the device.

    Raises:
        InputError: If x is no finite floating-point matrix, is empty, requires a gradient, or rank
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
    rows = Rows(x, block_rows)
    if left:
        rows.require_repeatable("for the left vectors")
    if rows.count is not None and rows.width is not None:
        check_rank(rank, rows.count, rows.width)
    narrow = rows.count is None or rows.width is None or rows.count >= rows.width
    found = _of_gram(Gram.of(rows), rank, rows.dtype) if narrow else _of_few(rows, rank)
    if not left or found.right is None:
        return found
    return replace(found, left=left_vectors(rows, found.right, found.values, found.count))


def leading_eigenpairs(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Leading eigenpairs of a symmetric positive semidefinite [n, n] float64.

    Some of them take a third of the time of all (LAPACK's `syevr`; Dhillon and Parlett 2004), for
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
    """Fewer rows than columns: they fit where the Gram matrix of the columns would not."""
    whole = torch.cat(list(rows)).double()
    gram = Gram.zeros(len(whole), whole.device)
    gram.add_(whole.T)
    gram.count = len(whole)
    mean = gram.mean()
    values, vectors = leading_eigenpairs(mean, rank)
    # The columns are orthogonal already; QR gives them length 1, and directions to those of none.
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
