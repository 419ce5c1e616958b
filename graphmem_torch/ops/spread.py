"""spread_activation: rounds of propagation, inhibition and firing, dense or on the frontier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor

from graphmem_torch.checks import (
    check_choice,
    check_count,
    check_scalar,
    check_tensor,
    needs_gradient,
)
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.inhibit import inhibit
from graphmem_torch.ops.propagate import Fan, fan_scale, propagate
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.sparse_rows import SparseRows, check_node_rows
from graphmem_torch.ops.spmm import REDUCE, Reduce
from graphmem_torch.ops.tiles import tile_elements

__all__ = ["Firing", "Method", "Rule", "dense_rounds", "spread_activation", "spread_frontier"]

Firing = Literal["sigmoid", "linear"]
Method = Literal["auto", "dense", "frontier"]
Rows = TypeVar("Rows", Tensor, SparseRows)
Step = Callable[[Tensor, Tensor | None], Tensor]  # activation [b, N], mask [b, N] -> [b, N]

_FRONTIER_FROM = 20_000  # nodes from which following only the active ones can pay

# Nanoseconds on one core: an edge that the frontier follows, against a node and an edge of a dense
# round.
_FOLLOWED, _NODE, _EDGE = 120.0, 8.0, 0.4
_DENSE = 1 << 24  # values of the dense matrices that it falls back to on a CPU


def spread_activation(
    graph: Graph,  # N nodes
    activation: Rows,  # [B, N], >= 0
    *,
    rounds: int = 3,
    retention: float | Tensor = 0.5,  # or []
    spread: float | Tensor = 0.8,  # or []
    reduce: Reduce = "sum",
    fan: Fan | Tensor = "degree",
    inhibition: float | Tensor = 0.15,  # or []
    top: int = 7,
    firing: Firing = "sigmoid",
    gain: float | Tensor = 5.0,  # or []
    threshold: float | Tensor = 0.5,  # or []
    mask: Tensor | None = None,  # [B, N] bool
    method: Method = "auto",
) -> Rows:  # [B, N], as `activation` is
    """Spreads the activation of the anchors over the graph; `docs/mathematics.md` 4.

    Every round is `propagate`, `inhibit`, firing. `sigmoid`: a_i = sigmoid(gain (u_i - threshold))
    on the nodes that activation has reached; the others stay exactly 0, because sigmoid(0) is not 0
    and would switch the whole graph on. `linear`: a_i = u_i.

    Args:
        graph: Edges carry activation from `source` to `target`.
        activation: The anchors' activation, 0 elsewhere. As `SparseRows` the answer is sparse too,
            and no matrix of B x N is formed but where dense rounds are cheaper; inhibition takes B
            times the active nodes of the question that has most.
        rounds: How often.
        retention: As for `propagate`.
        spread: As for `propagate`.
        reduce: As for `propagate`.
        fan: As for `propagate`.
        inhibition: Strength of `inhibit`; the number 0 leaves it out.
        top: Size of `inhibit`.
        firing: What a node makes of what it received; see above.
        gain: Of the sigmoid.
        threshold: Of the sigmoid.
        mask: As for `propagate`.
        method: `dense` computes all nodes and is differentiable, in the constants too where they
            are tensors; `frontier` follows the edges of
            active nodes only, in time that does not depend on N but for the answer itself; `auto`
            decides by the number of active nodes and takes `dense` when a gradient is asked for.
            The results agree to rounding.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, constants out of range, unknown
            names, or a gradient through `frontier`.
    """
    check_node_rows("activation", activation, graph)
    check_count("rounds", rounds, 0)
    check_count("top", top)
    check_choice("reduce", reduce, REDUCE)
    check_choice("firing", firing, get_args(Firing))
    check_choice("method", method, get_args(Method))
    sparse = isinstance(activation, SparseRows)
    start = activation.value if isinstance(activation, SparseRows) else activation
    for name, value in (("retention", retention), ("spread", spread), ("inhibition", inhibition)):
        check_scalar(name, value, start)
    for name, value in (("gain", gain), ("threshold", threshold)):
        check_scalar(name, value, start, low=-torch.inf)
    constants = (retention, spread, inhibition, gain, threshold)
    differentiable = needs_gradient(start, graph.weight, fan, *constants)
    if differentiable and (sparse or method == "frontier"):
        raise InputError(
            "activation: expected a dense one and method 'dense' for a gradient, got "
            f"{'SparseRows' if sparse else repr(method)}; change it or detach"
        )
    if mask is not None:
        do = "expand it as the activation, compare or call .bool()"
        check_tensor("mask", mask, "bool", activation.shape, do, device=graph.device)
    small = graph.num_nodes < _FRONTIER_FROM
    if start.is_cuda:  # a few launches a round, where the frontier has many and waits for each
        size = activation.shape[0] * graph.num_nodes
        small = not sparse or size <= tile_elements(start.device, _DENSE)
    dense = method == "dense" or (method == "auto" and (differentiable or small))
    rule = Rule(inhibition, top, firing == "sigmoid", gain, threshold)

    def step(a: Tensor, allowed: Tensor | None) -> Tensor:
        return propagate(
            graph, a, retention=retention, spread=spread, reduce=reduce, fan=fan, mask=allowed
        )

    if dense:
        a = activation.to_dense() if isinstance(activation, SparseRows) else activation
        a = dense_rounds(lambda u: step(u, mask), a, a != 0, rounds, rule)
        return SparseRows.from_dense(a) if isinstance(activation, SparseRows) else a
    found = spread_frontier(
        graph,
        activation if isinstance(activation, SparseRows) else SparseRows.from_dense(activation),
        lambda node: fan_scale(graph, spread, fan, node=node),
        rounds=rounds,
        retention=retention.item() if isinstance(retention, Tensor) else retention,
        maximum=reduce == "max",
        rule=rule,
        mask=mask,
        step=None if method == "frontier" else step,
    )
    return found if isinstance(activation, SparseRows) else found.to_dense()


@dataclass(frozen=True)
class Rule:
    """What happens to what a node received; `docs/mathematics.md` 4.

    Attributes:
        inhibition, top: Strength and size of the lateral inhibition; the number 0 leaves it out.
        sigmoid: Fire sigmoid(gain (u - threshold)); otherwise u itself.
        gain, threshold: Of the sigmoid.
    """

    inhibition: float | Tensor  # or []
    top: int
    sigmoid: bool
    gain: float | Tensor  # or []
    threshold: float | Tensor  # or []

    @property
    def inhibits(self) -> bool:
        """Whether there is inhibition; a tensor is taken to be not 0, without looking at it."""
        return isinstance(self.inhibition, Tensor) or self.inhibition != 0

    def inhibited(self, u: Tensor) -> Tensor:
        """`[B, N]` after lateral inhibition."""
        return inhibit(u, strength=self.inhibition, top=self.top) if self.inhibits else u

    def fired(self, u: Tensor) -> Tensor:
        """What reached nodes fire, written over u unless a gradient needs u."""
        if not self.sigmoid:
            return u
        if needs_gradient(u, self.gain, self.threshold):
            return torch.sigmoid(self.gain * (u - self.threshold))
        return u.sub_(self.threshold).mul_(self.gain).sigmoid_()


def dense_rounds(
    step: Callable[[Tensor], Tensor],  # propagate: [B, N] -> [B, N], a fresh tensor
    activation: Tensor,  # [B, N]
    touched: Tensor,  # [B, N] bool: what activation has reached so far
    rounds: int,
    rule: Rule,
) -> Tensor:  # [B, N]
    """`rounds` rounds over all nodes; nodes that were never reached stay exactly 0."""
    for _ in range(rounds):
        u = step(activation)
        touched = touched | (u != 0)
        fired = rule.fired(rule.inhibited(u))
        activation = (
            torch.where(touched, fired, 0.0) if fired.requires_grad else fired.mul_(touched)
        )
    return activation


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
    followed_cost: float = _FOLLOWED,
    dense_values: int | None = None,
) -> SparseRows:  # [B, N]
    """`spread_activation` in time and memory of the edges that leave active nodes; no gradient.

    `scale` says what a unit of activation at a node sends along each of its edges, `maximum`
    whether the largest of what arrives counts, not the sum. Given `step`, a dense round of
    propagation, it goes on with that as soon as it is cheaper than `followed_cost` nanoseconds an
    edge, with dense matrices of `dense_values`, by default as the device has room.
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
        if step is not None and followed * followed_cost > dense_cost:
            if dense_values is None:
                dense_values = tile_elements(graph.device, _DENSE)
            state = _dense(state, step, rounds - done, rule, mask, dense_values)
            break
        sender, place = ranges(first, fan, total=followed)
        edge = graph.out_edge.index_select(0, place)
        goal = (state.key - node).index_select(0, sender).add_(graph.target.index_select(0, edge))
        sent = (state.value * scale(node).to(work)).index_select(0, sender)
        sent *= weight.index_select(0, edge)
        if mask is not None:
            allowed = mask[state.row[sender], goal % nodes]
            goal, sent = goal[allowed], sent[allowed]
        state, own = _received(state, goal, sent, retention, maximum)
        if rule.sigmoid or rule.inhibits:
            state = state.select((state.value != 0).index_fill_(0, own, True))
            fired = rule.fired(_inhibited(rule, state))
            state = SparseRows(state.key, fired, state.shape)
        if not rule.sigmoid:
            state = state.select(state.value != 0)
    return SparseRows(state.key, state.value.to(activation.value.dtype), state.shape)


