"""The connection to a store's database: how it is created, opened, read and written.

SQLite runs in WAL mode with `synchronous=FULL`: a commit is on the disk when it returns, readers
see the last commit and neither wait for the writer nor hold it up.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.errors import StoreDamagedError, StoreError, StoreLockedError, nearest_path
from graphmem_torch.store.pages import MOST_PAGES, Descriptors, LogMark, clear_unused

__all__ = [
    "DATABASE_NAME",
    "SCHEMA_VERSION",
    "Database",
    "damaged",
    "store_error",
    "store_folder",
    "sync_folder",
]
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_ROOM_TEXT = ("no space left", "os error 28", "quota exceeded", "file too large")

_MEND = (
    "Restore the folder from a backup, or index the original files into a new folder; "
    '`sqlite3 memory.sqlite ".recover" | sqlite3 rescued.sqlite` saves what can still be read'
)


def damaged(place: str, what: str) -> StoreDamagedError:
    """The error for a store whose content contradicts itself."""
    return StoreDamagedError(f"{place}: the database is damaged ({what}). {_MEND}")


def store_error(error: Exception, place: str | Path) -> StoreError:
    """Translate a low-level error.

    Args:
        error: An `sqlite3.Error`, an `OSError`, or the error of a file writer.
        place: The store's folder or file, for the message.

    Returns:
        `StoreDamagedError` for corrupt files, `StoreLockedError` for a database that stays busy,
        else `StoreError`.
    """
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        # The low byte is the primary code; the rest says which operation failed.
        primary = None if code is None else code & 0xFF
        # Python, not SQLite, finds text that is no UTF-8, and gives it no code.
        if primary in _DAMAGED or "decode to UTF-8" in str(error):
            return damaged(str(place), str(error))
        if primary in _BUSY:
            return StoreLockedError(
                f"{place}: the database stays busy ({error}). Close the program that holds it, "
                "then try again"
            )
        if primary == sqlite3.SQLITE_READONLY:
            return StoreError(
                f"{place}: the store cannot be written ({error}). Open it with mode='r'"
            )
        if primary in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
            return _no_room(place, error)
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            return StoreError(f"{place}: expected an open memory, got one that was closed; open it")
        return StoreError(f"{place}: the database refused the operation ({error})")
    number = getattr(error, "errno", None)
    if number in _NO_ROOM or any(text in str(error).lower() for text in _NO_ROOM_TEXT):
        return _no_room(place, error)
    return StoreError(f"{place}: {error}")


def _no_room(place: str | Path, error: Exception) -> StoreError:
    return StoreError(
        f"{place}: the disk refused ({error}). Nothing that was acknowledged is lost, and a write "
        "that failed left no trace: free some disk space and repeat it"
    )


_CLEAN = "store.overwrites"  # key of databases that have always overwritten what they freed

SCHEMA_VERSION = 1
"""Version that this code writes; `_check_version` says which it reads."""

_TABLES = """
CREATE TABLE schema_version (version INTEGER NOT NULL);

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE atom (
    node       INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    text       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    speaker    TEXT,
    session    TEXT,
    time,
    event_time,
    type       TEXT,
    meta       TEXT NOT NULL,
    links      TEXT NOT NULL,
    text_hash  BLOB NOT NULL,
    digest     BLOB NOT NULL,
    event_end,
    title      TEXT
);
CREATE INDEX atom_text_hash ON atom (text_hash);

CREATE TABLE embedding_block (
    start    INTEGER PRIMARY KEY,
    count    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL
);

CREATE TABLE token_block (
    start    INTEGER PRIMARY KEY,
    count    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    counts   BLOB NOT NULL,
    pieces   BLOB NOT NULL,
    data     BLOB NOT NULL
);

CREATE TABLE edge_block (
    block    INTEGER PRIMARY KEY AUTOINCREMENT,
    start    INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    source   BLOB NOT NULL,
    target   BLOB NOT NULL,
    type     BLOB NOT NULL,
    weight   BLOB NOT NULL
);
CREATE INDEX edge_block_start ON edge_block (start);

