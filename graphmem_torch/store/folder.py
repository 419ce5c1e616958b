"""Folder of a store: resolve its path, and create, find and open its database."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from graphmem_torch.errors import InputError, StoreError, nearest_path
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
"""Name of the database file in a store's folder."""

NAMESPACES_NAME = "namespaces"
"""Subfolder of a store's folder; each folder in it is a store, bound to the same encoder."""

BUSY_SECONDS = 30.0
"""Seconds that a connection waits for the locks of another."""

_NO_INDEX_FILE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_SMALLEST = 512  # bytes: SQLite's smallest page
_ENTRIES = 10_000  # maximum of a folder's entries searched for a store
_CACHE_KIB = 64 * 1024
_WAL_PAGES = 4096  # 16 MiB: the default of 1000 pages would checkpoint at every fourth batch


def connect(folder: Path | None, *, readonly: bool, create: bool) -> sqlite3.Connection:
    """Open the database of a folder, with all tables and columns that this release reads.

    Args:
        folder: The store's folder; None: a new database in memory.
        readonly: Whether to open it for reading only.
        create: Whether to create a missing database; ignored if `readonly`.

    Raises:
        StoreError: There is no store and none may be created, or its version is unknown.
        StoreDamagedError: The file is too short to be a database.
        sqlite3.Error, OSError: The database cannot be opened or changed.
    """
    if folder is None:
        connection = _connect(":memory:")
        create_tables(connection)
        return connection
    path = folder / DATABASE_NAME
    if create and not readonly and not path.exists():
        _create(folder)
    expect_store(folder)
    # SQLite takes a truncated file for a new database; a store's file is moved into place whole.
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
        StoreError: The folder holds no store; the message names the nearest one.
    """
    if not _is_store(folder):
        near = _nearest_store(folder)
        do = f"did you mean {near}?" if near else "index something first, or check the path"
        raise StoreError(f"{folder}: expected a store, got no {DATABASE_NAME} there; {do}")


def store_folder(path: str | os.PathLike[str]) -> Path:
    """Return the absolute folder of a path, with `~` and links resolved.

    The path is resolved once, when a store is opened. So the store stays the same if the process
    changes its working folder or a link changes its target.

    Raises:
        InputError: Not a path.
        StoreError: The path is relative while the current folder is gone, names an unknown user
            (`~NAME`), or cannot be held by the system.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path: expected a path, got {path!r:.80}; name the folder of the store")
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
    """Return a store that the caller may have meant: inside the folder, or of a similar name."""
    with contextlib.suppress(OSError):
        entries = itertools.islice(folder.iterdir(), _ENTRIES) if folder.is_dir() else ()
        inside = list(filter(_is_store, entries))
        if len(inside) == 1:
            return inside[0]
    return nearest_path(folder, _is_store)


def _is_store(folder: Path) -> bool:
    return (folder / DATABASE_NAME).is_file()


def folder_bytes(folder: Path | None) -> int:
    """Return the size of the files of a store's folder, without subfolders; 0 for None."""
    files = [] if folder is None else [path for path in folder.iterdir() if path.is_file()]
    return sum(path.stat().st_size for path in files)


def has_namespaces(folder: Path | None) -> bool:
    """Return whether a store has namespaces."""
    return folder is not None and any((folder / NAMESPACES_NAME).glob(f"*/{DATABASE_NAME}"))


def sync_folder(folder: Path) -> None:
    """Make changes of names in a folder durable, as after a rename."""
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
    """Create a database under another name, then move it into place atomically."""
    path = folder / DATABASE_NAME
    if (folder / f"{DATABASE_NAME}-wal").exists():
        raise damaged(str(folder), f"{DATABASE_NAME} is gone, but its write-ahead log is there")
    new = folder / f"{DATABASE_NAME}.new"
    for suffix in ("", "-wal", "-shm", "-journal"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    connection = _connect(_uri(new, "rwc"))
    try:
        # An incomplete database is made again, so no journal on disk is needed.
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = FULL")
        create_tables(connection)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    os.replace(new, path)
    sync_folder(folder)
    # The folder may be new as well; a parent without read permission cannot be synced.
    with contextlib.suppress(PermissionError):
        sync_folder(folder.parent)
