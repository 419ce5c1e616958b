"""What every part of a memory stands on: its store, its encoder, the current index, retrieval."""

from __future__ import annotations

import os
import time as clock
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import Tensor

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory.ask import (
    atom_masks,
    checked_questions,
    query_batch,
    to_results,
)
from graphmem_torch.memory.assemble import Assembled, assemble, load_assembled, save_assembled
from graphmem_torch.memory.encoder import (
    recall_embedder,
    remember_embedder,
    remembered_embedder,
    usable_device,
)
from graphmem_torch.memory.following import ModeFollower
from graphmem_torch.memory.life import LifeState
from graphmem_torch.memory.regimes import RegimeWatch
from graphmem_torch.memory.survey import Survey
from graphmem_torch.memory.writer import Writer
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.signals.graph import LIFE_SIGNALS
from graphmem_torch.results import Result
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.embedders import load_embedder
from graphmem_torch.text.tokens import Tokenizer, get_tokenizer

__all__ = ["MemoryCore"]


class MemoryCore:
    """A store, an encoder, settings, and the index of the present state."""

    def __init__(
        self, store: MemoryStore, embedder: Embedder | None, config: Config, device: str
    ) -> None:
        """Use `Memory.open`."""
        self.store = store
        self.config = config
        self.device = device
        self._embedder = embedder
        self._writer: Writer | None = None
        self._assembled: Assembled | None = None
        self._survey: Survey | None = None
        self._watch: RegimeWatch | None = None
        self._follower = ModeFollower()
        self._life = LifeState(store, config.decay)
        self._saved = False  # whether the snapshot holds what is assembled

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        preset: str = "default",
        config: Config | None = None,
        embedder: Any = None,
        device: str = "auto",
        mode: Literal["w", "r"] = "w",
    ) -> Self:
        """Opens the memory in a folder.

        Args:
            path: The folder of the store; None keeps it in the process.
            preset: Name of a preset, or path of a YAML file.
            config: Settings, instead of a preset.
            embedder: A SentenceTransformer, its name, or an embedder; by default the store's own,
                and for a new store what the settings name.
            device: Where the index lives: `auto` (CUDA where there is one), `cpu`, `cuda`, ...
            mode: `w` to add (one process at a time), `r` to read.

        Raises:
            ConfigError, EmbedderError, StoreError: As they say; nothing is changed.
        """
        settings = load_config(preset) if config is None else config
        place = usable_device(device)
        if mode == "r" and embedder is None:
            return cls(MemoryStore.open(path, mode="r"), None, settings, place)
        own = settings.embedder
        remembered = None if embedder is not None else remembered_embedder(path)
        spec, token_dim = remembered or (embedder or own.name, own.token_dim)
        loaded = load_embedder(spec, place, token_dim=token_dim)
        store = MemoryStore.open(path, mode=mode, fingerprint=loaded.fingerprint, dim=loaded.dim)
        if mode == "w" and isinstance(spec, str):
            remember_embedder(store, spec, token_dim)
        return cls(store, loaded, settings, place)

    @property
    def embedder(self) -> Embedder:
        """The encoder; of a memory that is only read it is loaded when it is first needed."""
        if self._embedder is None:
            own = self.config.embedder
            spec, token_dim = recall_embedder(self.store) or (own.name, own.token_dim)
            loaded = load_embedder(spec, self.device, token_dim=token_dim)
            bound = self.store.fingerprint
            if bound is not None and bound != loaded.fingerprint:
                raise EmbedderError(
                    f"{self.store.path}: expected the embedder that filled this store ({bound}), "
                    f"got {loaded.name!r} ({loaded.fingerprint}); open the store with its own "
                    "embedder, or index the original files into a new folder"
                )
            self._embedder = loaded
        return self._embedder

    @property
    def chunker(self) -> Tokenizer:
        """What counts the tokens of a chunk of a document.

        Raises:
            InputError: The settings name an unknown tokenizer.
        """
        named = self.config.embedder.chunk_tokenizer
        return get_tokenizer(named) if named else self.embedder.tokenizer

    @property
    def index(self) -> MemoryIndex:
        """The index of everything that is stored now; rebuilt where the store has changed."""
        return self._current().index

    def retrieve(
        self,
        questions: str | Sequence[str],
        *,
        k: int | None = None,
        kinds: Sequence[str] | None = None,
        between: tuple[float, float] | None = None,
        as_of: float | None = None,
    ) -> list[Result]:
        """Ranked memories for each question, with reasons and a confidence.

        Args:
            questions: B questions, answered as one batch.
            k: Hits a question; the preset's number by default.
            kinds: Only hits of these kinds; other atoms still lead to them.
            between: Only atoms whose time is in this span, seconds since the epoch UTC, both ends
                included.
            as_of: Only atoms whose time is known and not later; decay is reckoned from then.

        Raises:
            InputError: An empty question, an unknown kind, k below 1.
        """
        asked = checked_questions(questions)
        if k is not None and (not isinstance(k, int) or k < 1):
            raise InputError(f"k must be a whole number of at least 1, got {k!r}")
        current = self._current()
        if not asked:
            return []
        if current.index.num_atoms == 0:
            return [Result(question, (), 0.0, False) for question in asked]
        query = self._asked(current, asked, kinds=kinds, between=between, as_of=as_of)
        with torch.inference_mode():
            found = current.index(query, k=k, paths=True)
        results = to_results(asked, current, found, self.store, self.config.gate.threshold)
        if not self.store.readonly:
            used = torch.unique(found.rows[found.rows >= 0]).cpu()
            self.store.log_access(current.node[used].tolist(), clock.time())
        return results

    def query(self, questions: Sequence[str]) -> QueryBatch:
        """Questions as the tensors that the index reads, on its device."""
        return self._asked(self._current(), questions)

    def _asked(
        self,
        current: Assembled,
        questions: Sequence[str],
        *,
        kinds: Sequence[str] | None = None,
        between: tuple[float, float] | None = None,
        as_of: float | None = None,
    ) -> QueryBatch:
        """Questions, what they may see, and how strong it is for them, as tensors."""
        query = query_batch(questions, self.embedder, current)
        masks = atom_masks(current, kinds, between, as_of)
        if not LIFE_SIGNALS.isdisjoint(current.index.signal_names):
            node = current.node[: current.index.num_atoms]
            retention = self._life.retention(node, as_of)
            masks["retention"] = retention[None].to(query.embedding.device)
        return replace(query, **masks)

    def rows_of(self, ids: Sequence[str]) -> Tensor:  # [n] int64
        """Index rows of stored atoms.

        Raises:
            InputError: An id that is not stored.
        """
        known = self.store.known(list(ids))
        missing = [i for i in ids if i not in known]
        if missing:
            raise InputError(
                f"expected ids of stored atoms, got {missing[0]!r}, which is not in the store"
            )
        node = self._current().node
        ordered, order = node.sort()
        wanted = torch.tensor([known[i][0] for i in ids], dtype=torch.int64)
        return order[torch.searchsorted(ordered, wanted)]

    def stats(self) -> dict[str, Any]:
        """Counts, sizes and bindings of the store.

        `modes_found` and `modes_followed` say how often this object has found modes in full, and
        how often it only counted new atoms in.
        """
        follower = self._follower
        counts = {"modes_found": follower.found, "modes_followed": follower.followed}
        return self.store.stats() | counts

    def check(self) -> list[str]:
        """Problems of the store; empty where it is sound."""
        return self.store.check()

    def close(self) -> None:
        """Writes a stale snapshot anew and gives the store back; a second call does nothing."""
        try:
            if not self.store.closed and not self.store.readonly and self.store.path is not None:
                if self._watch is not None:
                    self._watch.save()
                self._save_snapshot()
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        """The memory itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; after an error without taking the time for a snapshot."""
        if kind is None:
            self.close()
        else:
            self.store.close()

    def _save_snapshot(self) -> None:
        if self.store.num_nodes:
            current = self._current()
            if not self._saved:
                save_assembled(self.store, current)
                self._saved = True

    def _current(self) -> Assembled:
        """The index of the store's present state."""
        if self._assembled is None or self._assembled.state != self.store.state:
            fresh = load_assembled(self.store, self.config, self._follower)
            self._saved = fresh is not None
            if fresh is None:
                packed = self.store.token_dim is not None
                pieces = self.embedder.num_pieces if packed else 0
                fresh = assemble(self.store, self.config, pieces, self._follower)
            fresh.index.to(self.device)
            self._assembled = fresh
        return self._assembled
