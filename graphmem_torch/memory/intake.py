"""Intake: makes atoms with ids, and changes of atoms, from what callers give."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from itertools import islice
from typing import Any, TypedDict, TypeVar

import numpy as np

from graphmem_torch.atoms import MEMORY_TYPES, Atom, Link, one_line, text_hash
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.exact import DigitsError
from graphmem_torch.memory.listed_vectors import ListedVectors
from graphmem_torch.plain import plain_meta
from graphmem_torch.readers.jsonl import atom_from_record, content_id
from graphmem_torch.readers.keys import meant_field
from graphmem_torch.readers.messages import is_message, is_object, plain
from graphmem_torch.readers.sessions import turn_records
from graphmem_torch.readers.unit_rows import without_embedding
from graphmem_torch.results import Added
from graphmem_torch.text.surrogates import HALVES, replace_surrogates
from graphmem_torch.text.times import DurationLike, TimeLike, parse_duration, parse_time

__all__ = [
    "FieldChanges",
    "Intake",
    "batched",
    "changed_atom",
    "changes_given",
    "checked",
    "digest_of",
    "with_expiry",
    "with_expiry_of",
]

T = TypeVar("T")

_log = logging.getLogger(__name__)
_SHOWN = 3  # skipped messages that the warning quotes
_TEXTS = ("id", "title", "text", "kind", "speaker", "session", "meta")


class Intake:
    """Makes atoms with ids from the values of one call.

    A missing id depends on:

    - the `key` of the call and the place in the call, if there is a key
    - else, with a time: the content, and its number of earlier occurrences in the call
    - else: a random number

    Chat messages without text, or that cannot be read or stored, are skipped and reported. Any
    other unusable value is an error.
    """

    def __init__(
        self,
        session: str | None = None,
        key: str | None = None,
        expires: TimeLike | None = None,
        ttl: DurationLike | None = None,
        vectors: ListedVectors | None = None,
    ) -> None:
        """Start empty.

        Args:
            session: Session of values without one.
            key: Key of the call.
            expires: Expiry of values without `expires` and `ttl`.
            ttl: Seconds to live of the same values.
            vectors: Vectors of the atoms; those in values are added.

        Raises:
            InputError: An unusable session or time.
        """
        if session is not None and not (isinstance(session, str) and session.strip()):
            raise InputError(f"session: expected a name, got {session!r:.80}; leave it out")
        self._vectors = ListedVectors() if vectors is None else vectors
        self._session, halves = replace_surrogates(session)
        self._key = key
        self._expires = None if expires is None else parse_time(expires, "expires")
        self._ttl = None if ttl is None else parse_duration(ttl)
        self._losses: Counter[str] = Counter({HALVES: halves} if halves else {})
        self._skipped: list[str] = []
        self._places: dict[int, int] = {}  # place of the message, by identity of a waiting atom

    def atoms(self, values: Iterable[Atom | str | Mapping[str, Any]]) -> Iterator[Atom]:
        """Yield the atoms of values, one at a time.

        Args:
            values: Atoms, texts, mappings as in a line of JSON lines, also of sessions, or client
                objects that stand for mappings.

        Raises:
            InputError: A value other than a message is unusable; see `atom_from_record`.
        """
        seen: Counter[str] = Counter()
        for number, (place, value, atom, vector) in enumerate(self._read(values)):
            own = atom
            if self._session is not None and own.session is None:
                own = replace(own, session=self._session)
            if own.expires is None and own.ttl is None:
                own = replace(own, expires=self._expires, ttl=self._ttl)
            if not own.id:
                if self._key is not None:
                    made = text_hash(f"{self._key}\0{number}")[:16]
                    own = replace(own, id=f"{own.kind}:{made}")
                elif own.time is not None:
                    digest_of(own)  # raises an error that names what JSON cannot hold
                    own = replace(own, id=content_id(own.kind, own.former_digest, seen))
                else:
                    own = replace(own, id=f"{own.kind}:{uuid.uuid4().hex[:16]}")
            if place:
                self._places[id(own)] = place
            self._vectors.match(own.id, value, vector)
            yield own

    def _read(
        self, values: Iterable[Atom | str | Mapping[str, Any]]
    ) -> Iterator[tuple[int, int, Atom, np.ndarray | None]]:
        """Yield the atoms as given, with the places of their messages and values, and vectors.

        The place of a message is 0 for another value.
        """
        # In a list with messages, other values are bad messages; a stream is not read ahead.
        chat = isinstance(values, (list, tuple)) and any(map(_is_message, values))
        told, dim = set[str](), self._vectors.dim
        for place, value in enumerate(values, start=1):
            if isinstance(value, Atom):
                yield 0, place, checked(value, self._losses), None
                continue
            given: Any = {"text": value} if isinstance(value, str) else value
            given = plain(given) if is_object(given) else given
            among = chat and not isinstance(value, str)
            with self._leaving_out(place if among else 0):
                for record, where in turn_records(
                    given, losses=self._losses, session=self._session
                ):
                    message = place if among or _is_message(record) else 0
                    with self._leaving_out(message):
                        record, vector = without_embedding(record, where, dim)
                        atom = atom_from_record(
                            record, where=where, warned=told, losses=self._losses
                        )
                        yield message, place, checked(atom, self._losses), vector

    def store(self, batch: list[Atom], add: Callable[[list[Atom]], Added]) -> Added:
        """Store a batch without the messages that cannot be stored.

        Raises:
            InputError: An atom other than a message cannot be stored.
        """
        try:
            return self._store(batch, add)
        finally:
            for atom in batch:
                self._places.pop(id(atom), None)

    def _store(self, batch: list[Atom], add: Callable[[list[Atom]], Added]) -> Added:
        try:
            return add(batch)
        except InputError as error:
            places = [self._places.get(id(atom), 0) for atom in batch]
            if not any(places):
                raise
            if len(batch) == 1:
                self._leave_out(places[0], error)
                return Added(0, 0)
        half = len(batch) // 2
        return self._store(batch[:half], add) + self._store(batch[half:], add)

    def report(self) -> Added:
        """Return what was skipped, and warn of it."""
        if self._skipped or self._losses:
            told = self._skipped[:_SHOWN]
            told += [f"{len(self._skipped) - _SHOWN} more"] if len(self._skipped) > _SHOWN else []
            told += [f"{count} x {kind}" for kind, count in self._losses.items()]
            _log.warning("add: not stored: %s", "; ".join(told))
        return Added(0, 0, skipped=tuple(self._skipped), losses=dict(self._losses))

    @contextmanager
    def _leaving_out(self, message: int) -> Iterator[None]:
        """Skip the message of this place on an `InputError`; raises it for place 0."""
        try:
            yield
        except InputError as error:
            if not message:
                raise
            self._leave_out(message, error)

    def _leave_out(self, place: int, error: InputError) -> None:
        self._skipped.append(f"message {place}: {error}")


def _is_message(value: object) -> bool:
    if isinstance(value, Atom):
        return False
    if is_object(value):
        value = plain(value)
    return isinstance(value, Mapping) and is_message(value)


class FieldChanges(TypedDict, total=False):
    """Fields of an atom that `Memory.update` changes."""

    text: str
    title: str | None
    kind: str
    speaker: str | None
    session: str | None
    time: TimeLike | None
    event_time: TimeLike | None
    event_end: TimeLike | None
    type: str | None
    meta: Mapping[str, Any] | None
    expires: TimeLike | None
    ttl: DurationLike | None


def changes_given(
    id: str | Mapping[str, Any], given: Mapping[str, Any] | None, named: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the id and the new values from the arguments of `Memory.update`.

    Raises:
        InputError: No id, another one, no mapping, a field given twice, or a message without text.
    """
    if isinstance(id, Mapping):
        if given is not None:
            raise InputError("update: expected one mapping, got two; put the id into the first")
        given = id
        id = given.get("id", "")
        if not isinstance(id, str) or not id:
            raise InputError(
                f"update: expected an id in the mapping, got {id!r:.60}; write "
                'update(id, {"text": ...})'
            )
    if not isinstance(given, (Mapping, type(None))):
        raise InputError(f"update: expected a mapping, got {given!r:.80}; write {{'text': ...}}")
    values = dict(given or {})
    if values.get("id") in (id, None):
        values.pop("id", None)
    if is_message(values) or ("text" not in values and values.get("content") is not None):
        values = _said(values)
    if twice := values.keys() & named.keys():
        raise InputError(f"{min(twice)}: expected one value, got two; give it once")
    return id, values | dict(named)


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new values in a message: its text, its speaker and other fields."""
    whole = is_message(message)
    atom = atom_from_record(message if whole else {"role": "user", **message})
    fields = {name for name in FieldChanges.__annotations__ if name in message}
    values = {name: message[name] for name in fields - {"text", "type", "meta"}} | {
        "text": atom.text
    }
    if whole:
        values.setdefault("speaker", atom.speaker)
    if atom.time is not None:
        values["time"] = atom.time
    if kept := {key: each for key, each in atom.meta.items() if key != "role"}:
        values["meta"] = kept
    return values


def changed_atom(atom: Atom, changes: Mapping[str, Any]) -> Atom:
    """Return an atom with other values of some fields.

    Raises:
        InputError: No change, an unknown or unchangeable field, or an unusable value.
    """
    fixed = {"id", "edges"} & changes.keys()
    if fixed:
        raise InputError(
            f"{min(fixed)}: expected another field to change, got {changes[min(fixed)]!r:.60}; "
            "`graph.connect` and `graph.disconnect` change edges, and an id never changes"
        )
    names = [name for name in Atom.__slots__ if name not in ("id", "edges")]
    foreign = [name for name in changes if name not in names]
    if foreign:
        meant = meant_field(str(foreign[0]), names)
        said = unknown("update", foreign[0], names, what="a field such as")
        raise InputError(f"{said.rpartition('; ')[0]}; did you mean {meant!r}?" if meant else said)
    if not changes:
        raise InputError(f"update: expected fields to change, got none; name {', '.join(names)}")
    if changes.get("meta", {}) is None:
        changes = {**changes, "meta": {}}
    if not isinstance(changes.get("meta", {}), Mapping):
        raise InputError(f"meta: expected a mapping, got {changes['meta']!r:.60}; use {{}}")
    if "meta" not in changes and changes.get("text", atom.text) != atom.text:
        changes = {**changes, "meta": _meta_without_place(atom)}
    if changes.get("ttl") is not None:  # `expires` follows from it unless it is given
        changes = {"expires": None, **changes}
    elif "expires" in changes and changes["expires"] is None:
        changes = {"ttl": None, **changes}
    return checked(replace(atom, **changes))


def _meta_without_place(atom: Atom) -> Mapping[str, Any]:
    """Return an atom's meta for another text, without the place of a chunk in its document."""
    first, last = (atom.meta.get(name) for name in ("start", "end"))
    placed = isinstance(first, int) and isinstance(last, int) and last - first == len(atom.text)
    if atom.kind != "chunk" or not placed:
        return atom.meta
    return {name: value for name, value in atom.meta.items() if name not in ("start", "end")}


