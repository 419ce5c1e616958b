"""Leading singular vectors: from products with a random panel, or by the cheaper method."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count
from graphmem_torch.errors import InputError
from graphmem_torch.linalg.gram import gram_svd
from graphmem_torch.linalg.spectrum import Rows, Spectrum, check_rank, oriented

__all__ = ["Kernel", "Ritz", "block_krylov", "decompose", "randomized_svd"]

_log = logging.getLogger(__name__)

# Fitted to both methods at 5,000 to 50,000 rows of 384 to 2,048 columns on one core, where the
# model is within a factor of 1.6: flops of a Gram entry and row, of `eigh` per d³, and the slowdown
# of a thin panel against a square product.
_PRODUCT, _EIGH, _THIN = 1.25, 15.0, 1.3
# The Gram method is exact and the random one only near, which is worth twice the cost.
_EXACT_IS_WORTH = 2.0
_OVERSAMPLE, _ITERATIONS = 10, 2  # defaults of the random method


@dataclass(frozen=True, eq=False)
class Ritz:
    """Rayleigh-Ritz approximations from a subspace of m dimensions.

    Attributes:
        values: [m] float64, largest first.
        vectors: [n, rank], orthonormal.
        residual: [rank] float64: |A v - value v|.
        asymmetry: |Vᵀ A V - (Vᵀ A V)ᵀ| relative to the largest value, due to rounding or to an
            operator that is not symmetric.
    """

    values: Tensor
    vectors: Tensor
    residual: Tensor
    asymmetry: float


def block_krylov(
    product: Callable[[Tensor], Tensor],  # [n, b] -> [n, b]
    start: Tensor,  # [n, b]
    depth: int,
    rank: int,
) -> Ritz:
    """Return Rayleigh-Ritz pairs on the span of V, A V, ..., A^(depth - 1) V.

    Uses all `depth` products; the power method with as many ends in a subspace of this one. The
    error decreases like a Chebyshev polynomial of that degree (Musco and Musco 2015, algorithm 2,
    theorem 1). Every block is orthogonalised against all earlier ones.

    Args:
        product: Function from a block to A times the block; A is symmetric.
        start: V, of full rank with probability 1 if it is Gaussian.
        depth: Number of products; fewer if the blocks fill the whole space.
        rank: Number of vectors, at most b.
    """
    size, block = start.shape
    width = min(depth * block, size)
    basis = start.new_empty(size, width)
    small = torch.zeros(width, width, dtype=torch.float64, device=start.device)
    skew = small.new_zeros(())
    fresh, done = torch.linalg.qr(start).Q, 0
    while True:
        stop = done + fresh.shape[1]
        basis[:, done:stop] = fresh
        known = basis[:, :stop]
        image = product(fresh)
        seen = known.T @ image
        rest = torch.addmm(image, known, seen, alpha=-1)
        part = seen.double()
        own = part[done:]
        skew = torch.maximum(skew, (own - own.T).abs().max())
        part[done:] = (own + own.T) / 2
        small[:stop, done:stop] = part
        small[done:stop, :stop] = part.T
        if stop == width:
            break
        fresh, done = _extension(known, rest)[:, : width - stop], stop
    values, weights = torch.linalg.eigh(small)
    values, weights = values.flip(0), weights.flip(1)[:, :rank]
    vectors = basis @ weights.to(basis.dtype)
    residual = (rest.double() @ weights[done:]).norm(dim=0)
    return Ritz(values, vectors, residual, float(skew / values.abs().max().clamp(min=1e-300)))


@dataclass(frozen=True)
class Kernel:
    """Symmetric positive semidefinite matrix K [N, N] that is never formed.

    Attributes:
        product: Function V [N, b] -> K V [N, b], on the same device and in the same dtype. Called
            with blocks, so that entries of K are computed once for b columns.
        size: N.
        trace: Trace of K; without it, the discarded energy is unknown.
        dtype: Type of the panels: float32 or float64.
        device: Device of the panels.
    """

    product: Callable[[Tensor], Tensor]
    size: int
    trace: float | None = None
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"


def randomized_svd(
    x: Tensor | Iterable[Tensor] | Kernel,  # [N, d], or blocks [n, d] of it, or K [N, N]
    rank: int,
    *,
    oversample: int = _OVERSAMPLE,
    iterations: int = _ITERATIONS,
    generator: torch.Generator | None = None,
) -> Spectrum:
    """Return the `rank` leading eigenpairs of E Eᵀ / N, or of a kernel, by random products.

    Takes `iterations` + 2 products. Gaussian range finder (Halko, Martinsson and Tropp 2011,
    algorithm 4.4) in its block Krylov form (Musco and Musco 2015), which keeps all panels of the
    power iteration and is never worse than it. For a matrix, every product is one pass over the
    rows, tile by tile, on the side of the d columns: memory one tile and (`iterations` + 2) (rank +
    oversample) columns of d. `docs/mathematics.md` 1.1.

    The result reports its own error. `discarded_energy` is the error of the projection on the
    vectors found, so at least the optimum; `residual` bounds the error of each value. In a flat
    spectrum the vectors span some subspace that is nearly as good as the leading one.

    Args:
        x: Rows as for `gram_svd`, but readable more than once; or a `Kernel`, whose own eigenvalues
            are returned, with eigenvectors in `left`.
        rank: Number of eigenpairs, at most min(N, d).
        oversample: Columns of the random panel beyond `rank`.
        iterations: Products beyond the first and the last.
        generator: Random generator for the panel, on the CPU or the device of x; torch's own by
            default.

    Raises:
        InputError: x is not a finite floating-point matrix, is empty, requires a gradient or can be
            read only once, a number is out of range, or a kernel is found not to be symmetric
            positive semidefinite.
    """
    check_count("rank", rank)
    check_count("oversample", oversample, 0)
    check_count("iterations", iterations, 0)
    depth = iterations + 2
    if isinstance(x, Kernel):
        return _of_kernel(x, rank, oversample, depth, generator)
    rows = Rows(x)
    rows.require_repeatable("for several products")
    first = next(iter(rows), None)
    if first is None:
        raise InputError("x: expected at least one row, got none; give rows")
    width, work = first.shape[1], first.dtype
    check_rank(rank, rows.count or rank, width)
    product = _MeanProduct(rows)
    panel = min(rank + oversample, width)
    start = _gaussian(width, panel, generator, torch.float64, first.device)
    found = block_krylov(product, start, depth, rank)
    check_rank(rank, product.count, width)
    right = oriented(found.vectors).to(work)
    values = found.values[:rank].clamp(min=0)
    total = product.energy()
    return Spectrum(
        values=values,
        right=right,
        left=None,
        residual=found.residual,
        count=product.count,
        total_energy=total,
        discarded_energy=max(total - float(values.sum()), 0.0),
    )


class _MeanProduct:
    """Product V -> Eᵀ E V / N in one pass: both sides multiply a tile while it is in cache."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._squares: Tensor | None = None
        self.count = 0

    def __call__(self, panel: Tensor) -> Tensor:  # [d, b] float64
        total, count = torch.zeros_like(panel), 0
        squares = torch.zeros((), dtype=torch.float64, device=panel.device)
        for tile in self._rows:
            total += tile.T @ (tile @ panel.to(tile.dtype))
            count += tile.shape[0]
            if self._squares is None:
                squares += tile.square().sum(1).sum(dtype=torch.float64)
        if self._squares is None:
            self._squares, self.count = squares, count
            _require_finite(squares)
        return total / count

    def energy(self) -> float:
        """Mean squared length of the rows."""
        return math.nan if self._squares is None else float(self._squares) / self.count


