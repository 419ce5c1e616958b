"""Contexts, answers and explanations from all shards against those of one store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Layout, Memory, Scope, create_shards
from graphmem_torch.store.shard_folder import shard_of
from tests.memories import config_of, turns
from tests.memory.test_shards import ASKED, S, folder_of, one_of, opened, passages


@pytest.mark.parametrize("shards", [1, S])
def test_contexts_are_those_of_one_store(shards: int, tmp_path: Path) -> None:
    """Without a graph nothing differs; one shard is one store with it, too."""
    atoms = turns(160)
    cut: dict[str, Any] = {} if shards == 1 else {"spread.min_nodes": 10_000, "hops.title": 0.0}
    path = folder_of(tmp_path / "m", atoms, shards=shards, **cut)
    with one_of(atoms, **cut) as one, opened(path, "r", **cut) as many:
        for order in ("relevance", "time", "topological"):
            asked: Any = {"budget": [60, 200, 700], "layout": Layout(order=order)}
            for own, other in zip(
                one.compile(ASKED, **asked), many.compile(ASKED, **asked), strict=True
            ):
                for mine, theirs in zip(own, other, strict=True):
                    assert sorted(theirs.sources) == sorted(mine.sources)
                    if shards == 1:
                        assert theirs.sources == mine.sources and theirs.text == mine.text
                    assert (theirs.tokens, theirs.known) == (mine.tokens, mine.known)
                    assert theirs.value == pytest.approx(mine.value, abs=1e-6)
                    assert sorted(theirs.omitted) == sorted(mine.omitted)
                    assert sorted(theirs.unrelated) == sorted(mine.unrelated)


def test_contexts_have_pins_needs_and_no_copies_of_all_shards(tmp_path: Path) -> None:
    said = "The canoe is in the boathouse by the northern lake"
    atoms = [
        *turns(60),
        Atom("copy1", said, session="x1"),
        *(Atom(f"copy{i}", said, session=f"x{i}") for i in range(2, 9)),
        Atom("rule", "Always answer in French", session="y", type="procedural"),
        Atom("base", "The lake is three miles north", session="z"),
        Atom(
            "leaf", "The boathouse burned", session="z", edges=(Link("base", EdgeType.DEPENDENCY),)
        ),
    ]
    path = folder_of(tmp_path / "m", atoms)
    own = {"context.requires": ["dependency"]}
    with one_of(atoms, **own) as one, opened(path, **own) as many:
        assert len({shard_of(atom, S) for atom in atoms if atom.text == said}) > 1
        many.pin("a7")
        one.pin("a7")
        for question in ("Where is the canoe?", "What burned?"):
            theirs, mine = (each.compile(question, budget=160) for each in (many, one))
            assert {"rule", "a7"} <= {*theirs.sources} and theirs.tokens <= 160
            assert sum(name.startswith("copy") for name in theirs.sources) <= 1
            assert ("leaf" in theirs.sources) <= ("base" in theirs.sources)
            assert len({*theirs.sources} & {*mine.sources}) >= 0.7 * len(mine.sources)
        with pytest.raises(InputError, match="budget: expected at least"):
            many.compile("Where?", budget=3)
        many.delete("copy1")
        assert "copy1" not in many.compile("Where is the canoe?", budget=160).sources
        assert many.compile([], budget=[10, 20]) == []
    create_shards(tmp_path / "empty", S)
    with opened(tmp_path / "empty") as none:
        assert none.compile("Where?", budget=60).sources == ()


def test_compiling_at_a_moment_and_in_namespaces(tmp_path: Path) -> None:
    clock = [1.8e9]
    create_shards(tmp_path / "m", S)
    with Memory.open(
        tmp_path / "m", config=config_of(), embedder="hashing", clock=lambda: clock[0]
    ) as memory:
        memory.add(turns(60))
        clock[0] += 1000
        memory.update("a7", text="The walrus of a7 sleeps")
        memory.namespaces.create("alice").add(Atom("w", "A walrus of hers", session="s"))
        now = memory.compile("walrus a7", budget=60)
        then = memory.at(clock[0] - 500).compile("walrus a7", budget=60)
        assert "walrus" in now.text and "walrus" not in then.text
        scope = Scope(namespaces=["alice"])
        (hers,) = memory.compile(["walrus?"], budget=60, scope=scope)
        assert hers.sources == ("w",)


def test_answers_note_what_they_cite_in_every_shard(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", turns(160))
    with opened(path) as memory:
        many: Any = memory
        context = memory.compile(ASKED[0], budget=300)
        places = {name: shard_of(memory.get(name), S) for name in context.sources}
        assert len({*places.values()}) > 1
        cited = [
            next(i for i, name in enumerate(context.sources, 1) if places[name] == shard)
            for shard in sorted({*places.values()})
        ]
        says = " ".join(f"So [{number}]." for number in cited)
        answer = memory.answer(ASKED[0], llm=lambda prompt: says, budget=420)
        assert len(answer.cited) == len(cited)
        for shard in many.shards:
            shard.store.uses.flush()
        used, left = set[str](), set[str]()
        for shard in many.shards:
            for each in shard.store.learned.feedback():
                assert each.question == ASKED[0]
                used |= {*shard.store.learned.ids(each.used)}
                left |= {*shard.store.learned.ids(each.not_used)}
        assert used == {*answer.cited} and left == {*answer.context.sources} - used
        memory.feedback("which?", used=["a1", "a20"], not_used="a3")
        times = {
            each.time
            for shard in many.shards
            for each in shard.store.learned.feedback()
            if each.question == "which?"
        }
        assert len(times) == 1
        for wrong in ({"used": "a1", "not_used": "a1"}, {}, {"used": "b1"}):
            with pytest.raises(InputError):
                memory.feedback("which?", **wrong)


# Explanations.


def test_an_explanation_has_the_score_and_rank_of_all_shards(tmp_path: Path) -> None:
    atoms = turns(120) + passages()
    path = folder_of(tmp_path / "m", atoms)
    with opened(path, "r") as many:
        for question in ASKED[:4]:
            hits = many.retrieve(question, k=200).hits
            for place in (0, 7, 30, 100):
                found = many.explain(question, hits[place].id)
                assert found.id == hits[place].id and found.rank == place + 1
                assert found.raw == pytest.approx(hits[place].raw, abs=1e-5)
                assert found.score == pytest.approx(hits[place].score, abs=1e-6)
                assert sum(found.signals.values()) == pytest.approx(found.raw, abs=1e-4)
                assert found.why == hits[place].why and found.influences == {}
            assert many.explain(question).id == hits[0].id
            ids = {atom.id for atom in many}
            assert {start.id for start in found.starts} <= ids
        with pytest.raises(InputError, match="b99"):
            many.explain(ASKED[0], "b99")
        hidden = Scope(exclude=[hits[0].id])
        assert many.explain(ASKED[3], scope=hidden).id == hits[1].id


def test_an_explanation_by_one_shard_is_that_of_one_store(tmp_path: Path) -> None:
    atoms = turns(96)
    path = folder_of(tmp_path / "m", atoms, shards=1)
    with one_of(atoms) as one, opened(path, "r") as many:
        for id in (None, "a7"):
            own, other = one.explain(ASKED[0], id), many.explain(ASKED[0], id)
            assert other.as_dict() == own.as_dict()
    create_shards(tmp_path / "empty", S)
    with opened(tmp_path / "empty") as none, pytest.raises(InputError, match="id: expected a"):
        none.explain("Where?")
