"""A tall matrix that is read in blocks of rows, wherever it lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.checks import check_matrix
from graphmem_torch.errors import InputError

__all__ = ["Rows"]
# Elements of a tile: its float32 copy stays in the cache of a core, or fills a GPU, and sums in
# float32 over so few rows keep their digits: the angle of a flat spectrum grows with the tile.
_TILE = {"cpu": 1 << 19, "cuda": 1 << 22}
_LEAST, _MOST = 256, 8192


class Rows:
    """Rows [N, d] as tiles in float32 (float64 where they are float64), one at a time.

    No more than one block of the source and one tile are alive at once, so that what is read may
    be larger than memory.

    Args:
        x: A tensor [N, d]; or what cuts like one and tells its shape by `get_shape()`, as a slice
            of a memory-mapped safetensors file does; or an iterable of blocks [n, d].

    Attributes:
        count: N, or None where only reading to the end will tell.
        width: d, or None likewise.
        dtype: Type of the tiles; float32 until a block of float64 was seen.
        repeatable: Whether the rows can be read more than once; a generator's cannot.

    Raises:
        InputError: For what is no matrix of floating-point numbers, is empty, or needs a gradient.
    """

    def __init__(self, x: Any) -> None:
        self.dtype = torch.float32
        self.count: int | None = None
        self.width: int | None = None
        self._cuts = isinstance(x, Tensor) or hasattr(x, "get_shape")
        if self._cuts:
            shape = list(x.shape if isinstance(x, Tensor) else x.get_shape())
            if len(shape) != 2 or min(shape) < 1:
                raise InputError(
                    "x: expected a matrix [N, d] with at least one row and one column, got "
                    f"{shape}; a single row is x[None]"
                )
            self.count, self.width = shape
            check_block(x if isinstance(x, Tensor) else x[:1], self.width)
        elif not isinstance(x, Iterable):
            raise InputError(
                "x: expected a matrix [N, d] or an iterable of its blocks, got "
                f"{type(x).__name__}; convert it to a tensor"
            )
        self._x = x
        self.repeatable = self._cuts or iter(x) is not x

    def __iter__(self) -> Iterator[Tensor]:
        """Tiles [n, d], in order, each converted on its own."""
        width = self.width
        device: torch.device | None = None
        for block in self._blocks():
            check_block(block, width)
            width, device = block.shape[1], device or block.device
            if block.device != device:
                raise InputError(
                    f"blocks of x: expected one device for all, got {device} and {block.device}; "
                    "move them to one"
                )
            work = torch.promote_types(block.dtype, torch.float32)
            self.dtype = torch.promote_types(self.dtype, work)
            step = _tile_rows(block)
            for start in range(0, block.shape[0], step):
                yield block[start : start + step].to(work)

    def _blocks(self) -> Iterator[Tensor]:
        if isinstance(self._x, Tensor):
            yield self._x
        elif self._cuts:
            step = _tile_rows(self._x[:1])
            for start in range(0, self.count or 0, step):
                yield self._x[start : start + step]
        else:
            yield from self._x

    def require_repeatable(self, reason: str) -> None:
        """Raises `InputError` where the rows can be read only once."""
        if not self.repeatable:
            raise InputError(
                f"x: expected rows that can be read more than once {reason}, got an iterator, "
                "which is spent after one pass; give a tensor, a list, or an object whose "
                "__iter__ starts anew"
            )


def _tile_rows(block: Tensor) -> int:
    elements = _TILE.get(block.device.type, _TILE["cpu"])
    return min(max(_LEAST, elements // block.shape[1]), _MOST)


def check_block(block: Tensor, width: int | None) -> None:
    """Raises `InputError` unless `block` is a floating-point matrix [n, width] without gradient."""
    if not isinstance(block, Tensor):
        raise InputError(
            f"blocks of rows: expected tensors [n, d], got {type(block).__name__}; convert them, "
            "as with torch.from_numpy"
        )
    check_matrix("rows", block, "[N, d]")
    if block.requires_grad:
        raise InputError(
            "rows: expected no gradient, because a decomposition has no backward, got a tensor "
            "that requires one; call .detach()"
        )
    if block.shape[1] < 1 or (width is not None and block.shape[1] != width):
        raise InputError(
            f"rows: expected width {width or 'of at least 1'}, got {list(block.shape)}; were they "
            "made by another encoder?"
        )
