"""decompose: the leading part of a matrix or kernel by the route that costs less."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count
from graphmem_torch.linalg.gram import gram_svd
from graphmem_torch.linalg.randomized_svd import Kernel, randomized_svd
from graphmem_torch.linalg.rows import Rows
from graphmem_torch.linalg.spectrum import Spectrum

__all__ = ["decompose"]
_log = logging.getLogger(__name__)

# Fitted to both routes at 5,000 to 50,000 rows of 384 to 2,048 columns on one core, where the model
# is within 1.6 of the clock: flops of a Gram entry and row, of `eigh` by d³, and what a thin panel
# loses against a square product.
_PRODUCT, _EIGH, _THIN = 1.25, 15.0, 1.3
# The Gram route is exact where the random one may only be near: worth paying double for.
_EXACT_IS_WORTH = 2.0


def decompose(
    x: Tensor | Iterable[Tensor] | Kernel,  # [N, d], or blocks [n, d] of it, or K [N, N]
    rank: int,
    *,
    method: str = "auto",
    oversample: int = 10,
    iterations: int = 2,
    generator: torch.Generator | None = None,
    left: bool = False,
    block_rows: int | None = None,
) -> Spectrum:
    """The `rank` leading eigenpairs of E Eᵀ / N, or of a kernel (`docs/mathematics.md` 1.1).

    `auto` takes `gram_svd`, which is exact, unless `randomized_svd` costs less than half of it, or
    x is a `Kernel`. With q = `iterations` and b = `rank` + `oversample`, in floating-point
    operations:

        gram        1.25 N d² + 15 d³        (N < d: 2.5 N² d + 15 N³)
        randomized  1.3 · 4 (q + 2) N d b

    so, with the defaults and many rows, gram up to d = 2,000 for rank 50. Where N is not known
    before the rows are read, it is taken as large; what can be read only once goes to gram.

    Args:
        x: As for `gram_svd`, or a `Kernel`.
        rank: Eigenpairs wanted, at most min(N, d).
        method: "auto", "gram" or "randomized".
        oversample: As for `randomized_svd`.
        iterations: As for `randomized_svd`.
        generator: As for `randomized_svd`.
        left: Whether to compute the left vectors of a matrix too.
        block_rows: Rows of a tile; by default as many as pay on the device.

    Raises:
        InputError: As `gram_svd` and `randomized_svd` do, or for an unknown method, or for "gram"
            with a kernel.
    """
    check_choice("method", method, ("auto", "gram", "randomized"))
    check_count("rank", rank)
    check_count("oversample", oversample, 0)
    check_count("iterations", iterations, 0)
    if isinstance(x, Kernel):
        check_choice("method, for a kernel,", method, ("auto", "randomized"))
    else:
        if method == "auto":
            method = _cheaper(Rows(x), (iterations + 2) * (rank + oversample))
            _log.debug("decompose takes the %s route", method)
        if method == "gram":
            return gram_svd(x, rank, left=left, block_rows=block_rows)
    return randomized_svd(
        x,
        rank,
        oversample=oversample,
        iterations=iterations,
        generator=generator,
        left=left,
        block_rows=block_rows,
    )


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
