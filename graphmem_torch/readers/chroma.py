"""Documents and metadata of Chroma's database, `chroma.sqlite3`.

Layout of chromadb 1.5 (`chromadb/migrations`): a collection has a segment of metadata, whose
records are in `embeddings`, and their fields in `embedding_metadata`.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.readers.moved import EMBEDDING, MovedMemories

__all__ = ["is_chroma_database", "read_chroma_database"]

_TABLES = {
    "collections": {"id", "name"},
    "segments": {"id", "scope", "collection"},
    "embeddings": {"id", "segment_id", "embedding_id", "created_at"},
    "embedding_metadata": {"id", "key", "string_value", "int_value", "float_value", "bool_value"},
}
_LAST = {"sysdb": 10, "metadb": 6, "embeddings_queue": 2}
"""Last migration of each part that this reader knows."""

_DOCUMENT, _OWN = "chroma:document", "chroma:"
_VALUES = "key, string_value, int_value, float_value, bool_value"


def is_chroma_database(tables: Mapping[str, set[str]]) -> bool:
    """Return whether a database with these tables and columns is Chroma's."""
    return all(tables.get(name, set()) >= columns for name, columns in _TABLES.items())


def read_chroma_database(connection: sqlite3.Connection, found: MovedMemories) -> None:
    """Read the documents of all collections; of several, each into a namespace of its name.

    Args:
        connection: Open database.
        found: Collection that receives the documents.

    Raises:
        InputError: The layout is newer than this reader.
    """
    _expect_known(connection)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    collections = connection.execute("SELECT id, name FROM collections ORDER BY name").fetchall()
    for own, name in collections:
        space = name if len(collections) > 1 else None
        sql = "SELECT id FROM segments WHERE collection = ? AND scope = 'METADATA'"
        segments = [row[0] for row in connection.execute(sql, (own,))]
        for segment in segments:
            _read_segment(connection, segment, space, "embedding_metadata_array" in tables, found)
        if {"embeddings_queue", "max_seq_id"} <= tables:
            found.losses["record that Chroma has not applied yet"] += _waiting(
                connection, own, segments
            )
    found.losses += Counter()  # without kinds that are not lost


def _expect_known(connection: sqlite3.Connection) -> None:
    try:
        rows = connection.execute("SELECT dir, max(version) FROM migrations GROUP BY dir")
        newer = [(part, last) for part, last in rows if last > _LAST.get(part, last)]
    except sqlite3.OperationalError:  # without the table
        return
    if newer:
        part, last = newer[0]
        raise InputError(
            f"expected a database of Chroma with at most migration {_LAST[part]} of {part}, got "
            f"{last}; upgrade graphmem_torch"
        )


def _waiting(connection: sqlite3.Connection, own: str, segments: list[str]) -> int:
    """Return how many records of a collection its segment of metadata has not read."""
    last = 0
    for segment in segments:
        sql = "SELECT max(seq_id) FROM max_seq_id WHERE segment_id = ?"
        number = connection.execute(sql, (segment,)).fetchone()[0]
        last = max(last, number if isinstance(number, int) else 0)
    sql = "SELECT count(*) FROM embeddings_queue WHERE topic LIKE ? AND seq_id > ?"
    return int(connection.execute(sql, (f"%/{own}", last)).fetchone()[0])


def _read_segment(
    connection: sqlite3.Connection,
    segment: str,
    space: str | None,
    arrays: bool,
    found: MovedMemories,
) -> None:
    """Read the records of a segment, each with its embedding counted."""
    join = f"SELECT e.id, {_VALUES} FROM embeddings AS e JOIN {{}} AS m ON m.id = e.id"
    where = " WHERE segment_id = ? ORDER BY e.id, m.rowid"
    fields: dict[int, dict[str, Any]] = {}
    sql = join.format("embedding_metadata").replace("e.id, key", "e.id, m.key") + where
    for number, key, *values in connection.execute(sql, (segment,)):
        fields.setdefault(number, {})[key] = _value(values)
    sql = join.format("embedding_metadata_array").replace("e.id, key", "e.id, m.key") + where
    for number, key, *values in connection.execute(sql, (segment,)) if arrays else ():
        fields.setdefault(number, {}).setdefault(key, []).append(_value(values))
    sql = "SELECT id, embedding_id, created_at FROM embeddings WHERE segment_id = ? ORDER BY id"
    for number, name, created in connection.execute(sql, (segment,)):
        own = fields.get(number, {})
        found.losses[EMBEDDING] += 1
        found.losses["file or image by its address"] += "chroma:uri" in own
        found.add(
            name,
            own.get(_DOCUMENT),
            space=space,
            kind="chunk",
            time=created,
            meta={key: each for key, each in own.items() if not key.startswith(_OWN)},
        )


def _value(values: list[Any]) -> Any:
    """Return a value from the columns for texts, integers, floats and truth values."""
    text, whole, number, truth = values
    if truth is not None:
        return bool(truth)
    return next((each for each in (text, whole, number) if each is not None), None)