CREATE TABLE access (
    entry INTEGER PRIMARY KEY,
    time  REAL NOT NULL,
    nodes BLOB NOT NULL
);
"""

_LATER = {
    "pin": "CREATE TABLE pin (node INTEGER PRIMARY KEY, pinned INTEGER NOT NULL)",
    "found_type": """
CREATE TABLE found_type (
    node         INTEGER PRIMARY KEY,
    type         TEXT NOT NULL,
    decay_factor REAL,
    source       TEXT NOT NULL
)""",
    "edge_parts": """
CREATE TABLE edge_parts (
    block    INTEGER PRIMARY KEY,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL
)""",
    "alias": """
CREATE TABLE alias (
    entry INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE,
    node  INTEGER NOT NULL
)""",
    "alias_vector": """
CREATE TABLE alias_vector (
    entry    INTEGER PRIMARY KEY,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL
)""",
    # A trigger, for older code takes names away as well.
    "alias_gone": """
CREATE TRIGGER alias_gone AFTER DELETE ON alias BEGIN
    DELETE FROM alias_vector WHERE entry = old.entry;
END""",
    "alias_node": "CREATE INDEX alias_node ON alias (node)",
    "stored_at": """
CREATE TABLE stored_at (
    start INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    time  REAL NOT NULL
)""",
    "use": """
CREATE TABLE use (
    node    INTEGER PRIMARY KEY,
    count   INTEGER NOT NULL,
    last    REAL NOT NULL,
    earlier BLOB NOT NULL,
    entry   INTEGER NOT NULL
)""",
    "change": """
CREATE TABLE change (
    entry INTEGER PRIMARY KEY,
    state TEXT NOT NULL UNIQUE,
    cut   BLOB,
    gone  BLOB
)""",
    "source": """
CREATE TABLE source (
    source  INTEGER PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE,
    label   TEXT NOT NULL,
    digest  TEXT,
    stamp   TEXT NOT NULL,
    reading TEXT NOT NULL,
    next    INTEGER NOT NULL
)""",
    "source_atom": """
CREATE TABLE source_atom (
    source INTEGER NOT NULL,
    id     TEXT NOT NULL,
    PRIMARY KEY (source, id)
) WITHOUT ROWID""",
    "source_atom_id": "CREATE INDEX source_atom_id ON source_atom (id)",
    "atom_session": "CREATE INDEX atom_session ON atom (session) WHERE session IS NOT NULL",
    # Whole texts in an index would be as much again.
    "atom_said": f"""
CREATE INDEX atom_said ON atom (length(text), substr(text, 1, 8)) WHERE kind != '{CONCEPT}'""",
    "version": """
CREATE TABLE version (
    node       INTEGER PRIMARY KEY,
    current    INTEGER NOT NULL,
    until      REAL NOT NULL,
    id         TEXT NOT NULL,
    text       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    speaker    TEXT,
    session    TEXT,
    time,
    event_time,
    type       TEXT,
    meta       TEXT NOT NULL,
    links      TEXT NOT NULL,
    digest     BLOB NOT NULL,
    event_end,
    title      TEXT
)""",
    "version_current": "CREATE INDEX version_current ON version (current)",
    "importance": """
CREATE TABLE importance (
    node  INTEGER PRIMARY KEY,
    value REAL NOT NULL,
    time  REAL NOT NULL,
    uses  INTEGER NOT NULL
)""",
    "insight": "CREATE TABLE insight (node INTEGER PRIMARY KEY, said TEXT NOT NULL)",
    "unwiped": "CREATE TABLE unwiped (node INTEGER PRIMARY KEY)",
    "receipt": """
CREATE TABLE receipt (
    entry  INTEGER PRIMARY KEY,
    time   REAL NOT NULL,
    atoms  INTEGER NOT NULL,
    digest TEXT NOT NULL
)""",
    "use_entry": "CREATE INDEX use_entry ON use (entry)",
    "learned": """
CREATE TABLE learned (
    entry    INTEGER PRIMARY KEY,
    kind     TEXT NOT NULL UNIQUE,
    stop     INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    value    TEXT NOT NULL
)""",
    "feedback": """
CREATE TABLE feedback (
    entry    INTEGER PRIMARY KEY,
    time     REAL NOT NULL,
    question TEXT NOT NULL
)""",
    "feedback_atom": """
