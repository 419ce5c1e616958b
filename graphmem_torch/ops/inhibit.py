"""inhibit: lateral inhibition, the strongest nodes push the others down."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem_torch.ops._check import check_count, check_matrix, check_range
from graphmem_torch.ops._library import register

__all__ = ["inhibit", "inhibit_reference"]


def inhibit(
    u: Tensor,  # [B, N], >= 0
    *,
    strength: float = 0.15,
    top: int = 7,
) -> Tensor:  # [B, N]
    """Subtracts from every node what the strongest nodes of its row have more than it.

    max(0, u_i - strength * sum over the `top` largest u_k of max(u_k - u_i, 0)); `mathematics.md`
    section 4, SYNAPSE (arXiv 2601.02744). Differentiable. Half precision is computed in float32.

    Raises:
        InputError: If u is not a floating-point matrix, strength is negative or top is below 1.
    """
    check_matrix("u", u, "[B, N]")
    check_range("strength", strength, 0.0)
    check_count("top", top)
    work = torch.promote_types(u.dtype, torch.float32)
    return _inhibit(u.to(work), strength, top).to(u.dtype)


def inhibit_reference(u: Tensor, strength: float, top: int) -> Tensor:
    """`inhibit` as it is written in the formula; forms `[B, N, top]`."""
    strongest = u.topk(min(top, u.shape[1]), dim=1).values
    above = (strongest[:, None, :] - u[:, :, None]).clamp(min=0).sum(-1)
    return (u - strength * above).clamp(min=0)


def _cpu(u: Tensor, strength: float, top: int) -> Tensor:
    """One pass instead of `top`: below the strongest, the penalty is one linear function for all.

    Every node outside the top has all of it above or beside it, so its value is (1 + strength *
    top) u - strength * sum(top); only the top itself, `[B, top]`, needs the sorted form. Exact.
    """
    u = u.contiguous()
    count = min(top, u.shape[1])
    if u.numel() == 0:
        return torch.empty_like(u)
    values, places = u.topk(count, dim=1)
    out = torch.mul(u, 1 + strength * count)
    out.sub_(strength * values.sum(1, keepdim=True)).clamp_(min=0)
    return out.scatter_(1, places, inhibit_reference(values, strength, count))


def _fake(u: Tensor, strength: float, top: int) -> Tensor:
    return torch.empty_like(u, memory_format=torch.contiguous_format)


def _setup_context(ctx: Any, inputs: tuple[Tensor, float, int], output: Tensor) -> None:
    u, ctx.strength, ctx.top = inputs
    ctx.save_for_backward(u, output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    u, output = ctx.saved_tensors
    return _inhibit_backward(grad, u, output, ctx.strength, ctx.top), None, None


def _gradient(grad: Tensor, u: Tensor, output: Tensor, strength: float, top: int) -> Tensor:
    """With c_i values v_k above u_i: d out_i / d u_i = 1 + strength c_i, d / d v_k = -strength."""
    count = min(top, u.shape[1])
    if u.numel() == 0:
        return torch.zeros_like(u)
    values, places = u.topk(count, dim=1)
    above = torch.searchsorted(
        -values, -u.contiguous()
    )  # how many of the descending values exceed u_i
    live = torch.where(output > 0, grad, 0.0)
    by_count = live.new_zeros(u.shape[0], count + 1).scatter_add_(1, above, live)
    pushed = (
        by_count.flip(1).cumsum(1).flip(1)[:, 1:]
    )  # value k is pushed on by every i with c_i > k
    return (live * (1 + strength * above)).scatter_add_(1, places, -strength * pushed)


def _gradient_fake(grad: Tensor, u: Tensor, output: Tensor, strength: float, top: int) -> Tensor:
    return u.new_empty(u.shape)


_inhibit_backward = register(
    "inhibit_backward(Tensor grad, Tensor u, Tensor output, float strength, int top) -> Tensor",
    _gradient,
    fake=_gradient_fake,
)
_inhibit = register(
    "inhibit(Tensor u, float strength, int top) -> Tensor",
    _cpu,
    launcher="inhibit:launch_inhibit",
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
