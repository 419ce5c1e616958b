"""Tiles of work: their maximum size, and merging their scores into the best so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of
from graphmem_torch.ops.fixed_shapes import doubt, shapes_are_fixed

__all__ = [
    "EQUAL",
    "by_number",
    "empty_best",
    "free_bytes",
    "merge_tile",
    "numbers_on",
    "stable_topk",
    "tile_elements",
]

EQUAL = 22
"""Candidates beyond k that `by_number` takes, to find ties."""


_SHARE = 256  # bytes of free memory per float of the largest temporary: 2^28 floats on 80 GB
_NARROW = 4096  # columns that a GPU sorts faster than it can report whether it must
_PLAIN = 16_384  # scores up to which a plain topk is faster than the calls of the blocks
_SMALLEST_BLOCK = 4  # columns below which a plain topk of the tile is as fast
_EQUAL = 32  # additional candidates beyond the k best of many, to find ties
_ROUNDING = 1e-6, 1e-7  # relative and absolute change of a score by the order of its sum


def tile_elements(device: torch.device, cpu: int, *, free: int | None = None) -> int:
    """Return the maximum floats of the largest temporary of a tile; a power of two on a GPU.

    A tile of a CPU stays in cache, whatever the memory. A GPU is busy only with large tiles.
    `free`: bytes, by default `free_bytes`.
    """
    if device.type != "cuda":
        return cpu
    if free is None:
        recorded = shapes_are_fixed() and not torch.compiler.is_compiling()
        free = _first_free_bytes(device) if recorded else free_bytes(device)
    return max(cpu, 1 << max(0, (free // _SHARE).bit_length() - 1))


def free_bytes(device: torch.device) -> int:
    """Return the bytes of a GPU that an allocation can still get, including those torch caches.

    A compiled graph keeps the value of its compilation.
    """
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


# A CUDA graph is recorded without asking its device.
_first_free_bytes = lru_cache(maxsize=None)(free_bytes)

# Marked as by `torch.compiler.assume_constant_result`, which would import the compiler here.
free_bytes._dynamo_marked_constant = True  # type: ignore[attr-defined]


def numbers_on(device: torch.device, values: Sequence[int] | Sequence[bool]) -> Tensor:  # [n]
    """Return a few numbers on a device; the same tensor for the same numbers.

    The first call copies them, so that later ones neither wait nor copy.
    """
    kind = torch.bool if len(values) and isinstance(values[0], bool) else torch.int64
    make = _constant if torch.compiler.is_compiling() else _kept_constant
    return make(device, kind, tuple(values))


def _constant(device: torch.device, kind: torch.dtype, values: tuple[int, ...]) -> Tensor:
    with torch.inference_mode(False):  # a later call may need gradients
        return torch.tensor(values, dtype=kind).to(device, non_blocking=True)


# Never dropped, as recorded operators read them.
_kept_constant = lru_cache(maxsize=None)(_constant)


def empty_best(rows: int, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return values minus infinity and indices -1, both `[rows, k]`, float32 and int64."""
    values = torch.full((rows, k), -torch.inf, dtype=torch.float32, device=device)
    return values, torch.full((rows, k), -1, device=device)


