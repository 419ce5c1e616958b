"""propagate: one step of spreading activation along the edges of a graph."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from graphmem_torch.checks import as_scalar, check_choice, check_scalar, check_tensor
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops._library import register
from graphmem_torch.ops.sparse_rows import check_node_rows
from graphmem_torch.ops.spmm import (
    REDUCE,
    Reduce,
    edge_products,
    maximum_gradients,
    spmm,
    spmm_max,
    spmm_sum,
)

__all__ = [
    "Fan",
    "fan_scale",
    "propagate",
    "propagate_reference",
]
_ARGUMENTS = (
    "Tensor indptr, Tensor source, Tensor target, Tensor weight, Tensor out_indptr, "
    "Tensor out_edge, Tensor activation, Tensor scale, Tensor retention"
)


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
    """Gradients in weight, activation, scale and retention; `output` only of a maximum.

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


_propagate_backward = register(
    f"propagate_backward(Tensor grad, {_ARGUMENTS}, Tensor? mask, Tensor? output)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _gradients,
    fake=_gradients_fake,
)

Fan = Literal["degree", "sqrt", "none"]

# Questions that a CPU product takes at once: a row of the panel is one cache line, and fresh [B, N]
# temporaries would cost more in page faults than in arithmetic.
_PANEL = 16
_NODES = 8192  # turned from [16, N] to [N, 16] and back at once, so that both sides stay in cache
_NARROW = 4  # questions up to which turning one at a time is faster


def propagate(
    graph: Graph,  # N nodes, E edges
    activation: Tensor,  # [B, N]
    *,
    retention: float | Tensor = 0.5,  # or []
    spread: float | Tensor = 0.8,  # or []
    reduce: Reduce = "sum",
    fan: Fan | Tensor = "degree",  # or [N]
    mask: Tensor | None = None,  # [B, N] bool
) -> Tensor:  # [B, N]
    """One step of spreading activation along incoming edges.

    `sum`: u_i = retention a_i + spread * sum_j w_ji a_j / fan(j), `docs/mathematics.md` 4,
    SYNAPSE (arXiv 2601.02744) eq. 2 with retention = 1 - delta. `max`: u_i = max(retention a_i,
    spread * max_j w_ji a_j / fan(j)), 8.4. Differentiable in the activation, in
    `graph.weight`, `fan`, `retention` and `spread`; where several terms of a maximum are equal they
    share the gradient evenly.

    Args:
        graph: Edges carry activation from `source` to `target`.
        activation: One row for each question. Half precision is computed in float32.
        retention: What a node keeps of its own activation, >= 0.
        spread: What leaves along the edges, >= 0.
        reduce: How incoming activation is combined.
        fan: What the activation of a node is divided by: its out-degree, the square root of it,
            nothing, or the numbers given (> 0).
        mask: True where a node may receive; elsewhere it only keeps its retained part.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, negative numbers, or an unknown
            name. The values of tensors are not looked at.
    """
    check_node_rows("activation", activation, graph)
    check_scalar("retention", retention, activation)
    check_scalar("spread", spread, activation)
    check_choice("reduce", reduce, REDUCE)
    if mask is not None:
        do = "expand it as the activation, compare or call .bool()"
        check_tensor("mask", mask, "bool", activation.shape, do, device=graph.device)
    return _propagate(
        graph.indptr,
        graph.source,
        graph.target,
        graph.weight,
        graph.out_indptr,
        graph.out_edge,
        activation,
        fan_scale(graph, spread, fan, torch.promote_types(activation.dtype, torch.float32)),
        as_scalar(retention, activation),
        reduce == "max",
        mask,
    )


def fan_scale(
    graph: Graph,
    spread: float | Tensor,  # or []
    fan: Fan | Tensor,  # or [N]
    dtype: torch.dtype = torch.float32,
    node: Tensor | None = None,  # [n]
) -> Tensor:  # [N], or [n]
    """What a unit of activation at each node sends along each of its edges: spread / fan(j).

    Of the nodes given only, in time that does not depend on N, or of all.
    """
    if isinstance(fan, Tensor):
        do = "give one number for each node"
        check_tensor("fan", fan, "", (graph.num_nodes,), do, device=graph.device)
        return spread / (fan if node is None else fan[node]).to(dtype)
    if node is None:
        degree = graph.out_indptr.diff()
    else:
        first = graph.out_indptr.index_select(0, node)
        degree = graph.out_indptr.index_select(0, node + 1) - first
    degree = degree.clamp_(min=1).to(dtype)
    if fan == "degree":
        return degree.reciprocal_() * spread
    if fan == "sqrt":
        return degree.rsqrt_() * spread
    if fan == "none":
        return degree.fill_(1.0) * spread
    raise InputError(
        f"fan: expected 'degree', 'sqrt', 'none' or a tensor [N], got {fan!r}; choose one of them"
    )


