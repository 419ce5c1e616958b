"""Another encoder for a memory: as if it had been there from the start."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.errors import EmbedderError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.reembedding import reembed
from graphmem_torch.store.lock import WriterLock
from graphmem_torch.store.store import REEMBED_NAME
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from tests.memories import QUESTIONS, config_of, ids, opened, plain, turns


def filled(path: Path | None = None, dim: int = 32, **change: Any) -> Memory:
    memory = opened(path, embedder=HashingEmbedder(dim), **change)
    memory.add(turns())
    memory.graph.connect("a3", "a9", "similarity", 0.25)
    memory.pin("a5")
    memory.touch("a6", when=1.8e9)
    return memory


def edges_of(memory: Memory) -> Counter[tuple[str, str, int, float]]:
    columns, edges = memory.store.columns(), memory.store.edges()
    names = dict(zip(columns.node.tolist(), memory.store.ids(), strict=True))
    parts = zip(*(column.tolist() for column in edges.columns), strict=True)
    return Counter((names[s], names[t], kind, round(weight, 4)) for s, t, kind, weight in parts)


@pytest.mark.parametrize("dim", [48, 32])
def test_it_is_as_if_the_encoder_had_been_there_from_the_start(tmp_path: Path, dim: int) -> None:
    filled(tmp_path, 64).close()
    with Memory.open(tmp_path, config=config_of(), embedder=HashingEmbedder(64)) as memory:
        memory.namespaces.create("ada").add(turns(9))
        memory.delete(["a7", "a20"])
    assert reembed(tmp_path, HashingEmbedder(dim), config=config_of())
    assert reembed(tmp_path, HashingEmbedder(dim), config=config_of()) == 0
    assert not list(tmp_path.rglob(REEMBED_NAME + "*"))
    with opened(tmp_path, embedder=HashingEmbedder(dim)) as memory, filled(None, dim) as fresh:
        fresh.delete(["a7", "a20"])
        assert memory.check() == [] and memory.get("a4") == fresh.get("a4")
        assert edges_of(memory) == edges_of(fresh)
        assert torch.equal(memory.store.embeddings(), fresh.store.embeddings())
        mine, theirs = memory.store.tokens(), fresh.store.tokens()
        assert mine and theirs
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
        assert plain(memory.retrieve(QUESTIONS)) == plain(fresh.retrieve(QUESTIONS))
        assert memory.pinned() == ["a5"] and memory.store.uses.total() == 1
        memory.add("Another story of the canoe.")
        assert ids(memory.namespaces["ada"].retrieve(QUESTIONS[0]))


def test_it_is_of_a_memory_that_holds_namespaces_alone(tmp_path: Path) -> None:
    with opened(tmp_path, embedder=HashingEmbedder(32)) as memory:
        memory.namespaces.create("ada").add(turns(9))
    assert reembed(tmp_path, HashingEmbedder(48), config=config_of())
    assert reembed(tmp_path, HashingEmbedder(48), config=config_of()) == 0
    with opened(tmp_path, embedder=HashingEmbedder(48)) as memory:
        assert ids(memory.namespaces["ada"].retrieve(QUESTIONS[0])) and memory.check() == []
    with pytest.raises(EmbedderError, match="expected the embedder that filled this store"):
        opened(tmp_path, embedder=HashingEmbedder(32))


def test_it_goes_on_where_it_was_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopping(HashingEmbedder):
        def __init__(self, calls: int) -> None:
            super().__init__(48)
            self.left, self.seen = calls, 0

        def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            self.seen += len(texts)
            return super().encode(texts)

    with filled(tmp_path) as memory:
        nodes = memory.store.num_nodes
        with pytest.raises(KeyboardInterrupt):
            reembed(tmp_path, Stopping(2), config=config_of(), batch=10)
        # The memory is what it was, and goes on.
        memory.add({"id": "late", "text": "What came meanwhile."})
        assert ids(memory.retrieve("What came meanwhile?"))[0] == "late"
        memory.delete("a2")
        monkeypatch.setattr(WriterLock, "wait", 0.05)
        ready, done = threading.Event(), threading.Event()

        def hold() -> None:
            with memory.store.turn():
                ready.set()
                done.wait()

        class Held(Stopping):
            def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
                if not ready.is_set():
                    pool.submit(hold)
                    ready.wait()
                return super().encode(texts)

        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(StoreError):  # all are made, and cannot be put in
                reembed(tmp_path, Held(99), config=config_of())
            done.set()
        assert memory.check() == [] and memory.store.dim == 32
        rest = Stopping(99)
        assert reembed(tmp_path, rest, config=config_of()) == rest.seen == 0
        with pytest.raises(EmbedderError, match="expected the embedder that filled this store"):
            memory.retrieve(QUESTIONS)
        with pytest.raises(EmbedderError, match="graphmem store reembed"):
            memory.add("Of the old encoder.")
        assert memory.store.num_nodes <= nodes + 3
        memory.store.close()
    with opened(tmp_path, embedder=HashingEmbedder(48)) as memory:
        assert "late" in memory and "a2" not in memory and memory.check() == []


def test_what_cannot_be_encoded_leaves_it_as_it_was(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with pytest.raises(StoreError, match="expected a store"):
        reembed(tmp_path / "nowhere", "hashing")
    with pytest.raises(EmbedderError):
        reembed(tmp_path, "hashing:0")
    (tmp_path / REEMBED_NAME).write_bytes(
        b"no database at all, but long enough to be read as one" * 99
    )
    assert reembed(tmp_path, "hashing:16", config=config_of())
    with Memory.open(tmp_path, config=config_of()) as memory:
        assert memory.store.dim == 16 and memory.check() == []


def test_who_has_it_open_meanwhile_is_told_and_can_close_it(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns())
        reembed(tmp_path, HashingEmbedder(48), config=config_of())
        with pytest.raises(EmbedderError, match="expected the embedder that filled"):
            memory.retrieve("canoe")
        with pytest.raises(EmbedderError, match="expected the embedder that filled"):
            memory.add("More of it.")
    with opened(tmp_path, embedder=HashingEmbedder(48)) as memory:
        assert len(memory) == 24 and memory.check() == []
