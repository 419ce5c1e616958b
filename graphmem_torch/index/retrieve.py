"""Retrieval, stage by stage: candidates, anchors, what the graph brings, scores, abstention, paths.

Functions over values; `MemoryIndex.forward` hands them its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from graphmem_torch.checks import needs_gradient
from graphmem_torch.config import Config, SpreadConfig
from graphmem_torch.graph import Graph
from graphmem_torch.modes.search import search_modes
from graphmem_torch.ops import SparseRows, spread_activation
from graphmem_torch.ops.propagate import Fan
from graphmem_torch.ops.tiles import numbers_on, stable_topk
from graphmem_torch.rank.abstention import DEPTH, abstention_statistics, confidence
from graphmem_torch.rank.anchors import (
    anchor_activation,
    anchor_relevance,
    traversal_seeds,
    walk_from,
)
from graphmem_torch.rank.calibration import read_statistics
from graphmem_torch.rank.candidates import Candidates, MemoryTensors, Reached, merge_rows
from graphmem_torch.rank.hops import (
    HopPairs,
    bridges,
    dense_entity_hop,
    dense_hop_lifts,
    dense_title_hop,
    entity_hop,
    hop_lifts,
    largest_lifts,
    title_hop,
)
from graphmem_torch.rank.lifts import led_from
from graphmem_torch.rank.paths import discounted, hop_discount, strongest_paths, unweighted
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import SIGNALS, reading, signal_names, weight_table

__all__ = [
    "CONSTANTS",
    "OF_HITS",
    "CandidateRule",
    "Plan",
    "Ranked",
    "Retrieval",
    "Stages",
    "TraversalSteps",
    "brought_from",
    "by_tier",
    "candidates_of",
    "competing_kinds",
    "conducting_nodes",
    "fan_of",
    "paths_to",
    "ranked",
    "reached_from",
    "retrieve",
    "spread_from",
    "start_of",
    "traversed",
]

CONSTANTS = ("retention", "spread", "inhibition", "gain", "threshold")
"""The constants of `spread` that a gradient flows back to."""

OF_HITS = ("rows", "scores", "shares", "place", "paths", "hops")
"""The columns of `Retrieval` that have an entry for each hit."""

Rows = TypeVar("Rows", Tensor, SparseRows)

_CARRIED = 0.05  # share of what speaks for a hit, above which it is known where a hop came from
_EXTRA = 32  # atoms that only the graph brought, added to the candidates of a large store
_HALO_SHARE = 6  # one of so many candidates brings its neighbours along
_REACH = 2  # turns on both sides
_RUNS, _RUN = 8, 8  # of the background: 64 atoms tell a deviation to about a tenth


class Retrieval(NamedTuple):
    """What `MemoryIndex.forward` returns, best first; k is at most the number of candidates.

    Attributes:
        rows: [B, k] int64 atom rows, -1 where there were fewer than k.
        scores: [B, k] float32 hybrid scores, -inf where rows is -1.
        shares: [B, k, F] float32, each signal's share of the score, in the order of `signal_names`.
        place: [B, k] int64, the place of each hit in the ranking, from 0.
        confidence: [B] float32 in [0, 1].
        statistics: [B, S], `Plan.read` of the ranking.
        anchors: [B, K] int64 rows where activation started, -1 = none.
        anchor_activation: [B, K] float32.
        paths: [B, k, T] int64, the edges that brought most activation to each row, from the anchor
            on, as `MemoryIndex.graph.stored` numbers them, -1 = none; T = 0 unless paths were asked
            for.
        hops: [B, k, 3] int64, the row of the anchor whose hop raises each hit the most, and the
            numbers of the entities that lead there (`rank.hops.bridges`), -1 = none; known only if
            paths were asked for, and of hops that bring more than 5 % of what speaks for the hit.
    """

    rows: Tensor
    scores: Tensor
    shares: Tensor
    place: Tensor
    confidence: Tensor
    statistics: Tensor
    anchors: Tensor
    anchor_activation: Tensor
    paths: Tensor
    hops: Tensor


class Stages:
    """How long the stages of a batch of questions took, and how much they looked at.

    Attributes:
        seconds: By stage, in their order; wall clock, once the device is done.
        candidates: Of each question, those that there are for it.
        activated: Atoms that activation reached, of each question; None where none spread.
    """

    def __init__(self) -> None:
        """Begins the clock of the first stage."""
        self.seconds: dict[str, float] = {}
        self.candidates: list[int] = []
        self.activated: list[int | None] = []
        self._last = perf_counter()

    def done(self, stage: str) -> None:
        """Ends a stage; one that comes again, as for the next tile of questions, adds up."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        now = perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def looked_at(self, found: Candidates) -> None:
        """Counts what a tile of questions looked at."""
        count = len(found.query)
        self.candidates += found.valid.sum(1).expand(count).tolist()
        activation = found.reached.activation
        if activation is None:
            self.activated += [None] * count
            return
        rows = (
            activation if isinstance(activation, SparseRows) else SparseRows.from_dense(activation)
        )
        self.activated += torch.bincount(rows.row, minlength=count).tolist()


