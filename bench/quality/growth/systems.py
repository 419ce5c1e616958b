"""Systems under test: a `Memory`, and other packages if they are installed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from graphmem_torch.atoms import Atom
from graphmem_torch.memory import Memory
from graphmem_torch.text.embedder import Embedder

__all__ = ["PEERS", "Chroma", "Mem0", "Own", "System", "installed"]
_HITS = 30
_TOGETHER = 5000  # turns of one call that fills a peer
_USER = {"user_id": "agent"}  # user of the memories in mem0


class System(Protocol):
    """Store of memories on disk; ids are those of the turns."""

    def fill(self, turns: Sequence[Atom]) -> None:
        """Add many turns at once, as fast as possible."""
        ...

    def add(self, turn: Atom) -> None:
        """Add one turn."""
        ...

    def correct(self, turn: Atom) -> None:
        """Replace the text of the turn with this id."""
        ...

    def delete(self, id: str) -> None:
        """Delete a turn."""
        ...

    def ask(self, question: str) -> list[str]:
        """Return the ids of the best memories."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class Own:
    """Preset under test."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def fill(self, turns: Sequence[Atom]) -> None:
        """See `System`."""
        self._memory.add(turns)

    def add(self, turn: Atom) -> None:
        """See `System`."""
        self._memory.add(turn)

    def close(self) -> None:
        """See `System`."""
        self._memory.close()

    def correct(self, turn: Atom) -> None:
        """See `System`."""
        self._memory.update(turn.id, text=turn.text)

    def delete(self, id: str) -> None:
        """See `System`."""
        self._memory.delete(id)

    def ask(self, question: str) -> list[str]:
        """See `System`."""
        return [hit.id for hit in self._memory.retrieve(question, k=_HITS).hits]


class Chroma:
    """Collection of Chroma in a folder, cosine, with the vectors of our encoder."""

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        import chromadb
        from chromadb.config import Settings

        self._embedder = embedder
        quiet = Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(str(folder), settings=quiet)
        self._memories = client.create_collection(
            "memories", metadata={"hnsw:space": "cosine"}, embedding_function=None
        )

    def fill(self, turns: Sequence[Atom]) -> None:
        """See `System`."""
        for start in range(0, len(turns), _TOGETHER):
            part = turns[start : start + _TOGETHER]
            texts = [turn.rendered for turn in part]
            vectors = self._embedder.encode(texts).pooled.numpy()
            self._memories.add(ids=[turn.id for turn in part], embeddings=vectors, documents=texts)

    def add(self, turn: Atom) -> None:
        """See `System`."""
        self.fill([turn])

    def correct(self, turn: Atom) -> None:
        """See `System`."""
        vectors = self._embedder.encode([turn.rendered]).pooled.numpy()
        self._memories.update(ids=[turn.id], embeddings=vectors, documents=[turn.rendered])

    def delete(self, id: str) -> None:
        """See `System`."""
        self._memories.delete(ids=[id])

    def ask(self, question: str) -> list[str]:
        """See `System`."""
        found = self._memories.query(
            query_embeddings=self._embedder.encode([question]).pooled.numpy(),
            n_results=_HITS,
            include=["documents", "distances"],
        )
        return list(found["ids"][0])

    def close(self) -> None:
        """Do nothing: a client of Chroma cannot be closed."""


class Mem0:
    """mem0 without a language model (`infer=False`), over its local store (Qdrant)."""

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        os.environ["MEM0_TELEMETRY"] = "False"  # read on import
        os.environ.setdefault("MEM0_DIR", str(folder))
        from mem0 import Memory as Mem0Memory

        self._embedder = embedder
        places = {"path": str(folder / "qdrant"), "on_disk": True}
        places |= {"embedding_model_dims": embedder.dim}
        unused = {"provider": "openai", "config": {"api_key": "unused"}}
        self._memory = Mem0Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": places},
                "history_db_path": str(folder / "history.db"),
                "llm": unused,
                "embedder": unused,
            }
        )
        self._memory.embedding_model = self
        # Maps between the id of a turn and that of mem0, both ways.
        self._turn: dict[str, str] = {}
        self._name: dict[str, str] = {}

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """Return the vector of a text, for mem0."""
        return self._embedder.encode([text]).pooled[0].tolist()

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        """Return the vectors of texts, for mem0."""
        return self._embedder.encode(texts).pooled.tolist()

    def fill(self, turns: Sequence[Atom]) -> None:
        """See `System`: written to its vector store as it would be, without one call each."""
        for start in range(0, len(turns), _TOGETHER):
            part = turns[start : start + _TOGETHER]
            names = [str(uuid.uuid5(uuid.NAMESPACE_OID, turn.id)) for turn in part]
            self._memory.vector_store.insert(
                vectors=self.embed_batch([turn.rendered for turn in part]),
                payloads=[{"data": turn.rendered, **_USER} for turn in part],
                ids=names,
            )
            for name, turn in zip(names, part, strict=True):
                self._turn[name], self._name[turn.id] = turn.id, name

    def add(self, turn: Atom) -> None:
        """See `System`."""
        done = self._memory.add(turn.rendered, **_USER, infer=False)
        name = done["results"][0]["id"]
        self._turn[name], self._name[turn.id] = turn.id, name

    def correct(self, turn: Atom) -> None:
        """See `System`."""
        self._memory.update(self._name[turn.id], turn.rendered)

    def delete(self, id: str) -> None:
        """See `System`."""
        self._memory.delete(self._name.pop(id))

    def ask(self, question: str) -> list[str]:
        """See `System`."""
        found = self._memory.search(question, filters=dict(_USER), top_k=_HITS, threshold=0.0)
        return [self._turn[each["id"]] for each in found["results"]]

    def close(self) -> None:
        """See `System`."""
        self._memory.vector_store.client.close()


PEERS: Mapping[str, Any] = {"chromadb": Chroma, "mem0": Mem0}
"""Peers by name of the imported package."""


def installed() -> dict[str, bool]:
    """Return which peers can be imported here."""
    return {name: find_spec(name) is not None for name in PEERS}
