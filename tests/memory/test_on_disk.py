"""A memory on disk: opened again, shared, and after mishaps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import EmbedderError, StoreError
from graphmem_torch.memory import Added, Memory
from graphmem_torch.memory.index_builder import IndexBuilder
from graphmem_torch.results import Result
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from graphmem_torch.text.terms import TERMS, first_terms
from tests.memories import (
    QUESTIONS,
    Counting,
    config_of,
    file_size_limit,
    ids,
    opened,
    plain,
    turns,
)

SEVENS = config_of(**{"link.batch_atoms": 7})


def test_memory_on_disk_may_be_empty(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        assert memory.retrieve(["a", "b"]) == [Result(q, (), 0.0, False) for q in ("a", "b")]
        context = memory.compile("a", budget=100)
        assert (context.text, context.tokens, context.sources) == ("", 0, ())
        assert memory.index.num_atoms == 0
        assert memory.add([]) == Added(0, 0)
    with opened(tmp_path / "m") as memory:
        assert memory.retrieve("a").known is False


@pytest.mark.parametrize("spoil", ["keep", "delete", "damage", "stale"])
def test_memory_on_disk_opens_as_it_was(tmp_path: Path, spoil: str) -> None:
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


def test_snapshot_of_another_graph_setting_is_not_read(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add(turns())
        edges = memory.index.graph.num_edges
    config = config_of(**{"spread.max_edges": 1})
    with opened(tmp_path / "m", config=config) as memory:
        fresh = IndexBuilder()(memory.store, config, memory.embedder.num_pieces).index
        assert memory.index.graph.num_edges == fresh.graph.num_edges
        assert memory.index.graph.num_edges < edges


def test_a_memory_of_an_older_release_is_indexed_by_the_terms_of_this_one(tmp_path: Path) -> None:
    said = ["我喜欢吃苹果和香蕉。", "火车下午三点出发。", "The train leaves at three."]
    config = config_of(**{"rank.weights": {"lexical": 1.0}, "link.concepts": "none"})
    old = HashingEmbedder(32).like("hashing-v1:32:32")
    assert old.fingerprint == "hashing-v1:32:32"

    def shares(memory: Memory, question: str) -> dict[str, float]:
        return {hit.id: hit.signals["lexical"] for hit in memory.retrieve(question).hits}

    with pytest.MonkeyPatch.context() as then:
        then.setattr("graphmem_torch.text.terms.terms", first_terms)
        with opened(tmp_path / "m", embedder=old, config=config) as memory:
            memory.add([Atom(f"a{i}", text) for i, text in enumerate(said)])
            found = shares(memory, "几点出发？")
            assert len(set(found.values())) == 1  # no term is shared
    with MemoryStore.open(tmp_path / "m") as store:
        kept = store.load_snapshot()
        assert kept is not None
        form, version, *settings = json.loads(kept[1]["built"])
        assert version == TERMS > 1
        built = json.dumps([form, 1, *settings], sort_keys=True)
        store.save_snapshot(kept[0], kept[1] | {"built": built})
    for mode in ("r", "w"):
        with opened(tmp_path / "m", mode=mode, config=config) as memory:
            assert memory.embedder.fingerprint == old.fingerprint
            vectors = memory.embedder.encode(said).pooled
            torch.testing.assert_close(memory.store.embeddings(), vectors)
            found = shares(memory, "几点出发？")
            assert max(found, key=lambda name: found[name]) == "a1"
            assert found["a1"] > found["a0"] == found["a2"]


def test_reader_sees_what_a_writer_adds(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with opened(path) as writer:
        writer.add(turns(4))
        with opened(path, mode="r") as reader:
            assert len(reader.retrieve("canoe", k=50).hits) == 4
            writer.add(Atom("new", "an unheard xylophone concert", speaker="Zoe"))
            assert ids(reader.retrieve("xylophone", k=1)) == ["new"]
            # Even between the steps of one retrieval: it goes on with the index it began with.
            added = iter([Atom("late", "zeppelin flight", speaker="Yan")])

            class Meanwhile(HashingEmbedder):
                def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
                    writer.add(list(added))
                    return super().encode(texts)

            with opened(path, mode="r", embedder=Meanwhile(32)) as other:
                assert "late" not in ids(other.retrieve("Did Yan see a zeppelin?", k=50))
                assert ids(other.retrieve("Did Yan see a zeppelin?", k=1)) == ["late"]
            with pytest.raises(StoreError):
                reader.add("x")


def test_embedder_of_another_store_is_refused(tmp_path: Path) -> None:
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


def test_texts_are_encoded_once() -> None:
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


def test_add_of_nan_loses_nothing_that_was_acknowledged() -> None:
    with opened(config=SEVENS, embedder=Counting()) as memory:
        atoms = turns(16)
        atoms[9] = replace(atoms[9], text="poison")
        with pytest.raises(EmbedderError, match="poison"):
            memory.add(atoms)
        assert set(ids(memory.retrieve("canoe", k=50))) == {f"a{i}" for i in range(7)}
        assert memory.check() == []
        atoms[9] = turns()[9]
        assert memory.add(atoms) == Added(9, 7)
        with pytest.raises(EmbedderError, match="poison"):
            memory.retrieve("poison?")
        with opened() as whole:
            whole.add(turns(16))
            assert plain(memory.retrieve(QUESTIONS)) == plain(whole.retrieve(QUESTIONS))


def test_add_that_fails_leaves_a_usable_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config=SEVENS) as memory:
        memory.add(turns(7))
        append, calls = MemoryStore.append, iter([False, True])

        def failing(self: MemoryStore, batch: Any, **options: Any) -> None:
            if next(calls, False):
                raise StoreError("disk full")
            append(self, batch, **options)

        monkeypatch.setattr(MemoryStore, "append", failing)
        with pytest.raises(StoreError, match="disk full"):
            memory.add(turns(21)[7:])
        monkeypatch.undo()
        assert set(ids(memory.retrieve("canoe", k=50))) == {f"a{i}" for i in range(14)}
        assert memory.add(turns()) == Added(10, 14)
        with opened() as whole:
            whole.add(turns())
            assert plain(memory.retrieve(QUESTIONS)) == plain(whole.retrieve(QUESTIONS))


def test_uses_are_kept_by_writers(tmp_path: Path) -> None:
    config = config_of(**{"gate.threshold": 0.0})
    with opened(tmp_path / "m", config=config) as memory:
        memory.add(turns(8))
        sources = memory.compile("canoe", budget=80).sources
        assert sources
        assert memory.store._database.query("SELECT count(*) FROM use") == [(0,)]
    with opened(tmp_path / "m", mode="r") as reader:
        reader.compile("canoe", budget=80)
        assert reader.store.uses.total() == len(sources)
    with opened(tmp_path / "m", config=config) as memory:
        memory.compile("canoe", budget=80)
        memory.add("and so on")  # whoever writes next takes the notes along
        assert memory.store._database.query("SELECT sum(count) FROM use") == [(2 * len(sources),)]


def test_a_full_disk_costs_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load_config("contextos", {"decay.classify": "rules", "link.concepts": "pattern"})
    with opened(tmp_path / "m", config=config) as memory:
        memory.add(turns(8))
        memory.retrieve("canoe")  # what a GPU runs is compiled once, into a file
    with opened(tmp_path / "m", config=config) as memory:
        with file_size_limit(0):
            first = memory.compile("canoe", budget=80)
            again = memory.compile("canoe", budget=80)
            assert first.sources == again.sources != ()
            assert memory.retrieve("canoe").hits
            memory.store.uses.settle()
            with pytest.raises(StoreError, match="free some disk space"):
                memory.touch("a1")
        assert "not kept" in caplog.text
    with opened(tmp_path / "m", mode="r") as reader:
        assert reader.store.uses.total() == 2 * len(first.sources) + 1
    (tmp_path / "m" / "snapshot.safetensors").unlink()
    memory = opened(tmp_path / "m", config=config)
    with file_size_limit(0):
        assert memory.compile("canoe", budget=80).sources == first.sources
        memory.close()
    assert "makes its index anew" in caplog.text
    with opened(tmp_path / "m", mode="r") as reader:
        assert reader.check() == []


@pytest.mark.parametrize("part", ["graph_source", "node", "embeddings", "vocabulary"])
def test_snapshot_with_flipped_bits_changes_no_answer(tmp_path: Path, part: str) -> None:
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
        after = memory.retrieve("which blue boat?")
    assert [hit.id for hit in after.hits] == [hit.id for hit in before.hits]
    # Products of a mapped file and of fresh memory may round differently.
    raw = [[hit.raw for hit in result.hits] for result in (after, before)]
    assert raw[0] == pytest.approx(raw[1], abs=1e-5)


Spectral = tuple[Config, Path, list[Any]]
"""A configuration, the folder of a memory with it, and what that answers."""


@pytest.fixture(scope="module")
def spectral(tmp_path_factory: pytest.TempPathFactory) -> Spectral:
    config = load_config("spectral", {"link.concepts": "pattern"})
    folder = tmp_path_factory.mktemp("spectral") / "m"
    with opened(folder, config=config) as memory:
        memory.add(turns(9))
    with opened(folder, config=config, mode="r") as reader:
        return config, folder, plain(reader.retrieve(QUESTIONS))


@pytest.mark.parametrize(
    "part", ["graph_source", "node", "vocabulary", "modes_order", "kind", "follow_arc_target"]
)
def test_a_hostile_snapshot_is_made_anew(
    tmp_path: Path, spectral: Spectral, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Tensors that point out of each other, with a right checksum."""
    config, folder, before = spectral
    shutil.copytree(folder, tmp_path / "m")
    with MemoryStore.open(tmp_path / "m") as store:
        kept = store.load_snapshot()
    assert kept is not None
    most = torch.iinfo(kept[0][part].dtype).max
    with MemoryStore.open(tmp_path / "m") as store:
        store.save_snapshot(kept[0] | {part: torch.full_like(kept[0][part], most)}, kept[1])
    caplog.clear()
    with opened(tmp_path / "m", config=config, mode="r") as reader:
        assert plain(reader.retrieve(QUESTIONS)) == before
    assert "the snapshot is damaged" in caplog.text


def test_embedder_is_loaded_as_when_the_store_was_filled(tmp_path: Path) -> None:
    config = load_config(overrides={"embedder.name": "hashing:32", "embedder.token_dim": 8})
    with Memory.open(tmp_path / "m", config=config) as memory:
        memory.add("a small boat")
    with Memory.open(tmp_path / "m", mode="r") as memory:
        assert memory.retrieve("boat").hits[0].text == "a small boat"
    with Memory.open(tmp_path / "m") as memory:
        assert memory.add("another boat").new == 1