def checked(atom: Atom, losses: Counter[str] | None = None) -> Atom:
    """Return an atom with the fields checked that the store does not check."""
    mended, halves = replace_surrogates({name: getattr(atom, name) for name in _TEXTS})
    if halves:
        atom = replace(atom, **mended)
        if losses is None:
            _log.warning("atom %r: %d %s", atom.id, halves, HALVES)
        else:
            losses[HALVES] += halves
    for name in ("id", "text", "title"):
        value = getattr(atom, name)
        if not isinstance(value, str) and (name != "title" or value is not None):
            raise InputError(f"atom {atom.id!r}: {name}: expected a string, got {value!r}")
    if atom.type is not None and atom.type not in MEMORY_TYPES:
        raise InputError(f"atom {atom.id!r}: {unknown('type', atom.type, MEMORY_TYPES)}")
    if not all(isinstance(link, Link) for link in atom.edges):
        raise InputError(
            f"atom {atom.id!r}: edges: expected Link(target, type, weight), got {atom.edges!r}"
        )
    # Numbers stay unchanged, and with them the digests of stored atoms.
    changed: dict[str, Any] = {
        name: parse_time(value, f"atom {atom.id!r}: {name}")
        for name in ("time", "event_time", "event_end")
        if isinstance(value := getattr(atom, name), (str, date))
    }
    if atom.expires is not None:
        changed["expires"] = parse_time(atom.expires, f"atom {atom.id!r}: expires")
    if atom.ttl is not None:
        changed["ttl"] = parse_duration(atom.ttl, f"atom {atom.id!r}: ttl")
    if (title := one_line(atom.title)) != atom.title:
        changed["title"] = title
    if atom.meta:
        changed["meta"] = plain_meta(atom.meta, f"atom {atom.id!r}: meta" if atom.id else "meta")
    return replace(atom, **changed) if changed else atom


