"""Query plans of a memory: chosen from words, given by hand, beside every filter, as it grows."""

from __future__ import annotations

import json
import math
import statistics
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.memory.plan_choice import plans_of
from graphmem_torch.results import QueryPlan, Result
from graphmem_torch.text.times import parse_time
from tests.memories import DAY, config_of, ids, opened, planned, retrieved, turns

DECEMBER = "What did Ada say about the violin in December 2023?"
PLACES = ["Lisbon", "Oslo", "Kyoto", "Quito"]


def atoms(count: int = 40) -> list[Atom]:
    """Turns of a day each, some of unknown time; every fifth one is about a place."""
    return [
        replace(a, text=f"{a.text} We went to {PLACES[i % 4]}." if i % 5 == 0 else a.text)
        for i, a in enumerate(turns(count))
    ]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with opened() as made:
        made.add(atoms())
        yield made


def times(memory: Memory, result: Result) -> list[float | None]:
    return [atom.time for atom in memory.get(ids(result))]


def said_in(low: str | None, high: str | None, count: int = 40) -> set[str]:
    """Of these turns none tells of a day."""
    start = -math.inf if low is None else parse_time(low)
    stop = math.inf if high is None else parse_time(high)
    return {a.id for a in atoms(count) if a.time is not None and start <= a.time <= stop}


@pytest.mark.parametrize(
    ("between", "question"),
    [
        (("2023-12-01", "2023-12-15"), DECEMBER.replace("December", "1 December") + " canoe"),
        (("2023-12-05", None), "What happened to the canoe after 4 December 2023?"),
        ((None, "2023-12-05"), "What happened to the canoe before 5 December 2023?"),
    ],
)
def test_a_window_is_a_scan_by_time(memory: Memory, between: Any, question: str) -> None:
    inside = said_in(*between)
    plan = QueryPlan(between=between, hops=0)
    found = memory.retrieve(question, scope=Scope(plan=plan), k=40)
    assert {*ids(found)} == inside
    assert found.plan is not None and found.plan.steps[0].before == 40
    assert [step.after for step in found.plan.steps] == [len(inside)] * 2
    ranked = [i for i in ids(memory.retrieve(question, k=40)) if i in inside]
    assert ids(found) == ranked  # the score is that of the question without a plan


def test_a_plan_is_chosen_from_the_question(memory: Memory) -> None:
    plan = planned(memory, DECEMBER)
    assert plan.between is not None
    start, stop = plan.between
    assert start == parse_time("2023-12-01")
    assert stop == math.nextafter(parse_time("2024-01-01"), 0)
    assert plan.window_slack_days == 31
    assert plan.hops == 0 and plan.concepts == () and plan.order == "relevance"
    assert [step.name for step in plan.steps] == ["time", "semantic"]
    assert "2023-12-01 00:00 to " in str(plan)
    named = planned(memory, "Who has been to lisbon and Quito in December 2023?")
    assert named.concepts == ("lisbon", "quito") and named.between == plan.between
    assert [step.name for step in named.steps] == ["time", "semantic", "relational"]


def test_a_plan_may_be_given_again_and_changed(memory: Memory) -> None:
    plan = planned(memory, DECEMBER)
    given = memory.retrieve(DECEMBER, scope=Scope(plan=plan))
    assert given == memory.retrieve(DECEMBER, scope=Scope(plan=True))
    assert given.plan == plan
    narrow = replace(plan, kept=3)
    assert len(memory.retrieve(DECEMBER, scope=Scope(plan=narrow)).hits) == 3


@pytest.mark.parametrize("huge", [10**12, 10**30])
@pytest.mark.parametrize("order", ["relevance", "first", "present"])
def test_numbers_beyond_the_memory_are_those_of_all_of_it(
    memory: Memory, order: str, huge: int
) -> None:
    question, window = "canoe story", ("2023-12-01", None)
    plans = [
        QueryPlan(window, best=n, hops=n, kept=n, order=order, reorder_top=n, min_in_window=n)
        for n in (huge, 1000)
    ]
    found, whole = (memory.retrieve(question, scope=Scope(plan=plan), k=40) for plan in plans)
    assert found.hits == whole.hits and len(found.hits) == 40
    assert found.plan is not None and found.plan.steps[-1].after == 40