def _received(
    state: SparseRows, goal: Tensor, sent: Tensor, retention: float, maximum: bool
) -> tuple[SparseRows, Tensor]:
    """What the active nodes keep, and what arrives, by the node where it arrives.

    Zeros where what arrives cancels out; and which entries are those of the active nodes.
    """
    kept = len(state.key)
    goal = torch.cat([state.key, goal])
    if state.shape[0] * state.shape[1] <= torch.iinfo(torch.int32).max:
        goal = goal.to(torch.int32)  # sorted in half the time
    ordered, order = goal.sort()
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=fresh[1:])
    slot = torch.empty_like(order).index_copy_(0, order, fresh.cumsum(0) - 1)
    key = ordered.index_select(0, fresh.nonzero().squeeze(1)).to(torch.int64)
    own, there = slot.split([kept, len(sent)])
    u = sent.new_zeros(key.shape).index_copy_(0, own, retention * state.value)
    if maximum:
        u.scatter_reduce_(0, there, sent, "amax")
    else:
        u.index_add_(0, there, sent)
    return SparseRows(key, u, state.shape), own


def _inhibited(rule: Rule, state: SparseRows) -> Tensor:  # [n]
    """Inhibition among the active nodes of each question; the others are 0 and cannot inhibit."""
    if not rule.inhibits or not len(state.key):
        return state.value
    values, place = state.padded()
    there = place >= 0
    return torch.empty_like(state.value).index_copy_(0, place[there], rule.inhibited(values)[there])


def _dense(
    state: SparseRows, step: Step, rounds: int, rule: Rule, mask: Tensor | None, most: int
) -> SparseRows:
    """The rounds that are left over all nodes, some questions at a time."""
    questions, nodes = state.shape
    height = max(1, most // max(1, nodes))
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
