"""Validity: from when to when what atoms say was true, and what of it was known when."""

from __future__ import annotations

import math
import random
import re
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.memory.validity_spans import spans_of
from graphmem_torch.results import Validity
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import ids, opened, retrieved

CITIES = ["Rome", "Oslo", "Lima", "Bern", "Kyiv"]


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def moved(count: int = 3, step: float = 10.0, **fields: Any) -> list[Atom]:
    """What somebody says of where they live: version i from `step` i on."""
    return [
        Atom(f"v{i}", f"Nora lives in {CITIES[i]} now", time=step * i, **fields)
        for i in range(count)
    ]


def memory_of(atoms: list[Atom], clock: Clock | None = None, path: Path | None = None) -> Memory:
    memory = opened(path, clock=clock or Clock())
    if atoms:
        memory.add(atoms)
    return memory


def seen(memory: Memory, **filters: Any) -> set[str]:
    """The ids that filters leave."""
    return set(ids(retrieved(memory, "Where does Nora live?", k=50, **filters)))


def test_an_atom_is_valid_by_itself() -> None:
    memory = memory_of(
        [
            Atom("plain", "It rains", time=5.0),
            Atom("told", "It rained on Monday", time=5.0, event_time=2.0, event_end=3.0),
            Atom("until", "It rained until Sunday", time=5.0, event_end=1.0),
            Atom("timeless", "Rain is wet"),
            Atom("planned", "The fair is over then", time=5.0, event_end=8.0),
        ]
    )
    assert memory.facts.validity(["plain", "told", "until", "timeless", "planned"]) == {
        "plain": Validity(5.0, None),
        "told": Validity(2.0, 3.0),
        "until": Validity(None, 1.0),
        "timeless": Validity(None, None),
        "planned": Validity(5.0, 8.0),
    }
    assert seen(memory, valid_at=0.0) == {"until", "timeless"}
    assert seen(memory, valid_at=2.0) == {"told", "timeless"}
    assert seen(memory, valid_at=6.0) == {"plain", "timeless", "planned"}
    assert seen(memory, valid_at=8.0) == {"plain", "timeless"}


def test_ends_are_read_updated_and_checked() -> None:
    memory = memory_of([])
    memory.add(
        {"id": "r", "text": "The fair", "event_time": "1970-01-02", "event_end": "1970-01-03"}
    )
    assert memory.facts.validity("r")["r"] == Validity(86400.0, 172800.0)
    digest = memory.get("r").digest
    assert memory.update("r", event_end=None).event_end is None
    assert memory.get("r").digest != digest and memory.facts.validity("r")["r"].stop is None
    assert memory.update("r", event_end="1970-01-03").digest == digest
    assert memory.facts.validity("r")["r"].stop == 172800.0
    # As before the update, which was after its time: the version of then has its own end.
    assert seen(memory, valid_at=100000.0) == {"r"} and seen(memory, valid_at=200000.0) == set()
    with pytest.raises(InputError, match="event_end: expected a time"):
        memory.add({"text": "The fair", "event_end": "soon"})
    with pytest.raises(InputError, match="event_end: expected finite seconds"):
        memory.add(Atom("n", "The fair", event_end=math.nan))


def test_what_is_superseded_ends_where_the_new_one_begins() -> None:
    clock = Clock(100.0)
    memory = memory_of(moved(3), clock)
    state = memory.store.state
    assert memory.facts.supersede("v0", "v1") == Validity(0.0, 10.0, "v1", 100.0)
    clock.now = 200.0
    assert memory.facts.supersede("v1", "v2") == Validity(10.0, 20.0, "v2", 200.0)
    assert memory.store.state == state, "no index is made anew"
    assert [seen(memory, valid_at=t) for t in (0.0, 9.9, 10.0, 20.0, 1e9)] == [
        {"v0"},
        {"v0"},
        {"v1"},
        {"v2"},
        {"v2"},
    ]
    # As it was known at 150: nobody had said that v2 took the place of v1.
    assert memory.facts.validity(["v0", "v1"], as_of=150.0) == {
        "v0": Validity(0.0, 10.0, "v1", 100.0),
        "v1": Validity(10.0, None),
    }
    assert seen(memory, valid_at=30.0, as_of=150.0) == {"v1", "v2"}
    assert seen(memory, valid_at=30.0, as_of=50.0) == {"v0", "v1", "v2"}
    assert memory.store.check() == []


