"""Expiry: against a list with a fake clock, on every read, beside writers, on disk."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.config import load_config
from graphmem_torch.errors import GraphMemError, InputError, StoreError
from graphmem_torch.memory import Layout, Memory, Scope
from graphmem_torch.memory.stored import StoredMemory
from graphmem_torch.store.folder import DATABASE_NAME
from tests.memories import QUESTIONS, WORDS, config_of, ids, opened, turns
from tests.processes import environment


class Clock:
    """Seconds since the epoch, set by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def kept(memory: Memory) -> list[str]:
    """The ids of what is listed."""
    return [atom.id for atom in memory.list()]


def raises(call: Callable[[], object]) -> bool:
    """Whether a call says that a memory has expired."""
    with pytest.raises(InputError, match="has expired; add it again"):
        call()
    return True


def canoe(name: str, **fields: Any) -> Atom:
    return Atom(name, f"The canoe {name} lies in the harbour", time=500.0, **fields)


def test_it_is_hidden_from_the_instant_on() -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add([canoe("a", expires=1100.0), canoe("b"), canoe("c", ttl=50.0)])
        assert memory.get("c").expires == 1050.0 and memory.get("b").expires is None
        for now, there in [(1049.9, "abc"), (1050.0, "ab"), (1099.9, "ab"), (1100.0, "b")]:
            clock.now = now
            assert kept(memory) == [atom.id for atom in memory] == [*there]
            assert len(memory) == len(there) and [*"abc"] == sorted(
                kept(memory) + [atom.id for atom in memory.list(expired=True)]
            )
            assert sorted(ids(memory.retrieve("canoe"))) == [*there]
            assert {name for name in "abc" if name in memory} == {*there}
        clock.now = 1049.0  # a clock may go back
        assert kept(memory) == [*"abc"]


def test_every_read_hides_it(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "m", clock=clock) as memory:
        memory.add([canoe("a", expires=1100.0), canoe("b"), canoe("pinned", expires=1100.0)])
        memory.pin(["pinned", "b"])
        memory.facts.supersede("a", "b", when=600.0, known=600.0)
        clock.now = 1100.0
        assert memory.pinned() == ["b"]
        context = memory.compile("canoe", budget=400)
        assert context.sources == ("b",) and "canoe a" not in context.text
        said: list[str] = []
        memory.answer("canoe", llm=lambda prompt: said.append(prompt) or "yes")
        assert "canoe b" in said[0] and "canoe a" not in said[0] and "pinned" not in said[0]
        assert [entry.id for entry in memory.facts.history("b").chain] == ["b"]
        assert memory.stats()["expired"] == 2 and memory.stats()["kinds"]["turn"] == 1
        assert memory.graph.structure().names is not None
        assert not {"a", "pinned"} & {*(memory.graph.structure().names or ())}
        memory.report(tmp_path / "report.html", questions=["canoe"], iterations=1)
        page = (tmp_path / "report.html").read_text("utf-8")
        assert "canoe b" in page and "canoe a" not in page and "canoe pinned" not in page
        memory.export(tmp_path / "export.jsonl")
        lines = [json.loads(line) for line in (tmp_path / "export.jsonl").open()]
        assert lines[0]["atoms"] == 1
        assert [line["atom"]["id"] for line in lines if "atom" in line] == ["b"]
        for call in (
            lambda: memory.get("a"),
            lambda: memory.explain("canoe", "a"),
            lambda: memory.update("a", text="No"),
            lambda: memory.update("a", ttl=60),
            lambda: memory.pin("a"),
            lambda: memory.touch("a"),
            lambda: memory.graph.connect("a", "b"),
            lambda: memory.facts.validity("a"),
            lambda: memory.facts.history("a"),
            lambda: memory.facts.supersede("b", "a"),
            lambda: memory.upkeep.types("a"),
            lambda: memory.upkeep.archive("a"),
            lambda: memory.upkeep.particles("a"),
            lambda: memory.feedback("canoe", used="a"),
            lambda: memory.tensors.rows("a"),
        ):
            assert raises(call)
        # What an agent has seen before may be excluded for as long as it likes.
        assert ids(memory.retrieve("canoe", scope=Scope(exclude=["a"]))) == ["b"]
        # Without a write: nothing of it is deleted.
        assert [atom.id for atom in memory.list(expired=True)] == ["a", "pinned"]
    with StoredMemory.open(tmp_path / "m", clock=clock) as stored:
        assert [atom.id for atom in stored.list()] == ["b"] and len(stored) == 1
        assert [atom.id for atom in stored.list(expired=True)] == ["a", "pinned"]
        assert stored.stats()["expired"] == 2
        assert raises(lambda: stored.get(["a"])) and raises(lambda: stored.history("a"))
        assert stored.export(tmp_path / "other.jsonl") == 1