def _of_kernel(
    kernel: Kernel, rank: int, oversample: int, depth: int, generator: torch.Generator | None
) -> Spectrum:
    check_count("size", kernel.size)
    if kernel.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"dtype: expected torch.float32 or torch.float64, got {kernel.dtype}; let the product "
            "convert its panel"
        )
    check_rank(rank, kernel.size, kernel.size)

    def product(panel: Tensor) -> Tensor:
        image = kernel.product(panel)
        if image.shape != panel.shape or image.dtype != panel.dtype:
            raise InputError(
                f"product: expected to return {panel.dtype} {list(panel.shape)} like its panel, "
                f"got {image.dtype} {list(image.shape)}; check the kernel's size and dtype"
            )
        _require_finite(image.sum(dtype=torch.float64))
        return image.detach()

    panel = min(rank + oversample, kernel.size)
    start = _gaussian(kernel.size, panel, generator, kernel.dtype, kernel.device)
    found = block_krylov(product, start, depth, rank)
    _require_semidefinite(found)
    values = found.values[:rank].clamp(min=0)
    kept = float(values.sum())
    return Spectrum(
        values=values,
        right=None,
        left=oriented(found.vectors),
        residual=found.residual,
        count=kernel.size,
        total_energy=kernel.trace,
        discarded_energy=None if kernel.trace is None else max(kernel.trace - kept, 0.0),
    )


