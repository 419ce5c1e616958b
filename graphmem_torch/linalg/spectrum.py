"""Input and output of decompositions: rows in tiles, and a spectrum with its discarded energy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.checks import check_matrix
from graphmem_torch.errors import InputError

__all__ = [
    "Rows",
    "Spectrum",
    "check_block",
    "check_rank",
    "oriented",
    "reconstruction_error",
    "truncated",
]


# Elements of a tile: its float32 copy fits the cache of a core, or fills a GPU. Float32 sums over
# so few rows keep their digits; errors of a flat spectrum's angles grow with the tile.
_TILE = {"cpu": 1 << 19, "cuda": 1 << 22}
_LEAST, _MOST = 256, 8192


class Rows:
    """Rows [N, d] as tiles in float32 (float64 for float64 rows), one at a time.

    At most one block of the source and one tile are alive at once, so the source may exceed memory.

    Args:
        x: Tensor [N, d]; an object that is sliced like one and has `get_shape()`, such as a slice
            of a memory-mapped safetensors file; or an iterable of blocks [n, d].

    Attributes:
        count: N, or None if it is known only after reading all rows.
        width: d, or None if it is not known yet.
        dtype: Type of the tiles; float32 until a float64 block is read.
        repeatable: True if the rows can be read more than once; false for a generator.

    Raises:
        InputError: x is not a matrix of floating-point numbers, is empty, or requires a gradient.
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
        """Yield tiles [n, d] in order, each converted separately."""
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
        """Raise `InputError` if the rows can be read only once."""
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
    """Raise `InputError` unless `block` is a floating-point matrix [n, width] without gradient."""
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
            f"rows: expected width {width or 'of at least 1'}, got {list(block.shape)}; encode "
            "all rows with one encoder"
        )


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Leading K eigenpairs of a kernel K = E Eᵀ / N (`docs/mathematics.md` 1.1 and 1.4).

    Attributes:
        values: [K] float64, eigenvalues of the kernel, largest first, not negative.
        right: [d, K], orthonormal eigenvectors of Eᵀ E / N, each with a positive entry of largest
            magnitude. None for an implicit kernel.
        left: [N, K], eigenvectors of the kernel, E right / sqrt(N values); 0 for values that are 0
            to working precision. None if not requested.
        residual: [K] float64: |C u - value u|; an eigenvalue of the kernel lies within it. 0 after
            a full decomposition.
        count: N.
        total_energy: Trace of the kernel: the mean squared length of a row. None for an implicit
            kernel without a trace.
        discarded_energy: Trace less the kept values: the mean squared error of the rows projected
            on `right`. By Eckart and Young (1936) it is at least the sum of the eigenvalues that
            follow, with equality after a full decomposition. None with `total_energy`.
    """

    values: Tensor
    right: Tensor | None
    left: Tensor | None
    residual: Tensor
    count: int
    total_energy: float | None
    discarded_energy: float | None


def oriented(vectors: Tensor) -> Tensor:  # [n, K] -> [n, K]
    """Return the same axes, each with a positive entry of largest magnitude."""
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return torch.where(largest < 0, -vectors, vectors)


def check_rank(rank: int, count: int, width: int) -> None:
    """Raise `InputError` if rank exceeds the number of eigenpairs of [count, width]."""
    if rank > min(count, width):
        raise InputError(
            f"rank: expected at most min(N, d) = min({count}, {width}), got {rank}; ask for "
            f"{min(count, width)} or fewer"
        )


def truncated(spectrum: Spectrum, rank: int) -> Spectrum:
    """Return the first `rank` eigenpairs; the energy of the others counts as discarded."""
    kept = spectrum.values[:rank]
    total = spectrum.total_energy
    return replace(
        spectrum,
        values=kept,
        right=None if spectrum.right is None else spectrum.right[:, :rank].contiguous(),
        left=None if spectrum.left is None else spectrum.left[:, :rank].contiguous(),
        residual=spectrum.residual[:rank],
        discarded_energy=None if total is None else max(total - float(kept.sum()), 0.0),
    )


def reconstruction_error(x: Tensor, right: Tensor) -> float:
    """Return the mean squared distance of rows from their projection on `right`, row by row.

    Checks `Spectrum.discarded_energy` (`docs/mathematics.md` 1.4) by direct computation.

    Args:
        x: Rows [N, d], in any form that `gram_svd` takes.
        right: [d, K], orthonormal.

    Raises:
        InputError: Rows or axes have the wrong shape or type.
    """
    total, count = torch.zeros((), dtype=torch.float64, device=right.device), 0
    for tile in Rows(x):
        if tile.shape[1] != right.shape[0]:
            raise InputError(
                f"right: expected {tile.shape[1]} rows, one for each column of x, got "
                f"{list(right.shape)}; give the axes of these rows"
            )
        axes = right.to(tile.dtype)
        total += (tile - tile @ axes @ axes.T).square().sum(1).double().sum()
        count += tile.shape[0]
    return float(total) / max(count, 1)
