"""Atoms as rows of the `atom` table and back, and whole columns of that table as tensors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link, text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.text.times import FIRST_SECOND, LAST_SECOND

__all__ = ["ATOM_COLUMNS", "Coded", "Columns", "atom_from_row", "atom_to_row", "columns_from_rows"]

ATOM_COLUMNS = "node, id, text, kind, speaker, session, time, event_time, type, meta, links"
"""What `atom_from_row` reads; `atom_to_row` appends text_hash and digest."""


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of words as numbers.

    Attributes:
        codes: [N] int32 index into `names`, -1 where there is no value.
        names: Distinct values, in the order of their first node.
    """

    codes: Tensor
    names: list[str]

    def values(self) -> list[str | None]:
        """The column spelled out, one value a node."""
        return [None if code < 0 else self.names[code] for code in self.codes.tolist()]

    def equals(self, name: str) -> Tensor:  # [N] bool
        """Where the value is this one."""
        return self.codes == (self.names.index(name) if name in self.names else -2)


@dataclass(frozen=True, eq=False)
class Columns:
    """What an index needs to know of every atom but its text, in the order of node numbers.

    Attributes:
        node: [N] int64 node numbers.
        kind, speaker, session, type: As in `Atom`.
        time, event_time: [N] float64 seconds since the epoch, UTC; NaN where there is none.
    """

    node: Tensor
    kind: Coded
    speaker: Coded
    session: Coded
    type: Coded
    time: Tensor
    event_time: Tensor

    @property
    def is_concept(self) -> Tensor:  # [N] bool
        """Which are concepts that linking made, and no memories."""
        return self.kind.equals(CONCEPT)


def atom_to_row(node: int, atom: Atom) -> tuple[Any, ...]:
    """The values of an atom's row.

    Raises:
        InputError: The atom holds something that the store could not give back unchanged.
    """
    for name in ("id", "text", "kind", "speaker", "session", "type"):
        _check_text(atom, name, optional=name in ("speaker", "session", "type"))
    if not atom.id:
        raise InputError("id: expected a non-empty string, got ''. Leave it out to have one made")
    for name in ("time", "event_time"):
        _check_seconds(atom, name)
    links = [[link.target, int(link.type), link.weight] for link in atom.edges]
    return (
        node,
        atom.id,
        atom.text,
        atom.kind,
        atom.speaker,
        atom.session,
        atom.time,
        atom.event_time,
        atom.type,
        _json(atom, "meta", dict(atom.meta)) if atom.meta else "{}",
        _json(atom, "edges", links) if links else "[]",
        bytes.fromhex(text_hash(atom.rendered)),
        bytes.fromhex(atom.digest),
    )


def atom_from_row(row: tuple[Any, ...]) -> Atom:
    """The atom of a row with the columns `ATOM_COLUMNS`."""
    # Most atoms have neither: parsing "{}" and "[]" is a tenth of the time of an answer.
    meta = {} if row[9] == "{}" else json.loads(row[9])
    stated = () if row[10] == "[]" else json.loads(row[10])
    links = tuple(Link(target, EdgeType(kind), weight) for target, kind, weight in stated)
    id_, text, kind, speaker, session, time, event_time, type_ = row[1:9]
    return Atom(id_, text, kind, speaker, session, time, event_time, type_, meta, links)


def columns_from_rows(rows: list[tuple[Any, ...]]) -> Columns:
    """Columns of rows `(node, kind, speaker, session, type, time, event_time)`."""
    node, kind, speaker, session, type_, time, event_time = (
        zip(*rows, strict=True) if rows else ((),) * 7
    )
    return Columns(
        node=torch.tensor(node, dtype=torch.int64),
        kind=_coded(kind),
        speaker=_coded(speaker),
        session=_coded(session),
        type=_coded(type_),
        time=_seconds(time),
        event_time=_seconds(event_time),
    )


def _check_text(atom: Atom, name: str, *, optional: bool) -> None:
    value = getattr(atom, name)
    if value is None and optional:
        return
    if not isinstance(value, str):
        raise InputError(
            f"atom {atom.id!r}: {name}: expected a string, got {value!r}. Use str(...)"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected text that UTF-8 can hold, got a lone surrogate at "
            f"position {error.start}. Decode the input with errors='replace'"
        ) from None


def _check_seconds(atom: Atom, name: str) -> None:
    value = getattr(atom, name)
    if value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # What no calendar shows could not be rendered later. NaN fails the comparison.
    if not number or not FIRST_SECOND <= value < LAST_SECOND:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected finite seconds since the epoch in the years 1 "
            f"to 9999, got {value!r:.60}. Leave it out when it is unknown"
        )


def _json(atom: Atom, name: str, value: Any) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
        # Keys that are not strings come back as strings, in another order: the digest would change.
        unchanged = json.dumps(json.loads(text), sort_keys=True) == json.dumps(
            value, sort_keys=True
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected what JSON can hold, got an error: {error}"
        ) from None
    if not unchanged:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected keys that are strings, got others. Use str(key)"
        )
    return text


def _coded(values: Iterable[str | None]) -> Coded:
    number: dict[str | None, int] = {None: -1}
    names: list[str] = []
    codes = []
    for value in values:
        code = number.get(value)
        if code is None:
            code = number[value] = len(names)
            names.append(str(value))
        codes.append(code)
    return Coded(torch.tensor(codes, dtype=torch.int32), names)


def _seconds(values: Iterable[float | None]) -> Tensor:
    return torch.tensor(
        [math.nan if value is None else value for value in values], dtype=torch.float64
    )