@pytest.mark.parametrize("asked", ["0001-01-01", "9999-12-31"])
def test_a_plan_at_the_ends_of_the_calendar(memory: Memory, asked: str) -> None:
    for when in ("yesterday", "last week", "this month", "next year", "two weeks ago", "in March"):
        question = f"What was said {when}?"
        # Nothing was said then: a window gives way.
        found = memory.retrieve(question, scope=Scope(plan=True, asked=asked))
        assert found.plan is not None and ids(found) == ids(
            memory.retrieve(question, scope=Scope(asked=asked))
        )
    late = planned(memory, "What was said last week?", asked="9999-12-31")
    assert late.between is not None and late.between[0] == parse_time("9999-12-20")
    last = math.nextafter(parse_time("9999-12-31") + DAY, 0)
    assert "until 9999-12-31 23:59" in str(planned(memory, "canoe", plan=QueryPlan((None, last))))


def test_what_steps_did_is_told_once() -> None:
    with opened() as made:
        made.add([Atom("old", "Ada lives in Oslo"), Atom("new", "Ada lives in Lisbon")])
        made.facts.supersede("old", "new")
        asked = QueryPlan(best=None, hops=0, succession="before")
        plan = planned(made, "Where did Ada live?", plan=asked)
        assert [step.name for step in plan.steps] == ["succession"]
        assert planned(made, "Where did Ada live?", plan=plan) == plan


def test_a_plan_is_plain_values(memory: Memory) -> None:
    """Open ends, and times in any form, as seconds or null."""
    for question, plan in (
        ("What of the canoe before 2023-12-05?", True),
        ("canoe", QueryPlan(between=(datetime(2023, 12, 1), None))),
    ):
        told = memory.retrieve(question, scope=Scope(plan=plan), k=2).as_dict()
        between = json.loads(json.dumps(told, allow_nan=False))["plan"]["between"]
        assert None in between and any(isinstance(end, float) for end in between)


def test_relations_lead_to_what_neither_words_nor_vectors_find() -> None:
    with opened() as memory:
        memory.add(turns(40))
        memory.add(
            [
                Atom("fact", "zzz qqq xxx", time=1.7e9, edges=(Link("a8", EdgeType.SUPPORTS),)),
                Atom("other", "zzz qqq yyy", time=1.7e9, edges=(Link("a8", EdgeType.ELABORATES),)),
            ]
        )
        question = "The canoe number 8"
        alone = QueryPlan(best=1, hops=0)
        assert {*ids(memory.retrieve(question, scope=Scope(plan=alone)))} == {"a8"}
        named = replace(alone, hops=1, edges=("supports",))
        assert {*ids(memory.retrieve(question, scope=Scope(plan=named)))} == {"a8", "fact"}
        wide = memory.retrieve(question, scope=Scope(plan=replace(alone, hops=1)), k=60)
        assert {"a8", "fact", "other"} <= {*ids(wide)}
        kept = replace(named, between=("2024-01-01", None))
        assert "fact" not in ids(memory.retrieve(question, scope=Scope(plan=kept)))


def test_concepts_are_set_out_from(memory: Memory) -> None:
    about = {a.id for a in atoms() if "Lisbon" in a.text}
    question = "The comet"
    plan = QueryPlan(best=1, hops=1, edges=("abstraction",), concepts=(" LISBON ",), kept=40)
    found = {*ids(memory.retrieve(question, scope=Scope(plan=plan), k=40))}
    assert about <= found
    with pytest.raises(InputError, match=r"plan.concepts: .*'Lisbone'.*lisbon"):
        memory.retrieve(question, scope=Scope(plan=replace(plan, concepts=("Lisbone",))))


def test_a_chosen_window_gives_way_and_a_given_one_does_not(memory: Memory) -> None:
    question = "What did Ada say about the violin in March 1999?"
    chosen = memory.retrieve(question, scope=Scope(plan=True))
    assert chosen.plan is not None and "gives way" in chosen.plan.steps[0].does
    assert ids(chosen) == ids(memory.retrieve(question))
    given = memory.retrieve(
        question, scope=Scope(plan=QueryPlan(between=("1999-03-01", "1999-04-01")))
    )
    assert given.hits == () and given.plan is not None and given.plan.steps[-1].after == 0


FIRST = datetime(2022, 11, 1, tzinfo=UTC)