def stable_topk(
    scores: Tensor,  # [B, C]
    k: int,
    *,
    above: float = -torch.inf,
    sorted: bool = True,
    plain: int = _PLAIN,
) -> tuple[Tensor, Tensor]:  # [B, k] each
    """Return the k best of each row and their columns, best first, ties by column.

    Scores that differ only by rounding are ties, so neither results nor order depend on what else
    is computed beside them. Wide rows are read once, unless many scores tie with the last.

    Args:
        scores: Scores without NaN.
        k: Number of results, at most C.
        above: Scores up to this value count as minus infinity.
        sorted: Whether to sort the results.
        plain: Number of scores up to which all are sorted.
    """
    known = scores.detach()
    if k == 0 or len(scores) == 0:
        return known[:, :k], torch.zeros_like(known[:, :k], dtype=torch.long)
    width = scores.shape[1]
    plain = max(plain, len(known) * _NARROW) if known.is_cuda and plain else plain
    if k + _EQUAL >= width or scores.numel() <= plain or torch.compiler.is_compiling():
        place = _stable(known, k, sorted)
    else:
        best, number = empty_best(len(known), k + _EQUAL, known.device)
        merge_tile(best, number, known, 0, finite=True)
        number, order = number.sort(dim=1)
        few = best.gather(1, order)
        found = _stable(few, k, sorted)
        place = number.gather(1, found)
        last, floor = few.gather(1, found).amin(1), best[:, -1]
        none = few.gather(1, found) == -torch.inf  # fewer than k are finite
        again = (floor > above) & (floor >= last - _rounding(last))
        if shapes_are_fixed():
            # Sorted results are statistics of the ranking too, and those read the missing.
            doubt((again | none.any(1)).any() if sorted else again.any())
            place.clamp_(min=0)
            values = scores.gather(1, place)
            return values.masked_fill(none | (values <= above), -torch.inf), place
        (more,) = again.logical_or_(none.any(1)).nonzero(as_tuple=True)
        if len(more):
            place[more] = _stable(known[more], k, sorted)
    values = scores.gather(1, place)
    return values.masked_fill(values <= above, -torch.inf), place


def by_number(
    values: Tensor,  # [B, c] descending
    numbers: Tensor,  # [B, c] int64, -1: missing
    k: int,
) -> tuple[Tensor, Tensor, Tensor]:  # [B, min(k, c)], [B, min(k, c)] int64, [B] bool
    """Return the k best of candidates from several tiles, ties by number: see `stable_topk`.

    The last result says where more may tie with the k-th than the candidates hold.
    """
    k = min(k, values.shape[1])
    key, order = torch.where(numbers < 0, torch.iinfo(torch.int64).max, numbers).sort(dim=1)
    best, place = stable_topk(values.gather(1, order), k, plain=values.numel())
    found = key.gather(1, place).masked_fill_(best == -torch.inf, -1)
    if values.shape[1] <= k:
        return best, found, torch.zeros(len(values), dtype=torch.bool, device=values.device)
    last = best[:, -1]
    return best, found, (values[:, -1] > -torch.inf) & (values[:, -1] >= last - _rounding(last))


def _stable(known: Tensor, k: int, sorted: bool) -> Tensor:  # [B, C] -> [B, k] columns
    width = known.shape[1]
    if k < width:
        # On a GPU, reading values would wait for it.
        if not (known.is_cuda or shapes_are_fixed()):
            values, place = known.topk(k + 1, dim=1)
            if bool(_apart(values if sorted else values[:, k - 1 :]).all()):
                return place[:, :k]
            least = values[:, k - 1 : k]
        else:
            least = known.topk(k, dim=1).values[:, -1:]
        slack = _rounding(least)
        better = known > least + slack
        tied = (known >= least - slack).logical_xor_(better)
        room = k - better.sum(1, keepdim=True)
        chosen = better.logical_or_(tied.logical_and_(tied.cumsum(1) <= room))
        known = known.masked_fill(~chosen, -torch.inf)
    values, place = known.topk(k, dim=1)
    if not sorted:
        return place
    level = torch.nn.functional.pad(_apart(values).cumsum(1), (1, 0))
    return place.gather(1, (level * width + place).argsort(1))


def _apart(values: Tensor) -> Tensor:  # [B, k] descending -> [B, k - 1] bool
    """Return whether consecutive scores differ by more than rounding."""
    return values[:, :-1] - values[:, 1:] > _rounding(values[:, 1:])


def _rounding(score: Tensor) -> Tensor:
    """Return the change of a score by the order of its sum; 0 for infinite scores."""
    share, least = _ROUNDING
    return score.abs().mul_(share).clamp_(min=least).nan_to_num_(posinf=0.0)


