"""spread_activation: rounds of propagation, inhibition and firing, dense or on the frontier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor

from graphmem_torch.checks import (
    as_scalar,
    check_choice,
    check_count,
    check_scalar,
    check_tensor,
    needs_gradient,
)
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.inhibit import inhibit
from graphmem_torch.ops.propagate import Fan, check_patterns, fan_scale, propagate
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.sparse_rows import SparseRows, check_node_rows
from graphmem_torch.ops.spmm import REDUCE, Reduce
from graphmem_torch.ops.tiles import tile_elements

__all__ = [
    "INHIBITORS",
    "Firing",
    "Method",
    "Rule",
    "dense_rounds",
    "spread_activation",
    "spread_frontier",
]

INHIBITORS = 7
"""Number of strongest nodes that inhibit the others: M of SYNAPSE (`docs/mathematics.md` 4)."""

Firing = Literal["sigmoid", "zeroed", "once", "linear"]
Method = Literal["auto", "dense", "frontier"]
Rows = TypeVar("Rows", Tensor, SparseRows)
Step = Callable[[Tensor, Tensor | None], Tensor]  # activation [b, N], mask [b, N] -> [b, N]

_FRONTIER_FROM = 20_000  # nodes from which following only active nodes can pay
FEW_VALUES = 1 << 25
"""Values of a dense round on a GPU up to which a frontier is not tried."""


class _Costs(NamedTuple):
    """Nanoseconds per frontier edge, and per node and edge of a dense round.

    Measured on one core; for a GPU, derived from the bandwidth of an H200.
    """

    followed: float
    node: float
    edge: float


_CPU, _CUDA = _Costs(120.0, 8.0, 0.4), _Costs(1.0, 0.015, 0.002)
_DENSE = 1 << 24  # values of the dense matrices used as fallback on a CPU
_PANEL = 16  # rows of one product on a CPU
_CACHED = 1 << 19  # values of the matrices of several rounds of some rows on a CPU


def spread_activation(
    graph: Graph,  # N nodes
    activation: Rows,  # [B, N], >= 0
    *,
    rounds: int | Tensor = 3,  # or [B] int64
    retention: float | Tensor = 0.5,  # or [], or [B]
    spread: float | Tensor = 0.8,  # or [], or [B]
    reduce: Reduce = "sum",
    fan: Fan | Tensor = "degree",  # or [N], or [B, N]
    inhibition: float | Tensor = 0.15,  # or [], or [B]
    top: int = INHIBITORS,
    spare: int = 0,
    firing: Firing | Tensor = "sigmoid",  # or [B] bool, true for a sigmoid
    gain: float | Tensor = 5.0,  # or [], or [B]
    threshold: float | Tensor = 0.5,  # or [], or [B]
    kind: Tensor | None = None,  # [N] bool
    mask: Tensor | None = None,  # [B, N] bool
    weight: Tensor | None = None,  # [P, E]
    pattern: Tensor | None = None,  # [B] int64
    method: Method = "auto",
) -> Rows:  # [B, N], as `activation` is
    """Spread the activation of the anchors over the graph; `docs/mathematics.md` 4.

    Every round is `propagate`, `inhibit`, firing:

    - `sigmoid`: a_i = sigmoid(gain (u_i - threshold)) on nodes that activation has reached. Others
      stay exactly 0; since sigmoid(0) is not 0, they would all become active.
    - `zeroed`: the same less sigmoid(-gain threshold), so a node without activation fires 0.
    - `linear`: a_i = u_i.
    - `once`: every round is `propagate` alone; `inhibit` and `zeroed` follow the last round.

    Constants may have one value a row. A row is then a setting, and one batch covers hundreds of
    settings with all their questions (`docs/mathematics.md` 4).

    Args:
        graph: Edges carry activation from `source` to `target`.
        activation: Activation of the anchors, 0 elsewhere. For `SparseRows` the result is sparse
            too, and a B x N matrix is formed only if dense rounds are cheaper; inhibition takes B
            times the largest number of active nodes of a question.
        rounds: Number of rounds.
        retention: See `propagate`.
        spread: See `propagate`.
        reduce: See `propagate`.
        fan: See `propagate`.
        inhibition: Strength of `inhibit`; the number 0 omits it, and so does a 0 of one row.
        top: Size of `inhibit`.
        spare: Rank of the node that keeps at least half of its activation. Inhibition is weakened
            per question until it does, to protect the neighbours of a few dominant hubs. 0 keeps
            the strength.
        firing: Function from received to fired activation; see above.
        gain: Gain of the sigmoid.
        threshold: Threshold of the sigmoid.
        kind: One of two kinds a node; the strongest inhibit only their own kind. None: one kind.
        mask: See `propagate`.
        weight: See `propagate`.
        pattern: See `propagate`.
        method: `dense` computes all nodes and is differentiable, also in constants that are
            tensors. `frontier` follows only the edges of active nodes, in time that does not depend
            on N except for the result. `auto` decides by the number of active nodes, and is `dense`
            if a gradient is required or rows differ. Results agree up to rounding.

    Raises:
        InputError: Shapes, dtypes or devices do not fit, a constant is out of range, a name is
            unknown, or `frontier` gets a gradient or rows that differ.
    """
    check_node_rows("activation", activation, graph)
    check_count("top", top)
    check_count("spare", spare, 0)
    check_choice("reduce", reduce, REDUCE)
    check_choice("method", method, get_args(Method))
    sparse = isinstance(activation, SparseRows)
    start = activation.value if isinstance(activation, SparseRows) else activation
    rows_only = start.new_empty(activation.shape[0], 0)
    for name, dtype, choice in (("rounds", "int64", rounds), ("firing", "bool", firing)):
        if isinstance(choice, Tensor):
            do = "give one value for all, or a tensor of one for each row"
            check_tensor(name, choice, dtype, rows_only.shape[:1], do, device=graph.device)
    if not isinstance(rounds, Tensor):
        check_count("rounds", rounds, 0)
    if not isinstance(firing, Tensor):
        check_choice("firing", firing, get_args(Firing))
    for name, value in (("retention", retention), ("spread", spread), ("inhibition", inhibition)):
        check_scalar(name, value, rows_only)
    for name, value in (("gain", gain), ("threshold", threshold)):
        check_scalar(name, value, rows_only, low=-torch.inf)
    check_patterns(graph, rows_only, weight, pattern)
    if kind is not None:
        do = "give True for the nodes of one kind, such as concepts"
        check_tensor("kind", kind, "bool", (graph.num_nodes,), do, device=graph.device)
    constants: tuple[float | Tensor, ...] = (retention, spread, inhibition, gain, threshold)
    differentiable = needs_gradient(start, graph.stored.weight, weight, fan, *constants)
    by_row = weight is not None or _wide(fan, 2) or any(map(_wide, (rounds, firing, *constants)))
    if (differentiable or by_row) and (sparse or method == "frontier"):
        raise InputError(
            "activation: expected a dense tensor and method 'dense' for "
            f"{'a gradient' if differentiable else 'rows that differ'}, got "
            f"{'SparseRows' if sparse else repr(method)}; "
            f"{'change it or detach' if differentiable else 'change it, or one call a setting'}"
        )
    if mask is not None:
        do = "expand it as the activation, compare or call .bool()"
        check_tensor("mask", mask, "bool", activation.shape, do, device=graph.device)
    small = graph.num_nodes < _FRONTIER_FROM
    if shapes_are_fixed():  # the shapes of a frontier depend on values
        small = not sparse
    elif start.is_cuda:  # a few launches a round; a frontier needs many and waits for each
        small = not sparse or activation.shape[0] * graph.num_nodes <= FEW_VALUES
    dense = method == "dense" or (method == "auto" and (differentiable or by_row or small))
    rule = Rule(inhibition, top, firing, gain, threshold, spare, kind)
    if by_row:
        assert isinstance(activation, Tensor)
        rows = _Rows(rounds, retention, spread, fan, rule, mask, pattern)
        return _by_rows(graph, activation, rows, weight, reduce, differentiable)
    assert isinstance(rounds, int)

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
    """Inhibition and firing of received activation; `docs/mathematics.md` 4.

    Attributes:
        inhibition, top: Strength and size of lateral inhibition; the number 0 omits it.
        firing: Firing, as for `spread_activation`.
        gain, threshold: Gain and threshold of the sigmoid.
        spare: Rank of the node that keeps at least half of its activation; 0 for none.
        kind: Kind of each node, one of two.
    """

    inhibition: float | Tensor  # or [], or [B]
    top: int
    firing: Firing | Tensor  # or [B] bool, true for a sigmoid
    gain: float | Tensor  # or [], or [B]
    threshold: float | Tensor  # or [], or [B]
    spare: int = 0
    kind: Tensor | None = None  # [N] bool, or [B, N]

    @property
    def inhibits(self) -> bool:
        """Return whether there is inhibition; a tensor counts as nonzero without being read."""
        return isinstance(self.inhibition, Tensor) or self.inhibition != 0

    @property
    def strongest(self) -> int:
        """Number of strongest nodes that determine the inhibition."""
        return max(self.top, self.spare)

    @property
    def once(self) -> bool:
        """Return whether inhibition and firing happen only after the last round."""
        return not isinstance(self.firing, Tensor) and self.firing == "once"

    @property
    def marks(self) -> bool:
        """Return whether a reached node fires a nonzero value even if it received 0."""
        return isinstance(self.firing, Tensor) or self.firing == "sigmoid"

    def of_nodes(self, nodes: Tensor) -> Rule:  # [n] int64, or [B, n]
        """Return the same rule for some nodes only."""
        return self if self.kind is None else replace(self, kind=self.kind[nodes])

    def plain(self) -> Rule:
        """Return the same rule with what all rows share as plain values; reads the values."""
        inhibition, firing = self.inhibition, self.firing
        if isinstance(inhibition, Tensor) and inhibition.dim() and not inhibition.any():
            inhibition = 0.0
        if isinstance(firing, Tensor) and (firing.all() or not firing.any()):
            firing = "sigmoid" if firing.any() else "linear"
        return replace(self, inhibition=inhibition, firing=firing)

    def inhibited(self, u: Tensor) -> Tensor:
        """Return `[B, N]` after lateral inhibition."""
        if not self.inhibits:
            return u
        if self.kind is None:
            found = self._inhibited(u)
        else:  # nodes of the other kind are 0, neither inhibiting nor inhibited
            own, others = u.where(self.kind, 0.0), u.masked_fill(self.kind, 0.0)
            found = self._inhibited(own) + self._inhibited(others)
        if isinstance(self.inhibition, Tensor) and self.inhibition.dim():
            return torch.where(self.inhibition[:, None] != 0, found, u)
        return found

    def _inhibited(self, u: Tensor) -> Tensor:
        strength = self.inhibition
        if self.spare and u.shape[1]:
            strength = _sparing(u, strength, self.top, self.spare)
        return inhibit(u, strength=strength, top=self.top)

    def fired(self, u: Tensor) -> Tensor:
        """Return the activation fired by reached nodes; overwrites u unless a gradient needs it."""
        if not isinstance(self.firing, Tensor) and self.firing == "linear":
            return u
        gain, threshold = _column(self.gain), _column(self.threshold)
        if self.firing in ("zeroed", "once"):
            # sigmoid(g (u - t)) - sigmoid(-g t), as a product that is exactly 0 for u = 0.
            fired = torch.sigmoid(gain * (u - threshold)) * -torch.expm1(-gain * u)
            return fired * torch.sigmoid(as_scalar(gain * threshold, u))
        if isinstance(self.firing, Tensor):
            return torch.where(self.firing[:, None], torch.sigmoid(gain * (u - threshold)), u)
        if needs_gradient(u, gain, threshold):
            return torch.sigmoid(gain * (u - threshold))
        return u.sub_(threshold).mul_(gain).sigmoid_()

    def received(self, u: Tensor) -> Tensor:
        """Return the activation after one round, given what nodes received."""
        return u if self.once else self.fired(self.inhibited(u))

    def ended(self, a: Tensor) -> Tensor:
        """Return the activation after the last round."""
        return self.fired(self.inhibited(a)) if self.once else a


def _sparing(u: Tensor, strength: float | Tensor, top: int, spare: int) -> Tensor:  # [B]
    """Return the largest strength, up to the given one, that leaves the `spare`-th node its half.

    Node m keeps u_m - s sum_k max(u_k - u_m, 0) over the `top` strongest, which is half of u_m at s
    = u_m / 2 sum_k max(u_k - u_m, 0). With fewer active nodes, the last of them counts.
    """
    length = u.shape[1]
    strongest = u.topk(min(max(top, spare), length), dim=1).values
    active = (strongest[:, : min(spare, length)] > 0).sum(1, keepdim=True)
    last = strongest.gather(1, (active - 1).clamp(min=0))
    above = (strongest[:, : min(top, length)] - last).clamp(min=0).sum(1)
    free = torch.where(above > 0, last[:, 0] / (2 * above).clamp(min=1e-30), torch.inf)
    return torch.minimum(free, as_scalar(strength, u))


def _wide(value: object, dims: int = 1) -> bool:
    """Return whether a value has an entry for each row."""
    return isinstance(value, Tensor) and value.dim() == dims


_Value = TypeVar("_Value")


def _column(value: _Value) -> _Value | Tensor:  # [B] -> [B, 1]
    return value[:, None] if isinstance(value, Tensor) and value.dim() == 1 else value


@dataclass(frozen=True)
class _Rows:
    """Arguments of `spread_activation` that may differ between the rows of a batch."""

    rounds: int | Tensor
    retention: float | Tensor
    spread: float | Tensor
    fan: Fan | Tensor
    rule: Rule
    mask: Tensor | None
    pattern: Tensor | None

    def part(self, rows: Tensor) -> _Rows:  # [b] int64
        """Return the arguments of some rows."""

        def own(value: _Value, dims: int = 1) -> Any:
            return value[rows] if isinstance(value, Tensor) and value.dim() == dims else value

        rule = self.rule
        return _Rows(
            own(self.rounds),
            own(self.retention),
            own(self.spread),
            own(self.fan, 2),
            Rule(
                own(rule.inhibition),
                rule.top,
                own(rule.firing),
                own(rule.gain),
                own(rule.threshold),
                rule.spare,
                rule.kind,
            ),
            own(self.mask, 2),
            own(self.pattern),
        )


def _by_rows(
    graph: Graph,
    activation: Tensor,  # [B, N]
    rows: _Rows,
    weight: Tensor | None,  # [P, E]
    reduce: Reduce,
    differentiable: bool,
) -> Tensor:  # [B, N]
    """Run dense rounds of rows that differ: on a device all at once, on a CPU as the cache allows.

    On a CPU, rows of one pattern run together over the edges of that pattern.
    """
    if differentiable or activation.is_cuda:
        return _rounds_of(graph, activation, rows, weight, reduce)
    questions, nodes = activation.shape
    order, ends = torch.arange(questions), [questions]
    inhibited = _wide(rows.rule.inhibition) and rows.rule.inhibition != 0
    for kind in (inhibited, rows.rule.firing, rows.rounds):  # rows that are alike run together
        if isinstance(kind, Tensor):
            order = order[kind[order].argsort(stable=True)]
    if rows.pattern is not None and weight is not None:
        order = order[rows.pattern[order].argsort(stable=True)]
        ends = torch.bincount(rows.pattern, minlength=len(weight)).cumsum(0).tolist()
    height = max(_PANEL, _CACHED // max(1, nodes) // _PANEL * _PANEL)
    out = torch.empty_like(activation, memory_format=torch.contiguous_format)
    for place, (begin, end) in enumerate(pairwise([0, *ends])):
        if begin == end:
            continue
        own = graph
        if weight is not None:
            there = weight[place] != 0
            own = graph.select(there).with_weight(weight[place][there])
        for some in order[begin:end].split(height):
            part = rows.part(some)
            part = replace(part, rule=part.rule.plain(), pattern=None)
            out[some] = _rounds_of(own, activation[some], part, None, reduce)
    return out


def _rounds_of(
    graph: Graph, activation: Tensor, rows: _Rows, weight: Tensor | None, reduce: Reduce
) -> Tensor:
    def step(a: Tensor) -> Tensor:
        return propagate(
            graph,
            a,
            retention=rows.retention,
            spread=rows.spread,
            reduce=reduce,
            fan=rows.fan,
            mask=rows.mask,
            weight=weight,
            pattern=rows.pattern,
        )

    return dense_rounds(step, activation, activation != 0, rows.rounds, rows.rule)


def dense_rounds(
    step: Callable[[Tensor], Tensor],  # propagate: [B, N] -> [B, N], a fresh tensor
    activation: Tensor,  # [B, N]
    touched: Tensor,  # [B, N] bool
    rounds: int | Tensor,  # or [B]
    rule: Rule,
    *,
    ends: bool = True,
) -> Tensor:  # [B, N]
    """Run `rounds` rounds over all nodes; nodes that are never reached stay exactly 0.

    Reading a tensor of rounds waits for the device.

    Args:
        step: Propagation.
        activation: Activation at the start.
        touched: Nodes that activation has reached.
        rounds: Number of rounds.
        rule: Inhibition and firing.
        ends: Whether the last of these rounds is the last of all.
    """
    least, most = rounds, rounds
    if isinstance(rounds, Tensor):
        least, most = (int(end) for end in rounds.aminmax()) if len(rounds) else (0, 0)
    for done in range(int(most)):
        u = step(activation)
        touched = touched | (u != 0)
        fired = rule.received(u)
        found = torch.where(touched, fired, 0.0) if fired.requires_grad else fired.mul_(touched)
        if isinstance(rounds, Tensor) and done >= int(least):
            found = torch.where((rounds > done)[:, None], found, activation)
        activation = found
    if not ends or not int(most):
        return activation
    if isinstance(rounds, Tensor) and not int(least):
        return torch.where((rounds > 0)[:, None], rule.ended(activation), activation)
    return rule.ended(activation)


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
    followed_cost: float | None = None,
    dense_values: int | None = None,
) -> SparseRows:  # [B, N]
    """Run `spread_activation` in time and memory of the edges that leave active nodes; no gradient.

    `scale` returns what a unit of activation at a node sends along each of its edges. `maximum`
    says whether arrivals are reduced by maximum instead of sum. Given `step`, a dense round of
    propagation, it switches to that once it is cheaper than `followed_cost` nanoseconds an edge.
    Dense matrices have `dense_values` values, by default from the device and its memory.
    """
    questions, nodes = activation.shape
    costs = _CUDA if activation.key.is_cuda else _CPU
    dense_cost = questions * (costs.node * nodes + costs.edge * graph.num_edges)
    cost = costs.followed if followed_cost is None else followed_cost
    work = torch.promote_types(activation.value.dtype, torch.float32)
    edges = graph.stored
    weight = edges.weight.to(work)
    state = SparseRows(activation.key, activation.value.to(work), activation.shape)
    for done in range(rounds):
        node = state.column
        first, fan = graph.spans(node)
        followed = int(fan.sum())
        if step is not None and followed * cost > dense_cost:
            if dense_values is None:
                dense_values = tile_elements(graph.device, _DENSE)
            state = _dense(state, step, rounds - done, rule, mask, dense_values)
            break
        sender, place = ranges(first, fan, total=followed)
        edge = graph.leaving(place)
        goal = (state.key - node).index_select(0, sender).add_(edges.target.index_select(0, edge))
        sent = (state.value * scale(node).to(work)).index_select(0, sender)
        sent *= weight.index_select(0, edge)
        if mask is not None:
            allowed = mask[state.row[sender], goal % nodes]
            goal, sent = goal[allowed], sent[allowed]
        state, own = _received(state, goal, sent, retention, maximum)
        if not rule.once or done == rounds - 1:
            state = state.select((state.value != 0).index_fill_(0, own, True))
            fired = rule.fired(_inhibited(rule, state))
            state = SparseRows(state.key, fired, state.shape)
        if not rule.marks:
            state = state.select(state.value != 0)
    return SparseRows(state.key, state.value.to(activation.value.dtype), state.shape)


def _received(
    state: SparseRows, goal: Tensor, sent: Tensor, retention: float, maximum: bool
) -> tuple[SparseRows, Tensor]:
    """Combine the retained part of active nodes with arrivals, by receiving node.

    Arrivals that cancel out are kept as zeros. Also marks the entries of the active nodes.
    """
    kept = len(state.key)
    goal = torch.cat([state.key, goal])
    if state.shape[0] * state.shape[1] <= torch.iinfo(torch.int32).max:
        goal = goal.to(torch.int32)  # int32 sorts in half the time
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
    """Inhibit the active nodes of each question; the others are 0 and cannot inhibit."""
    if not rule.inhibits or not len(state.key):
        return state.value
    values, place = state.padded()
    there = place >= 0
    rule = rule.of_nodes(state.column[place.clamp(min=0)])
    return torch.empty_like(state.value).index_copy_(0, place[there], rule.inhibited(values)[there])


def _dense(
    state: SparseRows, step: Step, rounds: int, rule: Rule, mask: Tensor | None, most: int
) -> SparseRows:
    """Run the remaining rounds over all nodes, some questions at a time."""
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
        # Activation has also reached a node that fires exactly 0.
        touched = SparseRows(own.key, torch.ones_like(own.value), own.shape).to_dense() != 0
        allowed = None if mask is None else mask[begin:end]

        def one(a: Tensor, allowed: Tensor | None = allowed) -> Tensor:
            return step(a, allowed)

        found = SparseRows.from_dense(dense_rounds(one, own.to_dense(), touched, rounds, rule))
        parts.append((found.key + begin * nodes, found.value))
    key, value = (torch.cat(column) for column in zip(*parts, strict=True))
    return SparseRows(key, value, state.shape)