CREATE TABLE feedback_atom (
    row   INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL,
    node  INTEGER NOT NULL,
    used  INTEGER NOT NULL
)""",
    "feedback_atom_entry": "CREATE INDEX feedback_atom_entry ON feedback_atom (entry)",
    "feedback_atom_node": "CREATE INDEX feedback_atom_node ON feedback_atom (node)",
    "atom_procedural": "CREATE INDEX atom_procedural ON atom (node) WHERE type = 'procedural'",
    "atom_event": """
CREATE INDEX atom_event ON atom (node) WHERE event_time IS NOT NULL OR event_end IS NOT NULL""",
    "validity": """
CREATE TABLE validity (
    entry INTEGER PRIMARY KEY,
    node  INTEGER NOT NULL,
    start REAL,
    stop  REAL,
    by    INTEGER,
    known REAL NOT NULL
)""",
    "removal": """
CREATE TABLE removal (
    entry INTEGER PRIMARY KEY,
    time  REAL NOT NULL,
    atoms INTEGER NOT NULL
)""",
    "keyed": """
CREATE TABLE keyed (
    key    BLOB PRIMARY KEY,
    digest BLOB
) WITHOUT ROWID""",
    "keyed_atom": """
CREATE TABLE keyed_atom (
    key BLOB NOT NULL,
    id  TEXT NOT NULL,
    PRIMARY KEY (id, key)
) WITHOUT ROWID""",
    # A trigger, for whatever takes an atom away.
    "keyed_gone": """
CREATE TRIGGER keyed_gone AFTER DELETE ON atom BEGIN
    UPDATE keyed SET digest = NULL WHERE key IN (SELECT key FROM keyed_atom WHERE id = old.id);
    DELETE FROM keyed_atom WHERE id = old.id;
END""",
    "validity_node": "CREATE INDEX validity_node ON validity (node)",
    "validity_by": "CREATE INDEX validity_by ON validity (by) WHERE by IS NOT NULL",
}
"""What the first stores of this version do without; older code passes it over."""


_ADDED = {"atom": ("event_end", "title"), "version": ("event_end", "title")}
"""The columns that tables of older releases do without."""

_COPYING = threading.Lock()  # not every SQLite lets threads share a connection


@functools.cache
def _tables() -> sqlite3.Connection:
    """The tables of a store in memory: their pages are copied sooner than the text is read."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(
        f"BEGIN; {_TABLES}"
        f"INSERT INTO schema_version VALUES ({SCHEMA_VERSION});"
        "INSERT INTO meta VALUES ('store.generation', '0');"
        f"INSERT INTO meta VALUES ('{_CLEAN}', '1');"
        f"{' '.join(f'{table};' for table in _LATER.values())}"
        "COMMIT;"
    )
    return connection


def _create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty store in an empty database."""
    with _COPYING:
        _tables().backup(connection)
    connection.executescript(
        f"BEGIN; INSERT INTO meta VALUES ('store.state', '{uuid.uuid4().hex}');"
        # Tells it from a store that is made in its place later.
        f"PRAGMA user_version = {uuid.uuid4().int % 2**31};"
        "COMMIT;"
    )


def _add_missing_tables(connection: sqlite3.Connection) -> None:
    """Make the tables and indexes that a store of an older release does not have yet."""
    if _tables_without(connection):
        connection.execute("BEGIN IMMEDIATE")  # another writer may be as quick
        try:
            for table, columns in _tables_without(connection).items():
                for column in columns:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    present = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    for name in [name for name in _LATER if name not in present]:
        # Another writer of the same process may be as quick.
        connection.execute(_LATER[name].replace(name, f"IF NOT EXISTS {name}", 1))


def _tables_without(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The tables of an older release that lack columns, and which."""
    lacking = {}
    for table, added in _ADDED.items():
        columns = {row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")}
        missing = [column for column in added if column not in columns]
        if columns and missing:
            lacking[table] = missing
    return lacking


def _show_missing_columns(connection: sqlite3.Connection) -> None:
    """Has a store of an older release, which is only read, show them as empty."""
    for table, columns in _tables_without(connection).items():
        # Once a writer has added a column, the first of the two of that name is read.
        empty = ", ".join(f"NULL AS {column}" for column in columns)
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {empty} FROM main.{table}")


def _check_version(connection: sqlite3.Connection, place: str) -> None:
    """Refuse a database that this code would misread.

    Raises:
        StoreError: The database is no store, or its schema version is unknown here.
    """
    known = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"
    ).fetchone()
    if known is None:
        raise StoreError(
            f"{place}: expected a store of graphmem_torch, got an SQLite database without its "
            "tables. Choose another folder for the store"
        )
    versions = [row[0] for row in connection.execute("SELECT version FROM schema_version")]
    if versions == [SCHEMA_VERSION]:
        return
    found = versions[0] if len(versions) == 1 else versions
    if isinstance(found, int) and found > SCHEMA_VERSION:
        raise StoreError(
            f"{place}: the store has schema version {found}, this graphmem_torch reads version "
            f"{SCHEMA_VERSION}. Upgrade graphmem_torch to the release that wrote it, or a later one"
        )
    raise StoreError(
        f"{place}: the store has the unknown schema version {found!r}, this graphmem_torch reads "
        f"version {SCHEMA_VERSION}. Restore the folder from a backup or index into a new one"
    )