def merge_tile(
    values: Tensor,  # [B, k] float32, descending; overwritten
    indices: Tensor,  # [B, k] int64; overwritten
    scores: Tensor,  # [B, w], rows or columns contiguous
    first: int,  # index of the first column
    *,
    finite: bool = False,
    plain: int = _PLAIN,
) -> None:
    """Merge the columns of `scores` into the k best of each row; NaN is never included.

    The k best of a tile lie in the k blocks of largest maximum, and only in blocks whose maximum
    exceeds the k-th best so far. After the first tile these are few, so the tile is read once, for
    its maxima, and `topk` sees almost nothing. Columns of one block are a stride apart: maxima then
    cover whole vectors, and adjacent near duplicates fall into different blocks.

    Up to `plain` scores, `topk` sees the whole tile. `finite` scores are not tested for NaN.
    """
    rows, width = scores.shape
    k = values.shape[1]
    if rows == 0 or width == 0:
        return
    # A compiled graph reads no values, and takes no root of a length that may change.
    compiled = torch.compiler.is_compiling()
    # Use as many columns in k blocks as there are blocks; a power of two, so that whole tiles have
    # no remainder.
    depth = 1 if compiled else 1 << max(0, math.isqrt(width // k).bit_length() - 1)
    blind = scores.is_cuda or shapes_are_fixed()  # reading would wait for a device
    look = not (finite or blind)
    if depth < _SMALLEST_BLOCK or scores.numel() <= plain:
        number = torch.arange(first, first + width, device=scores.device)
        _merge(values, indices, scores, number, look)
        return
    blocks = width // depth
    whole = scores[:, : blocks * depth]
    maxima = _maxima(whole, depth)
    if look and math.isnan(float(maxima.sum())):  # one pass over few values
        whole = torch.where(whole == whole, whole, -torch.inf)
        maxima = _maxima(whole, depth)
    member = torch.arange(depth, device=scores.device) * blocks
    passing = None
    if not blind:
        row, block = (maxima > values[:, -1:]).nonzero(as_tuple=True)
        passing = len(row)
    if passing is None or passing > rows * min(k, blocks) // 2:
        chosen = maxima.topk(min(k, blocks), dim=1, sorted=False).indices
        place = (chosen[:, :, None] + member).flatten(1)
        _merge(values, indices, whole.gather(1, place), first + place, look)
    elif passing:
        place = block[:, None] + member
        _merge_entries(values, indices, row, whole[row[:, None], place], first + place)
    if blocks * depth < width:
        tail = torch.arange(first + blocks * depth, first + width, device=scores.device)
        _merge(values, indices, scores[:, blocks * depth :], tail, look)


def _maxima(scores: Tensor, depth: int) -> Tensor:  # [B, blocks * depth] -> [B, blocks]
    if scores.stride(1) == 1:
        return scores.unflatten(1, (depth, -1)).amax(1)
    # The result of a transposed tile must have its layout, or it is read column by column.
    return scores.T.unflatten(0, (depth, -1)).amax(0).T


def _merge(values: Tensor, indices: Tensor, found: Tensor, number: Tensor, look: bool) -> None:
    """Keep the k best of kept and found values, [B, c] and [B, c] or [c]."""
    both = torch.cat([values, found], dim=1)
    best, order = both.topk(values.shape[1], dim=1)
    # `topk` ranks NaN highest; a sum is also NaN for opposite infinities, which does no harm.
    if look and math.isnan(float(best[:, 0].sum())):
        best, order = torch.where(both == both, both, -torch.inf).topk(values.shape[1], dim=1)
    number = number.expand(found.shape)
    indices.copy_(torch.cat([indices, number], dim=1).gather(1, order))
    values.copy_(best)


def _merge_entries(
    values: Tensor,  # [B, k]
    indices: Tensor,  # [B, k]
    row: Tensor,  # [P] ascending
    found: Tensor,  # [P, depth] scores of a block of that row
    number: Tensor,  # [P, depth] their columns
) -> None:
    """Merge the few scores that exceed the k-th best, packed to the left in their rows."""
    better = found > values[row, -1:]
    pair, _ = better.nonzero(as_tuple=True)
    row = row[pair]
    touched, inverse, count = row.unique_consecutive(return_inverse=True, return_counts=True)
    place = torch.arange(len(row)) - offsets_of(count)[inverse]
    shape = (len(touched), int(count.max()) if len(count) else 0)
    packed = values.new_full(shape, -torch.inf).index_put_((inverse, place), found[better])
    numbers = indices.new_full(shape, -1).index_put_((inverse, place), number[better])
    best, index = values[touched], indices[touched]
    _merge(best, index, packed, numbers, False)  # NaN compares as not better
    values[touched], indices[touched] = best, index
