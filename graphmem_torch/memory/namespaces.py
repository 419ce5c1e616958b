"""Namespaces: the memories inside a memory, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from graphmem_torch.memory.namespace_folders import archive_of, checked_name, is_archive
from graphmem_torch.memory.state import State
from graphmem_torch.store import MemoryStore

__all__ = ["Namespaces"]


class _HasStore(Protocol):
    """Object on the state of one memory, which has its store."""

    store: MemoryStore


M = TypeVar("M", bound=_HasStore)


class Namespaces(Generic[M]):
    """Separate memories in the folder of one, such as one for each user of a service.

    `memory.namespaces["alice"]` is a memory with the whole interface, isolated from all others and
    from the one that it is in. It shares encoder, device, clock and the settings that the memory
    was opened with; what it learns is its own. Closing it releases its files until it is used
    again; it ends with the memory, or when it is dropped.

    Iteration gives the names, sorted. Names are 1 to 200 printable characters. Case matters; the
    Unicode forms of one name are the same.
    """

    def __init__(self, state: State, kind: Callable[[State], M]) -> None:
        """Open none yet.

        Args:
            state: State of the memory that they are in.
            kind: Class of the memories, called with a state.
        """
        self._state, self._kind = state, kind
        self._memories: WeakValueDictionary[str, M] = WeakValueDictionary()

    def __getitem__(self, name: str) -> M:
        """Return the memory of a name.

        Raises:
            InputError: No such namespace, with the nearest name; no name; or this is a namespace,
                which has none.
            EmbedderError, StoreError: See `Memory.open`.
        """
        return self._memory(self._state.space(name))

    def create(self, name: str) -> M:
        """Return the memory of a name, made empty if there is none.

        Raises:
            InputError: No name, or this is a namespace, which has none.
            EmbedderError, StoreError: See `Memory.open`.
        """
        return self._memory(self._state.space(name, create=True))

    def drop(self, name: str) -> None:
        """Delete a namespace and everything in it, for good.

        All who have it open, in any process, get a `StoreError` from then on.

        Raises:
            InputError: No such namespace.
            StoreError: A read-only memory, or files that cannot be deleted; repeat the call.
        """
        spaces = self._state.expect_root().spaces
        name = spaces.stored(checked_name(name))
        if spaces.has(archive := archive_of(name)):  # first: an archive never outlives its owner
            spaces.drop(archive)
        spaces.drop(name)

    def __contains__(self, name: Any) -> bool:
        """Return whether there is a namespace of a name."""
        self._state.store.expect_there()
        usable = isinstance(name, str) and name.isprintable()
        return usable and not is_archive(name) and self._state.spaces.has(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, sorted."""
        self._state.store.expect_there()
        names = [] if self._state.parent is not None else self._state.spaces.names()
        return iter([name for name in names if not is_archive(name)])

    def __len__(self) -> int:
        """Return the number of namespaces."""
        return sum(1 for _ in self)

    def _memory(self, state: State) -> M:
        """Return the memory of a state, the same object as long as it is referenced."""
        assert state.name is not None
        found = self._memories.get(state.name)
        if found is None or found.store is not state.store:
            found = self._memories[state.name] = self._kind(state)
        return found