class CandidateRule(Enum):
    """Which atoms a question is held against."""

    EVERY = "every atom"
    BASE = "the best by cosine and by BM25, their neighbours, and what the graph reaches"
    MODES = "the best atoms of the best modes"
    REACHED = "what a traversal reaches"

    @classmethod
    def of(cls, config: Config, atoms: int, *, modes: bool) -> CandidateRule:
        """The rule of a memory of so many atoms, with or without modes."""
        if config.segment.retrieve:
            return cls.REACHED
        if config.modes.retrieve and modes:
            return cls.MODES
        return cls.BASE if atoms > config.rank.dense_limit else cls.EVERY


@dataclass(frozen=True)
class Plan:
    """What a question takes, decided once for an index.

    Attributes:
        config: The settings.
        names: F signals of the score.
        rule: What the candidates are.
        traverses: Whether a question walks from its seeds.
        hops: Whether a signal reads where hops lead.
        lifts: Whether a signal reads what hops raise.
        activates: Whether another signal reads the graph, and there is one to spread over.
        walks: Whether one of these reads where a walk from the anchors is.
        spreads: Whether activation is of use; beside a walk only where a signal or the
            abstention reads it.
        statistics: Statistics that abstention reads.
        gate: [3, .], their weights by form.
        read: S of them, also those that calibration reads; those of abstention come first.
        constants: Those of the propagation that the settings use, by the names in `CONSTANTS`:
            numbers, or tensors [].
    """

    config: Config
    names: tuple[str, ...]
    rule: CandidateRule
    traverses: bool
    hops: bool
    lifts: bool
    activates: bool
    walks: bool
    spreads: bool
    statistics: tuple[str, ...]
    gate: Tensor
    read: tuple[str, ...]
    constants: Mapping[str, float | Tensor]

    @property
    def starts(self) -> bool:
        """Whether anything starts at anchors."""
        return self.activates or self.hops or self.lifts

    @property
    def base(self) -> tuple[str, ...]:
        """The signals that need no graph, which choose the anchors."""
        return tuple(self.names[place] for place in self.places(graph=False))

    def places(self, *, graph: bool) -> list[int]:
        """Where the signals that need the graph are among the names, or the base signals."""
        return [i for i, name in enumerate(self.names) if SIGNALS[name].graph is graph]

    @classmethod
    def of(cls, config: Config, names: Sequence[str], rule: CandidateRule, *, graph: bool) -> Plan:
        """The plan of some signals; `graph` says whether there is one worth spreading over."""
        own = reading(names, "traversal", "hops", "lifts")  # these go their own ways
        activates = graph and any(SIGNALS[name].graph for name in names if name not in own)
        walks = activates and bool(reading(names, "walk"))
        statistics = tuple(signal_names(config.gate.weights))
        needed = activates and len(reading(names, "derived")) < sum(
            SIGNALS[name].graph for name in names if name not in own
        )
        read = bool(reading(names, "activation")) or "activation" in statistics
        return cls(
            config,
            tuple(names),
            rule,
            traverses=rule == CandidateRule.REACHED or bool(reading(names, "traversal")),
            hops=bool(reading(names, "hops")),
            lifts=bool(reading(names, "lifts")),
            activates=activates,
            walks=walks,
            spreads=needed and (read or not walks),
            statistics=statistics,
            gate=weight_table(config.gate.weights),
            read=tuple(dict.fromkeys([*statistics, *read_statistics(config.calibration)])),
            constants=_constants(config),
        )


