"""Knowledge graphs of entities, observations and relations as atoms, and the file memory.jsonl.

The reference memory server of the Model Context Protocol keeps such a graph as JSON lines:
`{"type": "entity", "name", "entityType", "observations"}` and `{"type": "relation", "from", "to",
"relationType"}`. Each observation becomes an atom, derived from that of its entity; so does each
relation, derived from those of its ends. What is derived from an entity is forgotten with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphmem_torch.atoms import Atom, EdgeType, Link, one_line, text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.exact import load_json
from graphmem_torch.readers.jsonl import content_id
from graphmem_torch.readers.source import decoded_lines, parse_json

__all__ = [
    "ENTITY",
    "OBSERVATION",
    "RELATION",
    "entity_atom",
    "entity_of",
    "is_graph_line",
    "observation_atom",
    "observed",
    "read_graph",
    "relation_atom",
    "relation_of",
]

ENTITY, OBSERVATION, RELATION = "entity", "observation", "relation"
"""Kinds of the atoms of a graph."""

_ENDS = ("from", "to", "relationType")
_NAMED = ("name", "entityType")
_BLANK = "(blank)"  # text of an observation or relation without a visible character
_CONTENT = "content"  # key in `meta` of a blank observation, verbatim
_MEND = "copy the whole file again, or mend the line; nothing of it is stored"


def entity_atom(name: str, entity_type: str, seen: Counter[str]) -> Atom:
    """Return the atom of an entity.

    Its id depends on name and type alone, so that a graph read twice is stored once. It has no
    time, as entities only name what observations are about.

    Args:
        name: Name of the entity, verbatim.
        entity_type: Type of the entity, verbatim.
        seen: Counter of entities with the same name and type; updated.
    """
    return Atom(
        content_id(ENTITY, text_hash(f"{name}\0{entity_type}"), seen),
        f"{name} ({entity_type})",
        kind=ENTITY,
        meta={"name": name, "entityType": entity_type},
    )


def observation_atom(
    entity: str, name: str, content: str, *, id: str = "", time: float | None = None
) -> Atom:
    """Return the atom of an observation, with the name of its entity as title.

    Args:
        entity: Id of the atom of the entity.
        name: Name of the entity.
        content: Text of the observation, verbatim; may be blank.
        id: Id of the atom; empty to have one made.
        time: Time of the observation in seconds since the epoch, UTC.
    """
    blank = not content.strip()
    return Atom(
        id,
        _BLANK if blank else content,
        kind=OBSERVATION,
        time=time,
        meta={_CONTENT: content} if blank else {},
        edges=(Link(entity, EdgeType.DERIVED_FROM),),
        title=one_line(name),
    )


def relation_atom(
    relation: Mapping[str, str], ends: Iterable[str], *, id: str = "", time: float | None = None
) -> Atom:
    """Return the atom of a relation, whose text is its sentence: "Alice works at Acme".

    Args:
        relation: Mapping with the strings `from`, `to` and `relationType`.
        ends: Ids of the atoms of its two entities, as far as there are any.
        id: Id of the atom; empty to have one made.
        time: Time of the relation in seconds since the epoch, UTC.
    """
    source, target, verb = (relation[key] for key in _ENDS)
    return Atom(
        id,
        f"{source} {verb.replace('_', ' ')} {target}".strip() or _BLANK,
        kind=RELATION,
        time=time,
        meta={key: relation[key] for key in _ENDS},
        edges=tuple(Link(end, EdgeType.DERIVED_FROM) for end in dict.fromkeys(ends)),
    )


def entity_of(atom: Atom) -> tuple[str, str] | None:
    """Return the name and type of an entity; None for any other atom."""
    found = _texts_of(atom, ENTITY, _NAMED)
    return None if found is None else (found["name"], found["entityType"])


def observed(atom: Atom) -> tuple[str, str] | None:
    """Return the id of the entity and the content of an observation; None for any other atom."""
    ends = [link.target for link in atom.edges if link.type == EdgeType.DERIVED_FROM]
    if atom.kind != OBSERVATION or len(ends) != 1:
        return None
    kept = atom.meta.get(_CONTENT)
    return ends[0], kept if atom.text == _BLANK and isinstance(kept, str) else atom.text


def relation_of(atom: Atom) -> dict[str, str] | None:
    """Return `from`, `to` and `relationType` of a relation; None for any other atom."""
    return _texts_of(atom, RELATION, _ENDS)


def is_graph_line(line: bytes) -> bool:
    """Return whether a line of a file is an entity or a relation of a graph."""
    try:
        record = load_json(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and (
        (record.get("type") == ENTITY and "entityType" in record)
        or (record.get("type") == RELATION and "relationType" in record)
    )


def read_graph(
    lines: Iterable[bytes],
    where: str,
    origins: dict[str, str] | None = None,
    losses: Counter[str] | None = None,
) -> Iterator[Atom]:
    """Yield the atoms of a memory.jsonl: of each entity with its observations, then of relations.

    Ids depend on content alone. The file is read whole before the first atom: an error in any line
    yields nothing.

    Args:
        lines: Lines as bytes; blank ones are skipped.
        where: File name, for messages.
        origins: Mapping from atom id to file and line; updated.
        losses: Counter of lines that are neither entity nor relation; updated.

    Raises:
        InputError: A line that is no JSON object, as where the file was cut off, or a missing or
            wrong field; names file and line.
    """
    atoms: list[tuple[Atom, str]] = []
    relations: list[tuple[dict[str, str], str]] = []
    ids: dict[str, str] = {}  # of the first entity of a name
    seen: Counter[str] = Counter()
    for number, line in decoded_lines(lines, where):
        place = f"{where}:{number}"
        record = parse_json(line, where, line=number, do=_MEND)
        kind = record.get("type") if isinstance(record, dict) else None
        if kind == ENTITY:
            name, entity_type = (_text(record, key, place) for key in _NAMED)
            entity = entity_atom(name, entity_type, seen)
            ids.setdefault(name, entity.id)
            atoms.append((entity, place))
            for content in _texts(record, "observations", place):
                made = content_id(OBSERVATION, text_hash(f"{entity.id}\0{content}"), seen)
                atoms.append((observation_atom(entity.id, name, content, id=made), place))
        elif kind == RELATION:
            relations.append(({key: _text(record, key, place) for key in _ENDS}, place))
        elif isinstance(record, dict):
            if losses is not None:
                losses["line that is neither entity nor relation"] += 1
        else:
            raise InputError(
                f"expected an entity or a relation, got {record!r:.60}; {_MEND}", where=place
            )
    for relation, place in relations:
        made = content_id(RELATION, text_hash("\0".join(relation.values())), seen)
        ends = [ids[relation[key]] for key in ("from", "to") if relation[key] in ids]
        atoms.append((relation_atom(relation, ends, id=made), place))
    for atom, place in atoms:
        if origins is not None:
            origins[atom.id] = place
        yield atom


def _texts_of(atom: Atom, kind: str, keys: Sequence[str]) -> dict[str, str] | None:
    """Return the texts at some keys of the `meta` of an atom; None if it lacks one."""
    found = {key: value for key in keys if isinstance(value := atom.meta.get(key), str)}
    return found if atom.kind == kind and len(found) == len(keys) else None


def _text(record: Mapping[str, Any], key: str, place: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise InputError(f"{key}: expected a text, got {value!r:.60}; {_MEND}", where=place)
    return value


def _texts(record: Mapping[str, Any], key: str, place: str) -> list[str]:
    values = record.get(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(
            f"{key}: expected a list of texts, got {values!r:.60}; {_MEND}", where=place
        )
    return values
