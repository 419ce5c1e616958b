"""propagate: one step of spreading activation along the edges of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import (
    as_scalar,
    check_choice,
    check_entries,
    check_scalar,
    check_tensor,
)
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

__all__ = ["Fan", "check_patterns", "fan_scale", "propagate", "propagate_reference"]


class _Inputs(NamedTuple):
    """Tensors of one step, in the order in which the operation takes them.

    Attributes:
        indptr, source, target: Edges by their targets, [N + 1], [E] and [E] int32.
        weight: [E], or [P, E].
        out_indptr, out_edge: The same edges by their sources, [N + 1] and [E] int32.
        activation: [B, N].
        scale: [N] or [B, N], what a unit of activation sends along each edge.
        retention: [] or [B].
    """

    indptr: Tensor
    source: Tensor
    target: Tensor
    weight: Tensor
    out_indptr: Tensor
    out_edge: Tensor
    activation: Tensor
    scale: Tensor
    retention: Tensor


_ARGUMENTS = ", ".join(f"Tensor {name}" for name in _Inputs._fields)


def _groups(pattern: Tensor, patterns: int) -> Iterator[tuple[int, Tensor]]:
    """Yield each pattern that has rows, with these rows [b]; waits for the device."""
    for place in range(patterns):
        rows = (pattern == place).nonzero().squeeze(1)
        if len(rows):
            yield place, rows


def _rows_of(value: Tensor, rows: Tensor, dims: int) -> Tensor:
    """Return the given rows of a tensor with one row per question (`dims` axes), else all of it."""
    return value[rows] if value.dim() == dims else value


def _gradients(
    grad: Tensor,  # [B, N]
    *inputs: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients in weight, activation, scale and retention.

    Handles the rows of each pattern in turn.

    Args:
        grad: Gradient of the result.
        inputs: `_Inputs`, the mask, the pattern, and the output of a maximum; None for no other.
    """
    *tensors, mask, pattern, output = inputs
    given = _Inputs(*tensors)
    indptr, source, target, weight, out_indptr, out_edge, activation, scale, retention = given
    edges = given[:3]
    if pattern is None:
        turned = out_indptr, target[out_edge], weight[out_edge]
        return _gradients_of(
            grad, edges, weight, turned, activation, scale, retention, mask, output
        )
    found = tuple(torch.zeros_like(value) for value in (weight, *given[6:]))
    for place, rows in _groups(pattern, weight.shape[0]):
        there = slice(None) if output is None else weight[place].nonzero().squeeze(1)
        parts = _gradients_of(
            grad[rows],
            (indptr, source[there], target[there]),
            weight[place, there],
            (out_indptr, target[out_edge], weight[place, out_edge]),
            activation[rows],
            _rows_of(scale, rows, 2),
            _rows_of(retention, rows, 1),
            None if mask is None else mask[rows],
            None if output is None else output[rows],
        )
        found[0][place, there] = parts[0]
        found[1][rows] = parts[1]
        for total, part, dims in zip(found[2:], parts[2:], (2, 1), strict=True):
            if total.dim() == dims:
                total[rows] = part
            else:
                total += part
    return found[0], found[1], found[2], found[3]