def test_themes_conflicts_and_groups_leave_it_out() -> None:
    clock = Clock()
    spectral = config_of(**{"modes.use": "kept"})
    with opened(clock=clock, config=spectral) as memory:
        memory.add(
            [
                Atom(f"t{i}", f"The {WORDS[i % 2]} number {i} is here", expires=1000.0 + 10 * i)
                for i in range(1, 9)
            ]
        )
        memory.graph.connect("t8", "t7", "contradicts")
        memory.add([{"id": f"s{i}", "text": "Nora moved to Lisbon"} for i in (1, 2)])
        memory.update("s1", expires=1050)
        memory.facts.reconcile()
        assert memory.facts.duplicates() == [("s1", "s2")] and memory.facts.conflicts()
        for now in (1005.0, 1035.0, 1065.0, 1075.0, 1085.0):
            clock.now = now
            there = {*kept(memory)}
            themes = memory.themes.list()
            assert sum(theme.size for theme in themes) == len(there)
            assert {said.id for theme in themes for said in theme.typical} <= there
            told = memory.themes.summary()
            assert {each.claim.id for each in told if each.claim} <= there
            assert bool(memory.facts.conflicts()) == ({"t7", "t8"} <= there)
            assert bool(memory.facts.duplicates()) == ("s1" in there)


def test_no_oracle_is_asked_about_it() -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add([canoe("a", ttl=10.0), canoe("b"), canoe("c")])
        clock.now = 1010.0
        asked: list[str] = []

        def judge(premises: list[str], hypotheses: list[str]) -> list[None]:
            asked.extend([*premises, *hypotheses])
            return [None] * len(premises)

        def answers(texts: list[str]) -> list[None]:
            asked.extend(texts)
            return [None] * len(texts)

        memory.graph.judge(judge)
        memory.facts.reconcile(oracle=judge)
        memory.upkeep.classify(answers)
        memory.upkeep.understand(answers)
        assert asked and not any("canoe a " in text for text in asked)
        assert any("canoe b " in text for text in asked)


def test_a_copy_is_found_after_the_first_has_expired() -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add([{"id": "a", "text": "The canoe is red", "ttl": 10}])
        memory.add([{"id": "b", "text": "The canoe is red"}])
        clock.now = 1010.0
        assert ids(memory.retrieve("canoe", scope=Scope(plan=True))) == ["b"]


def test_derived_memories_go_with_the_last_of_their_sources(tmp_path: Path) -> None:
    def derived(name: str, *of: str, **fields: Any) -> Atom:
        links = tuple(Link(each, EdgeType.DERIVED_FROM) for each in of)
        return canoe(name, kind="observation", edges=links, **fields)

    clock = Clock()
    with opened(tmp_path / "m", clock=clock) as memory:
        memory.add([canoe("a", expires=1010), canoe("b", expires=1020), canoe("c")])
        memory.add([derived("ab", "a", "b"), derived("abc", "a", "c"), derived("aa", "ab", "a")])
        memory.add([derived("own", "c", expires=1015)])
        wanted = [
            (1009, ["a", "b", "c", "ab", "abc", "aa", "own"]),
            (1010, ["b", "c", "ab", "abc", "aa", "own"]),
            (1015, ["b", "c", "ab", "abc", "aa"]),
            (1020, ["c", "abc"]),
        ]
        for now, there in wanted:
            clock.now = now
            assert kept(memory) == there and len(memory) == len(there)
            assert sorted(ids(memory.retrieve("canoe", k=20))) == sorted(there)
            with StoredMemory.open(tmp_path / "m", clock=clock) as stored:
                assert [atom.id for atom in stored.list()] == there
        assert memory.upkeep.consolidate().expired == 5
        assert kept(memory) == ["c", "abc"] and not memory.list(expired=True)
        assert memory.check() == []


