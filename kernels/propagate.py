"""Triton kernel of propagate: the sparse product of `spmm` with fan, retention and mask fused in.

Activation arrives as [B, N] and leaves as [B, N]; between, a copy [N, B] is what the edges read, in
rows that fill whole 128-byte lines where they are longer than one.
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
    x, indptr, column, weight, scale, extra, partial, mask, retention, out,
    num_rows, num_cols, stride,
    MAXIMUM: tl.constexpr, MASKED: tl.constexpr, HUBS: tl.constexpr, PIECE: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Combines retention * a[b, i] with what comes into i; mask and out are [B, N]."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    real = row < num_rows
    received = row_totals(
        x, indptr, column, weight, scale, extra, partial, row, real, cols, num_cols, stride,
        MAXIMUM, True, HUBS, PIECE, ROWS, LANES, COLS,
    )  # fmt: skip
    inside = real[:, None] & (cols < num_cols)[None, :]
    at = cols.to(tl.int64)[None, :] * num_rows + row[:, None]
    if MASKED:
        allowed = tl.load(mask + at, mask=inside, other=0) != 0
        received = tl.where(allowed, received, float("-inf") if MAXIMUM else 0.0)
    own = row.to(tl.int64)[:, None] * stride + cols[None, :]
    kept = tl.load(x + own, mask=inside, other=0.0).to(received.dtype) * tl.load(retention)
    result = tl.maximum(received, kept) if MAXIMUM else received + kept
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


def launch_propagate(
    indptr: Tensor,  # [N + 1] int32
    source: Tensor,  # [E] int32
    target: Tensor,  # [E] int32
    weight: Tensor,  # [E]
    out_indptr: Tensor,  # [N + 1] int32
    out_edge: Tensor,  # [E] int32
    activation: Tensor,  # [B, N], half precision too
    scale: Tensor,  # [N]
    retention: Tensor,  # []
    maximum: bool,
    mask: Tensor | None,  # [B, N] bool
    piece: int = PIECE,
) -> Tensor:  # [B, N]
    """`graphmem::propagate` on CUDA: retention, fan, mask and reduction in one pass over edges."""
    questions, nodes = activation.shape
    out = torch.empty(questions, nodes, dtype=activation.dtype, device=activation.device)
    if out.numel() == 0:
        return out
    x = _panel(activation)
    weight, scale = weight.contiguous(), scale.contiguous()
    tile = tile_for(nodes, source.shape[0], questions)
    hubs = hub_totals(x, indptr, source, weight, scale, maximum, tile, piece)
    _propagate_kernel[triton.cdiv(nodes, tile.rows), triton.cdiv(questions, tile.columns)](
        x, indptr, source, weight, scale, hubs.extra, hubs.partial,
        out if mask is None else mask.contiguous().view(torch.uint8),
        retention.to(hubs.partial.dtype), out, nodes, questions, x.stride(0),
        MAXIMUM=maximum, MASKED=mask is not None, HUBS=hubs.any, PIECE=piece,
        ROWS=tile.rows, LANES=tile.lanes, COLS=tile.columns, num_warps=WARPS,
    )  # fmt: skip
    return out


def _panel(activation: Tensor) -> Tensor:  # [N, B]
    """The activation by node; a row takes up whole lines, or a power of two below one."""
    questions, nodes = activation.shape
    line = _LINE // activation.element_size()
    width = triton.next_power_of_2(questions)
    if width > line:
        width = triton.cdiv(questions, line) * line
    x = torch.empty(nodes, width, dtype=activation.dtype, device=activation.device)
    return x[:, :questions].copy_(activation.T)