def _gradients_of(
    grad: Tensor,  # [B, N]
    edges: tuple[Tensor, Tensor, Tensor],  # indptr, source, target
    weight: Tensor,  # [E]
    turned: tuple[Tensor, Tensor, Tensor],  # the compressed rows of the transpose
    activation: Tensor,
    scale: Tensor,
    retention: Tensor,
    mask: Tensor | None,
    output: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`_gradients` of rows that share one set of edges.

    Let G be the gradient that passes a node's edges and x = s a the value they carry. Then d/dx =
    W^T G, d/dw = sum_b G x, d/ds = sum_b a d/dx, and d/da = retention G' + s d/dx with G' the
    gradient of the retained part. A sum passes its gradient to every term, a maximum to those that
    attain it.
    """
    work = torch.promote_types(activation.dtype, torch.float32)
    _, source, target = edges
    wide = scale.view(-1, scale.shape[-1])
    g, a, s = (t.to(work).T.contiguous() for t in (grad, activation, wide))  # [N, B] or [N, 1]
    w, keep = weight.to(work), retention.to(work).view(1, -1)
    x = a * s
    allowed = None if mask is None else mask.T
    if output is None:
        passing = g if allowed is None else torch.where(allowed, g, 0.0)
        grad_x = spmm(turned[0], turned[1], turned[2].to(work), passing)
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
    grad_scale = (a * grad_x).T.contiguous() if scale.dim() == 2 else torch.linalg.vecdot(a, grad_x)
    by_row = torch.linalg.vecdot(kept, a, dim=0)
    return (
        grad_weight.to(weight.dtype),
        (keep * kept + s * grad_x).T.contiguous().to(activation.dtype),
        grad_scale.to(scale.dtype),
        (by_row if retention.dim() else by_row.sum()).to(retention.dtype),
    )


def _gradients_fake(grad: Tensor, *inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    given = _Inputs(*inputs[:9])
    shaped = given.activation.new_empty(given.activation.shape)
    weight, scale, retention = map(torch.empty_like, (given.weight, given.scale, given.retention))
    return weight, shaped, scale, retention


_propagate_backward = register(
    f"propagate_backward(Tensor grad, {_ARGUMENTS}, Tensor? mask, Tensor? pattern, Tensor? output)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _gradients,
    fake=_gradients_fake,
)

Fan = Literal["degree", "sqrt", "none"]

# Questions of one CPU product: a row of the panel is one cache line, and fresh [B, N] temporaries
# would cost more in page faults than in arithmetic.
_PANEL = 16
_NODES = 8192  # nodes transposed at once between [16, N] and [N, 16], so that both stay in cache
_NARROW = 4  # questions up to which transposing one at a time is faster


def propagate(
    graph: Graph,  # N nodes, E edges
    activation: Tensor,  # [B, N]
    *,
    retention: float | Tensor = 0.5,  # or [], or [B]
    spread: float | Tensor = 0.8,  # or [], or [B]
    reduce: Reduce = "sum",
    fan: Fan | Tensor = "degree",  # or [N], or [B, N]
    mask: Tensor | None = None,  # [B, N] bool
    weight: Tensor | None = None,  # [P, E]
    pattern: Tensor | None = None,  # [B] int64
) -> Tensor:  # [B, N]
    """Run one step of spreading activation along incoming edges.

    - `sum`: u_i = retention a_i + spread * sum_j w_ji a_j / fan(j), `docs/mathematics.md` 4,
      SYNAPSE (arXiv 2601.02744) eq. 2 with retention = 1 - delta.
    - `max`: u_i = max(retention a_i, spread * max_j w_ji a_j / fan(j)), 8.4.

    Differentiable in the activation, in `graph.weight` or `weight`, `fan`, `retention` and
    `spread`. Equal terms of a maximum share the gradient evenly. With constants per row, and
    patterns, one batch covers a grid of settings times questions.

    Args:
        graph: Edges carry activation from `source` to `target`.
        activation: One row for each question. Half precision is computed in float32.
        retention: Share of its activation that a node keeps, >= 0.
        spread: Share of its activation that leaves along the edges, >= 0.
        reduce: Reduction of incoming activation.
        fan: Divisor of the activation of a node: its out-degree, the square root of it, 1, or the
            given numbers (> 0).
        mask: True where a node may receive; other nodes only keep their retained part.
        weight: P patterns of weights, instead of `graph.weight`. An edge of weight 0 is absent from
            a pattern and from its out-degrees.
        pattern: Pattern of each row, in 0..P-1; given together with `weight`.

    Raises:
        InputError: Shapes, dtypes or devices do not fit, a number is negative, or a name is
            unknown. Values of tensors are not checked, except `pattern` on a CPU.
    """
    check_node_rows("activation", activation, graph)
    check_scalar("retention", retention, activation)
    check_scalar("spread", spread, activation)
    check_choice("reduce", reduce, REDUCE)
    check_patterns(graph, activation, weight, pattern)
    if mask is not None:
        do = "expand it as the activation, compare or call .bool()"
        check_tensor("mask", mask, "bool", activation.shape, do, device=graph.device)
    return _propagate(
        graph.indptr,
        graph.source,
        graph.target,
        graph.weight if weight is None else weight,
        graph.out_indptr,
        graph.out_edge,
        activation,
        fan_scale(
            graph,
            spread,
            fan,
            torch.promote_types(activation.dtype, torch.float32),
            rows=activation.shape[0],
            weight=weight,
            pattern=pattern,
        ),
        as_scalar(retention, activation),
        reduce == "max",
        mask,
        pattern,
    )


def check_patterns(
    graph: Graph, activation: Tensor, weight: Tensor | None, pattern: Tensor | None
) -> None:
    """Raise `InputError` unless both are None, or weights of patterns and each row's pattern."""
    if (weight is None) != (pattern is None):
        lacks, has = ("weight", "pattern") if weight is None else ("pattern", "weight")
        raise InputError(
            f"{lacks}: expected a tensor beside {has}, got None; give both, or "
            "Graph.with_weight for one pattern"
        )
    if weight is not None and pattern is not None:
        do = "give one row of weights for each pattern, in the order of graph.weight"
        shape = ("P", graph.num_edges)
        check_tensor("weight", weight, "floating point", shape, do, device=graph.device)
        do = "give the pattern of each row"
        rows = activation.shape[:1]
        check_tensor("pattern", pattern, "int64", rows, do, device=graph.device)
        if pattern.device.type == "cpu" and not torch.compiler.is_compiling():
            check_entries("pattern", pattern, 0, weight.shape[0] - 1, do)


def fan_scale(
    graph: Graph,
    spread: float | Tensor,  # or [], or [B]
    fan: Fan | Tensor,  # or [N], or [B, N]
    dtype: torch.dtype = torch.float32,
    node: Tensor | None = None,  # [n]
    *,
    rows: int = 1,
    weight: Tensor | None = None,  # [P, E]
    pattern: Tensor | None = None,  # [B]
) -> Tensor:  # [N] or [n], or [B, N] where something differs between B rows
    """Return what a unit of activation at each node sends along each of its edges: spread / fan(j).

    Covers all nodes, or only the given ones in time that does not depend on N.
    """
    if isinstance(spread, Tensor) and spread.dim() == 1:
        spread = spread[:, None]
    if isinstance(fan, Tensor):
        do = "give one number for each node, or for each row and node"
        shape = (rows, graph.num_nodes)[2 - fan.dim() :] if fan.dim() in (1, 2) else ("N",)
        check_tensor("fan", fan, "", shape, do, device=graph.device)
        return spread / (fan if node is None else fan[node]).to(dtype)
    if weight is not None and pattern is not None and fan != "none":
        there = (weight != 0).to(torch.int32)
        counts = there.new_zeros(weight.shape[0], graph.num_nodes)
        degree = counts.index_add_(1, graph.source, there)[pattern]
    else:
        degree = graph.fan(node)
    degree = degree.clamp(min=1).to(dtype)
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
    weight: Tensor,  # [E] or [P, E]
    activation: Tensor,  # [B, N]
    scale: Tensor,  # [N] or [B, N]
    retention: Tensor,  # [] or [B]
    maximum: bool,
    mask: Tensor | None,
    pattern: Tensor | None = None,  # [B]
) -> Tensor:  # [B, N]
    """`propagate` by its formula; `scale` is spread / fan; forms `[B, E]`."""
    source, target = source.to(torch.int64), target.to(torch.int64)
    own = weight if pattern is None else weight[pattern]
    sent = own * (activation * scale)[:, source]
    if maximum and pattern is not None:
        sent = torch.where(own != 0, sent, -torch.inf)
    if maximum:
        place = target.expand_as(sent)
        received = torch.full_like(activation, -torch.inf).scatter_reduce(1, place, sent, "amax")
    else:
        received = torch.zeros_like(activation).index_add(1, target, sent)
    if mask is not None:
        received = torch.where(mask, received, -torch.inf if maximum else 0.0)
    retained = retention.view(-1, 1) * activation
    return torch.maximum(retained, received) if maximum else retained + received


