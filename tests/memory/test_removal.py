"""Deleted memories: what is left, against a store that is walked through atom by atom."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.state import State
from tests.memories import (
    QUESTIONS,
    WORDS,
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

Edge = tuple[str, str, int]


def same_store(memory: Memory, config: Config, clock: Callable[[], float] = time.time) -> Memory:
    """Another memory on the store of an open one."""
    own = {"embedder": memory.embedder, "config": config, "device": "cpu", "clock": clock}
    return Memory(State(memory.store, **own))  # type: ignore[arg-type]


def sound(memory: Memory, kept: list[str]) -> None:
    """Nothing is stored but these and the concepts that they mention, and nothing leads away."""
    store = memory.store
    assert memory.check() == []
    assert [name for name in store.ids() if not name.startswith(CONCEPT)] == kept
    assert temporal(store) == expected(store)
    with opened(config=memory.config) as fresh:
        fresh.add(memory.get(kept))
        assert sorted(store.ids()) == sorted(fresh.store.ids())
        assert edges_of(memory) == edges_of(fresh)


def edges_of(memory: Memory, *but: EdgeType) -> list[tuple[Edge, object]]:
    """Of those that are equally similar any may be chosen."""
    edges = [
        ((edge[0], "" if edge[2] == EdgeType.SIMILARITY else edge[1], edge[2]), weight)
        for edge, weight in stored(memory.store)
        if edge[2] not in but
    ]
    return [(edge, pytest.approx(weight, abs=1e-5)) for edge, weight in sorted(edges)]


def turn(i: int) -> Atom:
    """Turns of two sessions: some come late, some have no time."""
    time = None if i % 3 == 0 else 1.7e9 + (i * 37 % 50)
    return Atom(f"n{i}", f"The Kiln{i % 7} of Ada Lovelace {i}", session=f"s{i % 2}", time=time)


LINKED = config_of(**{"link.similarity_k": 3, "link.min_similarity": 0.1, "link.cooccurrence": 3})


@settings(max_examples=settings.default.max_examples // 4)
@given(st.lists(st.one_of(st.just("add"), st.integers(0, 1 << 16)), max_size=10))
def test_delete_leaves_what_is_kept(history: list[str | int]) -> None:
    with opened(config=LINKED) as memory:
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


@pytest.mark.parametrize("seed", range(3))
def test_delete_from_a_long_session(seed: int) -> None:
    """Turns in the order of time, some without one: some go, neighbours, the first, the last."""
    rng, config = random.Random(seed), config_of(**{"link.cooccurrence": 3})
    said = [f"Ada{rng.randrange(9)} met Boris{rng.randrange(9)} in Riga{i}" for i in range(90)]
    atoms = [
        Atom(f"n{i}", text, session="s", time=None if rng.random() < 0.2 else 1.7e9 + i // 3)
        for i, text in enumerate(said)
    ]
    with opened(config=config) as memory:
        memory.add(atoms)
        gone = {*rng.sample(range(90), 3), *range(40, 40 + 5 * seed), *[[], [0], [88, 89]][seed]}
        memory.delete([f"n{i}" for i in gone])
        sound(memory, [f"n{i}" for i in range(90) if i not in gone])


def test_delete_is_noticed_by_everything() -> None:
    """What one object goes on with against one that never saw the atoms there."""
    settings = config_of(**{"decay.now": "latest", "regime.detector": "spectral"})
    settings = replace(settings, gate=replace(settings.gate, threshold=1.0))  # no use but a touch
    with opened(config=settings) as memory:
        memory.add(turns())
        memory.pin(["a4", "a5"])
        memory.touch(["a4", "a6"])
        memory.upkeep.classify()
        memory.compile(QUESTIONS, budget=100)
        memory.retrieve("x", where={"meta.page": {"$gte": 20}})
        memory.themes.list(), memory.graph.structure(), memory.upkeep.strength("a22")
        gone = ["a4", "a20", "a22", "a23"]  # the latest among them
        assert memory.delete(gone) == 4
        fresh = same_store(memory, settings)
        for one in (memory, fresh):
            assert one.pinned() == ["a5"] and len(one) == 20 and "a4" not in one
            with pytest.raises(InputError, match="'a4', which is not in the store"):
                one.upkeep.types("a4")
        assert plain(memory.retrieve(QUESTIONS)) == plain(fresh.retrieve(QUESTIONS))
        contexts = [one.compile(QUESTIONS, budget=100) for one in (memory, fresh)]
        assert [each.text for each in contexts[0]] == [each.text for each in contexts[1]]
        assert not set(gone) & set(contexts[0][0].sources)
        found = memory.retrieve("x", where={"meta.page": {"$gte": 20}})
        assert ids(found) == ids(fresh.retrieve("x", where={"meta.page": {"$gte": 20}}))
        assert memory.themes.list() == fresh.themes.list()
        assert memory.graph.structure().names == fresh.graph.structure().names
        own, other = memory.upkeep.strength(["a0", "a21"]), fresh.upkeep.strength(["a0", "a21"])
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
            with pytest.raises(InputError, match="ids: expected"):
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
        for i in range(0, 24, 4):
            memory.delete([f"a{i}", f"a{i + 1}"])
        done.set()
        for thread in asking:
            thread.join()
        assert errors == [] and memory.check() == []


def mixed(i: int) -> Atom:
    links = (Link(f"n{i - 1}", EdgeType.CAUSES),) if i % 4 == 3 else ()
    return replace(turn(i), edges=links)


steps = st.lists(st.tuples(st.integers(0, 13), st.integers(0, 40), st.integers(0, 2)), max_size=5)


@settings(max_examples=settings.default.max_examples // 4)
@given(steps)
def test_update_is_as_if_it_was_always_so(changes: list[tuple[int, int, int]]) -> None:
    """But for similarity, for which an atom comes anew."""
    with opened(config=LINKED) as memory, opened(config=LINKED) as fresh:
        memory.add(map(mixed, range(14)))
        memory.graph.connect("n2", "n9", EdgeType.TEMPORAL)
        memory.graph.connect("n2", "n5", EdgeType.SIMILARITY, 0.123)
        memory.graph.connect("n8", "n2", EdgeType.SUPPORTS)
        said = {f"n{i}": mixed(i) for i in range(14)}
        for at, other, field in changes:
            new = turn(other)
            change = [{"text": new.text}, {"time": new.time}, {"session": new.session}][field]
            said[f"n{at}"] = replace(said[f"n{at}"], **change)
            assert memory.update(f"n{at}", **change) == said[f"n{at}"]
            assert memory.facts.versions(f"n{at}")[-1].atom == said[f"n{at}"]
        assert memory.check() == [] and len(memory) == 14
        assert memory.get(list(said)) == list(said.values())
        fresh.add(said.values())
        fresh.graph.connect("n2", "n9", EdgeType.TEMPORAL)
        fresh.graph.connect("n2", "n5", EdgeType.SIMILARITY, 0.123)
        fresh.graph.connect("n8", "n2", EdgeType.SUPPORTS)
        assert sorted(memory.store.ids()) == sorted(fresh.store.ids())
        assert edges_of(memory, EdgeType.SIMILARITY) == edges_of(fresh, EdgeType.SIMILARITY)
        ends = [edge for edge, _ in stored(memory.store) if edge[2] == EdgeType.SIMILARITY]
        assert ("n2", "n5", EdgeType.SIMILARITY) in ends
        memory.add(turn(99))  # the linker of before goes on
        fresh.add(turn(99))
        assert edges_of(memory, EdgeType.SIMILARITY) == edges_of(fresh, EdgeType.SIMILARITY)
        memory.delete(list(said))
        sound(memory, ["n99"])


def test_update_keeps_what_was_said_for_its_time() -> None:
    now = 2e9
    with opened(clock=lambda: now) as memory:
        memory.add(turns())
        memory.pin("a3")
        memory.touch("a3", when=1.9e9)
        memory.touch("a3")
        before, question = memory.get("a3"), "Where does the walrus sing?"
        now = 2.1e9
        new = memory.update("a3", text="The walrus does sing in the harbour", meta={"page": 99})
        now = 2.0e9  # a clock may go backwards, versions do not
        newest = memory.update("a3", speaker="Cy")
        assert memory.get("a3") == newest == replace(new, speaker="Cy")
        versions = memory.facts.versions("a3")
        assert [each.atom for each in versions] == [before, new, newest]
        ends = [(each.since, each.until) for each in versions]
        assert ends == [(None, 2.1e9), (2.1e9, 2.1e9), (2.1e9, None)]
        assert memory.pinned() == ["a3"] and memory.stats()["uses"] == 2 and len(memory) == 24
        for moment in (None, 2.1e9):
            found = {hit.id: hit.text for hit in memory.at(as_of=moment).retrieve(question).hits}
            assert found["a3"] == newest.rendered
        for result in memory.at(as_of=1.95e9).retrieve([question, before.text]):
            found = {hit.id: hit.text for hit in result.hits}
            assert found["a3"] == before.rendered and "walrus" not in "".join(found.values())
        where = {"meta.page": 99}
        assert ids(memory.retrieve(question, where=where)) == ["a3"]
        assert ids(memory.at(as_of=2.2e9).retrieve(question, where=where)) == ["a3"]
        assert memory.at(as_of=1.95e9).retrieve(question, where={"meta.page": "99"}).hits == ()
        assert before.text in memory.at(as_of=1.95e9).compile(question, budget=4000).text
        assert before.text not in memory.compile(question, budget=4000).text
        again = same_store(memory, memory.config, lambda: now)
        assert plain([again.retrieve(question)]) == plain([memory.retrieve(question)])
        assert again.store.uses.last(memory.store.columns().node, 3e9).max() == 2e9
        assert memory.update("a3", speaker="Cy") == newest and len(memory.facts.versions("a3")) == 3
        memory.delete("a3")
        assert memory.check() == [] and memory.store.replaced(0.0) == {}
        memory.add(before)
        assert len(memory.facts.versions("a3")) == 1


def test_a_chunk_of_another_text_is_not_where_it_lay_in_its_document() -> None:
    text = "The canoe sank. The walrus sings in the harbour."
    with opened() as memory:
        memory.add_document(text, name="d")
        memory.add(Atom("own", "a canoe", meta={"start": 0, "end": 7}))
        chunk = memory.get("d#0")
        place = chunk.meta
        assert text[place["start"] : place["end"]] == chunk.text
        assert memory.update("d#0", speaker="Ann").meta == place
        assert memory.update("d#0", text="The canoe floats.").meta == {}
        assert memory.facts.versions("d#0")[0].atom.meta == place
        assert memory.update("d#0", text=chunk.text, meta=place).meta == place
        assert memory.update("own", text="two canoes").meta == {"start": 0, "end": 7}
        assert memory.check() == []


def test_update_of_what_was_never_used_beside_what_was() -> None:
    with opened() as memory:
        memory.add(turns(9))
        memory.touch(["a0", "a8"], when=1.8e9)
        nodes = memory.store.columns().node
        memory.update("a4", text="A walrus")
        assert memory.store.uses.last(nodes, 2e9).isfinite().sum() == 2


@pytest.fixture(scope="module")
def refusing() -> Iterator[Memory]:
    """A memory that is asked for changes which it cannot make."""
    with opened() as memory:
        memory.add(turns(6))
        yield memory


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "expected fields to change"),
        ({"txt": "x"}, "did you mean 'text'"),
        ({"id": "x"}, "an id never changes"),
        ({"edges": ()}, "`graph.connect`"),
        ({"text": " "}, "delete the atom"),
        ({"text": None}, "text: expected a string"),
        ({"kind": "concept"}, "concept"),
        ({"kind": "a\nb"}, "kind: expected"),
        ({"type": "epsodic"}, "did you mean 'episodic'"),
        ({"time": "soon"}, "time"),
        ({"meta": 3}, "meta: expected a mapping"),
        ({"session": 4}, "session: expected a string"),
    ],
)
def test_update_refuses(refusing: Memory, changes: dict[str, object], message: str) -> None:
    before = refusing.store.state, stored(refusing.store)
    with pytest.raises(InputError, match=message):
        refusing.update("a1", **changes)  # type: ignore[arg-type]
    assert (refusing.store.state, stored(refusing.store)) == before


def test_update_refuses_what_is_not_there_and_goes_on(refusing: Memory) -> None:
    before = refusing.store.state, stored(refusing.store)
    for name in ("nobody", f"{CONCEPT}:canoe"):
        with pytest.raises(InputError):
            refusing.update(name, text="x")
    assert (refusing.store.state, stored(refusing.store)) == before
    refusing.add(turns(7)[6:])
    assert refusing.check() == []


@pytest.mark.parametrize("seed", range(2))
def test_what_was_connected_stays_apart_from_what_linking_made(seed: int) -> None:
    draw, names, expected = random.Random(seed), list[str](), set[tuple[str, str]]()
    with opened(config=config_of()) as memory:
        for i in range(32):
            what = draw.choice(
                ["add", "lonely", "connect", "connect", "update", "delete", "forget"]
            )
            if what in ("add", "lonely") or len(names) < 3:
                text = f"{i} {''.join(draw.choices('bcdfghklmnp', k=9))}"
                if what != "lonely":  # else no edge comes with it
                    text = f"The {draw.choice(WORDS)} of Ada, number {i}"
                session = None if what == "lonely" else draw.choice("ab")
                memory.add(Atom(f"n{i}", text, session=session))
                names.append(f"n{i}")
            elif what == "connect":
                one, other = draw.sample(names, 2)
                memory.graph.connect(one, other, "supports")
                expected.add((one, other))
            elif what == "update":
                memory.update(draw.choice(names), text=f"A {draw.choice(WORDS)} it was, {i}")
            else:
                name = names.pop(draw.randrange(len(names)))
                (memory.delete if what == "delete" else memory.forget)(name)
                expected = {ends for ends in expected if name not in ends}
            found, columns = memory.store.connected_edges(), memory.store.columns()
            name_of = dict(zip(columns.node.tolist(), memory.store.ids(), strict=True))
            ends = zip(found.source.tolist(), found.target.tolist(), strict=True)
            assert {(name_of[a], name_of[b]) for a, b in ends} == expected, (i, what)
        assert not memory.check()