def test_another_moment_sees_what_had_not_expired_then() -> None:
    clock = Clock(2000.0)
    with opened(clock=clock) as memory:
        memory.add([canoe("a", expires=1100.0), canoe("b", expires=3000.0), canoe("c")])
        assert ids(memory.retrieve("canoe")) and "a" not in memory
        for when, there in [(1099.0, "abc"), (1100.0, "bc"), (2999.0, "bc"), (3000.0, "c")]:
            assert sorted(ids(memory.at(when).retrieve("canoe"))) == [*there]
            context = memory.at(when).compile("canoe", budget=400)
            assert sorted(context.sources) == [*there]
        several = memory.at([1099.0, 1100.0, 3000.0]).retrieve("canoe")
        assert [sorted(ids(each)) for each in several] == [[*"abc"], [*"bc"], ["c"]]
        assert memory.at(1099.0).explain("canoe", "a").id == "a"
        assert raises(lambda: memory.at(3000.0).explain("canoe", "b"))
        # Before the update, the version of then; the expiry is that of now.
        memory.update("b", text="The canoe b is gone")
        clock.now = 2500.0
        assert sorted(ids(memory.at(1500.0).retrieve("canoe"))) == [*"bc"]


def test_a_read_refreshes_if_asked() -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add(["The canoe is red", "The violin is old"], ttl=dt.timedelta(minutes=1))
        canoe_id, violin = kept(memory)
        memory.add({"id": "fixed", "text": "The comet", "expires": 1100})
        clock.now = 1030.0
        assert memory.get([canoe_id, "fixed"], refresh=True)[0].expires == 1090.0
        assert memory.get("fixed").expires == 1100.0  # without a ttl
        assert memory.get(violin).expires == 1060.0
        assert ids(memory.retrieve("violin", k=1, scope=Scope(refresh=True))) == [violin]
        assert memory.get(violin).expires == 1090.0 and memory.get(canoe_id).expires == 1090.0
        clock.now = 1080.0
        context = memory.compile("canoe", budget=60, k=1, scope=Scope(refresh=True))
        assert context.sources == (canoe_id,) and memory.get(canoe_id).expires == 1140.0
        clock.now = 1090.0
        assert kept(memory) == [canoe_id, "fixed"]
        assert raises(lambda: memory.get(violin, refresh=True))  # a read brings nothing back
        memory.add({"id": "long", "text": "The bakery", "expires": 5000, "ttl": 10})
        assert memory.get("long", refresh=True).expires == 5000.0  # never earlier
        state = memory.store.state
        memory.get(canoe_id, refresh=True)
        assert memory.store.state == state and len(memory.facts.versions(canoe_id)) == 1