def propagate_reference(
    source: Tensor,  # [E]
    target: Tensor,  # [E]
    weight: Tensor,  # [E]
    activation: Tensor,  # [B, N]
    scale: Tensor,  # [N]
    retention: Tensor,
    maximum: bool,
    mask: Tensor | None,
) -> Tensor:  # [B, N]
    """`propagate` as it is written in the formula; `scale` is spread / fan."""
    source, target = source.to(torch.int64), target.to(torch.int64)
    sent = weight * (activation * scale)[:, source]
    if maximum:
        place = target.expand_as(sent)
        received = torch.full_like(activation, -torch.inf).scatter_reduce(1, place, sent, "amax")
    else:
        received = torch.zeros_like(activation).index_add(1, target, sent)
    if mask is not None:
        received = torch.where(mask, received, -torch.inf if maximum else 0.0)
    retained = retention * activation
    return torch.maximum(retained, received) if maximum else retained + received


def _cpu(
    indptr: Tensor,
    source: Tensor,
    target: Tensor,
    weight: Tensor,
    out_indptr: Tensor,
    out_edge: Tensor,
    activation: Tensor,
    scale: Tensor,
    retention: Tensor,
    maximum: bool,
    mask: Tensor | None,
) -> Tensor:
    """Turns [B, N] into panels [N, 16], which wait in the rows of `out` that they will become."""
    product = spmm_max if maximum else spmm_sum
    kind, work = activation.dtype, torch.promote_types(activation.dtype, torch.float32)
    activation, weight, scale = activation.to(work).contiguous(), weight.to(work), scale.to(work)
    keep = retention.item()
    out = torch.empty_like(activation)
    for begin in range(0, activation.shape[0], _PANEL):
        panel = slice(begin, begin + _PANEL)
        own, result = activation[panel], out[panel]
        x = result.view(own.shape[1], own.shape[0])
        parts = _parts(*own.shape)
        for part in parts:
            torch.mul(own[part], scale[part[1]], out=x.t()[part])
        arrived = product(indptr, source, weight, x).t()
        for part in parts:
            received = arrived[part]
            if mask is not None:
                received.masked_fill_(~mask[panel][part], -torch.inf if maximum else 0.0)
            if maximum:
                torch.maximum(own[part] * keep, received, out=result[part])
            else:
                torch.add(received, own[part], alpha=keep, out=result[part])
    return out.to(kind)


def _parts(questions: int, nodes: int) -> list[tuple[slice, slice]]:
    """The parts of `[questions, nodes]` that are turned at once."""
    if questions <= _NARROW:
        return [(slice(b, b + 1), slice(None)) for b in range(questions)]
    return [(slice(None), slice(n, n + _NODES)) for n in range(0, nodes, _NODES)]


def _fake(*inputs: Any) -> Tensor:
    activation = inputs[6]
    return activation.new_empty(activation.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, maximum, mask = inputs
    ctx.maximum = maximum
    ctx.save_for_backward(*tensors, mask, output if maximum else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, mask, output = ctx.saved_tensors
    if ctx.maximum and output.dtype != torch.promote_types(output.dtype, torch.float32):
        # Rounded to half precision, a maximum would equal none of its terms.
        exact = [*inputs[:6], inputs[6].float(), *inputs[7:]]
        output = _propagate(*exact, True, mask)
    grad_weight, *learned = _propagate_backward(grad, *inputs, mask, output)
    return None, None, None, grad_weight, None, None, *learned, None, None


_propagate = register(
    f"propagate({_ARGUMENTS}, bool maximum, Tensor? mask) -> Tensor",
    _cpu,
    launcher="propagate:launch_propagate",
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
