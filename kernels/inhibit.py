"""Triton kernels of inhibit: a streaming top-M of every row, then one pass that subtracts.

Each program keeps the M largest values of its share of a row in registers. Few later blocks hold
anything larger, so most blocks cost one comparison. A second run of the kernel reduces the winners
of the shares to M values a row. The penalty is then arithmetic. Each row is read exactly twice.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["launch_inhibit"]

_SHARES = 64  # programs that share a row
_LARGEST_TOP = 64  # M beyond which torch.topk is the better first stage


@triton.jit
def _top_values_kernel(
    u, out, length, share, stride,
    TOP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """out[row, share, :TOP] = the largest values of u[row, share * length : ...], unordered.

    A share with fewer values is filled with minus infinity.
    """
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    lane = tl.arange(0, PADDED)
    # Lanes beyond TOP hold +inf, so that the smallest of `kept` is always one of the TOP.
    kept = tl.where(lane < TOP, float("-inf"), float("inf")).to(ACC)
    start = part * share
    stop = tl.minimum(start + share, length)
    for begin in range(start, stop, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        values = tl.load(u + row * stride + at, mask=at < stop, other=float("-inf")).to(ACC)
        largest = tl.max(values, axis=0)
        smallest = tl.min(kept, axis=0)
        while largest > smallest:
            kept = tl.where(lane == tl.argmin(kept, axis=0), largest, kept)
            taken = tl.argmax(values, axis=0)
            values = tl.where(tl.arange(0, BLOCK) == taken, float("-inf"), values)
            largest = tl.max(values, axis=0)
            smallest = tl.min(kept, axis=0)
    to = out + (row * tl.num_programs(1) + part) * TOP + lane
    tl.store(to, kept.to(out.dtype.element_ty), mask=lane < TOP)


@triton.jit
def _inhibit_kernel(
    u, top_values, out, strength, step, length, blocks,
    TOP: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Write max(0, u - strength * sum_k max(top_k - u, 0)); a row's strength is at row * step."""
    # Only the first axis of a grid holds more than 65,535 programs.
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(u + row * length + at, mask=at < length, other=0.0).to(ACC)
    above = tl.zeros([BLOCK], ACC)
    for k in range(TOP):
        above += tl.maximum(tl.load(top_values + row * TOP + k).to(ACC) - values, 0.0)
    result = tl.maximum(values - tl.load(strength + row * step) * above, 0.0)
    tl.store(out + row * length + at, result.to(out.dtype.element_ty), mask=at < length)


def launch_inhibit(
    u: Tensor,  # [B, N], half precision too
    strength: Tensor,  # [] or [B]
    top: int,
) -> Tensor:  # [B, N]
    """`graphmem::inhibit` on CUDA; half precision is computed in float32."""
    u = u.contiguous()
    rows, length = u.shape
    out = torch.empty_like(u)
    if out.numel() == 0:
        return out
    top = min(top, length)
    values = _top_values(u, top) if top <= _LARGEST_TOP else u.topk(top, dim=1).values.contiguous()
    block = min(1024, triton.next_power_of_2(length))
    blocks = triton.cdiv(length, block)
    _inhibit_kernel[(rows * blocks,)](
        u, values, out, strength.to(torch.promote_types(u.dtype, torch.float32)).contiguous(),
        strength.dim(), length, blocks,
        TOP=top, BLOCK=block, ACC=_accumulator(u),
    )  # fmt: skip
    return out


def _top_values(u: Tensor, top: int) -> Tensor:  # [B, top]
    """The `top` largest values of every row; top <= N."""
    rows, length = u.shape
    block = min(1024, triton.next_power_of_2(length))
    share = triton.cdiv(triton.cdiv(length, _SHARES), block) * block
    while True:
        shares = triton.cdiv(length, share)
        winners = torch.empty(rows, shares, top, dtype=u.dtype, device=u.device)
        _top_values_kernel[(rows, shares)](
            u, winners, length, share, length,
            TOP=top, PADDED=triton.next_power_of_2(top), BLOCK=block, ACC=_accumulator(u),
        )  # fmt: skip
        if shares == 1:
            return winners[:, 0]
        u, length = winners.flatten(1), shares * top
        share = triton.cdiv(length, block) * block


def _accumulator(u: Tensor) -> tl.dtype:
    return tl.float64 if u.dtype == torch.float64 else tl.float32