def test_a_refresh_is_refused_where_nothing_can_be_written(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add({"id": "a", "text": "The canoe", "ttl": 1e6})
        for call in (
            lambda: memory.at(10).retrieve("canoe", scope=Scope(refresh=True)),
            lambda: memory.explain("canoe", "a", scope=Scope(refresh=True)),
            lambda: memory.get("a", refresh="yes"),  # type: ignore[call-overload]
            lambda: Scope(refresh=1),  # type: ignore[arg-type]
        ):
            with pytest.raises(InputError, match="refresh: expected"):
                call()
    with opened(tmp_path / "m", mode="r") as memory:
        assert memory.get("a").id == "a"
        for call in (
            lambda: memory.get("a", refresh=True),
            lambda: memory.retrieve("canoe", scope=Scope(refresh=True)),
            lambda: memory.compile("canoe", budget=90, scope=Scope(refresh=True)),
        ):
            with pytest.raises(StoreError, match="open for reading only"):
                call()


def test_update_changes_it_without_a_version() -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add({"id": "a", "text": "The canoe", "ttl": 60})
        state = memory.store.state
        assert memory.update("a", expires="2026-12-01").expires == 1796083200.0
        assert memory.get("a").ttl == 60.0
        clock.now = 1010.0
        assert memory.update("a", ttl=dt.timedelta(seconds=5)).expires == 1015.0
        assert memory.update("a", ttl=None) == replace(memory.get("a"), ttl=None, expires=1015.0)
        assert memory.update("a", expires=None).expires is None
        assert memory.update("a", {"ttl": 7}).ttl == 7.0 and memory.get("a").expires == 1017.0
        gone = memory.update("a", expires=None)
        assert (gone.expires, gone.ttl) == (None, None)
        assert memory.store.state == state and len(memory.facts.versions("a")) == 1
        new = memory.update("a", text="The violin", ttl=30)
        assert memory.get("a") == new and new.expires == 1040.0
        assert memory.update("a", text="The violin", ttl=40).expires == 1050.0  # equal text
        assert memory.update("a", title="A").expires == 1050.0
        memory.update("a", expires=900)
        assert "a" not in memory and memory.check() == []


def test_what_has_expired_counts_as_not_stored() -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add([canoe("a", ttl=10.0), canoe("b")])
        memory.pin("a")
        assert memory.add(canoe("a", ttl=99.0)) == memory.add(canoe("a"))  # known: unchanged
        assert memory.get("a").expires == 1010.0
        clock.now = 1010.0
        added = memory.add([canoe("a", ttl=99.0), canoe("b")])
        assert (added.new, added.known) == (1, 1) and memory.get("a").expires == 1109.0
        assert memory.pinned() == [] and kept(memory) == ["b", "a"]
        clock.now = 1109.0
        assert memory.add(replace(canoe("a"), text="Another text")).new == 1
        assert memory.get("a").text == "Another text" and memory.check() == []
        # A time and no id: the id is made of both.
        same = {"text": "The comet", "time": 77.0}
        assert [memory.add(same, ttl=5).new, memory.add(same, ttl=5).new] == [1, 0]
        clock.now = 1114.0
        assert memory.add(same).new == 1
        # A named call is done once, whatever became of what it stored.
        assert memory.add("The bakery", key="k", ttl=5).new == 1
        clock.now = 1119.0
        assert memory.add("The bakery", key="k", ttl=5).new == 0


def test_the_sweep_deletes_and_is_told(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "m", clock=clock) as memory:
        memory.add([canoe(f"x{i}") for i in range(30)], ttl=10)
        memory.add(canoe("stays"))
        other = memory.namespaces.create("other")
        other.add(canoe("y", ttl=5.0))
        memory.upkeep.archive(["x0", "x1"])
        archive = memory.upkeep.archived()
        assert archive is not None and kept(archive) == ["x0", "x1"]
        clock.now = 1010.0
        assert kept(archive) == kept(other) == [] and memory.stats()["archived"] == 0
        with pytest.raises(InputError, match="not in the archive"):
            memory.upkeep.restore("x0")
        done = memory.upkeep.consolidate()
        assert done.expired == 30 and str(done) == "30 expired"
        assert memory.facts.changes(1010.0)[-1].count == 28  # and two of the archive
        assert memory.upkeep.consolidate().expired == 0
        assert kept(memory) == ["stays"] and archive.store.num_atoms == 0
        assert other.upkeep.consolidate().expired == 1
        assert memory.check() == []


def test_forgetting_erases_what_has_expired(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "m", clock=clock) as memory:
        memory.add([Atom("a", "The zyzzyva canoe", session="s", expires=1010.0), canoe("b")])
        clock.now = 1010.0
        assert [atom.id for atom in memory.forget("a", dry_run=True)] == ["a"]
        assert memory.forget(session="s").atoms == 1
        assert not memory.list(expired=True)
    for file in (tmp_path / "m").rglob("*"):
        assert not file.is_file() or b"zyzzyva" not in file.read_bytes()
    with opened(clock=clock) as memory:
        memory.add(canoe("a", expires=900.0))
        assert memory.delete("a") == 1 and memory.store.num_atoms == 0


def test_an_export_keeps_it(tmp_path: Path) -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add([canoe("a", ttl=50.0), canoe("b", expires=1020.0), canoe("c")])
        memory.update("a", text="The canoe a is new")
        memory.graph.connect("a", "b")
        memory.export(tmp_path / "whole.jsonl")
        whole = [*memory.list()]
    with opened(clock=clock) as memory:
        memory.import_(tmp_path / "whole.jsonl")
        assert [*memory.list()] == whole
        assert memory.import_(tmp_path / "whole.jsonl").new == 0
        memory.get("a", refresh=True)
        clock.now = 1030.0
        assert memory.import_(tmp_path / "whole.jsonl").new == 1  # b has expired, and again
        assert kept(memory) == ["a", "c"] and memory.check() == []


def test_files_state_it(tmp_path: Path) -> None:
    clock = Clock()
    file = tmp_path / "notes.jsonl"
    lines = [
        {"id": "a", "text": "The canoe", "expires": "1970-01-01T00:18:00Z"},
        {"id": "b", "text": "The violin", "ttl": 60},
        {"id": "c", "text": "The comet"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    with opened(clock=clock) as memory:
        memory.add_files(file)
        assert [atom.expires for atom in memory.list()] == [1080.0, 1060.0, None]
        clock.now = 1060.0
        lines[1]["text"], lines[2]["text"] = "The old violin", "The old comet"
        file.write_text("\n".join(map(json.dumps, lines)))
        memory.add_files(file)
        assert memory.get("b").expires == 1120.0 and memory.get("a").expires == 1080.0
        clock.now = 1120.0
        assert kept(memory) == ["c"] and memory.check() == []
        file.write_text("\n".join(map(json.dumps, lines[2:])))
        assert memory.add_files(file).deleted == 2


def test_lines_that_move_live_no_longer(tmp_path: Path) -> None:
    clock = Clock()
    file = tmp_path / "notes.jsonl"
    lines = [json.dumps({"id": f"a{i}", "text": f"The canoe {i}", "ttl": 60}) for i in range(6)]
    file.write_text("\n".join(lines))
    with opened(clock=clock) as memory:
        memory.add_files(file)
        clock.now = 1030.0
        file.write_text("\n".join([json.dumps({"text": "New", "ttl": 60}), *lines[::-1]]))
        memory.add_files(file)
        assert sorted(atom.expires or 0 for atom in memory.list()) == [1060.0] * 6 + [1090.0]


BAD = [
    ("ttl", 0),
    ("ttl", -5),
    ("ttl", True),
    ("ttl", "3600"),
    ("ttl", float("nan")),
    ("ttl", float("inf")),
    ("ttl", dt.timedelta(0)),
    ("ttl", [60]),
    ("ttl", 10**400),
    ("ttl", 2.53e11),
    ("expires", "tomorrow"),
    ("expires", 1.7e12),
    ("expires", True),
    ("expires", float("nan")),
    ("expires", dt.timedelta(hours=1)),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_is_no_expiry_is_refused(name: str, value: Any) -> None:
    with opened(clock=Clock(1.7e9)) as memory:
        memory.add({"id": "a", "text": "The canoe"})
        given: dict[str, Any] = {name: value}
        for call in (
            lambda: memory.add("The violin", **given),
            lambda: memory.add({"text": "The violin", **given}),
            lambda: memory.add(Atom("x", "The violin", **given)),
            lambda: memory.update("a", **given),
        ):
            with pytest.raises(InputError, match=r"(ttl|expires): expected .*, got"):
                call()
        assert kept(memory) == ["a"] and memory.get("a").expires is None


@pytest.mark.parametrize(
    ("given", "expires", "ttl"),
    [
        ({"ttl": Decimal("1.5")}, 1001.5, 1.5),
        ({"ttl": np.float32(2)}, 1002.0, 2.0),
        ({"ttl": np.int64(2)}, 1002.0, 2.0),
        ({"ttl": dt.timedelta(days=1)}, 87400.0, 86400.0),
        ({"expires": 0}, 0.0, None),
        ({"expires": dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC)}, 3600.0, None),
        ({"expires": dt.date(1970, 1, 2)}, 86400.0, None),
        ({"expires": "1970-01-02T00:00:00+01:00"}, 82800.0, None),
        ({"expires": "1970-01-02", "ttl": 5}, 86400.0, 5.0),
        ({"expires": None, "ttl": None}, None, None),
    ],
)
def test_forms_of_it(given: dict[str, Any], expires: float | None, ttl: float | None) -> None:
    with opened(clock=Clock()) as memory:
        memory.add(["The canoe"], **given)
        memory.add({"text": "The violin", **given})
        atoms = [*memory.list(), *memory.list(expired=True)]
        assert [(atom.expires, atom.ttl) for atom in atoms] == [(expires, ttl)] * 2
        memory.add([{"text": "The comet", "ttl": 9}, "The bakery"], ttl=3)
        assert {9.0, 3.0} <= {atom.ttl for atom in memory.list()}


@dataclass
class Model:
    """Expected memories: expiry and seconds by id."""

    atoms: dict[str, tuple[float | None, float | None]]

    def there(self, now: float) -> set[str]:
        return {n for n, (expires, _) in self.atoms.items() if expires is None or expires > now}


_names = st.sampled_from([f"m{i}" for i in range(6)])
_steps = st.one_of(
    st.tuples(st.just("add"), _names, st.sampled_from([None, 1.0, 3.0, 8.0])),
    st.tuples(st.just("until"), _names, st.sampled_from([None, -1.0, 0.0, 2.0, 5.0])),
    st.tuples(st.just("ttl"), _names, st.sampled_from([1.0, 4.0])),
    st.tuples(st.just("get"), _names, st.booleans()),
    st.tuples(st.just("ask"), _names, st.booleans()),
    st.tuples(st.just("text"), _names, st.integers(0, 3)),
    st.tuples(st.just("delete"), _names, st.none()),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from([0.5, 1.0, 2.0])),
    st.tuples(st.just("sweep"), st.just(""), st.none()),
)


def _taken(memory: Memory, model: Model, clock: Clock, step: tuple[str, str, Any]) -> None:
    """Take one step in both, which must agree on whether it can be taken."""
    what, name, value = step
    now, there = clock.now, name in model.there(clock.now)
    expires, ttl = model.atoms.get(name, (None, None))
    later = None if ttl is None or expires is None else max(expires, now + ttl)
    text = f"The {WORDS[hash(name) % 8]} of {name}"
    if what == "wait":
        clock.now += value
    elif what == "sweep":
        gone = model.atoms.keys() - model.there(now)
        assert memory.upkeep.consolidate().expired == len(gone)
        model.atoms = {n: each for n, each in model.atoms.items() if n not in gone}
    elif what == "add":
        # A text that was changed since is another content.
        if there and memory.get(name).text != text:
            return
        assert memory.add({"id": name, "text": text}, ttl=value).new == (not there)
        if not there:
            model.atoms.pop(name, None)
            model.atoms[name] = (None if value is None else now + value, value)
    elif what == "ask":
        hits = ids(memory.retrieve(text, k=9, scope=Scope(refresh=value)))
        assert {*hits} == model.there(now)
        for each in hits if value else ():
            at, seconds = model.atoms[each]
            if seconds is not None and at is not None:
                model.atoms[each] = (max(at, now + seconds), seconds)
    elif what == "delete":
        if name in model.atoms:
            assert memory.delete(name) == 1
            del model.atoms[name]
    elif not there:
        with pytest.raises(InputError):
            memory.get(name, refresh=True)
        with pytest.raises(InputError):
            memory.update(name, ttl=5)
    elif what == "get":
        found = memory.get(name, refresh=value)
        model.atoms[name] = (later if value and later is not None else expires, ttl)
        assert (found.expires, found.ttl) == model.atoms[name]
    elif what == "until":
        memory.update(name, expires=None if value is None else now + value)
        model.atoms[name] = (None, None) if value is None else (now + value, ttl)
    elif what == "ttl":
        memory.update(name, ttl=value)
        model.atoms[name] = (now + value, value)
    elif what == "text":
        memory.update(name, text=f"{text} {value}")


@given(st.lists(_steps, max_size=24))
@settings(max_examples=6, deadline=None)
def test_any_history_agrees_with_a_list(steps: list[tuple[str, str, Any]]) -> None:
    clock = Clock()
    model = Model({})
    with opened(clock=clock) as memory:
        for step in steps:
            _taken(memory, model, clock, step)
            there = model.there(clock.now)
            assert {*kept(memory)} == {atom.id for atom in memory} == there
            assert len(memory) == len(there) == len(memory.list())
            assert {a.id for a in memory.list(expired=True)} == model.atoms.keys() - there
            for atom in memory.list():
                assert (atom.expires, atom.ttl) == model.atoms[atom.id]
        assert {*ids(memory.retrieve("canoe", k=9))} == model.there(clock.now)
        assert memory.check() == []


def test_threads_that_refresh_keep_it_and_lose_nothing(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "m", clock=clock) as memory:
        memory.add([canoe(f"k{i}", ttl=100.0) for i in range(4)])
        failed: list[BaseException] = []

        def work(own: int) -> None:
            try:
                for step in range(12):
                    if own == 0:
                        clock.now += 10
                        memory.add(canoe(f"new{step}", ttl=15.0))
                    elif own == 1:
                        memory.update("k1", text=f"The canoe k1 in version {step}")
                    elif own == 2:
                        memory.upkeep.consolidate()
                    for i in range(4):
                        memory.get(f"k{i}", refresh=True)
                    memory.retrieve("canoe", scope=Scope(refresh=True))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        for i in range(4):
            assert memory.get(f"k{i}", refresh=True).expires == clock.now + 100
        assert memory.check() == []


OTHER = """
import sys
from graphmem_torch.memory import Memory
with Memory.open(sys.argv[1], embedder="hashing", clock=lambda: float(sys.argv[2])) as memory:
    for _ in range(5):
        print(*sorted(atom.id for atom in memory.list()))
        memory.get("a", refresh=True)
    memory.update("b", ttl=500)
    print(memory.upkeep.consolidate().expired)
"""


def test_two_processes_see_the_same(tmp_path: Path) -> None:
    clock = Clock()
    with Memory.open(tmp_path / "m", embedder="hashing", clock=clock) as memory:
        memory.add([canoe("a", ttl=50.0), canoe("b", ttl=50.0), canoe("c", ttl=20.0)])
        assert len(ids(memory.retrieve("canoe"))) == 3
        program = [sys.executable, "-c", OTHER, str(tmp_path / "m"), "1030"]
        said = subprocess.run(program, capture_output=True, text=True, env=environment())
        assert said.stdout.split() == ["a", "b"] * 5 + ["1"], said.stderr
        clock.now = 1060.0
        assert kept(memory) == ["a", "b"] and len(ids(memory.retrieve("canoe"))) == 2
        assert (memory.get("a").expires, memory.get("b").expires) == (1080.0, 1530.0)


def test_check_names_an_expiry_that_nobody_gave(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add([canoe("a", ttl=50.0), canoe("b", expires=9e9), canoe("c"), canoe("d")])
    with sqlite3.connect(tmp_path / "m" / DATABASE_NAME) as connection:
        connection.execute("UPDATE atom SET ttl = -1 WHERE id = 'a'")
        connection.execute("UPDATE atom SET ttl = 5 WHERE id = 'c'")
        connection.execute("UPDATE atom SET expires = 'soon' WHERE id = 'd'")
    connection.close()
    with opened(tmp_path / "m") as memory:
        found = memory.check()
        assert len(found) == 3 and all("expires at" in each for each in found)
        assert [name in "".join(found) for name in ("'a'", "'b'", "'c'")] == [True, False, True]


def test_a_store_without_expiry_is_as_before(tmp_path: Path) -> None:
    """Columns of a store of an older release are added when it is opened to write."""
    with opened(tmp_path / "m") as memory:
        memory.add([canoe("a"), canoe("b")])
        digests = [atom.digest for atom in memory.list()]
        assert digests == [replace(atom, expires=5.0, ttl=1.0).digest for atom in memory.list()]
    with sqlite3.connect(tmp_path / "m" / DATABASE_NAME) as connection:
        connection.execute("DROP INDEX atom_expires")
        for table in ("atom", "version"):
            for column in ("expires", "ttl"):
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.close()
    for mode in ("r", "w"):
        with opened(tmp_path / "m", mode=mode, clock=Clock()) as memory:
            assert kept(memory) == ["a", "b"] and memory.check() == []
            assert not memory.list(expired=True) and memory.get("a").expires is None
            assert sorted(ids(memory.retrieve("canoe"))) == ["a", "b"]
    with StoredMemory.open(tmp_path / "m") as stored:
        assert len(stored) == 2
    with opened(tmp_path / "m", clock=Clock()) as memory:
        memory.update("a", ttl=5)
        assert memory.get("a").expires == 1005.0


def test_layout_is_independent_of_it() -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add([canoe("a", ttl=5.0)])
        clock.now = 1005.0
        assert memory.compile("canoe", budget=99, layout=Layout(format="json")).sources == ()
        assert memory.retrieve(["canoe", "violin"])[0].hits == ()
        with pytest.raises(GraphMemError):
            memory.explain("canoe", "a")


def _hidden(of: dict[str, list[str]], expires: dict[str, float | None], now: float) -> set[str]:
    """Expired memories, and those derived from such memories alone, one by one."""
    hidden = {name for name, at in expires.items() if at is not None and at <= now}
    while True:
        more = {n for n, sources in of.items() if sources and {*sources} <= hidden} - hidden
        if not more:
            return hidden
        hidden |= more


@given(st.data())
@settings(max_examples=6, deadline=None)
def test_what_is_derived_agrees_with_a_loop(data: st.DataObject) -> None:
    names = [f"n{i}" for i in range(data.draw(st.integers(1, 9)))]
    of = {
        name: data.draw(st.lists(st.sampled_from(names[:i]), unique=True, max_size=3)) if i else []
        for i, name in enumerate(names)
    }
    times = st.sampled_from([None, 1001.0, 1002.0, 1003.0])
    expires = {name: data.draw(times) for name in names}
    clock = Clock()
    with opened(clock=clock) as memory:
        memory.add(
            [
                canoe(
                    name,
                    expires=expires[name],
                    edges=tuple(Link(each, EdgeType.DERIVED_FROM) for each in of[name]),
                )
                for name in names
            ]
        )
        for now in (1000.0, 1001.0, 1002.0, 1003.0):
            there = [name for name in names if name not in _hidden(of, expires, now)]
            view = memory.at(now)
            assert sorted(ids(view.retrieve("canoe", k=20))) == there
            clock.now = now
            assert kept(memory) == there and len(memory) == len(there)
            assert sorted(ids(memory.retrieve("canoe", k=20))) == there
        gone = len(names) - len(there)
        assert memory.upkeep.consolidate().expired == gone
        assert kept(memory) == there and memory.store.num_atoms == len(there)
        assert memory.check() == []


@pytest.mark.parametrize("preset", ["default", "synapse", "contextos", "weave", "sgrm", "spectral"])
def test_no_preset_leads_to_it_or_by_it(preset: str) -> None:
    clock = Clock()
    config = load_config(preset, {"link.concepts": "pattern"})
    with opened(clock=clock, config=config) as memory:
        gone = {f"a{i}" for i in range(1, 36, 3)}
        memory.add(
            [replace(a, expires=1001.0) if a.id in gone else a for a in turns(36)],
        )
        memory.graph.connect([(f"a{i}", f"a{i + 1}", "supports") for i in range(35)])
        clock.now = 1001.0
        for question in QUESTIONS:
            result = memory.retrieve(question, k=36, trace=True)
            assert result.trace is not None
            met = {hit.id for hit in result.hits} | {name for name, _ in result.trace.anchors}
            met |= {end for hit in result.hits for s in hit.path for end in (s.source, s.target)}
            why = memory.explain(question)
            met |= {start.id for start in why.starts} | {*why.gradients} | {*why.influences}
            met |= {end for edge in why.edges for end in (edge.source, edge.target)}
            context = memory.compile(question, budget=300)
            met |= {*context.sources, *context.omitted, *context.unrelated}
            assert not met & gone


def test_namespaces_and_async_calls_keep_to_it() -> None:
    clock = Clock()
    with opened(clock=clock) as memory:
        for name in ("one", "two"):
            memory.namespaces.create(name).add(canoe(name, ttl=10.0))
        clock.now = 1005.0
        scope = Scope(namespaces=["one", "one"], refresh=True)
        memory.retrieve(["canoe", "harbour"], scope=scope)
        asyncio.run(memory.aio.add(canoe("own"), ttl=3))
        clock.now = 1010.0
        assert kept(memory.namespaces["one"]) == ["one"] and kept(memory) == []
        assert not memory.namespaces["two"] or kept(memory.namespaces["two"]) == []
        found = memory.retrieve(["canoe"] * 2, scope=Scope(namespaces=["one", "two"]))
        assert [ids(each) for each in found] == [["one"], []]
