"""Edges of a proof graph: which statement uses which, read from a table and checked."""

from __future__ import annotations

import graphlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphmem_torch.errors import InputError
from graphmem_torch.text.source import decode

__all__ = [
    "check_acyclic",
    "edges_beside",
    "is_edge_table",
    "read_edge_table",
    "set_name",
    "set_names",
]

_log = logging.getLogger(__name__)

Uses = dict[int, dict[int, int]]
"""For each statement that uses others: the numbers of those, each with the line that says so."""


def set_name(path: Path) -> str:
    """Name of the set a file belongs to: `nf` of `nf_nodes.jsonl`, `a_plan` of `a_plan.json`."""
    # Only statements have a table beside them that shares the first part of their name.
    shared = path.stem.rpartition("_")[0] if path.suffix.lower() == ".jsonl" else ""
    return shared or path.stem


def set_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Names of several sets by their files, none twice.

    Raises:
        InputError: Files whose sets would have the same name.
    """
    owner: dict[str, Path] = {}
    for path in paths:
        other = owner.setdefault(set_name(path), path)
        if other.resolve() != path.resolve():
            raise InputError(
                f"the set {set_name(path)!r} is also that of {other}; rename one of the files",
                where=str(path),
            )
    return {path: set_name(path) for path in paths}


def is_edge_table(path: Path) -> bool:
    """Whether a file is by its name the table of edges of statements beside it."""
    return path.name.endswith("edges.tsv") and any(
        path.name.startswith(f"{set_name(nodes)}_") for nodes in path.parent.glob("*.jsonl")
    )


def edges_beside(nodes: Path) -> Path:
    """The table of edges that belongs to a file of nodes, found by its name.

    What stands before the last `_` of the name is the set's: beside `nf_nodes.jsonl` it is
    `nf_edges.tsv` or another `nf_*edges.tsv`.

    Raises:
        InputError: There is none, or more than one.
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
    """The edges of a table: a line of names, then `user<TAB>used` by number in each line.

    Further columns are ignored, an edge that comes twice counts once, and blank lines are skipped.

    Args:
        path: The table.
        known: Labels of the statements by number.
        circles: Whether a circle is only warned of, as among modules, and not an error.

    Raises:
        InputError: With file and line: a line that is none, a number that no statement has, or a
            statement that uses itself; or as for `check_acyclic`.
    """
    uses: Uses = {}
    position = 0
    try:
        with path.open("rb") as lines:
            for number, raw in enumerate(lines, start=1):
                line = decode(raw, str(path), line=number, start=position)
                position += len(raw)
                if not line.strip() or (number == 1 and not line[0].isdigit()):
                    continue
                user, used = _ends(line, known, f"{path}:{number}")
                uses.setdefault(user, {}).setdefault(used, number)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    try:
        check_acyclic(uses, known, str(path))
    except InputError as error:
        if not circles:
            raise
        _log.warning("%s", error)
    return uses


def check_acyclic(uses: Uses, known: Mapping[int, str], where: str) -> None:
    """Raises `InputError` where statements use each other in a circle, naming it and its line."""
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
            f"expected the numbers of two statements with a tab between them, got {line[:60]!r}",
            where=where,
        )
    user, used = int(fields[0]), int(fields[1])
    for end in (user, used):
        if end not in known:
            raise InputError(f"expected the number of a statement, got {end}", where=where)
    if user == used:
        raise InputError(f"{known[user]!r} uses itself; drop this edge", where=where)
    return user, used