def _constants(config: Config) -> dict[str, float | Tensor]:
    settings = config.spread
    unused = {"inhibition"} if settings.inhibition == 0 else set()
    linear = {settings.firing, _gate_spread(config).firing} == {"linear"}
    unused |= {"gain", "threshold"} if linear else set()
    return {name: getattr(settings, name) for name in CONSTANTS if name not in unused}


class Ranked(NamedTuple):
    """The best of some candidates, `DEPTH` at least where there are as many, best first.

    Attributes:
        candidates: C for each of B questions.
        signals: [B, C, F] of the score.
        places: [B, K] int64 among the candidates.
        scores: [B, K] float32, -inf for what may be no hit.
        form: [B, K] int64, places in `FORMS`.
    """

    candidates: Candidates
    signals: Tensor
    places: Tensor
    scores: Tensor
    form: Tensor

    def statistics(self, names: Sequence[str]) -> tuple[Tensor, Tensor]:  # [B, S], [B] int64
        """What abstention reads: the named statistics, and the form of the first hit."""
        near = self.places[:, :DEPTH], self.scores[:, :DEPTH]
        found = abstention_statistics(self.candidates, *near, names)
        none = self.form.shape[1] == 0
        return found, self.form.new_zeros(len(self.form)) if none else self.form[:, 0]


def ranked(
    found: Candidates,  # C for each of B questions
    names: Sequence[str],  # F signals
    weights: Tensor,  # [3, F], by form
    k: int,
) -> Ranked:
    """The candidates that may be hits, as many as k hits and abstention take.

    By tiers, where the questions have such, then by their scores.
    """
    signals = found.signals(names)
    score = found.scores(signals, weights).masked_fill(~found.listed, -torch.inf)
    worth = score if found.query.tier is None else by_tier(found, score, found.query.tier)
    if found.query.group is not None:
        worth = _once(found, worth, found.query.group)
    values, places = stable_topk(worth, min(max(k, DEPTH), score.shape[1]))
    if found.query.tier is not None:
        values = score.gather(1, places).masked_fill(values == -torch.inf, -torch.inf)
    form = found.form.expand(found.shape).gather(1, places)
    return Ranked(found, signals, places, values, form)


def by_tier(found: Candidates, score: Tensor, tier: Tensor) -> Tensor:  # [B, C]
    """Return values that rank candidates by tier [B or 1, A], then by score; -inf stays."""
    own = found.pick_each(tier.expand(len(score), -1))
    order = score.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, own.gather(1, order).argsort(dim=1, stable=True))
    place = torch.arange(score.shape[1], device=score.device, dtype=score.dtype)
    worth = torch.empty_like(score).scatter_(1, order, -place.expand_as(score))
    return worth.masked_fill(score == -torch.inf, -torch.inf)


def _once(found: Candidates, score: Tensor, group: Tensor) -> Tensor:  # [B, C] each
    """The scores, of each group [B or 1, A] the best alone; of equal ones the first."""
    own = found.pick_each(group.expand(len(score), -1))
    shape, lane = (len(score), int(group.max()) + 1), torch.arange(score.shape[1]).to(own)
    best = score.new_full(shape, -torch.inf).scatter_reduce(1, own, score, "amax")
    lane = lane.expand_as(own)
    most = torch.where(score == best.gather(1, own), lane, lane.shape[1])
    first = own.new_full(shape, lane.shape[1]).scatter_reduce(1, own, most, "amin")
    return score.masked_fill((own > 0) & (first.gather(1, own) != lane), -torch.inf)