def _gaussian(
    size: int,
    width: int,
    generator: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Tensor:  # [size, width]
    """Draw on the device of the generator, so a CPU generator gives the same panel everywhere."""
    origin = generator.device if generator is not None else device
    drawn = torch.randn(size, width, generator=generator, dtype=dtype, device=origin)
    return drawn.to(device)


def _require_finite(total: Tensor) -> None:
    if not bool(total.isfinite()):
        raise InputError(
            "x: expected finite values whose squares and products are finite in float32, got "
            "others; find them with x.isfinite().all(1)"
        )


def _require_semidefinite(found: Ritz) -> None:
    # Half the digits of float32: far above rounding, far below the error of a wrong kernel.
    slack = 1e-3
    lowest = float(found.values[-1])
    if found.asymmetry > slack or lowest < -slack * float(found.values[0].abs()):
        raise InputError(
            "kernel: expected a symmetric positive semidefinite one, got products that are "
            f"asymmetric by {found.asymmetry:.1e} of the largest eigenvalue, and a value of "
            f"{lowest:.3g}; check the product, or decompose the square of the matrix"
        )


def decompose(
    x: Tensor | Iterable[Tensor] | Kernel,  # [N, d], or blocks [n, d] of it, or K [N, N]
    rank: int,
    *,
    method: str = "auto",
    generator: torch.Generator | None = None,
) -> Spectrum:
    """Return the `rank` leading eigenpairs of E Eᵀ / N, or of a kernel (`docs/mathematics.md` 1.1).

    `auto` uses the exact `gram_svd`, unless `randomized_svd` costs less than half of it or x is a
    `Kernel`. With b = `rank` + 10 columns in each of its 4 products, in floating-point operations:

        gram        1.25 N d² + 15 d³        (N < d: 2.5 N² d + 15 N³)
        randomized  1.3 · 4 · 4 N d b

    With many rows, "gram" is cheaper up to d = 2,000 for rank 50. If N is not known in advance, it
    counts as large; input that can be read only once uses "gram".

    Args:
        x: Rows as for `gram_svd`, or a `Kernel`.
        rank: Number of eigenpairs, at most min(N, d).
        method: "auto", "gram" or "randomized".
        generator: Random generator, as for `randomized_svd`.

    Raises:
        InputError: See `gram_svd` and `randomized_svd`, or the method is unknown, or is "gram"
            with a kernel.
    """
    check_choice("method", method, ("auto", "gram", "randomized"))
    check_count("rank", rank)
    if isinstance(x, Kernel):
        check_choice("method for a kernel", method, ("auto", "randomized"))
    else:
        if method == "auto":
            method = _cheaper(Rows(x), (_ITERATIONS + 2) * (rank + _OVERSAMPLE))
            _log.debug("decompose takes the %s route", method)
        if method == "gram":
            return gram_svd(x, rank)
    return randomized_svd(x, rank, generator=generator)


def _cheaper(rows: Rows, products: int) -> str:
    if not rows.repeatable:
        return "gram"
    width = rows.width
    if width is None:
        first = next(iter(rows), None)
        width = 1 if first is None else first.shape[1]
    count = rows.count or 100 * width
    small, large = min(count, width), max(count, width)
    # Fewer rows than columns are multiplied in float64, at half the speed.
    product = _PRODUCT * (2 if count < width else 1)
    gram = product * large * small**2 + _EIGH * small**3
    randomized = _THIN * 4 * products * count * width
    return "gram" if gram <= _EXACT_IS_WORTH * randomized else "randomized"


def _extension(basis: Tensor, panel: Tensor) -> Tensor:  # [N, m], [N, b] -> [N, min(b, N - m)]
    """Return orthonormal columns that span, together with the basis, the panel too.

    Householder reflections of both at once. If the panel adds nothing beyond rounding, the columns
    are arbitrary, but still orthogonal to the basis and of full number.
    """
    return torch.linalg.qr(torch.cat([basis, panel], 1)).Q[:, basis.shape[1] :]
