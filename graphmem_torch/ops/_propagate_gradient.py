"""The gradient of `propagate`, an operation of its own so that compiled training sees it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem_torch.ops._library import register
from graphmem_torch.ops._spmm_gradient import edge_products, maximum_gradients
from graphmem_torch.ops.spmm import spmm

__all__ = ["ARGUMENTS", "propagate_backward"]

ARGUMENTS = (
    "Tensor indptr, Tensor source, Tensor target, Tensor weight, Tensor out_indptr, "
    "Tensor out_edge, Tensor activation, Tensor scale, Tensor retention"
)
"""The arguments that `propagate` and its gradient share."""


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
    retention: Tensor,
    mask: Tensor | None,
    output: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients in weight, activation, scale and retention; `output` is there for the maximum only.

    With G the gradient that passes a node's edges and x = s a what they carry, d/dx = W^T G, d/dw =
    sum_b G x, d/ds = sum_b a d/dx, and d/da = retention G' + s d/dx with G' what passes the
    retained part. A sum passes its gradient to every term, a maximum to those that attain it.
    """
    work = torch.promote_types(activation.dtype, torch.float32)
    g, a, s = (t.to(work).T.contiguous() for t in (grad, activation, scale[None]))  # [N, B]
    w, keep = weight.to(work), retention.to(work)
    x = a * s
    allowed = None if mask is None else mask.T
    if output is None:
        passing = g if allowed is None else torch.where(allowed, g, 0.0)
        grad_x = spmm(out_indptr, target[out_edge], w[out_edge], passing)
        grad_weight = edge_products(target, source, passing, x)
        kept = g
    else:
        top = output.to(work).T.contiguous()
        stays = keep * a == top
        reachable = top if allowed is None else torch.where(allowed, top, torch.nan)
        grad_x, grad_weight, share = maximum_gradients(
            target, source, w, x, reachable, g, stays.to(work)
        )
        kept = torch.where(stays, share, 0.0)
    return (
        grad_weight.to(weight.dtype),
        (keep * kept + s * grad_x).T.contiguous().to(activation.dtype),
        torch.linalg.vecdot(a, grad_x).to(scale.dtype),
        (kept * a).sum().to(retention.dtype),
    )


def _gradients_fake(grad: Tensor, *inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    weight, activation, scale, retention = inputs[3], *inputs[6:9]
    shaped = activation.new_empty(activation.shape)
    return torch.empty_like(weight), shaped, torch.empty_like(scale), torch.empty_like(retention)


propagate_backward = register(
    f"propagate_backward(Tensor grad, {ARGUMENTS}, Tensor? mask, Tensor? output)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _gradients,
    fake=_gradients_fake,
)
