"""JSON lines: one atom, or one message of a chat, a line."""

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
from graphmem_torch.text.surrogates import HALVES, replace_surrogates
from graphmem_torch.text.times import parse_time

__all__ = ["atom_from_record", "atom_to_record", "content_id", "parse_edge_type", "read_records"]

_WRITE = 'write {"text": "..."}'
_EDGE = '{"target": id, "type": name, "weight": number} or [target, type, weight]'
_TIMES = ("time", "event_time", "event_end")
_FIELDS = ("text", "title", "id", "kind", "speaker", "session", *_TIMES, "type", "meta", "edges")


def read_records(
    lines: Iterable[bytes],
    where: str,
    origins: dict[str, str] | None = None,
    *,
    source: str = "",
    known: Container[str] = (),
    skipped: list[str] | None = None,
    losses: Counter[str] | None = None,
) -> Iterator[Atom]:
    """The atoms of JSON lines; a line with `turns` or `messages` is a session (`turn_records`).

    An atom without an id gets one made from its content, and from how often that content came
    before in these lines, so that a second reading gives the same ids.

    Args:
        lines: Lines as bytes; blank ones are skipped.
        where: File they came from, for messages.
        origins: Mapping that receives, for the id of each atom, its file and line.
        source: Name of the file, which made ids carry: the same said in two files is two memories.
        known: Ids that are stored; those of content alone, which older releases made, are kept.
        skipped: List that receives what is wrong with lines, which are left out then.
        losses: Counter that receives what could not be kept, by kind; messages without text too.

    Raises:
        InputError: With file and line.
    """
    losses = Counter() if losses is None else losses
    seen: Counter[str] = Counter()
    own: Counter[str] = Counter()
    told: set[str] = set()
    empty = True
    for number, line in decoded_lines(lines, where, skipped):
        empty = False
        with leaving_out(skipped):
            said = parse_json(line, where, line=number, do=_WRITE)
            for record, place in turn_records(said, f"{where}:{number}", skipped, losses=losses):
                with leaving_out(skipped):
                    try:
                        atom = atom_from_record(record, where=place, told=told, losses=losses)
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
                    yield atom
    if empty and not skipped:
        raise InputError(f"expected JSON lines, got an empty file; {_WRITE}", where=where)


def content_id(kind: str, digest: str, seen: Counter[str]) -> str:
    """The id of an atom that has none: by its `former_digest`, and how often that was `seen`."""
    seen[digest] += 1
    return f"{kind}:{digest[:16]}" + (f"-{seen[digest]}" if seen[digest] > 1 else "")


def atom_from_record(
    record: object,
    *,
    where: str | None = None,
    told: set[str] | None = None,
    losses: Counter[str] | None = None,
) -> Atom:
    """One atom from a JSON object, or an object of a client that stands for one.

    Fields: `text` and optionally `title`, `id`, `kind` ("turn" with a speaker, else "chunk"),
    `speaker`, `session`, `time`, `event_time`, `event_end` (see `parse_time`), `type` (one of
    `MEMORY_TYPES`), `meta` (an object), `edges` (a list of `{"target": id, "type": name, "weight":
    number}` or `[target, type, weight]`; type and weight may be left out). Other fields are kept in
    `meta`; for those that look like one of these there is a warning, and for a vector an error
    (`check_keys`). Null is the same as left out. Without an id the atom's is empty.

    A message of a chat has `role` and `content` (or `parts`) instead of `text`, or is an item of a
    response, as OpenAI, Anthropic and Google write them (`readers.messages`). Its `name`, else its
    role, is the speaker; its texts, calls and results are the text; `created_at` or `timestamp` is
    its time if it has no `time`; `meta` keeps the rest, and as `content` references to images.

    Half a surrogate pair is replaced by U+FFFD. `losses` counts these, and what a message holds
    besides text, by kind.

    Args:
        record: The object.
        where: File and line, for messages.
        told: Keys that were warned of already, which this adds to; None: each time.
        losses: Counter that receives what could not be kept, by kind.

    Raises:
        EmptyMessageError: A message without text.
        InputError: A session, which is several atoms (`turn_records`); a field is missing or of the
            wrong type; `where` is in the message.
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
        # Arguments are JSON in a string, in which a half may stand as an escape.
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
    check_keys(given, _FIELDS, SESSION_KEYS, where, told)
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
    )


def atom_to_record(atom: Atom) -> dict[str, Any]:
    """An atom as a JSON object that `atom_from_record` reads; what it does not have is left out."""
    names = ("id", "title", "text", "kind", "speaker", "session", *_TIMES, "type")
    record = {name: value for name in names if (value := getattr(atom, name)) is not None}
    if atom.meta:
        record["meta"] = dict(atom.meta)
    if atom.edges:
        record["edges"] = [[e.target, e.type.name.lower(), e.weight] for e in atom.edges]
    return record


def parse_edge_type(name: object, *, where: str | None = None) -> EdgeType:
    """An edge type by name, in any case, with "-" or " " for "_".

    Raises:
        InputError: Naming the nearest type.
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
