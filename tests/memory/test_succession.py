"""Questions for what was before or behind a value: led there by what was superseded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.results import QueryPlan, Result
from tests.memories import config_of, ids, opened, planned, retrieved, turns

CITIES = ["Rome", "Oslo", "Lima", "Turin", "Ghent", "Porto"]
NORA = [f"n{i}" for i in range(4)]


def lived(who: str, cities: list[str], start: float = 0.0) -> list[Atom]:
    """What somebody says of where they live, a thousand seconds each; every second with the past.

    So a text that names a city does not always state it.
    """
    named = zip(["nowhere", *cities], cities, strict=False)
    return [
        Atom(
            f"{who[0].lower()}{i}",
            f"{who} left {old} and lives in {city}" if i % 2 else f"{who} lives in {city}",
            time=start + 1000.0 * i,
        )
        for i, (old, city) in enumerate(named)
    ]


def chained(memory: Memory, atoms: list[Atom], **options: Any) -> None:
    for old, new in pairwise(atoms):
        memory.facts.supersede(old.id, new.id, **options)


@pytest.fixture(scope="module", params=[2048, 0])
def memory(request: pytest.FixtureRequest) -> Iterator[Memory]:
    """Every memory scored, and few of them; Nora and Milo live in the same cities by turns."""
    config = config_of(**{"rank.exhaustive_up_to": request.param, "rank.candidates": 4})
    with opened(config=config) as made:
        nora = lived("Nora", ["Rome", "Oslo", "Lima", "Turin"])
        milo = lived("Milo", ["Lima", "Oslo", "Ghent"], 300.0)
        made.add([*nora, *milo, *turns(40)])
        chained(made, nora, known=5000.0)
        chained(made, milo, known=5000.0)
        yield made


def step(result: Result) -> tuple[int, int] | None:
    """How many memories are in a chain, and how many a question was led to; None for no plan."""
    if result.plan is None:
        return None
    found = next(step for step in result.plan.steps if step.name == "succession")
    return found.before, found.after


def test_the_answer_comes_first(memory: Memory) -> None:
    answers = {
        "Where did Nora live before Oslo?": "n0",
        "Where did Nora live before moving to Turin?": "n2",
        "Where did Nora live prior to Lima?": "n1",
        "Where did Nora live after Oslo?": "n2",
        "Where does Nora live after leaving Lima?": "n3",
        "Where did Nora use to live?": "n2",
        "What was Nora's previous city?": "n2",
        "Where did Nora live before her current city?": "n2",
        "Where did Nora live originally?": "n0",
        "Where did Milo live before Oslo?": "m0",
        "Where did Milo live before Ghent?": "m1",
        "Where did Milo live at first?": "m0",
    }
    for found, answer in zip(memory.retrieve([*answers]), answers.values(), strict=True):
        assert found.hits[0].id == answer, found.query
        assert found.hits[0].signals["succession"] > 0
        assert step(found) == (7, 1)
        assert [hit.id for hit in found.hits if hit.signals["succession"]] == [answer]


def test_where_nothing_leads_nothing_changes(memory: Memory) -> None:
    questions = [
        "Where did Nora live before Atlantis?",  # no such value
        "Where did Nora live before Rome?",  # nothing was before it
        "Where did Nora live after Turin?",
        "Where did Nora live before Ghent?",  # where another one lives
        "What did Ada say about the violin before the comet?",  # what is in no chain
    ]
    plain = memory.retrieve(questions, scope=Scope(plan=False))
    for found, unplanned in zip(memory.retrieve(questions), plain, strict=True):
        assert step(found) == (7, 0)
        assert found.hits == unplanned.hits


@pytest.mark.parametrize(
    "question",
    ["Where does Nora live?", "Where did Nora live before May 2023?", "Who looks after Nora?"],
)
def test_other_questions_have_no_plan(memory: Memory, question: str) -> None:
    assert memory.retrieve(question).plan is None


def test_without_supersession_or_weight_or_leave_there_is_no_step() -> None:
    question = "Where did Nora live before Oslo?"
    config, atoms = config_of(), lived("Nora", CITIES)
    others = {name: own for name, own in config.rank.weights.items() if name != "succession"}
    unweighed = replace(config, rank=replace(config.rank, weights=others))
    with opened(config=unweighed) as memory:
        memory.add(atoms)
        chained(memory, atoms)
        assert memory.retrieve(question).plan is None
    with opened() as memory:
        memory.add(atoms)
        assert memory.retrieve(question).plan is None
        chained(memory, atoms)
        assert memory.retrieve(question, scope=Scope(plan=False)).plan is None
        assert memory.retrieve(question).plan is not None


@pytest.mark.parametrize("seed", range(4))
def test_as_it_was_known_against_a_list_of_intervals(seed: int) -> None:
    """At every moment the value before is the one before of those that had been told by then."""
    dice = random.Random(seed)
    people = ["Nora", "Milo", "Ada"]
    told: dict[str, list[tuple[str, str, float]]] = {}  # id, city, known since
    with opened() as memory:
        for number, who in enumerate(people):
            cities = dice.sample(CITIES, 4)
            atoms = lived(who, cities, 100.0 * number)
            memory.add(atoms)
            known = sorted(dice.uniform(4000, 9000) for _ in atoms)
            pairs = zip(atoms, atoms[1:], known, strict=False)
            for old, new, when in pairs:
                memory.facts.supersede(old.id, new.id, known=when)
            told[who] = [(a.id, c, k) for a, c, k in zip(atoms, cities, [0, *known], strict=False)]
        instants = [dice.uniform(4000, 9500) for _ in range(6)]
        before = {
            f"Where did {who} live before {city}?": (values[place - 1][0], known_since)
            for who, values in told.items()
            for place, (_, city, known_since) in enumerate(values[1:], start=1)
        }
        found = memory.at(as_of=instants).retrieve([*before])
        for results, (gone, known_since) in zip(found, before.values(), strict=True):
            for at, result in zip(instants, results, strict=True):
                led = [hit.id for hit in result.hits if hit.signals["succession"]]
                assert led == ([gone] if known_since <= at else [])
                if led:
                    assert result.hits[0].id == gone


def test_what_is_gone_leads_nowhere() -> None:
    """Forgotten, archived with what came before it, or taken back."""
    question = "Where did Nora live before Lima?"
    for way in ("forget", "delete", "upkeep.archive", "take back"):
        with opened() as memory:
            atoms = lived("Nora", CITIES)
            memory.add(atoms)
            chained(memory, atoms)
            assert memory.retrieve(question).hits[0].id == "n1"
            if way == "take back":
                memory.facts.set_validity("n1", stop=None)
            elif way == "forget":
                memory.forget(["n1"])
            else:
                attrgetter(way)(memory)("n1")
            found = memory.retrieve(question)
            assert not any(hit.signals["succession"] for hit in found.hits)
            assert memory.retrieve("Where did Nora live before Ghent?").hits[0].id == "n3"
            if way == "archive":
                memory.upkeep.restore("n1")
                assert memory.retrieve(question).hits[0].id == "n1"


def test_of_several_that_were_superseded_by_one_all_are_told() -> None:
    with opened() as memory:
        told = [Atom(f"t{i}", "Nora lives in Rome", time=10.0) for i in range(2)]
        memory.add([*told, *lived("Nora", ["Oslo"], 50.0), *turns(40)])
        for atom in told:
            memory.facts.supersede(atom.id, "n0")
        found = memory.retrieve("Where did Nora live before Oslo?")
        assert {*ids(found)[:2]} == {"t0", "t1"} and step(found) == (3, 2)


def test_filters_come_first(memory: Memory) -> None:
    question = "Where did Nora live before Lima?"
    hidden: list[dict[str, Any]] = [{"exclude": ["n1"]}, {"where": {"id": "n2"}}]
    hidden += [{"kinds": ["note"]}, {"between": (2000.0, None)}, {"valid_at": 2500.0}]
    for filters in hidden:
        assert "n1" not in ids(retrieved(memory, question, **filters))
    # What says where to set out from need not be a hit itself.
    assert ids(memory.retrieve(question, where={"id": "n1"})) == ["n1"]
    assert memory.retrieve(question, scope=Scope(exclude=["n2"])).hits[0].id == "n1"


def test_beside_the_other_steps(memory: Memory) -> None:
    """A window of time does not hide what was before."""
    window = QueryPlan(between=(2000.0, 3500.0), best=4, hops=0, succession="before", of="Lima")
    question = "Where did Nora live before Lima?"
    found = memory.retrieve(question, scope=Scope(plan=window))
    assert found.hits[0].id == "n1" and {"n2", "n3"} <= {*ids(found)}
    assert found.plan is not None
    assert [own.name for own in found.plan.steps] == ["succession", "time", "semantic"]
    alone = QueryPlan(best=None, hops=0, succession="before", of="Lima")
    given = memory.retrieve(question, scope=Scope(plan=alone))
    assert given.hits == memory.retrieve(question).hits
    assert "succession" in str(given.plan) and "what was before 'Lima'" in str(given.plan)
    assert planned(memory, question).succession == "before"
    hidden = memory.retrieve(question, scope=Scope(plan=window), where={"id": "n2"})
    assert ids(hidden) == ["n2"]


def test_a_batch_is_its_questions_alone(memory: Memory) -> None:
    asked = ["Where did Nora live before Oslo?", "The canoe", "Where did Milo use to live?"]
    plans: list[QueryPlan | bool | None] = [None, None, QueryPlan(hops=0, best=9)]
    batch = memory.retrieve(asked, scope=Scope(plan=plans), trace=True)
    for question, plan, found in zip(asked, plans, batch, strict=True):
        alone = memory.retrieve(question, scope=Scope(plan=plan))
        assert ids(found) == ids(alone) and found.plan == alone.plan
    many = memory.at(as_of=[500.0, 1e9]).retrieve(asked[0])
    assert [step(found) for found in many] == [(0, 0), (7, 1)]
    assert many[1].hits[0].id == "n0"


def test_contexts_and_explanations_follow_too(memory: Memory) -> None:
    question = "Where did Nora live before Oslo?"
    assert memory.compile(question, budget=60).sources[0] == "n0"
    explained = memory.explain(question)
    assert explained.id == "n0" and explained.signals["succession"] > 0


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (QueryPlan(succession="behind"), "plan.succession: expected"),
        (QueryPlan(of=3), "plan.of: expected words"),  # type: ignore[arg-type]
        (QueryPlan(best=None), "plan.best: expected a number beside"),
        (QueryPlan(best=None, hops=0, between=(0.0, 1.0)), "plan.best: expected a number beside"),
        (QueryPlan(best=None, hops=0, concepts=("oslo",)), "plan.best: expected a number beside"),
    ],
)
def test_plans_that_cannot_be_carried_out(memory: Memory, plan: QueryPlan, message: str) -> None:
    with pytest.raises(InputError, match=message):
        memory.retrieve("canoe", scope=Scope(plan=plan))
    with pytest.raises(InputError, match=message):
        memory.retrieve("canoe", scope=Scope(plan=replace(plan, reorder_top=2)))