@st.composite
def stated_bounds(draw: st.DrawFn) -> tuple[str, datetime | None, datetime | None]:
    """Words for a bound, its first moment, and the first one behind it."""
    one, two = sorted(FIRST + timedelta(days=draw(st.integers(0, 400))) for _ in range(2))
    day = timedelta(days=1)
    first, second = (f"{each.day} {each:%B %Y}" for each in (one, two))
    month = one.replace(day=1)
    behind = (month + 32 * day).replace(day=1)
    saturday = month + (5 - month.weekday()) % 7 * day
    monday = one - one.weekday() * day
    return draw(
        st.sampled_from(
            [
                (f"after {first}", one + day, None),
                (f"since {first}", one, None),
                (f"before {first}", None, one),
                (f"by {first}", None, one + day),
                (f"on {first}", one, one + day),
                (f"between {first} and {second}", one, two + day),
                (f"in {one:%B %Y}", month, behind),
                (f"in the first weekend of {one:%B %Y}", saturday - day, saturday + 2 * day),
                (f"in the week of {first}", monday, monday + 7 * day),
            ]
        )
    )


@st.composite
def dated_atoms(draw: st.DrawFn) -> list[tuple[Atom, list[tuple[datetime, datetime]]]]:
    """Atoms, and the spans of each that a bound may touch, both ends included."""
    found = []
    for i in range(draw(st.integers(1, 30))):
        time, told, event = (
            draw(st.none() | st.integers(0, 400 * 24).map(lambda h: FIRST + timedelta(hours=h)))
            for _ in range(3)
        )
        spans = [] if time is None else [(time, time)]
        text = f"The canoe of {PLACES[i % 4]} was seen by number {i}."
        if told is not None:
            text += f" It was there on {told.day} {told:%B %Y}."
            day = told.replace(hour=0)
            spans.append((day, day + timedelta(days=1, microseconds=-1)))
        if event is not None:
            spans = [(event, event)]
        moment = None if time is None else time.timestamp()
        happened = None if event is None else event.timestamp()
        found.append((Atom(f"m{i}", text, time=moment, event_time=happened), spans))
    return found


@settings(deadline=None)
@given(dated_atoms(), stated_bounds(), st.sampled_from([0, 2048]))
def test_what_lies_inside_a_stated_bound_is_before_what_lies_outside(
    told: list[tuple[Atom, list[tuple[datetime, datetime]]]],
    bound: tuple[str, datetime | None, datetime | None],
    limit: int,
) -> None:
    words, start, behind = bound
    order = {}
    for atom, spans in told:
        touches = [
            (behind is None or begun < behind) and (start is None or ended >= start)
            for begun, ended in spans
        ]
        order[atom.id] = 0 if any(touches) else 2 if spans else 1
    with opened(config=config_of(**{"rank.exhaustive_up_to": limit})) as memory:
        memory.add([atom for atom, _ in told])
        found = memory.retrieve(
            f"What happened to the canoe {words}?", scope=Scope(plan=True), k=30
        )
    tiers = [order[i] for i in ids(found)]
    inside = sum(tier == 0 for tier in order.values())
    assert tiers.count(0) == inside
    if inside:
        assert tiers[:inside] == [0] * inside
        known = [tier for tier in tiers if tier != 1]
        assert known == sorted(known) and tiers == sorted(tiers)
    if inside < 10:
        assert len(tiers) == len(told)


def test_a_duplicate_outside_does_not_hide_the_one_inside() -> None:
    change = {"rank.unique": True, "reconcile.automatic": True}
    with opened(config=config_of(**change)) as memory:
        said = "Ada rowed to Lisbon with the old canoe."
        memory.add([Atom("may", said, time=parse_time("2023-05-03"))])
        memory.add([Atom("june", said, time=parse_time("2023-06-03"))])
        memory.add([Atom(f"n{i}", f"Ben ate {i} pears.", time=1.67e9 + i) for i in range(4)])
        memory.facts.reconcile()
        assert memory.facts.duplicates()
        for month, name in (("May", "may"), ("June", "june")):
            found = memory.retrieve(f"Where did Ada row in {month} 2023?", scope=Scope(plan=True))
            assert found.hits[0].id == name


def test_where_nothing_is_inside_any_time_will_do(memory: Memory) -> None:
    question = "What did Ada say about the violin in March 1999?"
    found = memory.retrieve(question, scope=Scope(plan=True))
    assert ids(found) == ids(memory.retrieve(question))


def test_a_context_keeps_to_a_stated_bound() -> None:
    """Scores never increase across a bound."""
    with opened() as memory:
        near = [Atom(f"in{i}", f"Ada ate {i} pears.", time=1.69e9 + i) for i in range(3)]
        far = [Atom(f"out{i}", f"Ada rowed the canoe {i}.", time=1.6e9 + i) for i in range(9)]
        memory.add([*near, *far])
        question = "What of the canoe after 3 May 2023?"
        bound, free = (
            {*memory.compile(question, budget=40, scope=Scope(plan=plan)).sources}
            for plan in (True, False)
        )
        assert bound and bound <= {"in0", "in1", "in2"} and not free & {"in0", "in1", "in2"}


