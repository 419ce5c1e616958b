"""Proof graphs: Metamath databases, modules of a library and Lean blueprints to atoms.

A statement becomes an atom whose id is its label, and what its proof uses becomes edges of type
dependency. A Metamath database or a library is a file of statements (JSON lines) with a table of
edges beside it; a blueprint is one JSON file with `nodes` and `edges`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from graphmem_torch.atoms import DEFAULT_EDGE_WEIGHT, Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.text.proof_edges import (
    check_acyclic,
    edges_beside,
    read_edge_table,
    set_name,
)
from graphmem_torch.text.source import decode, read_bytes

__all__ = ["blueprint_atoms", "library_atoms", "proof_format", "read_proofs"]

_NOTES = re.compile(
    r"\s*\((?:Contributed|Revised|Proof|New usage|Shortened|Moved|Proposed|Type)\b[^()]*"
    r"(?:\([^()]*\)[^()]*)*\)"
)
_MATHS = re.compile(r"`\s*([^`]*?)\s*`")
_REFERENCE = re.compile(r"~\s+(\S+)")
_FLAG = re.compile(r"^ok\s+")  # what is left of a blueprint's \leanok


def proof_format(path: Path) -> Literal["library", "blueprint"] | None:
    """What a file is by its content: statements as JSON lines, a blueprint, or something else.

    Of JSON lines only the first is looked at. What cannot be read is something else: whoever reads
    it says what is wrong.
    """
    try:
        if path.suffix.lower() == ".jsonl":
            with path.open("rb") as file:
                first = next((line for line in file if line.strip()), b"")
            return "library" if _is_proof_record(json.loads(first)) else None
        if path.suffix.lower() == ".json":
            return "blueprint" if _is_blueprint(json.loads(path.read_bytes())) else None
    except (OSError, ValueError, RecursionError):
        return None
    return None


def read_proofs(path: Path) -> list[Atom]:
    """The statements of one file, whichever of the formats it has.

    Raises:
        InputError: As `library_atoms` and `blueprint_atoms` do.
    """
    if path.suffix.lower() == ".jsonl":
        return list(library_atoms(path))
    where = str(path)
    return list(blueprint_atoms(decode(read_bytes(path), where), where))


def library_atoms(
    path: Path, *, prefix: str = "", origins: dict[str, str] | None = None
) -> Iterator[Atom]:
    """The statements of a Metamath database or the modules of a library, in the file's order.

    The file is read twice, a line at a time: only labels and edges are held.

    Args:
        path: JSON lines; the table of edges is found beside it (`edges_beside`).
        prefix: Of every id, where several sets go to one store.
        origins: Receives, for the id of each atom, its file and line.

    Raises:
        InputError: With file and line: a line that is no statement, a number or label that comes
            twice, no table of edges, or as `read_edge_table` does.
    """
    known: dict[int, str] = {}
    first: dict[str, int] = {}
    for line, record in _lines(path):
        number, label = record["id"], _label(record)
        if number in known or label in first:
            what = f"number {number}" if number in known else f"label {label!r}"
            raise InputError(f"{what} comes a second time", where=f"{path}:{line}")
        known[number], first[label] = label, line
    if not known:
        raise InputError("expected statements, got an empty file", where=str(path))
    # A proof in a circle proves nothing; modules in a circle are only badly kept books.
    uses = read_edge_table(edges_beside(path), known, circles="module" in record)
    session = set_name(path)
    for line, record in _lines(path):
        links = _links([known[used] for used in uses.get(record["id"], ())], prefix)
        atom = _module(record) if "module" in record else _statement(record)
        name = prefix + _label(record)
        if origins is not None:
            origins[name] = f"{path}:{line}"
        yield Atom(name, atom[1], kind=atom[0], session=session, meta=atom[2], edges=links)


def blueprint_atoms(text: str, where: str, *, prefix: str = "") -> Iterator[Atom]:
    """The statements of a Lean blueprint, in the file's order.

    Args:
        text: JSON with `nodes` (label, kind, title, statement) and `edges` ([user, used, part]).
        where: File it came from, for messages.
        prefix: Of every id, where several sets go to one store.

    Raises:
        InputError: Not such JSON, a label that comes twice, an edge to a label that is not there,
            or dependencies in a circle.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected JSON, got none: {error}", where=where) from error
    if not _is_blueprint(data):
        raise InputError(
            'expected a blueprint, {"nodes": [{"label": ...}], "edges": [[user, used]]}',
            where=where,
        )
    number: dict[str, int] = {}
    for place, node in enumerate(data["nodes"]):
        label = node["label"]
        if not isinstance(label, str) or not label.strip():
            raise InputError(f"node {place}: expected a label, got {label!r:.60}", where=where)
        if label in number:
            raise InputError(f"node {place}: label {label!r} comes a second time", where=where)
        number[label] = place
    uses = _blueprint_uses(data["edges"], number, where)
    labels = list(number)
    check_acyclic(uses, dict(enumerate(labels)), where)
    for place, node in enumerate(data["nodes"]):
        links = _links([labels[used] for used in uses.get(place, ())], prefix)
        title = _text(node, "title", where)
        body = _FLAG.sub("", _text(node, "statement", where)).strip()
        yield Atom(
            prefix + labels[place],
            f"{title or labels[place]}\n{body}" if body else title or labels[place],
            kind=_text(node, "kind", where) or "statement",
            session=set_name(Path(where)),
            meta={key: node[key] for key in ("lean", "file") if node.get(key)},
            edges=links,
        )


