"""Memories of mem0: its history database, and the JSON of `get_all`, `search` or the API's export.

Layouts of mem0ai 2.2: `mem0/memory/storage.py` for the database, `MemoryItem` and the keys that
`Memory.get_all` promotes for the JSON.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from graphmem_torch.readers.moved import EMBEDDING, MovedMemories

__all__ = ["is_mem0_database", "is_mem0_json", "read_mem0_database", "read_mem0_json"]

_HISTORY = {"memory_id", "new_memory", "event", "created_at"}
_DAY = 86400.0
_OWN = frozenset({"id", "memory", "hash", "score", "created_at", "updated_at", "expiration_date"})
_FIELDS = frozenset({"actor_id", "run_id", "metadata"})


def is_mem0_database(tables: Mapping[str, set[str]]) -> bool:
    """Return whether a database with these tables and columns is mem0's history."""
    return tables.get("history", set()) >= _HISTORY


def read_mem0_database(connection: sqlite3.Connection, found: MovedMemories) -> None:
    """Read the last text of each memory in a history database, and the messages beside them.

    The database names no users and no metadata: those are in the vector store of mem0.

    Args:
        connection: Open database.
        found: Collection that receives the memories.
    """
    columns = {row[1] for row in connection.execute("PRAGMA table_info(history)")}
    extra = [name for name in ("updated_at", "is_deleted", "actor_id", "role") if name in columns]
    names = ["memory_id", "new_memory", "event", "created_at", *extra]
    last: dict[str, dict[str, Any]] = {}
    begun: dict[str, Any] = {}
    sql = f"SELECT {', '.join(names)} FROM history ORDER BY rowid"
    for values in connection.execute(sql):
        row = dict(zip(names, values, strict=True))
        name = str(row["memory_id"])
        gone = row["event"] == "DELETE" or bool(row.get("is_deleted"))
        if not gone and name in last and last[name]["new_memory"] != row["new_memory"]:
            found.losses["earlier version"] += 1
        begun.setdefault(name, row["created_at"])
        last[name] = row | {"gone": gone}
    for name, row in last.items():
        if row["gone"]:
            found.losses["deleted memory"] += 1
            continue
        created = begun[name]
        found.add(
            name,
            row["new_memory"],
            kind="observation",
            speaker=row.get("actor_id"),
            time=row.get("updated_at") or created,
            meta={"role": row.get("role"), "created_at": created},
        )
    messages = {row[1] for row in connection.execute("PRAGMA table_info(messages)")}
    if not messages >= {"id", "session_scope", "role", "content", "name", "created_at"}:
        return
    sql = "SELECT id, session_scope, role, content, name, created_at FROM messages ORDER BY rowid"
    for name, scope, role, content, speaker, created in connection.execute(sql):
        found.add(
            str(name), content, kind="turn", speaker=speaker or role, session=scope, time=created
        )


def is_mem0_json(data: object) -> bool:
    """Return whether parsed JSON is a list of mem0's memories, or a page of them."""
    listed = data.get("results") if isinstance(data, Mapping) else data
    if not isinstance(listed, list) or not (listed or isinstance(data, Mapping)):
        return False
    return all(isinstance(each, Mapping) and {"id", "memory"} <= each.keys() for each in listed)


def read_mem0_json(data: Any, found: MovedMemories) -> None:
    """Read memories with their users, metadata and expiration dates.

    Args:
        data: Parsed JSON for which `is_mem0_json` is true.
        found: Collection that receives the memories.
    """
    page = data if isinstance(data, Mapping) else {"results": data}
    if page.get("next"):
        found.losses["further page, which is not in the file"] += 1
    found.losses["relation"] += len(page.get("relations") or ())
    for each in page["results"]:
        if each.get("embedding") is not None or each.get("vector") is not None:
            found.losses[EMBEDDING] += 1
        more = {key: own for key, own in each.items() if key not in _OWN | _FIELDS}
        meta = more | dict(each.get("metadata") or {})
        if each.get("updated_at") not in (None, each.get("created_at")):
            meta["created_at"] = each.get("created_at")
        # mem0 shows a memory up to the end of that day, in UTC.
        last_day = found.moment(each.get("expiration_date"))
        found.add(
            str(each["id"]),
            each["memory"],
            kind="observation",
            speaker=each.get("actor_id"),
            session=each.get("run_id"),
            time=each.get("updated_at") or each.get("created_at"),
            meta={key: own for key, own in meta.items() if key not in ("embedding", "vector")},
            expires=None if last_day is None else last_day + _DAY,
        )
    found.losses += type(found.losses)()  # without kinds that are not lost
