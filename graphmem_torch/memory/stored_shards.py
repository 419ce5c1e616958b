"""Stored shards: a folder of shards, read from disk without an index, an encoder or tensors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TextIO

from graphmem_torch.errors import InputError
from graphmem_torch.memory.exporting import write_export
from graphmem_torch.memory.lookup import listed_ids, named_nodes
from graphmem_torch.memory.sharded_listing import listed_in_shards
from graphmem_torch.memory.stored import StoredMemory
from graphmem_torch.results import Change, History, Page
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.shard_folder import SHARD_KEY, ShardFolder, ids_in_several
from graphmem_torch.text.times import TimeLike

if TYPE_CHECKING:
    from graphmem_torch.atoms import Atom
    from graphmem_torch.config import Config

__all__ = ["StoredShards", "shard_stats"]

_SUMMED = (
    *("nodes", "expired", "sessions", "edges", "tokens", "uses", "bytes"),
    *("waiting", "archived"),
)


class StoredShards:
    """Reader of a memory of shards that does not load the engine; see `StoredMemory`."""

    def __init__(self, memories: Sequence[StoredMemory], path: Path) -> None:
        """Take open readers; callers use `StoredShards.open`."""
        self._memories, self._path = memories, path

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        namespace: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open all shards of a folder, or their parts of a namespace; see `StoredMemory.open`."""
        folder = ShardFolder.open(path)
        folder.expect_all()
        with ExitStack() as undo:
            opened = []
            for number, place in enumerate(folder.stores):
                reader = StoredMemory.open(place, namespace=namespace, clock=clock)
                undo.callback(reader.close)
                if namespace is None:
                    folder.expect_own(number, reader.store.meta_get(SHARD_KEY))
                opened.append(reader)
            undo.pop_all()
        return cls(opened, folder.path)

    def __enter__(self) -> Self:
        """Return the memory."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all shards."""
        with ExitStack() as stack:
            for memory in self._memories:
                stack.callback(memory.close)

    def __len__(self) -> int:
        """Return the number of memories."""
        return sum(map(len, self._memories))

    def get(self, ids: Sequence[str]) -> Sequence[Atom]:
        """Return memories by id, in the order given; see `Memory.get`."""
        found: dict[str, Atom] = {}
        for memory, own in self._holding(ids):
            found |= zip(own, memory.get(own), strict=True)
        return [found[name] for name in listed_ids(self._memories[0].store, ids)]

    def list(self, **given: Any) -> Page:
        """Return memories in an order, page by page; see `ShardedMemory.list`."""
        limit, after = given.pop("limit", None), given.pop("after", None)
        return listed_in_shards(self._memories, limit, after, {"order": "added", **given})

    def history(self, id: str) -> History:
        """Return the versions, validity and chain of a memory; see `StoredMemory.history`."""
        ((memory, _),) = self._holding([id])
        return memory.history(id)

    def changes(self, since: TimeLike) -> Sequence[Change]:
        """Return the changes since a moment, in the order they were known."""
        found = [change for memory in self._memories for change in memory.changes(since)]
        return sorted(found, key=lambda change: change.when)

    def sizes(self) -> dict[str, int]:
        """Return the number of memories of each namespace."""
        total: Counter[str] = Counter()
        for memory in self._memories:
            total.update(memory.sizes())
        return dict(sorted(total.items()))

    def stats(self, config: Config | None = None) -> dict[str, Any]:
        """Return counts, sizes and bindings of all shards; see `shard_stats`."""
        each = [memory.stats(config) for memory in self._memories]
        sizes = [*map(len, self._memories)]
        return shard_stats(each, [memory.store for memory in self._memories], sizes)

    def check(self) -> Sequence[str]:
        """Return the problems of all shards; none if all are sound."""
        each = enumerate(memory.check() for memory in self._memories)
        problems = [f"shard {number}: {problem}" for number, own in each for problem in own]
        listed = ((row[2] for row in memory.store.listed()) for memory in self._memories)
        return problems + ids_in_several(listed)

    def check_receipt(self, receipt: Any) -> Sequence[str]:
        """Return the problems of a receipt with the shard that it fits best."""
        return min((memory.check_receipt(receipt) for memory in self._memories), key=len)

    def forgettable(self, ids: Iterable[str] | None, **conditions: Any) -> Sequence[Atom]:
        """Return the memories that `forget` would erase."""
        if ids is not None:
            pairs: Any = self._holding([*ids])
        else:
            pairs = [(memory, None) for memory in self._memories]
        found: Any = []
        errors: Any = []
        for memory, own in pairs:
            try:
                found += memory.forgettable(own, **conditions)
            except InputError as error:  # a session or speaker of other shards
                errors.append(error)
        if errors and len(errors) == len(pairs):
            raise errors[0]
        return found

    def archived(self) -> NoReturn:
        """Refuse: each shard has an archive."""
        self._refuse("archived")

    def export(self, path: str | Path | TextIO, *, namespaces: bool = True) -> int:
        """Write the memory as JSON lines, without vectors; see `Memory.export`."""

        @contextmanager
        def within(name: str) -> Iterator[list[StoreReader]]:
            with ExitStack() as stack:
                there = [memory for memory in self._memories if name in memory.names_within()]
                yield [stack.enter_context(memory.within(name)) for memory in there]

        def names() -> list[str]:
            return sorted({name for memory in self._memories for name in memory.names_within()})

        stores = [memory.store for memory in self._memories]
        return write_export(path, stores, within, names if namespaces else list, own=self._path)

    def _refuse(self, name: str) -> NoReturn:
        raise InputError(
            f"{name}: expected one store, got {self._path} of {len(self._memories)} shards; name "
            f"one of them, such as {self._path / '0000'}"
        )

    def _holding(self, ids: Sequence[str]) -> Sequence[tuple[StoredMemory, Sequence[str]]]:
        """Return the shards that hold some ids, each with its own; raises for unknown ones."""
        wanted = list(dict.fromkeys(listed_ids(self._memories[0].store, ids)))
        held = [
            (memory, [name for name in wanted if name in memory.store.known(wanted)])
            for memory in self._memories
        ]
        lost = {*wanted}.difference(*(own for _, own in held))
        if lost:  # raises the error of one store
            named_nodes(self._memories[0].store, [name for name in wanted if name in lost])
        return [(memory, own) for memory, own in held if own]


def shard_stats(
    each: Sequence[dict[str, Any]], stores: Sequence[StoreReader], sizes: Sequence[int]
) -> dict[str, Any]:
    """Return the statistics of all shards as one.

    Args:
        each: Statistics of each shard.
        stores: Store of each shard.
        sizes: Number of memories of each shard.

    Returns:
        Sums of the counts; `shards` with their number, the name and size of the session that has
        most memories, and whether these are more than 1/S of all (`uneven`); `stores` with `each`.
    """
    summed = {
        name: sum(own[name] for own in each)
        for name, value in each[0].items()
        if name in _SUMMED and isinstance(value, int)
    }
    turns = Counter(row[2] for store in stores for row in store.origins() if row[2] is not None)
    session, size = turns.most_common(1)[0] if turns else (None, 0)
    told = {
        "number": len(each),
        "memories": [*sizes],
        "largest_session": session,
        "memories_of_it": size,
        "uneven": len(each) > 1 and size * len(each) > sum(sizes),
    }
    asked = {said.question for store in stores for said in store.learned.feedback()}
    feedback = {name: sum(own["feedback"][name] for own in each) for name in ("used", "not_used")}
    summed |= {"feedback": {"questions": len(asked), **feedback}, "shards": told}
    return summed | {"stores": [*each]}
