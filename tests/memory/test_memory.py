"""Memory from the outside: what was added is found and filtered, and bad input changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.config import load_config
from graphmem_torch.errors import ConfigError, InputError, StoreError
from graphmem_torch.memory import Added, Layout, Memory, Scope
from graphmem_torch.results import Result
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import DAY, QUESTIONS, ids, opened, plain, retrieved, turns


def test_add_and_retrieve() -> None:
    with opened() as memory:
        assert memory.add(turns()) == Added(24, 0)
        results = memory.retrieve(QUESTIONS, k=5)
        assert [r.question for r in results] == QUESTIONS
        by_id = {atom.id: atom for atom in turns()}
        for result in results:
            assert len(result.hits) == 5
            scores = [hit.score for hit in result.hits]
            assert scores == sorted(scores, reverse=True)
            for hit in result.hits:
                atom = by_id[hit.id]
                assert (hit.text, hit.kind, hit.speaker) == (atom.rendered, atom.kind, atom.speaker)
                assert (hit.session, hit.time, hit.meta) == (atom.session, atom.time, atom.meta)
                assert sum(hit.signals.values()) == pytest.approx(hit.raw, abs=1e-4)
        assert any("canoe" in hit.text for hit in results[0].hits)
        assert "a12" in ids(memory.retrieve(QUESTIONS[2], k=3))
        # One at a time gives what the batch gave.
        assert plain([memory.retrieve(q, k=5) for q in QUESTIONS]) == plain(results)
        assert memory.check() == []


def test_paths_are_edges_of_the_store() -> None:
    with opened() as memory:
        memory.add(turns())
        store = memory.store
        block, atoms = store.edges(), store.atoms(store.columns().node.tolist())
        stored = set()
        for s, t, kind in zip(
            block.source.tolist(), block.target.tolist(), block.type.tolist(), strict=True
        ):
            name = EdgeType(kind).name.lower()
            stored |= {(atoms[s].id, atoms[t].id, name), (atoms[t].id, atoms[s].id, name)}
        steps = 0
        for result in memory.retrieve(QUESTIONS):
            for hit in result.hits:
                for step in hit.path:
                    assert (step.source, step.target, step.type) in stored
                    steps += 1
                for one, other in pairwise(hit.path):
                    assert one.target == other.source
                if hit.path:
                    assert hit.path[-1].target == hit.id
        assert steps > 0


def test_add_of_an_id_twice() -> None:
    with opened() as memory:
        first = turns(3)
        assert memory.add([*first, first[1]]) == Added(3, 1)
        assert memory.add(first) == Added(0, 3)
        changed = replace(first[0], text="other")
        with pytest.raises(InputError, match="'a0' is stored already with other content"):
            memory.add(changed)
        with pytest.raises(InputError, match="'x'"):
            memory.add([Atom("x", "one"), Atom("x", "two")])
        assert memory.stats()["kinds"]["turn"] == 2
        assert memory.add("a plain text") == Added(1, 0)
        assert memory.add("a plain text") == Added(1, 0)  # said again
        assert memory.add({"text": "with a speaker", "speaker": "Cy"}) == Added(1, 0)


@pytest.fixture(scope="module")
def refusing() -> Iterator[Memory]:
    """A memory that is offered what it cannot take."""
    with opened() as memory:
        memory.add(turns(4))
        yield memory


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Atom("e", "   \n"), "'e': expected text, got none"),
        ("", "text"),
        ({"id": "x"}, "text"),
        ({"text": 5}, "text"),
        (("role", "user"), "expected a JSON object, got a tuple"),
        ({"text": "x", "time": "soon"}, "soon"),
        ({"text": "x", "time": float("inf")}, "time"),
        ({"text": "x", "edges": [("a", "causes")]}, "edge"),
        ({"text": "x", "edges": [["a", "cuases", 1.0]]}, "causes"),
        ({"text": "x", "meta": {"a": object()}}, "meta.a: expected a string, number"),
        (Atom("e", 5), "text: expected a string, got 5"),  # type: ignore[arg-type]
        (Atom(5, "x"), "id: expected a string, got 5"),  # type: ignore[arg-type]
        (Atom("e", "x", time=float("nan")), "time: expected finite seconds"),
        (Atom("e", "x", time="soon"), "'e': time: expected a time"),  # type: ignore[arg-type]
        (Atom("e", "x", time=[5]), "time: expected finite seconds"),  # type: ignore[arg-type]
        (Atom("e", "x", edges=(("a", 1),)), "edges: expected Link"),  # type: ignore[arg-type]
        (Atom("e", "x", meta={"a": object()}), "meta.a: expected a string, number"),
        (Atom("e", "x", kind=CONCEPT), "belong to the concepts"),
        ({"text": "x", "kind": CONCEPT}, "belong to the concepts"),
        (Atom("concept:canoe", "x"), "belong to the concepts"),
    ],
)
def test_add_of_bad_atoms_changes_nothing(refusing: Memory, bad: Any, message: str) -> None:
    state = refusing.store.state
    with pytest.raises(InputError, match=message):
        refusing.add([Atom("good", "good"), bad])
    assert refusing.store.state == state


def test_add_after_bad_atoms(refusing: Memory) -> None:
    assert refusing.add(Atom("good", "good")) == Added(1, 0)
    assert "good" in ids(refusing.retrieve("good"))


BAD_QUESTIONS = ["", "  ", ["fine", ""], [None], None, 3, b"canoe", ["canoe", b"canoe"]]


def test_questions_that_are_none_are_refused() -> None:
    def answered(question: Any) -> Any:
        return memory.answer(question, llm=lambda prompt: "Yes.")

    def compiled(question: Any) -> Any:
        return memory.compile(question, budget=50)

    with opened() as memory:
        memory.add(turns(4))
        calls = (memory.retrieve, memory.tensors.encode, memory.learning.calibrate)
        for call in (*calls, answered, compiled):
            for bad in BAD_QUESTIONS:
                with pytest.raises(InputError, match=r"questions?: expected a question"):
                    call(bad)
            with pytest.raises(InputError, match="half a surrogate pair at position 6"):
                call("canoe \ud800")
        with pytest.raises(InputError, match="got '' as number 2 of 2; leave it out"):
            memory.retrieve(["fine", ""])


def test_encode_questions_of_one_alone() -> None:
    with opened() as memory:
        memory.add(turns(4))
        alone, several = (memory.tensors.encode(q) for q in ("canoe", ["canoe"]))
        assert torch.equal(alone.embedding, several.embedding)
        assert len(memory.tensors.encode([]).embedding) == 0


def test_retrieve_of_few_memories() -> None:
    with opened() as memory:
        memory.add(turns(4))
        assert memory.retrieve([]) == []
        with pytest.raises(InputError, match=r"^k\b.* at least 1"):
            memory.retrieve("canoe", k=0)
        assert len(memory.retrieve("of the and", k=2).hits) == 2  # stop words only
        assert len(memory.retrieve("?!", k=100).hits) == 4


def test_retrieve_filters() -> None:
    with opened() as memory:
        atoms = turns()
        memory.add(atoms)

        def found(**filters: Any) -> set[str]:
            return set(ids(retrieved(memory, "canoe", k=100, **filters)))

        assert found() == {a.id for a in atoms}
        assert found(kinds=["note"]) == {a.id for a in atoms if a.kind == "note"}
        assert found(kinds=["note", "turn"]) == found()
        timed = [a for a in atoms if a.time is not None]
        for start, end in ((1.7e9, 1.7e9 + 9 * DAY + 0.5), (1.7e9 + DAY + 0.6, 1.8e9), (0.0, 1.0)):
            expected = {a.id for a in timed if start <= (a.time or 0) <= end}
            assert found(between=(start, end)) == expected
            assert found(as_of=end) == {a.id for a in timed if (a.time or 0) <= end}
        exact = timed[3].time
        assert exact is not None
        # To the fraction of a second: float32 would hold minutes.
        assert found(between=(exact, exact)) == {timed[3].id}
        assert timed[3].id not in found(as_of=exact - 0.25)
        assert found(between=(float("-inf"), float("inf"))) == {a.id for a in timed}
        assert found(kinds=["note"], as_of=1.7e9 + 11 * DAY) == {"a0", "a10"}
        nothing = memory.at(as_of=0.0).retrieve("canoe")
        assert (nothing.hits, nothing.known) == ((), False)
        assert not found(kinds=["aggregate"]) and not found(kinds="theorem")
        assert found(kinds=["aggregate", "note"]) == found(kinds=["note"])
        with pytest.raises(InputError, match=r"kinds: .*, got 'nte'; did you mean 'note'"):
            found(kinds=["nte"])
        with pytest.raises(InputError, match="kinds: expected one of"):
            found(kinds=3)
        with pytest.raises(InputError, match="between"):
            found(between=(2.0, 1.0))
        with pytest.raises(InputError, match="between"):
            found(between=(float("nan"), 1.0))
        for wrong in (float("nan"), float("inf"), "soon", ["soon"], True):
            with pytest.raises(InputError, match="as_of: expected a time"):
                found(as_of=wrong)
            with pytest.raises(InputError, match="between: expected a "):
                found(between=(wrong, 5))


def test_add_of_a_chat() -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Shall we sail?"}]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "name": "Nora", "content": "The canoe, too?", "session": "other"},
        {"role": "assistant", "content": "Yes."},
    ]
    with opened() as memory:
        assert memory.add(chat, session="c", key="chat") == Added(5, 0)
        assert memory.add(chat, session="c", key="chat") == Added(0, 5)
        assert memory.add(chat[0]) == Added(1, 0), "said again"
        (hit,) = memory.retrieve("canoe", where={"speaker": "Nora"}).hits
        assert (hit.text, hit.session, hit.meta) == (
            "Nora: The canoe, too?",
            "other",
            {"role": "user"},
        )
        found = memory.retrieve("yes", k=9, where={"meta.role": "assistant", "session": "c"})
        assert [hit.text for hit in found.hits] == ["assistant: Yes."] * 2
        atom = Atom("x", "a boat")
        memory.add([atom, "a ship"], session="c")
        assert memory.get("x") == replace(atom, session="c")
        for wrong in ("", " ", 5):
            with pytest.raises(InputError, match="session: expected a name"):
                memory.add("text", session=wrong)  # type: ignore[arg-type]
        picture = memory.add({"role": "user", "content": [{"type": "image_url"}]})
        assert (picture.new, picture.losses) == (0, {"image_url": 1})
        assert "got image_url; leave the message out" in picture.skipped[0]


def test_times_may_be_datetimes_and_iso_strings() -> None:
    with opened() as memory:
        noon = datetime(2024, 3, 2, 12, tzinfo=timezone(timedelta(hours=-3)))
        memory.add(
            [
                Atom("a", "a canoe", time=noon, event_time="2024-03-01"),  # type: ignore[arg-type]
                {"id": "b", "text": "two canoes", "time": datetime(2024, 3, 2, 15)},
                {"id": "c", "text": "three canoes", "time": "2024-03-02T15:00:01Z"},
            ]
        )
        memory.add_document("The canoe sank.", name="d", time=date(2024, 3, 3))
        assert memory.get("a").event_time == datetime(2024, 3, 1, tzinfo=UTC).timestamp()
        seconds = [noon.timestamp() + later for later in (0, 0, 1, 9 * 3600)]
        assert [atom.time for atom in memory.get(["a", "b", "c", "d#0"])] == seconds

        def found(**filters: Any) -> set[str]:
            return set(ids(retrieved(memory, "canoe", **filters)))

        assert found(as_of=noon) == found(as_of="2024-03-02T15:00") == {"a", "b"}
        assert found(between=(noon + timedelta(seconds=1), None)) == {"c", "d#0"}
        compiled = memory.at(as_of=noon).compile("canoe", budget=200, layout=Layout(tokenizer=len))
        assert set(compiled.sources) == {"a", "b"}
        memory.touch("a", when=noon + timedelta(hours=1))
        later = noon + timedelta(hours=5)
        assert memory.upkeep.strength("a", as_of=later) == memory.upkeep.strength(
            "a", as_of=later.timestamp()
        )
        for wrong in (
            lambda: memory.touch("a", when="soon"),
            lambda: memory.upkeep.strength("a", as_of="x"),
        ):
            with pytest.raises(InputError, match="expected a time"):
                wrong()


def test_rows_of_ids() -> None:
    with opened() as memory:
        memory.add(turns())
        rows = memory.tensors.rows(["a7", "a0", "a7"])
        expected = HashingEmbedder(32).encode([turns()[i].rendered for i in (7, 0, 7)]).pooled
        torch.testing.assert_close(memory.index.embeddings[rows].cpu(), expected)


def test_retrieve_as_of_a_time_sees_nothing_later() -> None:
    """Two pasts that differ only in what came later answer alike as of an instant before it.

    The later texts change places, so that word counts over the store stay the same.
    """
    names = ["interaction_window", "interaction_passage", "interaction_session", "activation"]
    config = load_config(
        overrides={
            "embedder.name": "hashing",
            "link.concepts": "none",
            "link.similarity_k": 0,
            "spread.min_nodes": 2,
        }
    )
    config = replace(config, rank=replace(config.rank, weights=dict.fromkeys(names, 1.0)))
    early = ["red kites fly high", "does the kite fly?", "yes over the hill"]
    late = ["the red kite fell down", "nothing like that"]

    def answer(later: list[str], as_of: float | None) -> dict[str, float]:
        with opened(config=config) as memory:
            memory.add(
                Atom(f"a{i}", text, session="s", time=100.0 * i, speaker="Ada")
                for i, text in enumerate([*early, *later])
            )
            result = memory.at(as_of=as_of).retrieve("where did red kites fly down?")
        return {hit.id: hit.raw for hit in result.hits}

    assert answer(late, 250.0) == pytest.approx(answer(late[::-1], 250.0))
    assert set(answer(late, 250.0)) == {"a0", "a1", "a2"}
    free, swapped = answer(late, None), answer(late[::-1], None)
    assert free["a2"] != pytest.approx(swapped["a2"])


def test_retrieve_gives_k_hits_of_a_large_store() -> None:
    config = load_config(overrides={"rank.exhaustive_up_to": 10, "rank.candidates": 2})
    with opened(config=config) as memory:
        memory.add([f"boat number {i}" for i in range(60)])
        assert len(memory.retrieve("boat", k=50).hits) == 50


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_retrieve_refuses_k_that_is_no_whole_number(k: float) -> None:
    with opened() as memory:
        memory.add("a boat")
        with pytest.raises(InputError, match=r"^k\b.* at least 1"):
            memory.retrieve("boat", k=k)  # type: ignore[arg-type]


def test_add_tells_origins_and_whether_the_other_is_stored() -> None:
    origins = {"x": "talk.jsonl:7", "e": "talk.jsonl:8", "concept:a": "talk.jsonl:9"}
    with opened() as memory:
        with pytest.raises(InputError, match=r"^talk.jsonl:7: atom 'x' is given twice, with other"):
            memory.add([Atom("x", "one"), Atom("x", "two")], origins=origins)
        memory.add(Atom("x", "one"))
        with pytest.raises(InputError, match=r"^talk.jsonl:7: atom 'x' is stored already with"):
            memory.add(Atom("x", "two"), origins=origins)
        with pytest.raises(InputError, match=r"^talk.jsonl:8: atom 'e': expected text"):
            memory.add(Atom("e", " "), origins=origins)
        with pytest.raises(InputError, match=r"^talk.jsonl:9: atom 'concept:a'"):
            memory.add(Atom("concept:a", "one"), origins=origins)


def test_origins_may_be_filled_while_atoms_are_read() -> None:
    origins: dict[str, str] = {}

    def read() -> Iterator[Atom]:
        origins["e"] = "talk.jsonl:1"
        yield Atom("e", " ")

    with opened() as memory, pytest.raises(InputError, match=r"^talk.jsonl:1: "):
        memory.add(read(), origins=origins)


def test_times_that_no_calendar_shows_are_refused() -> None:
    with opened() as memory:
        for name, value in (("time", 253_402_300_800.0), ("event_time", -62_135_596_801)):
            with pytest.raises(InputError, match=f"{name}: expected finite seconds"):
                memory.add(Atom("a", "canoe", **{name: value}))
        for name, value in (("a", 253_402_300_799), ("b", -62_135_596_800.0)):
            memory.add(Atom(name, f"canoe {name}", time=value))
        assert set(memory.compile("canoe", budget=200).sources) == {"a", "b"}


def test_speakers_whose_names_have_underscores_are_found() -> None:
    with opened() as memory:
        memory.add([Atom("a", "I sail.", speaker="mary_jane"), Atom("b", "I sail.", speaker="Bo")])
        for question in ("What does mary_jane do?", "What does Mary do?", "And Jane?"):
            assert memory.tensors.encode([question]).speakers.tolist() == [[True, False]]


def test_add_names_edges_to_atoms_that_never_come(caplog: pytest.LogCaptureFixture) -> None:
    with opened() as memory:
        memory.add(Atom("a", "a boat", edges=(Link("ghost"),)))
        assert "ghost" in caplog.text
        caplog.clear()
        memory.add(Atom("ghost", "here it is"))
        assert caplog.text == ""


def test_retrieve_by_graph_signals_alone() -> None:
    synapse = load_config("synapse", {"link.concepts": "pattern"})
    rank = replace(synapse.rank, weights={"activation": 1.0}, cold_weights={})
    with opened(config=replace(synapse, rank=rank)) as memory:
        memory.add(turns())
        result = memory.retrieve("canoe comet")
        assert result.hits and set(result.hits[0].signals) == {"activation"}


def test_retrieve_answers_in_the_form_of_the_question() -> None:
    with opened() as memory:
        assert memory.retrieve("canoe") == Result("canoe", (), 0.0, False)
        memory.add(turns())
        one, many = memory.retrieve("canoe"), memory.retrieve(["canoe"])
        assert isinstance(one, Result) and isinstance(many, list)
        assert plain([one]) == plain(many)


def test_get_len_and_in() -> None:
    atoms = turns()
    with opened() as memory:
        assert len(memory) == 0 and memory, "an empty memory is one"
        memory.add(atoms)
        assert len(memory) == 24 < memory.store.num_nodes
        assert memory.get("a3") == atoms[3]
        assert memory.get(["a3", "a0", "a3"]) == [atoms[3], atoms[0], atoms[3]]
        assert memory.get([]) == []
        assert "a3" in memory and "a99" not in memory and 3 not in memory
        concept = next(name for name in memory.store.ids() if name.startswith("concept:"))
        assert concept not in memory
        with pytest.raises(InputError, match="ids: expected ids of memories, got the concept"):
            memory.get(concept)
        with pytest.raises(InputError, match="'a99', which is not in the store"):
            memory.get(["a0", "a99"])


def test_ids_that_are_none_are_refused() -> None:
    with opened() as memory:
        memory.add(turns(4))
        reading = (
            memory.get,
            memory.tensors.rows,
            memory.upkeep.importance,
            memory.upkeep.particles,
            memory.facts.validity,
        )
        for call in (*reading, memory.delete, memory.upkeep.archive):
            for bad in (None, 3, [None], ["a0", None], [3], b"a0"):
                with pytest.raises(InputError, match="ids: expected"):
                    call(bad)  # type: ignore[arg-type]
        assert memory.upkeep.importance([]) == {}
        assert memory.tensors.rows("a2").tolist() == memory.tensors.rows(["a2"]).tolist()
        assert len(memory) == 4


def test_closed_memory_says_so() -> None:
    memory = opened()
    memory.add(turns(4))
    memory.close()
    memory.close()
    for call in (
        len,
        list,
        lambda it: it.retrieve("canoe"),
        lambda it: it.add("More."),
        lambda it: it.add([]),
        lambda it: it.pin([]),
        lambda it: it.touch([]),
        lambda it: list(it.namespaces),
        lambda it: "ada" in it.namespaces,
        lambda it: it.__enter__(),
    ):
        with pytest.raises(StoreError, match="expected an open memory, got one that was closed"):
            call(memory)


def test_open_refuses_settings_that_no_file_may_have() -> None:
    config = load_config("default")
    beyond = replace(config, spread=replace(config.spread, rounds=-1))
    for bad, said in ((beyond, "spread.rounds"), ({"name": "x"}, "config: expected a Config")):
        with pytest.raises(ConfigError, match=said):
            Memory.open(config=bad, embedder="hashing")  # type: ignore[arg-type]


def test_repr_says_what_is_there(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(turns())
        assert repr(memory) == (
            "Memory(in the process, 24 atoms, preset 'default', embedder 'hashing:32', "
            "open to write)"
        )
        result = memory.retrieve("canoe", k=3)
        assert repr(result).startswith("Result('canoe', 3 hits, best 'a")
        context = memory.compile("canoe", budget=100)
        assert f"{context.tokens} of 100 tokens" in repr(context)
        assert len(repr(context)) < 200
    assert repr(memory) == "Memory(in the process, closed)"
    with opened(tmp_path / "m") as memory:
        memory.add("x")
    with opened(tmp_path / "m", embedder=None, mode="r") as reader:
        assert f"Memory({str(tmp_path / 'm')!r}, 1 atoms, " in repr(reader)
        assert "open to read" in repr(reader)


def test_memory_serves_many_threads() -> None:
    atoms = turns(60)
    with opened() as memory:
        memory.add(atoms[:24])

        def work(i: int) -> None:
            if i % 4 == 0:
                memory.add(atoms[24 + 3 * i : 24 + 3 * (i + 4)])
            elif i % 4 == 1:
                assert memory.retrieve(QUESTIONS[i % 3]).hits
            elif i % 4 == 2:
                assert memory.compile(QUESTIONS[i % 3], budget=200).sources
                assert sum(mode.size for mode in memory.themes.list()) >= 24
            else:
                assert len(memory.graph.structure().community) >= 24
                memory.graph.connect(f"a{i}", f"a{i - 1}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(12)))
        assert len(memory) == 60 and memory.check() == []
        found = plain(memory.retrieve(QUESTIONS))
    with opened() as alone:  # batches come in another order, each of them whole
        alone.add(atoms)
        assert len(alone) == 60 and len(found) == len(plain(alone.retrieve(QUESTIONS)))


@pytest.mark.parametrize("preset", ["default", "synapse"])
def test_questions_are_asked_at_a_time(preset: str) -> None:
    """Whether a signal reads it or not."""
    with Memory.open(None, preset=preset, embedder="hashing", concepts="pattern") as memory:
        memory.add("Nora repaired the oven.")
        assert memory.retrieve("Who repaired it yesterday?", scope=Scope(asked="2023-05-08")).hits
        for asked in ("never", 1e300):
            with pytest.raises(InputError, match="asked"):
                memory.retrieve("Who repaired it yesterday?", scope=Scope(asked=asked))
        with pytest.raises(InputError, match="a time for each of 2 questions, got 1"):
            memory.tensors.encode(["Who?", "When?"], asked=[None])


def test_an_id_that_is_not_stored_is_told_with_the_nearest() -> None:
    names = ["notes/oven.txt#0", "notes/kite.txt#0", "Brûlée", "turn:00ff00ff00ff00ff", "m1"]
    slips = {
        "notes/ovn.txt#0": names[0],
        "notes/oven.txt#O": names[0],
        "Notes/Oven.txt#0": names[0],
        "nots/kite.txt#0": names[1],
        "Brûlee": names[2],
        "M1": names[4],
        "turn:ab1234cd5678ef90": None,
        "q": None,
    }
    with opened() as memory:
        memory.add([Atom(name, f"Nora Bergh said {name}.") for name in names])
        for given, meant in slips.items():
            for call in (memory.get, memory.delete, partial(memory.update, text="x")):
                with pytest.raises(InputError, match="not in the store") as caught:
                    call(given)
                assert ("did you mean" in str(caught.value)) == (meant is not None), given
                assert meant is None or f"did you mean {meant!r}?" in str(caught.value)
