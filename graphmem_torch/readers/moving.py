"""Memories of other programs: detects the format by content, and reads a file whole.

Formats: `mem0`, `zep` (and Graphiti), `letta`, `langgraph`, `chroma`, each in the module of its
name, and `mcp`, the memory.jsonl of the reference memory server (`entities`). `graphmem index`
reads exports of chats.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from graphmem_torch.errors import InputError, unknown
from graphmem_torch.exact import load_json
from graphmem_torch.readers import MOVED_FORMATS
from graphmem_torch.readers.chroma import is_chroma_database, read_chroma_database
from graphmem_torch.readers.entities import is_graph_line, read_graph
from graphmem_torch.readers.langgraph_store import (
    is_langgraph_database,
    is_langgraph_dump,
    read_langgraph_database,
    read_langgraph_dump,
)
from graphmem_torch.readers.letta import is_letta, read_letta
from graphmem_torch.readers.mem0 import (
    is_mem0_database,
    is_mem0_json,
    read_mem0_database,
    read_mem0_json,
)
from graphmem_torch.readers.moved import MovedMemories, columns_of, sqlite_copy
from graphmem_torch.readers.source import decode, parse_json, read_bytes
from graphmem_torch.readers.zep import is_zep, read_zep

__all__ = ["read_moved"]

_SQLITE = b"SQLite format 3\0"
_DUMP = b"PGDMP"  # custom format of pg_dump
_CHROMA = "chroma.sqlite3"

_Tables = Mapping[str, set[str]]


class _Format(NamedTuple):
    """Format of a program, in up to three forms.

    Attributes:
        database: Whether the tables of a database are of it, and its reader.
        data: Whether parsed JSON is of it, and its reader.
        text: Whether another text is of it, and its reader.
    """

    database: (
        tuple[
            Callable[[_Tables], bool],
            Callable[[sqlite3.Connection, MovedMemories], None],
        ]
        | None
    ) = None
    data: tuple[Callable[[Any], bool], Callable[[Any, MovedMemories], None]] | None = None
    text: tuple[Callable[[str], bool], Callable[[str, MovedMemories], None]] | None = None


def _is_graph(text: str) -> bool:
    return is_graph_line(text.lstrip().partition("\n")[0].encode())


def _read_graph(text: str, found: MovedMemories) -> None:
    atoms = read_graph(text.encode().splitlines(keepends=True), "", losses=found.losses)
    found.spaces.setdefault(None, []).extend(atoms)


_FORMATS = {
    "mem0": _Format((is_mem0_database, read_mem0_database), (is_mem0_json, read_mem0_json)),
    "zep": _Format(data=(is_zep, read_zep)),
    "letta": _Format(data=(is_letta, read_letta)),
    "langgraph": _Format(
        (is_langgraph_database, read_langgraph_database),
        text=(is_langgraph_dump, read_langgraph_dump),
    ),
    "chroma": _Format((is_chroma_database, read_chroma_database)),
    "mcp": _Format(text=(_is_graph, _read_graph)),
}


def read_moved(path: Path, format: str | None = None) -> MovedMemories:
    """Read a file of another program whole.

    Args:
        path: The file, or a folder with Chroma's database.
        format: Name of the format; None tells it by the content.

    Raises:
        InputError: An unknown format, a file of none of them or of a newer layout, or one that was
            cut off.
    """
    if format is not None and format not in _FORMATS:
        raise InputError(unknown("format", format, MOVED_FORMATS))
    if path.is_dir():
        path = path / _CHROMA
    asked = _FORMATS if format is None else {format: _FORMATS[format]}
    found, where = MovedMemories(), str(path)
    if _begins_with(path, _SQLITE):
        with sqlite_copy(path) as connection:
            tables = columns_of(connection)
            for each in asked.values():
                if each.database is not None and each.database[0](tables):
                    return _read(each.database[1], connection, found, where)
        raise _foreign(where, asked, f"a database with {', '.join(sorted(tables)) or 'no tables'}")
    if _begins_with(path, _DUMP):
        raise InputError(
            "expected a dump in plain SQL, got one in a format of pg_dump; dump it with "
            "--format=plain",
            where=where,
        )
    text = decode(read_bytes(path), where)
    for each in asked.values():
        if each.text is not None and each.text[0](text):
            return _read(each.text[1], text, found, where)
    if not text.lstrip().startswith(("{", "[")):
        raise _foreign(where, asked, f"{text.strip()[:40]!r}")
    data = _parsed(text, where)
    for each in asked.values():
        if each.data is not None and each.data[0](data):
            return _read(each.data[1], data, found, where)
    keys = ", ".join(map(str, data)) if isinstance(data, Mapping) else f"{len(data)} entries"
    raise _foreign(where, asked, f"JSON of {keys or 'no keys':.80}")


def _begins_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False  # `read_bytes` says why


def _parsed(text: str, where: str) -> Any:
    """Parse JSON, or JSON lines as a list."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    do = "copy the whole file again"
    try:
        load_json(lines[0][1])
    except (ValueError, RecursionError):  # goes on in the next line, or has too many levels
        return parse_json(text, where, do=do)
    if len(lines) == 1:
        return parse_json(text, where, do=do)
    return [parse_json(line, where, line=number, do=do) for number, line in lines]


def _read(
    read: Callable[[Any, MovedMemories], None], given: Any, found: MovedMemories, where: str
) -> MovedMemories:
    """Run a reader; an error inside it is a fault of the file."""
    try:
        read(given, found)
    except InputError as error:
        raise InputError(str(error), where=where) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"expected the layout that this release reads, got another ({error!r:.80}); upgrade "
            "graphmem_torch, or export it anew",
            where=where,
        ) from error
    return found


def _foreign(where: str, asked: Mapping[str, _Format], got: str) -> InputError:
    return InputError(
        f"expected an export of graphmem, or memories of {', '.join(asked)}, got {got}; `graphmem "
        "index` reads texts and chats",
        where=where,
    )
