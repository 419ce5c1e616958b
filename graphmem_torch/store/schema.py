"""The tables of a store and their version.

Node numbers are consecutive and, because the key is AUTOINCREMENT, never given twice, not even
after a delete. Embeddings, token vectors and edges are blobs of blocks, one block for every
acknowledged batch, little-endian and row-major; `checksum` is the CRC-32 of a block's blobs in the
order of their columns.

`time` and `event_time` have no column type on purpose: SQLite would turn a whole number into a
float, and the digest of the atom would no longer match.
"""

from __future__ import annotations

import sqlite3
import uuid

from graphmem_torch.errors import StoreError

__all__ = ["SCHEMA_VERSION", "add_missing_tables", "check_version", "create_tables"]

SCHEMA_VERSION = 1
"""Version that this code writes; `check_version` says which it reads."""

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
    digest     BLOB NOT NULL
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
    "stored_at": """
CREATE TABLE stored_at (
    start INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    time  REAL NOT NULL
)""",
    "atom_procedural": "CREATE INDEX atom_procedural ON atom (node) WHERE type = 'procedural'",
}
"""What the first stores of this version do without; older code passes it over."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty store in an empty database, in one transaction."""
    connection.executescript(
        f"BEGIN; {_TABLES}"
        f"INSERT INTO schema_version VALUES ({SCHEMA_VERSION});"
        "INSERT INTO meta VALUES ('store.generation', '0');"
        f"INSERT INTO meta VALUES ('store.state', '{uuid.uuid4().hex}');"
        f"{' '.join(f'{table};' for table in _LATER.values())}"
        "COMMIT;"
    )


def add_missing_tables(connection: sqlite3.Connection) -> None:
    """Make the tables and indexes that a store of an older release does not have yet."""
    present = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    for name in _LATER.keys() - present:
        # Another writer of the same process may be as quick.
        connection.execute(_LATER[name].replace(name, f"IF NOT EXISTS {name}", 1))


def check_version(connection: sqlite3.Connection, place: str) -> None:
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