@pytest.mark.parametrize("limit", [0, 2048])
def test_explain_ranks_as_a_bound_does(limit: int) -> None:
    with opened(config=config_of(**{"rank.exhaustive_up_to": limit})) as memory:
        memory.add(atoms())
        question = "What did Ada say about the violin before 22 November 2023?"
        found = memory.retrieve(question, scope=Scope(plan=True))
        for rank, hit in enumerate(found.hits[:4], start=1):
            assert memory.explain(question, hit.id, scope=Scope(plan=True)).rank == rank


def test_words_of_time_are_read_against_the_own_clock_of_a_memory() -> None:
    """That of the record, that of the machine, or the moment that is said."""
    now = parse_time("2025-03-05T12:00")
    record = [
        Atom("july", "The canoe of July", time=parse_time("2023-07-10")),
        Atom("august", "The canoe of August", time=parse_time("2023-08-12")),
        Atom("week", "The canoe of the week before", time=parse_time("2023-09-13")),
        Atom("last", "The canoe at last", time=parse_time("2023-09-20")),
        Atom("march", "The canoe of March", time=parse_time("2025-02-26")),
    ]

    def first(memory: Memory, question: str, **asked: Any) -> str:
        return ids(retrieved(memory, question, plan=True, **asked))[0]

    with opened(config=config_of(**{"decay.now": "latest"}), clock=lambda: now) as memory:
        memory.add(record[:4])
        assert first(memory, "What of the canoe in August?") == "august"
        assert first(memory, "What of the canoe last week?") == "week"
        assert first(memory, "What of the canoe last month?", asked="2023-08-20") == "july"
        moments = ["2023-08-20", "2023-09-21"]
        for found, name in zip(
            memory.at(as_of=moments).retrieve(
                "What of the canoe last month?", scope=Scope(plan=True)
            ),
            ("july", "august"),
            strict=True,
        ):
            assert ids(found)[0] == name
        assert (
            planned(memory, "last week").between == planned(memory, "last week", plan=True).between
        )
    with opened(clock=lambda: now) as memory:
        memory.add(record)
        assert first(memory, "What of the canoe last week?") == "march"


def test_namespaces_have_clocks_of_their_own() -> None:
    with opened(config=config_of(**{"decay.now": "latest"})) as memory:
        for name, year in (("ada", 2021), ("ben", 2023)):
            own = memory.namespaces.create(name)
            own.add([Atom("may", "A canoe in May", time=parse_time(f"{year}-05-10"))])
            own.add([Atom("june", "A canoe in June", time=parse_time(f"{year}-06-10"))])
        found = memory.retrieve(
            ["The canoe last month?"] * 2, scope=Scope(namespaces=["ada", "ben"], plan=True)
        )
        assert [ids(each)[0] for each in found] == ["may", "may"]
        assert [each.plan.between for each in found if each.plan] == [
            (parse_time(f"{y}-05-01"), math.nextafter(parse_time(f"{y}-06-01"), 0))
            for y in (2021, 2023)
        ]


@pytest.mark.parametrize(
    ("question", "hits"),
    [
        ("When did Ada last go swimming?", ["s2", "s3", "s1"]),
        ("When did Ada first go swimming?", ["s1", "s3", "s2"]),
        ("What was the most recent concert of Ada?", ["c3", "c1", "c2"]),
        ("What was the earliest concert of Ada?", ["c2", "c1", "c3"]),
        ("Since when has Ada been learning Czech?", ["z2", "z1"]),
        ("When was the last time Ada swam, went swimming that is?", ["s2", "s3", "s1"]),
        ("What was the first concert of Ada after 1 April 2023?", ["c1", "c3"]),
        ("What was the latest concert of Ada before June 2023?", ["c1", "c2"]),
    ],
)
def test_first_and_latest_order_what_fits(question: str, hits: list[str]) -> None:
    told = {
        "s1": ("Ada went swimming in the lake.", "2023-02-07"),
        "s2": ("Ada went swimming in the river.", "2023-06-30"),
        "s3": ("Ada went swimming at the pool.", "2023-04-19"),
        "c1": ("The concert of Ada was in Graz.", "2023-05-22"),
        "c2": ("A concert of strings pleased Ada.", "2023-03-13"),
        "c3": ("Ada played a concert in Basel on 1 August 2023.", "2023-09-02"),
        "z1": ("Ada is learning Czech.", "2023-07-11"),
        "z2": ("Ada has begun learning Czech with a tutor.", "2023-01-25"),
    }
    with opened() as memory:
        memory.add([Atom(i, text, time=parse_time(day)) for i, (text, day) in told.items()])
        noise = ("baked bread", "mended a fence", "lost a hat", "sowed leeks")
        memory.add(
            [Atom(f"n{i}", f"Ada {noise[i % 4]}.", time=1.66e9 + i * 7 * DAY) for i in range(80)]
        )
        found = ids(memory.retrieve(question, scope=Scope(plan=True), k=5))
        assert found[: len(hits)] == hits


