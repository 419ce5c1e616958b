"""gram_svd: the leading singular vectors of a tall matrix, exactly, in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._check import check_count
from graphmem_torch.spectral.gram import Gram
from graphmem_torch.spectral.rows import Rows
from graphmem_torch.spectral.spectrum import Spectrum, check_rank, left_vectors, oriented

__all__ = ["gram_svd", "leading_eigenpairs"]


def gram_svd(
    x: Tensor | Iterable[Tensor] | Gram,  # [N, d], or blocks [n, d] of it, or their Gram
    rank: int,
    *,
    left: bool = False,
    block_rows: int | None = None,
) -> Spectrum:
    """The `rank` leading eigenpairs of E Eᵀ / N by the d x d Gram matrix (`mathematics.md` 1.1).

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
                "left vectors need the rows themselves; got left=True with a Gram. Give the rows, "
                "or multiply them by right."
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
    """Of a symmetric positive semidefinite [n, n]: values [rank] and vectors [n, rank]."""
    values, vectors = torch.linalg.eigh(matrix)
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
