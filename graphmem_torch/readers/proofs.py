"""Read proof graphs as atoms: Metamath databases, modules of a library and Lean blueprints.

A statement becomes an atom with its label as id, and the statements that its proof uses become
edges of type dependency. A Metamath database or a library is a file of statements (JSON lines) with
a table of edges beside it. A blueprint is one JSON file with `nodes` and `edges`.
"""

from __future__ import annotations

import graphlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from graphmem_torch.atoms import DEFAULT_EDGE_WEIGHT, Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.readers.source import decode, decoded_lines, parse_json, raw_lines, read_bytes

__all__ = [
    "check_acyclic",
    "edges_beside",
    "is_edge_table",
    "proof_format",
    "read_edge_table",
    "read_proofs",
    "set_name",
    "set_names",
]
_log = logging.getLogger(__name__)

Uses = dict[int, dict[int, int]]
"""For each statement with dependencies: the numbers of the used ones, with the line of each."""


def set_name(path: Path) -> str:
    """Return the set of a file: `nf` of `nf_nodes.jsonl`, `a_plan` of `a_plan.json`."""
    # Only files of statements have a table that shares the first part of their name.
    shared = path.stem.rpartition("_")[0] if path.suffix.lower() == ".jsonl" else ""
    return shared or path.stem


def set_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return unique names of several sets by file.

    Raises:
        InputError: Two sets with one name.
    """
    owner: dict[str, Path] = {}
    for path in paths:
        other = owner.setdefault(set_name(path), path)
        if other.resolve() != path.resolve():
            raise InputError(
                f"expected a set of its own, got {set_name(path)!r}, which is also that of "
                f"{other}; rename one of the files",
                where=str(path),
            )
    return {path: set_name(path) for path in paths}


def is_edge_table(path: Path) -> bool:
    """Return whether a file's name is that of the table of edges of statements beside it."""
    return path.name.endswith("edges.tsv") and any(
        path.name.startswith(f"{set_name(nodes)}_") for nodes in path.parent.glob("*.jsonl")
    )


def edges_beside(nodes: Path) -> Path:
    """Return the table of edges of a file of nodes, found by its name.

    The part of the name before the last `_` names the set: beside `nf_nodes.jsonl` it is
    `nf_edges.tsv` or another `nf_*edges.tsv`.

    Raises:
        InputError: No table, or several.
    """
    name = set_name(nodes)
    exact = nodes.with_name(f"{name}_edges.tsv")
    if exact.is_file():
        return exact
    found = sorted(
        path
        for path in nodes.parent.glob("*edges.tsv")
        if path.name.startswith(f"{name}_") and path.is_file()
    )
    if len(found) != 1:
        there = ", ".join(path.name for path in found) or "none"
        raise InputError(
            f"expected the edges of these statements beside them, as {exact.name}, got {there}; "
            "put the file there",
            where=str(nodes),
        )
    return found[0]


def read_edge_table(path: Path, known: Mapping[int, str], *, circles: bool = False) -> Uses:
    """Read a table of edges: a line of names, then `user<TAB>used` by number in each line.

    Further columns, duplicate edges and blank lines are ignored.

    Args:
        path: Path of the table.
        known: Labels of the statements by number.
        circles: Whether a circle, as between modules, causes a warning instead of an error.

    Raises:
        InputError: Invalid line, unknown number, a statement that uses itself, or a circle
            (`check_acyclic`); names file and line.
    """
    uses: Uses = {}
    for number, line in decoded_lines(raw_lines(path), str(path)):
        if number > 1 or line[0].isdigit():
            user, used = _ends(line, known, f"{path}:{number}")
            uses.setdefault(user, {}).setdefault(used, number)
    try:
        check_acyclic(uses, known, str(path))
    except InputError as error:
        if not circles:
            raise
        _log.warning("%s", error)
    return uses


