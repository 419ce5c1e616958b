"""Query plans: execution for a batch of questions, and the outcome of each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphmem_torch.atoms import EdgeType
from graphmem_torch.index.execution_plan import CandidateRule
from graphmem_torch.index.retrieve import OF_HITS, Retrieval, Stages
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.memory.index_view import IndexView
from graphmem_torch.memory.plan_choice import open_span, plans_of
from graphmem_torch.memory.request import Filters
from graphmem_torch.memory.state import State
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.rank.by_time import order_by_time
from graphmem_torch.rank.plan import Events, PlanBatch
from graphmem_torch.rank.present import present_scores
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.succession import WAYS, SuccessionBatch
from graphmem_torch.results import PlanStep, QueryPlan
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.naming import plain_name
from graphmem_torch.text.question import (
    name_words,
    order_terms,
    proper_words,
    value_terms,
)
from graphmem_torch.text.terms import terms
from graphmem_torch.text.times import LAST_SECOND, parse_span, parse_time, undated

__all__ = ["Chains", "answered", "carried_out", "plans_at"]

Chains = Sequence[Tensor]
"""Superseded rows and their successors for each question, [2, S]; a tensor that several questions
share is read once (`ValiditySpans.successions`)."""

_DAY = 86_400.0
_NEAR = 16  # hits, one of which must state a value that a question names


def plans_at(
    state: State,
    view: IndexView,
    questions: Sequence[str],
    filters: Filters,
    instants: Sequence[float | None] | None = None,
) -> tuple[list[QueryPlan | None], Chains, Events | None]:
    """Return the plan of each question at each moment, in the order of the rows of `Asking.query`.

    Args:
        state: State of the memory.
        view: Index that is asked.
        questions: B questions.
        filters: Conditions on the memories.
        instants: T moments, by default those of `filters`.

    Returns:
        B * T plans, None for a question without one. With them, if a plan needs it, the
        supersessions known at each moment, and the times of events.
    """
    plan, own = filters.scope.plan, state.config.plan
    moments = filters.instants if instants is None else instants
    weighed = "followed" in view.snapshot.index.reads
    superseded = weighed and plan is not False and state.spans.superseded()
    peers = view.snapshot.index.tensors.peers
    if peers is not None:  # all shards take the same steps
        superseded = peers.any("superseded", superseded)
    if plan is False or (plan is None and not (own.use or superseded)):
        return [None] * (len(questions) * len(moments)), (), None
    told = filters.scope.asked
    now = state.decay.now() if told is None else parse_time(told, "asked")
    asked = [now if moment is None or told is not None else moment for moment in moments]
    index, store = view.snapshot.index, view.store
    scored = index.num_atoms if index.plan.rule == CandidateRule.EVERY else 0
    each = [
        plans_of(
            plan,
            questions,
            [at] * len(questions),
            own,
            store,
            scored=scored,
            superseded=superseded,
        )
        for at in asked
    ]
    listed = [plans[place] for place in range(len(questions)) for plans in each]
    timed = any(plan and (plan.between or plan.order != "relevance") for plan in listed)
    events = state.spans.events(view.snapshot, store) if timed else None
    if not any(plan is not None and plan.succession for plan in listed):
        return listed, (), events
    chains = state.spans.successions(view.snapshot, store, moments) * len(questions)
    return listed, chains, events


def _batch(
    plans: Sequence[QueryPlan], questions: Sequence[str], snapshot: Snapshot, store: TensorReader
) -> PlanBatch:
    """Return plans as tensors, on the device of the index; drops deleted concepts."""
    spans = [
        (-math.inf, math.inf) if plan.between is None else parse_span(plan.between, "plan.between")
        for plan in plans
    ]
    named = {name: plain_name(name) for plan in plans for name in plan.concepts}
    found, count = store.concepts([*named.values()]), snapshot.index.num_nodes
    known = {name: found[plain] for name, plain in named.items() if found.get(plain, count) < count}
    nodes = [[known[name] for name in plan.concepts if name in known] for plan in plans]
    width = max(map(len, nodes), default=0)
    starts = torch.full((len(plans), width), -1)
    for row, own in enumerate(nodes):
        starts[row, : len(own)] = torch.tensor(own, dtype=torch.int64)
    types = torch.zeros(len(plans), 256, dtype=torch.bool)
    for row, plan in enumerate(plans):
        kinds = [int(EdgeType[name.upper()]) for name in plan.edges] or list(map(int, EdgeType))
        types[row, kinds] = True
    # Words that express the window must not be matched as text.
    texts = [
        question if plan.between is None else undated(question)
        for plan, question in zip(plans, questions, strict=True)
    ]
    # Larger numbers change nothing, and may not fit into 64 bits.
    most = snapshot.index.num_nodes + 1
    numbers = {
        name: torch.tensor([min(getattr(plan, name), most) for plan in plans])
        for name in ("min_in_window", "best", "hops", "kept")
    }
    return PlanBatch(
        window=torch.tensor(spans, dtype=torch.float64).view(-1, 2),
        match=torch.tensor([float(plan.match) for plan in plans]),
        types=types,
        starts=starts,
        discount=torch.tensor([float(plan.discount) for plan in plans]),
        slack_seconds=torch.tensor(
            [plan.window_slack_days * _DAY for plan in plans], dtype=torch.float64
        ),
        terms=snapshot.vocabulary.encode_padded(texts)[0],
        **numbers,
    ).to(snapshot.index.embeddings.device)


class Carried(NamedTuple):
    """Questions that are ranked together, with the outcome of their plans.

    Attributes:
        places: Positions of the questions in the batch.
        query: The questions as tensors, limited to what their plans leave.
        plans: Plans with the outcome of their steps; None for none.
    """

    places: list[int]
    query: QueryBatch
    plans: list[QueryPlan | None]


def carried_out(
    snapshot: Snapshot,
    store: TensorReader,
    questions: Sequence[str],
    query: QueryBatch,
    plans: Sequence[QueryPlan | None],
    chains: Chains,
    events: Events | None,
) -> list[Carried]:
    """Execute plans: returns the questions that they narrow down, and the others.

    Args:
        snapshot: Index of the store.
        store: Store with the concepts.
        questions: B questions.
        query: The questions as tensors.
        plans: Plan of each question; None for none.
        chains: Superseded values of the questions whose plans ask for sequences of values.
        events: Times of the events of atoms that state one.
    """
    query, led = _followed(snapshot, questions, query, plans, chains)
    narrow = [plan is not None and plan.best is not None for plan in plans]
    groups = []
    for wanted in (True, False):
        places = [place for place, own in enumerate(narrow) if own is wanted]
        if not places:
            continue
        whole = len(places) == len(plans)
        rows = torch.tensor(places, device=query.embedding.device)
        part = query if whole else query.rows(rows)
        done = [plans[place] for place in places]
        if wanted:
            texts = [questions[place] for place in places]
            part, done = _pruned(snapshot, store, texts, part, cast(Any, done), events)
        after = [
            plan
            if plan is None or (step := led.get(place)) is None
            else replace(plan, steps=(step, *plan.steps))
            for place, plan in zip(places, done, strict=True)
        ]
        groups.append(Carried(places, part, after))
    return groups


def _followed(
    snapshot: Snapshot,
    questions: Sequence[str],
    query: QueryBatch,
    plans: Sequence[QueryPlan | None],
    chains: Chains,
) -> tuple[QueryBatch, dict[int, PlanStep]]:
    """Return questions with the rows they lead to, and the outcome of that step, by position."""
    asking = {place: plan for place, plan in enumerate(plans) if plan and plan.succession}
    if not asking:
        return query, {}
    alike: dict[int, list[int]] = {}
    for place in asking:
        alike.setdefault(id(chains[place]), []).append(place)
    device = query.embedding.device
    found, steps = {}, {}
    for places in alike.values():
        pairs = chains[places[0]].to(device)
        own = [asking[place] for place in places]
        asked = _asked([questions[place] for place in places], own, pairs, snapshot)
        with torch.inference_mode():
            part = query.rows(torch.tensor(places, device=device))
            # Whatever was true leads to the answer, whether it may be a hit or not.
            part = replace(part, ended=None, listed=None)
            best = snapshot.index(part, k=_NEAR).rows
            led = snapshot.index.follow(asked, best).tolist()
        members = len(pairs.unique())
        for place, plan, row in zip(places, own, led, strict=True):
            found[place] = [each for each in row if each >= 0]
            named = repr(plan.of) if plan.of else "what is in force"
            does = "the first of its chain" if plan.succession == "first" else ""
            does = does or f"what was {plan.succession} {named}"
            steps[place] = PlanStep("succession", does, members, len(found[place]))
    width = max(map(len, found.values()))
    if not width:
        return query, steps
    followed = torch.full((len(query), width), -1, device=device)
    for place, row in found.items():
        followed[place, : len(row)] = torch.tensor(row, dtype=torch.int64, device=device)
    return replace(query, followed=followed), steps


def _asked(
    questions: Sequence[str], plans: Sequence[QueryPlan], pairs: Tensor, snapshot: Snapshot
) -> SuccessionBatch:
    """Return the sequences of values that questions ask for, as tensors on their device."""
    named, about, unknown = [], [], []
    for question, plan in zip(questions, plans, strict=True):
        rest = question.replace(plan.of, " ") if plan.of else question
        others = {*terms(rest)}
        # The subject of a question says nothing about the value.
        own = [each for each in value_terms(plan.of) if each not in others]
        ids = snapshot.vocabulary.encode_terms([own], grow=False)[0]
        named.append(ids)
        unknown.append(len(own) - len(ids))
        names = " ".join(proper_words(rest.partition(" ")[2]))
        about.append(snapshot.vocabulary.encode([names], grow=False)[0].unique())
    way = torch.tensor([WAYS.index(plan.succession) for plan in plans])
    padded = (pad_sequence(ids, batch_first=True, padding_value=-1) for ids in (named, about))
    parts = (each.to(pairs.device) for each in (way, *padded, torch.tensor(unknown)))
    return SuccessionBatch(*parts, *pairs)


def _pruned(
    snapshot: Snapshot,
    store: TensorReader,
    questions: Sequence[str],
    query: QueryBatch,
    plans: Sequence[QueryPlan],
    events: Events | None,
) -> tuple[QueryBatch, list[QueryPlan | None]]:
    """Return pruned questions with the rows they lead to, and their plans."""
    if events is not None:
        device = snapshot.index.embeddings.device
        events = Events(*(column.to(device) for column in events))
    with torch.inference_mode():
        batch = _batch(plans, questions, snapshot, store)
        pruned = snapshot.index.prune(query, batch, events)
    atoms, rows = snapshot.index.num_atoms, pruned.rows
    if query.followed is not None:
        rows = torch.cat([rows, query.followed], dim=1)
    left = torch.zeros(len(query), atoms + 1, dtype=torch.bool, device=rows.device)
    left.scatter_(1, rows % (atoms + 1), True)
    left = left[:, :-1]
    if query.followed is not None and query.listed is not None:
        left = left & query.listed
    told = zip(plans, *(each.tolist() for each in pruned[1:4]), strict=True)
    done: list[QueryPlan | None] = [
        replace(
            plan,
            between=None if plan.between is None else open_span(parse_span(plan.between)),
            steps=_steps(plan, *each),
        )
        for plan, *each in told
    ]
    # A window alone leaves one tier.
    tier = pruned.tier if bool(pruned.open.any()) else None
    if tier is not None and query.followed is not None:
        # The successor of a value answers, wherever it lies.
        led = torch.zeros_like(left).scatter_(1, query.followed.clamp(min=0), query.followed >= 0)
        tier = tier.masked_fill(led, 0)
    return replace(query, planned=rows, listed=left, tier=tier), done


def _steps(plan: QueryPlan, counts: list[int], reached: int, open_: bool) -> tuple[PlanStep, ...]:
    there, inside, best, kept = counts
    steps = []
    if plan.between is not None:
        does = f"{_window(plan)}, telling of then or said then"
        if open_:
            others = f"{there - inside:,} others stand behind"
            does += f"; {others if inside else 'gives way to any time, as nothing is'}"
        steps.append(PlanStep("time", does, there, inside))
    does = f"the {plan.best} best by cosine and as many by BM25"
    left = there if open_ else inside
    steps.append(PlanStep("semantic", does, left, best if plan.hops else kept))
    if plan.hops:
        starts = "".join(f", {name!r}" for name in plan.concepts)
        kinds = ", ".join(plan.edges) or "any type"
        edges = f"{plan.hops} edge{'s' * (plan.hops > 1)} of {kinds}"
        does = f"{edges} from these{starts}: {reached:,} reached, the {plan.kept} best kept"
        steps.append(PlanStep("relational", does, best, kept))
    return tuple(steps)


def _window(plan: QueryPlan) -> str:
    start, stop = (None if t is None else _shown(t) for t in open_span(parse_span(plan.between)))
    if start is None or stop is None:
        return f"until {stop}" if start is None else f"from {start} on"
    return f"{start} to {stop}"


def _shown(seconds: float) -> str:
    # Rounding errors may fall short of a whole second; after the last second there is none.
    whole = min(round(seconds, 3), LAST_SECOND - 1)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=whole)
    return moment.strftime("%Y-%m-%d %H:%M")


def answered(
    snapshot: Snapshot,
    store: TensorReader,
    questions: Sequence[str],
    query: QueryBatch,
    plans: Sequence[QueryPlan | None],
    chains: Chains,
    events: Events | None,
    k: int | None,
    *,
    paths: bool = False,
    stages: Stages | None = None,
) -> tuple[Retrieval, list[QueryPlan | None]]:
    """Run the index for B questions, some with plans; returns hits and the outcome of plans.

    Args:
        snapshot: Index of the store.
        store: Store with the concepts.
        questions: B questions.
        query: The questions as tensors.
        plans: Plan of each question; None for none.
        chains: Superseded values of the questions whose plans ask for sequences of values.
        events: Times of the events of atoms that state one.
        k: Number of hits, as for `MemoryIndex.forward`.
        paths: Whether to find the paths of hits, as for `MemoryIndex.forward`.
        stages: Record of the time of each stage.
    """
    groups = [Carried([*range(len(plans))], query, [*plans])]
    if any(plan is not None for plan in plans):
        groups = carried_out(snapshot, store, questions, query, plans, chains, events)
        if stages is not None:
            stages.done("plan")
    done: list[QueryPlan | None] = [None] * len(plans)
    parts, places = [], list[int]()
    index = snapshot.index
    for group in groups:
        ordered = [plan for plan in group.plans if plan and plan.order != "relevance"]
        wide = [min(plan.reorder_top, index.num_atoms) for plan in ordered]
        count = index.config.rank.k if k is None else k
        with torch.inference_mode():
            # Present or first values may rank below the first k.
            found = index(group.query, k=max([count, *wide]), paths=paths, stages=stages)
            if ordered:
                texts = [questions[place] for place in group.places]
                found = _in_order(snapshot, found, texts, group, events)
            parts.append(_first(found, count) if wide else found)
        for place, plan in zip(group.places, group.plans, strict=True):
            done[place] = plan
        places += group.places
    if len(parts) == 1:
        return parts[0], done
    if stages is not None:
        for name in ("candidates", "activated"):
            counted = dict(zip(places, getattr(stages, name), strict=True))
            setattr(stages, name, [counted[place] for place in range(len(plans))])
    return _joined(parts, places), done


def _in_order(
    snapshot: Snapshot,
    found: Retrieval,
    questions: Sequence[str],
    group: Carried,
    events: Events | None,
) -> Retrieval:
    """Reorder the first hits as the plan says; ties stay.

    By time, hits of unknown time are last.
    """
    count = found.rows.shape[1]
    if not count:
        return found
    device, index = found.rows.device, snapshot.index
    order = torch.arange(count, device=device).repeat(len(questions), 1)
    by_time: dict[str, int] = {"first": 1, "latest": -1}
    for names in (by_time, ("present",)):
        own = [i for i, plan in enumerate(group.plans) if plan and plan.order in names]
        if not own:
            continue
        rows = torch.tensor(own, device=device)
        plans = [cast(QueryPlan, group.plans[i]) for i in own]
        sizes = [min(plan.reorder_top, count) for plan in plans]
        wide = max(sizes)
        lane = torch.arange(wide, device=device)
        hits = found.rows[rows, :wide].masked_fill(
            lane >= torch.tensor(sizes, device=device)[:, None], -1
        )
        scores = found.scores[rows, :wide].masked_fill(hits < 0, -torch.inf)
        at = hits.clamp(min=0)
        if names is by_time:
            own_tier = group.query.tier
            tier = torch.zeros_like(hits) if own_tier is None else own_tier[rows].gather(1, at)
            way = torch.tensor([by_time[plan.order] for plan in plans], device=device)
            when = _told_times(snapshot, events)
            known, others = _about(snapshot, [questions[i] for i in own])
            parts = (tier.long(), when, known.to(device), others.to(device), way)
            order[rows, :wide] = order_by_time(index.tensors, hits, scores, *parts)
        else:
            scores = present_scores(scores, index.embeddings[at], index.time[at])
            order[rows, :wide] = stable_topk(scores, wide)[1]

    def taken(values: Tensor) -> Tensor:
        extra = values.shape[2:]
        at = order.view(*order.shape, *(1 for _ in extra)).expand(*order.shape, *extra)
        return values.gather(1, at)

    return found._replace(**{name: taken(getattr(found, name)) for name in OF_HITS})


def _about(snapshot: Snapshot, questions: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the known terms of questions [B, W], -1 = padding, and the number of others [B].

    Names of speakers do not count: speakers seldom name themselves.
    """
    known, others = [], []
    for question in questions:
        speakers = {word for word in name_words(question) if word in snapshot.speaker_words}
        names = {stem for name in speakers for stem in terms(name)}
        asked = [term for term in dict.fromkeys(order_terms(question)) if term not in names]
        ids = snapshot.vocabulary.encode_terms([asked], grow=False)[0]
        known.append(ids)
        others.append(len(asked) - len(ids))
    return pad_sequence(known, batch_first=True, padding_value=-1), torch.tensor(others)