DATABASE_NAME = "memory.sqlite"
_NO_INDEX_FILE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_SMALLEST = 512  # bytes: SQLite's smallest page
_BUSY_SECONDS = 30.0
_ENTRIES = 10_000  # of a folder that are looked at for a store
_CACHE_KIB = 64 * 1024
_WAL_PAGES = 4096  # 16 MiB: the default of 1000 pages would checkpoint at every fourth batch

_descriptors = Descriptors()

T = TypeVar("T")


class Database:
    """One SQLite connection, safe to share between threads; its errors are `StoreError`s.

    Attributes:
        place: The folder, for messages (`<memory>` without one).
        readonly: Whether writes are refused.
        sound: By table and key of blocks the checksum that was right: each is looked at once.
        asked: When it was last used, of a clock that never goes back.
        resting: Whether its files are closed until the next use.
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
            folder: Where the database is.
            readonly: Whether it is only read.
            create: Whether a missing one is made, where it is not only read.
            woken: Called whenever its files were opened again after `rest`.

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
        self._gathering = False  # whether what is written is part of one transaction
        self._writing = False  # whether a transaction that writes is open
        self._folder = folder
        # Looked at before every statement, so not put together each time.
        self._path = None if folder is None else os.fspath(folder / DATABASE_NAME)
        self._woken = woken
        # The log since all unused bytes of the file were cleared; None: not known.
        self._cleared: LogMark | None = None
        self.resting = self._gone = self._closed = False
        self.asked = time.monotonic()
        try:
            self._connection = self._connected(create=create)
            self._identity = self._read_identity()
        except (sqlite3.Error, OSError) as error:
            raise store_error(error, self.place) from error

    def _open(self, folder: Path | None, *, create: bool) -> sqlite3.Connection:
        if folder is None:
            connection = _connect(":memory:")
            _create_tables(connection)
            return connection
        path = folder / DATABASE_NAME
        if create and not self.readonly and not path.exists():
            _create(folder)
        if not path.is_file():
            near = _nearest_store(folder)
            do = f"did you mean {near}?" if near else "index something first, or check the path"
            raise StoreError(f"{folder}: expected a store, got no {DATABASE_NAME} there; {do}")
        # SQLite takes such a stump for a new database; this one is moved into place whole.
        size = path.stat().st_size
        if size < _SMALLEST:
            raise damaged(self.place, f"{DATABASE_NAME} has been cut to {size} bytes")
        connection = _connect_to_read(path) if self.readonly else _connect(_uri(path, "rw"))
        try:
            _check_version(connection, self.place)
            if self.readonly:
                _show_missing_columns(connection)
            else:
                _add_missing_tables(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        with self._lock:
            self._awake()
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise store_error(error, self.place) from error

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Generator[tuple[Any, ...]]:
        """The rows of a statement one by one, for large rows; other threads wait meanwhile."""
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
        """Run a statement for every row; only inside `write`, which translates the errors."""
        self._connection.executemany(sql, rows)

    def has(self, table: str) -> bool:
        """Whether there is this table: a reader of an older store does without the newer ones."""
        there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return not self.readonly or bool(self.query(there, (table,)))

    def write(self, work: Callable[[], T], *, durable: bool = True, wait: bool = True) -> T:
        """Run `work` in one transaction: on return all of it is on the disk, else nothing is.

        Args:
            work: Reads and writes through this object; whatever it raises, Ctrl-C included, rolls
                back.
            durable: False lets a power failure (not a killed process) undo the newest such
                transactions; for logs.
            wait: For the writer of another process; False: an error where there is one.

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
                    self._connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS:.0f}")
            return result

    @contextlib.contextmanager
    def gathering(self) -> Iterator[None]:
        """All that is written inside is one transaction, which other threads wait for; nests.

        Raises:
            StoreError: As `write`; nothing has changed then.
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
        """Runs `work` inside of `gathering`: all of it is part of the transaction, or nothing."""
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
            # A disk that is full may have undone all of it already.
            if self._connection.in_transaction:
                if not done:
                    self._connection.execute("ROLLBACK TO part")
                self._connection.execute("RELEASE part")
        return result

    def wipe(self, seconds: float) -> bool:
        """Leaves no byte of what was erased in the files; False where a reader holds them so long.

        A database of an older release, which did not overwrite what it freed, is written anew.

        Raises:
            StoreError: The disk is full, or likewise; it can be repeated.
        """
        with self._lock:
            if self._path is None:
                return True
            try:
                if not self.query("SELECT 1 FROM meta WHERE key = ?", (_CLEAN,)):
                    self._connection.execute("VACUUM")
                    put = "INSERT OR IGNORE INTO meta VALUES (?, '1')"
                    self.write(lambda: self.execute_many(put, [(_CLEAN,)]))
                self._connection.execute(f"PRAGMA busy_timeout = {1000 * seconds:.0f}")
                return self._wiped(Path(self._path))
            except (sqlite3.Error, OSError) as error:
                raise store_error(error, self.place) from error
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS:.0f}")

    def compact(self, seconds: float) -> bool:
        """Writes the database anew without its free pages; as `wipe`.

        It takes as much room again until it is done. Not `incremental_vacuum`: it needs pages that
        a database must have been made with, moves one after another, and leaves half-empty ones.
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
        """Empties the log, and clears what pages do not use while nobody writes; as `wipe`."""
        log = path.with_name(f"{path.name}-wal")
        # What was written since the last time may have left bytes; before, only all pages may.
        version = self._data_version()
        written = None if self._cleared is None else self._cleared.pages(log)
        if self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            return False
        # Pages that are kept in memory would be written again as they were.
        self._connection.execute("PRAGMA shrink_memory")
        self._cleared = None

        def work() -> bool:
            nonlocal version, written
            if log.exists() and log.stat().st_size:  # somebody was quicker
                return False
            if version != (version := self._data_version()):
                written = None  # somebody wrote to the log since it was looked at
            numbers, follow = written, False
            if numbers is None or not self._tells_pages_apart():
                roots = self.query("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")
                numbers, follow = {1, *(row[0] for row in roots)}, True
            clear_unused(_descriptors.of(self._file, path), numbers, follow=follow)
            # Others see by this commit that the pages that they keep are old.
            self.execute_many("DELETE FROM meta WHERE key = 'store.wiping'", [()])
            return True

        if not self.write(work):
            return False
        mark = LogMark.of(log)
        # Where nobody else has written yet, the log begins with this commit.
        self._cleared = mark if self._data_version() == version else None
        return True

    def _data_version(self) -> int:
        """A number that changes when another connection writes."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _tells_pages_apart(self) -> bool:
        """Whether the first byte of a page says if it is one of a tree; see `clear_unused`."""
        moving = self.query("PRAGMA auto_vacuum")[0][0]
        return not moving and self.query("PRAGMA page_count")[0][0] <= MOST_PAGES

    def expect_there(self) -> None:
        """Raises StoreError if the files were removed, or replaced by those of another store."""
        if self._gone or (not self._closed and self.gone):
            raise self._lost()

    def expect_writable(self) -> None:
        """Raises StoreError where it cannot be: opened to be read, inside `reading`, gone."""
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
        """Everything read inside belongs to one moment, whatever is committed meanwhile; nests."""
        with self._lock:
            self._awake()
            self._pinned += 1
            self._pinned_by = threading.get_ident()
            try:
                if self._pinned == 1 and not self._gathering:
                    # The first SELECT, not BEGIN, is what fixes the moment.
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
        """Whether the files were removed, or replaced by those of another store."""
        if not self._gone and self._folder is not None:
            with self._lock:
                found = self._found()
                self._gone = found is None if self.resting else found != self._file
        return self._gone

    @contextlib.contextmanager
    def idle(self) -> Iterator[bool]:
        """Whether nobody is using it; if so, others wait until the end of the `with` block."""
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            inside = self._pinned or self._streams or self._connection.in_transaction
            yield not (self._closed or inside)
        finally:
            self._lock.release()

    def rest(self) -> None:
        """Gives its files back; the next use opens them again. Only inside `idle`."""
        if self._folder is not None and not self.resting:
            with contextlib.suppress(sqlite3.Error):
                self._disconnect()
            self.resting = True

    def _awake(self) -> None:
        """Opens the files again after `rest`; does not go on with those of another store."""
        self.asked = time.monotonic()
        if self._folder is None or self._pinned or self._writing:
            return
        self.expect_there()
        if self._closed:
            return
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
        """Device and number of the database's file; None where there is none."""
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
        """Close the connection; the last one folds the write-ahead log into the database."""
        with self._lock, contextlib.suppress(sqlite3.Error, OSError):
            self._gone = self.gone  # who still asks is told that, and not that it is closed
            if not self._closed:
                self._closed = True
                self._disconnect()

    def _connected(self, *, create: bool) -> sqlite3.Connection:
        """Opens the files; `_file` is held from then on until `_disconnect`."""
        before = self._found()  # held while it is opened, lest its locks are given up meanwhile
        with _descriptors.holding(before):
            connection = self._open(self._folder, create=create)
            self._file = self._found()
            _descriptors.hold(self._file)
        return connection

    def _disconnect(self) -> None:
        if not self.resting:
            try:
                self._connection.close()
            finally:
                _descriptors.release(self._file)