def check_acyclic(uses: Uses, known: Mapping[int, str], where: str) -> None:
    """Raise `InputError` if statements use each other in a circle; names it and its line."""
    try:
        graphlib.TopologicalSorter(uses).prepare()
    except graphlib.CycleError as error:
        # A sorter lists a circle against its arrows: each uses the one before it.
        circle = error.args[1][::-1]
        line = uses[circle[0]][circle[1]]
        named = " uses ".join(known[node] for node in circle[:6])
        raise InputError(
            f"expected dependencies without a circle, got: {named}"
            f"{' ...' if len(circle) > 6 else ''}; drop one of these edges",
            where=f"{where}:{line}" if line else where,
        ) from error


def _ends(line: str, known: Mapping[int, str], where: str) -> tuple[int, int]:
    fields = line.rstrip("\r\n").split("\t")
    if len(fields) < 2 or not all(field.strip().isdecimal() for field in fields[:2]):
        raise InputError(
            f"expected the numbers of two statements with a tab between them, got {line[:60]!r}; "
            "correct the line",
            where=where,
        )
    user, used = int(fields[0]), int(fields[1])
    for end in (user, used):
        if end not in known:
            raise InputError(
                f"expected the number of a statement, got {end}; add it, or drop the edge",
                where=where,
            )
    if user == used:
        raise InputError(
            f"expected two statements, got {known[user]!r} twice; drop this edge", where=where
        )
    return user, used


_NOTES = lazy_pattern(
    r"\s*\((?:Contributed|Revised|Proof|New usage|Shortened|Moved|Proposed|Type)\b[^()]*"
    r"(?:\([^()]*\)[^()]*)*\)"
)
_MATHS = lazy_pattern(r"`\s*([^`]*?)\s*`")
_REFERENCE = lazy_pattern(r"~\s+(\S+)")
_FLAG = lazy_pattern(r"^ok\s+")  # remains of a blueprint's \leanok


