"""Best matches of question tokens in packed atoms, tile by tile, for maxsim and token_maxima.

Atoms are taken in order of length, so the atoms of a tile have nearly equal lengths. A shorter one
repeats its last token, which cannot change its maximum. A plain maximum thus replaces a segment
maximum, which is 20 times slower (`segment_reduce`). Tiles fit the cache, so temporaries stay below
256 MB whatever the sizes. Only for CPUs; a GPU has its own kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import prod

import torch
from torch import Tensor

from graphmem_torch.checks import check_entries
from graphmem_torch.errors import InputError

__all__ = ["ROWS", "UNIT", "Tiling", "best_in_atoms", "best_in_candidates", "multiplies_int8"]

ROWS = 2048
"""Maximum question tokens of a tile."""

UNIT = 127.0
"""Stored int8 value of a component 1.0."""

_DIGIT = 254  # a low digit is in -127..127, so two digits reach 127 * 254 = 32258
_NARROWEST = 8  # components; torch multiplies vectors of one component incorrectly
_WIDEST = 256  # components up to which two digits times int8 stay below 2^31
_FEW = 64  # question tokens up to which a product is faster with them as rows


@dataclass(frozen=True)
class Tiling:
    """Sizes of the tiles of a CPU, and its product.

    Attributes:
        products: Products of a tile: 4 MB.
        together: Questions served by a tile of candidates.
        int8: Whether to multiply tokens in int8; None asks the processor.
    """

    products: int = 1 << 20
    together: int = 8
    int8: bool | None = None


_USUAL = Tiling()


class _Int8Product:
    """Products of groups of question tokens with int8 rows, for processors that multiply int8.

    Two digits round a component to 1/64516 of the largest of its vector. Cosines change by about
    1e-5, a hundredth of the error of int8 tokens.
    """

    rows = 16384  # rows multiplied at a time: 2 MB

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
        """[g, R, n]: largest products of rows [g, n * steps, m] with the tokens of their groups."""
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
    """The same products in float32."""

    rows = 5120  # 2.6 MB

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
    """Reusable memory; grows to the largest shape requested."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._held = torch.empty(0, dtype=dtype)

    def take(self, *shape: int) -> Tensor:
        size = prod(shape)
        if self._held.shape[0] < size:
            self._held = self._held.new_empty(size)
        return self._held[:size].view(shape)


@cache
def multiplies_int8() -> bool:
    """Return whether the processor multiplies int8 natively.

    Without VNNI, int8 products may saturate at 16 bits; the trial detects that too. oneDNN then
    adds 128 to one factor, depending on the shape, and sums pairs of products in 16 bits. That is
    certain to overflow if both factors are as large as possible. Both functions are private to
    torch; without them, tokens are multiplied in float32.
    """
    with suppress(AttributeError, RuntimeError):
        if torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported():
            extreme = torch.full((64, _WIDEST), 127, dtype=torch.int8, device="cpu")
            product = torch._int_mm(extreme, extreme.T)
            return bool((product == _WIDEST * 127 * 127).all())
    return False


def best_in_atoms(
    query_rows: Tensor,  # [R, m] float32, R <= ROWS
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1] int64
    tiling: Tiling = _USUAL,
) -> Iterator[tuple[Tensor, Tensor]]:  # [n] int64, [R, n]
    """Yield the atoms of every tile, and each question token's best cosine with each of them.

    Atoms without tokens are in no tile.

    Raises:
        InputError: The offsets do not match the tokens.
    """
    if not len(query_rows):
        return
    _check_offsets(offsets[:-1], offsets[1:], len(tokens))
    lengths, order = torch.sort(offsets.diff(), descending=True, stable=True)
    order = order[: int(lengths.count_nonzero())]
    tiles = _Tiles(query_rows[None], tokens, tiling)
    for part, best in tiles.walk(slice(1), lengths[None, : len(order)], offsets[order][None]):
        yield order[part], best[0]