def _cpu(*inputs: Any) -> Tensor:
    """Compute the rows of each pattern in turn, with the edges of that pattern.

    Args:
        inputs: `_Inputs`, whether the maximum is taken, the mask and the pattern.
    """
    *tensors, maximum, mask, pattern = inputs
    indptr, source, _, weight, _, _, activation, scale, retention = _Inputs(*tensors)
    if pattern is None:
        return _cpu_panels(indptr, source, weight, activation, scale, retention, maximum, mask)
    out = torch.empty_like(activation, memory_format=torch.contiguous_format)
    for place, rows in _groups(pattern, weight.shape[0]):
        there = weight[place].nonzero().squeeze(1)
        out[rows] = _cpu_panels(
            torch.searchsorted(there, indptr, out_int32=True),
            source[there],
            weight[place, there],
            activation[rows],
            _rows_of(scale, rows, 2),
            _rows_of(retention, rows, 1),
            maximum,
            None if mask is None else mask[rows],
        )
    return out


def _cpu_panels(
    indptr: Tensor,
    source: Tensor,
    weight: Tensor,  # [E]
    activation: Tensor,
    scale: Tensor,
    retention: Tensor,
    maximum: bool,
    mask: Tensor | None,
) -> Tensor:
    """Compute transposed panels [N, 16], stored in the rows of `out` until the end."""
    product = spmm_max if maximum else spmm_sum
    kind, work = activation.dtype, torch.promote_types(activation.dtype, torch.float32)
    activation, weight, scale = activation.to(work).contiguous(), weight.to(work), scale.to(work)
    scale = scale.expand(activation.shape)
    keep = retention.item() if retention.dim() == 0 else 1.0
    out = torch.empty_like(activation)
    for begin in range(0, activation.shape[0], _PANEL):
        panel = slice(begin, begin + _PANEL)
        own, result, factor = activation[panel], out[panel], scale[panel]
        x = result.view(own.shape[1], own.shape[0])
        parts = _parts(*own.shape)
        for part in parts:
            torch.mul(own[part], factor[part], out=x.t()[part])
        if retention.dim():
            own = own * retention[panel, None].to(work)
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
    """Return the parts of `[questions, nodes]` that are transposed at once."""
    if questions <= _NARROW:
        return [(slice(b, b + 1), slice(None)) for b in range(questions)]
    return [(slice(None), slice(n, n + _NODES)) for n in range(0, nodes, _NODES)]


def _fake(*inputs: Any) -> Tensor:
    activation = _Inputs(*inputs[:9]).activation
    return activation.new_empty(activation.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, maximum, mask, pattern = inputs
    ctx.maximum = maximum
    ctx.save_for_backward(*tensors, mask, pattern, output if maximum else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, mask, pattern, output = ctx.saved_tensors
    if ctx.maximum and output.dtype != torch.promote_types(output.dtype, torch.float32):
        # Rounded to half precision, a maximum would equal none of its terms.
        exact = [*inputs[:6], inputs[6].float(), *inputs[7:]]
        output = _propagate(*exact, True, mask, pattern)
    grad_weight, *learned = _propagate_backward(grad, *inputs, mask, pattern, output)
    return None, None, None, grad_weight, None, None, *learned, None, None, None


_propagate = register(
    f"propagate({_ARGUMENTS}, bool maximum, Tensor? mask, Tensor? pattern) -> Tensor",
    _cpu,
    launcher="propagate:launch_propagate",
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
