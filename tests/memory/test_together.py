"""Many writers of one memory: temporal edges against a loop over the turns of every session."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.memory import Memory
from graphmem_torch.memory.index_builder import reweighted
from graphmem_torch.memory.link import Linker
from graphmem_torch.memory.linked import Linked
from graphmem_torch.memory.session_turns import Session
from graphmem_torch.results import Added
from graphmem_torch.store import Batch, MemoryStore
from tests.memories import config_of, expected, opened, stored, temporal, turns

put = Session.put


def break_as_threads_did(store: MemoryStore, count: int = 4, late: int = 3) -> None:
    """Stores turns whose edges were numbered before others took these numbers."""
    atoms = [Atom(f"b{i}", f"broken {i}", session="b") for i in range(count)]
    first = store.next_node - late
    ends = torch.arange(first, first + count)
    edges = EdgeBlock.of(ends[:-1], ends[1:], EdgeType.TEMPORAL, 1.0)
    store.append(Batch(atoms, torch.eye(count, store.dim), edges=edges))


def test_check_finds_edges_of_writers_that_did_not_wait() -> None:
    with opened() as memory:
        memory.add(turns(14))
        assert memory.check() == [] and temporal(memory.store) == expected(memory.store)
        break_as_threads_did(memory.store)
        assert temporal(memory.store) != expected(memory.store)
        assert "join others than neighbours of one session" in "\n".join(memory.check())


def test_a_broken_store_is_mended_by_the_next_add() -> None:
    """So is one whose turns are in the order of insertion, as older versions left it."""
    with opened() as memory:
        memory.add(turns(14))
        memory.graph.disconnect("a7", "a8")
        break_as_threads_did(memory.store)
        connection = memory.store._database._connection
        connection.execute("DELETE FROM meta WHERE key = 'turns'")
        assert memory.check() != []
        memory.add(Atom("b4", "mended", session="b"))
        assert temporal(memory.store) == expected(memory.store) and memory.check() == []


def test_turns_of_an_older_version_are_put_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [5.0, 1.0, None, 8.0, 2.0]
    atoms = [Atom(f"t{i}", f"turn {i}", session="s", time=time) for i, time in enumerate(times)]
    with opened(tmp_path) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(
                Session, "put", lambda self, node, time, first: put(self, node, None, first)
            )
            memory.add([*atoms, *turns(8)])
        memory.graph.disconnect("a2", "a3")
        connection = memory.store._database._connection
        connection.execute("DELETE FROM meta WHERE key = 'turns'")
        assert set(expected(memory.store, by_time=False)) - set(temporal(memory.store)) == {
            ("a2", "a3")
        }
        assert memory.check() == [], "in the order of insertion it is sound"
    with opened(tmp_path) as memory:
        memory.add(Atom("late", "late", session="s", time=6.0))
        assert set(expected(memory.store)) - set(temporal(memory.store)) == {("a2", "a3")}
        assert set(temporal(memory.store)) <= set(expected(memory.store)) and memory.check() == []


def test_check_knows_edges_that_are_stated() -> None:
    """A temporal edge that an atom states, or a caller makes, may join what it likes."""
    with opened() as memory:
        memory.add(turns(14))
        memory.graph.connect("a0", "a9", "temporal")
        memory.add([Atom("x", "stated", session="s0", edges=(Link("a1", EdgeType.TEMPORAL),))])
        assert memory.check() == []
        memory.graph.disconnect("a2", "a3")
        assert memory.check() == [], "an edge that was taken away is no damage"


def test_aliases_are_kept_and_lead_to_concepts(tmp_path: Path) -> None:
    """Names that differ in an article are one concept; whoever opens the store knows it."""
    config = config_of()
    with opened(tmp_path, config=config) as memory:
        memory.add([Atom("a", "We saw Harbour Museum"), Atom("b", "So The Harbour Museum it is")])
        name = "the harbour museum"
        found = memory.store.aliases()
        node = {name: node for _, name, node in found}[name]
        assert memory.store.atoms([node])[0].kind == CONCEPT
        with opened(tmp_path, config=config) as other:
            other.add(Atom("c", "We like The Harbour Museum"))
            assert ("c", node, EdgeType.ABSTRACTION) in {
                (edge[0], other.store.known([edge[1]])[edge[1]][0], edge[2])
                for edge, _ in stored(other.store)
            }
            assert other.store.aliases() == found and other.check() == []
        connection = memory.store._database._connection
        connection.execute("UPDATE alias SET node = 0")
        assert any("leads to node 0, which is no concept" in text for text in memory.check())


def said(thread: int, count: int = 9) -> list[Atom]:
    """Turns of a session of one's own, then of one that all share, with common and own names."""
    words = ["Comet", "Violin", f"Harbour{thread}"]
    return [
        Atom(
            f"t{thread}-{i}",
            f"The {words[i % 3]} number {i} of {thread} is near the {words[(i + 1) % 3]}",
            session=f"own{thread}" if i % 3 else "shared",
            time=(None, 50.0 - i, float(i), 7.0)[(i + thread) % 4],
        )
        for i in range(count)
    ]


def add_one_by_one(memories: Sequence[Memory], threads: int = 4) -> None:
    def run(thread: int) -> None:
        for atom in said(thread):
            assert memories[thread % len(memories)].add(atom).new == 1

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))


def without_ties(store: MemoryStore) -> list[tuple[str, str, int, float]]:
    """The edges, but for which of equally similar atoms they lead to."""
    return sorted(
        (a, "" if kind == EdgeType.SIMILARITY else b, kind, round(weight, 4))
        for (a, b, kind), weight in stored(store)
    )


