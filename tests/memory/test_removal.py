"""Deleted memories: what is left, against a store that is walked through atom by atom."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory
from tests.memories import (
    QUESTIONS,
    config_of,
    expected,
    file_size_limit,
    ids,
    opened,
    plain,
    stored,
    temporal,
    turns,
)


def sound(memory: Memory, kept: list[str]) -> None:
    """Nothing is stored but these and the concepts that they mention, and nothing leads away."""
    store = memory.store
    assert memory.check() == []
    assert [name for name in store.ids() if not name.startswith(CONCEPT)] == kept
    assert temporal(store) == expected(store)
    with opened() as fresh:
        fresh.add(memory.get(kept))
        assert sorted(store.ids()) == sorted(fresh.store.ids())


def turn(i: int) -> Atom:
    """Turns of two sessions: some come late, some have no time."""
    time = None if i % 3 == 0 else 1.7e9 + (i * 37 % 50)
    return Atom(f"n{i}", f"The Kiln{i % 7} of Ada Lovelace {i}", session=f"s{i % 2}", time=time)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.one_of(st.just("add"), st.integers(0, 1 << 16)), max_size=10))
def test_delete_leaves_what_is_kept(history: list[str | int]) -> None:
    with opened() as memory:
        kept, count = list[str](), 0
        for step in ["add", *history]:
            if step == "add":
                memory.add([turn(i) for i in range(count, count + 7)])
                kept += [f"n{i}" for i in range(count, count + 7)]
                count += 7
            else:
                gone = [name for i, name in enumerate(kept) if step >> i % 16 & 1]
                assert memory.delete(gone) == len(gone)
                kept = [name for name in kept if name not in gone]
        sound(memory, kept)


def test_delete_is_noticed_by_everything() -> None:
    """What one object goes on with against one that never saw the atoms there."""
    settings = config_of(**{"decay.now": "latest", "regime.detector": "spectral"})
    with opened(config=settings) as memory:
        memory.add(turns())
        memory.pin(["a4", "a5"])
        memory.touch(["a4", "a6"])
        memory.classify()
        memory.compile(QUESTIONS, budget=100)
        memory.retrieve("x", where={"meta.page": {"$gte": 20}})
        memory.modes(), memory.structure(), memory.strength("a22")
        gone = ["a4", "a20", "a22", "a23"]  # the latest among them
        assert memory.delete(gone) == 4
        fresh = Memory(memory.store, memory.embedder, settings, "cpu")
        for one in (memory, fresh):
            assert one.pinned() == ["a5"] and len(one) == 20 and "a4" not in one
            with pytest.raises(InputError, match="'a4', which is not in the store"):
                one.types("a4")
        assert plain(memory.retrieve(QUESTIONS)) == plain(fresh.retrieve(QUESTIONS))
        contexts = [one.compile(QUESTIONS, budget=100) for one in (memory, fresh)]
        assert [each.text for each in contexts[0]] == [each.text for each in contexts[1]]
        assert not set(gone) & set(contexts[0][0].sources)
        found = memory.retrieve("x", where={"meta.page": {"$gte": 20}})
        assert ids(found) == ids(fresh.retrieve("x", where={"meta.page": {"$gte": 20}}))
        assert memory.modes() == fresh.modes()
        assert memory.structure().names == fresh.structure().names
        own, other = memory.strength(["a0", "a21"]), fresh.strength(["a0", "a21"])
        assert own == {name: pytest.approx(value, rel=1e-2) for name, value in other.items()}
        memory.store.uses.flush()
        assert memory.stats()["uses"] == 1


def test_delete_of_what_others_state() -> None:
    with opened() as memory:
        memory.add([Atom("x", "one"), Atom("y", "two", edges=(Link("x", EdgeType.SUPPORTS),))])
        before = stored(memory.store)
        memory.delete(["x"])
        assert stored(memory.store) == []
        memory.add(Atom("x", "one again"))
        assert [edge for edge, _ in stored(memory.store)] == [edge for edge, _ in before]
        memory.delete(["y", "y"])
        memory.add(Atom("z", "three"))
        assert stored(memory.store) == []


def test_delete_all_or_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns())
        before = memory.store.state, memory.store.ids(), stored(memory.store)
        for wrong in ("nobody", ["a1", "nobody"], ["a1", f"{CONCEPT}:Canoe"], 3, [3]):
            with pytest.raises(InputError, match="expected ids"):
                memory.delete(wrong)  # type: ignore[arg-type]
        with file_size_limit(100), pytest.raises(StoreError):
            memory.delete([f"a{i}" for i in range(12)])
        with opened(tmp_path, mode="r") as reader, pytest.raises(StoreError, match="mode='w'"):
            reader.delete("a1")
        assert memory.delete([]) == 0
        assert (memory.store.state, memory.store.ids(), stored(memory.store)) == before
        number = memory.store.next_node
        assert memory.delete(atom.id for atom in turns()) == 24
        assert len(memory) == 0 and memory.store.num_nodes == 0 and memory.check() == []
        assert memory.retrieve(QUESTIONS[0]).hits == ()
        memory.add(turns(3))
        assert memory.store.columns().node[0] == number
        assert "a2" in ids(memory.retrieve(turns()[2].text))
    with opened(tmp_path) as memory:
        sound(memory, ["a0", "a1", "a2"])


def test_delete_beside_those_who_ask() -> None:
    """Whoever asks while memories go gets an answer of before or of after."""
    with opened() as memory:
        memory.add(turns(48))
        errors, done = list[Exception](), threading.Event()

        def ask() -> None:
            try:
                while not done.is_set():
                    memory.retrieve(QUESTIONS)
                    memory.compile(QUESTIONS, budget=60)
            except Exception as error:
                errors.append(error)

        asking = [threading.Thread(target=ask) for _ in range(2)]
        for thread in asking:
            thread.start()
        for i in range(0, 40, 4):
            memory.delete([f"a{i}", f"a{i + 1}"])
        done.set()
        for thread in asking:
            thread.join()
        assert errors == [] and memory.check() == []
