"""Triton kernels of a sparse product: a block of rows walks its edges in step, long rows in pieces.

X is read as [C, B], so the values that one matrix column sends to the panel are contiguous. A
program holds a tile [rows, lanes, columns]. It takes `lanes` edges of each row at once and adds the
lanes at the end, so several gathers per row are in flight.

Rows of one program walk in step, so each takes as long as the longest. Sorting the rows by degree
would balance them, but would scatter the writes and cost a sort for every product. Instead, rows
longer than PIECE edges are cut at multiples of PIECE. A first kernel reduces all later pieces, one
program each; the row then adds their results like edges.

No program takes more than PIECE / lanes steps over edges, and the edges of a hub are spread over
the device. A piece finds its row by bisection; pieces of short rows do nothing. The number of
pieces is E / PIECE, whatever the data, so nothing is prepared and nothing waits for the device. The
order of every sum is fixed, so results are reproducible.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["PIECE", "WARPS", "Tile", "hub_totals", "launch_spmm", "row_totals", "tile_for"]

PIECE = 128  # edges of a row that one program walks
_ELEMENTS = 4096  # of a tile: 16 a thread
WARPS = 8


@triton.jit
def _walk(
    x, column, weight, scale, pattern, edges, first, count, cols, num_cols, stride, best,
    MAXIMUM: tl.constexpr, SCALED: tl.constexpr, PATTERNS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Reduce `count` edges of every row, starting at `first`, into `best` [rows, LANES, columns].

    With PATTERNS, row `pattern[column]` of `weight` [P, edges] has a column's weights, and edges of
    weight 0 are absent.
    """
    if PATTERNS:
        own = tl.load(pattern + cols, mask=cols < num_cols, other=0).to(tl.int64) * edges
    for k in range(0, tl.max(count), LANES):
        nth = k + tl.arange(0, LANES)[None, :]
        live = nth < count[:, None]
        at = first[:, None] + nth
        sender = tl.load(column + at, mask=live, other=0).to(tl.int64)
        inside = live[:, :, None] & (cols < num_cols)[None, None, :]
        if PATTERNS:
            chosen = own[None, None, :] + at[:, :, None]
            w = tl.load(weight + chosen, mask=inside, other=0.0).to(best.dtype)
            inside = inside & (w != 0)
        else:
            w = tl.load(weight + at, mask=live, other=0.0).to(best.dtype)[:, :, None]
        place = sender[:, :, None] * stride + cols[None, None, :]
        a = tl.load(x + place, mask=inside, other=0.0).to(best.dtype)
        if SCALED:
            s = tl.load(scale + sender, mask=live, other=0.0).to(best.dtype)
            a = a * s[:, :, None]
        # The gradient of the maximum recognises its edges by comparing with exactly this product.
        sent = a * w
        if MAXIMUM:
            best = tl.maximum(best, tl.where(inside, sent, float("-inf")))
        else:
            best += sent
    return best