def _told_times(snapshot: Snapshot, events: Events | None) -> Tensor:  # [A] float64
    """Return when the event of each atom began, seconds since the epoch UTC; NaN: unknown."""
    told = snapshot.index.tensors.told
    when = torch.where(told[:, 1] > told[:, 0], told[:, 0] * _DAY, snapshot.index.time.double())
    if events is not None:
        when[events.row.to(when.device)] = events.span[:, 0].to(when)
    return when


def _first(found: Retrieval, count: int) -> Retrieval:
    """Return the first hits of each question."""
    return found._replace(**{name: getattr(found, name)[:, :count] for name in OF_HITS})


def _joined(parts: Sequence[Retrieval], places: Sequence[int]) -> Retrieval:
    """Join retrievals of parts of a batch, in the order of the questions."""
    empty = {"scores": -math.inf, "shares": 0.0, "anchor_activation": 0.0}
    back = torch.tensor(places).argsort()
    columns = {}
    for name in Retrieval._fields:
        each: list[Tensor] = [getattr(part, name) for part in parts]
        shape = [max(sizes) for sizes in zip(*(column.shape[1:] for column in each), strict=True)]
        padded = [
            torch.nn.functional.pad(
                column,
                [
                    n
                    for most, own in zip(shape[::-1], column.shape[:0:-1], strict=True)
                    for n in (0, most - own)
                ],
                value=empty.get(name, -1),
            )
            for column in each
        ]
        columns[name] = torch.cat(padded)[back.to(each[0].device)]
    return Retrieval(**columns)