def retrieve(
    memory: MemoryTensors,
    plan: Plan,
    weights: Tensor,  # [3, F], by form
    query: QueryBatch,
    k: int,
    *,
    paths: bool = False,
    stages: Stages | None = None,
) -> Retrieval:
    """The k best memories of each of B questions that fit the memory, and why.

    The edges that led to each hit are looked for only where `paths` are wanted; what was done is
    told to `stages`.
    """
    found = candidates_of(memory, plan, weights, query, k, stages=stages)
    best = ranked(found, plan.names, weights, k)
    chosen, values, form = (each[:, :k] for each in (best.places, best.scores, best.form))
    rows = chosen if found.rows is None else found.rows.gather(1, chosen)
    rows = torch.where(values > -torch.inf, rows, -1)
    place = chosen[:, :, None].expand(-1, -1, best.signals.shape[2])
    shares = best.signals.gather(1, place) * weights[form]
    if stages is not None:
        stages.done("score")
        stages.looked_at(found)
    anchors, value = found.reached.anchors, found.reached.value
    if anchors is None or value is None:
        anchors = rows.new_zeros(len(query), 0)
        value = anchors.float()
    walked = rows.new_zeros(*rows.shape, 0)
    hops = rows.new_full((*rows.shape, 3), -1)
    if paths and anchors.shape[1]:
        with torch.no_grad():
            start = found.reached.start
            if start is None:
                start = start_of(memory, query, anchors, value)
            walked = paths_to(memory, plan, query, start, memory.nodes(rows))
            if plan.lifts and memory.hops is not None:
                lifted = shares[:, :, plan.names.index("hop")]
                carried = lifted > _CARRIED * shares.clamp(min=0.0).sum(2)
                if bool(carried.any()):
                    hops = _hops_to(found, chosen, rows.masked_fill(~carried, -1))
    statistics, first = best.statistics(plan.read)
    gate = plan.gate.to(statistics, non_blocking=True)
    sure = confidence(statistics[:, : len(plan.statistics)], first, gate, plan.config.gate)
    if stages is not None:
        stages.done("paths and gate")
    return Retrieval(
        rows=rows,
        scores=values,
        shares=shares,
        place=torch.arange(rows.shape[1], device=rows.device).expand_as(rows),
        confidence=sure,
        statistics=statistics,
        anchors=anchors,
        anchor_activation=value,
        paths=walked,
        hops=hops,
    )


def _hops_to(found: Candidates, places: Tensor, rows: Tensor) -> Tensor:  # [B, k] -> [B, k, 3]
    """Where the hops to some candidates set out from, and by what; see `Retrieval.hops`."""
    assert found.memory.hops is not None
    anchor = led_from(found, places).masked_fill(rows < 0, -1)
    by = bridges(found.memory.hops, anchor, rows, found.named_keys)
    return torch.cat([anchor[:, :, None], by], dim=2)


def candidates_of(
    memory: MemoryTensors,
    plan: Plan,
    weights: Tensor,  # [3, F], by form
    query: QueryBatch,
    k: int,
    *,
    stages: Stages | None = None,
) -> Candidates:
    """The candidates of each question, with what the graph brings from their anchors."""
    everyone = Candidates(memory, query, plan.config)
    conducting = conducting_nodes(memory, query)
    if plan.traverses:
        everyone = everyone.reaching(traversed(everyone, conducting))
    found = _chosen(everyone, plan.rule, k)
    if query.followed is not None:
        found = found.extended(query.followed)
    if query.replies is not None:
        found = found.extended(query.replies)
    if stages is not None:
        stages.done("candidates")
    if not plan.starts or found.shape[1] == 0:
        return found
    own = weights.index_select(1, numbers_on(weights.device, plan.places(graph=False)))
    found = found.reaching(replace(found.reached, base=(plan.base, own)))
    found.base_scores()
    if stages is not None:
        stages.done("base signals")
    reached = reached_from(found, plan, conducting)
    found = found.reaching(reached)
    if stages is not None:
        stages.done("anchors and graph")
    hopped = reached.title_hop, reached.entity_hop, _lifted(reached.lifts, memory, query)
    brought = *hopped, reached.walk, reached.activation
    planned = query.planned is not None  # what else is reached may be no hit
    if found.rows is None or planned or not any(one is not None for one in brought):
        return found
    extra = [_most(_allowed(one, query)) for one in brought if one is not None]
    return found.extended(torch.cat(extra, dim=1))


def _lifted(
    lifts: HopPairs | Tensor | None, memory: MemoryTensors, query: QueryBatch
) -> SparseRows | Tensor | None:  # [B, A]
    """Largest lift of each atom by any anchor."""
    if lifts is None or isinstance(lifts, Tensor):
        return None if lifts is None else lifts.amax(1)
    return largest_lifts(lifts, len(query), memory.num_atoms)