def test_saying_it_again_changes_nothing() -> None:
    clock = Clock(100.0)
    memory = memory_of(moved(2), clock)
    first = memory.facts.supersede("v0", "v1")
    clock.now = 300.0
    assert memory.facts.supersede("v0", "v1") == first
    assert memory.facts.supersede("v0", "v1", when=10.0).known in (100.0, 300.0)
    assert memory.facts.validity("v0")["v0"].stop == 10.0
    assert len(memory.store.validity.stated()) <= 2


def test_what_was_known_earlier_than_it_was_said_counts_from_then_on() -> None:
    memory = memory_of(moved(2), Clock(1000.0))
    memory.facts.supersede("v0", "v1")
    memory.facts.supersede("v0", "v1", known=30.0)
    for moment, by in ((29.0, None), (30.0, "v1"), (500.0, "v1"), (1000.0, "v1")):
        assert memory.facts.validity("v0", as_of=moment)["v0"].by == by
    assert memory.facts.supersede("v0", "v1", known=2000.0).known == 1000.0, "it was known already"


def test_an_aggregate_is_as_true_as_all_that_it_is_of() -> None:
    memory = memory_of(moved(3), Clock(1000.0))
    of = [Atom("a01", "v0 and v1", kind="aggregate", edges=derived("v0", "v1"))]
    of += [Atom("a12", "v1 and v2", kind="aggregate", edges=derived("v1", "v2"))]
    of += [Atom("all", "of both", kind="aggregate", edges=derived("a01", "a12"))]
    memory.add(of)
    every = {"where": {"kind": {"$in": ["turn", "aggregate"]}}}
    assert seen(memory, valid_at=500.0, **every) == {"v0", "v1", "v2", "a01", "a12", "all"}
    memory.facts.supersede("v0", "v1", when=100.0)
    assert seen(memory, valid_at=500.0, **every) == {"v1", "v2", "a12"}
    assert seen(memory, valid_at=99.0, **every) == {"v0", "v2"}


def test_days_that_an_aggregate_tells_of_do_not_bound_its_truth() -> None:
    """Those of a user's own do: what a user states stands."""
    memory = memory_of(moved(2), Clock(1000.0))
    span = {"kind": "aggregate", "time": 20.0, "event_time": 3.0, "event_end": 30.0}
    memory.add([Atom("aggregate:1", "v0 and v1", edges=derived("v0", "v1"), **span)])
    memory.add([Atom("mine", "v0, v1", edges=derived("v0", "v1"), **span)])
    only = {"kinds": ["aggregate"]}
    assert seen(memory, valid_at=25.0, **only) == {"aggregate:1", "mine"}
    assert seen(memory, valid_at=500.0, **only) == {"aggregate:1"}
    assert seen(memory, valid_at=5.0, **only) == set(), "v1 was not said yet"
    assert memory.facts.validity("aggregate:1")["aggregate:1"] == Validity(20.0, None)
    assert memory.facts.validity("mine")["mine"] == Validity(3.0, 30.0)
    nodes = memory.store.nodes(concepts=False).tolist()
    assert spans_of(memory.store, nodes)[2].isfinite().sum() == 1


def derived(*ids: str) -> tuple[Link, ...]:
    return tuple(Link(name, EdgeType.DERIVED_FROM) for name in ids)


def test_what_is_told_late_was_known_before() -> None:
    memory = memory_of(moved(3))
    memory.facts.supersede("v0", "v2", known=50.0)
    for _ in range(2):  # the second time it is there
        late = memory.facts.supersede("v0", "v1", known=40.0)
        assert late == Validity(0.0, 20.0, "v2", 50.0), "which is what is in force"
    stops = [memory.facts.validity("v0", as_of=t)["v0"].stop for t in (39.0, 40.0, 49.0, 50.0)]
    assert stops == [None, 10.0, 10.0, 20.0]
    assert len(memory.store.validity.stated()) == 2
    other = memory_of([])
    other.add(memory.get(["v0", "v1", "v2"]))
    assert other.facts.validity("v0") == {"v0": Validity(0.0, None)}


