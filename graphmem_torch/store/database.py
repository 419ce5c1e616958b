"""The connection to a store's database: how it is created, opened, read and written.

SQLite runs in WAL mode with `synchronous=FULL`: a commit is on the disk when it returns, readers
see the last commit and neither wait for the writer nor hold it up.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from graphmem_torch.errors import StoreError
from graphmem_torch.store.faults import damaged, store_error
from graphmem_torch.store.schema import add_missing_tables, check_version, create_tables

__all__ = ["DATABASE_NAME", "Database", "sync_folder"]

DATABASE_NAME = "memory.sqlite"
_NO_INDEX_FILE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_SMALLEST = 512  # bytes: SQLite's smallest page
_BUSY_SECONDS = 30.0
_CACHE_KIB = 64 * 1024
_WAL_PAGES = 4096  # 16 MiB: the default of 1000 pages would checkpoint at every fourth batch

T = TypeVar("T")


class Database:
    """One SQLite connection, safe to share between threads; its errors are `StoreError`s.

    Attributes:
        place: The folder, for messages (`<memory>` without one).
        readonly: Whether writes are refused.
    """

    def __init__(self, folder: Path | None, *, readonly: bool = False) -> None:
        """Open the database in `folder` (None: in memory), creating it unless `readonly`.

        Raises:
            StoreError: There is no store and none may be created, or it cannot be opened.
            StoreDamagedError: The database is empty, truncated or otherwise damaged.
        """
        self.place = "<memory>" if folder is None else str(folder)
        self.readonly = readonly
        self._lock = threading.RLock()
        self._pinned = 0
        try:
            self._connection = self._open(folder)
        except (sqlite3.Error, OSError) as error:
            raise store_error(error, self.place) from error

    def _open(self, folder: Path | None) -> sqlite3.Connection:
        if folder is None:
            connection = _connect(":memory:")
            create_tables(connection)
            return connection
        path = folder / DATABASE_NAME
        if not self.readonly and not path.exists():
            _create(folder)
        if not path.is_file():
            raise StoreError(
                f"{folder}: expected a store, found no {DATABASE_NAME}. Index something first, or "
                "check the path"
            )
        # SQLite takes such a stump for a new database; ours is moved into place whole.
        size = path.stat().st_size
        if size < _SMALLEST:
            raise damaged(self.place, f"{DATABASE_NAME} has been cut to {size} bytes")
        connection = _connect_to_read(path) if self.readonly else _connect(_uri(path, "rw"))
        try:
            check_version(connection, self.place)
            if not self.readonly:
                add_missing_tables(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        with self._lock:
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement one by one, for large rows; other threads wait meanwhile."""
        with self._lock:
            try:
                yield from self._connection.execute(sql, values)
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for every row; only inside `write`, which translates the errors."""
        self._connection.executemany(sql, rows)

    def write(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run `work` in one transaction: on return all of it is on the disk, else nothing is.

        Args:
            work: Reads and writes through this object; whatever it raises, Ctrl-C included, rolls
                back.
            durable: False lets a power failure (not a killed process) undo the newest such
                transactions; for logs.

        Raises:
            StoreError: The database is read-only, or the transaction failed; nothing has changed.
        """
        with self._lock:
            self.expect_writable()
            if self._pinned:
                raise StoreError(
                    f"{self.place}: expected no write inside `reading()`. Write after its block"
                )
            # An interrupt during an earlier roll-back may have left a transaction open.
            self._rollback()
            try:
                if not durable:
                    self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("BEGIN IMMEDIATE")
                result = work()
                self._connection.execute("COMMIT")
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error
            finally:
                # After a commit there is nothing to roll back: this undoes failures only.
                self._rollback()
                if not durable:
                    self._connection.execute("PRAGMA synchronous = FULL")
            return result

    def expect_writable(self) -> None:
        """Raises StoreError where the database was opened to be read."""
        if self.readonly:
            raise StoreError(
                f"{self.place}: the store is open for reading only. Open it with mode='w'"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Everything read inside belongs to one moment, whatever is committed meanwhile; nests."""
        with self._lock:
            self._pinned += 1
            try:
                if self._pinned == 1:
                    # The first SELECT, not BEGIN, is what fixes the moment.
                    self.query("BEGIN")
                    self.query("SELECT version FROM schema_version")
                yield
            finally:
                self._pinned -= 1
                if self._pinned == 0:
                    self._rollback()

    def _rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection; the last one folds the write-ahead log into the database."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._connection.close()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, as after a rename."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS
    )
    try:
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    try:
        return _connect(_uri(path, "ro"))
    except sqlite3.OperationalError as error:
        # A WAL database needs an index file beside it, which a read-only folder cannot take.
        if (error.sqlite_errorcode & 0xFF) not in _NO_INDEX_FILE:
            raise
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size > 0:
            raise StoreError(
                f"{path.parent}: the folder is read-only and its last writer did not close the "
                "store. Open it once where it can be written, or copy it to such a place"
            ) from error
        return _connect(_uri(path, "ro") + "&immutable=1")


def _create(folder: Path) -> None:
    """Make a database under another name and move it into place: no one sees it half made."""
    path = folder / DATABASE_NAME
    if (folder / f"{DATABASE_NAME}-wal").exists():
        raise damaged(str(folder), f"{DATABASE_NAME} is gone, but its write-ahead log is there")
    new = folder / f"{DATABASE_NAME}.new"
    for suffix in ("", "-wal", "-shm", "-journal"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    connection = _connect(_uri(new, "rwc"))
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        create_tables(connection)
    finally:
        connection.close()
    os.replace(new, path)
    sync_folder(folder)
    # The folder may be new as well; one that may not be read cannot be synced.
    with contextlib.suppress(PermissionError):
        sync_folder(folder.absolute().parent)
