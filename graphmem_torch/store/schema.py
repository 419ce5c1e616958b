"""Schema of a store: the only definition of its tables, indexes and columns.

A new column of atoms begins with one line of `ATOM`. The tables `atom` and `version`, the columns
added to older stores, and the rows of `store.records` follow from it. CONTRIBUTING lists the rest:
the field of `Atom`, and its JSON form.
"""

from __future__ import annotations

import functools
import sqlite3
import threading
import uuid
from typing import Literal, NamedTuple

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.errors import InputError, StoreError

__all__ = [
    "ATOM",
    "ATOM_COLUMNS",
    "CONTENT",
    "LINKED_BY",
    "NAMED_BY",
    "ORDERED_BY",
    "OVERWRITES",
    "RESERVED",
    "SCHEMA_VERSION",
    "VERSION_COLUMNS",
    "add_missing_tables",
    "check_version",
    "create_tables",
    "own_key",
    "show_missing_columns",
]

SCHEMA_VERSION = 1
"""Schema version that this code writes; `check_version` checks which it reads."""

OVERWRITES = "store.overwrites"
"""Key in `meta` of databases that have always overwritten freed pages."""


LINKED_BY = "concepts"
"""Key in `meta` of the method that finds concepts; only stores filled by linking have it."""

NAMED_BY = "concepts.names"
"""Key in `meta` of the vectors of names of concepts: "words"; else, as in older stores, those of
the encoder."""

ORDERED_BY = "turns"
"""Key in `meta` of the order of a session's turns: "time", or missing in older stores."""

RESERVED = "store."
"""Prefix of the meta strings that belong to the store itself."""


class Column(NamedTuple):
    """A column of the tables of atoms and of their earlier versions.

    Attributes:
        name: Name of the column.
        declared: Type and constraints in SQL.
        holds: Content: a field of `Atom` as text, seconds since the epoch, a duration in seconds or
            JSON; else a key or a hash.
        version: Whether `version` has it too; False for the hash that finds equal texts.
        later: Whether tables of older releases lack it.
    """

    name: str
    declared: str
    holds: Literal["text", "seconds", "duration", "json", "key", "hash"]
    version: bool = True
    later: bool = False


ATOM = (
    Column("node", "INTEGER PRIMARY KEY AUTOINCREMENT", "key"),
    Column("id", "TEXT NOT NULL UNIQUE", "text"),
    Column("text", "TEXT NOT NULL", "text"),
    Column("kind", "TEXT NOT NULL", "text"),
    Column("speaker", "TEXT", "text"),
    Column("session", "TEXT", "text"),
    Column("time", "", "seconds"),
    Column("event_time", "", "seconds"),
    Column("type", "TEXT", "text"),
    Column("meta", "TEXT NOT NULL", "json"),
    Column("links", "TEXT NOT NULL", "json"),
    Column("text_hash", "BLOB NOT NULL", "hash", version=False),
    Column("digest", "BLOB NOT NULL", "hash"),
    Column("event_end", "", "seconds", later=True),
    Column("title", "TEXT", "text", later=True),
    Column("expires", "", "seconds", later=True),
    Column("ttl", "", "duration", later=True),
)
"""Columns of `atom`, in the order of the table; fields are in the order of `Atom`."""

CONTENT = tuple(column for column in ATOM if column.holds not in ("key", "hash"))
"""Columns that hold the fields of an `Atom`, in the order of the fields."""

ATOM_COLUMNS = ", ".join(["node", *(column.name for column in CONTENT)])
"""Columns that `records.atom_from_row` reads; `records.atom_to_row` adds text_hash and digest."""

VERSION_COLUMNS = f"{ATOM_COLUMNS.removeprefix('node, ')}, digest"
"""Columns that a version shares with its atom, except the node number."""

_LATER_COLUMNS = [column.name for column in ATOM if column.later]

# Further columns of a version: its current node, and the time at which it was replaced.
_OF_VERSIONS = [("current", "INTEGER NOT NULL"), ("until", "REAL NOT NULL")]
_VERSION_KEY = "INTEGER PRIMARY KEY"  # numbers come from `atom`, which never reuses one


def _table(name: str, columns: list[tuple[str, str]]) -> str:
    """Return the CREATE TABLE statement of some columns."""
    wide = max(len(column) for column, _ in columns)
    lines = (f"    {column:<{wide}} {declared}".rstrip() for column, declared in columns)
    body = ",\n".join(lines)
    return f"CREATE TABLE {name} (\n{body}\n)"