def with_expiry(atom: Atom, now: float) -> Atom:
    """Return an atom with the `expires` that follows from its `ttl`, unless it has one.

    Args:
        atom: Checked atom.
        now: Seconds since the epoch UTC.

    Raises:
        InputError: It would expire after the year 9999.
    """
    if atom.ttl is None or atom.expires is not None:
        return atom
    return replace(atom, expires=parse_time(now + atom.ttl, f"atom {atom.id!r}: expires"))


def with_expiry_of(atom: Atom, old: Atom | None) -> Atom:
    """Return an atom with the `expires` of a stored one of equal content and `ttl`.

    So a memory that is only stored again does not live longer.

    Args:
        atom: Checked atom.
        old: Stored atom of the same id, if there is one.
    """
    same = old is not None and atom.ttl == old.ttl and atom.digest == old.digest
    return replace(atom, expires=old.expires) if old and same and atom.expires is None else atom


def digest_of(atom: Atom) -> str:
    """Return the digest of an atom.

    Raises:
        InputError: The atom has values that JSON cannot hold.
    """
    try:
        return atom.digest
    except DigitsError as error:
        raise InputError(f"atom {atom.id!r}: {error}; give a shorter one, or a string") from error
    except (TypeError, ValueError) as error:
        raise InputError(
            f"atom {atom.id!r}: expected what JSON can hold, got another value ({error})"
        ) from error


def batched(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`."""
    while part := list(islice(items, size)):
        yield part
