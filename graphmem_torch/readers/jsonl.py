"""Read JSON lines: one atom, one message of a chat, or one session a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from graphmem_torch.atoms import (
    MAX_EDGE_WEIGHT,
    MEMORY_TYPES,
    Atom,
    EdgeType,
    Link,
    one_line,
    text_hash,
)
from graphmem_torch.errors import EmptyMessageError, InputError, unknown
from graphmem_torch.readers.keys import check_keys, meant_field
from graphmem_torch.readers.messages import is_message, is_object, plain, record_of_message
from graphmem_torch.readers.sessions import SESSION_KEYS, turn_records
from graphmem_torch.readers.source import decoded_lines, leaving_out, parse_json
from graphmem_torch.readers.unit_rows import InlineVectors, without_embedding
from graphmem_torch.text.surrogates import HALVES, replace_surrogates
from graphmem_torch.text.times import parse_duration, parse_time

__all__ = ["atom_from_record", "atom_to_record", "content_id", "parse_edge_type", "read_records"]

_WRITE = 'write {"text": "..."}'
_EDGE = '{"target": id, "type": name, "weight": number} or [target, type, weight]'
_TIMES = ("time", "event_time", "event_end", "expires")
_FIELDS = (
    *("text", "title", "id", "kind", "speaker", "session"),
    *(*_TIMES, "ttl", "type", "meta", "edges"),
)


def read_records(
    lines: Iterable[bytes],
    where: str,
    origins: dict[str, str] | None = None,
    *,
    source: str = "",
    known: Container[str] = (),
    skipped: list[str] | None = None,
    losses: Counter[str] | None = None,
    vectors: InlineVectors | None = None,
) -> Iterator[Atom]:
    """Yield the atoms of JSON lines; `turns` or `messages` make a line a session (`turn_records`).

    An atom without an id gets one from its content and the number of earlier equal lines, so that
    reading again gives equal ids.

    Args:
        lines: Lines as bytes; blank ones are skipped.
        where: File name, for messages.
        origins: Mapping from atom id to file and line; updated.
        source: File name that becomes part of made ids: equal texts in two files are two memories.
        known: Stored ids; ids of content alone, which older releases made, are kept.
        skipped: List of errors; updated. With it, bad lines are skipped instead of raising.
        losses: Counter of dropped content by kind, messages without text included; updated.
        vectors: Embeddings in the lines by atom id; updated.

    Raises:
        InputError: Bad line; names file and line.
    """
    losses = Counter() if losses is None else losses
    seen: Counter[str] = Counter()
    own: Counter[str] = Counter()
    told, given = set[str](), InlineVectors() if vectors is None else vectors
    empty = True
    for number, line in decoded_lines(lines, where, skipped):
        empty = False
        with leaving_out(skipped):
            said = parse_json(line, where, line=number, do=_WRITE)
            for record, place in turn_records(said, f"{where}:{number}", skipped, losses=losses):
                with leaving_out(skipped):
                    try:
                        record, vector = without_embedding(
                            record, place, given.dim, normalise=given.normalise
                        )
                        atom = atom_from_record(record, where=place, warned=told, losses=losses)
                    except EmptyMessageError:
                        losses["message without text"] += 1
                        continue
                    if not atom.id:
                        digest = atom.former_digest
                        made = content_id(atom.kind, digest, seen)
                        if source and made not in known:
                            made = content_id(atom.kind, text_hash(f"{source}\0{digest}"), own)
                        atom = replace(atom, id=made)
                    if origins is not None and place is not None:
                        origins[atom.id] = place
                    if vectors is not None and vector is not None:
                        vectors.setdefault(atom.id, vector)  # of equal lines the first is stored
                    yield atom
    if empty and not skipped:
        raise InputError(f"expected JSON lines, got an empty file; {_WRITE}", where=where)


def content_id(kind: str, digest: str, seen: Counter[str]) -> str:
    """Return the id of an atom without one: from its `former_digest` and the count `seen`."""
    seen[digest] += 1
    return f"{kind}:{digest[:16]}" + (f"-{seen[digest]}" if seen[digest] > 1 else "")


def atom_from_record(
    record: object,
    *,
    where: str | None = None,
    warned: set[str] | None = None,
    losses: Counter[str] | None = None,
) -> Atom:
    """Return the atom of a JSON object, or of a client's object that stands for one.

    Fields are `text` and optionally `title`, `id`, `speaker`, `session`, `meta` (an object) and:

    - `kind`: "turn" by default with a speaker, else "chunk"; `type`: one of `MEMORY_TYPES`;
    - `time`, `event_time`, `event_end`, `expires`: see `parse_time`; `ttl`: seconds;
    - `edges`: a list of `{"target": id, "type": name, "weight": number}` or `[target, type,
      weight]`; type and weight are optional.

    Other fields are kept in `meta`. A name similar to a field causes a warning, and a vector an
    error (`check_keys`). Null means absent. Without an id, the atom's id is empty.

    A message of a chat has `role` and `content` (or `parts`) instead of `text`, or is an item of a
    response, as OpenAI, Anthropic and Google write them (`readers.messages`). Its `name`, else its
    role, is the speaker; its texts, calls and results are the text. `created_at` or `timestamp`
    replaces a missing `time`. `meta` keeps the rest, and references to images as `content`.

    Half a surrogate pair is replaced by U+FFFD. `losses` counts these, and the content of messages
    other than text, by kind.

    Args:
        record: Object to read.
        where: File and line, for messages.
        warned: Keys with an earlier warning, which is not repeated; updated. None warns each time.
        losses: Counter of dropped content by kind; updated.

    Raises:
        EmptyMessageError: Message without text.
        InputError: Session (`turn_records`), or a field that is missing or of the wrong type; the
            message names `where`.
    """
    losses = Counter() if losses is None else losses
    if is_object(record):
        record = plain(record)
    if not isinstance(record, Mapping):
        raise InputError(f"expected a JSON object, got {_json_type(record)}; {_WRITE}", where=where)
    mended, halves = replace_surrogates(record)
    given = {key: value for key, value in mended.items() if value is not None}
    session = next((key for key in SESSION_KEYS if isinstance(given.get(key), (list, tuple))), None)
    if session is not None:
        raise InputError(
            f"{session}: expected one memory, got the turns of a session; give them to `add`, or "
            "as a line of their own",
            where=where,
        )
    if is_message(given):
        # Arguments are JSON in a string, where a half may stand as an escape.
        given, more = replace_surrogates(record_of_message(given, losses, where))
        halves += more
    if halves:
        losses[HALVES] += halves
    text = _string(given, "text", where)
    if text is None or not text.strip():
        others = [str(key) for key in given if key != "text"]
        meant = next((key for key in others if meant_field(key, ("text",))), None)
        got, do = repr(text), "leave out what says nothing"
        if text is None and others:
            got = f"a record of {', '.join(others):.80}"
            do = f"write 'text' for {meant!r}" if meant else "give the texts or messages in it"
        raise InputError(
            f"text: expected a string with something in it, got {got}; {do}", where=where
        )
    check_keys(given, _FIELDS, SESSION_KEYS, where, warned)
    memory_type = _string(given, "type", where)
    if memory_type is not None and memory_type not in MEMORY_TYPES:
        raise InputError(unknown("type", memory_type, MEMORY_TYPES), where=where)
    meta = given.get("meta", {})
    if not isinstance(meta, Mapping):
        raise InputError(
            f'meta: expected an object, got {_json_type(meta)}; write {{"name": value}}',
            where=where,
        )
    extra = {key: value for key, value in given.items() if key not in _FIELDS}
    identifier = given.get("id", "")
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    if not isinstance(identifier, str) or ("id" in given and not identifier.strip()):
        raise InputError(
            f"id: expected a string, got {identifier!r:.60}; leave it out to have one made",
            where=where,
        )
    speaker = _string(given, "speaker", where)
    return Atom(
        id=identifier,
        text=text,
        kind=_string(given, "kind", where) or ("turn" if speaker else "chunk"),
        speaker=speaker or None,
        session=_string(given, "session", where) or None,
        **{name: parse_time(given[name], name, where=where) for name in _TIMES if name in given},
        type=memory_type,
        meta={**extra, **meta},
        edges=_edges(given.get("edges", []), where),
        title=one_line(_string(given, "title", where)),
        ttl=parse_duration(given["ttl"], where=where) if "ttl" in given else None,
    )


def atom_to_record(atom: Atom) -> dict[str, Any]:
    """Return the JSON object that `atom_from_record` reads as this atom, without empty fields."""
    names = ("id", "title", "text", "kind", "speaker", "session", *_TIMES, "ttl", "type")
    record = {name: value for name in names if (value := getattr(atom, name)) is not None}
    if atom.meta:
        record["meta"] = dict(atom.meta)
    if atom.edges:
        record["edges"] = [[e.target, e.type.name.lower(), e.weight] for e in atom.edges]
    return record


def parse_edge_type(name: object, *, where: str | None = None) -> EdgeType:
    """Return an edge type by name, ignoring case, with "-" or " " for "_".

    Raises:
        InputError: Unknown name; suggests the nearest one.
    """
    names = [edge.name.lower() for edge in EdgeType]
    key = name.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(name, str) else ""
    if key not in names:
        raise InputError(unknown("edge type", name, names), where=where)
    return EdgeType[key.upper()]


def _edges(value: object, where: str | None) -> tuple[Link, ...]:
    if not isinstance(value, list):
        raise InputError(
            f"edges: expected a list, got {_json_type(value)}; write [{_EDGE}]", where=where
        )
    return tuple(_edge(edge, where) for edge in value)


def _edge(value: object, where: str | None) -> Link:
    if isinstance(value, list) and 1 <= len(value) <= 3:
        value = dict(zip(("target", "type", "weight"), value, strict=False))
    if not isinstance(value, Mapping) or set(value) - {"target", "type", "weight"}:
        raise InputError(
            f"edges: expected {_EDGE}, got {value!r:.80}; type and weight may be left out",
            where=where,
        )
    target, weight = value.get("target"), value.get("weight")
    if isinstance(target, int) and not isinstance(target, bool):
        target = str(target)
    if not isinstance(target, str) or not target:
        raise InputError(
            f"target of an edge: expected the id of an atom, got {target!r:.60}; write {_EDGE}",
            where=where,
        )
    if weight is not None and (
        isinstance(weight, bool)
        or not isinstance(weight, (int, float, Decimal))
        or not -MAX_EDGE_WEIGHT <= weight <= MAX_EDGE_WEIGHT
    ):
        raise InputError(
            f"weight of an edge: expected a number between {-MAX_EDGE_WEIGHT:g} and "
            f"{MAX_EDGE_WEIGHT:g}, got {weight!r:.60}; leave it out for the default of its type",
            where=where,
        )
    name = value.get("type")
    kind = EdgeType.RELATED_TO if name is None else parse_edge_type(name, where=where)
    return Link(target, kind, None if weight is None else float(weight))


def _string(record: Mapping[str, Any], field: str, where: str | None) -> str | None:
    value = record.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(
            f"{field}: expected a string, got {_json_type(value)}; put it in quotes", where=where
        )
    return value


def _json_type(value: object) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a truth value",
        type(None): "null",
        int: "a number",
        float: "a number",
        Decimal: "a number",
    }
    return names.get(type(value), f"a {type(value).__name__}")
