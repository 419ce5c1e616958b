"""Connection to a store's database, for reads and transactions.

SQLite runs in WAL mode with `synchronous=FULL`: a commit is on disk when it returns. Readers see
the last commit; readers and the writer never wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from graphmem_torch.errors import StoreError
from graphmem_torch.store.failures import closed_error, store_error
from graphmem_torch.store.folder import BUSY_SECONDS, DATABASE_NAME, connect
from graphmem_torch.store.pages import MOST_PAGES, Descriptors, LogMark, clear_unused
from graphmem_torch.store.schema import OVERWRITES

__all__ = ["Database"]

_descriptors = Descriptors()

T = TypeVar("T")


class Database:
    """One SQLite connection, safe to share between threads; raises `StoreError`s.

    Attributes:
        place: The folder, for messages; `<memory>` for a database in memory.
        readonly: Whether writes are refused.
        sound: Verified checksums of blocks, by table and key.
        asked: Time of the last use, on a monotonic clock.
        resting: Whether the files are closed until the next use.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        readonly: bool = False,
        create: bool = True,
        woken: Callable[[], object] | None = None,
    ) -> None:
        """Open the database in `folder` (None: in memory).

        Args:
            folder: Folder of the store.
            readonly: Whether to open it for reading only.
            create: Whether to create a missing database; ignored if `readonly`.
            woken: Called after the files are opened again after `rest`.

        Raises:
            StoreError: There is no store and none may be created, or it cannot be opened.
            StoreDamagedError: The database is empty, truncated or otherwise damaged.
        """
        self.place = "<memory>" if folder is None else str(folder)
        self.readonly = readonly
        self.sound: dict[tuple[str, int], int] = {}
        self._lock = threading.RLock()
        self._pinned = 0
        self._pinned_by: int | None = None
        self._streams = 0
        self._gathering = False  # whether inside `gathering`
        self._writing = False  # whether a write transaction is open
        self._folder = folder
        # Checked before every statement, so built only once.
        self._path = None if folder is None else os.fspath(folder / DATABASE_NAME)
        self._woken = woken
        # The log as it was when all unused bytes of the file were cleared; None: not known.
        self._cleared: LogMark | None = None
        self.resting = self._gone = self._closed = False
        self.asked = time.monotonic()
        try:
            self._connection = self._connected(create=create)
            self._identity = self._read_identity()
        except (sqlite3.Error, OSError) as error:
            raise store_error(error, self.place) from error

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        with self._lock:
            self._awake()
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error

    def value(self, key: str) -> str | None:
        """Return a string of the table `meta`, or None."""
        rows = self.query("SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Generator[tuple[Any, ...]]:
        """Yield the rows of a statement one by one, for large rows; other threads wait."""
        with self._lock:
            self._awake()
            self._streams += 1
            try:
                yield from self._connection.execute(sql, values)
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error
            finally:
                self._streams -= 1

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for every row; only inside `write`, which translates errors."""
        self._connection.executemany(sql, rows)

    def has(self, table: str) -> bool:
        """Return whether a table exists; a reader of an older store may lack newer ones."""
        there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return not self.readonly or bool(self.query(there, (table,)))

    def write(self, work: Callable[[], T], *, durable: bool = True, wait: bool = True) -> T:
        """Run `work` in one transaction, which is on disk on return; an error rolls it back.

        Args:
            work: Reads and writes through this object. Any exception, Ctrl-C included, rolls back.
            durable: False lets a power failure (not a killed process) undo the newest such
                transactions; for logs.
            wait: Whether to wait for the writer of another process; if False, raise instead.

        Raises:
            StoreError: The database is read-only, or the transaction failed; nothing has changed.
        """
        with self._lock:
            if self._gathering:
                return self._write_part(work)
            self.expect_writable()
            self._awake()
            # An interrupt during an earlier roll-back may have left a transaction open.
            self._rollback()
            try:
                if not durable:
                    self._connection.execute("PRAGMA synchronous = NORMAL")
                if not wait:
                    self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("BEGIN IMMEDIATE")
                self._writing = True
                result = work()
                self._connection.execute("COMMIT")
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error
            finally:
                self._writing = False
                # After a commit there is nothing to roll back: this undoes failures only.
                self._rollback()
                if not durable:
                    self._connection.execute("PRAGMA synchronous = FULL")
                if not wait:
                    self._connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS:.0f}")
            return result

    @contextlib.contextmanager
    def gathering(self) -> Iterator[None]:
        """Collect all writes inside the block in one transaction; other threads wait; nests.

        Raises:
            StoreError: The database is read-only, or the transaction failed; nothing has changed.
        """
        with self._lock:
            if self._gathering:
                yield
                return
            self.expect_writable()
            self._awake()
            self._rollback()
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._gathering = self._writing = True
                yield
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error
            finally:
                self._gathering = self._writing = False
                self._rollback()

    def _write_part(self, work: Callable[[], T]) -> T:
        """Run `work` as a savepoint of the `gathering` transaction; an error undoes only `work`."""
        self.expect_writable()
        done = False
        try:
            self._connection.execute("SAVEPOINT part")
            result = work()
            done = True
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise store_error(error, self.place) from error
        finally:
            # A full disk may already have rolled back the whole transaction.
            if self._connection.in_transaction:
                if not done:
                    self._connection.execute("ROLLBACK TO part")
                self._connection.execute("RELEASE part")
        return result

    def wipe(self, seconds: float) -> bool:
        """Wipe erased bytes from the files; return False if a reader holds them beyond `seconds`.

        A database of an older release, which did not overwrite freed pages, is rewritten.

        Raises:
            StoreError: A file cannot be written, as on a full disk; the call can be repeated.
        """
        with self._lock:
            if self._path is None:
                return True
            try:
                if not self.query("SELECT 1 FROM meta WHERE key = ?", (OVERWRITES,)):
                    self._connection.execute("VACUUM")
                    put = "INSERT OR IGNORE INTO meta VALUES (?, '1')"
                    self.write(lambda: self.execute_many(put, [(OVERWRITES,)]))
                self._connection.execute(f"PRAGMA busy_timeout = {1000 * seconds:.0f}")
                return self._wiped(Path(self._path))
            except (sqlite3.Error, OSError) as error:
                raise store_error(error, self.place) from error
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS:.0f}")

    def compact(self, seconds: float) -> bool:
        """Rewrite the database without free pages, then `wipe`; returns and raises like `wipe`.

        Needs room for a second copy meanwhile. `incremental_vacuum` is no substitute: it must be
        enabled at creation, moves pages one by one, and leaves half-empty pages.
        """
        with self._lock:
            self.expect_writable()
            self._awake()
            self._rollback()
            try:
                self._connection.execute("VACUUM")
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error
            return self.wipe(seconds)

    def _wiped(self, path: Path) -> bool:
        """Truncate the log, and clear the unused bytes of pages; returns like `wipe`."""
        log = path.with_name(f"{path.name}-wal")
        # After the first wipe, only pages written since then may hold old bytes.
        version = self._data_version()
        written = None if self._cleared is None else self._cleared.pages(log)
        if self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            return False
        # Cached pages would be written back with the old bytes.
        self._connection.execute("PRAGMA shrink_memory")
        self._cleared = None

        def work() -> bool:
            nonlocal version, written
            if log.exists() and log.stat().st_size:  # another connection has written
                return False
            if version != (version := self._data_version()):
                written = None  # another connection wrote to the log since it was read
            numbers, follow = written, False
            # The first byte of a page identifies tree pages, but for these; see `clear_unused`.
            moving = self.query("PRAGMA auto_vacuum")[0][0]
            if numbers is None or moving or self.query("PRAGMA page_count")[0][0] > MOST_PAGES:
                roots = self.query("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")
                numbers, follow = {1, *(row[0] for row in roots)}, True
            clear_unused(_descriptors.of(self._file, path), numbers, follow=follow)
            # This commit invalidates the page caches of other connections.
            self.execute_many("DELETE FROM meta WHERE key = 'store.wiping'", [()])
            return True

        if not self.write(work):
            return False
        mark = LogMark.of(log)
        # If no other connection has written, the log begins with this commit.
        self._cleared = mark if self._data_version() == version else None
        return True

    def _data_version(self) -> int:
        """Return a number that changes when another connection writes."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def expect_there(self) -> None:
        """Raise StoreError if it was closed, or its files were removed or replaced."""
        if self._gone or (not self._closed and self.gone):
            raise self._lost()
        if self._closed:
            raise closed_error(self.place)

    def expect_writable(self) -> None:
        """Raise StoreError if writing is impossible: read-only, inside `reading`, or gone."""
        self.expect_there()
        if self.readonly:
            raise StoreError(
                f"{self.place}: the store is open for reading only. Open it with mode='w'"
            )
        if self._pinned_by == threading.get_ident():
            raise StoreError(
                f"{self.place}: expected no write inside `reading()`. Write after its block"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read one snapshot inside the block, whatever is committed meanwhile; nests."""
        with self._lock:
            self._awake()
            self._pinned += 1
            self._pinned_by = threading.get_ident()
            try:
                if self._pinned == 1 and not self._gathering:
                    # The first SELECT, not BEGIN, takes the snapshot.
                    self.query("BEGIN")
                    self.query("SELECT version FROM schema_version")
                yield
            finally:
                self._pinned -= 1
                if self._pinned == 0:
                    self._pinned_by = None
                    if not self._gathering:
                        self._rollback()

    def _rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @property
    def gone(self) -> bool:
        """Return whether the files were removed, or replaced by those of another store."""
        if not self._gone and self._folder is not None:
            with self._lock:
                found = self._found()
                self._gone = found is None if self.resting else found != self._file
        return self._gone

    @contextlib.contextmanager
    def idle(self) -> Iterator[bool]:
        """Yield whether the connection is unused; if so, block other threads inside the block."""
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            inside = self._pinned or self._streams or self._connection.in_transaction
            yield not (self._closed or inside)
        finally:
            self._lock.release()

    def rest(self) -> None:
        """Close the files until the next use; only inside `idle`."""
        if self._folder is not None and not self.resting:
            with contextlib.suppress(sqlite3.Error):
                self._disconnect()
            self.resting = True

    def _awake(self) -> None:
        """Open the files again after `rest`; raises StoreError if they are of another store."""
        self.asked = time.monotonic()
        if self._folder is None or self._pinned or self._writing:
            return
        self.expect_there()
        if not self.resting:
            return
        try:
            self._connection = self._connected(create=False)
            self.resting = False
            self._gone = self._read_identity() != self._identity
        except (sqlite3.Error, OSError) as error:
            raise store_error(error, self.place) from error
        if self._gone:
            raise self._lost()
        if self._woken is not None:
            self._woken()

    def _found(self) -> tuple[int, int] | None:
        """Return device and inode of the database file; None if there is none."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def _read_identity(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _lost(self) -> StoreError:
        return StoreError(
            f"{self.place}: expected the store that was opened here, got none or another: it was "
            "dropped, moved or replaced meanwhile; open it anew"
        )

    def close(self) -> None:
        """Close the connection; the last one to close checkpoints the write-ahead log."""
        with self._lock, contextlib.suppress(sqlite3.Error, OSError):
            self._gone = self.gone  # later calls report this, not that it is closed
            if not self._closed:
                self._closed = True
                self._disconnect()

    def _connected(self, *, create: bool) -> sqlite3.Connection:
        """Open the files; `_file` is held until `_disconnect`."""
        before = self._found()  # held while opening, so that its locks are not lost
        with _descriptors.holding(before):
            connection = connect(self._folder, readonly=self.readonly, create=create)
            self._file = self._found()
            _descriptors.hold(self._file)
        return connection

    def _disconnect(self) -> None:
        if not self.resting:
            try:
                self._connection.close()
            finally:
                _descriptors.release(self._file)
