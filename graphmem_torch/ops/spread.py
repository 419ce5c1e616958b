"""spread_activation: rounds of propagation, inhibition and firing, dense or on the frontier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar, get_args

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
from graphmem_torch.ops.propagate import Fan, check_patterns, fan_scale, propagate
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.sparse_rows import SparseRows, check_node_rows
from graphmem_torch.ops.spmm import REDUCE, Reduce
from graphmem_torch.ops.tiles import tile_elements

__all__ = ["Firing", "Method", "Rule", "dense_rounds", "spread_activation", "spread_frontier"]

Firing = Literal["sigmoid", "zeroed", "once", "linear"]
Method = Literal["auto", "dense", "frontier"]
Rows = TypeVar("Rows", Tensor, SparseRows)
Step = Callable[[Tensor, Tensor | None], Tensor]  # activation [b, N], mask [b, N] -> [b, N]

_FRONTIER_FROM = 20_000  # nodes from which following only the active ones can pay
_FEW_VALUES = 1 << 25  # of a dense round on a GPU, which are done before a frontier is launched


class _Costs(NamedTuple):
    """Nanoseconds: an edge that the frontier follows, a node and an edge of a dense round.

    Measured on one core; of an H200 what its bandwidth says.
    """

    followed: float
    node: float
    edge: float


_CPU, _CUDA = _Costs(120.0, 8.0, 0.4), _Costs(1.0, 0.015, 0.002)
_DENSE = 1 << 24  # values of the dense matrices that it falls back to on a CPU
_PANEL = 16  # rows that a product on a CPU takes at once
_CACHED = 1 << 19  # values of the matrices that rounds of some rows go through on a CPU


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
    top: int = 7,
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
    """Spreads the activation of the anchors over the graph; `docs/mathematics.md` 4.

    Every round is `propagate`, `inhibit`, firing. `sigmoid`: a_i = sigmoid(gain (u_i - threshold))
    on the nodes that activation has reached; the others stay exactly 0, because sigmoid(0) is not 0
    and would switch the whole graph on. `zeroed`: the same less sigmoid(-gain threshold), so that
    a node without activation fires 0. `linear`: a_i = u_i. `once`: every round is `propagate`
    alone, and after the last one come `inhibit` and `zeroed`.

    Constants may have one value a row. A row is then a setting, and hundreds of settings with all
    their questions are one batch (`docs/mathematics.md` 4).

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
        inhibition: Strength of `inhibit`; the number 0 leaves it out, and so does a 0 among one
            value a row.
        top: Size of `inhibit`.
        spare: Inhibition is weakened, question by question, until the `spare`-th strongest node
            keeps at least half of what it has: where a few hubs hold nearly all activation, what is
            next to them is not silenced. 0 leaves the strength as it is.
        firing: What a node makes of what it received; see above.
        gain: Of the sigmoid.
        threshold: Of the sigmoid.
        kind: Two kinds of nodes, which are inhibited by the strongest of their own kind alone; None
            if all nodes are one kind.
        mask: As for `propagate`.
        weight: As for `propagate`.
        pattern: As for `propagate`.
        method: `dense` computes all nodes and is differentiable, in the constants too where they
            are tensors; `frontier` follows the edges of
            active nodes only, in time that does not depend on N but for the answer itself; `auto`
            decides by the number of active nodes and takes `dense` when a gradient is asked for,
            or something differs between rows. The results agree to rounding.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, constants out of range, unknown
            names, or through `frontier` a gradient or something that differs between rows.
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
            "activation: expected a dense one and method 'dense' for "
            f"{'a gradient' if differentiable else 'what differs between rows'}, got "
            f"{'SparseRows' if sparse else repr(method)}; "
            f"{'change it or detach' if differentiable else 'change it, or one call a setting'}"
        )
    if mask is not None:
        do = "expand it as the activation, compare or call .bool()"
        check_tensor("mask", mask, "bool", activation.shape, do, device=graph.device)
    small = graph.num_nodes < _FRONTIER_FROM
    if start.is_cuda:  # a few launches a round, where the frontier has many and waits for each
        small = not sparse or activation.shape[0] * graph.num_nodes <= _FEW_VALUES
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
    """What happens to what a node received; `docs/mathematics.md` 4.

    Attributes:
        inhibition, top: Strength and size of the lateral inhibition; the number 0 leaves it out.
        firing: What nodes fire, as for `spread_activation`.
        gain, threshold: Of the sigmoid.
        spare: The place of the node that keeps half of what it has; 0: no such node.
        kind: Which nodes are of the one kind, and which of the other.
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
        """Whether there is inhibition; a tensor is taken to be not 0, without looking at it."""
        return isinstance(self.inhibition, Tensor) or self.inhibition != 0

    @property
    def strongest(self) -> int:
        """Number of the strongest nodes that say how much is inhibited."""
        return max(self.top, self.spare)

    @property
    def once(self) -> bool:
        """Whether nothing happens to what a node received but after the last round."""
        return not isinstance(self.firing, Tensor) and self.firing == "once"

    @property
    def marks(self) -> bool:
        """Whether a node that activation has reached fires something even if it has 0."""
        return isinstance(self.firing, Tensor) or self.firing == "sigmoid"

    def of_nodes(self, nodes: Tensor) -> Rule:  # [n] int64, or [B, n]
        """The same rule for some nodes alone."""
        return self if self.kind is None else replace(self, kind=self.kind[nodes])

    def plain(self) -> Rule:
        """The same rule; what all rows do, or none does, is not asked of each. Looks at values."""
        inhibition, firing = self.inhibition, self.firing
        if isinstance(inhibition, Tensor) and inhibition.dim() and not inhibition.any():
            inhibition = 0.0
        if isinstance(firing, Tensor) and (firing.all() or not firing.any()):
            firing = "sigmoid" if firing.any() else "linear"
        return replace(self, inhibition=inhibition, firing=firing)

    def inhibited(self, u: Tensor) -> Tensor:
        """`[B, N]` after lateral inhibition."""
        if not self.inhibits:
            return u
        if self.kind is None:
            found = self._inhibited(u)
        else:  # what is not of a kind is 0 in its row, where it neither inhibits nor is left
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
        """What reached nodes fire, written over u unless a gradient needs u."""
        if not isinstance(self.firing, Tensor) and self.firing == "linear":
            return u
        gain, threshold = _column(self.gain), _column(self.threshold)
        if self.firing in ("zeroed", "once"):
            # sigmoid(g (u - t)) - sigmoid(-g t), as a product that is exactly 0 for 0.
            fired = torch.sigmoid(gain * (u - threshold)) * -torch.expm1(-gain * u)
            silent = torch.as_tensor(gain * threshold, dtype=u.dtype, device=u.device)
            return fired * torch.sigmoid(silent)
        if isinstance(self.firing, Tensor):
            return torch.where(self.firing[:, None], torch.sigmoid(gain * (u - threshold)), u)
        if needs_gradient(u, gain, threshold):
            return torch.sigmoid(gain * (u - threshold))
        return u.sub_(threshold).mul_(gain).sigmoid_()

    def received(self, u: Tensor) -> Tensor:
        """Activation that nodes make of what they received in a round."""
        return u if self.once else self.fired(self.inhibited(u))

    def ended(self, a: Tensor) -> Tensor:
        """Activation that is left after the last round."""
        return self.fired(self.inhibited(a)) if self.once else a


def _sparing(u: Tensor, strength: float | Tensor, top: int, spare: int) -> Tensor:  # [B]
    """The largest strength up to the one given that leaves the `spare`-th strongest half of it.

    Node m keeps u_m - s sum_k max(u_k - u_m, 0) over the `top` strongest, which is half of u_m at
    s = u_m / 2 sum_k max(u_k - u_m, 0). Where fewer nodes are active the last of them counts.
    """
    length = u.shape[1]
    strongest = u.topk(min(max(top, spare), length), dim=1).values
    active = (strongest[:, : min(spare, length)] > 0).sum(1, keepdim=True)
    last = strongest.gather(1, (active - 1).clamp(min=0))
    above = (strongest[:, : min(top, length)] - last).clamp(min=0).sum(1)
    free = torch.where(above > 0, last[:, 0] / (2 * above).clamp(min=1e-30), torch.inf)
    return torch.minimum(free, torch.as_tensor(strength, dtype=u.dtype, device=u.device))


def _wide(value: object, dims: int = 1) -> bool:
    """Whether it has something for each row."""
    return isinstance(value, Tensor) and value.dim() == dims


_Value = TypeVar("_Value")


def _column(value: _Value) -> _Value | Tensor:  # [B] -> [B, 1]
    return value[:, None] if isinstance(value, Tensor) and value.dim() == 1 else value


@dataclass(frozen=True)
class _Rows:
    """What may differ between the rows of a batch; see `spread_activation`."""

    rounds: int | Tensor
    retention: float | Tensor
    spread: float | Tensor
    fan: Fan | Tensor
    rule: Rule
    mask: Tensor | None
    pattern: Tensor | None

    def part(self, rows: Tensor) -> _Rows:  # [b] int64
        """Of some rows."""

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
    """Dense rounds of rows that differ: on a device all at once, on a CPU as the cache has room.

    On a CPU rows of one pattern go together, over the edges that it has.
    """
    if differentiable or activation.is_cuda:
        return _rounds_of(graph, activation, rows, weight, reduce)
    questions, nodes = activation.shape
    order, ends = torch.arange(questions), [questions]
    inhibited = _wide(rows.rule.inhibition) and rows.rule.inhibition != 0
    for kind in (inhibited, rows.rule.firing, rows.rounds):  # alike ones together
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
    touched: Tensor,  # [B, N] bool: what activation has reached so far
    rounds: int | Tensor,  # or [B]
    rule: Rule,
    *,
    ends: bool = True,
) -> Tensor:  # [B, N]
    """`rounds` rounds over all nodes; nodes that were never reached stay exactly 0.

    The numbers of rounds in a tensor are looked at, which waits for the device.

    Args:
        step: Propagation.
        activation: What the nodes have.
        touched: What activation has reached so far.
        rounds: How often.
        rule: What happens to what a node received.
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
    """`spread_activation` in time and memory of the edges that leave active nodes; no gradient.

    `scale` says what a unit of activation at a node sends along each of its edges, `maximum`
    whether the largest of what arrives counts, not the sum. Given `step`, a dense round of
    propagation, it goes on with that as soon as it is cheaper than `followed_cost` nanoseconds an
    edge, with dense matrices of `dense_values`; by default as many as the device takes and has room
    for.
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
    rule = rule.of_nodes(state.column[place.clamp(min=0)])
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