def check_whole(memory: Memory, threads: int = 4) -> None:
    """Everything is there, linked as if it had come in this order from one."""
    store = memory.store
    assert len(memory) == sum(len(said(thread)) for thread in range(threads))
    assert temporal(store) == expected(store) and memory.check() == []
    atoms = store.atoms(store.columns().node.tolist())
    with opened() as alone:
        for atom in atoms:
            if atom.kind != CONCEPT:
                alone.add(atom)
        assert without_ties(store) == without_ties(alone.store)


def test_threads_add_to_one_memory() -> None:
    with opened() as memory:
        add_one_by_one([memory])
        check_whole(memory)


def test_memories_of_one_folder_follow_each_other(tmp_path: Path) -> None:
    one, two, three = (opened(tmp_path) for _ in range(3))
    add_one_by_one([one, two, three])
    check_whole(one)
    four = opened(tmp_path)  # has to read what the others know
    four.add(said(4))
    three.add(said(5))
    check_whole(four, 6)
    for memory in (one, two, three, four):
        memory.store.close()  # without a snapshot


def test_what_another_memory_deletes_is_linked_to_by_none(tmp_path: Path) -> None:
    """Also where as many came as went, so that their number tells nothing."""
    one, two = opened(tmp_path), opened(tmp_path)
    one.add([Atom(f"t{i}", f"Ada rows over lake number {i}", session="s") for i in range(6)])
    two.delete("t5")
    one.add(Atom("u0", "Ada rows over lake number 5", session="s"))
    one.delete("t4")
    two.delete("t3")
    two.add(Atom("u1", "Ada rows over lake number 4", session="s"))
    one.add(Atom("u2", "Ada rows over lake number 3", session="s"))
    with opened() as alone:
        alone.add(one.get(one.store.ids_of_kind("turn")))
        assert [pair for pair, _ in stored(one.store)] == [pair for pair, _ in stored(alone.store)]
    assert one.check() == []
    for memory in (one, two):
        memory.store.close()


def grouped(memory: Memory, atoms: Sequence[Atom]) -> list[Added | Exception]:
    """What adding each of these gives where all of them wait for one turn."""
    with ThreadPoolExecutor(len(atoms)) as pool:
        with memory.store.turn():
            waiting = [pool.submit(memory.add, atom) for atom in atoms]
            while memory._state._writer is None or len(memory._state._writer._waiting) < len(atoms):
                time.sleep(0.001)
        return [each.exception() or each.result() for each in waiting]


def test_what_waits_is_one_commit() -> None:
    with opened() as memory:
        memory.add("first")
        before = memory.store.generation
        atoms = said(0) + said(1)
        assert grouped(memory, [*atoms, atoms[3]]) in (
            [Added(1, 0)] * 18 + [Added(0, 1)],
            [*[Added(1, 0)] * 3, Added(0, 1), *[Added(1, 0)] * 15],
        )
        assert memory.store.generation == before + 1
        assert temporal(memory.store) == expected(memory.store) and memory.check() == []


def test_a_bad_atom_costs_its_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Linker.link

    def fails(self: Linker, atoms: Sequence[Atom], *rest: Any) -> Linked:
        if any("poison" in atom.text for atom in atoms):
            raise ValueError("poisoned")
        return link(self, atoms, *rest)

    with opened() as memory:
        memory.add("first")
        monkeypatch.setattr(Linker, "link", fails)
        atoms = said(0)
        other = replace(atoms[4], text="other content")
        done = grouped(memory, [*atoms, other, Atom("p", "poison")])
        assert isinstance(done[-1], ValueError)
        both = done[4], done[9]
        assert Added(1, 0) in both and any("other content" in str(each) for each in both)
        assert done[:4] + done[5:9] == [Added(1, 0)] * 8
        assert len(memory) == 10 and memory.check() == []
        assert temporal(memory.store) == expected(memory.store)


def test_a_full_disk_is_told_to_all_who_wait(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns(6))
        connection = memory.store._database._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        large = [Atom(f"x{i}", f"word{i} " * 4000) for i in range(3)]
        assert all("disk" in str(each) for each in grouped(memory, large))
        connection.execute("PRAGMA max_page_count = 1000000")
        assert grouped(memory, large) == [Added(1, 0)] * 3
        assert len(memory) == 9 and memory.check() == []


def test_add_takes_no_lock_that_forks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was killed with it would hold up the others for ever."""
    tqdm = pytest.importorskip("tqdm").tqdm
    monkeypatch.setattr(tqdm, "__new__", lambda *_, **__: pytest.fail("a bar was made"))
    with opened() as memory:
        memory.add(turns(3))
        memory.graph.judge(pairs=[("a0", "a1")])
        memory.upkeep.classify()


def test_paths_stay_those_of_the_question_while_weights_are_taken_up() -> None:
    """Other weights are an index beside the shared one, whose edges keep their numbers."""
    with opened() as memory:
        memory.add(turns(30))
        index = memory.index
        before = [column.clone() for column in index.graph.stored]
        other = reweighted(index, memory.config)
        assert index.graph.stored.source is index.tensors.graph.stored.source
        assert all(torch.equal(a, b) for a, b in zip(before, index.graph.stored, strict=True))
        theirs = dict(other.named_buffers())
        assert all(torch.equal(part, theirs[name]) for name, part in index.all_tensors().items())