def store_folder(path: str | os.PathLike[str]) -> Path:
    """The folder that a path names now: absolute, with `~` and links resolved.

    Whatever opens a store resolves its path once, so that the store stays the one that was opened,
    also after the process has changed its folder or a link leads elsewhere.

    Raises:
        StoreError: A relative path, while the current folder is gone; `~NAME` of an unknown user;
            a path that the system cannot hold.
    """
    given = os.fspath(path)
    expanded = os.path.expanduser(given)
    if given.startswith("~") and expanded == given:
        user = given.split(os.sep, 1)[0]
        raise StoreError(
            f"{given}: expected a folder, got {user}, and no home folder of that user is known; "
            f"give an absolute path, or ./{given} for a folder of that name"
        )
    try:
        return Path(os.path.realpath(expanded))
    except ValueError as error:  # a NUL character, or a lone surrogate
        raise StoreError(
            f"path: expected a path that the system can hold, got {given!r:.80}; leave out NUL "
            "characters and lone surrogates"
        ) from error
    except FileNotFoundError as error:
        raise StoreError(
            f"{os.fspath(path)}: expected a folder, got a relative path, and the current folder is "
            "gone; give an absolute path"
        ) from error


def _nearest_store(folder: Path) -> Path | None:
    """The store that may have been meant by a folder that is none: inside it, or one like it."""
    with contextlib.suppress(OSError):
        entries = itertools.islice(folder.iterdir(), _ENTRIES) if folder.is_dir() else ()
        inside = list(filter(_is_store, entries))
        if len(inside) == 1:
            return inside[0]
    return nearest_path(folder, _is_store)


def _is_store(folder: Path) -> bool:
    return (folder / DATABASE_NAME).is_file()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, as after a rename."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


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
        # One that is not made whole is made anew: no journal needs to be on the disk before.
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = FULL")
        _create_tables(connection)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    os.replace(new, path)
    sync_folder(folder)
    # The folder may be new as well; one that may not be read cannot be synced.
    with contextlib.suppress(PermissionError):
        sync_folder(folder.parent)
