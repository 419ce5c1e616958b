"""Where a store lies, and how its database is made, found and connected to."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from graphmem_torch.errors import StoreError, nearest_path
from graphmem_torch.store.failures import damaged
from graphmem_torch.store.schema import (
    add_missing_tables,
    check_version,
    create_tables,
    show_missing_columns,
)

__all__ = [
    "BUSY_SECONDS",
    "DATABASE_NAME",
    "NAMESPACES_NAME",
    "connect",
    "expect_store",
    "folder_bytes",
    "has_namespaces",
    "store_folder",
    "sync_folder",
]

DATABASE_NAME = "memory.sqlite"
"""The file of a store's folder that holds its database."""

NAMESPACES_NAME = "namespaces"
"""Folder inside that of a store; those in it are stores of their own, bound to the same encoder."""

BUSY_SECONDS = 30.0
"""Seconds that a connection waits for the locks of another."""

_NO_INDEX_FILE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_SMALLEST = 512  # bytes: SQLite's smallest page
_ENTRIES = 10_000  # of a folder that are looked at for a store
_CACHE_KIB = 64 * 1024
_WAL_PAGES = 4096  # 16 MiB: the default of 1000 pages would checkpoint at every fourth batch


def connect(folder: Path | None, *, readonly: bool, create: bool) -> sqlite3.Connection:
    """Open the database of a folder, with all tables and columns that this release reads.

    Args:
        folder: The store's folder; None: a new database in memory.
        readonly: Whether it is only read.
        create: Whether a missing one is made, unless it is only read.

    Raises:
        StoreError: There is no store and none may be made, or one of an unknown version.
        StoreDamagedError: The file is too short to be a database.
        sqlite3.Error, OSError: As SQLite and the system say.
    """
    if folder is None:
        connection = _connect(":memory:")
        create_tables(connection)
        return connection
    path = folder / DATABASE_NAME
    if create and not readonly and not path.exists():
        _create(folder)
    expect_store(folder)
    # SQLite takes such a stump for a new database; this one is moved into place whole.
    size = path.stat().st_size
    if size < _SMALLEST:
        raise damaged(str(folder), f"{DATABASE_NAME} has been cut to {size} bytes")
    connection = _connect_to_read(path) if readonly else _connect(_uri(path, "rw"))
    try:
        check_version(connection, str(folder))
        if readonly:
            show_missing_columns(connection)
        else:
            add_missing_tables(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    except BaseException:
        connection.close()
        raise
    return connection


def expect_store(folder: Path) -> None:
    """Check that a folder holds a store.

    Raises:
        StoreError: It does not; names the nearest store.
    """
    if not _is_store(folder):
        near = _nearest_store(folder)
        do = f"did you mean {near}?" if near else "index something first, or check the path"
        raise StoreError(f"{folder}: expected a store, got no {DATABASE_NAME} there; {do}")


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


def folder_bytes(folder: Path | None) -> int:
    """Size of the files of a store's folder, without what is in folders inside it; None: 0."""
    files = [] if folder is None else [path for path in folder.iterdir() if path.is_file()]
    return sum(path.stat().st_size for path in files)


def has_namespaces(folder: Path | None) -> bool:
    """Whether a store has namespaces."""
    return folder is not None and any((folder / NAMESPACES_NAME).glob(f"*/{DATABASE_NAME}"))


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
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
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
        create_tables(connection)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    os.replace(new, path)
    sync_folder(folder)
    # The folder may be new as well; one that may not be read cannot be synced.
    with contextlib.suppress(PermissionError):
        sync_folder(folder.parent)
