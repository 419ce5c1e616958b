"""Stores of namespaces: separate memories in the folder of one, such as one for each user.

Each is a store in its own folder, so they share no ids, sessions, concepts, document frequencies or
statistics. The folder's name is the SHA-256 of the namespace's name, so no character or case of a
name can lead elsewhere; a file in the folder holds the name. Names are stored in NFC and found in
any form of Unicode; older releases stored them as they were given.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar
from weakref import WeakValueDictionary

from graphmem_torch.errors import InputError, StoreDamagedError, StoreError
from graphmem_torch.memory.compatibility import copy_binding
from graphmem_torch.memory.namespace_folders import (
    NAME_FILE,
    NEW,
    OLD,
    bytes_in,
    checked_name,
    folders,
    is_archive,
    name_digest,
    name_in,
    namespace_names,
    namespace_problems,
    printable,
    unknown_namespace,
)
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.failures import store_error
from graphmem_torch.store.folder import DATABASE_NAME, NAMESPACES_NAME, sync_folder
from graphmem_torch.store.lock import WriterLock
from graphmem_torch.text.unicode_forms import composed

__all__ = [
    "MOST_OPEN",
    "NamespaceStores",
]

MOST_OPEN = 64
"""Maximum number of open namespaces of a memory; others are opened at their next use."""

_LOCK = "namespaces.lock"


class Releasable(Protocol):
    """State of a memory that can be released and derived again from its store.

    Attributes:
        store: Store of the memory.
    """

    store: MemoryStore

    @property
    def changed(self) -> bool:
        """Return whether it has settings of its own, which are stored nowhere else."""

    def release_cache(self) -> bool:
        """Drop derived data; returns False if that must wait."""

    def save(self) -> None:
        """Write derived data, so that the next opening need not derive it again."""


M = TypeVar("M", bound=Releasable)


class NamespaceStores(Generic[M]):
    """Namespaces of a memory by name; safe for threads and for several processes.

    At most `most` idle ones, the last used, have their files open. Without a folder they end
    with this object.
    """

    def __init__(self, store: MemoryStore, *, most: int) -> None:
        """Open none yet.

        Args:
            store: Store of the memory that the namespaces are in.
            most: Maximum number of namespaces whose files are open.
        """
        self._store, self._readonly, self._most = store, store.readonly, most
        self._folder = None if store.path is None else store.path / NAMESPACES_NAME
        self._lock = threading.Lock()  # guards the following; no other lock is taken inside it
        self._views: WeakValueDictionary[str, M] = WeakValueDictionary()
        self._awake: dict[str, M] = {}
        self._kept: dict[str, M] = {}
        self._forms: dict[str, list[str]] | None = None  # stored names not in NFC; None: not read
        self._closed = False

    def names(self) -> list[str]:
        """Return the names, sorted, with those of archives."""
        if self._folder is None:
            return sorted(self._kept)
        return namespace_names(self._there())

    def expect(self, name: object) -> str:
        """Return a name, checked to be that of a namespace.

        Raises:
            InputError: No such namespace; the message gives the nearest names.
        """
        named = self.stored(checked_name(name))
        if not self.has(named):
            raise self._unknown(named)
        return named

    def has(self, name: str) -> bool:
        """Return whether there is a namespace or an archive of a name."""
        return self._is_stored(self.stored(name))

    def _is_stored(self, name: str) -> bool:
        return name in self._kept if self._folder is None else self._path(name).is_dir()

    def stored(self, name: str) -> str:
        """Return the form in which a name is stored, else NFC.

        Names that differ in form only, which older releases created, are different namespaces: the
        given form takes precedence. The name of an archive has the form of its owner's.
        """
        if name.isascii() or is_archive(name) or self._is_stored(name):
            return name
        plain = composed(name)
        if plain != name and self._is_stored(plain):
            return plain
        if self._forms is None:  # read once: new names are in NFC
            forms: dict[str, list[str]] = {}
            for each in self.names():
                if composed(each) != each:
                    forms.setdefault(composed(each), []).append(each)
            self._forms = forms
        return next(filter(self._is_stored, self._forms.get(plain, ())), plain)

    def get(
        self,
        name: object,
        make: Callable[[MemoryStore, str], M],
        fingerprint: str | None,
        dim: int | None,
        *,
        create: bool = False,
    ) -> M:
        """Return the state of a namespace.

        Args:
            name: Name of the namespace, in any form of Unicode.
            make: Function from a store and its name to the state, if it is not open.
            fingerprint: Fingerprint of the encoder, if it is known.
            dim: Width of its embeddings.
            create: Whether to create it if it is missing.

        Raises:
            InputError: No name, or no such namespace.
            EmbedderError, StoreError: See `MemoryStore.open`.
        """
        named = self.stored(printable(name))
        with self._lock:
            view = self._views.get(named)
        if view is not None and _is_there(view.store):
            return view
        if self._closed:
            raise StoreError(
                f"namespace {named!r}: expected an open memory, got a closed one; open it again"
            )
        if self._folder is None:
            if not create:
                raise self._unknown(named)
            store = MemoryStore.open(None, fingerprint=fingerprint, dim=dim)
        else:
            path = self._path(named)
            if not path.is_dir():
                if not create:
                    raise self._unknown(named)
                self._create(path, named, fingerprint, dim)
            store = self._open(path, named, fingerprint, dim)
        return self._taken_up(named, make(store, named))

    def drop(self, name: object) -> None:
        """Delete a namespace with everything in it; those who have it open cannot use it any more.

        Raises:
            InputError: No such namespace.
            StoreError: A read-only memory, or a folder that cannot be deleted. The namespace is
                gone all the same, unless it is still listed.
        """
        named = self.stored(printable(name))
        self._expect_writable(named)
        if self._folder is None:
            self._close(named)
            return
        path = self._path(named)
        old = path.with_name(path.name + OLD)
        if not path.is_dir() and not old.is_dir():
            raise self._unknown(named)
        with self._changing(path):
            if path.is_dir():
                shutil.rmtree(old, ignore_errors=True)
                with WriterLock(path, create=False):  # no commit is in progress
                    os.rename(path, old)
                sync_folder(path.parent)
            self._close(named)
            for left in path.parent.glob(f"*{OLD}"):  # also those of interrupted calls
                shutil.rmtree(left)
            sync_folder(path.parent)

    def problems(self) -> list[str]:
        """Return the problems of all namespaces, as sentences; an empty list if there are none."""
        if self._folder is None:
            found = [(name, view.store.check()) for name, view in sorted(self._kept.items())]
            return [f"namespace {name!r}: {each}" for name, problems in found for each in problems]
        return namespace_problems(self._there())

    def close(self, *, save: bool) -> None:
        """Close all namespaces; with `save`, save the open ones first."""
        self._closed = True
        with self._lock:
            views, awake = list(self._views.values()), list(self._awake.values())
            if self._folder is None:
                awake = []
        try:
            for view in awake:
                if save and not (view.store.closed or view.store.gone):
                    view.save()
        finally:
            for view in views:
                view.store.close()
            with self._lock:
                self._awake.clear()
                self._kept.clear()

    def _open(self, path: Path, name: str, fingerprint: str | None, dim: int | None) -> MemoryStore:
        if not (path / DATABASE_NAME).is_file():
            raise StoreDamagedError(
                f"namespace {name!r}: expected {path / DATABASE_NAME}, got no such file. Restore "
                "it from a backup, or drop the namespace"
            )
        mode: Literal["r", "w"] = "r" if self._readonly else "w"
        if mode == "w" and name_in(path) is None:
            (path / NAME_FILE).write_text(name, encoding="utf-8")
        return MemoryStore.open(
            path,
            mode=mode,
            fingerprint=fingerprint,
            dim=dim,
            create=False,  # another process may be dropping it
            woken=lambda: self._woke(name),
        )

    def bytes(self) -> int:
        """Return the total size of their files."""
        if self._folder is None:
            return 0
        return sum(bytes_in(path) for path in folders(self._there()))

    def _create(self, path: Path, name: str, fingerprint: str | None, dim: int | None) -> None:
        """Create a store under a temporary name and rename it, so that it is complete or absent."""
        self._expect_writable(name)
        new = path.with_name(path.name + NEW)
        with self._changing(path):
            if path.is_dir():  # another process was faster
                return
            try:
                shutil.rmtree(new, ignore_errors=True)
                new.mkdir()
                (new / NAME_FILE).write_text(name, encoding="utf-8")
                with MemoryStore.open(new, fingerprint=fingerprint, dim=dim) as store:
                    copy_binding(self._store, store)
                for each in (new / NAME_FILE, new):
                    _sync(each)
                os.rename(new, path)
                for folder in (path.parent, path.parent.parent):
                    sync_folder(folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)

    def _taken_up(self, name: str, view: M) -> M:
        """Return the registered view of a name: this one, unless another thread was faster."""
        while True:
            with self._lock:
                other = self._views.get(name)
            # Outside of the lock: a thread closing that view holds its store and waits for it.
            stale = other is None or other.store.closed or other.store.gone
            with self._lock:
                if self._views.get(name) is not other:
                    continue
                if stale:
                    self._views[name] = view
                    self._awake.pop(name, None)
                    self._kept.pop(name, None)
                    if self._folder is None:
                        self._kept[name] = view
            break
        if other is not None and not stale:
            view.store.close()
            return other
        if self._folder is not None:
            self._woke(name)
        return view

    def _woke(self, name: str) -> None:
        """Record that the files of a namespace are open, and release others."""
        with self._lock:
            view = self._views.get(name)
            if view is None or self._closed:
                return
            self._awake[name] = view
            over = len(self._awake) - self._most
            idle = [(each.store.asked, key) for key, each in self._awake.items() if key != name]
        for _, key in sorted(idle) if over > 0 else ():
            over -= self.release(key)
            if over <= 0:
                return

    def release(self, name: str) -> bool:
        """Close the files of an idle namespace; returns whether it did."""
        with self._lock:
            view = self._awake.get(name)
        if view is None:
            return True
        # Never waits: the thread that holds that store may be waiting for this one.
        with view.store.idle() as idle:
            if not idle or not view.release_cache():
                return False
            view.store.rest()
            with self._lock:
                if self._awake.get(name) is view:
                    del self._awake[name]
                    if view.changed:
                        self._kept[name] = view
        return True

    def _close(self, name: str) -> None:
        """Close the view of a dropped namespace."""
        with self._lock:
            view = self._views.pop(name, None)
            for held in (self._awake, self._kept):
                held.pop(name, None)
        if view is not None:
            view.store.close()
        elif self._folder is None:
            raise self._unknown(name)

    def _path(self, name: str) -> Path:
        return self._there() / name_digest(name)

    def _there(self) -> Path:
        """Return the folder of the namespaces, if it still belongs to this store.

        Raises:
            StoreError: The store was moved, dropped or replaced.
        """
        assert self._folder is not None
        self._store.expect_there()
        return self._folder

    @contextlib.contextmanager
    def _changing(self, path: Path) -> Iterator[None]:
        """Keep others from creating or dropping a namespace meanwhile."""
        try:
            with WriterLock(path.parent, _LOCK):
                yield
        except OSError as error:
            raise store_error(error, path) from error

    def _expect_writable(self, name: str) -> None:
        if self._readonly:
            raise StoreError(
                f"namespace {name!r}: expected a memory that can be written, got one that was "
                "opened with mode='r'; open it with mode='w'"
            )

    def _unknown(self, name: str) -> InputError:
        return unknown_namespace(name, self.names())


def _is_there(store: MemoryStore) -> bool:
    """Return whether a store can still be read; wakes it."""
    if store.closed or store.gone:
        return False
    try:
        return bool(store.state)
    except StoreError:
        if store.gone:
            return False
        raise


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
