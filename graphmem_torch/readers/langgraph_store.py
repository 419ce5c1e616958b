"""Items of LangGraph's long-term store: its SQLite database, or a dump of its Postgres tables.

Layouts of langgraph-checkpoint-sqlite 3.1 (`langgraph/store/sqlite/base.py`) and
langgraph-checkpoint-postgres 3.2. An item keeps its namespace, key and value in `meta`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.exact import load_json
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.readers.langgraph_items import item_fields, value_text
from graphmem_torch.readers.moved import EMBEDDING, MovedMemories
from graphmem_torch.text.times import parse_duration

__all__ = [
    "is_langgraph_database",
    "is_langgraph_dump",
    "read_langgraph_database",
    "read_langgraph_dump",
]

_COLUMNS = ("prefix", "key", "value", "created_at", "updated_at", "expires_at", "ttl_minutes")
_NEEDED = frozenset(_COLUMNS[:5])
_LAST = 4  # last migration that this reader knows
_COPY = lazy_pattern(r'^COPY (?:"?\w+"?\.)?"?(\w+)"? \(([^)]*)\) FROM stdin;$', re.MULTILINE)
_BEGINS, _ENDS = "-- PostgreSQL database dump\n", "-- PostgreSQL database dump complete"
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPED = lazy_pattern(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)")


def is_langgraph_database(tables: Mapping[str, set[str]]) -> bool:
    """Return whether a database with these tables and columns is LangGraph's store."""
    return tables.get("store", set()) >= _NEEDED


def read_langgraph_database(connection: sqlite3.Connection, found: MovedMemories) -> None:
    """Read the items of a database, with the time at which they expire.

    Args:
        connection: Open database.
        found: Collection that receives the items.

    Raises:
        InputError: The layout is newer than this reader.
    """
    there = {row[1] for row in connection.execute("PRAGMA table_info(store)")}
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if "store_migrations" in tables:
        (last,) = connection.execute("SELECT max(v) FROM store_migrations").fetchone()
        _expect_known(last)
    if "store_vectors" in tables:
        found.losses[EMBEDDING] += connection.execute(
            "SELECT count(*) FROM store_vectors"
        ).fetchone()[0]
    names = [name for name in _COLUMNS if name in there]
    sql = f"SELECT {', '.join(names)} FROM store ORDER BY created_at, rowid"
    _read_rows((dict(zip(names, row, strict=True)) for row in connection.execute(sql)), found)


def is_langgraph_dump(text: str) -> bool:
    """Return whether a text is an SQL dump with the table of LangGraph's store."""
    return any(
        match[1] == "store" and {*_names(match[2])} >= _NEEDED for match in _COPY.finditer(text)
    )


def read_langgraph_dump(text: str, found: MovedMemories) -> None:
    """Read the items of a dump in plain SQL, as `pg_dump` writes it.

    Args:
        text: The dump, for which `is_langgraph_dump` is true.
        found: Collection that receives the items.

    Raises:
        InputError: The dump was cut off, or its layout is newer than this reader.
    """
    whole = _BEGINS not in text or _ENDS in text
    for match in _COPY.finditer(text):
        table, names = match[1], _names(match[2])
        body, ended, _ = text[match.end() + 1 :].partition("\\.\n")
        if not whole or not (ended or body.endswith("\\.")):
            raise InputError(
                "expected a whole dump, got one that was cut off; dump the database again"
            )
        lines = [line for line in body.removesuffix("\\.").split("\n") if line]
        rows = ([_plain(each) for each in line.split("\t")] for line in lines)
        if table == "store_migrations":
            _expect_known(max((int(row[0] or 0) for row in rows), default=0))
        elif table == "store_vectors":
            found.losses[EMBEDDING] += len(lines)
        elif table == "store":
            dicts = [dict(zip(names, row, strict=False)) for row in rows]
            _read_rows(iter(sorted(dicts, key=lambda row: str(row["created_at"]))), found)
    found.losses += type(found.losses)()  # without kinds that are not lost


def _names(listed: str) -> list[str]:
    return [name.strip().strip('"') for name in listed.split(",")]


def _plain(field: str) -> str | None:
    """Return the value of a field of `COPY`; None for NULL."""
    if field == "\\N":
        return None

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "01234567":
            return chr(int(code, 8))
        if code[0] == "x" and len(code) > 1:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return _ESCAPED.sub(character, field)


def _expect_known(last: int | None) -> None:
    if last is not None and last > _LAST:
        raise InputError(
            f"expected a store of LangGraph with at most migration {_LAST}, got {last}; upgrade "
            "graphmem_torch"
        )


def _read_rows(rows: Iterator[Mapping[str, Any]], found: MovedMemories) -> None:
    begun: dict[str, int] = {}
    for number, row in enumerate(rows):
        prefix, key = str(row["prefix"]), str(row["key"])
        try:
            value = load_json(_text(row["value"]))
        except ValueError as error:
            raise InputError(
                f"item {key!r:.60} of {prefix!r:.60}: expected JSON, got {error}; copy the "
                "database again"
            ) from error
        if not isinstance(value, dict):
            raise InputError(
                f"item {key!r:.60} of {prefix!r:.60}: expected an object, got {value!r:.60}; "
                "correct it there"
            )
        created, updated = (found.moment(row[name]) for name in ("created_at", "updated_at"))
        expires = found.moment(row.get("expires_at"))
        fields = item_fields(
            prefix.split("."),
            key,
            value,
            value_text(value),
            created=_iso(created),
            updated=_iso(updated),
            order=(begun.setdefault(prefix, number), number),
        )
        found.add(
            **fields,
            time=updated,
            expires=expires,
            ttl=None if expires is None else _seconds(row.get("ttl_minutes"), found),
        )


def _seconds(minutes: Any, found: MovedMemories) -> float | None:
    """Return the time to live of a row in seconds; None for none.

    An item put with 0 minutes or fewer has expired when it was put, as its `expires_at` says.
    Counts what is no number.
    """
    try:
        seconds = 60.0 * float(0 if minutes is None else minutes)
        return None if seconds <= 0 else parse_duration(seconds)
    except (TypeError, ValueError):  # also an InputError
        found.losses["time to live that cannot be read"] += 1
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _iso(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds or 0.0, UTC).isoformat()
