"""Retrieval in stages: candidates, anchors, graph results, scores, abstention and paths.

Functions over values; `MemoryIndex.forward` passes them its tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.index.activation import (
    allowed_of,
    brought_from,
    conducting_nodes,
    paths_to,
    start_of,
    started_from,
)
from graphmem_torch.index.execution_plan import ExecutionPlan
from graphmem_torch.index.shortlist import EXTRA_ATOMS, shortlisted, traversed
from graphmem_torch.ops import SparseRows
from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.tiles import numbers_on, stable_topk
from graphmem_torch.rank.abstention import DEPTH, abstention_statistics, confidence
from graphmem_torch.rank.candidates import Candidates, weighted_sums
from graphmem_torch.rank.hops import (
    bridges,
    largest_lifts,
)
from graphmem_torch.rank.lifts import led_from
from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.peers import Ranking
from graphmem_torch.rank.query import QueryBatch

__all__ = [
    "OF_HITS",
    "Features",
    "Ranked",
    "Retrieval",
    "Stages",
    "by_tier",
    "candidates_of",
    "ranked",
    "retrieve",
]

OF_HITS = ("rows", "scores", "shares", "place", "paths", "hops")
"""Columns of `Retrieval` with an entry for each hit."""

_CARRIED = 0.05  # minimum share of a hit's positive score for which a hop's origin is found


class Retrieval(NamedTuple):
    """Result of `MemoryIndex.forward`, best first; k is at most the number of candidates.

    Attributes:
        rows: [B, k] int64 atom rows, -1 if there are fewer than k.
        scores: [B, k] float32 hybrid scores, -inf where rows is -1.
        shares: [B, k, F] float32, each signal's share of the score, in the order of `signal_names`.
        place: [B, k] int64, the place of each hit in the ranking, from 0.
        confidence: [B] float32 in [0, 1].
        statistics: [B, S], `ExecutionPlan.read` of the ranking.
        anchors: [B, K] int64 rows where activation started, -1 = none.
        anchor_activation: [B, K] float32.
        paths: [B, k, T] int64, the edges that brought most activation to each row, from the anchor,
            as `MemoryIndex.graph.stored` numbers them, -1 = none; T = 0 unless requested.
        hops: [B, k, 3] int64, the row of the anchor whose hop raises each hit the most, and the
            entities that lead there (`rank.hops.bridges`), -1 = none. Set only if paths were
            requested, for hops that bring more than 5 % of the hit's positive score.
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


class Features(NamedTuple):
    """Result of `MemoryIndex.features`, for C candidates.

    Attributes:
        rows: [B, C] int64 atom rows, -1 = padding.
        values: [B, C, F], the signals in the order of `signal_names`, scaled as in the score.
        form: [B, C] int64, the row of `MemoryIndex.weights` for each.
        listed: [B, C] bool, mask of possible hits.
    """

    rows: Tensor
    values: Tensor
    form: Tensor
    listed: Tensor

    def scores(self, weights: Tensor) -> Tensor:  # [3, F] -> [B, C]
        """Return `MemoryIndex.score` of these candidates, including those not listed."""
        return weighted_sums(self.values, weights.to(self.values.dtype), self.form)


