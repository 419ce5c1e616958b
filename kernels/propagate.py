"""Triton kernels of propagate: a block of rows walks its incoming edges in step, hubs in pieces.

X is read as [N, B], so that the activation of one sender for all questions is one contiguous
segment. A row of more than PIECE edges is a hub: its first PIECE edges stay in the row's own
program, every further piece is summed by a program of its own first. The number of pieces has a
bound that does not depend on data (E / PIECE), so nothing waits for the device; partial sums are
added in order, so results are reproducible.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["launch_propagate"]

PIECE = 512  # edges of a row that one program walks


@triton.jit
def _walk(
    x, column, weight, scale, first, count, cols, num_cols, best,
    MAXIMUM: tl.constexpr,
):  # fmt: skip
    """Reduces `count` edges from `first` on, for a block of rows at once, into `best`."""
    for k in range(tl.max(count)):
        live = k < count
        sender = tl.load(column + first + k, mask=live, other=0).to(tl.int64)
        w = tl.load(weight + first + k, mask=live, other=0.0)
        s = tl.load(scale + sender, mask=live, other=0.0)
        inside = live[:, None] & (cols < num_cols)[None, :]
        a = tl.load(x + sender[:, None] * num_cols + cols[None, :], mask=inside, other=0.0)
        sent = (a * s[:, None]) * w[:, None]
        if MAXIMUM:
            best = tl.maximum(best, tl.where(inside, sent, float("-inf")))
        else:
            best += sent
    return best


@triton.jit
def _propagate_hub_kernel(
    x, indptr, column, weight, scale, extra, owner, partial, num_pieces, num_cols, hub_rows,
    MAXIMUM: tl.constexpr, PIECE: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """Reduces the p-th piece beyond its row's first into partial[p]; unowned ones are skipped."""
    piece = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    cols = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    row = tl.load(owner + piece, mask=piece < num_pieces, other=hub_rows).to(tl.int64)
    owned = row < hub_rows
    nth = piece - tl.load(extra + row, mask=owned, other=0) + 1
    first = tl.load(indptr + row, mask=owned, other=0) + nth * PIECE
    last = tl.load(indptr + row + 1, mask=owned, other=0)
    count = tl.where(owned, tl.minimum(last - first, PIECE), 0)
    empty = tl.full([BLOCK_P, BLOCK_B], float("-inf") if MAXIMUM else 0.0, partial.dtype.element_ty)
    best = _walk(x, column, weight, scale, first, count, cols, num_cols, empty, MAXIMUM)
    inside = owned[:, None] & (cols < num_cols)[None, :]
    tl.store(partial + piece.to(tl.int64)[:, None] * num_cols + cols[None, :], best, mask=inside)


@triton.jit
def _propagate_kernel(
    x, indptr, column, weight, scale, extra, partial, activation, mask, out,
    retention, num_rows, num_cols, stride_b,
    MAXIMUM: tl.constexpr, MASKED: tl.constexpr, HUBS: tl.constexpr,
    PIECE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """Combines retention * a[b, i] with what comes into i; activation, mask, out are [B, N]."""
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    cols = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    real = row < num_rows
    first = tl.load(indptr + row, mask=real, other=0)
    last = tl.load(indptr + row + 1, mask=real, other=0)
    empty = tl.full([BLOCK_N, BLOCK_B], float("-inf") if MAXIMUM else 0.0, out.dtype.element_ty)
    count = tl.minimum(last - first, PIECE)
    best = _walk(x, column, weight, scale, first, count, cols, num_cols, empty, MAXIMUM)
    if HUBS:
        begin = tl.load(extra + row, mask=real, other=0)
        pieces = tl.load(extra + row + 1, mask=real, other=0) - begin
        for k in range(tl.max(pieces)):
            inside = (k < pieces)[:, None] & (cols < num_cols)[None, :]
            at = (begin + k).to(tl.int64)[:, None] * num_cols + cols[None, :]
            if MAXIMUM:
                best = tl.maximum(best, tl.load(partial + at, mask=inside, other=float("-inf")))
            else:
                best += tl.load(partial + at, mask=inside, other=0.0)
    inside = real[:, None] & (cols < num_cols)[None, :]
    at = cols.to(tl.int64)[None, :] * stride_b + row[:, None]
    kept = tl.load(activation + at, mask=inside, other=0.0) * retention
    if MASKED:
        allowed = tl.load(mask + at, mask=inside, other=0) != 0
        best = tl.where(allowed, best, float("-inf") if MAXIMUM else 0.0)
    if MAXIMUM:
        best = tl.maximum(best, kept)
    else:
        best += kept
    tl.store(out + at, best, mask=inside)


def launch_propagate(
    indptr: Tensor,  # [N + 1] int32
    source: Tensor,  # [E] int32
    target: Tensor,  # [E] int32
    weight: Tensor,  # [E]
    out_indptr: Tensor,  # [N + 1] int32
    out_edge: Tensor,  # [E] int32
    activation: Tensor,  # [B, N] float32 or float64
    scale: Tensor,  # [N]
    retention: float,
    maximum: bool,
    mask: Tensor | None,  # [B, N] bool
) -> Tensor:  # [B, N]
    """`graphmem::propagate` on CUDA: retention, fan, mask and reduction in one pass over edges."""
    questions, nodes = activation.shape
    activation = activation.contiguous()
    out = torch.empty_like(activation)
    if out.numel() == 0:
        return out
    x = activation.T.contiguous()
    block_b = min(64, triton.next_power_of_2(questions))
    block_n = max(8, 1024 // block_b)
    across = triton.cdiv(questions, block_b)

    pieces = source.shape[0] // PIECE
    extra, partial = indptr, x
    if pieces:
        beyond = (indptr.diff() - 1).clamp(min=0) // PIECE
        extra = torch.nn.functional.pad(beyond.cumsum(0), (1, 0)).to(torch.int32)
        ids = torch.arange(pieces, dtype=torch.int32, device=extra.device)
        owner = torch.searchsorted(extra[1:], ids, right=True, out_int32=True)
        partial = torch.empty(pieces, questions, dtype=x.dtype, device=x.device)
        block_p = 8
        _propagate_hub_kernel[(triton.cdiv(pieces, block_p), across)](
            x, indptr, source, weight, scale, extra, owner, partial, pieces, questions, nodes,
            MAXIMUM=maximum, PIECE=PIECE, BLOCK_P=block_p, BLOCK_B=block_b,
        )  # fmt: skip
    _propagate_kernel[(triton.cdiv(nodes, block_n), across)](
        x, indptr, source, weight, scale, extra, partial, activation,
        activation if mask is None else mask.contiguous().view(torch.uint8), out,
        retention, nodes, questions, nodes,
        MAXIMUM=maximum, MASKED=mask is not None, HUBS=pieces > 0,
        PIECE=PIECE, BLOCK_N=block_n, BLOCK_B=block_b,
    )  # fmt: skip
    return out
