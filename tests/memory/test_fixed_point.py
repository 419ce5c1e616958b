"""A second consolidation finds nothing and changes nothing, whatever the first one did."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory
from graphmem_torch.results import Consolidated
from tests.memories import DAY, interrupted_after, opened

PRESETS = ("contextos", "default", "sgrm", "spectral", "synapse", "weave")
NOW = 1.7e9 + 40 * DAY
TOPICS = {
    "violin": ["Ada", "string", "quartet", "Ravel", "concert"],
    "canoe": ["Ben", "paddle", "river", "rapids", "portage"],
    "bakery": ["Cleo", "rye", "oven", "sourdough", "flour"],
}
HOMES = ("Oslo", "Lisbon", "Quito")


def said(count: int = 5) -> list[Atom]:
    """Topics to aggregate, repetitions, homes that change, and a few of no kind."""
    turns = [
        (f"{topic}{i}", f"The {topic} brought {words[i]} to {words[i - 4]}, said {words[i - 3]}.")
        for i in range(count)
        for topic, words in TOPICS.items()
    ]
    turns += [
        (f"home{i}", f"Nora moved to {city} and lives in {city} now.")
        for i, city in enumerate(HOMES)
    ]
    turns += [("again0", turns[0][1]), ("again1", f"Oh, {turns[0][1]}"), ("again2", turns[4][1])]
    turns += [
        ("off", "The light of the harbour is off."),
        ("on", "The light of the harbour is on."),
    ]
    return [
        Atom(name, text, speaker="Nora", session=f"s{i // 6}", time=1.7e9 + i * DAY)
        for i, (name, text) in enumerate(turns)
    ]


def memory_of(path: Path | None, preset: str, **change: Any) -> Memory:
    own = {"link.concepts": "pattern", "aggregate.min_similarity": 0.3, **change}
    return opened(
        path,
        config=load_config(preset, own),
        embedder="hashing:256",
        clock=lambda: NOW,
    )


def shown(memory: Memory, path: Path) -> tuple[object, ...]:
    """All that a user can see: what is exported, how much it counts, and what stands beside it."""
    names = [atom.id for atom in memory.get(stored(memory))]
    file, away = path / "shown.jsonl", memory.upkeep.archived()
    memory.export(file)
    return (
        file.read_bytes(),
        memory.upkeep.importance(names),
        memory.facts.validity(names),
        memory.facts.conflicts(),
        memory.facts.duplicates(),
        [] if away is None else sorted(stored(away)),
    )


def stored(memory: Memory) -> list[str]:
    columns = memory.store.columns()
    pairs = zip(memory.store.ids(), columns.is_concept.tolist(), strict=True)
    return [name for name, concept in pairs if not concept]


def settled(memory: Memory, path: Path) -> None:
    """Asserts that a consolidation finds nothing more."""
    before = shown(memory, path)
    assert memory.upkeep.consolidate() == Consolidated()
    assert shown(memory, path) == before
    assert memory.check() == []


STEPS: dict[str, tuple[Any, ...]] = {
    "reconcile.automatic": (False, True),
    "reconcile.policy": ("recency", "importance", "both"),
    "aggregate.build": (False, True),
    "refine.max_memories": (0, 12),
    "refine.prune_below": (0.0, 0.3),
    "refine.half_life_days": (0.0, 60.0),
    "link.batch_concepts": (1, 7),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_as_it_is(preset: str, tmp_path: Path) -> None:
    with memory_of(None, preset) as memory:
        memory.add(said())
        memory.touch(["violin1", "home0"])
        memory.upkeep.consolidate()
        settled(memory, tmp_path)


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_with_all_steps(preset: str, tmp_path: Path) -> None:
    every = {name: values[-1] for name, values in STEPS.items()}
    with memory_of(None, preset, **every | {"reconcile.policy": "recency"}) as memory:
        memory.add(said())
        memory.touch(["violin1", "home0"])
        assert memory.upkeep.consolidate() != Consolidated()
        settled(memory, tmp_path)


PLAN = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in STEPS.items()})
CHANGES = st.lists(
    st.tuples(st.sampled_from(["touch", "delete", "update", "add", "pin"]), st.integers(0, 22)),
    max_size=5,
)


def change(memory: Memory, kind: str, place: int) -> None:
    atoms = said()
    there = [name for name in stored(memory) if not name.startswith(("aggregate", "conflict"))]
    if not there:
        return
    name = there[place % len(there)]
    if kind == "touch":
        memory.touch([name, name])
    elif kind == "delete":
        memory.delete(name)
    elif kind == "update":
        memory.update(name, text=f"The {['violin', 'canoe'][place % 2]} brought rye to Ravel.")
    elif kind == "pin":
        memory.pin(name)
    else:
        text = atoms[place % len(atoms)].text
        memory.add(Atom(f"new{len(memory)}{place}", text, speaker="Nora", time=1.7e9 + 90 * DAY))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=PLAN, changes=CHANGES)
def test_any_steps_after_any_changes(
    plan: dict[str, Any], changes: list[tuple[str, int]], tmp_path: Path
) -> None:
    with memory_of(None, "default", **plan) as memory:
        memory.add(said())
        memory.upkeep.consolidate()
        settled(memory, tmp_path)
        for kind, place in changes:
            change(memory, kind, place)
        memory.upkeep.consolidate()
        settled(memory, tmp_path)


@pytest.mark.parametrize("writes", [0, 1, 2, 4, 7, 11])
def test_after_one_that_was_killed(writes: int, tmp_path: Path) -> None:
    every = {name: values[-1] for name, values in STEPS.items()}
    with memory_of(tmp_path / "m", "default", **every) as memory:
        memory.add(said())
        memory.touch("violin1")
        with interrupted_after(writes):
            memory.upkeep.consolidate()
    with memory_of(tmp_path / "m", "default", **every) as memory:
        memory.upkeep.consolidate()
        settled(memory, tmp_path)


def test_of_another_process(tmp_path: Path) -> None:
    every = {name: values[-1] for name, values in STEPS.items()}
    with memory_of(tmp_path / "m", "default", **every) as one:
        with memory_of(tmp_path / "m", "default", **every) as other:
            for start in range(0, 23, 9):
                one.add(said()[start : start + 9])
                other.upkeep.consolidate()
                settled(one, tmp_path)
        settled(one, tmp_path)
    with memory_of(tmp_path / "m", "default", **every) as again:
        settled(again, tmp_path)


def topical(number: int) -> Atom:
    """One of an endless stream of memories about three topics."""
    topic, words = list(TOPICS.items())[number % 3]
    own = [words[(number // 3 + step) % 5] for step in range(3)]
    text = f"The {topic} brought {own[0]} to {own[1]}, said {own[2]} number {number}."
    fields: dict[str, Any] = {"session": f"s{number // 6}", "time": 1.7e9 + number * 3600.0}
    return Atom(f"a{number}", text, speaker="Nora", **fields)


@pytest.mark.parametrize("change", [{}, {"link.batch_concepts": 7}, {"refine.max_memories": 40}])
def test_what_is_added_meanwhile_is_left_to_the_next_one(
    change: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread adds for as long as a consolidation goes on."""
    with (
        memory_of(None, "weave", **change) as alone,
        memory_of(tmp_path / "m", "weave", **change) as memory,
    ):
        for each in (alone, memory):
            each.add([topical(number) for number in range(60)])
        expected, ended, count = alone.upkeep.consolidate(), threading.Event(), [60]

        def add() -> None:
            while not ended.wait(0.01):
                memory.add(topical(count[0]))
                count[0] += 1

        writer = threading.Thread(target=add)
        with caplog.at_level(logging.WARNING):
            writer.start()
            done = memory.upkeep.consolidate()
            ended.set()
            writer.join()
        assert count[0] > 60 and not caplog.records, "it does not run after the writer"
        assert 0 < done.aggregated <= 2 * expected.aggregated + 2
        assert done.dissolved <= expected.dissolved + 2
        assert done.archived == expected.archived
        later = memory.upkeep.consolidate()
        assert later.aggregated + later.dissolved > 0
        settled(memory, tmp_path)
