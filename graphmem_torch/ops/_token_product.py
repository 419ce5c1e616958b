"""Question tokens times packed int8 token rows on a CPU, and the largest product of each segment.

Where the processor multiplies int8 natively (VNNI), the question tokens are written in 16 bits as
two int8 digits, 254 high + low, and the products are exact integers: no row is ever converted, and
five times as many products a second come out as in float32. Elsewhere the rows are converted inside
the cache and multiplied in float32. Both keep their buffers, because fresh pages for each tile cost
as much as the product.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from math import prod
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["UNIT", "TokenProduct", "token_product"]

UNIT = 127.0
"""Stored int8 value of a component 1.0."""

_DIGIT = 254  # a low digit is in -127..127, so two digits reach 127 * 254 = 32258
_NARROWEST = 8  # components; torch multiplies vectors of one component wrongly
_WIDEST = 256  # components up to which two digits times int8 stay below 2^31
_FEW = 64  # question tokens up to which a product is faster with them as rows


class TokenProduct(Protocol):
    """Products of groups of question tokens with rows of int8."""

    @property
    def rows(self) -> int:
        """How many rows to multiply at a time."""

    def best(
        self,
        groups: slice,  # g of the groups
        rows: Tensor,  # [g, n * steps, m] int8, atom after atom
        steps: int,
    ) -> Tensor:  # [g, R, n] float32
        """The largest products of each group's question tokens in each of its own n atoms."""


def token_product(query: Tensor) -> TokenProduct:  # [G, R, m] float32, finite
    """The fastest product of this processor.

    The two digits round a component to 1/64516 of the largest of its vector: cosines are off by
    about 1e-5, a hundredth of what int8 tokens are.
    """
    if _NARROWEST <= query.shape[2] <= _WIDEST and _multiplies_int8():
        return _Int8Product(query)
    return _FloatProduct(query)


class _Int8Product:
    rows = 16384  # 2 MB

    def __init__(self, query: Tensor) -> None:
        largest = query.abs().amax(2, keepdim=True)
        reach = UNIT * _DIGIT
        fixed = (query * (reach / largest.masked_fill(largest == 0, 1.0))).round_()
        high = (fixed / _DIGIT).round_()
        low = fixed.sub_(high, alpha=_DIGIT)
        self._digits = torch.cat([high, low], dim=1).to(torch.int8)  # [G, 2R, m]
        self._scale = largest / (reach * UNIT)  # [G, R, 1]
        self._sums, self._product = _Buffer(torch.int32), _Buffer(torch.int32)

    def best(self, groups: slice, rows: Tensor, steps: int) -> Tensor:
        digits, (together, size, _) = self._digits[groups], rows.shape
        count = digits.shape[1] // 2
        sums = self._sums.take(together, 2 * count, size)
        blocks = zip(digits.unbind(), rows.transpose(1, 2).unbind(), sums.unbind(), strict=True)
        for left, right, out in blocks:  # torch has no batched product of int8
            torch._int_mm(left, right, out=out)
        product = self._product.take(together, count, size)
        torch.add(sums[:, count:], sums[:, :count], alpha=_DIGIT, out=product)
        return product.view(together, count, -1, steps).amax(3) * self._scale[groups]


class _FloatProduct:
    rows = 5120  # 2.6 MB in float32

    def __init__(self, query: Tensor) -> None:
        self._query = query / UNIT
        self._values, self._product = _Buffer(torch.float32), _Buffer(torch.float32)

    def best(self, groups: slice, rows: Tensor, steps: int) -> Tensor:
        query, (together, size, _) = self._query[groups], rows.shape
        count = query.shape[1]
        values = self._values.take(*rows.shape).copy_(rows)
        if count <= _FEW:
            out = self._product.take(together, count, size)
            product = torch.bmm(query, values.transpose(1, 2), out=out)
            return product.view(together, count, -1, steps).amax(3)
        out = self._product.take(together, size, count)
        product = torch.bmm(values, query.transpose(1, 2), out=out)
        return product.view(together, -1, steps, count).amax(2).transpose(1, 2)


class _Buffer:
    """Memory that is used again; grows to the largest shape asked for."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._held = torch.empty(0, dtype=dtype)

    def take(self, *shape: int) -> Tensor:
        size = prod(shape)
        if self._held.shape[0] < size:
            self._held = self._held.new_empty(size)
        return self._held[:size].view(shape)


@cache
def _multiplies_int8() -> bool:
    """Without VNNI, int8 products may saturate at 16 bits; the trial looks for that too.

    oneDNN then adds 128 to one of the factors, which one depends on the shape, and sums pairs of
    products in 16 bits: that overflows for certain where both factors are as large as they get.
    Both functions are private to torch: one that lacks them multiplies in float32.
    """
    with suppress(AttributeError, RuntimeError):
        if torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported():
            extreme = torch.full((64, _WIDEST), 127, dtype=torch.int8, device="cpu")
            product = torch._int_mm(extreme, extreme.T)
            return bool((product == _WIDEST * 127 * 127).all())
    return False
