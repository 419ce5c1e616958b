"""Stored memory: read from disk without an index, an encoder or tensors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError, StoreDamagedError
from graphmem_torch.memory.archive import apart, derived_of_both
from graphmem_torch.memory.exporting import write_export
from graphmem_torch.memory.history import changes_since, history_of, with_archived
from graphmem_torch.memory.listing import Ordering, listed_page, moment_of
from graphmem_torch.memory.lookup import (
    atoms_by_id,
    is_visible,
    named_nodes,
    nodes_that_fit,
    num_visible,
    waiting_nodes,
    with_derived,
)
from graphmem_torch.memory.namespace_folders import (
    archive_of,
    bytes_in,
    checked_name,
    folders,
    is_archive,
    name_digest,
    namespace_names,
    namespace_problems,
    stored_form,
    unknown_namespace,
)
from graphmem_torch.results import Change, History, Page, Receipt
from graphmem_torch.store.folder import DATABASE_NAME, NAMESPACES_NAME
from graphmem_torch.store.problems import check_store
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.receipts import read_receipt, receipt_problems
from graphmem_torch.store.schema import LINKED_BY
from graphmem_torch.store.stats import store_stats
from graphmem_torch.text.times import TimeLike, parse_time

if TYPE_CHECKING:
    from graphmem_torch.config import Config

__all__ = ["StoredMemory", "memory_stats"]


class StoredMemory:
    """Reader of a memory, or of a namespace of it, that does not load the engine.

    Its methods return what those of `Memory` return for the same arguments.

    Attributes:
        store: The store, open for reading.
        name: Name of the namespace; None for the memory itself.
    """

    def __init__(self, root: Path, store: StoreReader, name: str | None) -> None:
        """Take an open store; callers use `StoredMemory.open`."""
        self.store = store
        self.name = name
        self._folder = root / NAMESPACES_NAME
        self._stack = ExitStack()
        self._stack.enter_context(store)
        self._archive_read: StoredMemory | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        namespace: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open the memory in a folder, or a namespace of it, for reading.

        Args:
            path: Folder of the store.
            namespace: Name of a namespace; None for the memory itself.
            clock: Function that returns now, in seconds since the epoch UTC.

        Raises:
            StoreError: No store, a damaged one, or one of an unknown schema version.
            InputError: No such namespace.
        """
        store = StoreReader.open_to_read(path)
        store.expiry.clock = clock
        assert store.path is not None
        if namespace is None:
            return cls(store.path, store, None)
        with store:
            folder = store.path / NAMESPACES_NAME
            name = stored_form(checked_name(namespace), folder)
            return cls(store.path, _open_within(folder, name, clock), name)

    def __enter__(self) -> Self:
        """Return the memory."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the memory."""
        self.close()

    def close(self) -> None:
        """Close its stores; further calls do nothing."""
        self._stack.close()

    def __len__(self) -> int:
        """Return the number of memories."""
        return num_visible(self.store)

    def archived(self) -> StoredMemory | None:
        """Return the archive; None if there is none. It is closed with this memory."""
        if self.name is not None and is_archive(self.name):
            return None
        name = archive_of(self.name)
        if self._archive_read is None and (self._folder / name_digest(name)).is_dir():
            store = _open_within(self._folder, name, self.store.expiry.clock)
            self._archive_read = StoredMemory(self._folder.parent, store, name)
            self._stack.callback(self._archive_read.close)
        return self._archive_read

    def get(self, ids: Sequence[str]) -> list[Atom]:
        """Return memories by id, in the order given; see `Memory.get`."""
        return atoms_by_id(self.store, ids, self._is_archived)

    def list(
        self,
        *,
        order: str = "added",
        limit: int | None = None,
        after: str | None = None,
        expired: bool = False,
    ) -> Page:
        """Return memories in an order, page by page; see `Memory.list`.

        Args:
            order: `added`, `time` or `id`, ascending; `-time` and so on descending.
            limit: Maximum number of memories; all by default.
            after: End of the previous page.
            expired: Whether to list what has expired and is not deleted yet, instead of the rest.

        Raises:
            InputError: An unknown order, or `importance`, which needs an index.
        """
        ordering = Ordering.named(order)
        if ordering.name == "importance":
            raise InputError(
                f"order: expected an order that needs no index, got {order!r}; use `Memory.list`"
            )
        moment = moment_of(after)
        return listed_page(
            self.store,
            ordering,
            among=None,
            limit=limit,
            after=after,
            moment=self.store.expiry.clock() if moment is None else moment,
            importance={},
            expired=expired,
        )

    def history(self, id: str) -> History:
        """Return the versions, validity and chain of a memory; see `Memory.history`."""
        with self.store.reading():
            return history_of(self.store, named_nodes(self.store, id, self._is_archived)[1][0])

    def changes(self, since: TimeLike) -> Sequence[Change]:
        """Return the changes since a moment, in the order they were known; see `Memory.changes`."""
        moment, archive = parse_time(since, "since"), self.archived()
        with self.store.reading():
            found = changes_since(self.store, moment)
        return found if archive is None else with_archived(found, archive.store, moment)

    def namespaces(self) -> Sequence[str]:
        """Return the names of the namespaces, sorted; a namespace has none."""
        names = [] if self.name is not None else namespace_names(self._folder)
        return [name for name in names if not is_archive(name)]

    def sizes(self) -> dict[str, int]:
        """Return the number of memories of each namespace."""
        found = {}
        for name in self.namespaces():
            with _open_within(self._folder, name, self.store.expiry.clock) as store:
                found[name] = num_visible(store)
        return found

    def stats(self, config: Config | None = None) -> dict[str, Any]:
        """Return counts, sizes and bindings; see `Memory.stats`.

        Args:
            config: Settings that decide whether learned values apply; by default the preset
                `default`. Loads the engine if anything was learned.
        """
        archive = self.archived()
        own = [] if self.name is not None else folders(self._folder)
        return memory_stats(
            self.store,
            modes=(0, 0),
            learned=self._learned(config),
            archived=0 if archive is None else len(archive),
            namespaces={"number": len(self.namespaces()), "bytes": sum(map(bytes_in, own))},
        )

    def check(self) -> Sequence[str]:
        """Return the problems of the store and of its namespaces; empty if all are sound."""
        problems = check_store(self.store)
        return problems + (namespace_problems(self._folder) if self.name is None else [])

    def check_receipt(self, receipt: Receipt | str | os.PathLike[str]) -> Sequence[str]:
        """Verify a receipt; returns the reasons it fails, empty if it is valid."""
        archive = self.archived()
        said = read_receipt(receipt)
        with self.store.reading():
            others = [] if archive is None else [archive.store]
            return receipt_problems([self.store, *others], said)

    def export(self, path: str | os.PathLike[str] | TextIO, *, namespaces: bool = True) -> int:
        """Write the memory as JSON lines, without vectors; see `Memory.export`."""
        names = self.names_within if namespaces else list

        @contextmanager
        def within(name: str) -> Iterator[list[StoreReader]]:
            with self.within(name) as store:
                yield [store]

        return write_export(path, [self.store], within, names, own=self._folder.parent)

    def names_within(self) -> Sequence[str]:
        """Return the names of the namespaces and archives that an export holds."""
        if self.name is None:
            return namespace_names(self._folder)
        return [] if self.archived() is None else [archive_of(None)]

    def forgettable(
        self,
        ids: Iterable[str] | None = None,
        *,
        session: str | None = None,
        speaker: str | None = None,
        before: TimeLike | None = None,
    ) -> Sequence[Atom]:
        """Return what `Memory.forget` would erase for the same arguments; archived atoms last.

        Raises:
            InputError: No condition, or one that matches nothing.
        """
        if ids is None and session is None and speaker is None and before is None:
            raise InputError(
                "forget: expected ids, session, speaker, before, where, or question with k, got "
                "none of them; say what to erase"
            )
        moment = None if before is None else parse_time(before, "before")
        archive = self.archived()
        here, away = ids, None
        with ExitStack() as stack:
            stack.enter_context(self.store.reading())
            if archive is None:
                nodes = _fitting(self, ids, session, speaker, moment)
                return self.store.atoms(with_derived(self.store, nodes))
            stack.enter_context(archive.store.reading())
            if ids is not None:
                here, away = apart([*ids], self.store, archive.store)
            found, errors = list[Sequence[int]](), list[InputError]()
            for memory, own in ((self, here), (archive, away)):
                try:
                    found.append(_fitting(memory, own, session, speaker, moment))
                except InputError as error:  # a name that only the other store has
                    found.append([])
                    errors.append(error)
            if len(errors) == len(found):
                raise errors[0]
            mine, theirs = derived_of_both(self.store, archive.store, *found)
            atoms = [*self.store.atoms(mine), *archive.store.atoms(theirs)]
        # An interrupted call may have left a memory in both.
        return [*{atom.id: atom for atom in reversed(atoms)}.values()][::-1]

    def _is_archived(self, id: str) -> bool:
        archive = self.archived()
        return archive is not None and is_visible(archive.store, id)

    def _learned(self, config: Config | None) -> dict[str, str]:
        """Return a sentence about each learned value, by kind."""
        rows = self.store.learned.rows()
        if not rows:
            return {}
        # Whether it applies depends on the signals, which the engine registers.
        from graphmem_torch.config import load_config
        from graphmem_torch.memory import learned_values
        from graphmem_torch.memory.compatibility import resolved_settings

        settings = resolved_settings(load_config("default") if config is None else config)
        _, found = learned_values.apply_learned(settings, rows, self.store.fingerprint)
        said = {}
        for kind, (value, _, reason) in found.items():
            ids = self.store.learned.ids(value.get("evidence", ()))
            said[kind] = str(learned_values.shown(kind, value, reason, ids))
        return said

    @contextmanager
    def within(self, name: str) -> Iterator[StoreReader]:
        """Open the store of a namespace or archive that an export holds."""
        own = archive_of(self.name) if self.name is not None else name
        with _open_within(self._folder, own, self.store.expiry.clock) as store:
            yield store