def best_in_candidates(
    query_tokens: Tensor,  # [B, Q, m] float32
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1] int64
    candidates: Tensor,  # [B, C] int64, -1 for padding
    tiling: Tiling = _USUAL,
) -> Iterator[tuple[slice, Tensor, Tensor]]:  # g questions, [g, c] int64, [g, Q, c]
    """Yield the questions of every tile, their places in `candidates`, and the best cosines there.

    A tile takes the same ranks by length of several questions. The value is 0 for padding and for
    candidates without tokens.

    Raises:
        InputError: A candidate is not an atom, or its offsets do not match the tokens.
    """
    if not candidates.numel():
        return
    do = "take them from the same index, -1 for padding"
    check_entries("candidates", candidates, -1, offsets.shape[0] - 2, do)
    if not query_tokens.shape[1] or not tokens.shape[0]:
        return
    atoms = candidates.clamp(min=0)
    start, stop = offsets[atoms], offsets[atoms + 1]
    _check_offsets(start, stop, len(tokens))
    lengths = torch.where(candidates >= 0, stop - start, 0)
    lengths, order = torch.sort(lengths, dim=1, descending=True)
    start = torch.where(lengths > 0, start.gather(1, order), 0)
    tiles = _Tiles(query_tokens, tokens, tiling)
    for first in range(0, len(candidates), tiling.together):
        own = slice(first, first + tiling.together)
        for part, best in tiles.walk(own, lengths[own], start[own]):
            best.masked_fill_((lengths[own, part] == 0)[:, None], 0.0)
            yield own, order[own, part], best


def _check_offsets(start: Tensor, stop: Tensor, rows: int) -> None:
    if not start.numel():
        return
    low, high = int(start.amin()), int(stop.amax())
    if low < 0 or high > rows or bool((stop < start).any()):
        raise InputError(
            f"offsets: expected to ascend from 0 to the {rows} tokens, got {low}..{high}; give "
            "those of the tokens"
        )


class _Tiles:
    """Cut atoms, the longest first, into tiles of a bounded number of token rows."""

    def __init__(self, query: Tensor, tokens: Tensor, tiling: Tiling) -> None:  # [G, R, m]
        int8 = multiplies_int8() if tiling.int8 is None else tiling.int8
        fits = _NARROWEST <= query.shape[2] <= _WIDEST
        self._product = _Int8Product(query) if int8 and fits else _FloatProduct(query)
        most = tiling.products // query.shape[1]
        self._budget = max(tiling.together, min(self._product.rows, most))
        # Words of eight bytes move three times as fast as single bytes.
        aligned = tokens.shape[1] % 8 == 0 and tokens.storage_offset() % 8 == 0
        wide = aligned and tokens.is_contiguous() and tokens.numel() > 0
        self._tokens = tokens.view(torch.int64) if wide else tokens
        self._rows = self._tokens.new_empty(self._budget, self._tokens.shape[1])
        self._index = torch.empty(self._budget, dtype=torch.int64)
        self._step = torch.arange(self._budget)

    def walk(
        self,
        groups: slice,  # at most `together` groups of question tokens
        lengths: Tensor,  # [g, n] descending in each row
        start: Tensor,  # [g, n] first token row of each atom
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield the columns of every tile with tokens, and the best products [g, R, ...] there."""
        longest, begin = lengths.amax(0).tolist(), 0
        budget = self._budget // max(1, len(lengths))
        start, last = start[:, :, None], (lengths - 1).clamp_(min=0)[:, :, None]
        while begin < len(longest) and longest[begin]:
            most = longest[begin]
            part = slice(begin, min(begin + max(1, budget // most), len(longest)))
            pieces = [
                self._best(groups, start[:, part], last[:, part], first, min(most, first + budget))
                for first in range(0, most, budget)  # several tiles only for an extremely long atom
            ]
            yield part, pieces[0] if len(pieces) == 1 else torch.stack(pieces).amax(0)
            begin = part.stop

    def _best(self, groups: slice, start: Tensor, last: Tensor, first: int, stop: int) -> Tensor:
        """[g, R, n] of steps `first` to `stop` of n atoms; shorter ones repeat their last token."""
        together, atoms, _ = start.shape
        steps = stop - first
        step = self._step[:steps] + first if first else self._step[:steps]
        index = self._index[: together * atoms * steps]
        # Atom after atom, in memory order: 1.5 times as fast as step after step.
        torch.minimum(step, last, out=index.view(together, atoms, steps)).add_(start)
        rows = torch.index_select(self._tokens, 0, index, out=self._rows[: len(index)])
        return self._product.best(groups, rows.view(torch.int8).unflatten(0, (together, -1)), steps)