def test_clocks_that_go_backwards_and_equal_times() -> None:
    clock = Clock(100.0)
    atoms = [
        Atom("old", "Nora lives in Rome", time=50.0),
        Atom("new", "Nora lives in Oslo", time=40.0),
        Atom("same", "Nora lives in Lima", time=50.0),
    ]
    memory = memory_of(atoms, clock)
    assert memory.facts.supersede("old", "new") == Validity(50.0, 50.0, "new", 100.0)
    assert seen(memory, valid_at=60.0) == {"new", "same"}
    clock.now = 90.0  # set back: what is known may not become known earlier
    assert memory.facts.supersede("old", "same") == Validity(50.0, 50.0, "same", 100.0)
    assert memory.facts.validity("old", as_of=95.0)["old"] == Validity(50.0, None)


def test_without_times_the_moment_of_saying_counts() -> None:
    clock = Clock(100.0)
    memory = memory_of([Atom("old", "Nora lives in Rome"), Atom("new", "In Oslo she lives")], clock)
    memory.facts.supersede("old", "new")
    assert memory.facts.validity(["old", "new"]) == {
        "old": Validity(None, 100.0, "new", 100.0),
        "new": Validity(100.0, None, None, 100.0),
    }
    memory.facts.supersede("old", "new", when=70.0)
    assert seen(memory, valid_at=69.0) == {"old"} and seen(memory, valid_at=70.0) == {"new"}


def test_an_end_that_was_known_is_not_prolonged() -> None:
    memory = memory_of([Atom("a", "Nora is away", time=0.0, event_end=5.0), *moved(2)])
    assert memory.facts.supersede("a", "v1").stop == 5.0
    memory.facts.set_validity("v0", stop=7.0)
    assert memory.facts.supersede("v0", "v1") == Validity(0.0, 7.0, "v1", 1000.0)


def test_bad_input_is_refused_and_changes_nothing() -> None:
    memory = memory_of(moved(4))
    memory.facts.supersede("v0", "v1")
    memory.facts.supersede("v1", "v2")
    before = memory.store.validity.stated()
    bad: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: memory.facts.supersede("v0", "v0"),
            "new: expected another atom than 'v0', got the same",
        ),
        (lambda: memory.facts.supersede("v2", "v0"), "('v0' by 'v1' by 'v2'); swap the two"),
        (
            lambda: memory.facts.supersede("v1", "v0"),
            "new: expected an atom that 'v1' did not supersede",
        ),
        (lambda: memory.facts.supersede("v3", "nobody"), "nobody"),
        (
            lambda: memory.facts.supersede("v2", "v3", when=19.0),
            "when: expected no time before 'v2'",
        ),
        (
            lambda: memory.facts.supersede("v2", "v3", when="soon"),
            "when: expected a time, got 'soon'",
        ),
        (
            lambda: memory.facts.supersede("v3", "v1", when=35.0),
            "when: expected no time after 'v1' ended",
        ),
        (
            lambda: memory.facts.set_validity("v3"),
            "set_validity: expected start or stop, got neither",
        ),
        (
            lambda: memory.facts.set_validity("v3", start=9.0, stop=8.0),
            "stop: expected no time before",
        ),
        (lambda: memory.facts.set_validity("v3", stop=29.0), "or its `start` as well"),
        (lambda: memory.facts.set_validity(["v3", "v9"], stop=40.0), "v9"),
        (lambda: memory.facts.set_validity("v3", stop=math.nan), "stop: expected a time"),
        (lambda: memory.facts.validity("v9"), "v9"),
        (lambda: memory.at(valid_at="never").retrieve("Nora?"), "valid_at: expected a time"),
    ]
    for call, message in bad:
        with pytest.raises(InputError, match=re.escape(message)):
            call()
    assert memory.store.validity.stated() == before
    with pytest.raises(InputError, match="event_end: expected no time before event_time"):
        memory.add(Atom("w", "It rained", event_time=3.0, event_end=2.0))


def test_a_circle_that_a_deletion_closes_is_no_end_of_all() -> None:
    memory = memory_of(moved(4))
    memory.facts.supersede("v0", "v1")
    memory.facts.supersede("v0", "v2")
    memory.facts.supersede("v1", "v0")
    memory.delete("v2")  # so that v1 is again what took the place of v0
    assert {each.by for each in memory.facts.validity(["v0", "v1"]).values()} == {"v0", "v1"}
    assert {each.id for each in memory.facts.history("v0").chain} == {"v0", "v1"}
    memory.facts.supersede("v1", "v3")
    assert [each.id for each in memory.facts.history("v0").chain] == ["v0", "v1", "v3"]
    with pytest.raises(InputError, match="did not supersede"):
        memory.facts.supersede("v3", "v0")


