"""inhibit: lateral inhibition, by which the strongest nodes suppress the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem_torch.checks import as_scalar, check_count, check_matrix, check_scalar
from graphmem_torch.ops._library import register

__all__ = ["inhibit", "inhibit_reference"]


def inhibit(
    u: Tensor,  # [B, N], >= 0
    *,
    strength: float | Tensor = 0.15,  # or [], or [B]
    top: int = 7,
) -> Tensor:  # [B, N]
    """Subtract from every node the excess of the strongest nodes of its row over it.

    max(0, u_i - strength * sum over the `top` largest u_k of max(u_k - u_i, 0));
    `docs/mathematics.md` 4, SYNAPSE (arXiv 2601.02744). Differentiable in u and in strength. Half
    precision is computed in float32.

    Raises:
        InputError: u is not a floating-point matrix, strength is negative or a tensor that is
            neither a scalar nor one value a row, or top is below 1. Tensor values are unchecked.
    """
    check_matrix("u", u, "[B, N]")
    check_scalar("strength", strength, u)
    check_count("top", top)
    return _inhibit(u, as_scalar(strength, u), top)


def inhibit_reference(u: Tensor, strength: float | Tensor, top: int) -> Tensor:
    """`inhibit` by its formula; forms `[B, N, top]`."""
    strongest = u.topk(min(top, u.shape[1]), dim=1).values
    above = (strongest[:, None, :] - u[:, :, None]).clamp(min=0).sum(-1)
    return (u - _column(strength) * above).clamp(min=0)


def _column(strength: float | Tensor) -> float | Tensor:  # [] or [B] -> [1, 1] or [B, 1]
    return strength.view(-1, 1) if isinstance(strength, Tensor) else strength


def _cpu(u: Tensor, strength: Tensor, top: int) -> Tensor:
    """Compute `inhibit` in one pass: below the top, the penalty is one linear function for all.

    All of the top is at or above every other node, whose value is (1 + strength * top) u - strength
    * sum(top). Only the top itself, `[B, top]`, needs the sorted form. Exact.
    """
    kind = u.dtype
    u = u.to(torch.promote_types(kind, torch.float32)).contiguous()
    count = min(top, u.shape[1])
    if u.numel() == 0:
        return torch.empty_like(u, dtype=kind)
    values, places = u.topk(count, dim=1)
    factor = strength.view(-1, 1)
    out = torch.mul(u, 1 + factor * count)
    out.sub_(factor * values.sum(1, keepdim=True)).clamp_(min=0)
    return out.scatter_(1, places, inhibit_reference(values, strength, count)).to(kind)


def _fake(u: Tensor, strength: Tensor, top: int) -> Tensor:
    return torch.empty_like(u, memory_format=torch.contiguous_format)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
    u, strength, ctx.top = inputs
    ctx.save_for_backward(u, output, strength)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    return *_inhibit_backward(grad, *ctx.saved_tensors, ctx.top), None


def _gradients(
    grad: Tensor, u: Tensor, output: Tensor, strength: Tensor, top: int
) -> tuple[Tensor, Tensor]:
    """Return the gradients in u and strength.

    If c_i values v_k exceed u_i: d out_i / d u_i = 1 + strength c_i, d / d v_k = -strength, and d /
    d strength = c_i u_i - sum of those v_k.
    """
    count = min(top, u.shape[1])
    if u.numel() == 0:
        return torch.zeros_like(u), torch.zeros_like(strength)
    work = torch.promote_types(u.dtype, torch.float32)
    own, factor = u.to(work).contiguous(), strength.to(work).view(-1, 1)
    values, places = own.topk(count, dim=1)
    above = torch.searchsorted(-values, -own)  # number of the descending values that exceed u_i
    live = torch.where(output > 0, grad.to(work), 0.0)
    by_count = live.new_zeros(u.shape[0], count + 1).scatter_add_(1, above, live)
    # Value k gets the gradient of every i with c_i > k.
    pushed = by_count.flip(1).cumsum(1).flip(1)[:, 1:]
    grad_u = (live * (1 + factor * above)).scatter_add_(1, places, -factor * pushed)
    total = torch.nn.functional.pad(values.cumsum(1), (1, 0)).gather(1, above)
    by_row = (live * (own * above - total)).sum(1)
    grad_strength = by_row if strength.dim() else by_row.sum()
    return grad_u.to(u.dtype), grad_strength.to(strength.dtype)


def _gradients_fake(
    grad: Tensor, u: Tensor, output: Tensor, strength: Tensor, top: int
) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), torch.empty_like(strength)


_inhibit_backward = register(
    "inhibit_backward(Tensor grad, Tensor u, Tensor output, Tensor strength, int top)"
    " -> (Tensor, Tensor)",
    _gradients,
    fake=_gradients_fake,
)
_inhibit = register(
    "inhibit(Tensor u, Tensor strength, int top) -> Tensor",
    _cpu,
    launcher="inhibit:launch_inhibit",
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
