"""The gradient of `propagate`, an operation of its own so that compiled training sees it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem_torch.ops._library import register

__all__ = ["STRUCTURE", "propagate_backward"]

STRUCTURE = (
    "Tensor indptr, Tensor source, Tensor target, Tensor weight, Tensor out_indptr, "
    "Tensor out_edge, Tensor activation, Tensor scale"
)
"""The arguments that `propagate` and its gradient share."""

_TILE = 1 << 24  # elements of the [B, E] temporaries


def _gradients(
    grad: Tensor,  # [B, N]
    indptr: Tensor,
    source: Tensor,
    target: Tensor,
    weight: Tensor,
    out_indptr: Tensor,
    out_edge: Tensor,
    activation: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    output: Tensor | None,
    retention: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in activation, weight and scale; `output` is there for the maximum only.

    With g the gradient that reaches each edge, and s its scale: d/da_j = retention G_j + s_j sum w
    g, d/dw = sum_b g s a, d/ds_j = sum_b a_j sum w g. A sum passes G_target to every edge, a
    maximum only to the edges that attain it.
    """
    source, target = source.to(torch.int64), target.to(torch.int64)
    grad_activation = torch.empty_like(activation)
    grad_weight = torch.zeros_like(weight)
    grad_scale = torch.zeros_like(scale)
    step = max(1, _TILE // max(1, source.shape[0]))
    for begin in range(0, activation.shape[0], step):
        part = slice(begin, begin + step)
        g, a = grad[part], activation[part]
        allowed = None if mask is None else mask[part][:, target]
        edge = (a * scale)[:, source]
        kept = retention * g
        if output is None:
            at_edge = g[:, target]
        else:
            top = output[part]
            wins = edge * weight == top[:, target]
            if allowed is not None:
                wins &= allowed
            stays = retention * a == top
            shared = stays.to(a.dtype).index_add_(1, target, wins.to(a.dtype))
            share = g / shared.clamp(min=1)
            kept = torch.where(stays, retention * share, 0.0)
            at_edge = torch.where(wins, share[:, target], 0.0)
        if allowed is not None and output is None:
            at_edge = torch.where(allowed, at_edge, 0.0)
        back = torch.zeros_like(a).index_add_(1, source, at_edge * weight)
        grad_weight += (at_edge * edge).sum(0)
        grad_scale += (a * back).sum(0)
        grad_activation[part] = kept + scale * back
    return grad_activation, grad_weight, grad_scale


def _gradients_fake(grad: Tensor, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    weight, activation, scale = inputs[3], inputs[6], inputs[7]
    return torch.empty_like(activation), torch.empty_like(weight), torch.empty_like(scale)


propagate_backward = register(
    f"propagate_backward(Tensor grad, {STRUCTURE}, Tensor? mask, Tensor? output, float retention)"
    " -> (Tensor, Tensor, Tensor)",
    _gradients,
    fake=_gradients_fake,
)