def _version_columns() -> list[tuple[str, str]]:
    """Return the columns of `version`: its own and those of `atom`; ids may repeat."""
    own = [
        (column.name, column.declared.replace(" UNIQUE", ""))
        for column in ATOM[1:]
        if column.version
    ]
    return [(ATOM[0].name, _VERSION_KEY), *_OF_VERSIONS, *own]


_TABLES = f"""
CREATE TABLE schema_version (version INTEGER NOT NULL);

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

{_table("atom", [(column.name, column.declared) for column in ATOM])};
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
    # A trigger, because older releases delete aliases too.
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
    # An index of whole texts would double their size.
    "atom_said": f"""
CREATE INDEX atom_said ON atom (length(text), substr(text, 1, 8)) WHERE kind != '{CONCEPT}'""",
    "version": _table("version", _version_columns()),
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
    # A trigger, so that every deletion of an atom runs it.
    "keyed_gone": """
CREATE TRIGGER keyed_gone AFTER DELETE ON atom BEGIN
    UPDATE keyed SET digest = NULL WHERE key IN (SELECT key FROM keyed_atom WHERE id = old.id);
    DELETE FROM keyed_atom WHERE id = old.id;
END""",
    "atom_expires": "CREATE INDEX atom_expires ON atom (expires) WHERE expires IS NOT NULL",
    "validity_node": "CREATE INDEX validity_node ON validity (node)",
    "validity_by": "CREATE INDEX validity_by ON validity (by) WHERE by IS NOT NULL",
    "atom_links": "CREATE INDEX atom_links ON atom (node) WHERE links != '[]'",
    "text_block": """
CREATE TABLE text_block (
    start    INTEGER PRIMARY KEY,
    count    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    numbers  BLOB NOT NULL,
    terms    BLOB NOT NULL
)""",
}
"""Tables, indexes and triggers that older stores of this version lack; older code ignores them."""

_COPYING = threading.Lock()  # not every build of SQLite lets threads share a connection


@functools.cache
def _tables() -> sqlite3.Connection:
    """Return an empty store in memory: copying its pages is faster than parsing the SQL."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(
        f"BEGIN; {_TABLES}"
        f"INSERT INTO schema_version VALUES ({SCHEMA_VERSION});"
        "INSERT INTO meta VALUES ('store.generation', '0');"
        f"INSERT INTO meta VALUES ('{OVERWRITES}', '1');"
        f"{' '.join(f'{table};' for table in _LATER.values())}"
        "COMMIT;"
    )
    return connection


def create_tables(connection: sqlite3.Connection) -> None:
    """Create an empty store in an empty database."""
    with _COPYING:
        _tables().backup(connection)
    connection.executescript(
        f"BEGIN; INSERT INTO meta VALUES ('store.state', '{uuid.uuid4().hex}');"
        # Identifies the store, in case another one replaces its files.
        f"PRAGMA user_version = {uuid.uuid4().int % 2**31};"
        "COMMIT;"
    )


def add_missing_tables(connection: sqlite3.Connection) -> None:
    """Create the tables, columns and indexes that a store of an older release lacks."""
    if _tables_without(connection):
        connection.execute("BEGIN IMMEDIATE")  # another writer may do the same
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
        # Another writer may do the same.
        connection.execute(_LATER[name].replace(name, f"IF NOT EXISTS {name}", 1))


def _tables_without(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the missing columns of each table that lacks some."""
    lacking = {}
    for table in ("atom", "version"):
        columns = {row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")}
        missing = [column for column in _LATER_COLUMNS if column not in columns]
        if columns and missing:
            lacking[table] = missing
    return lacking


def show_missing_columns(connection: sqlite3.Connection) -> None:
    """Add views that give missing columns as NULL, for read-only stores of older releases."""
    for table, columns in _tables_without(connection).items():
        # If a writer adds the column later, the first column of that name is read.
        empty = ", ".join(f"NULL AS {column}" for column in columns)
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {empty} FROM main.{table}")


def check_version(connection: sqlite3.Connection, place: str) -> None:
    """Refuse a database that this code would misread.

    Raises:
        StoreError: The database is no store, or its schema version is unknown.
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


def own_key(key: str) -> str:
    """Return a key for `meta_get` and `meta_set`; raises InputError if the prefix is reserved."""
    if key.startswith(RESERVED):
        raise InputError(
            f"key: expected one without the prefix {RESERVED!r}, got {key!r}. Rename it"
        )
    return key