@pytest.mark.parametrize(
    "question",
    [
        "What is the first name of Ada?",
        "How long did the concert last?",
        "Who came in the first weekend of August?",
        "What happened in the last week of May?",
        "What happened last week?",
        "Who was at last found?",
        "Which came first, the chicken or the egg?",
        "Who arrived last, Ada or Ben?",
        "Did Ada or Ben finish first?",
        "What was the hotel that you recommended last time?",
    ],
)
def test_what_orders_nothing(memory: Memory, question: str) -> None:
    assert planned(memory, question).order == "relevance"


@pytest.mark.parametrize(("limit", "left"), [(2048, None), (0, 3)])
def test_meaning_prunes_only_what_is_not_scored_anyway(limit: int, left: int | None) -> None:
    question, base = "The canoe in Lisbon since 2000", QueryPlan(best=2, kept=3)
    with opened(config=config_of(**{"rank.exhaustive_up_to": limit})) as memory:
        memory.add(atoms())
        scored = 0 if limit == 0 else memory.index.num_atoms
        given = True, [question], [0.0], memory.config.plan, memory.store
        (plan,) = plans_of(*given, scored=scored, base=base)
        found = memory.retrieve(question, scope=Scope(plan=plan)).plan
        assert found is not None
        time, *_, last = found.steps
        assert last.after == (time.after if left is None else left)
        chosen = memory.retrieve(question, scope=Scope(plan=True)).plan
        assert chosen is not None and chosen.steps[-1].after == chosen.steps[0].after


def test_what_nothing_bounds_is_not_pruned() -> None:
    """However many a plan may keep: the hits of a question without a window are the ranking's."""
    with opened(config=config_of(**{"rank.exhaustive_up_to": 0})) as memory:
        memory.add(atoms())
        for question in ("The canoe in Lisbon", "Who has been to Quito?", "How are you?"):
            found = memory.retrieve(question, scope=Scope(plan=True))
            assert found.plan is not None and found.plan.steps == ()
            assert found.hits == memory.retrieve(question, scope=Scope(plan=False)).hits
        latest = memory.retrieve("What was the latest comet story?", scope=Scope(plan=True))
        assert latest.plan is not None and latest.plan.order == "latest" and len(latest.hits) > 1


def test_the_words_of_a_date_are_not_looked_for() -> None:
    """Who speaks of a price of 2023 elsewhere has nothing to say of that year."""
    with opened() as memory:
        memory.add([Atom(f"n{i}", f"Ada rowed to place {i}", time=1.68e9 + i) for i in range(12)])
        memory.add([Atom(f"p{i}", f"Ada paid 2023 {i}", time=1.6e9 + i) for i in range(3)])
        plan = planned(memory, "Where did Ada row in 2023?")
        assert plan.steps[0].after == 12 and "gives way" not in plan.steps[0].does


def test_the_first_and_the_latest(memory: Memory) -> None:
    question = "comet story"
    plain = memory.retrieve(question, k=12)
    for order, sign in (("first", 1), ("latest", -1)):
        plan = QueryPlan(best=96, hops=0, order=order, reorder_top=6)
        found = memory.retrieve(question, scope=Scope(plan=plan), k=12)
        assert {*ids(found)[:6]} == {*ids(plain)[:6]} and ids(found)[6:] == ids(plain)[6:]
        known = [time for time in times(memory, found)[:6] if time is not None]
        assert known == sorted(known, key=lambda time: sign * time)
        assert None not in times(memory, found)[: len(known)]
        same = {hit.id: hit for hit in plain.hits}
        assert all(hit == same[hit.id] for hit in found.hits)