class Stages:
    """Durations of the stages of a batch of questions, and the number of atoms that they read.

    Attributes:
        seconds: Wall-clock seconds by stage, in order, including the device's work.
        candidates: Number of candidates of each question.
        activated: Number of atoms that activation reached for each question; None without it.
    """

    def __init__(self) -> None:
        """Start the clock of the first stage."""
        self.seconds: dict[str, float] = {}
        self.candidates: list[int] = []
        self.activated: list[int | None] = []
        self._last = perf_counter()

    def done(self, stage: str) -> None:
        """End a stage; a repeated one, as for the next tile of questions, adds up."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        now = perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def looked_at(self, found: Candidates) -> None:
        """Count the candidates and activated atoms of a tile of questions."""
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


class Ranked(NamedTuple):
    """Best candidates, at least `DEPTH` if available, best first.

    Attributes:
        candidates: C candidates for each of B questions.
        signals: [B, C, F], signals of the score.
        places: [B, K] int64, places in the candidates.
        scores: [B, K] float32, -inf if it cannot be a hit.
        form: [B, K] int64, places in `FORMS`.
        ranking: The ranking of all shards; that of these places in a memory of one store.
    """

    candidates: Candidates
    signals: Tensor
    places: Tensor
    scores: Tensor
    form: Tensor
    ranking: Ranking

    def statistics(self, names: Sequence[str]) -> tuple[Tensor, Tensor]:  # [B, S], [B] int64
        """Return the named statistics for abstention, and the form of the first hit."""
        found = abstention_statistics(self.candidates, self.ranking, names)
        form = self.ranking.of_own(self.form)
        return found, form.new_zeros(len(form)) if form.shape[1] == 0 else form[:, 0]


def ranked(
    found: Candidates,  # C for each of B questions
    names: Sequence[str],  # F signals
    weights: Tensor,  # [3, F], by form
    k: int,
) -> Ranked:
    """Return the best possible hits, as many as k hits and abstention need.

    They are ordered by tier, if the questions have tiers, then by score.
    """
    signals = found.signals(names)
    score = found.scores(signals, weights).masked_fill(~found.listed, -torch.inf)
    worth = score if found.query.tier is None else by_tier(found, score, found.query.tier)
    if found.query.group is not None:
        worth = _best_of_group(found, worth, found.query.group)
    values, places = stable_topk(worth, min(max(k, DEPTH), score.shape[1]))
    if found.query.tier is not None:
        values = score.gather(1, places).masked_fill(values == -torch.inf, -torch.inf)
    form = found.form.expand(found.shape).gather(1, places)
    if found.peers is None:
        return Ranked(found, signals, places, values, form, Ranking(places, values))
    shared = found.peers.ranking("ranking", places, values, max(k, DEPTH))
    form = torch.nn.functional.pad(form, (0, shared.places.shape[1] - form.shape[1]))
    return Ranked(found, signals, places, values, form, shared)


def by_tier(found: Candidates, score: Tensor, tier: Tensor) -> Tensor:  # [B, C]
    """Return values that rank candidates by tier [B or 1, A], then by score; -inf stays."""
    own = found.pick_each(tier.expand(len(score), -1))
    order = stable_topk(score, score.shape[1])[1]
    order = order.gather(1, own.gather(1, order).argsort(dim=1, stable=True))
    place = torch.arange(score.shape[1], device=score.device, dtype=score.dtype)
    worth = torch.empty_like(score).scatter_(1, order, -place.expand_as(score))
    return worth.masked_fill(score == -torch.inf, -torch.inf)


def _best_of_group(found: Candidates, score: Tensor, group: Tensor) -> Tensor:  # [B, C] each
    """Return the scores with only the best of each group [B or 1, A]; the first on a tie."""
    own = found.pick_each(group.expand(len(score), -1))
    groups = group.shape[1] if shapes_are_fixed() else int(group.max())
    shape, lane = (len(score), groups + 1), torch.arange(score.shape[1], device=own.device)
    best = score.new_full(shape, -torch.inf).scatter_reduce(1, own, score, "amax")
    lane = lane.expand_as(own)
    most = torch.where(score == best.gather(1, own), lane, lane.shape[1])
    first = own.new_full(shape, lane.shape[1]).scatter_reduce(1, own, most, "amin")
    return score.masked_fill((own > 0) & (first.gather(1, own) != lane), -torch.inf)


def retrieve(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    weights: Tensor,  # [3, F], by form
    query: QueryBatch,
    k: int,
    *,
    paths: bool = False,
    stages: Stages | None = None,
) -> Retrieval:
    """Return the k best memories of each of B questions, with the reasons.

    The edges that led to each hit are found only if `paths` is set; `stages` records the work.
    """
    found = candidates_of(memory, plan, weights, query, k, stages=stages)
    best = ranked(found, plan.names, weights, k)
    chosen, values, form = (each[:, :k] for each in (best.places, best.scores, best.form))
    lane = torch.arange(chosen.shape[1], device=chosen.device).expand_as(chosen)
    if best.ranking.place is not None:
        lane = best.ranking.place[:, :k]
        values, form = values.masked_fill(lane >= k, -torch.inf), form[:, : chosen.shape[1]]
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
    if found.peers is not None:
        value = value.masked_fill(anchors < 0, 0.0)
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
    gate = plan.gate_on(statistics.device, statistics.dtype)
    sure = confidence(statistics[:, : len(plan.statistics)], first, gate, plan.config.gate)
    if stages is not None:
        stages.done("paths and gate")
    return Retrieval(
        rows=rows,
        scores=values,
        shares=shares,
        place=lane,
        confidence=sure,
        statistics=statistics,
        anchors=anchors,
        anchor_activation=value,
        paths=walked,
        hops=hops,
    )


def _hops_to(found: Candidates, places: Tensor, rows: Tensor) -> Tensor:  # [B, k] -> [B, k, 3]
    """Return the anchor and entities of the hops to some candidates; see `Retrieval.hops`."""
    assert found.memory.hops is not None
    anchor = led_from(found, places).masked_fill(rows < 0, -1)
    by = bridges(found.memory.hops, anchor, rows, found.named_keys)
    return torch.cat([anchor[:, :, None], by], dim=2)


def candidates_of(
    memory: MemoryTensors,
    plan: ExecutionPlan,
    weights: Tensor,  # [3, F], by form
    query: QueryBatch,
    k: int,
    *,
    stages: Stages | None = None,
) -> Candidates:
    """Return the candidates of each question, with graph results from their anchors."""
    everyone = Candidates(memory, query, plan.config)
    conducting = conducting_nodes(memory, query)
    if plan.traverses:
        everyone = everyone.reaching(traversed(everyone, conducting))
    found = shortlisted(everyone, plan.rule, k)
    if query.followed is not None:
        found = found.extended(query.followed)
    if query.replies is not None:
        found = found.extended(query.replies)
    if stages is not None:
        stages.done("candidates")
    starts = plan.starts or (found.peers is not None and found.peers.starts)
    if not starts or found.shape[1] == 0:
        return found
    own = weights.index_select(1, numbers_on(weights.device, plan.base_places))
    found = found.reaching(replace(found.reached, base=(plan.base, own)))
    found.base_scores  # noqa: B018 - computes the property now
    if stages is not None:
        stages.done("base signals")
    reached = brought_from(found, plan, started_from(found, plan), conducting)
    found = found.reaching(reached)
    if stages is not None:
        stages.done("anchors and graph")
    lifts = reached.lifts
    if lifts is not None and not isinstance(lifts, Tensor):
        lifted: SparseRows | Tensor | None = largest_lifts(lifts, len(query), memory.num_atoms)
    else:
        lifted = None if lifts is None else lifts.amax(1)
    hopped = reached.title_hop, reached.entity_hop, lifted
    brought = *hopped, reached.walk, reached.activation
    planned = query.planned is not None  # other reached atoms cannot be hits
    if found.rows is None or planned or not any(one is not None for one in brought):
        return found
    extra = [allowed_of(one, query) for one in brought if one is not None]
    return found.extended(_most(extra))


def _most(found: Sequence[SparseRows | Tensor]) -> Tensor:  # [B, A] each -> [B, e] rows, -1 = none
    """Return the atoms of each question with the largest of each of the graph results."""
    rows = [one.topk(EXTRA_ATOMS)[1] for one in found if isinstance(one, SparseRows)]
    dense = [one.detach() for one in found if isinstance(one, Tensor)]
    if dense:  # chosen together, in as many calls as for one
        together = torch.cat(dense) if len(dense) > 1 else dense[0]
        count = min(EXTRA_ATOMS, together.shape[1])
        values, best = stable_topk(together, count, above=0.0, sorted=False)
        rows += best.where(values > 0, -1).chunk(len(dense))
    return torch.cat(rows, dim=1)