def reached_from(
    found: Candidates,
    plan: Plan,
    conducting: Tensor | None,  # [B, N] bool, as `conducting_nodes`
) -> Reached:
    """The anchors of B questions, and what the graph brings from them."""
    return brought_from(found, plan, started_from(found, plan), conducting)


def started_from(found: Candidates, plan: Plan) -> Reached:
    """The anchors of B questions, chosen by the base scores and by what the questions name."""
    config, score = plan.config.anchors, found.base_scores()
    named = None
    if found.memory.hops is not None and (plan.lifts or config.named):
        own = found.signal("named").expand(found.shape).where(found.valid, 0.0)
        named = own.amax(1)
        score = score + config.named * own
    anchors, value = anchor_activation(found, score, config)
    relevance = anchor_relevance(found, score, value, config)
    given = found.reached
    return Reached(
        *(anchors, value, relevance), traversal=given.traversal, named=named, base=given.base
    )


def brought_from(
    found: Candidates,
    plan: Plan,
    reached: Reached,
    conducting: Tensor | None,  # [B, N] bool, as `conducting_nodes`
    *,
    dense: bool = False,
) -> Reached:
    """Gains by the graph from the anchors of `started_from`, as far as a signal reads it.

    With `dense`, activation is a matrix, also where it need not be.
    """
    memory, query, config = found.memory, found.query, plan.config
    anchors, value, relevance = reached.anchors, reached.value, reached.relevance
    assert anchors is not None and value is not None and relevance is not None
    brought: dict[str, Any] = {}
    if (plan.hops or plan.lifts) and memory.hops is not None:
        brought = _hopped(found, plan, reached)
    if plan.walks:
        start = start_of(memory, query, anchors, relevance)
        brought["walk"] = memory.of_atoms(walk_from(memory.graph, start, config.walk, conducting))
    if plan.spreads:
        brought |= _activated(memory, plan, query, anchors, value, conducting, dense=dense)
    return replace(reached, traversal=found.reached.traversal, **brought)


def _hopped(found: Candidates, plan: Plan, reached: Reached) -> dict[str, Any]:
    """Where hops from the anchors lead, and what they lift, as `Reached`."""
    hops, query, named = found.memory.hops, found.query, found.named_keys
    anchors, value = reached.anchors, reached.value
    assert hops is not None and anchors is not None and value is not None
    seeds = None if query.seed_keys is None else (query.seed_keys, _of_seeds(value))
    fixed = torch.compiler.is_compiling()
    brought: dict[str, Any] = {}
    if plan.hops:
        by_title, by_entity = (
            (dense_title_hop, dense_entity_hop) if fixed else (title_hop, entity_hop)
        )
        brought["title_hop"] = _allowed(by_title(hops, anchors, value, named), query)
        brought["entity_hop"] = _allowed(by_entity(hops, anchors, value, named, seeds), query)
    if plan.lifts:
        own, share = plan.config.hops, reached.named
        share = value.new_zeros(len(value)) if share is None else share.to(value.dtype)
        strength = torch.stack(
            [
                own.title + share * (own.title_named - own.title),
                own.entity + share * (own.entity_named - own.entity),
            ],
            dim=1,
        )
        lift = dense_hop_lifts if fixed else hop_lifts
        brought["lifts"] = lift(hops, anchors, value, strength, named, seeds)
    return brought


def _chosen(everyone: Candidates, rule: CandidateRule, k: int) -> Candidates:
    if rule == CandidateRule.EVERY:
        return everyone
    if rule == CandidateRule.MODES:
        return everyone.narrowed(_mode_candidates(everyone, k))
    if rule == CandidateRule.REACHED:
        return everyone.narrowed(_reached_candidates(everyone, k))
    rank = everyone.config.rank
    background = _background(everyone) if rank.scale == "background" else None
    rows = _base_candidates(everyone, max(rank.candidates, k), background)
    found = everyone.narrowed(rows, background)
    if everyone.reached.traversal is None:
        return found
    return found.extended(_reached_candidates(everyone, _EXTRA))


