"""propagate: one step of spreading activation along the edges of a graph."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import check_choice, check_node_rows, check_range
from graphmem_torch.ops._library import register
from graphmem_torch.ops._propagate_gradient import STRUCTURE, propagate_backward
from graphmem_torch.ops._sparse import spmm_max, spmm_sum

__all__ = ["REDUCE", "Fan", "Reduce", "fan_scale", "propagate", "propagate_reference"]

Reduce = Literal["sum", "max"]
REDUCE = get_args(Reduce)
Fan = Literal["degree", "sqrt", "none"]

# Questions a CPU product takes at once. Its buffers are [N, 16]: a row is one cache line, and the
# allocator hands the same pages out again, while fresh [B, N] temporaries cost more in page faults
# than in arithmetic.
_PANEL = 16


def propagate(
    graph: Graph,  # N nodes, E edges
    activation: Tensor,  # [B, N]
    *,
    retention: float = 0.5,
    spread: float = 0.8,
    reduce: Reduce = "sum",
    fan: Fan | Tensor = "degree",  # or [N]
    mask: Tensor | None = None,  # [B, N] bool
) -> Tensor:  # [B, N]
    """One step of spreading activation along incoming edges.

    `sum`: u_i = retention a_i + spread * sum_j w_ji a_j / fan(j), `mathematics.md` section 4,
    SYNAPSE (arXiv 2601.02744) eq. 2 with retention = 1 - delta. `max`: u_i = max(retention a_i,
    spread * max_j w_ji a_j / fan(j)), section 8.4. Differentiable in the activation, in
    `graph.weight` and in `fan`; where several terms of a maximum are equal they share the gradient
    evenly.

    Args:
        graph: Edges carry activation from `source` to `target`.
        activation: One row for each question. Half precision is computed in float32.
        retention: What a node keeps of its own activation.
        spread: What leaves along the edges.
        reduce: How incoming activation is combined.
        fan: What the activation of a node is divided by: its out-degree, the square root of it,
            nothing, or the numbers given (> 0).
        mask: True where a node may receive; elsewhere it only keeps its retained part.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, negative constants, or an unknown
            name.
    """
    check_node_rows("activation", activation, graph)
    check_range("retention", retention, 0.0)
    check_range("spread", spread, 0.0)
    check_choice("reduce", reduce, REDUCE)
    if mask is not None:
        check_node_rows("mask", mask, graph, boolean=True)
        if mask.shape != activation.shape:
            raise InputError(
                f"mask must have the shape of activation {list(activation.shape)}; got "
                f"{list(mask.shape)}. Expand it."
            )
    work = torch.promote_types(activation.dtype, torch.float32)
    out = _propagate(
        graph.indptr,
        graph.source,
        graph.target,
        graph.weight.to(work),
        graph.out_indptr,
        graph.out_edge,
        activation.to(work),
        fan_scale(graph, spread, fan).to(work),
        retention,
        reduce == "max",
        mask,
    )
    return out.to(activation.dtype)


def fan_scale(graph: Graph, spread: float, fan: Fan | Tensor) -> Tensor:  # [N]
    """What a unit of activation at each node sends along each of its edges: spread / fan(j)."""
    if isinstance(fan, Tensor):
        if fan.shape != (graph.num_nodes,) or fan.device != graph.source.device:
            raise InputError(
                f"fan must have shape [{graph.num_nodes}] on {graph.source.device}; got "
                f"{list(fan.shape)} on {fan.device}. Give one number for each node."
            )
        return spread / fan
    degree = graph.out_degree.clamp(min=1)
    if fan == "degree":
        return spread / degree
    if fan == "sqrt":
        return spread * degree.rsqrt()
    if fan == "none":
        return torch.full_like(degree, spread)
    raise InputError(
        f"fan must be 'degree', 'sqrt', 'none' or a tensor [N]; got {fan!r}. Choose one of them."
    )


def propagate_reference(
    source: Tensor,  # [E]
    target: Tensor,  # [E]
    weight: Tensor,  # [E]
    activation: Tensor,  # [B, N]
    scale: Tensor,  # [N]
    retention: float,
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
    retention: float,
    maximum: bool,
    mask: Tensor | None,
) -> Tensor:
    product = spmm_max if maximum else spmm_sum
    activation = activation.contiguous()
    out = torch.mul(activation, retention)
    for begin in range(0, activation.shape[0], _PANEL):
        panel = slice(begin, begin + _PANEL)
        x = (activation[panel] * scale).t().contiguous()
        received = product(indptr, source, weight, x).t()
        if mask is not None:
            received.masked_fill_(~mask[panel], -torch.inf if maximum else 0.0)
        if maximum:
            torch.maximum(out[panel], received, out=out[panel])
        else:
            out[panel].add_(received)
    return out


def _fake(
    indptr: Tensor,
    source: Tensor,
    target: Tensor,
    weight: Tensor,
    out_indptr: Tensor,
    out_edge: Tensor,
    activation: Tensor,
    scale: Tensor,
    retention: float,
    maximum: bool,
    mask: Tensor | None,
) -> Tensor:
    return activation.new_empty(activation.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, retention, maximum, mask = inputs
    ctx.retention, ctx.maximum = retention, maximum
    ctx.save_for_backward(*tensors, mask, output if maximum else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, output = ctx.saved_tensors
    results = propagate_backward(grad.contiguous(), *inputs, output, ctx.retention)
    grad_activation, grad_weight, grad_scale = results
    none = (None,)
    return none * 3 + (grad_weight,) + none * 2 + (grad_activation, grad_scale) + none * 3


_propagate = register(
    f"propagate({STRUCTURE}, float retention, bool maximum, Tensor? mask) -> Tensor",
    _cpu,
    launcher="propagate:launch_propagate",
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