def test_the_present_is_that_of_a_loop(memory: Memory) -> None:
    question, depth = "comet story", 12
    plain = memory.retrieve(question, k=depth)
    plan = QueryPlan(best=None, hops=0, order="present", reorder_top=depth)
    found = memory.retrieve(question, scope=Scope(plan=plan), k=depth)
    assert {*ids(found)} == {*ids(plain)} and ids(found) != ids(plain)
    score = [hit.raw for hit in plain.hits]
    when = times(memory, plain)
    unit = [v / v.norm() for v in memory.embedder.encode([h.text for h in plain.hits]).pooled]
    mean = sum(unit) / depth
    own = [(v - mean) / (v - mean).norm() for v in unit]
    spread = statistics.stdev(score)

    def chance(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    expected = {}
    for i, hit in enumerate(plain.hits):
        expected[hit.id] = hit.raw
        for j in range(depth):
            if when[i] is not None and when[j] is not None and when[j] > when[i]:
                fits = chance(2 * (2.5 - (max(score) - score[j]) / spread))
                alike = chance(5 * float(own[i] @ own[j]))
                expected[hit.id] += spread * math.log1p(-0.99 * fits * alike)
    assert ids(found) == sorted(expected, key=lambda i: -expected[i])
    same = {hit.id: hit for hit in plain.hits}
    assert all(hit == same[hit.id] for hit in found.hits)  # what it is worth has not changed
    few = memory.retrieve(question, scope=Scope(plan=plan), k=3)
    assert ids(few) == ids(found)[:3] and "what holds now first" in str(few.plan)


def test_the_present_of_hits_that_fit_alike_is_the_latest() -> None:
    with opened() as made:
        assert not made.retrieve(
            "tea", scope=Scope(plan=QueryPlan(best=None, hops=0, order="present"))
        ).hits
        said = [Atom(f"t{i}", "Ada drinks tea.", time=i * DAY) for i in (3, 1, 4, 2)]
        made.add([*said, Atom("never", "Ada drinks tea.")])
        plan = QueryPlan(best=None, hops=0, order="present", reorder_top=30)
        found = ids(made.retrieve("What does Ada drink?", scope=Scope(plan=plan), k=5))
        assert [i for i in found if i != "never"] == ["t4", "t3", "t2", "t1"]
        assert ids(made.retrieve("What does Ada drink?", scope=Scope(plan=plan), k=1)) == found[:1]


def test_a_batch_is_its_questions_alone(memory: Memory) -> None:
    questions = [DECEMBER, "comet", "Who has been to Oslo?", "the comet story", "canoe"]
    given: list[QueryPlan | bool | None] = [
        True,
        False,
        QueryPlan(between=(None, "2023-12-01"), best=4),
        QueryPlan(best=None, hops=0, order="present", reorder_top=12),
        None,
    ]
    batch = memory.retrieve(questions, scope=Scope(plan=given), k=7, trace=True)
    for question, plan, found in zip(questions, given, batch, strict=True):
        alone = memory.retrieve(question, scope=Scope(plan=plan), k=7)
        assert ids(found) == ids(alone) and found.plan == alone.plan
        assert [hit.score for hit in found.hits] == pytest.approx(
            [hit.score for hit in alone.hits], abs=1e-4
        )
        assert [hit.path for hit in found.hits] == [hit.path for hit in alone.hits]
        assert found.trace is not None and found.trace.candidates == 40
    assert batch[1].plan is None and batch[4].plan is None
    assert ids(batch[1]) == ids(memory.retrieve("comet", k=7))


@pytest.mark.parametrize("limit", [0, 2048])
def test_beside_every_filter(limit: int) -> None:
    with opened(config=config_of(**{"rank.exhaustive_up_to": limit})) as memory:
        memory.add(atoms())
        plan = QueryPlan(between=("2023-11-20", "2023-12-20"), hops=1)
        filters: dict[str, Any] = {
            "where": {"speaker": "Ada"},
            "kinds": ["turn"],
            "as_of": "2023-12-10",
            "exclude": ["a10", "a14"],
        }
        found = retrieved(memory, "canoe story", plan=plan, k=40, **filters)
        wanted = {
            a.id
            for a in atoms()
            if a.id in said_in("2023-11-20", "2023-12-10")
            and (a.speaker, a.kind) == ("Ada", "turn")
            and a.id not in ("a10", "a14")
        }
        assert {*ids(found)} == wanted and wanted
        assert found.plan is not None and found.plan.steps[-1].after == len(wanted)
        assert planned(memory, "canoe story", plan=plan, **filters) == found.plan


def test_valid_at_comes_before_the_plan() -> None:
    with opened() as memory:
        memory.add([Atom("old", "Ada lives in Oslo", time=1.7e9)])
        memory.add([Atom("new", "Ada lives in Lisbon", time=1.71e9)])
        memory.facts.supersede("old", "new")
        for when, there in ((1.705e9, {"old"}), (1.72e9, {"new"})):
            found = memory.at(valid_at=when).retrieve(
                "Where has Ada lived since 2000?", scope=Scope(plan=True)
            )
            assert {*ids(found)} == there
            assert found.plan is not None and found.plan.steps[0].before == 1


def test_many_moments_are_planned_each_for_itself(memory: Memory) -> None:
    """What "last week" means, and what there is, depends on the moment."""
    question, moments = "What of the canoe last week?", ["2023-12-04", "2023-12-18"]
    plans: list[QueryPlan | bool] = [True, False]
    batch = memory.at(as_of=moments).retrieve([question, "canoe"], scope=Scope(plan=plans))
    for results, plan in zip(batch, plans, strict=True):
        for moment, found in zip(moments, results, strict=True):
            alone = memory.at(as_of=moment).retrieve(found.question, scope=Scope(plan=plan))
            assert ids(found) == ids(alone) and found.plan == alone.plan
    one, two = (found.plan for found in batch[0])
    assert one is not None and two is not None and one.between != two.between


def test_the_setting_plans_what_says_something_and_nothing_else() -> None:
    with opened(config=config_of(**{"plan.use": True})) as memory:
        memory.add(atoms())
        planned, plain = memory.retrieve([DECEMBER, "How is the comet?"])
        assert planned.plan is not None and plain.plan is None
        assert memory.retrieve(DECEMBER, scope=Scope(plan=False)).plan is None
        assert ids(memory.retrieve(DECEMBER, scope=Scope(plan=True))) == ids(planned)


def test_an_index_that_grows_finds_what_one_made_at_once_finds(tmp_path: Path) -> None:
    """Added in any order of time, deleted, updated, opened again: the order by time follows."""
    every = atoms(60)
    shuffled = [every[i] for i in torch.randperm(60).tolist()]
    plan = QueryPlan(between=("2023-11-20", "2023-12-20"), kept=60)
    with opened(tmp_path / "grown") as memory:
        for place in range(0, 60, 7):
            memory.add(shuffled[place : place + 7])
            order = memory.index.time_order
            assert order is not None
            known = memory.index.time[order.long()].nan_to_num(nan=math.inf)
            assert known.tolist() == sorted(known.tolist())
            assert sorted(order.tolist()) == [*range(min(60, place + 7))]
        memory.delete(["a3", "a10", "a47"])
        memory.update("a12", text="The canoe was seen on 24 December, 2023")
        grown = memory.retrieve("canoe", scope=Scope(plan=plan), k=60)
        with opened() as made:
            made.add(memory.get([a.id for a in shuffled if a.id in memory]))
            whole = made.retrieve("canoe", scope=Scope(plan=plan), k=60)
        assert grown.plan is not None and whole.plan is not None
        assert [s.after for s in grown.plan.steps[:2]] == [s.after for s in whole.plan.steps[:2]]
        inside = said_in("2023-11-20", "2023-12-20", 60) - {"a3", "a10", "a47"}
        assert {*ids(grown)} >= inside
    with opened(tmp_path / "grown", mode="r") as memory:
        assert ids(memory.retrieve("canoe", scope=Scope(plan=plan), k=60)) == ids(grown)


def test_what_a_text_tells_of_is_in_the_window() -> None:
    with opened() as memory:
        memory.add([Atom("late", "We were in Oslo on 3 May, 2023", time=parse_time("2023-09-01"))])
        memory.add([Atom("then", "Here we are", time=parse_time("2023-05-03T12:00"))])
        memory.add([Atom("never", "Nothing to see", time=parse_time("2022-05-03"))])
        memory.add([Atom("nobody", "Who knows when")])
        plan = QueryPlan(between=("2023-05-01", "2023-05-31"))
        assert {*ids(memory.retrieve("Where?", scope=Scope(plan=plan)))} == {"late", "then"}


def test_compile_and_explain_take_a_plan(memory: Memory) -> None:
    plan = QueryPlan(between=("2023-12-01", "2023-12-10"), hops=0)
    inside = said_in("2023-12-01", "2023-12-10")
    context = memory.compile("canoe", budget=300, scope=Scope(plan=plan))
    assert {*context.sources} == inside
    found = memory.retrieve("canoe", scope=Scope(plan=plan))
    told = memory.explain("canoe", scope=Scope(plan=plan))
    assert told.id == found.hits[0].id and told.rank == 1
    assert told.raw == pytest.approx(found.hits[0].raw, abs=1e-4)
    outside = next(a.id for a in atoms() if a.id not in inside)
    assert memory.explain("canoe", outside, scope=Scope(plan=plan)).rank == 0


def test_namespaces_plan_for_themselves() -> None:
    with opened() as memory:
        for name in ("ada", "ben"):
            memory.namespaces.create(name).add(atoms(20 if name == "ada" else 40))
        plans = [QueryPlan(between=("2023-11-20", None), hops=0), None, True]
        found = memory.retrieve(
            ["canoe", "canoe", DECEMBER], scope=Scope(namespaces=["ada", "ben", "ben"], plan=plans)
        )
        assert {*ids(found[0])} == said_in("2023-11-20", None, 20)
        assert found[1].plan is None and found[2].plan is not None
        assert found[2].plan.steps[0].before == 40


def test_an_empty_memory_has_plans_too() -> None:
    with opened() as memory:
        assert memory.retrieve(DECEMBER, scope=Scope(plan=True)).hits == ()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (QueryPlan(between=("2024-01-01", "2023-01-01")), "plan.between: expected a start before"),
        (QueryPlan(between="yesterday"), "plan.between: expected a start and an end"),  # type: ignore[arg-type]
        (QueryPlan(best=0), "plan.best: expected"),
        (QueryPlan(kept=0), "plan.kept: expected"),
        (QueryPlan(kept=None), "plan.kept: expected an integer"),  # type: ignore[arg-type]
        (QueryPlan(reorder_top=None), "plan.reorder_top: expected an integer"),  # type: ignore[arg-type]
        (QueryPlan(min_in_window=None), "plan.min_in_window: expected an integer"),  # type: ignore[arg-type]
        (QueryPlan(kept=True), "plan.kept: expected an integer"),
        (QueryPlan(hops=-1), "plan.hops: expected"),
        (QueryPlan(match=math.nan), "plan.match: expected"),
        (QueryPlan(discount=math.nan), "plan.discount: expected"),
        (QueryPlan(discount=0.0), "plan.discount: expected"),
        (QueryPlan(edges=("suports",)), "plan.edges: .*supports"),
        (QueryPlan(edges="supports"), "plan.edges: expected a list"),  # type: ignore[arg-type]
        (QueryPlan(edges=None), "plan.edges: expected a list"),  # type: ignore[arg-type]
        (QueryPlan(edges=iter(["supports"])), "plan.edges: expected a list"),  # type: ignore[arg-type]
        (QueryPlan(concepts=None), "plan.concepts: expected a list"),  # type: ignore[arg-type]
        (QueryPlan(concepts=5), "plan.concepts: expected a list"),  # type: ignore[arg-type]
        (QueryPlan(concepts=("nowhere at all",)), "plan.concepts: expected"),
        (QueryPlan(order="newest"), "plan.order: expected"),
        ("yes", "plan: expected a QueryPlan, True, False or 'present', got 'yes'"),
        ([True, False], "plan: expected one for each of 1"),
        (["yes"], "plan: expected a QueryPlan"),
    ],
)
def test_plans_that_cannot_be_carried_out(memory: Memory, plan: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        memory.retrieve("canoe", scope=Scope(plan=plan))


def test_beside_a_writer() -> None:
    """Whoever asks while others add and delete sees one state, in which the counts fit."""
    with opened() as memory:
        memory.add(atoms(30))
        wrong: list[object] = []

        def ask() -> None:
            try:
                for _ in range(5):
                    found = memory.retrieve(
                        "Who was in Oslo in December 2023?", scope=Scope(plan=True), k=99
                    )
                    assert found.plan is not None
                    assert len(found.hits) == found.plan.steps[-1].after
            except BaseException as error:
                wrong.append(error)

        askers = [threading.Thread(target=ask) for _ in range(2)]
        for asker in askers:
            asker.start()
        for i in range(4):
            memory.add([Atom(f"n{i}", f"Oslo in {i} days", time=1.7e9 + i * DAY)])
            memory.delete([f"a{i}"])
        for asker in askers:
            asker.join()
        assert wrong == []