def proof_format(path: Path) -> Literal["library", "blueprint"] | None:
    """Return the format of a file by its content: JSON lines of statements, a blueprint, or None.

    Only the first JSON line is tested. An unreadable file is None; reading it raises the error.
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


def read_proofs(
    path: Path, *, prefix: str = "", origins: dict[str, str] | None = None
) -> Iterator[Atom]:
    """Yield the statements of one file in any of the formats, in the file's order.

    Args:
        path: Path of JSON lines of a database or library, or of JSON of a blueprint.
        prefix: Start of every id, for several sets in one store.
        origins: Mapping from atom id to file and (JSON lines) line; updated.

    Raises:
        InputError: Invalid content, see `_library_atoms` and `_blueprint_atoms`; names file and
            line.
    """
    if path.suffix.lower() == ".jsonl":
        yield from _library_atoms(path, prefix, origins)
        return
    where = str(path)
    for atom in _blueprint_atoms(decode(read_bytes(path), where), where, prefix):
        if origins is not None:
            origins[atom.id] = where
        yield atom


def _library_atoms(path: Path, prefix: str, origins: dict[str, str] | None) -> Iterator[Atom]:
    """Yield the statements of a Metamath database or the modules of a library.

    The file is read twice, line by line, so that only labels and edges are in memory.

    Raises:
        InputError: Invalid line, duplicate number or label, no table of edges beside the file, or
            an error of `read_edge_table`; names file and line.
    """
    known: dict[int, str] = {}
    labels: set[str] = set()
    for line, record in _records(path):
        number, label = record["id"], _label(record)
        if number in known or label in labels:
            what = f"number {number}" if number in known else f"label {label!r}"
            raise InputError(
                f"expected numbers and labels of their own, got {what} a second time; drop one",
                where=f"{path}:{line}",
            )
        known[number] = label
        labels.add(label)
    if not known:
        raise InputError("expected statements, got an empty file; leave it out", where=str(path))
    # A proof in a circle proves nothing; a circle of modules is only poor bookkeeping.
    uses = read_edge_table(edges_beside(path), known, circles="module" in record)
    session = set_name(path)
    for line, record in _records(path):
        links = _links([known[used] for used in uses.get(record["id"], ())], prefix)
        atom = _module(record) if "module" in record else _statement(record)
        name = prefix + _label(record)
        if origins is not None:
            origins[name] = f"{path}:{line}"
        yield Atom(name, atom[1], kind=atom[0], session=session, meta=atom[2], edges=links)


def _blueprint_atoms(text: str, where: str, prefix: str) -> Iterator[Atom]:
    """Yield the statements of a Lean blueprint.

    Its JSON has `nodes` (label, kind, title, statement) and `edges` ([user, used, part]).

    Raises:
        InputError: Other JSON, a duplicate label, an edge to an unknown label, or a circle of
            dependencies.
    """
    data = parse_json(text, where)
    if not _is_blueprint(data):
        raise InputError(
            'expected a blueprint, {"nodes": [{"label": ...}], "edges": [[user, used]]}, got other '
            "JSON; write it so",
            where=where,
        )
    number: dict[str, int] = {}
    for place, node in enumerate(data["nodes"]):
        label = node["label"]
        if not isinstance(label, str) or not label.strip():
            raise InputError(
                f"node {place}: expected a label, got {label!r:.60}; give it one", where=where
            )
        if label in number:
            raise InputError(
                f"node {place}: expected a label of its own, got {label!r} a second time; drop one",
                where=where,
            )
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


def _blueprint_uses(edges: Sequence[Any], number: Mapping[str, int], where: str) -> Uses:
    uses: Uses = {}
    for place, edge in enumerate(edges):
        ends = edge[:2] if isinstance(edge, list) else []
        if len(ends) != 2 or not all(isinstance(end, str) for end in ends):
            raise InputError(
                f"edge {place}: expected [user, used], got {edge!r:.60}; name two labels",
                where=where,
            )
        for end in ends:
            if end not in number:
                raise InputError(
                    f"edge {place}: expected the label of a node, got {end!r}; add it, or drop the "
                    "edge",
                    where=where,
                )
        if ends[0] == ends[1]:
            raise InputError(
                f"edge {place}: expected two nodes, got {ends[0]!r} twice; drop it", where=where
            )
        uses.setdefault(number[ends[0]], {})[number[ends[1]]] = 0
    return uses


def _is_proof_record(record: object) -> bool:
    """Return whether a JSON line is a statement of a proof database or a module of a library."""
    if not isinstance(record, Mapping) or "text" in record or type(record.get("id")) is not int:
        return False
    return {"label", "statement"} <= record.keys() or "module" in record


def _is_blueprint(data: object) -> bool:
    """Return whether parsed JSON is a blueprint: labelled nodes, and edges between them."""
    if not isinstance(data, Mapping) or not isinstance(data.get("edges"), list):
        return False
    nodes = data.get("nodes")
    return (
        isinstance(nodes, list)
        and bool(nodes)
        and all(isinstance(node, Mapping) and "label" in node for node in nodes)
    )


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the statements with their line numbers."""
    for number, line in decoded_lines(raw_lines(path), str(path)):
        yield number, _checked(parse_json(line, str(path), line=number), f"{path}:{number}")


def _checked(record: Any, where: str) -> dict[str, Any]:
    if not _is_proof_record(record):
        raise InputError(
            'expected a statement, {"id": number, "label": ..., "statement": ...}, or a module, '
            f'{{"id": number, "module": ...}}, got {record!r:.60}; write all lines so',
            where=where,
        )
    if not _label(record).strip():
        raise InputError("expected a label, got an empty one; give it one", where=where)
    for field in ("label", "kind", "statement", "comment", "module", "doc"):
        _text(record, field, where)
    return record


def _statement(record: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return kind, text and meta of a Metamath statement."""
    statement, comment = record["statement"] or "", record.get("comment") or ""
    readable = _REFERENCE.sub(r"\1", _MATHS.sub(r"\1", _NOTES.sub("", comment))).strip()
    text = f"{record['label']}: {statement}"
    kind = record.get("kind") or "theorem"
    if kind == "axiom_or_syntax":
        # A statement that asserts nothing only says how to write a formula.
        kind = "axiom" if statement.startswith("|-") else "syntax"
        if kind == "axiom" and record["label"].startswith("df-"):
            kind = "definition"
    return kind, f"{text}\n{readable}" if readable else text, {"comment": comment}


def _module(record: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return kind, text and meta of a module of a library."""
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
        raise InputError(
            f"{field}: expected a string, got {value!r:.60}; put it in quotes", where=where
        )
    return value or ""
