"""Triton kernel of propagate: the sparse product of `spmm` with fan, retention and mask fused in.

Activation is [B, N] on input and output. The edges read a copy [N, B], whose rows fill whole
128-byte lines if they are longer than one line.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphmem_torch.kernels.spmm import PIECE, WARPS, hub_totals, row_totals, tile_for

__all__ = ["launch_propagate"]

_LINE = 128  # bytes


@triton.jit
def _propagate_kernel(
    x, own, indptr, column, weight, scale, pattern, edges, partial, mask, retention, step,
    out, num_rows, num_cols, stride,
    MAXIMUM: tl.constexpr, SCALED: tl.constexpr, PATTERNS: tl.constexpr, MASKED: tl.constexpr,
    HUBS: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
    COLS: tl.constexpr,
):  # fmt: skip
    """Combine retention * own[i, b] with the input of node i; mask and out are [B, N].

    The edges read `x`. It is `own`, or `own` times the scale if the scale differs between questions
    (not SCALED). The retention of question b is at b * step.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    real = row < num_rows
    received = row_totals(
        x, indptr, column, weight, scale, pattern, edges, partial,
        row, real, cols, num_cols, stride,
        MAXIMUM, SCALED, PATTERNS, HUBS, PIECE, ROWS, LANES, COLS,
    )  # fmt: skip
    inside = real[:, None] & (cols < num_cols)[None, :]
    at = cols.to(tl.int64)[None, :] * num_rows + row[:, None]
    if MASKED:
        allowed = tl.load(mask + at, mask=inside, other=0) != 0
        received = tl.where(allowed, received, float("-inf") if MAXIMUM else 0.0)
    place = row.to(tl.int64)[:, None] * stride + cols[None, :]
    keep = tl.load(retention + cols * step, mask=cols < num_cols, other=0.0)[None, :]
    kept = tl.load(own + place, mask=inside, other=0.0).to(received.dtype) * keep
    result = tl.maximum(received, kept) if MAXIMUM else received + kept
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


def launch_propagate(
    indptr: Tensor,  # [N + 1] int32
    source: Tensor,  # [E] int32
    target: Tensor,  # [E] int32
    weight: Tensor,  # [E], or [P, E] with patterns
    out_indptr: Tensor,  # [N + 1] int32
    out_edge: Tensor,  # [E] int32
    activation: Tensor,  # [B, N], half precision too
    scale: Tensor,  # [N] or [B, N]
    retention: Tensor,  # [] or [B]
    maximum: bool,
    mask: Tensor | None,  # [B, N] bool
    pattern: Tensor | None = None,  # [B] int64
    piece: int = PIECE,
) -> Tensor:  # [B, N]
    """`graphmem::propagate` on CUDA: retention, fan, mask and reduction in one pass over edges."""
    questions, nodes = activation.shape
    out = torch.empty(questions, nodes, dtype=activation.dtype, device=activation.device)
    if out.numel() == 0:
        return out
    own = _panel(activation)
    x, shared = own, scale.dim() == 1
    if not shared:  # one multiplication per node and question, not per edge
        x = _panel(activation * scale, width=own.stride(0))
    weight, scale, retention = weight.contiguous(), scale.contiguous(), retention.contiguous()
    tile = tile_for(nodes, source.shape[0], questions)
    factor = scale if shared else None
    partial = hub_totals(x, indptr, source, weight, factor, maximum, tile, piece, pattern)
    _propagate_kernel[triton.cdiv(nodes, tile.rows), triton.cdiv(questions, tile.columns)](
        x, own, indptr, source, weight, scale, weight if pattern is None else pattern,
        source.shape[0], partial,
        out if mask is None else mask.contiguous().view(torch.uint8),
        retention.to(partial.dtype), retention.dim(), out, nodes, questions, x.stride(0),
        MAXIMUM=maximum, SCALED=shared, PATTERNS=pattern is not None, MASKED=mask is not None,
        HUBS=len(partial) > 0, PIECE=piece,
        ROWS=tile.rows, LANES=tile.lanes, COLS=tile.columns, num_warps=WARPS,
    )  # fmt: skip
    return out


def _panel(activation: Tensor, width: int | None = None) -> Tensor:  # [N, B]
    """Activation by node; rows are whole lines, or a power of two below one line."""
    questions, nodes = activation.shape
    if width is None:
        line = _LINE // activation.element_size()
        width = triton.next_power_of_2(questions)
        if width > line:
            width = triton.cdiv(questions, line) * line
    x = torch.empty(nodes, width, dtype=activation.dtype, device=activation.device)
    return x[:, :questions].copy_(activation.T)
