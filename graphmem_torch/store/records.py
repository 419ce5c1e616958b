"""Conversion between atoms and rows of the `atom` table."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any, NamedTuple

from graphmem_torch.atoms import Atom, EdgeType, Link, text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.exact import DigitsError, dump_json, load_json
from graphmem_torch.store.schema import CONTENT
from graphmem_torch.store.text_columns import TextRow
from graphmem_torch.text.times import FIRST_SECOND, LAST_SECOND

__all__ = ["AtomRow", "atom_from_row", "atom_to_row"]

_FIELDS = [column.name for column in CONTENT]  # in the order of the fields of `Atom`
_TEXTS = [
    (column.name, "NOT NULL" not in column.declared) for column in CONTENT if column.holds == "text"
]
_SECONDS = [column.name for column in CONTENT if column.holds == "seconds"]
_values = attrgetter(*Atom.__slots__)  # in the order of `_FIELDS`
_META, _LINKS = (_FIELDS.index(name) + 1 for name in ("meta", "links"))  # adjacent


class AtomRow(NamedTuple):
    """Row of an atom that is about to be stored.

    Attributes:
        values: Values of its columns (`atom_to_row`); the node number is ignored.
        text: Columns of its text; None: they are found when an index is built.
    """

    values: tuple[Any, ...]
    text: TextRow | None = None


def atom_to_row(node: int, atom: Atom) -> tuple[Any, ...]:
    """Return the values of an atom's row.

    Raises:
        InputError: The atom has a value that the store could not return unchanged.
    """
    fields = dict(zip(_FIELDS, _values(atom), strict=True))
    for name, optional in _TEXTS:
        value = fields[name]
        if (value is None and optional) or (type(value) is str and value.isascii()):
            continue
        _check_text(atom, name)
    for name in ("id", "session"):
        _check_name(atom, name, fields[name])
    for link in atom.edges:
        _check_name(atom, "edges", link.target)
    if not atom.id:
        raise InputError("id: expected a non-empty string, got ''. Leave it out to have one made")
    for name in _SECONDS:
        if fields[name] is not None:
            _check_seconds(atom, name)
    _check_ttl(atom)
    begun = -math.inf if atom.event_time is None else atom.event_time
    if atom.event_end is not None and atom.event_end < begun:
        raise InputError(
            f"atom {atom.id!r}: event_end: expected no time before event_time "
            f"({atom.event_time!r}), got {atom.event_end!r}; swap the two, or leave one out"
        )
    links = [[link.target, int(link.type), link.weight] for link in atom.edges]
    fields["meta"] = _json(atom, "meta", dict(atom.meta)) if atom.meta else "{}"
    fields["links"] = _json(atom, "edges", links) if links else "[]"
    hashes = (bytes.fromhex(text_hash(atom.rendered)), bytes.fromhex(atom.digest))
    return (node, *fields.values(), *hashes)


def atom_from_row(row: tuple[Any, ...]) -> Atom:
    """Make the atom of a row with the columns `ATOM_COLUMNS`."""
    # Most atoms have neither; parsing "{}" and "[]" takes a tenth of the time of a query.
    meta = {} if row[_META] == "{}" else load_json(row[_META])
    stated = () if row[_LINKS] == "[]" else load_json(row[_LINKS])
    links = tuple(Link(target, EdgeType(kind), weight) for target, kind, weight in stated)
    # A row may have more columns, such as its digest.
    fields: tuple[Any, ...] = (*row[1:_META], meta, links, *row[_LINKS + 1 : len(_FIELDS) + 1])
    return Atom(*fields)


def _check_text(atom: Atom, name: str) -> None:
    value = getattr(atom, name)
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


def _check_name(atom: Atom, what: str, value: object) -> None:
    # SQLite truncates strings from JSON lists at NUL.
    if isinstance(value, str) and "\0" in value:
        raise InputError(
            f"atom {atom.id!r}: {what}: expected a name without NUL characters, got {value!r:.80}; "
            "leave them out"
        )


def _check_seconds(atom: Atom, name: str) -> None:
    value = getattr(atom, name)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Times outside the calendar could not be rendered later. NaN fails the comparison.
    if not number or not FIRST_SECOND <= value < LAST_SECOND:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected finite seconds since the epoch in the years 1 "
            f"to 9999, got {value!r:.60}. Leave it out when it is unknown"
        )


def _check_ttl(atom: Atom) -> None:
    ttl = atom.ttl
    number = isinstance(ttl, (int, float)) and not isinstance(ttl, bool)
    if ttl is not None and (atom.expires is None or not (number and 0 < ttl < LAST_SECOND)):
        raise InputError(
            f"atom {atom.id!r}: ttl: expected seconds above 0 beside expires, got {ttl!r:.60} "
            f"beside {atom.expires!r:.60}. Add the atom with `Memory.add`, or leave it out"
        )


def _json(atom: Atom, name: str, value: Any) -> str:
    try:
        text = dump_json(value, allow_nan=False)
        dump_json(value, ensure_ascii=False).encode()  # fails for a lone surrogate
        # Other keys than strings return as strings in another order, which changes the digest.
        unchanged = dump_json(load_json(text), sort_keys=True) == dump_json(value, sort_keys=True)
    except DigitsError as error:
        raise InputError(
            f"atom {atom.id!r}: {name}: {error}; give a shorter one, or a string"
        ) from None
    except UnicodeEncodeError:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected what JSON can hold, got text with a lone "
            "surrogate; decode it anew"
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected what JSON can hold, got an error: {error}"
        ) from None
    if not unchanged:
        raise InputError(
            f"atom {atom.id!r}: {name}: expected keys that are strings, got others. Use str(key)"
        )
    return text
