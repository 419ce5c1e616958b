"""Differences of files: which are gone, and what keeps its id and place in one that changed."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.readers.source import raw_parts, says_nothing
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.followed_files import Held, SourceRow

__all__ = [
    "StoredIds",
    "holds_one",
    "is_gone",
    "is_within",
    "renumbered",
    "settled",
    "stamp_of",
    "staying_ids",
    "was_followed",
    "while_unchanged",
]

_FRESH = 2_000_000_000  # ns: a file changed just now may change again with the same time stamp


def renumbered(
    atoms: Sequence[Atom], stored: Sequence[Atom], row: SourceRow
) -> tuple[list[Atom], int]:
    """Return the chunks of a document with the ids of stored chunks of equal text.

    A new text takes the id of the stored chunk in its place, if that is free.

    Args:
        atoms: Current chunks.
        stored: Stored chunks, in order.
        row: The source; its `next` is the first free number.

    Returns:
        The chunks, and the next free number.
    """
    texts, ids = [atom.text for atom in stored], [atom.id for atom in stored]
    old = len(texts)
    head = 0
    while head < min(old, len(atoms)) and texts[head] == atoms[head].text:
        head += 1
    tail = 0
    while tail < min(old, len(atoms)) - head and texts[-1 - tail] == atoms[-1 - tail].text:
        tail += 1
    places = defaultdict[str, deque[int]](deque)
    for i in range(head, old - tail):
        places[texts[i]].append(i)
    place: list[int | None] = []
    for i, atom in enumerate(atoms):
        if i < head:
            place.append(i)
        elif i >= len(atoms) - tail:
            place.append(i - len(atoms) + old)
        else:
            place.append(places[atom.text].popleft() if places[atom.text] else None)
    free = set(range(old)).difference(each for each in place if each is not None)
    for i in range(len(place)):
        before = place[i - 1] if i else -1
        if place[i] is None and before is not None and before + 1 in free:
            place[i] = before + 1
            free.remove(before + 1)
    following, named = row.next, []
    for atom, found in zip(atoms, place, strict=True):
        if found is None:
            named.append(replace(atom, id=f"{row.label}#{following}"))
            following += 1
        else:
            named.append(replace(atom, id=ids[found]))
    return named, following


def staying_ids(
    held: Mapping[str, Held], fresh: Sequence[Atom], turned: Collection[str]
) -> set[str]:
    """Return the ids of atoms that need no replacement to keep each session in file order.

    Turns of equal or unknown time are ordered by storing. Those after a new turn are therefore
    stored again after it.

    Args:
        held: Held atoms in storing order.
        fresh: Atoms in file order.
        turned: Ids of changed atoms that keep their place.
    """
    staying: set[str] = set()
    place = {name: i for i, name in enumerate(held)}
    last: dict[str, float] = {}  # place of the last staying turn of a session
    for atom in fresh:
        kept = held.get(atom.id)
        same = kept is not None and (kept.digest == atom.digest or atom.id in turned)
        same = same and atom.id not in staying
        derived = any(link.type == EdgeType.DERIVED_FROM for link in atom.edges)
        if atom.session is None or derived:
            staying |= {atom.id} if same else set()
        elif same and place[atom.id] > last.get(atom.session, -1):
            staying.add(atom.id)
            last[atom.session] = place[atom.id]
        else:
            last[atom.session] = math.inf
    return staying


def is_gone(path: Path) -> bool:
    """Return whether a file no longer exists, or is empty."""
    try:
        size = path.stat().st_size
        return path.is_file() and (size == 0 or says_nothing(raw_parts(path)))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, InputError):  # it may exist
        return False


def is_within(path: Path, scope: Sequence[Path]) -> bool:
    """Return whether a path is one of others, or in one."""
    return any(path == each or path.is_relative_to(each) for each in scope)


def was_followed(path: Path, base: Path, rows: Mapping[str, SourceRow]) -> bool:
    """Return whether a missing path was a source, or a folder of sources."""
    return str(path) != "-" and not path.exists() and holds_one(path, base, rows)


def holds_one(path: Path, base: Path, rows: Mapping[str, SourceRow]) -> bool:
    """Return whether a path is a source, or a folder of sources."""
    return any(is_within(base / name, [path.resolve()]) for name in rows)


class StoredIds:
    """Container of the ids of stored memories."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and id in self._store.known([id])


def stamp_of(paths: Sequence[Path]) -> str:
    """Return sizes and times, ns, of files; empty if unavailable."""
    try:
        found = [path.stat() for path in paths]
    except OSError:
        return ""
    return json.dumps([[each.st_size, each.st_mtime_ns, each.st_ctime_ns] for each in found])


def while_unchanged(atoms: Iterable[Atom], paths: Sequence[Path], stamp: str) -> Iterator[Atom]:
    """Yield the atoms of files that stay as they are.

    Args:
        atoms: Atoms, read as they are taken.
        paths: The files, the one they are named by first.
        stamp: Their `stamp_of` before they were read.

    Raises:
        InputError: A file has changed.
    """
    for atom in atoms:
        if stamp_of(paths) != stamp:
            raise InputError(
                "expected a file that stays as it is beside rows in order, got a changed one; let "
                "what writes it end, and run this again",
                where=str(paths[0]),
            )
        yield atom


def settled(stamp: str) -> str:
    """Return a stamp that the next run can trust; empty for a file written just now."""
    fresh = time.time_ns() - _FRESH
    return stamp if stamp and all(part[1] < fresh for part in json.loads(stamp)) else ""
