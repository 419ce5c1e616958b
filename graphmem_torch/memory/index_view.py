"""Index view: an index with the readers of the store state that it shows."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from graphmem_torch.config import Config
from graphmem_torch.memory.context_atoms import StoredContextAtoms
from graphmem_torch.memory.contexts import ContextCompiler
from graphmem_torch.memory.fields import AtomFields
from graphmem_torch.memory.index_builder import IndexBuilder, Snapshot
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.tensor_reader import TensorReader

__all__ = ["IndexView", "PastView"]


@dataclass(frozen=True, eq=False)
class IndexView:
    """An index, and the store state that it was built from.

    Attributes:
        snapshot: The index.
        store: Reader of the texts of its atoms.
        contexts: Compiler of contexts.
        context_atoms: Atoms of this store for contexts.
        fields: Fields of the atoms of this store, for filters.
    """

    snapshot: Snapshot
    store: TensorReader
    contexts: ContextCompiler
    context_atoms: StoredContextAtoms
    fields: AtomFields


class PastView:
    """Cache of the view of an earlier moment; it keeps one, to limit memory. Safe for threads."""

    def __init__(self) -> None:
        """Keep none yet."""
        self._lock = threading.Lock()
        self._kept: tuple[object, IndexView] | None = None  # its key, and the view

    def at(
        self,
        store: MemoryStore,
        state: str,
        replaced: Mapping[int, int],
        config: Config,
        pieces: int,
        device: str,
    ) -> IndexView:
        """Return a state of a store with other versions of some atoms.

        Args:
            store: The store.
            state: State of the store.
            replaced: Node numbers of the earlier versions, by those of the atoms.
            config: Settings of the index.
            pieces: Size of the vocabulary of the token vectors; 0 without token vectors.
            device: Device of the index.
        """
        key = state, tuple(sorted(replaced.items())), config
        with self._lock:
            if self._kept is None or self._kept[0] != key:
                self._kept = None
                reader = store.with_versions(replaced)
                snapshot = IndexBuilder()(reader, config, pieces)
                snapshot.index.to(device)
                contexts = ContextCompiler(), StoredContextAtoms(reader)
                view = IndexView(snapshot, reader, *contexts, AtomFields(reader))
                if snapshot.state != state:
                    return view  # already a later state: the next question builds its own
                self._kept = key, view
            return self._kept[1]
