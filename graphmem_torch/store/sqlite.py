"""MemoryStore: the only truth about what is remembered."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import socket
import sqlite3
import sys
import time as clock
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import EmbedderError, InputError, StoreError, StoreLockedError
from graphmem_torch.store import snapshot
from graphmem_torch.store.blocks import Batch, thin_edges, write_blocks
from graphmem_torch.store.database import (
    DATABASE_NAME,
    SCHEMA_VERSION,
    Database,
    damaged,
    store_error,
)
from graphmem_torch.store.reader import RESERVED, StoreReader, own_key
from graphmem_torch.store.records import atom_to_row

__all__ = ["MemoryStore"]


class WriterLock:
    """An exclusive `flock` on `writer.lock` in a store's folder, from `__init__` to `release`.

    The kernel drops the lock when the process ends, however it ends, so there are no stale locks to
    clean up. The file stays: removing it would let two writers lock two files of one name.

    Raises:
        StoreLockedError: Another writer holds it; the message names its pid, host and command.
        StoreError: The folder or the lock file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock, making the folder when it is missing."""
        if folder.exists() and not folder.is_dir():
            raise StoreError(
                f"{folder}: expected a folder for the store, got a file. Name a folder"
            )
        path = folder / "writer.lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise store_error(error, folder) from error
            raise StoreError(
                f"{folder}: the store cannot be opened for writing ({error.strerror}). Open it "
                "with mode='r', or make the folder writable"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe(_read(self._file))
            self._close()
            raise StoreLockedError(
                f"{folder}: {holder} is writing to this store. Wait until it closes it, "
                "or open it with mode='r' to read"
            ) from None
        except OSError as error:
            self._close()
            raise store_error(error, folder) from error
        # A holder that cannot be named (full disk) still holds the lock.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(_this_process()).encode(), 0)

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
            # Explicitly, because a forked child shares the lock and would keep it past our close.
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _this_process() -> dict[str, Any]:
    command = shlex.join(sys.orig_argv)
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": command[:500]}


def _read(file: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _describe(holder: dict[str, Any]) -> str:
    if not {"pid", "host", "command"} <= holder.keys():
        return "another process"
    return f"process {holder['pid']} on {holder['host']} ({holder['command']})"


_INSERT = "INSERT INTO atom VALUES (" + ", ".join("?" * 13) + ")"


class MemoryStore(StoreReader):
    """Atoms, vectors and edges in SQLite: one writer, many readers, one transaction a write.

    After `append` returns, a killed process or a power failure loses nothing of the batch; before
    it returns, nothing of it is there. What can be asked is in `StoreReader`.
    """

    def __init__(self, database: Database, path: Path | None, lock: WriterLock | None) -> None:
        """Use `MemoryStore.open`."""
        super().__init__(database, path)
        self._lock = lock
        self.closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        mode: Literal["w", "r"] = "w",
        fingerprint: str | None = None,
        dim: int | None = None,
    ) -> MemoryStore:
        """Open the store in a folder; with mode "w" it is created when it is missing.

        Args:
            path: The store's folder; None: a store in memory that ends with the object.
            mode: "w" takes the writer's lock; "r" needs no lock and, after a clean close, no folder
                that can be written.
            fingerprint: Of the embedder; an empty store is bound to it, another must have it.
            dim: Width of the embeddings; likewise.

        Raises:
            EmbedderError: Another embedder filled the store.
            StoreLockedError: Another process writes to the store.
            StoreDamagedError: The database is damaged.
            StoreError: No store to read, a folder that cannot be written, an unknown schema
                version, a full disk.
            InputError: An unknown mode.
        """
        if mode not in ("w", "r") or (path is None and mode == "r"):
            raise InputError(
                f"mode: expected 'w' or, for a store on disk, 'r', got {mode!r}. Use mode='w'"
            )
        if path is None:
            store = cls(Database(None), None, None)
        else:
            folder = Path(path)
            lock = WriterLock(folder) if mode == "w" else None
            try:
                _expect_no_orphan(folder)
                store = cls(Database(folder, readonly=mode == "r"), folder, lock)
            except BaseException:
                if lock is not None:
                    lock.release()
                raise
        try:
            store._bind(fingerprint, dim)
        except BaseException:
            store.close()
            raise
        return store

    def append(self, batch: Batch, *, when: float | None = None) -> None:
        """Write a batch in one transaction; its atoms get the numbers from `next_node` on.

        Args:
            batch: Atoms, vectors and edges.
            when: The time to note for it, seconds since the epoch UTC; now by default.

        Raises:
            InputError: An id is already in the store or twice in the batch, or the batch's parts do
                not fit.
            EmbedderError: An embedding is not finite.
            StoreError: Read-only store or full disk; the store is as it was before.
        """
        if not batch.atoms and not len(batch.edges):
            return
        batch.validate(dim=self.dim, token_dim=self.token_dim)
        now = clock.time() if when is None else when

        def work() -> None:
            start = self.next_node
            batch.edges.validate(start + len(batch.atoms))
            rows = [atom_to_row(start + i, atom) for i, atom in enumerate(batch.atoms)]
            self._database.execute_many(_INSERT, rows)
            write_blocks(self._database, start, batch)
            self.life.note_stored(start, len(batch.atoms), now)
            changes = self._next_state()
            if batch.atoms:
                changes["store.dim"] = str(batch.embeddings.shape[1])
            if batch.tokens is not None:
                changes["store.token_dim"] = str(batch.tokens.tokens.shape[1])
            self._set(changes)

        try:
            self._database.write(work)
        except sqlite3.IntegrityError as error:
            raise self._duplicate(batch.atoms, error) from error

    def remove_edges(self, keep: Callable[[EdgeBlock], Tensor]) -> int:
        """Delete the edges that `keep` leaves out, in one transaction; how many there were.

        Args:
            keep: From a block of E edges to the mask [E] bool of those that stay.

        Raises:
            StoreError: Read-only store or full disk; the store is as it was before.
        """

        def work() -> int:
            removed = thin_edges(self._database, keep)
            if removed:
                self._set(self._next_state())
            return removed

        return self._database.write(work)

    def meta_set(self, key: str, value: str) -> None:
        """Keep a string under a name; durable, and no change of generation."""
        name = own_key(key)
        self._database.write(lambda: self._set({name: value}))

    def save_snapshot(
        self, tensors: Mapping[str, Tensor], meta: Mapping[str, str], *, state: str | None = None
    ) -> None:
        """Write the snapshot of this store; in memory: nothing.

        Args:
            tensors: Derived tensors by name.
            meta: Strings to keep beside them.
            state: `state` when the tensors' sources were read; None: now.

        Raises:
            StoreError: The store is read-only or the disk is full; store and old snapshot are
                untouched.
        """
        self.expect_writable()
        if self.path is not None:
            stamp = self.state if state is None else state
            snapshot.save_snapshot(self.path, tensors, meta, stamp)

    def load_snapshot(
        self, *, verify: bool = False, stale: bool = False
    ) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """Tensors and strings as saved, the tensors memory-mapped; see `snapshot.load_snapshot`."""
        if self.path is None:
            return None
        return snapshot.load_snapshot(self.path, self.state, verify=verify, stale=stale)

    def check(self) -> list[str]:
        """Read everything and compare it with itself.

        Returns:
            What is wrong, in sentences; an empty list when all is well. A snapshot that is missing
            or stale is not wrong: it is rebuilt when the store is next opened.
        """
        with self.reading():
            problems = self.problems()
            if self.path is not None:
                found = snapshot.snapshot_state(self.path, self.state, verify=True)
                if found.startswith("damaged"):
                    problems.append(
                        f"snapshot: {found}; nothing is lost: delete {snapshot.SNAPSHOT_NAME}, it "
                        "is rebuilt from the database"
                    )
        return problems

    def stats(self) -> dict[str, Any]:
        """Counts, sizes (bytes) and bindings, as plain JSON values."""
        kept = "none" if self.path is None else snapshot.snapshot_state(self.path, self.state)
        with self.reading():
            return {
                **self.counts(),
                "dim": self.dim,
                "token_dim": self.token_dim,
                "fingerprint": self.fingerprint,
                "generation": self.generation,
                "schema_version": SCHEMA_VERSION,
                "bytes": _bytes_of(self.path),
                "snapshot": kept,
            }

    def close(self) -> None:
        """Close the database and give the lock back; a second call does nothing."""
        if not self.closed and not self.readonly:
            self.uses.settle()
        self.closed = True
        self._database.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> MemoryStore:
        """The store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _bind(self, fingerprint: str | None, dim: int | None) -> None:
        """Compare the embedder with the one that filled the store; an empty store takes any."""
        given = {"fingerprint": fingerprint, "dim": None if dim is None else str(dim)}
        kept = {name: self._meta(RESERVED + name) for name in given}
        changed = {
            RESERVED + name: value
            for name, value in given.items()
            if value is not None and value != kept[name]
        }
        if self.next_node > 0:
            for name in given:
                if RESERVED + name in changed and kept[name] is not None:
                    raise EmbedderError(
                        f"{self._database.place}: expected the embedder that filled this store "
                        f"({name} {kept[name]}), got one with {name} {given[name]}. Open the store "
                        "with its own embedder, or index the original files into a new folder"
                    )
        if changed and not self.readonly:
            self._database.write(lambda: self._set(changed))

    def _next_state(self) -> dict[str, str]:
        """What names the content after this change: no snapshot of before it fits any more."""
        return {"store.generation": str(self.generation + 1), "store.state": uuid.uuid4().hex}

    def _set(self, values: Mapping[str, str]) -> None:
        sql = (
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        self._database.execute_many(sql, list(values.items()))

    def _duplicate(self, atoms: Sequence[Atom], error: Exception) -> InputError:
        ids = [atom.id for atom in atoms]
        stored = self.known(ids)
        twice = next((id_ for i, id_ in enumerate(ids) if id_ in stored or id_ in ids[:i]), None)
        where = "the store" if twice in stored else "the batch"
        return InputError(
            f"id: expected ids that are new, got {twice!r}, which {where} already has ({error}). "
            "Leave out atoms that are `known`"
        )


def _expect_no_orphan(folder: Path) -> None:
    """A snapshot without a database means that the truth is gone: a new store would hide it."""
    if (folder / snapshot.SNAPSHOT_NAME).exists() and not (folder / DATABASE_NAME).exists():
        raise damaged(str(folder), f"{DATABASE_NAME} is gone, but its snapshot is there")


def _bytes_of(folder: Path | None) -> int:
    files = [] if folder is None else [path for path in folder.iterdir() if path.is_file()]
    return sum(path.stat().st_size for path in files)
