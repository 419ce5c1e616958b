"""Influence: the score of an atom without each other memory, as defined in `index.explain`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.index.activation import (
    brought_from,
    competing_kinds,
    conducting_nodes,
    fan_of,
    start_of,
    started_from,
)
from graphmem_torch.index.execution_plan import ExecutionPlan
from graphmem_torch.index.shortlist import traversed
from graphmem_torch.ops import SparseRows
from graphmem_torch.ops.spread import INHIBITORS, Rule
from graphmem_torch.ops.spread_without import spread_without
from graphmem_torch.ops.tiles import tile_elements
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.hops import HopPairs
from graphmem_torch.rank.lifts import Heights, raises
from graphmem_torch.rank.paths import hop_discount
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.reached import Reached

__all__ = ["influence_of", "reversed_edges"]

_TILE = 1 << 24  # maximum size of a mask of left-out memories by nodes on a CPU
_REACH = 3  # turns on both sides of a window

# Signals of a text alone, which other signals read at other turns or which choose anchors.
_APART = ("semantic", "lexical", "lexical_unread", "lexical_session", "late", "named")
_DERIVED = ("interaction_focus", "interaction_sharp", "semantic_positive", "lexical", "semantic")


def reversed_edges(graph: Graph, weight: Tensor) -> Graph:  # [E], weights of the original edges
    """Reverse all edges and replace their weights: edge i is `graph.out_edge[i]`."""
    order = graph.out_edge.long()
    place = torch.arange(len(order), dtype=torch.int32, device=order.device)
    return Graph(
        graph.out_indptr,
        graph.target[order],
        graph.source[order],
        weight[order],
        graph.type[order],
        graph.indptr,
        torch.empty_like(place).index_copy_(0, order, place),
        graph.num_nodes,
    )


class _Watched(Candidates):
    """Candidates that record which signals read other atoms, and values compared in sessions."""

    def __init__(self, of: Candidates, rows: Tensor) -> None:  # [1, C]
        super().__init__(of.memory, of.query, of.config, rows)
        self.looking: set[str] = set()
        self.comparing: set[str] = set()
        self.compared: list[Tensor] = []
        self._asked: list[str] = []

    def signal(self, name: str) -> Tensor:
        self._asked.append(name)
        known = name in self.looking
        value = super().signal(name)
        self._asked.pop()
        if known:
            self._look()
        return value

    def _look(self) -> None:
        self.looking.update(self._asked)

    def step(self, values: Tensor, distance: int) -> Tensor:
        self._look()
        return super().step(values, distance)

    def widest(self, reach: int) -> Tensor:
        if reach:
            self._look()
        return super().widest(reach)

    def session_max(self, values: Tensor) -> Tensor:
        self._look()
        self.comparing.update(self._asked)
        self.compared.append(values)
        return super().session_max(values)


def influence_of(
    found: Candidates,
    plan: ExecutionPlan,
    weights: Tensor,  # [3, F]
    rows: Tensor,  # [C] int64, the candidates of the question, -1 = padding
    place: Tensor,  # [], place of the atom in `rows`
) -> Tensor:  # [A]
    """Return the score of an atom minus its score without each other atom."""
    there = found.valid.expand(found.shape)[0].clone()
    there[place] = True  # even if it may be no hit
    without = _Without(found, plan, weights, rows, there.nonzero().squeeze(1), int(rows[place]))
    influence = weights.new_zeros(found.memory.num_atoms)
    nodes = max(1, found.memory.graph.num_nodes)
    height = max(1, tile_elements(weights.device, _TILE) // nodes)
    for part in without.mattering().split(height):
        scores = without.scores(torch.cat([part.new_full((1,), -1), part]))
        influence[part] = scores[0] - scores[1:]
    return influence


class _Without:
    """Score of one atom without others: the parts of C candidates that stay, and changes to them.

    Signals of other candidates change only where they read the memory that is left out: in the
    turns around it, and in its session if it was the best there. Base scores choose the anchors.
    Activation spreads again only if the anchors change or it passes the memory. The memories that
    are left out are the batch axis.
    """

    def __init__(
        self,
        found: Candidates,
        plan: ExecutionPlan,
        weights: Tensor,  # [3, F]
        rows: Tensor,  # [*] int64, the candidates of `found`
        kept: Tensor,  # [C], places of the allowed ones
        row: int,
    ) -> None:
        self.found, self.plan, self.weights = found, plan, weights
        self.rows, self.row = rows[kept], row
        self.own = int(torch.searchsorted(self.rows, row))
        memory = found.memory
        self.sources = memory.derived_source[memory.derived_target == row].long()
        self.base = [*plan.base]
        # The share of `hop` follows from the base scores of atom and anchors.
        self.graph = [plan.names[i] for i in plan.places(graph=True) if plan.names[i] != "hop"]
        self.form, self.amid = (
            each.expand(found.shape)[0, kept] for each in (found.form, found.amid)
        )
        self.whole = _Watched(found, self.rows[None])
        if found.__dict__.get("matches") is not None:
            self.whole.matches = found.__dict__["matches"][:, :, kept]
        for name, value in found._signals.items():
            if name in _APART:
                self.whole._signals[name] = value.expand(found.shape)[:, kept]
        values = [self.whole.signal(name).expand(1, len(self.rows)) for name in self.base]
        self.looking = [name for name in self.base if name in self.whole.looking]
        everyone = torch.arange(len(self.rows), device=self.rows.device)[None]
        self.score = self._weighed(values, self.base, everyone)  # [1, C]
        self.named = self.score.new_zeros(len(self.rows))
        if memory.hops is not None and plan.starts:
            self.named = self.whole.signal("named").expand(1, len(self.rows))[0]
        self.started = self._start(self._asked(self.rows.new_full((1,), -1)), self.score)
        anchors = self.started.anchors
        known = self.rows[:0] if anchors is None else anchors[0][anchors[0] >= 0]
        led = self.score[0] + found.config.anchors.named * self.named
        self.least = led[self._place(known)].amin() if len(known) else -torch.inf
        self.passed = self._passed()

    def mattering(self) -> Tensor:  # [M] int64 rows
        """Return the memories that may change the score: candidates and those passed."""
        rows = torch.cat([self.rows, self.passed.nonzero().squeeze(1)]).unique()
        return rows[rows != self.row]

    def scores(self, left: Tensor) -> Tensor:  # [M] int64 rows, the first is -1, none -> [M]
        """Return the score without each memory."""
        query = self._asked(left)
        base, moved = self._base(left, query)
        score = base[:, self.own]
        if not self.plan.places(graph=True):
            return score
        moved = self._moved(left, moved)
        still = ((left < 0) | self.passed[left]) & ~moved
        brought = torch.empty_like(score)
        some = still.nonzero().squeeze(1)
        if len(some):
            part = query.rows(some)
            found = self._brought(part, self._as_started(part), left[some])
            brought[:] = found[0]  # memories that activation does not pass change nothing
            brought[some] = found
        if self.plan.lifts:
            same = (~moved).nonzero().squeeze(1)
            part = query.rows(same)
            brought[same] += self._raised(part, self._as_started(part), base[same])
        some = moved.nonzero().squeeze(1)
        if len(some):
            part = query.rows(some)
            started = self._start(part, base[some])
            brought[some] = self._brought(part, started)
            if self.plan.lifts:
                brought[some] += self._raised(part, started, base[some])
        return score + brought

    def _raised(
        self,
        query: QueryBatch,  # M questions
        started: Reached,
        base: Tensor,  # [M, C]
    ) -> Tensor:  # [M]
        """Return the share of hops in the score of the atom without each memory."""
        if started.anchors is None or not started.anchors.shape[1] or not len(query):
            return base.new_zeros(len(query))
        own = self.rows.new_tensor([[self.row]]).expand(len(query), -1)
        last = Candidates(self.found.memory, query, self.found.config, own)
        still = replace(self.plan, walks=False, spreads=False, hops=False)
        lifts = brought_from(last, still, started, None).lifts
        if lifts is None:
            return base.new_zeros(len(query))
        assert isinstance(lifts, HopPairs)
        here = lifts.target == self.row
        lifts = HopPairs(*(part[here] for part in lifts))
        anchor = base.gather(1, self._place(started.anchors))
        anchor = anchor.masked_fill(started.anchors < 0, torch.inf)
        heights = Heights(anchor, base[:, self.own : self.own + 1])
        raised = raises(lifts, heights, torch.zeros_like(lifts.target), here[here])
        weight = self.weights[self.form[self.own], self.plan.names.index("hop")]
        return raised[:, 0] * weight

    def _as_started(self, query: QueryBatch) -> Reached:  # M questions
        """Return the original anchors; a traversal has its own seeds, so it is recomputed."""

        def expanded(one: Tensor | None) -> Tensor | None:
            return None if one is None else one.expand(len(query), -1)

        return Reached(
            expanded(self.started.anchors),
            expanded(self.started.value),
            expanded(self.started.relevance),
            traversal=self._traversed(query) if self.plan.traverses else None,
            named=None if self.started.named is None else self.started.named.expand(len(query)),
        )

    def _moved(self, left: Tensor, looked: Tensor) -> Tensor:  # [M], [M] bool -> [M] bool
        """Return the mask of memories without which the anchors, or their relevance, may change.

        `looked` is the mask of memories that change a base score as high as an anchor's.
        """
        anchors, source = self.started.anchors, self.found.config.anchors.source
        if anchors is None:
            return torch.zeros_like(left, dtype=torch.bool)
        moved = (left[:, None] == anchors).any(1) & (left >= 0)
        if self.started.named is not None:  # a named document strengthens hops
            place = self._place(left)
            first = (self.rows[place] == left) & (self.named[place] >= self.started.named)
            moved |= first & (self.started.named > 0)
        if source != "fused":
            return moved
        if self.plan.walks or "proximity" in self.graph:  # both are relative to all candidates
            return torch.ones_like(moved)
        return moved | looked

    def _weighed(
        self, values: Sequence[Tensor], names: Sequence[str], place: Tensor
    ) -> Tensor:  # F times [b, n], [b or 1, n] -> [b, n]
        """Return the part of the score from some signals, for candidates at some places."""
        if not names:
            return self.weights.new_zeros(values[0].shape if values else (1, len(self.rows)))
        form, amid = self.form[place], self.amid[place]
        stacked = self.found.in_units(torch.stack(list(values), 2), names, amid)
        weights = self.weights[:, [self.plan.names.index(name) for name in names]]
        sums = stacked @ weights.T
        return sums.gather(2, form.expand(sums.shape[:2])[:, :, None]).squeeze(2)

    def _asked(self, left: Tensor) -> QueryBatch:  # M questions
        """Return the question repeated, once without each memory."""
        query = self.found.query.rows(torch.zeros_like(left))
        atoms, allowed = self.found.memory.num_atoms, query.allowed
        if allowed is None:
            allowed = torch.ones(1, atoms, dtype=torch.bool, device=left.device)
        there = torch.nn.functional.pad(allowed.expand(len(left), -1), (0, 1))  # a column for -1
        there[torch.arange(len(left), device=left.device), left] = False
        return replace(query, allowed=there[:, :-1])

    def _base(
        self, left: Tensor, query: QueryBatch
    ) -> tuple[Tensor, Tensor]:  # [M] -> [M, C], [M] bool
        """Return base scores without each memory, and a mask where anchors may change."""
        scores = self.score.expand(len(left), -1).clone()
        moved = torch.zeros_like(left, dtype=torch.bool)
        if not self.looking or not len(self.rows):
            return scores, moved
        place = torch.searchsorted(self.rows, left).clamp(max=len(self.rows) - 1)
        there = (self.rows[place] == left).nonzero().squeeze(1)
        best = self._best_of_session()[place[there]]
        for session, some in ((False, there[~best]), (True, there[best])):
            if len(some):
                part = query.rows(some)
                moved[some] = self._look_again(scores, some, left[some], part, session=session)
        return scores, moved

    def _best_of_session(self) -> Tensor:  # [C] bool
        """Return the candidates without which the maximum of their session may change."""
        found = torch.zeros(len(self.rows), dtype=torch.bool, device=self.rows.device)
        for values in self.whole.compared:
            best = Candidates.session_max(self.whole, values)
            found |= ((values >= best) | (best < 0)).flatten(0, -2).any(0)
        return found

    def _look_again(
        self, scores: Tensor, some: Tensor, left: Tensor, query: QueryBatch, *, session: bool
    ) -> Tensor:  # [m] bool
        """Update the scores [M, C] of candidates that read the left-out memories, in rows [m].

        Returns:
            Mask of rows in which such a candidate is, or was, as high as an anchor.
        """
        memory = self.found.memory
        around = left[:, None]
        windows = [around]
        pointers, second = memory.turns
        row = around[:, None]
        for _ in range(2 * _REACH):
            row = pointers.take(row + second)
            windows.append(row.flatten(1))
        near = torch.cat(windows[: _REACH + 1], 1)
        listed = torch.cat(windows, 1)
        if session:
            members = self._members(self.whole._session[0, self._place(left)])
            listed, near = torch.cat([listed, members], 1), torch.cat([near, members], 1)
        listed = listed.where(self.rows[self._place(listed)] == listed, -1)
        listed = listed.sort(dim=1).values
        twice = torch.nn.functional.pad(listed[:, 1:] == listed[:, :-1], (1, 0))
        listed = listed.masked_fill(twice, -1).sort(dim=1).values
        place = self._place(listed)
        other = Candidates(memory, query, self.found.config, listed)
        for name, value in self.whole._signals.items():
            if name not in self.whole.looking:
                other._signals[name] = value.expand(1, -1)[0, place]
        matches = self.whole.__dict__.get("matches")
        if matches is not None:
            other.matches = matches[0][:, place].transpose(0, 1)
        # The maximum of a session does not depend on a lower value.
        looking = [name for name in self.looking if session or name not in self.whole.comparing]
        if not looking:
            return torch.zeros_like(left, dtype=torch.bool)
        values = [other.signal(name) for name in looking]
        known = [self.whole.signal(name)[0, place] for name in looking]
        change = self._weighed(values, looking, place)
        change = change - self._weighed(known, looking, place)
        looks = (listed[:, :, None] == near[:, None]).any(2) & (listed >= 0)
        change = change.where(looks & other.valid, 0.0)
        scores.index_put_((some[:, None], place), change, accumulate=True)
        before = self.score[0, place] + self.found.config.anchors.named * self.named[place]
        highest = torch.maximum(before, before + change)
        return ((change != 0) & (highest >= self.least)).any(1)

    def _members(self, session: Tensor) -> Tensor:  # [m] -> [m, s] rows, -1 = none
        """Return the candidates of sessions."""
        ordered, order = self.whole._session[0].sort()
        first = torch.searchsorted(ordered, session)
        count = torch.searchsorted(ordered, session, right=True) - first
        place = first[:, None] + torch.arange(int(count.max()), device=first.device)
        inside = place < (first + count)[:, None]
        return self.rows[order[place.clamp(max=len(order) - 1)]].where(inside, -1)

    def _place(self, rows: Tensor) -> Tensor:
        """Return the places of rows in the candidates, or their insertion points."""
        return torch.searchsorted(self.rows, rows).clamp(max=max(0, len(self.rows) - 1))

    def _start(self, query: QueryBatch, base: Tensor) -> Reached:  # M questions, [M, C]
        """Return the anchors without each memory."""
        plan, found = self.plan, self.found
        traversal = self._traversed(query) if plan.traverses else None
        if not plan.starts:
            return Reached(traversal=traversal)
        many = Candidates(found.memory, query, found.config, self.rows.expand(len(query), -1))
        for name in _APART:
            if name in self.whole._signals:
                many._signals[name] = self.whole._signals[name].expand(len(query), -1)
        many.base_scores = base
        return replace(started_from(many, plan), traversal=traversal)

    def _traversed(self, query: QueryBatch) -> SparseRows | None:
        everyone = Candidates(self.found.memory, query, self.found.config)
        whole = self.found._every or self.found
        everyone._signals["semantic"] = whole.signal("semantic").expand(len(query), -1)
        found = traversed(everyone, conducting_nodes(self.found.memory, query)).traversal
        assert not isinstance(found, Tensor)  # shapes are never fixed here
        return found

    def _passed(self) -> Tensor:  # [A] bool
        """Return atoms that activation passes from the anchors, and those derived from the atom."""
        plan, memory, reached = self.plan, self.found.memory, self.started
        passed = torch.zeros(memory.num_atoms, dtype=torch.bool, device=self.rows.device)
        passed[self.sources] = True
        if plan.traverses:
            passed.fill_(True)  # any of them may be a seed
        if not plan.spreads or reached.anchors is None or reached.value is None:
            return passed
        query = self.found.query
        start = start_of(memory, query, reached.anchors, reached.value)
        mask = conducting_nodes(memory, query)
        hops = plan.config.spread.rounds
        near = hop_discount(memory.graph, start.column[None], hops=hops, discount=1.0, mask=mask)
        if not plan.config.spread.inhibition:  # inhibition affects all reached nodes
            near = near.select(self._leading(hops, mask)[near.column])
        passed[memory.of_atoms(near).column] = True
        return passed

    def _leading(self, hops: int, mask: Tensor | None) -> Tensor:  # [N] bool
        """Return the nodes from which at most `hops` edges lead to the atom."""
        memory, graph = self.found.memory, self.found.memory.graph
        back = reversed_edges(graph, graph.weight)
        goal = memory.nodes(self.rows.new_tensor([[self.row]]))
        leading = torch.zeros(graph.num_nodes, dtype=torch.bool, device=goal.device)
        leading[hop_discount(back, goal, hops=hops, discount=1.0, mask=mask).column] = True
        return leading

    def _brought(
        self,
        query: QueryBatch,  # M questions
        started: Reached,
        left: Tensor | None = None,  # [M] int64 rows, -1 = none
    ) -> Tensor:  # [M]
        """Return the part of the atom's score from graph signals without each memory.

        `left` names the memories if `started` is the same for all of them.
        """
        found, count = self.found, len(query)
        own = self.rows.new_tensor([self.row])
        wanted = torch.cat([self.sources, own]).unique()
        place = self._place(wanted)
        here = self.rows[place] == wanted
        wanted, place = wanted[here], place[here]
        # Keep only the derivations from this atom.
        memory = copy.copy(found.memory)
        for name, column in (("source", self.sources), ("target", own.expand(len(self.sources)))):
            object.__setattr__(memory, f"derived_{name}", column)
        last = Candidates(memory, query, found.config, wanted.expand(count, -1))
        for name in (*self.base, *_DERIVED):
            known = self.whole.signal(name).expand(1, -1)[:, place]
            last._signals[name] = known.expand(count, -1)
        last.reached = started
        if started.anchors is not None:
            spreads = self.plan.spreads and left is None
            # The gate would spread activation once more, and is not read here.
            plan = replace(self.plan, walks=False, lifts=False, spreads=spreads, statistics=())
            mask = conducting_nodes(memory, query) if plan.spreads else None
            last.reached = started
            if self.plan.walks:
                walk = replace(self.plan, spreads=False, hops=False, lifts=False)
                started = brought_from(last, walk, started, conducting_nodes(memory, found.query))
            last.reached = brought_from(last, plan, started, mask, dense=True)
            if self.plan.spreads and left is not None:
                last.reached = replace(last.reached, activation=self._spread(left, wanted))
        at = int((wanted == self.row).nonzero()[0])
        values = [last.signal(name).expand(count, -1)[:, at : at + 1] for name in self.graph]
        if not values:
            return self.weights.new_zeros(count)
        return self._weighed(values, self.graph, wanted.new_tensor([[self.own]]))[:, 0]

    def _spread(self, left: Tensor, wanted: Tensor) -> Tensor:  # [M] rows, [W] rows -> [M, A]
        """Return the activation of some atoms without each memory, from the same anchors."""
        memory, query, plan = self.found.memory, self.found.query, self.plan
        anchors, value = self.started.anchors, self.started.value
        assert anchors is not None and value is not None
        s, constants = plan.config.spread, plan.constants
        mask = conducting_nodes(memory, query)
        found = value.new_zeros(len(left), memory.num_atoms)
        found[:, wanted] = spread_without(
            memory.graph,
            start_of(memory, query, anchors, value).to_dense()[0],
            memory.nodes(left),
            memory.nodes(wanted),
            rounds=s.rounds,
            retention=constants["retention"],
            spread=constants["spread"],
            reduce=s.reduce,
            fan=fan_of(memory, s),
            rule=Rule(
                inhibition=constants.get("inhibition", 0.0),
                top=INHIBITORS,
                firing=s.firing,
                gain=constants.get("gain", 1.0),
                threshold=constants.get("threshold", 0.0),
                spare=s.spare,
                kind=competing_kinds(memory, s),
            ),
            mask=None if mask is None else mask[0],
        )
        return found
