"""Namespaces: memories of their own in the folder of one, such as those of a service's users.

Each is a store in a folder of its own, so that nothing is shared that could cross: ids, sessions,
concepts, document frequencies, statistics. The folder is named by the SHA-256 of the name, and a
file in it holds the name: no character or case of a name can lead elsewhere. A name is stored in
NFC, and found in any form of Unicode; older releases stored it as it was given.
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
"""Namespaces of a memory whose files are open at once; the others' are opened at their next use."""

_LOCK = "namespaces.lock"


class Releasable(Protocol):
    """State of a memory that can be released and derived again from its store.

    Attributes:
        store: Store of the memory.
    """

    store: MemoryStore

    @property
    def changed(self) -> bool:
        """Whether it has settings of its own, which nothing else keeps."""

    def release_cache(self) -> bool:
        """Drop what can be derived again; False if that must wait."""

    def save(self) -> None:
        """Write what the next opening need not derive again."""


M = TypeVar("M", bound=Releasable)


class NamespaceStores(Generic[M]):
    """Namespaces of a memory by name; safe between threads, and beside other processes.

    At most `most` of them have their files open, beside those that are in use: those that were
    used last. Without a folder they end with this object.
    """

    def __init__(self, store: MemoryStore, *, most: int) -> None:
        """Open none yet.

        Args:
            store: Store of the memory that the namespaces are in.
            most: Maximum number of namespaces whose files are open.
        """
        self._store, self._readonly, self._most = store, store.readonly, most
        self._folder = None if store.path is None else store.path / NAMESPACES_NAME
        self._lock = threading.Lock()  # of the following; no other is taken inside of it
        self._views: WeakValueDictionary[str, M] = WeakValueDictionary()
        self._awake: dict[str, M] = {}
        self._kept: dict[str, M] = {}
        self._forms: dict[str, list[str]] | None = None  # stored names not in NFC; None: not read
        self._closed = False

    def names(self) -> list[str]:
        """The names, sorted, those of archives included."""
        if self._folder is None:
            return sorted(self._kept)
        return namespace_names(self._there())

    def expect(self, name: object) -> str:
        """A name, once it is known that there is such a namespace.

        Raises:
            InputError: There is none; names the nearest.
        """
        named = self.stored(checked_name(name))
        if not self.has(named):
            raise self._unknown(named)
        return named

    def has(self, name: str) -> bool:
        """Whether there is a namespace of a name, or such an archive."""
        return self._is_stored(self.stored(name))

    def _is_stored(self, name: str) -> bool:
        return name in self._kept if self._folder is None else self._path(name).is_dir()

    def stored(self, name: str) -> str:
        """The form in which a name is stored, else NFC.

        Names that differ in form only, which older releases made, stay two: the form that is given
        is looked for first. The name of an archive has the form of its owner's.
        """
        if name.isascii() or is_archive(name) or self._is_stored(name):
            return name
        plain = composed(name)
        if plain != name and self._is_stored(plain):
            return plain
        if self._forms is None:  # once: what is made from now on is in NFC
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
            fingerprint: Of the encoder, where it is known.
            dim: Width of its embeddings.
            create: Makes it where there is none.

        Raises:
            InputError: No name, or no such namespace.
            EmbedderError, StoreError: As `MemoryStore.open`.
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
        """Deletes a namespace with everything in it; whoever has it open can ask it no more.

        Raises:
            InputError: There is none.
            StoreError: It is only read, or its folder cannot be deleted; it is gone all the same
                unless it is listed.
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
                with WriterLock(path, create=False):  # nobody is in the middle of a commit
                    os.rename(path, old)
                sync_folder(path.parent)
            self._close(named)
            for left in path.parent.glob(f"*{OLD}"):  # also of those that were killed here
                shutil.rmtree(left)
            sync_folder(path.parent)

    def problems(self) -> list[str]:
        """What is wrong with any of them, in sentences; an empty list when all is well."""
        if self._folder is None:
            found = [(name, view.store.check()) for name, view in sorted(self._kept.items())]
            return [f"namespace {name!r}: {each}" for name, problems in found for each in problems]
        return namespace_problems(self._there())

    def close(self, *, save: bool) -> None:
        """Close all of them; with `save` once those that are open are saved."""
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
            create=False,  # another process may drop it just now
            woken=lambda: self._woke(name),
        )

    def bytes(self) -> int:
        """Size of all their files together."""
        if self._folder is None:
            return 0
        return sum(bytes_in(path) for path in folders(self._there()))

    def _create(self, path: Path, name: str, fingerprint: str | None, dim: int | None) -> None:
        """Makes a store under another name and moves it into place: it is there whole or not."""
        self._expect_writable(name)
        new = path.with_name(path.name + NEW)
        with self._changing(path):
            if path.is_dir():  # another was quicker
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
        """The view of a name, which is this one unless another thread was quicker."""
        while True:
            with self._lock:
                other = self._views.get(name)
            # Outside of the lock, for which whoever puts that one down waits with its store held.
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
        """Notes that the files of a namespace are open, and has others give theirs back."""
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
        """Closes the files of a namespace that nobody uses just now; whether it did."""
        with self._lock:
            view = self._awake.get(name)
        if view is None:
            return True
        # Never waits: whoever holds that one may be waiting for this one.
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
        """Has the view of a dropped namespace end."""
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
        """The folder of the namespaces; another store may have its name now.

        Raises:
            StoreError: The store was moved, dropped or replaced.
        """
        assert self._folder is not None
        self._store.expect_there()
        return self._folder

    @contextlib.contextmanager
    def _changing(self, path: Path) -> Iterator[None]:
        """Nobody else makes or drops a namespace meanwhile."""
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
    """Whether a store can still be asked; wakes it."""
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
