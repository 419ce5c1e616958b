"""Sharded namespaces: the memories inside a memory of shards, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from graphmem_torch.memory.namespace_folders import checked_name
from graphmem_torch.memory.namespaces import Namespaces
from graphmem_torch.memory.shards import Shards
from graphmem_torch.memory.state import State
from graphmem_torch.store import MemoryStore

__all__ = ["ShardedNamespaces"]

M = TypeVar("M")


class _Space:
    """State of a namespace as `Namespaces` keeps it."""

    store: MemoryStore

    def __init__(self, state: State) -> None:
        self.store = state.store


class ShardedNamespaces(Generic[M]):
    """Namespaces of a memory of shards; each shard holds its part of each. See `Namespaces`."""

    def __init__(self, shards: Shards, kind: Callable[[Shards], M]) -> None:
        """Open none yet.

        Args:
            shards: Shards of the memory that they are in.
            kind: Class of the memories, called with the shards of a namespace.
        """
        self._shards, self._kind = shards, kind
        self._each = [Namespaces(state, _Space) for state in shards.states]

    def __getitem__(self, name: str) -> M:
        """Return the memory of a name; errors as in `Namespaces`."""
        return self._kind(self._shards.within(name))

    def create(self, name: str) -> M:
        """Return the memory of a name, made empty if there is none."""
        return self._kind(self._shards.within(name, create=True))

    def drop(self, name: str) -> None:
        """Delete a namespace in all shards; errors as in `Namespaces`."""
        named = checked_name(name)
        if named not in self:
            self._each[0].drop(named)  # raises
        for own in self._each:
            if named in own:
                own.drop(named)

    def __contains__(self, name: Any) -> bool:
        """Return whether any shard has a namespace of a name."""
        return any(name in own for own in self._each)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, sorted."""
        return iter(sorted({name for own in self._each for name in own}))

    def __len__(self) -> int:
        """Return the number of namespaces."""
        return sum(1 for _ in self)