def _background(everyone: Candidates) -> Tensor:  # [B or 1, S] int64, ascending, -1 first
    """Atoms drawn evenly from those there are for each question, in runs of neighbours."""
    there, atoms = everyone.query.allowed, everyone.memory.num_atoms
    if there is None:
        count = torch.full((1, 1), atoms, device=everyone.query.embedding.device)
    else:
        count = there.sum(1, keepdim=True)
    run = torch.arange(_RUN, device=count.device)
    start = (torch.arange(_RUNS, device=count.device) * count) // _RUNS
    place = (start[:, :, None] + run).flatten(1).minimum(count - 1)
    if there is not None:  # the row at each place among those that are there
        place = torch.searchsorted(there.cumsum(1), place + 1).masked_fill(count == 0, -1)
    return merge_rows(place)


def _base_candidates(
    everyone: Candidates, count: int, background: Tensor | None
) -> Tensor:  # [B, C] int64, ascending
    """The `count` best by cosine, the `count` best by BM25, and the turns beside the best of both.

    Or what a plan has left in place of these. The neighbours are there for the signals that look at
    windows: what one turn asks, the next one answers. The background is there to be compared with.
    """
    memory, planned = everyone.memory, everyone.query.planned
    least = {"semantic": -torch.inf, "lexical": 0.0}  # an atom without a question term is no match
    share = max(1, count // _HALO_SHARE)
    if planned is not None:
        parts, halo = [planned], planned[:, :share]
    else:
        best = [
            _best(everyone.signal(name), mask, count, above)
            for mask in _masks(everyone)
            for name, above in least.items()
        ]
        parts = [rows for rows, _ in best]
        halo = torch.cat(
            [
                rows.gather(1, stable_topk(worth, min(share, worth.shape[1]), sorted=False)[1])
                for rows, worth in best
            ],
            dim=1,
        )
    pointers, second = memory.turns
    row = halo[:, None]
    for _ in range(_REACH):
        row = pointers.take(row + second)
        parts.append(row.flatten(1))
    if background is not None:
        parts.append(background.expand(len(everyone.query), -1))
    return merge_rows(*parts)


def _masks(everyone: Candidates) -> list[Tensor | None]:
    """The atoms there are for each question, and those of them that may be hits where not all may.

    What may be a hit must not be crowded out by what may not.
    """
    query = everyone.query
    there = [None if query.allowed is None else everyone.valid]
    return there if query.listed is None else [*there, everyone.listed]


def _best(
    values: Tensor, mask: Tensor | None, count: int, above: float
) -> tuple[Tensor, Tensor]:  # [B, c] int64, [B, c]
    """The rows of the largest of `values` [B, A] inside the mask and above a value; and these.

    Ascending; -1 and minus infinity where there are fewer.
    """
    # A pass over B x A costs more than anything that comes after it, so none is made in vain.
    values = values.detach()
    inside = values if mask is None else values.masked_fill(~mask, -torch.inf)
    worth, rows = stable_topk(inside, min(count, values.shape[1]), above=above, sorted=False)
    rows, order = rows.masked_fill(worth == -torch.inf, -1).sort(dim=1)
    return rows, worth.gather(1, order)


def _mode_candidates(everyone: Candidates, k: int) -> Tensor:  # [B, C] int64, ascending, -1 first
    """The best atoms of the best modes of each question (`docs/mathematics.md` 1.5).

    As many from each mode as `modes.per_mode` says, or as k hits need.
    """
    memory, query, own = everyone.memory, everyone.query, everyone.config.modes
    modes = memory.modes
    assert modes is not None  # else the rule is another
    look = min(own.look, len(modes))
    found = [
        search_modes(
            modes,
            memory.embeddings,
            query.embedding.detach(),
            modes_k=look,
            per_mode=min(max(own.per_mode, -(-k // look)), memory.num_atoms),
            half_life=own.half_life,
            absolute=own.absolute,
            duplicate=None if memory.duplicate is None else memory.duplicate.long(),
            allowed=mask,
        ).rows
        for mask in _masks(everyone)
    ]
    return merge_rows(*found)


def _reached_candidates(everyone: Candidates, m: int) -> Tensor:  # [B, <= m] int64, ascending
    """R_q: of what was traversed, the m best by discounted similarity (`docs/mathematics.md` 3)."""
    query, reach = everyone.query, everyone.reached.traversal
    assert reach is not None
    row, column = reach.row, reach.column
    value = discounted(everyone.signal("semantic").detach()[row, column], reach.value)
    if query.listed is not None:
        inside = everyone.listed.expand(len(query), -1)[row, column]
        value = value.masked_fill(~inside, -torch.inf)
    values, place = SparseRows(reach.key, value, reach.shape).padded()
    values = values.masked_fill(place < 0, -torch.inf)
    best, chosen = stable_topk(values, min(m, values.shape[1]))
    place = place.gather(1, chosen)
    found = best > -torch.inf
    return torch.where(found, column[place.clamp(min=0)], -1).sort(dim=1).values


def traversed(everyone: Candidates, mask: Tensor | None) -> Reached:
    """What is around the seeds of each question."""
    memory, own = everyone.memory, everyone.config.segment
    seeds, cosine = traversal_seeds(everyone, own.seeds)
    start, hops, discount = memory.nodes(seeds), own.hops, own.discount
    if everyone.query.seeds is not None:
        start = torch.cat([start, everyone.query.seeds], dim=1)
    reach = hop_discount(memory.graph, start, hops=hops, discount=discount, mask=mask)
    return Reached(anchors=seeds, value=cosine, traversal=memory.of_atoms(reach))


def start_of(
    memory: MemoryTensors, query: QueryBatch, anchors: Tensor, value: Tensor
) -> SparseRows:  # [B, N]
    """What the anchors [B, K] are worth, and the seeds of each question."""
    node, value = _started(memory, query, anchors, value)
    return SparseRows.of(node, value, memory.graph.num_nodes)


def _started(
    memory: MemoryTensors, query: QueryBatch, anchors: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:  # [B, K + S] int64 nodes, -1 = none; [B, K + S]
    node = memory.nodes(anchors)
    if query.seeds is None:
        return node, value
    seeds = _of_seeds(value).expand(query.seeds.shape)
    return torch.cat([node, query.seeds], dim=1), torch.cat([value, seeds], dim=1)


def _of_seeds(value: Tensor) -> Tensor:  # [B, K] -> [B, 1]
    """What a seed is worth: as much as the best anchor; 1 where there is none."""
    best = torch.nn.functional.pad(value, (0, 1)).amax(1, keepdim=True)
    return torch.where(best > 0, best, 1.0)


def _activated(
    memory: MemoryTensors,
    plan: Plan,
    query: QueryBatch,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K]
    mask: Tensor | None,  # [B, N] bool
    *,
    dense: bool,
) -> dict[str, SparseRows | Tensor]:
    """Spreading activation with the constants of the plan (`docs/mathematics.md` 4), as `Reached`.

    Over all nodes at once, as a matrix, where a gradient is asked for or the shapes must not depend
    on values; else in proportion to what it reaches.
    """
    learned = needs_gradient(value, memory.graph.stored.weight, *plan.constants.values())
    settings = {"activation": plan.config.spread}
    if "activation" in plan.statistics and _gate_spread(plan.config) != plan.config.spread:
        settings["gate"] = _gate_spread(plan.config)
    if dense or learned or torch.compiler.is_compiling():
        node, value = _started(memory, query, anchors, value)
        zeros = value.new_zeros(len(value), memory.graph.num_nodes + 1)  # and where none goes
        start = zeros.scatter_reduce(1, node % zeros.shape[1], value, "amax")[:, :-1].contiguous()
        return {
            name: spread_from(memory, plan, start, mask, own)[:, memory.node.long()]
            for name, own in settings.items()
        }
    rows = start_of(memory, query, anchors, value)
    found: dict[str, SparseRows | Tensor] = {"start": rows}
    for name, own in settings.items():
        found[name] = memory.of_atoms(spread_from(memory, plan, rows, mask, own))
    return found


def _gate_spread(config: Config) -> SpreadConfig:
    """Settings of the spread for the gate."""
    spread, gate = config.spread, config.gate
    return replace(
        spread,
        firing=spread.firing if gate.firing == "score" else gate.firing,
        fan=spread.fan if gate.fan == "score" else gate.fan,
    )


def spread_from(
    memory: MemoryTensors,
    plan: Plan,
    start: Rows,  # [B, N]
    mask: Tensor | None,  # [B, N] bool
    settings: SpreadConfig | None = None,
) -> Rows:  # [B, N]
    """`spread_activation` by the constants of a plan, and its settings unless others are given."""
    s, constants = settings or plan.config.spread, plan.constants
    return spread_activation(
        memory.graph,
        start,
        rounds=s.rounds,
        reduce=s.reduce,
        fan=fan_of(memory, s),
        top=s.top,
        spare=s.spare,
        firing=s.firing,
        kind=competing_kinds(memory, s),
        mask=mask,
        retention=constants["retention"],
        spread=constants["spread"],
        inhibition=constants.get("inhibition", 0.0),
        gain=constants.get("gain", 1.0),
        threshold=constants.get("threshold", 0.0),
    )


def fan_of(memory: MemoryTensors, settings: SpreadConfig) -> Fan | Tensor:  # or [N]
    """Divisor of the activation of each node.

    With `fan_least: mean` a turn has at least the mean out-degree of the turns. One whose concepts
    are not linked yet has an edge to the next turn alone, which all of its activation would take.
    """
    if settings.fan_least == "one" or settings.fan == "none":
        return settings.fan
    degree = memory.graph.fan().to(torch.float32)
    mean = degree[memory.node.long()].mean().clamp(min=1.0)
    degree = torch.where(memory.atom < 0, degree.clamp(min=1.0), torch.maximum(degree, mean))
    return degree if settings.fan == "degree" else degree.sqrt()


def competing_kinds(memory: MemoryTensors, settings: SpreadConfig) -> Tensor | None:  # [N] bool
    """Which nodes are concepts, where nodes compete with those of their own kind alone."""
    return memory.atom < 0 if settings.competitors == "kind" else None


def conducting_nodes(memory: MemoryTensors, query: QueryBatch) -> Tensor | None:  # [B, N] bool
    """The nodes that activation may reach: concepts, and atoms there are for the question."""
    if query.allowed is None:
        return None
    if not memory.num_atoms:
        return query.allowed.new_ones(1, len(memory.atom)).expand(len(query), -1)
    there = query.allowed[:, memory.atom.clamp(min=0).long()] | (memory.atom < 0)
    return there.expand(len(query), -1)


def _allowed(found: SparseRows | Tensor, query: QueryBatch) -> SparseRows | Tensor:  # [B, A]
    """Without the atoms that there are not for the question."""
    if query.allowed is None:
        return found
    there = query.allowed.expand(len(query), -1)
    if isinstance(found, Tensor):
        return found.where(there, 0.0)
    return found.select(there[found.row, found.column])


def _most(found: SparseRows | Tensor) -> Tensor:  # [B, A] -> [B, e] int64 rows, -1 = none
    """The atoms of each question that the graph brought most to."""
    if isinstance(found, SparseRows):
        return found.topk(_EXTRA)[1]
    values, rows = stable_topk(found.detach(), min(_EXTRA, found.shape[1]))
    return rows.where(values != 0, -1)


class TraversalSteps(NamedTuple):
    """How activation travels along a path.

    Attributes:
        graph: What it travels along.
        rounds: Edges at most.
        spread: What is left of it after each, but for the weight of the edge and the fan.
        fan: What it is divided by at each node that it leaves.
    """

    graph: Graph
    rounds: int
    spread: float | Tensor
    fan: Fan | Tensor  # or [N]

    @classmethod
    def of(cls, memory: MemoryTensors, plan: Plan) -> TraversalSteps:
        """Those of spreading, or of a traversal where there is nothing else."""
        s, own = plan.config.spread, plan.config.segment
        if plan.traverses and not plan.activates:  # the anchors are seeds then
            return cls(unweighted(memory.graph), own.hops, own.discount, "none")
        return cls(memory.graph, s.rounds, plan.constants["spread"], fan_of(memory, s))


def paths_to(
    memory: MemoryTensors,
    plan: Plan,
    query: QueryBatch,
    start: SparseRows,  # [B, N]
    nodes: Tensor,  # [B, k] int64, -1 = none
) -> Tensor:  # [B, k, T] int64 edges, -1 = none
    """The strongest path to each node, as `rank.paths.strongest_paths` has it."""
    graph, rounds, spread, fan = TraversalSteps.of(memory, plan)
    mask = conducting_nodes(memory, query)
    return strongest_paths(graph, start, nodes, rounds=rounds, spread=spread, fan=fan, mask=mask)
