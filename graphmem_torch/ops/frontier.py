"""spread_frontier: spreading activation that only follows the edges of active nodes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.ops.firing import Rule, dense_rounds
from graphmem_torch.ops.sparse_rows import SparseRows

__all__ = ["spread_frontier"]

Step = Callable[[Tensor, Tensor | None], Tensor]  # activation [b, N], mask [b, N] -> [b, N]

# Nanoseconds on one core: an edge that the frontier follows, against a node and an edge of a dense
# round.
_FOLLOWED, _NODE, _EDGE = 120.0, 8.0, 0.4
_DENSE = 1 << 24  # values of the dense matrices that it falls back to


def spread_frontier(
    graph: Graph,  # N nodes
    activation: SparseRows,  # [B, N]
    scale: Callable[[Tensor], Tensor],  # spread / fan of the nodes given
    *,
    rounds: int,
    retention: float,
    maximum: bool,
    rule: Rule,
    mask: Tensor | None,  # [B, N] bool
    step: Step | None = None,
) -> SparseRows:  # [B, N]
    """`spread_activation` in time and memory of the edges that leave active nodes; no gradient.

    Given `step`, which is `propagate`, it goes on with dense rounds as soon as those are cheaper.
    """
    questions, nodes = activation.shape
    dense_cost = questions * (_NODE * nodes + _EDGE * graph.num_edges)
    work = torch.promote_types(activation.value.dtype, torch.float32)
    weight = graph.weight.to(work)
    state = SparseRows(activation.key, activation.value.to(work), activation.shape)
    for done in range(rounds):
        node = state.column
        first = graph.out_indptr.index_select(0, node)
        fan = graph.out_indptr.index_select(0, node + 1) - first
        followed = int(fan.sum())
        if step is not None and followed * _FOLLOWED > dense_cost:
            state = _dense(state, step, rounds - done, rule, mask)
            break
        sender = torch.repeat_interleave(fan, output_size=followed)
        place = torch.arange(followed, device=graph.device)
        place += (first - fan.cumsum(0) + fan).index_select(0, sender)
        edge = graph.out_edge.index_select(0, place)
        goal = (state.key - node).index_select(0, sender).add_(graph.target.index_select(0, edge))
        sent = (state.value * scale(node).to(work)).index_select(0, sender)
        sent *= weight.index_select(0, edge)
        if mask is not None:
            allowed = mask[state.row[sender], goal % nodes]
            goal, sent = goal[allowed], sent[allowed]
        state = _received(state, goal, sent, retention, maximum)
        fired = rule.fired(_inhibited(rule, state))
        state = SparseRows(state.key, fired, state.shape)
        if not rule.sigmoid:
            state = state.select(fired != 0)
    return SparseRows(state.key, state.value.to(activation.value.dtype), state.shape)


def _received(
    state: SparseRows, goal: Tensor, sent: Tensor, retention: float, maximum: bool
) -> SparseRows:
    """What the active nodes keep, and what arrives, by the node where it arrives."""
    kept = len(state.key)
    goal = torch.cat([state.key, goal])
    if state.shape[0] * state.shape[1] <= torch.iinfo(torch.int32).max:
        goal = goal.to(torch.int32)  # sorted in half the time
    ordered, order = goal.sort()
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=fresh[1:])
    slot = torch.empty_like(order).index_copy_(0, order, fresh.cumsum(0) - 1)
    key = ordered.index_select(0, fresh.nonzero().squeeze(1)).to(torch.int64)
    u = sent.new_zeros(key.shape).index_copy_(0, slot[:kept], retention * state.value)
    if maximum:
        u.scatter_reduce_(0, slot[kept:], sent, "amax")
    else:
        u.index_add_(0, slot[kept:], sent)
    touched = (u != 0).index_fill_(0, slot[:kept], True)
    return SparseRows(key, u, state.shape).select(touched)


def _inhibited(rule: Rule, state: SparseRows) -> Tensor:  # [n]
    """Inhibition among the active nodes of each question; the others are 0 and cannot inhibit."""
    if not rule.inhibits or not len(state.key):
        return state.value
    values, place = state.padded()
    there = place >= 0
    return torch.empty_like(state.value).index_copy_(0, place[there], rule.inhibited(values)[there])


def _dense(
    state: SparseRows, step: Step, rounds: int, rule: Rule, mask: Tensor | None
) -> SparseRows:
    """The rounds that are left over all nodes, some questions at a time."""
    questions, nodes = state.shape
    height = max(1, _DENSE // max(1, nodes))
    parts = []
    for begin in range(0, questions, height):
        end = min(begin + height, questions)
        first, last = torch.searchsorted(
            state.key, torch.tensor([begin * nodes, end * nodes], device=state.key.device)
        ).tolist()
        own = SparseRows(
            state.key[first:last] - begin * nodes, state.value[first:last], (end - begin, nodes)
        )
        # A node that fires exactly 0 is still one that activation has reached.
        touched = SparseRows(own.key, torch.ones_like(own.value), own.shape).to_dense() != 0
        allowed = None if mask is None else mask[begin:end]

        def one(a: Tensor, allowed: Tensor | None = allowed) -> Tensor:
            return step(a, allowed)

        found = SparseRows.from_dense(dense_rounds(one, own.to_dense(), touched, rounds, rule))
        parts.append((found.key + begin * nodes, found.value))
    key, value = (torch.cat(column) for column in zip(*parts, strict=True))
    return SparseRows(key, value, state.shape)