def test_ends_are_stated_and_taken_back() -> None:
    memory = memory_of(moved(2))
    memory.facts.supersede("v0", "v1")
    assert memory.facts.set_validity("v0", start=-5.0) == {"v0": Validity(-5.0, 10.0, "v1", 1000.0)}
    assert memory.facts.set_validity("v0", stop="1970-01-01T00:00:08")["v0"] == Validity(
        -5.0, 8.0, None, 1000.0
    )
    assert memory.facts.set_validity("v0", start=-math.inf, stop=math.inf)["v0"].at(1e9)
    assert memory.facts.set_validity(["v0", "v1"], start=None, stop=None) == {
        "v0": Validity(0.0, None, None, 1000.0),
        "v1": Validity(10.0, None, None, 1000.0),
    }


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 10_000))
def test_against_a_list_of_intervals(seed: int) -> None:
    """Random statements at random moments: every question as a plain list says it."""
    dice, clock = random.Random(seed), Clock(0.0)
    atoms = [
        Atom(
            f"a{i}",
            f"Nora number {i}",
            time=dice.choice([None, float(dice.randrange(20))]),
            event_time=dice.choice([None, None, float(dice.randrange(10))]),
            event_end=dice.choice([None, None, float(dice.randrange(10, 30))]),
        )
        for i in range(8)
    ]
    memory = memory_of(atoms, clock)
    # (known, id, start, stop): the truth is the last statement that was known.
    said: list[tuple[float, str, float, float]] = []

    def truth(name: str, known: float) -> tuple[float, float]:
        atom = next(each for each in atoms if each.id == name)
        begin = atom.event_time if atom.event_time is not None else atom.time
        end = math.inf if atom.event_end is None else atom.event_end
        start = -math.inf if begin is None or end < begin else begin
        for when, one, *span in said:
            if one == name and when <= known:
                start, end = span
        return start, end

    for step in range(12):
        clock.now = float(step // 2)
        name = f"a{dice.randrange(8)}"
        start = dice.choice([-math.inf, float(dice.randrange(20))])
        stop = dice.choice([math.inf, float(dice.randrange(20, 40))])
        memory.facts.set_validity(name, start=start, stop=stop)
        said.append((clock.now, name, start, stop))
    moments = (-1.0, 0.0, 2.0, 5.0)
    spans: dict[float | None, dict[str, tuple[float, float]]] = {}
    for known in (None, *moments):
        now = math.inf if known is None else known
        spans[known] = {atom.id: truth(atom.id, now) for atom in atoms}
        found = memory.facts.validity(list(spans[known]), as_of=known)
        assert {
            name: (
                -math.inf if each.start is None else each.start,
                math.inf if each.stop is None else each.stop,
            )
            for name, each in found.items()
        } == spans[known]
    for at in (-3.0, 0.0, 5.0, 12.0, 19.0, 20.0, 35.0, 50.0):
        filters: dict[str, Any] = {"k": 50, "valid_at": at}
        today = retrieved(memory, "Where does Nora live?", **filters)
        then = retrieved(memory, "Where does Nora live?", as_of=moments, **filters)
        for known, result in zip((None, *moments), (today, *then), strict=True):
            there = {name for name, (start, stop) in spans[known].items() if start <= at < stop}
            if known is not None:
                there &= {a.id for a in atoms if a.time is not None and a.time <= known}
            assert set(ids(result)) == there


def weighed(path: Path | None = None, clock: Clock | None = None) -> Memory:
    config = load_config("default", {"link.concepts": "pattern", "rank.weights.ended": -3.0})
    return Memory.open(path, config=config, embedder=HashingEmbedder(32), clock=clock or Clock())


def test_the_signal_speaks_against_what_has_ended() -> None:
    clock = Clock(100.0)
    memory = weighed(clock=clock)
    memory.add([*moved(3), Atom("over", "Nora lives in Paris", time=1.0, event_end=5.0)])

    def ended(**filters: Any) -> set[str]:
        result = retrieved(memory, "Where does Nora live?", **filters)
        shares = {hit.id: hit.signals["ended"] for hit in result.hits}
        assert set(shares.values()) <= {0.0, -3.0}
        return {name for name, share in shares.items() if share}

    assert ended() == {"over"}
    memory.facts.supersede("v0", "v1")
    clock.now = 200.0
    memory.facts.supersede("v1", "v2")
    assert ended() == {"over", "v0", "v1"}
    assert ended(as_of=150.0) == {"over", "v0"}
    assert ended(as_of=99.0) == {"over"}
    assert ended(as_of=4.0) == set()
    assert ended(asked=10.0) == {"over", "v0"}
    assert ended(valid_at=3.0) == set(), "what was true then is not over then"
    scores = {hit.id: hit.raw for hit in memory.retrieve("Where does Nora live?").hits}
    bare = memory.at(as_of=99.0).retrieve("Where does Nora live?")
    assert scores["v0"] == pytest.approx({h.id: h.raw for h in bare.hits}["v0"] - 3.0, abs=1e-4)
    explained = memory.explain("Where does Nora live?", "v0")
    assert explained.signals["ended"] == pytest.approx(-3.0)
    context = memory.at(valid_at=15.0).compile("Where does Nora live?", budget=400)
    assert set(context.sources) == {"v1"}


def test_statements_follow_versions() -> None:
    memory = memory_of(moved(3))
    memory.facts.supersede("v0", "v1")
    memory.facts.supersede("v1", "v2")
    memory.update("v0", text="Nora lives in a suburb of Rome now")
    memory.update("v1", text="Nora lives near Oslo now")
    assert memory.facts.validity(["v0", "v1"]) == {
        "v0": Validity(0.0, 10.0, "v1", 1000.0),
        "v1": Validity(10.0, 20.0, "v2", 1000.0),
    }
    assert seen(memory, valid_at=5.0) == {"v0"}
    assert seen(memory, valid_at=25.0, as_of=999.0) == {"v0", "v1", "v2"}
    assert memory.store.check() == []


@pytest.mark.parametrize("way", ["delete", "forget"])
def test_what_goes_leaves_no_statement(way: str, tmp_path: Path) -> None:
    memory = memory_of(moved(4), path=tmp_path / "store")
    for i in range(3):
        memory.facts.supersede(f"v{i}", f"v{i + 1}", when=10.0 * (i + 1) + 0.123456789)
    getattr(memory, way)("v1")
    # As if v1 never was there: nothing followed v0, and nothing was before v2.
    assert memory.facts.validity(["v0", "v2"]) == {
        "v0": Validity(0.0, None),
        "v2": Validity(20.123456789, 30.123456789, "v3", 1000.0),
    }
    assert memory.store.check() == []
    memory.close()
    if way == "forget":
        with sqlite3.connect(tmp_path / "store" / "memory.sqlite") as connection:
            assert connection.execute("SELECT count(*) FROM validity").fetchone() == (3,)
        connection.close()
        held = b"".join(path.read_bytes() for path in (tmp_path / "store").iterdir())
        assert struct.pack(">d", 30.123456789) in held  # as SQLite writes it
        assert struct.pack(">d", 10.123456789) not in held


def test_it_comes_along_in_an_export(tmp_path: Path) -> None:
    clock = Clock(100.0)
    memory = memory_of([*moved(3), Atom("e", "Fair", event_time=1.0, event_end=2.0)], clock)
    memory.facts.supersede("v0", "v1")
    clock.now = 200.0
    memory.facts.supersede("v1", "v2")
    memory.facts.set_validity("v2", start=-math.inf, stop=math.inf)
    memory.update("v1", text="Nora lives near Oslo now")
    memory.export(tmp_path / "all.jsonl")
    other = opened(clock=Clock(5000.0))
    for _ in range(2):  # the second changes nothing
        other.import_(tmp_path / "all.jsonl")
        for as_of in (None, 99.0, 150.0):
            asked = ["v0", "v1", "v2", "e"]
            assert other.facts.validity(asked, as_of=as_of) == memory.facts.validity(
                asked, as_of=as_of
            )
    assert len(other.store.validity.stated()) == len(memory.store.validity.stated())
    assert other.get("e") == memory.get("e")
    again = tmp_path / "again.jsonl"
    other.export(again)
    assert again.read_text() == (tmp_path / "all.jsonl").read_text()


def test_files_that_change_keep_what_was_stated(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [
        f'{{"id": "v{i}", "text": "Nora lives in {CITIES[i]}", "time": {i}}}' for i in range(3)
    ]
    file.write_text("\n".join(lines[:2]))
    memory = memory_of([])
    memory.add_files(file)
    memory.facts.supersede("v0", "v1")
    file.write_text("\n".join(lines[::-1]))
    memory.add_files(file)
    assert memory.facts.validity("v0")["v0"] == Validity(0.0, 1.0, "v1", 1000.0)


def test_a_store_from_before_opens(tmp_path: Path) -> None:
    with memory_of(moved(2), path=tmp_path) as memory:
        before = [atom.digest for atom in memory.get(["v0", "v1"])]
        memory.update("v0", text="Nora lives in Bonn now")
    with sqlite3.connect(tmp_path / "memory.sqlite") as connection:
        for statement in (
            "DROP INDEX atom_event",
            "DROP TABLE validity",
            "ALTER TABLE atom DROP COLUMN event_end",
            "ALTER TABLE version DROP COLUMN event_end",
        ):
            connection.execute(statement)
    connection.close()
    (tmp_path / "snapshot.safetensors").unlink(missing_ok=True)
    with opened(tmp_path, mode="r") as reader:
        assert reader.facts.validity("v1") == {"v1": Validity(10.0, None)}
        assert seen(reader, valid_at=5.0) == {"v0"}
        assert seen(reader, as_of=500.0) == {"v0", "v1"}
        assert reader.get("v1").digest == before[1] and reader.store.check() == []
        with pytest.raises(StoreError, match="reading only"):
            reader.facts.supersede("v0", "v1")
        with opened(tmp_path) as memory:
            memory.add(Atom("end", "The fair was on", event_time=3.0, event_end=4.0))
            memory.facts.supersede("v0", "v1")
            assert memory.get("end").event_end == 4.0
            assert memory.facts.versions("v0")[0].atom.digest == before[0]
            assert memory.store.check() == []
        assert reader.get("end").event_end == 4.0, "what a writer added since is seen"


def test_check_finds_statements_that_do_not_fit(tmp_path: Path) -> None:
    with memory_of(moved(2), path=tmp_path) as memory:
        memory.facts.supersede("v0", "v1")
    with sqlite3.connect(tmp_path / "memory.sqlite") as connection:
        put = "INSERT INTO validity (node, start, stop, by, known) VALUES (?, ?, ?, ?, 0.0)"
        connection.executemany(put, [(0, 9.0, 8.0, None), (1, None, 3.0, 77), (88, 1.0, None, 0)])
    connection.close()
    with opened(tmp_path, mode="r") as memory:
        assert memory.check() == [
            "validity: node 88 is no atom",
            "validity: by 77 is no atom",
            "validity: that of node 0 ends before it begins",
        ]


def test_many_threads_state_at_once(tmp_path: Path) -> None:
    count = 12
    memory = memory_of([Atom(f"t{i}", f"Nora said {i}", time=float(i)) for i in range(count)])

    def work(i: int) -> None:
        memory.facts.supersede(f"t{i}", f"t{i + 1}")
        memory.at(valid_at=float(i)).retrieve("Nora?")

    threads = [Thread(target=work, args=(i,)) for i in range(count - 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = memory.facts.validity([f"t{i}" for i in range(count)])
    assert [each.stop for each in found.values()] == [*map(float, range(1, count)), None]
    assert seen(memory, valid_at=3.5) == {"t3"}


def plain_hits(results: list[Any]) -> list[Any]:
    """By id: nearly equal scores may come in either order."""
    return [{h.id: (h.text, pytest.approx(h.score, abs=1e-4)) for h in r.hits} for r in results]


def test_many_instants_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one by one, with everything that can differ between moments, in one launch."""
    clock = Clock(100.0)
    memory = weighed(clock=clock)
    others = [
        Atom(f"o{i}", f"Ada saw story {i} of {CITIES[i % 5]}", time=4.0 * i) for i in range(9)
    ]
    memory.add([*moved(4), *others])
    memory.facts.supersede("v0", "v1", known=12.0)
    memory.facts.supersede("v1", "v2", known=22.0)
    memory.touch("o1", when=15.0)
    questions = ["Where does Nora live?", "What did Ada see last week?", "Lima"]
    instants: list[Any] = [25.0, 0.0, -5.0, 12.0, 1e9, 25.0]
    filters: dict[str, Any] = {"k": 5, "exclude": [["o2"], [], ["v1", "o3"]], "valid_at": 3.0}
    rows: list[int] = []
    forward = type(memory.index).forward

    def counted(self: Any, query: Any, **options: Any) -> Any:
        rows.append(len(query))
        return forward(self, query, **options)

    monkeypatch.setattr(type(memory.index), "forward", counted)
    for options in ({}, filters, {"k": 3, "where": {"id": {"$in": ["v0", "v1", "o1"]}}}):
        found = retrieved(memory, questions, as_of=instants, **options)
        assert rows == [len(questions) * len(instants)]
        alone = [retrieved(memory, questions, as_of=t, **options) for t in instants]
        for i in range(len(questions)):
            assert [plain_hits([r]) for r in found[i]] == [plain_hits([each[i]]) for each in alone]
        for t, result in zip(instants, found[0], strict=True):
            assert all((hit.time or 0.0) <= t for hit in result.hits)
        rows.clear()
    single: list[dict[str, Any]] = [{"seeds": ["nora lives"]}, {"exclude": ["v1"]}]
    for options in single:
        (batch,) = retrieved(memory, questions[:1], as_of=instants, **options)
        alone = [retrieved(memory, questions[0], as_of=t, **options) for t in instants]
        assert plain_hits(batch) == plain_hits(alone)
    one = memory.at(as_of=tuple(instants)).retrieve(questions[0])
    assert plain_hits(one) == plain_hits(memory.at(as_of=instants).retrieve(questions)[0])
    assert memory.at(as_of=[]).retrieve(questions[0]) == []
    assert memory.at(as_of=[]).retrieve(questions) == [[], [], []]
    assert memory.at(as_of=instants).retrieve([]) == []
    with pytest.raises(InputError, match="as_of: expected a time, got 'then'"):
        memory.at(as_of=[1.0, "then"]).retrieve("Nora")


def test_instants_around_updates_and_namespaces() -> None:
    clock = Clock(50.0)
    memory = opened(clock=clock)
    memory.add(moved(1))
    clock.now = 60.0
    memory.update("v0", text="Nora lives in Bonn now")
    clock.now = 70.0
    memory.update("v0", text="Nora lives in Ulm now")
    space = memory.namespaces.create("n")
    space.add([Atom("n0", "Nora is a cat", time=55.0)])
    instants: list[Any] = [65.0, 55.0, 1e6, 59.99, 60.0, 70.0, -1.0]
    found = memory.at(as_of=instants).retrieve("Where is Nora?")
    said = [[hit.text.split()[3] for hit in result.hits] for result in found]
    assert said == [["Bonn"], ["Rome"], ["Ulm"], ["Rome"], ["Bonn"], ["Ulm"], []]
    mixed = memory.at(as_of=[54.0, 80.0]).retrieve(
        ["Who is Nora?"] * 2, scope=Scope(namespaces=["n", "n"])
    )
    assert [[ids(result) for result in each] for each in mixed] == [[[], ["n0"]]] * 2
    assert memory.at(as_of=[1.0]).retrieve("Nora?", trace=True)[0].trace is not None
    empty = opened()
    assert [ids(result) for result in empty.at(as_of=[1.0, 2.0]).retrieve("Nora?")] == [[], []]


def test_questions_that_look_back_are_not_spoken_against() -> None:
    memory = weighed()
    memory.add(moved(2))
    memory.facts.supersede("v0", "v1")
    now, then = memory.retrieve(["Where does Nora live?", "Where did Nora live before?"])
    (both,) = memory.at(as_of=[500.0, 2000.0]).retrieve(["Where did Nora live before?"])
    shares = [{h.id: h.signals["ended"] for h in r.hits} for r in (now, then, *both)]
    assert shares == [{"v0": -3.0, "v1": 0.0}, *[{"v0": 0.0, "v1": 0.0}] * 3]
