"""Memory from the outside: what was added is found, kept, filtered, and survives mishaps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.assemble import assemble
from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import EmbedderError, InputError, StoreError
from graphmem_torch.memory import Added, Memory
from graphmem_torch.results import Result
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.encoded import Encoded
from graphmem_torch.text.hashing import HashingEmbedder

WORDS = ["canoe", "telescope", "violin", "garden", "comet", "bakery", "harbour", "saddle"]
DAY = 86400.0


def config_of(**overrides: Any) -> Config:
    return load_config("default", {"link.concepts": "pattern", "link.batch": 7, **overrides})


def turns(count: int = 24) -> list[Atom]:
    return [
        Atom(
            id=f"a{i}",
            text=f"The {WORDS[i % 8]} number {i} is {WORDS[(3 * i + 1) % 8]} like, says story {i}",
            kind=("turn", "note")[i % 5 == 0],
            speaker=("Ada", "Ben")[i % 2],
            session=f"s{i // 6}",
            time=None if i % 6 == 5 else 1.7e9 + i * DAY + 0.5,
            edges=(Link(f"a{i - 1}", EdgeType.CAUSES),) if i % 4 == 3 else (),
        )
        for i in range(count)
    ]


def opened(path: Path | None = None, **change: Any) -> Memory:
    return Memory.open(path, **{"config": config_of(), "embedder": HashingEmbedder(32), **change})


def ids(result: Result) -> list[str]:
    return [hit.id for hit in result.hits]


def plain(results: Sequence[Result]) -> list[Any]:
    """Results as values that can be compared with a tolerance."""
    return [
        [(hit.id, pytest.approx(hit.score, abs=1e-4), hit.path, hit.time) for hit in result.hits]
        for result in results
    ]


QUESTIONS = ["Where is the canoe?", "What did Ada say about the violin?", "comet story 12"]


class Counting(HashingEmbedder):
    """Remembers what it was asked to encode; gives NaN for a marked text."""

    def __init__(self) -> None:
        super().__init__(32)
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        self.seen += texts
        encoded = super().encode(texts)
        bad = torch.tensor(["poison" in text for text in texts], dtype=torch.bool)
        encoded.pooled[bad] = torch.nan
        return encoded


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
                assert (hit.session, hit.time) == (atom.session, atom.time)
                assert sum(hit.signals.values()) == pytest.approx(hit.score, abs=1e-4)
        assert any("canoe" in hit.text for hit in results[0].hits)
        assert "a12" in ids(memory.retrieve(QUESTIONS[2], k=3)[0])
        # One at a time gives what the batch gave.
        assert [plain(memory.retrieve(q, k=5))[0] for q in QUESTIONS] == plain(results)
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


def test_an_id_twice() -> None:
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
        assert memory.add("a plain text") == Added(0, 1)
        assert memory.add({"text": "with a speaker", "speaker": "Cy"}) == Added(1, 0)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Atom("e", "   \n"), "'e': expected text, got none"),
        ("", "text"),
        ({"id": "x"}, "text"),
        ({"text": 5}, "text"),
        ({"text": "x", "time": "soon"}, "soon"),
        ({"text": "x", "time": float("inf")}, "time"),
        ({"text": "x", "edges": [("a", "causes")]}, "edge"),
        ({"text": "x", "edges": [["a", "cuases", 1.0]]}, "causes"),
        ({"text": "x", "meta": {"a": object()}}, "expected what JSON can hold"),
        (Atom("e", 5), "text: expected a string, got 5"),  # type: ignore[arg-type]
        (Atom(5, "x"), "id: expected a string, got 5"),  # type: ignore[arg-type]
        (Atom("e", "x", time=float("nan")), "time: expected finite seconds"),
        (Atom("e", "x", time="2023"), "time: expected finite seconds"),  # type: ignore[arg-type]
        (Atom("e", "x", edges=(("a", 1),)), "edges: expected Link"),  # type: ignore[arg-type]
        (Atom("e", "x", meta={"a": object()}), "expected what JSON can hold"),
        (Atom("e", "x", kind=CONCEPT), "belong to the concepts"),
        ({"text": "x", "kind": CONCEPT}, "belong to the concepts"),
        (Atom("concept:canoe", "x"), "belong to the concepts"),
    ],
)
def test_bad_atoms_change_nothing(bad: Any, message: str) -> None:
    with opened() as memory:
        memory.add(turns(4))
        state = memory.store.state
        with pytest.raises(InputError, match=message):
            memory.add([Atom("good", "good"), bad])
        assert memory.store.state == state
        assert memory.add(Atom("good", "good")) == Added(1, 0)
        assert "good" in ids(memory.retrieve("good")[0])


def test_questions_that_are_none() -> None:
    with opened() as memory:
        memory.add(turns(4))
        assert memory.retrieve([]) == []
        for bad in ("", "  ", ["fine", ""], [None]):
            with pytest.raises(InputError, match="expected a question"):
                memory.retrieve(bad)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="k must be a whole number"):
            memory.retrieve("canoe", k=0)
        assert len(memory.retrieve("of the and", k=2)[0].hits) == 2  # stop words only
        assert len(memory.retrieve("?!", k=100)[0].hits) == 4


def test_empty_store(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        assert memory.retrieve(["a", "b"]) == [Result(q, (), 0.0, False) for q in ("a", "b")]
        context = memory.compile("a", budget=100)
        assert (context.text, context.tokens, context.sources) == ("", 0, ())
        assert memory.index.num_atoms == 0
        assert memory.add([]) == Added(0, 0)
    with opened(tmp_path / "m") as memory:
        assert memory.retrieve("a")[0].known is False


def test_filters() -> None:
    with opened() as memory:
        atoms = turns()
        memory.add(atoms)

        def found(**filters: Any) -> set[str]:
            return set(ids(memory.retrieve("canoe", k=100, **filters)[0]))

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
        nothing = memory.retrieve("canoe", as_of=0.0)[0]
        assert (nothing.hits, nothing.known) == ((), False)
        with pytest.raises(InputError, match="unknown kind 'nte'"):
            found(kinds=["nte"])
        with pytest.raises(InputError, match="between"):
            found(between=(2.0, 1.0))


@pytest.mark.parametrize("spoil", ["keep", "delete", "damage", "stale"])
def test_reopening(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "m"
    with opened(path) as memory:
        memory.add(turns(20))
        if spoil != "stale":
            memory.add(turns()[20:])
    file = path / "snapshot.safetensors"
    assert file.exists()
    if spoil == "delete":
        file.unlink()
    elif spoil == "damage":
        file.write_bytes(file.read_bytes()[:1000])
    elif spoil == "stale":
        late = opened(path)
        late.add(turns()[20:])
        late.store.close()  # without a new snapshot
    with opened() as whole:
        whole.add(turns())
        expected = plain(whole.retrieve(QUESTIONS))
    with opened(path, mode="r") as reader:
        assert plain(reader.retrieve(QUESTIONS)) == expected
    with opened(path) as memory:
        assert plain(memory.retrieve(QUESTIONS)) == expected
        assert memory.add(turns()) == Added(0, 24)
        assert memory.check() == [] or spoil == "damage"
    with opened(path, mode="r") as reader:
        assert reader.stats()["snapshot"] == "current"
        assert reader.check() == []


def test_another_graph_setting_is_not_read_from_the_snapshot(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add(turns())
    config = config_of(**{"spread.max_edges": 1})
    with opened(tmp_path / "m", config=config) as memory:
        fresh = assemble(memory.store, config, memory.embedder.num_pieces).index
        assert memory.index.graph.num_edges == fresh.graph.num_edges
        assert int(memory.index.graph.out_degree.max()) == 1


def test_a_reader_sees_what_a_writer_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m"
    with opened(path) as writer:
        writer.add(turns(4))
        with opened(path, mode="r") as reader:
            assert len(reader.retrieve("canoe", k=50)[0].hits) == 4
            writer.add(Atom("new", "an unheard xylophone concert", speaker="Zoe"))
            assert ids(reader.retrieve("xylophone", k=1)[0]) == ["new"]
            # Even between the steps of one retrieval: it goes on with the index it began with.
            current = reader._current
            added = iter([Atom("late", "zeppelin flight", speaker="Yan")])

            def meanwhile() -> Any:
                shown = current()
                writer.add(list(added))
                return shown

            monkeypatch.setattr(reader, "_current", meanwhile)
            assert "late" not in ids(reader.retrieve("Did Yan see a zeppelin?", k=50)[0])
            assert ids(reader.retrieve("Did Yan see a zeppelin?", k=1)[0]) == ["late"]
            with pytest.raises(StoreError):
                reader.add("x")


def test_another_embedder_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add(turns(2))
    for mode in ("w", "r"):
        with pytest.raises(EmbedderError, match="embedder that filled this store"):
            opened(tmp_path / "m", embedder=HashingEmbedder(16), mode=mode)
    other = config_of(**{"embedder.name": "hashing:16"})
    with (
        Memory.open(tmp_path / "m", config=other, mode="r") as reader,
        pytest.raises(EmbedderError, match="embedder that filled this store"),
    ):
        reader.retrieve("canoe")
    with pytest.raises(StoreError):
        opened(tmp_path / "none", mode="r")


def test_a_text_is_encoded_once() -> None:
    embedder = Counting()
    with opened(embedder=embedder, config=config_of(**{"link.concepts": "none"})) as memory:
        memory.add([Atom("a", "same words"), Atom("b", "same words"), Atom("c", "other words")])
        memory.add([Atom("d", "other words"), Atom("e", "third words"), Atom("f", "same words")])
        memory.add(Atom("g", "same words"))
        assert embedder.seen == ["same words", "other words", "third words"]
        fresh = HashingEmbedder(32).encode(
            ["same words", "same words", "other words", "other words", "third words"]
            + ["same words"] * 2
        )
        assert torch.equal(memory.store.embeddings(), fresh.pooled)
        tokens = memory.store.tokens()
        assert tokens is not None
        assert torch.equal(tokens.tokens, fresh.tokens)
        assert torch.equal(tokens.offsets, fresh.offsets)


def test_nan_loses_nothing_that_was_acknowledged() -> None:
    with opened(embedder=Counting()) as memory:
        atoms = turns(16)
        atoms[9] = replace(atoms[9], text="poison")
        with pytest.raises(EmbedderError, match="poison"):
            memory.add(atoms)
        assert set(ids(memory.retrieve("canoe", k=50)[0])) == {f"a{i}" for i in range(7)}
        assert memory.check() == []
        atoms[9] = turns()[9]
        assert memory.add(atoms) == Added(9, 7)
        with pytest.raises(EmbedderError, match="poison"):
            memory.retrieve("poison?")
        with opened() as whole:
            whole.add(turns(16))
            assert plain(memory.retrieve(QUESTIONS)) == plain(whole.retrieve(QUESTIONS))


def test_a_failed_append_leaves_a_usable_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as memory:
        memory.add(turns(7))
        append, calls = MemoryStore.append, iter([False, True])

        def failing(self: MemoryStore, batch: Any) -> None:
            if next(calls, False):
                raise StoreError("disk full")
            append(self, batch)

        monkeypatch.setattr(MemoryStore, "append", failing)
        with pytest.raises(StoreError, match="disk full"):
            memory.add(turns(21)[7:])
        monkeypatch.undo()
        assert set(ids(memory.retrieve("canoe", k=50)[0])) == {f"a{i}" for i in range(14)}
        assert memory.add(turns()) == Added(10, 14)
        with opened() as whole:
            whole.add(turns())
            assert plain(memory.retrieve(QUESTIONS)) == plain(whole.retrieve(QUESTIONS))


@pytest.mark.parametrize("tokenizer", ["cl100k_base", "o200k_base"])
def test_a_context_fits_its_budget(tokenizer: str) -> None:
    import bpe_openai

    encode = bpe_openai.get_encoding(tokenizer).encode_ordinary
    with opened() as memory:
        atoms = turns()
        atoms[3] = replace(atoms[3], text="canoe \u00fc\u2603\U0001f600 " * 40)
        memory.add(atoms)
        order = {atom.id: place for place, atom in enumerate(atoms)}
        sizes = []
        for budget in (0, 1, 20, 45, 90, 333, 5000):
            context = memory.compile("Where is the canoe?", budget=budget, tokenizer=tokenizer)
            assert context.tokens == len(encode(context.text)) <= budget
            places = [order[i] for i in context.sources]
            assert places == sorted(places)
            assert not {*context.sources} & {*context.omitted}
            for i in context.sources:
                assert f"[{i} |" in context.text
                assert atoms[order[i]].rendered in context.text
            sizes.append(len(places))
        assert sizes[0] == 0
        assert sizes == sorted(sizes)
        assert sizes[-1] == 24
        with pytest.raises(InputError, match="budget must be a whole number"):
            memory.compile("canoe", budget=-1)
        with pytest.raises(InputError, match="expected a tokenizer"):
            memory.compile("canoe", budget=10, tokenizer="cl100k")


def test_documents_come_back_whole() -> None:
    text = "\n\n".join(f"Chapter {i}. The {WORDS[i % 8]} stands alone. " * 9 for i in range(12))
    with opened(config=config_of(**{"embedder.max_tokens": 40})) as memory:
        added = memory.add_document(text, name="book", time=5.0)
        assert added.new > 10
        assert memory.add_document(text, name="book", time=5.0) == Added(0, added.new)
        node = memory.store.columns().node.tolist()
        chunks = [a for a in memory.store.atoms(node) if a.kind != CONCEPT]
        assert "".join(a.text for a in chunks) == text
        assert {(a.session, a.time) for a in chunks} == {("book", 5.0)}


def planted() -> tuple[list[Atom], list[str], list[list[str]]]:
    """The answer follows the turn that shares words with the question, and never shares any."""
    atoms, questions, evidence = [], [], []
    for i in range(60):
        topic = f"topic{i} {WORDS[i % 8]}"
        atoms.append(Atom(f"q{i}", f"Tell me about {topic} please?", session="s", speaker="Ada"))
        atoms.append(Atom(f"r{i}", f"Secret answer{i} hidden{i}", session="s", speaker="Ben"))
        questions.append(f"What about {topic}?")
        evidence.append([f"r{i}"])
    return atoms, questions, evidence


def recall(memory: Memory, questions: list[str], evidence: list[list[str]]) -> float:
    found = memory.retrieve(questions, k=3)
    kept = [len({*ids(r)} & {*gold}) / len(gold) for r, gold in zip(found, evidence, strict=True)]
    return sum(kept) / len(kept)


def test_fit_finds_what_a_planted_memory_needs() -> None:
    names = ["semantic", "lexical", "interaction_previous", "semantic_previous"]
    weights = {**dict.fromkeys(names, 1.0), "length": 9.0}
    config = load_config("default", {"link.concepts": "none"})
    config = replace(config, rank=replace(config.rank, weights=weights))
    atoms, questions, evidence = planted()
    with opened(config=config) as memory:
        memory.add(atoms)
        before = recall(memory, questions[40:], evidence[40:])
        weights = memory.fit(questions[:40], evidence[:40])
        assert weights.keys() == config.rank.weights.keys()
        assert memory.config.rank.weights == weights
        assert recall(memory, questions[40:], evidence[40:]) >= max(0.9, before + 0.3)
        with pytest.raises(InputError, match="'nowhere'"):
            memory.fit(questions[:1], [["nowhere"]])
        with pytest.raises(InputError, match="2 questions and 1 lists"):
            memory.fit(questions[:2], evidence[:1])
        with pytest.raises(InputError, match="evidence"):
            memory.fit(questions[:1], [[]])
        assert memory.config.rank.weights == weights  # what failed changed nothing


def test_rows_belong_to_ids() -> None:
    with opened() as memory:
        memory.add(turns())
        rows = memory.rows_of(["a7", "a0", "a7"])
        expected = HashingEmbedder(32).encode([turns()[i].rendered for i in (7, 0, 7)]).pooled
        torch.testing.assert_close(memory.index.embeddings[rows], expected)


def test_accesses_are_logged_by_writers(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add(turns(8))
        hits = ids(memory.retrieve("canoe", k=3)[0])
        nodes, _ = memory.store.accesses()
        assert {a.id for a in memory.store.atoms(nodes.tolist())} == set(hits)
    with opened(tmp_path / "m", mode="r") as reader:
        reader.retrieve("canoe", k=3)
        assert len(reader.store.accesses()[0]) == 3


def test_what_is_excluded_by_time_leaves_no_trace() -> None:
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
                Atom(f"a{i}", text, session="s", time=100.0 * i)
                for i, text in enumerate([*early, *later])
            )
            result = memory.retrieve("where did red kites fly down?", as_of=as_of)[0]
        return {hit.id: hit.score for hit in result.hits}

    assert answer(late, 250.0) == pytest.approx(answer(late[::-1], 250.0))
    assert set(answer(late, 250.0)) == {"a0", "a1", "a2"}
    free, swapped = answer(late, None), answer(late[::-1], None)
    assert free["a2"] != pytest.approx(swapped["a2"])


@pytest.mark.parametrize("part", ["graph_source", "node", "embeddings", "vocabulary"])
def test_flipped_bits_in_a_snapshot_change_no_answer(tmp_path: Path, part: str) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add([f"the {word} boat number {i}" for i, word in enumerate(["red", "blue"] * 8)])
    with opened(tmp_path / "m", mode="r") as memory:
        before = memory.retrieve("which blue boat?")
    path = tmp_path / "m" / "snapshot.safetensors"
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    start, end = json.loads(data[8 : 8 + size])[part]["data_offsets"]
    for place in range(8 + size + start, 8 + size + end):
        data[place] ^= 0x55
    path.write_bytes(data)
    with opened(tmp_path / "m", mode="r") as memory:
        assert memory.retrieve("which blue boat?") == before


def test_a_large_store_gives_as_many_hits_as_are_asked_for() -> None:
    config = load_config(overrides={"rank.dense_limit": 10, "rank.candidates": 2})
    with opened(config=config) as memory:
        memory.add([f"boat number {i}" for i in range(60)])
        assert len(memory.retrieve("boat", k=50)[0].hits) == 50


def test_calibrated_gate_refuses_no_more_than_it_may() -> None:
    with opened() as memory:
        memory.add([f"boat number {i} is red" for i in range(40)])
        questions = [f"which boat is number {i}?" for i in range(39)]
        threshold = memory.calibrate(questions, refused=0.1)
        sure = sorted(result.confidence for result in memory.retrieve(questions))
        assert threshold == pytest.approx(sure[3])  # floor(0.1 * 40) = 4th smallest
        assert sum(not result.known for result in memory.retrieve(questions)) <= 4


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_k_is_a_whole_number(k: float) -> None:
    with opened() as memory:
        memory.add("a boat")
        with pytest.raises(InputError, match="k must be"):
            memory.retrieve("boat", k=k)  # type: ignore[arg-type]


def test_a_store_remembers_how_its_embedder_was_loaded(tmp_path: Path) -> None:
    config = load_config(overrides={"embedder.name": "hashing:32", "embedder.token_dim": 8})
    with Memory.open(tmp_path / "m", config=config) as memory:
        memory.add("a small boat")
    with Memory.open(tmp_path / "m", mode="r") as memory:
        assert memory.retrieve("boat")[0].hits[0].text == "a small boat"
    with Memory.open(tmp_path / "m") as memory:
        assert memory.add("another boat").new == 1


def test_messages_tell_origins_and_whether_the_other_is_stored() -> None:
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


def test_a_context_beside_a_text_of_a_million_characters() -> None:
    pytest.importorskip("bpe_openai")
    with opened() as memory:
        memory.add([Atom("huge", ("canoe " * 170_000)[:1_000_000]), Atom("small", "A red canoe.")])
        context = memory.compile("Where is the canoe?", budget=60)
        assert context.sources == ("small",)
        assert context.omitted == ("huge",)


def test_speakers_whose_names_have_underscores_are_found() -> None:
    with opened() as memory:
        memory.add([Atom("a", "I sail.", speaker="mary_jane"), Atom("b", "I sail.", speaker="Bo")])
        for question in ("What does mary_jane do?", "What does Mary do?", "And Jane?"):
            assert memory.query([question]).speakers.tolist() == [[True, False]]


def test_edges_to_atoms_that_never_come_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with opened() as memory:
        memory.add(Atom("a", "a boat", edges=(Link("ghost"),)))
        assert "ghost" in caplog.text
        caplog.clear()
        memory.add(Atom("ghost", "here it is"))
        assert caplog.text == ""
