"""spread_without: activation of a few nodes, leaving out each of many other nodes in turn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.ops.propagate import Fan, fan_scale, propagate
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.spmm import Reduce, spmm
from graphmem_torch.ops.spread import Rule, dense_rounds

__all__ = ["spread_without"]

_CACHED = 1 << 19  # values of the middle rounds processed at once
_SLACK = 1e-4  # maximum relative rounding between a bound and the bounded value


def spread_without(
    graph: Graph,  # N nodes; weights >= 0
    activation: Tensor,  # [N], >= 0
    left: Tensor,  # [M] int64 nodes, -1 = none
    wanted: Tensor,  # [W] int64 nodes
    *,
    rounds: int,
    retention: float | Tensor,  # or []
    spread: float | Tensor,  # or []
    reduce: Reduce,
    fan: Fan | Tensor,  # or [N]
    rule: Rule,
    mask: Tensor | None = None,  # [N] bool
) -> Tensor:  # [M, W]
    """Run `spread_activation` at W nodes; in each row, one more node may not receive.

    Gives the same numbers up to rounding in less time. A left-out node that starts at 0 and is not
    among the strongest changes only itself in the first round, which therefore runs once. In the
    second round, what it would have sent is subtracted. The last round runs only at the wanted
    nodes and at nodes that may be among the strongest of a row. Has no gradient.

    Args:
        graph: Edges carry activation from `source` to `target`.
        activation: Activation at the start of every row.
        left: Node left out of each row; it keeps what it retains, and receives nothing.
        wanted: Nodes whose activation is returned.
        rounds: See `spread_activation`.
        retention: See `spread_activation`.
        spread: See `spread_activation`.
        reduce: See `spread_activation`.
        fan: See `spread_activation`.
        rule: Inhibition and firing.
        mask: Nodes that may receive, in every row; all by default.
    """
    if not rounds or not len(left):
        return activation[wanted].expand(len(left), -1)
    own = _Rounds(graph, retention, spread, reduce, fan, rule, mask)
    return own.last(own.but_the_last(activation, left, rounds - 1), left, wanted)


@dataclass(frozen=True)
class _Rounds:
    """Rounds of spreading that leave one node out of each row."""

    graph: Graph
    retention: float | Tensor
    spread: float | Tensor
    reduce: Reduce
    fan: Fan | Tensor  # or [N]
    rule: Rule
    mask: Tensor | None

    def step(self, a: Tensor, mask: Tensor | None) -> Tensor:  # [m, N], [m, N] -> [m, N]
        """Run `propagate`."""
        return propagate(
            self.graph,
            a,
            retention=self.retention,
            spread=self.spread,
            reduce=self.reduce,
            fan=self.fan,
            mask=mask,
        )

    def whole(self, a: Tensor, left: Tensor, count: int) -> Tensor:  # [m, N], [m] -> [m, N]
        """Run `count` rounds over all edges, as many rows at once as the cache holds."""
        height, found = max(1, _CACHED // max(1, a.shape[1])), torch.empty_like(a)
        for part, out, some in zip(*(t.split(height) for t in (a, found, left)), strict=True):
            there = torch.ones_like(part, dtype=torch.bool)
            there = there if self.mask is None else there & self.mask
            rows = (some >= 0).nonzero().squeeze(1)
            there[rows, some[rows]] = False
            # Activation has reached the nodes where it is nonzero, since a sigmoid is never 0.
            step = partial(self.step, mask=there)
            out.copy_(dense_rounds(step, part, part != 0, count, self.rule, ends=False))
        return found

    def but_the_last(self, activation: Tensor, left: Tensor, count: int) -> Tensor:
        """Run `count` rounds from the activation shared by all rows: [N], [M] -> [M, N]."""
        if not count:
            return activation.repeat(len(left), 1)
        a, mask = activation[None], None if self.mask is None else self.mask[None]
        u = self.step(a, mask)
        weighs = activation != 0
        if self.rule.inhibits and not self.rule.once:
            for own in self.rivals():
                weighs[own[u[0, own].topk(min(self.rule.strongest, len(own))).indices]] = True
        rows = (left >= 0).nonzero().squeeze(1)
        once = dense_rounds(lambda _: u, a, a != 0, 1, self.rule, ends=False)[0]
        if count == 1 or self.reduce == "max":
            found = once.repeat(len(left), 1)
            found[rows, left[rows]] = 0.0
            found = self.whole(found, left, count - 1) if count > 1 else found
        else:
            found = self.whole(self.second(once, left), left, count - 2)
        apart = rows[weighs[left[rows]]]
        found[apart] = self.whole(activation.repeat(len(apart), 1), left[apart], count)
        return found

    def second(self, once: Tensor, left: Tensor) -> Tensor:  # [N], [M] -> [M, N]
        """Run a round of sums from rows that differ only in the node they leave out."""
        graph, nodes = self.graph, len(once)
        a, mask = once[None], None if self.mask is None else self.mask[None]
        rows = (left >= 0).nonzero().squeeze(1)
        own = left[rows]
        u = self.step(a, mask)
        # Count senders: a node that loses its last sender has exactly 0, without rounding errors.
        sends = (once[graph.source] > 0) & (graph.weight > 0)
        senders = torch.bincount(graph.target, sends.to(once.dtype), minlength=nodes)
        found, reached = u.repeat(len(left), 1), (u != 0).repeat(len(left), 1)
        first, count = graph.spans(own)
        row, place = ranges(first, count)
        edge = graph.leaving(place).long()
        live = sends[edge] if self.mask is None else sends[edge] & self.mask[graph.target[edge]]
        row, edge = row[live], edge[live]
        key, group = (rows[row] * nodes + graph.target[edge]).unique(return_inverse=True)
        scale = fan_scale(graph, self.spread, self.fan, once.dtype)[own[row]]
        sent = torch.bincount(group, once[own[row]] * scale * graph.weight[edge], len(key))
        target = key % nodes
        kept = self.retention * once[target]
        alone = torch.bincount(group, minlength=len(key)) == senders[target]
        less = torch.maximum(u[0, target] - sent.to(once.dtype), kept).where(~alone, kept)
        found.view(-1)[key] = less
        reached.view(-1)[key] = ~alone | (less != 0)
        found[rows, own], reached[rows, own] = 0.0, False
        height = max(1, _CACHED // max(1, nodes))
        for part, there in zip(found.split(height), reached.split(height), strict=True):
            part.copy_(dense_rounds(torch.clone, part, there, 1, self.rule, ends=False))
        return found

    def last(self, a: Tensor, left: Tensor, wanted: Tensor) -> Tensor:  # [M, N], [M], [W] -> [M, W]
        """Run the last round at the wanted nodes."""
        graph, columns = self.graph, wanted
        if self.rule.inhibits:
            columns = torch.cat([wanted, self.contenders(a, left)])
        columns = columns.unique()
        first, count = graph.indptr[columns], graph.indptr.diff()[columns]
        column, edge = ranges(first, count)
        scale = fan_scale(graph, self.spread, self.fan, a.dtype)
        weight = graph.weight[edge] * scale[graph.source[edge]]
        kept = self.retention * a[:, columns]
        closed = left[:, None] == columns
        closed = closed if self.mask is None else closed | ~self.mask[columns]
        if self.reduce == "max":
            indptr = torch.nn.functional.pad(count.cumsum(0, dtype=first.dtype), (1, 0))
            sender, place = graph.source[edge].unique(return_inverse=True)
            panel = a[:, sender].t().contiguous()
            received = spmm(indptr, place.to(first.dtype), weight, panel, reduce="max").t()
            u = torch.maximum(kept, received.masked_fill(closed, -torch.inf))
        else:
            matrix = a.new_zeros(a.shape[1], len(columns))
            matrix.index_put_((graph.source[edge].long(), column.long()), weight, accumulate=True)
            u = kept + (a @ matrix).masked_fill_(closed, 0.0)
        rule = self.rule.of_nodes(columns)
        found = dense_rounds(lambda _: u, kept, a[:, columns] != 0, 1, rule)
        return found[:, torch.searchsorted(columns, wanted)]

    def contenders(self, a: Tensor, left: Tensor) -> Tensor:  # [M, N], [M] -> [n] int64
        """Return the nodes that may be among the strongest of some row after propagation.

        The upper bound of a node uses the largest value of each sender over all rows. The lower
        bound uses the smallest value over the rows that keep the sender, less one sender.
        """
        mask = None if self.mask is None else self.mask[None]
        above = self.step(a.amax(0, keepdim=True), mask)[0]
        rows = (left >= 0).nonzero().squeeze(1)
        own = a[rows, left[rows]]
        a[rows, left[rows]] = torch.inf
        least = a.amin(0, keepdim=True)
        a[rows, left[rows]] = own
        least = least.where(least < torch.inf, 0.0)
        if self.reduce == "max":
            below = (self.retention * least)[0]
        else:
            one = propagate(
                self.graph, least, retention=0.0, spread=self.spread, reduce="max", fan=self.fan
            )
            below = (self.step(least, mask) - one)[0]
        found = []
        for own in self.rivals():
            # One more than needed, because the left-out node may be one of them.
            count = min(self.rule.strongest + 1, len(own))
            least = below[own].topk(count).values
            bar = least[-1] * (1 - _SLACK) if count > self.rule.strongest else 0.0
            found.append(own[(above[own] >= bar) & (above[own] > 0)])
        return torch.cat(found)

    def rivals(self) -> list[Tensor]:  # each [n] int64
        """Return the nodes of each kind, inside which they inhibit each other."""
        kind = self.rule.kind
        if kind is None:
            return [torch.arange(self.graph.num_nodes, device=self.graph.device)]
        return [own.nonzero().squeeze(1) for own in (kind, ~kind)]