@triton.jit
def row_totals(
    x, indptr, column, weight, scale, pattern, edges, partial,
    row, real, cols, num_cols, stride,
    MAXIMUM: tl.constexpr, SCALED: tl.constexpr, PATTERNS: tl.constexpr, HUBS: tl.constexpr,
    PIECE: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """[ROWS, COLS]: the reduction of every row's edges, in the type of `partial`."""
    start: tl.constexpr = float("-inf") if MAXIMUM else 0.0
    best = tl.full([ROWS, LANES, COLS], start, partial.dtype.element_ty)
    first = tl.load(indptr + row, mask=real, other=0)
    last = tl.load(indptr + row + 1, mask=real, other=0)
    count = last - first
    if HUBS:
        long = count > PIECE
        begin = first // PIECE
        pieces = tl.where(long, (last - 1) // PIECE - begin, 0)
        count = tl.where(long, (begin + 1) * PIECE - first, count)
    best = _walk(
        x, column, weight, scale, pattern, edges, first, count, cols, num_cols, stride, best,
        MAXIMUM, SCALED, PATTERNS, LANES,
    )  # fmt: skip
    if HUBS:
        for k in range(0, tl.max(pieces), LANES):
            nth = k + tl.arange(0, LANES)[None, :]
            live = nth < pieces[:, None]
            inside = live[:, :, None] & (cols < num_cols)[None, None, :]
            piece = (begin[:, None] + nth).to(tl.int64)
            place = piece[:, :, None] * num_cols + cols[None, None, :]
            part = tl.load(partial + place, mask=inside, other=start)
            best = tl.maximum(best, part) if MAXIMUM else best + part
    return tl.max(best, axis=1) if MAXIMUM else tl.sum(best, axis=1)


@triton.jit
def _hub_kernel(
    x, indptr, column, weight, scale, pattern, edges, partial,
    num_pieces, num_cols, stride, num_rows, steps,
    MAXIMUM: tl.constexpr, SCALED: tl.constexpr, PATTERNS: tl.constexpr, PIECE: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """partial[p]: the reduction of the edges after (p + 1) * PIECE of the long row they belong to.

    Pieces at the start of a row and pieces of short rows are neither written nor read.
    """
    piece = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    real = piece < num_pieces
    begin = tl.where(real, (piece + 1) * PIECE, 0)
    row = tl.zeros([ROWS], tl.int32)
    beyond = row + num_rows
    for _ in range(0, steps):  # indptr[row] <= begin < indptr[beyond]
        middle = (row + beyond) // 2
        inside = tl.load(indptr + middle) <= begin
        row = tl.where(inside, middle, row)
        beyond = tl.where(inside, beyond, middle)
    first = tl.load(indptr + row)
    last = tl.load(indptr + row + 1)
    owned = real & (first < begin) & (last - first > PIECE)
    count = tl.where(owned, tl.minimum(last - begin, PIECE), 0)
    start: tl.constexpr = float("-inf") if MAXIMUM else 0.0
    best = tl.full([ROWS, LANES, COLS], start, partial.dtype.element_ty)
    best = _walk(
        x, column, weight, scale, pattern, edges, begin, count, cols, num_cols, stride, best,
        MAXIMUM, SCALED, PATTERNS, LANES,
    )  # fmt: skip
    total = tl.max(best, axis=1) if MAXIMUM else tl.sum(best, axis=1)
    inside = owned[:, None] & (cols < num_cols)[None, :]
    tl.store(partial + piece.to(tl.int64)[:, None] * num_cols + cols[None, :], total, mask=inside)


@triton.jit
def _spmm_kernel(
    x, indptr, column, weight, partial, out, num_rows, num_cols, stride,
    MAXIMUM: tl.constexpr, HUBS: tl.constexpr, PIECE: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Write a block of rows of the product."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    real = row < num_rows
    total = row_totals(
        x, indptr, column, weight, weight, weight, 0, partial,
        row, real, cols, num_cols, stride,
        MAXIMUM, False, False, HUBS, PIECE, ROWS, LANES, COLS,
    )  # fmt: skip
    inside = real[:, None] & (cols < num_cols)[None, :]
    place = row.to(tl.int64)[:, None] * num_cols + cols[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)


class Tile(NamedTuple):
    """Size of the tile of one program: `rows` x `lanes` x `columns` values."""

    rows: int
    lanes: int
    columns: int


def tile_for(rows: int, edges: int, columns: int) -> Tile:
    """Return a tile with a lane for each edge of an average row, if the panel leaves room."""
    wide = min(64, triton.next_power_of_2(columns))
    degree = triton.next_power_of_2(max(1, triton.cdiv(edges, max(1, rows))))
    lanes = min(degree, 32, max(4, 256 // wide))
    return Tile(_ELEMENTS // (lanes * wide), lanes, wide)


def hub_totals(
    x: Tensor,  # [C, B], rows contiguous
    indptr: Tensor,  # [R + 1] int32
    column: Tensor,  # [E] int32
    weight: Tensor,  # [E], or [P, E] with patterns
    scale: Tensor | None,  # [C]
    maximum: bool,
    tile: Tile,
    piece: int = PIECE,
    pattern: Tensor | None = None,  # [B]
) -> Tensor:  # [pieces, B] float32 or float64
    """Reduce the edges of rows beyond their first piece; never waits for the device."""
    rows, columns = indptr.shape[0] - 1, x.shape[1]
    pieces = max(0, column.shape[0] - 1) // piece
    kind = torch.promote_types(x.dtype, torch.float32)
    partial = torch.empty(pieces, columns, dtype=kind, device=x.device)
    if pieces:
        grid = (triton.cdiv(pieces, tile.rows), triton.cdiv(columns, tile.columns))
        _hub_kernel[grid](
            x, indptr, column, weight, weight if scale is None else scale,
            weight if pattern is None else pattern, column.shape[0], partial,
            pieces, columns, x.stride(0), rows, (rows - 1).bit_length(),
            MAXIMUM=maximum, SCALED=scale is not None, PATTERNS=pattern is not None, PIECE=piece,
            ROWS=tile.rows, LANES=tile.lanes, COLS=tile.columns, num_warps=WARPS,
        )  # fmt: skip
    return partial


def launch_spmm(
    indptr: Tensor,  # [R + 1] int32
    column: Tensor,  # [E] int32
    weight: Tensor,  # [E]
    x: Tensor,  # [C, B]
    maximum: bool,
    piece: int = PIECE,
) -> Tensor:  # [R, B]
    """`graphmem::spmm` on CUDA."""
    rows, columns = indptr.shape[0] - 1, x.shape[1]
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    x, indptr, column, weight = (t.contiguous() for t in (x, indptr, column, weight))
    tile = tile_for(rows, column.shape[0], columns)
    partial = hub_totals(x, indptr, column, weight, None, maximum, tile, piece)
    _spmm_kernel[triton.cdiv(rows, tile.rows), triton.cdiv(columns, tile.columns)](
        x, indptr, column, weight, partial, out, rows, columns, x.stride(0),
        MAXIMUM=maximum, HUBS=len(partial) > 0, PIECE=piece,
        ROWS=tile.rows, LANES=tile.lanes, COLS=tile.columns, num_warps=WARPS,
    )  # fmt: skip
    return out
