"""spread_frontier: spreading activation that only follows the edges of active nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.ops._library import register
from graphmem_torch.ops._propagate_gradient import STRUCTURE
from graphmem_torch.ops.firing import Rule, dense_rounds

__all__ = ["spread_frontier"]

# Nanoseconds on one core: an edge that the frontier follows, against a node and an edge of a dense
# round.
_FOLLOWED, _NODE, _EDGE = 60.0, 8.0, 0.4


def spread_frontier(
    graph: Graph,  # N nodes
    activation: Tensor,  # [B, N]
    scale: Tensor,  # [N], spread / fan
    *,
    rounds: int,
    retention: float,
    maximum: bool,
    rule: Rule,
    mask: Tensor | None,
    forced: bool,
) -> Tensor:  # [B, N]
    """`spread_activation` in time proportional to the edges that leave active nodes; no gradient.

    Unless `forced`, it goes on with dense rounds as soon as those are cheaper.
    """
    work = torch.promote_types(activation.dtype, torch.float32)
    out = _spread_frontier(
        graph.indptr,
        graph.source,
        graph.target,
        graph.weight.to(work),
        graph.out_indptr,
        graph.out_edge,
        activation.to(work),
        scale.to(work),
        retention,
        maximum,
        mask,
        rounds,
        rule.inhibition,
        rule.top,
        rule.sigmoid,
        rule.gain,
        rule.threshold,
        forced,
    )
    return out.to(activation.dtype)


def _run(
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
    rounds: int,
    inhibition: float,
    top: int,
    sigmoid: bool,
    gain: float,
    threshold: float,
    forced: bool,
) -> Tensor:
    rule = Rule(inhibition, top, sigmoid, gain, threshold)
    questions, nodes = activation.shape
    dense_cost = questions * (_NODE * nodes + _EDGE * source.shape[0])
    flat = activation.flatten()
    key = flat.nonzero().squeeze(1)  # question * N + node of every active node, ascending
    value = flat[key]
    out = torch.zeros_like(flat)
    active = torch.zeros(flat.shape, dtype=torch.bool, device=flat.device)
    active[key] = True
    for done in range(rounds):
        node = key % max(1, nodes)
        fan = out_indptr[node + 1] - out_indptr[node]
        followed = int(fan.sum())
        if not forced and followed * _FOLLOWED > dense_cost:
            out[key] = value
            args = (indptr, source, target, weight, out_indptr, out_edge)

            def step(a: Tensor, args: tuple[Tensor, ...] = args) -> Tensor:
                return torch.ops.graphmem.propagate(*args, a, scale, retention, maximum, mask)

            shape = activation.shape
            return dense_rounds(step, out.view(shape), active.view(shape), rounds - done, rule)

        sender = torch.repeat_interleave(fan, output_size=followed)
        first = out_indptr[node] - fan.cumsum(0) + fan
        place = first[sender] + torch.arange(followed, device=flat.device)
        edge = out_edge.index_select(0, place)
        goal = (key - node)[sender] + target.index_select(0, edge)
        sent = (value * scale[node])[sender].mul_(weight.index_select(0, edge))
        if mask is not None:
            allowed = mask.flatten()[goal]
            goal, sent = goal[allowed], sent[allowed]
        out[key] = retention * value
        if maximum:
            out.scatter_reduce_(0, goal, sent, "amax")
        else:
            out.scatter_add_(0, goal, sent)

        fresh = goal[~active[goal] & (out[goal] != 0)]
        active[fresh] = True
        key = torch.cat([key, torch.unique(fresh)]).sort().values
        value = rule.fired(_inhibited(rule, key, out[key], questions, nodes))
        if not sigmoid:
            silent = key[value == 0]
            out[silent] = 0.0
            active[silent] = False
            key, value = key[value != 0], value[value != 0]
    out[key] = value
    return out.view(activation.shape)


def _inhibited(rule: Rule, key: Tensor, u: Tensor, questions: int, nodes: int) -> Tensor:
    """Inhibition among the active nodes of each question; the others are 0 and cannot inhibit."""
    if rule.inhibition == 0 or not key.numel():
        return u
    row = key // nodes
    count = torch.bincount(row, minlength=questions)
    column = torch.arange(len(key), device=key.device) - (count.cumsum(0) - count)[row]
    padded = u.new_zeros(questions, int(count.max()))
    padded[row, column] = u
    return rule.inhibited(padded)[row, column]


def _fake(
    indptr: Tensor,
    source: Tensor,
    target: Tensor,
    weight: Tensor,
    out_indptr: Tensor,
    out_edge: Tensor,
    activation: Tensor,
    *rest: object,
) -> Tensor:
    return activation.new_empty(activation.shape)


_spread_frontier = register(
    f"spread_frontier({STRUCTURE}, float retention, bool maximum, Tensor? mask, int rounds, "
    "float inhibition, int top, bool sigmoid, float gain, float threshold, bool forced) -> Tensor",
    _run,
    fake=_fake,
)
