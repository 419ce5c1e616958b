"""Changes since a moment, and the fate of an atom."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.results import ChainEntry, Change, Validity
from tests.memories import opened
from tests.memory.test_validity import Clock, memory_of, moved


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 10_000))
def test_changes_against_a_diary(seed: int) -> None:
    """Random work on a memory, written down beside it."""
    dice, clock = random.Random(seed), Clock(0.0)
    memory = memory_of([], clock)
    diary: list[tuple[float, str, str | None, str | None, int]] = []
    there: list[str] = []
    over: set[str] = set()
    gone: set[str] = set()
    for step in range(25):
        clock.now = float(step // 2)
        work = dice.choice(["add", "add", "update", "supersede", "validity", "delete"])
        open_ = [name for name in there if name not in over]
        if work == "add" or len(open_) < 3:
            name = f"a{step}"
            memory.add(Atom(name, f"Nora saw number {step}", time=float(step)))
            there.append(name)
            diary.append((clock.now, "added", name, None, 1))
        elif work == "update":
            name = dice.choice(there)
            memory.update(name, text=f"Nora saw number {step} at last")
            diary.append((clock.now, "updated", name, None, 1))
        elif work == "supersede":
            old, new = sorted(dice.sample(open_, 2), key=there.index)
            memory.facts.supersede(old, new)
            over.add(old)
            diary.append((clock.now, "superseded", old, new, 1))
        elif work == "validity":
            name = dice.choice(open_)
            memory.facts.set_validity(name, start=-1.0 - step)
            diary.append((clock.now, "validity", name, None, 1))
        else:
            names = dice.sample(there, 2)
            memory.delete(names)
            there = [name for name in there if name not in names]
            gone |= {*names}
            diary.append((clock.now, "deleted", None, None, 2))
    # Of what is deleted nothing is left, and what it superseded is as it was before.
    left = [row for row in diary if row[2] not in gone and row[3] not in gone]
    rank = {"added": 0, "updated": 1, "superseded": 2, "validity": 2, "deleted": 3}
    for since in (-1.0, 0.0, 3.0, 7.5, 11.0, 99.0):
        found = [(c.when, c.what, c.id, c.by, c.count) for c in memory.facts.changes(since)]
        assert [row[0] for row in found] == sorted(row[0] for row in found)
        kept = [row for row in left if row[0] >= since]
        assert sorted(found, key=str) == sorted(kept, key=str)
        for when in {row[0] for row in found}:
            ranks = [rank[row[1]] for row in found if row[0] == when]
            assert ranks == sorted(ranks)


def test_changes_of_a_store_on_disk(tmp_path: Path) -> None:
    clock = Clock(10.0)
    with memory_of(moved(3), clock, tmp_path) as memory:
        clock.now = 20.0
        memory.update("v1", text="Nora lives near Oslo now")
        memory.forget("v2")
    with opened(tmp_path, mode="r") as reader:
        assert reader.facts.changes("1970-01-01T00:00:10") == [
            Change("added", 10.0, "v0"),
            Change("added", 10.0, "v1"),
            Change("updated", 20.0, "v1"),
            Change("deleted", 20.0, None, count=1),
        ]
        assert reader.facts.changes(20.0)[0].as_dict() == {
            "what": "updated",
            "when": 20.0,
            "id": "v1",
            "by": None,
            "count": 1,
        }
        with pytest.raises(InputError, match="since: expected a time"):
            reader.facts.changes("then")


def test_what_is_archived_is_not_deleted() -> None:
    clock = Clock(10.0)
    memory = memory_of(moved(3), clock)
    clock.now = 20.0
    memory.upkeep.archive(["v0", "v1"])
    clock.now = 30.0
    memory.upkeep.restore("v1")
    clock.now = 40.0
    memory.delete("v2")
    assert [(c.what, c.when, c.id, c.count) for c in memory.facts.changes(15.0)] == [
        ("archived", 20.0, "v0", 1),
        ("added", 30.0, "v1", 1),
        ("deleted", 40.0, None, 1),
    ]


def test_history_tells_versions_and_the_chain() -> None:
    clock = Clock(100.0)
    memory = memory_of([*moved(4), Atom("x", "Nora moves to Oslo", time=5.0)], clock)
    memory.facts.supersede("v0", "v1")
    memory.facts.supersede("x", "v1", when=6.0)
    clock.now = 200.0
    memory.facts.supersede("v1", "v2")
    memory.update("v1", text="Nora lives near Oslo now")
    clock.now = 300.0
    memory.facts.set_validity("v1", stop=19.0)
    memory.facts.supersede("v1", "v2")
    memory.facts.set_validity("v2", start=19.0)
    found = memory.facts.history("v1")
    assert [v.atom.text for v in found.versions] == [
        "Nora lives in Oslo now",
        "Nora lives near Oslo now",
    ]
    assert found.statements == (
        Validity(6.0, None, None, 100.0),
        Validity(6.0, 20.0, "v2", 200.0),
        Validity(6.0, 19.0, None, 300.0),
        Validity(6.0, 19.0, "v2", 300.0),
    )
    chain = (
        ChainEntry("v0", "Nora lives in Rome now", Validity(0.0, 10.0, "v1", 100.0)),
        ChainEntry("x", "Nora moves to Oslo", Validity(5.0, 6.0, "v1", 100.0)),
        ChainEntry("v1", "Nora lives near Oslo now", Validity(6.0, 19.0, "v2", 300.0)),
        ChainEntry("v2", "Nora lives in Lima now", Validity(19.0, None, None, 300.0)),
    )
    for name in ("v0", "x", "v1", "v2"):
        assert memory.facts.history(name).chain == chain
    # A later statement took the place of one: it is in the chain no more.
    memory.facts.set_validity("x", stop=None)
    assert [each.id for each in memory.facts.history("v2").chain] == ["v0", "v1", "v2"]
    assert [each.id for each in memory.facts.history("v3").chain] == ["v3"]
    assert found.as_dict()["chain"][0]["validity"]["by"] == "v1"
    with pytest.raises(InputError, match="nobody"):
        memory.facts.history("nobody")