def _blueprint_uses(
    edges: Sequence[Any], number: Mapping[str, int], where: str
) -> dict[int, dict[int, int]]:
    uses: dict[int, dict[int, int]] = {}
    for place, edge in enumerate(edges):
        ends = edge[:2] if isinstance(edge, list) else []
        if len(ends) != 2 or not all(isinstance(end, str) for end in ends):
            raise InputError(f"edge {place}: expected [user, used], got {edge!r:.60}", where=where)
        for end in ends:
            if end not in number:
                raise InputError(f"edge {place}: there is no node {end!r}", where=where)
        if ends[0] == ends[1]:
            raise InputError(f"edge {place}: {ends[0]!r} uses itself; drop it", where=where)
        uses.setdefault(number[ends[0]], {})[number[ends[1]]] = 0
    return uses


def _is_proof_record(record: object) -> bool:
    """Whether one parsed JSON line is a statement of a proof database or a module of a library."""
    if not isinstance(record, Mapping) or "text" in record or type(record.get("id")) is not int:
        return False
    return {"label", "statement"} <= record.keys() or "module" in record


def _is_blueprint(data: object) -> bool:
    """Whether parsed JSON is a blueprint: labelled nodes, and edges between them."""
    if not isinstance(data, Mapping) or not isinstance(data.get("edges"), list):
        return False
    nodes = data.get("nodes")
    return (
        isinstance(nodes, list)
        and bool(nodes)
        and all(isinstance(node, Mapping) and "label" in node for node in nodes)
    )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    position = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                line = decode(raw, str(path), line=number, start=position)
                position += len(raw)
                if line.strip():
                    yield number, _record(line, f"{path}:{number}")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"expected a JSON object, got a line that is not JSON: {error}", where=where
        ) from error
    if not _is_proof_record(record):
        raise InputError(
            'expected a statement, {"id": number, "label": ..., "statement": ...}, or a module, '
            f'{{"id": number, "module": ...}}, got {line.strip()[:60]!r}',
            where=where,
        )
    assert isinstance(record, dict)
    if not _label(record).strip():
        raise InputError("expected a label, got none", where=where)
    for field in ("label", "kind", "statement", "comment", "module", "doc"):
        _text(record, field, where)
    return record


def _statement(record: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Kind, text and meta of a Metamath statement."""
    statement, comment = record["statement"] or "", record.get("comment") or ""
    readable = _REFERENCE.sub(r"\1", _MATHS.sub(r"\1", _NOTES.sub("", comment))).strip()
    text = f"{record['label']}: {statement}"
    kind = record.get("kind") or "theorem"
    if kind == "axiom_or_syntax":
        # What asserts nothing only says how to write a formula.
        kind = "axiom" if statement.startswith("|-") else "syntax"
        if kind == "axiom" and record["label"].startswith("df-"):
            kind = "definition"
    return kind, f"{text}\n{readable}" if readable else text, {"comment": comment}


def _module(record: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Kind, text and meta of a module of a library."""
    doc = (record.get("doc") or "").strip()
    rest = {key: value for key, value in record.items() if key not in ("id", "module", "doc")}
    return "module", f"{record['module']}\n{doc}" if doc else record["module"], rest


def _label(record: Mapping[str, Any]) -> str:
    return str(record["module"] if "module" in record else record["label"])


def _links(labels: Sequence[str], prefix: str) -> tuple[Link, ...]:
    weight = DEFAULT_EDGE_WEIGHT[EdgeType.DEPENDENCY]
    return tuple(Link(prefix + label, EdgeType.DEPENDENCY, weight) for label in labels)


def _text(record: Mapping[str, Any], field: str, where: str) -> str:
    value = record.get(field)
    if value is not None and not isinstance(value, str):
        raise InputError(f'expected "{field}" to be a string, got {value!r:.60}', where=where)
    return value or ""
