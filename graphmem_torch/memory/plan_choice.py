"""Choice of query plans: those a caller gives, checked, or one derived from a question."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, cast

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import check_choice, check_count, check_range
from graphmem_torch.config import PlanConfig
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.memory.filter_masks import concept_nodes
from graphmem_torch.memory.request import PlanLike
from graphmem_torch.rank.succession import WAYS
from graphmem_torch.results import PRESENT, QueryPlan
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.question import asks_order, asks_succession
from graphmem_torch.text.terms import terms
from graphmem_torch.text.times import asked_window, parse_span
from graphmem_torch.text.words import lowered, words

__all__ = ["open_span", "plans_of"]

_CHOSEN = QueryPlan(
    best=96,  # as many as the ranking scores in a large store (`rank.candidates`)
    hops=1,
    kept=192,
    discount=0.9,
    reorder_top=30,  # a page of `rank.k` hits: the question asks for the first or latest of these
    # What happened on a day is often stated on another. So if the window leaves fewer than 10, or
    # nothing that fits 0.6 as well as the best of any time, the others are listed after it, first
    # those of the month after (`docs/evaluation.md` 6).
    min_in_window=10,
    match=0.6,
    window_slack_days=31.0,
)
"""Sizes and limits of plans that are chosen from a question."""

_ORDERS = ("relevance", "first", "latest", "present")
_WORDS = 4  # maximum words of a concept name that is looked up in a question


def plans_of(
    given: PlanLike | Sequence[PlanLike],
    questions: Sequence[str],
    asked: Sequence[float],
    settings: PlanConfig,
    store: TensorReader,
    *,
    scored: int = 0,
    superseded: bool = False,
    base: QueryPlan = _CHOSEN,
) -> list[QueryPlan | None]:
    """Return the plan of each question; None where it has none.

    Args:
        given: Plan of all questions or of each: a plan, "present" for `PRESENT`, True for one
            derived from the question, False for none, None for the default of the settings.
        questions: B questions.
        asked: When each is asked, seconds since the epoch UTC.
        settings: Settings of derived plans.
        store: Store with the concepts.
        scored: Number of memories up to which all are scored. Derived plans keep at least as
            many.
        superseded: Whether any memory is superseded, so that a former value may be known.
        base: Sizes and limits of derived plans.

    Raises:
        InputError: Not one plan for each question, or a plan that cannot be executed.
    """
    several = isinstance(given, Sequence) and not isinstance(given, str)
    each: list[PlanLike] = (
        list(cast(Any, given)) if several else [cast(Any, given)] * len(questions)
    )
    if len(each) != len(questions):
        raise InputError(
            f"plan: expected one for each of {len(questions)} questions, got {len(each)}; give "
            "None for what the settings say"
        )
    each = [PRESENT if plan == "present" else plan for plan in each]
    for plan in each if several else each[:1]:
        if isinstance(plan, QueryPlan):
            _check(plan, store)
        elif not (plan is None or isinstance(plan, bool)):
            raise InputError(
                f"plan: expected a QueryPlan, True, False or 'present', got {plan!r:.80}; give one "
                "of these"
            )
    base = replace(base, best=max(base.best or 0, scored), kept=max(base.kept, scored))
    narrowed = [said is True or (said is None and settings.use) for said in each]
    windows = [
        asked_window(question, when) if narrow else None
        for question, when, narrow in zip(questions, asked, narrowed, strict=True)
    ]
    named: dict[str, tuple[str, ...]] = {}
    if settings.concepts and any(windows):
        wanted = [q for q, window in zip(questions, windows, strict=True) if window]
        named = _named_concepts(wanted, store)
    plans: list[QueryPlan | None] = []
    for question, window, said, narrow in zip(questions, windows, each, narrowed, strict=True):
        if isinstance(said, QueryPlan):
            plans.append(replace(said, steps=()))
        elif said is False:
            plans.append(None)
        else:
            parts = window, named.get(question, ()), base
            plan = _chosen(question, *parts, always=said is True) if narrow else None
            plans.append(_led(question, plan) if superseded else plan)
    return plans


def _check(plan: QueryPlan, store: TensorReader) -> None:
    if plan.between is not None:
        parse_span(plan.between, "plan.between")
    if plan.best is None and (plan.between is not None or plan.hops or plan.concepts):
        raise InputError(
            "plan.best: expected a number beside a window, edges or concepts, got None; give one, "
            "or hops=0 alone"
        )
    for name, low in (
        ("best", 1),
        ("kept", 1),
        ("reorder_top", 1),
        ("hops", 0),
        ("min_in_window", 0),
    ):
        if name != "best" or plan.best is not None:
            check_count(f"plan.{name}", getattr(plan, name), low)
    check_range("plan.discount", plan.discount, 1e-9, 1.0)
    check_range("plan.match", plan.match, 0.0, 1.0)
    check_range("plan.window_slack_days", plan.window_slack_days, 0.0, math.inf)
    check_choice("plan.order", plan.order, _ORDERS)
    check_choice("plan.succession", plan.succession, ("", *WAYS))
    if not isinstance(plan.of, str):
        raise InputError(f'plan.of: expected words, got {plan.of!r:.80}; give "" for none')
    for name in ("edges", "concepts"):
        listed = getattr(plan, name)
        names = isinstance(listed, Collection) and not isinstance(listed, str)
        if not names or not all(isinstance(each, str) for each in listed):
            raise InputError(
                f"plan.{name}: expected a list of names, got {listed!r:.80}; give () for none"
            )
    concept_nodes(store, plan.concepts, "plan.concepts")
    known = [kind.name.lower() for kind in EdgeType]
    foreign = next((name for name in plan.edges if name not in known), None)
    if foreign is not None:
        raise InputError(unknown("plan.edges", foreign, known))


def _led(question: str, plan: QueryPlan | None) -> QueryPlan | None:
    """Return the plan, with the step that the question asks for in a sequence of values."""
    asks = asks_succession(question)
    if asks is None:
        return plan
    plan = plan or QueryPlan(best=None, hops=0)
    return replace(plan, succession=asks.way, of=asks.of)


def _chosen(
    question: str,
    window: tuple[float, float] | None,
    concepts: tuple[str, ...],
    base: QueryPlan,
    *,
    always: bool,
) -> QueryPlan | None:
    """Return the plan that a question asks for; None if it asks for none and needs none."""
    order = asks_order(question)
    if window is None:
        # Nothing limits the answer, and pruning by meaning would lose what the ranking finds.
        free = QueryPlan(best=None, hops=0, order=order, reorder_top=base.reorder_top)
        return free if always or order != "relevance" else None
    hops = base.hops if concepts else 0
    return replace(base, between=open_span(window), concepts=concepts, hops=hops, order=order)


def open_span(span: tuple[float, float]) -> tuple[float | None, float | None]:
    """Return a span with None for an open end, as plain values have it."""
    start, stop = (None if math.isinf(end) else end for end in span)
    return start, stop


def _named_concepts(questions: Sequence[str], store: TensorReader) -> dict[str, tuple[str, ...]]:
    """Return the concepts that questions name; where several overlap, the longest."""
    runs: dict[str, dict[tuple[int, int], str]] = {}
    for question in questions:
        found = words(lowered(question))
        runs[question] = {
            (first, first + size): " ".join(found[first : first + size])
            for size in range(1, _WORDS + 1)
            for first in range(len(found) - size + 1)
        }
    known = store.concepts(
        list(dict.fromkeys(name for own in runs.values() for name in own.values()))
    )
    named = {}
    for question, own in runs.items():
        there = [place for place, name in own.items() if name in known and terms(name)]
        whole = [
            (a, b)
            for a, b in there
            if not any(c <= a and b <= d and (a, b) != (c, d) for c, d in there)
        ]
        named[question] = tuple(dict.fromkeys(own[place] for place in sorted(whole)))
    return named