def memory_stats(
    store: StoreReader,
    *,
    modes: tuple[int, int],
    learned: dict[str, str],
    archived: int,
    namespaces: dict[str, int],
) -> dict[str, Any]:
    """Return counts, sizes and bindings of a memory; see `Memory.stats`.

    Args:
        store: Store of the memory.
        modes: Numbers of full computations and of updates of modes.
        learned: Sentence about each learned value, by kind.
        archived: Number of archived memories.
        namespaces: Number of namespaces, and bytes of their files.
    """
    return store_stats(store) | {
        "concepts": store.meta_get(LINKED_BY),
        "waiting": len(waiting_nodes(store)),
        "modes_found": modes[0],
        "modes_updated": modes[1],
        "learned": learned,
        "feedback": store.learned.counts(),
        "archived": archived,
        "namespaces": namespaces,
    }


def _fitting(
    memory: StoredMemory,
    ids: Iterable[str] | None,
    session: str | None,
    speaker: str | None,
    before: float | None,
) -> Sequence[int]:
    """Return the nodes of a memory that satisfy the conditions."""
    named = None
    if ids is not None:
        named = named_nodes(memory.store, ids, memory._is_archived, hidden=())[1]
    if named is not None and session is speaker is before is None:
        return named
    return nodes_that_fit(memory.store, named, session=session, speaker=speaker, before=before)


def _open_within(folder: Path, name: str, clock: Callable[[], float]) -> StoreReader:
    """Open the store of a namespace, given the folder of all namespaces.

    Raises:
        InputError: No such namespace.
        StoreDamagedError: Its folder holds no database.
    """
    path = folder / name_digest(name)
    if not path.is_dir():
        raise unknown_namespace(name, namespace_names(folder))
    if not (path / DATABASE_NAME).is_file():
        raise StoreDamagedError(
            f"namespace {name!r}: expected {path / DATABASE_NAME}, got no such file. Restore it "
            "from a backup, or drop the namespace"
        )
    store = StoreReader.open_to_read(path)
    store.expiry.clock = clock
    return store
