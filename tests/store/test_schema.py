"""The tables of a store: their text on the disk does not change, and one place names columns."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

from graphmem_torch.atoms import Atom
from graphmem_torch.store.database import Database
from graphmem_torch.store.folder import DATABASE_NAME
from graphmem_torch.store.schema import ATOM, CONTENT

# As the release before the tables had a file of their own wrote them, in order.
MASTER = """
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
    title      TEXT,
    expires,
    ttl
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

CREATE TABLE pin (node INTEGER PRIMARY KEY, pinned INTEGER NOT NULL);

CREATE TABLE found_type (
    node         INTEGER PRIMARY KEY,
    type         TEXT NOT NULL,
    decay_factor REAL,
    source       TEXT NOT NULL
);

CREATE TABLE edge_parts (
    block    INTEGER PRIMARY KEY,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL
);

CREATE TABLE alias (
    entry INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE,
    node  INTEGER NOT NULL
);

CREATE TABLE alias_vector (
    entry    INTEGER PRIMARY KEY,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL
);

CREATE TRIGGER alias_gone AFTER DELETE ON alias BEGIN
    DELETE FROM alias_vector WHERE entry = old.entry;
END;

CREATE INDEX alias_node ON alias (node);

CREATE TABLE stored_at (
    start INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    time  REAL NOT NULL
);

CREATE TABLE use (
    node    INTEGER PRIMARY KEY,
    count   INTEGER NOT NULL,
    last    REAL NOT NULL,
    earlier BLOB NOT NULL,
    entry   INTEGER NOT NULL
);

CREATE TABLE change (
    entry INTEGER PRIMARY KEY,
    state TEXT NOT NULL UNIQUE,
    cut   BLOB,
    gone  BLOB
);

CREATE TABLE source (
    source  INTEGER PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE,
    label   TEXT NOT NULL,
    digest  TEXT,
    stamp   TEXT NOT NULL,
    reading TEXT NOT NULL,
    next    INTEGER NOT NULL
);

CREATE TABLE source_atom (
    source INTEGER NOT NULL,
    id     TEXT NOT NULL,
    PRIMARY KEY (source, id)
) WITHOUT ROWID;

CREATE INDEX source_atom_id ON source_atom (id);

CREATE INDEX atom_session ON atom (session) WHERE session IS NOT NULL;

CREATE INDEX atom_said ON atom (length(text), substr(text, 1, 8)) WHERE kind != 'concept';

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
    title      TEXT,
    expires,
    ttl
);

CREATE INDEX version_current ON version (current);

CREATE TABLE importance (
    node  INTEGER PRIMARY KEY,
    value REAL NOT NULL,
    time  REAL NOT NULL,
    uses  INTEGER NOT NULL
);

CREATE TABLE insight (node INTEGER PRIMARY KEY, said TEXT NOT NULL);

CREATE TABLE unwiped (node INTEGER PRIMARY KEY);

CREATE TABLE receipt (
    entry  INTEGER PRIMARY KEY,
    time   REAL NOT NULL,
    atoms  INTEGER NOT NULL,
    digest TEXT NOT NULL
);

CREATE INDEX use_entry ON use (entry);

CREATE TABLE learned (
    entry    INTEGER PRIMARY KEY,
    kind     TEXT NOT NULL UNIQUE,
    stop     INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    value    TEXT NOT NULL
);

CREATE TABLE feedback (
    entry    INTEGER PRIMARY KEY,
    time     REAL NOT NULL,
    question TEXT NOT NULL
);

CREATE TABLE feedback_atom (
    row   INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL,
    node  INTEGER NOT NULL,
    used  INTEGER NOT NULL
);

CREATE INDEX feedback_atom_entry ON feedback_atom (entry);

CREATE INDEX feedback_atom_node ON feedback_atom (node);

CREATE INDEX atom_procedural ON atom (node) WHERE type = 'procedural';

CREATE INDEX atom_event ON atom (node) WHERE event_time IS NOT NULL OR event_end IS NOT NULL;

CREATE TABLE validity (
    entry INTEGER PRIMARY KEY,
    node  INTEGER NOT NULL,
    start REAL,
    stop  REAL,
    by    INTEGER,
    known REAL NOT NULL
);

CREATE TABLE removal (
    entry INTEGER PRIMARY KEY,
    time  REAL NOT NULL,
    atoms INTEGER NOT NULL
);

CREATE TABLE keyed (
    key    BLOB PRIMARY KEY,
    digest BLOB
) WITHOUT ROWID;

CREATE TABLE keyed_atom (
    key BLOB NOT NULL,
    id  TEXT NOT NULL,
    PRIMARY KEY (id, key)
) WITHOUT ROWID;

CREATE TRIGGER keyed_gone AFTER DELETE ON atom BEGIN
    UPDATE keyed SET digest = NULL WHERE key IN (SELECT key FROM keyed_atom WHERE id = old.id);
    DELETE FROM keyed_atom WHERE id = old.id;
END;

CREATE INDEX atom_expires ON atom (expires) WHERE expires IS NOT NULL;

CREATE INDEX validity_node ON validity (node);

CREATE INDEX validity_by ON validity (by) WHERE by IS NOT NULL;

CREATE INDEX atom_links ON atom (node) WHERE links != '[]';

CREATE TABLE text_block (
    start    INTEGER PRIMARY KEY,
    count    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    numbers  BLOB NOT NULL,
    terms    BLOB NOT NULL
);
"""


def _read(folder: Path, sql: str) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(folder / DATABASE_NAME)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_new_store_has_the_tables_of_before_to_the_letter(tmp_path: Path) -> None:
    Database(tmp_path).close()
    made = _read(
        tmp_path,
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'sqlite_sequence' "
        "ORDER BY rowid",
    )
    assert "\n\n".join(f"{sql};" for (sql,) in made) == MASTER.strip()


def test_columns_of_content_are_the_fields_of_an_atom_in_order() -> None:
    fields = [field.name for field in dataclasses.fields(Atom) if field.init]
    named = {"edges": "links"}
    assert [named.get(name, name) for name in fields] == [column.name for column in CONTENT]


def test_older_store_is_given_the_columns_that_it_lacks(tmp_path: Path) -> None:
    later = [column.name for column in ATOM if column.later]
    Database(tmp_path).close()
    with sqlite3.connect(tmp_path / DATABASE_NAME) as connection:
        for index in ("atom_event", "atom_expires"):  # of later columns
            connection.execute(f"DROP INDEX {index}")
        for table in ("atom", "version"):
            for name in later:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    connection.close()
    reader = Database(tmp_path, readonly=True)
    assert reader.query(f"SELECT {', '.join(later)} FROM version") == []
    reader.close()
    Database(tmp_path).close()
    for table in ("atom", "version"):
        found = [row[1] for row in _read(tmp_path, f"PRAGMA table_info({table})")]
        assert found[-len(later) :] == later, table
