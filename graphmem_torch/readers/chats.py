"""Parts shared by the readers of chat exports: records, times, and what is passed over.

A reader gives records, mappings that `atom_from_record` reads. Each has `id`, the export's own id
with the program and the conversation before it, `text`, `speaker`, `session` (the conversation),
`time`, `title` (its name) and in `meta` the key `export`, the name of the program. `edited` in
`meta` is when a message was last changed. One message that cannot be read is counted, and never
keeps the others from being read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.readers.messages import foreign_time

__all__ = [
    "EMPTY",
    "HIDDEN",
    "ODD",
    "SERVICE",
    "Record",
    "converted",
    "count_all",
    "edited_at",
    "is_export_atom",
    "linked",
    "listed",
    "mapped",
    "record",
    "text_of",
    "timed",
]

Record = dict[str, Any]
"""Fields of an atom, as `atom_from_record` reads them."""

ODD = "message that cannot be read"
SERVICE = "message of the program (joins, calls, pins)"
HIDDEN = "hidden message"
EMPTY = "message without text"

_EXPORT, _EDITED = "export", "edited"


def record(
    program: str,
    conversation: str,
    message: object,
    text: str,
    *,
    speaker: str | None,
    time: float | None,
    title: str | None = None,
    edited: float | None = None,
    **meta: Any,
) -> Record:
    """The record of one message.

    Args:
        program: Name of the program.
        conversation: Its id or name of the conversation.
        message: Its id of the message.
        text: Text of the message.
        speaker: Who said it.
        time: When, seconds since the epoch, UTC.
        title: Name of the conversation, for people.
        edited: When it was last changed, likewise.
        meta: More that is kept, if it is there.
    """
    kept = {_EXPORT: program, _EDITED: edited, **meta}
    return {
        "id": f"{program}:{conversation}/{message}",
        "text": text,
        "kind": "turn",
        "speaker": speaker or None,
        "session": f"{program}:{conversation}",
        "time": time,
        "title": title or None,
        "meta": {key: value for key, value in kept.items() if value not in (None, "", [])},
    }


def converted(
    messages: Iterable[object],
    convert: Callable[[Mapping[str, Any]], Record | None],
    losses: Counter[str],
) -> Iterator[Record]:
    """The records of messages; those that cannot be read are counted.

    Args:
        messages: Messages as the export has them.
        convert: Gives the record of one, or None if there is none, which it counts itself.
        losses: Counter that receives what is left out, by kind.
    """
    for message in messages:
        found = None
        try:
            if isinstance(message, Mapping):
                found = convert(message)
            else:
                losses[ODD] += 1
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # Of a shape that no export was known to have.
            losses[ODD] += 1
        if found is not None:
            yield found


def count_all(losses: Counter[str], kind: str, found: object) -> None:
    """Count what a list holds, if it is one, as lost."""
    if isinstance(found, list) and found:
        losses[kind] += len(found)


def linked(records: Iterable[Record], replies: Mapping[str, str]) -> Iterator[Record]:
    """Records with an edge from each reply to what it answers, if that is among them.

    Args:
        records: All records of an export.
        replies: By id of a reply, the id of what it answers.
    """
    every = list(records)
    known = {each["id"] for each in every}
    for each in every:
        target = replies.get(each["id"])
        yield {**each, "edges": [[target, "related_to"]]} if target in known else each


def is_export_atom(atom: Atom) -> bool:
    """Whether an atom is of an export, by what these readers give it."""
    return _EXPORT in atom.meta and atom.id.startswith(f"{atom.meta[_EXPORT]}:")


def edited_at(atom: Atom) -> float:
    """When a message of an export was last changed; when it was said, if it never was."""
    edited = atom.meta.get(_EDITED)
    return float(edited) if isinstance(edited, (int, float)) else atom.time or 0.0


def text_of(value: object) -> str:
    """A string, stripped; empty if it is none."""
    return value.strip() if isinstance(value, str) else ""


def listed(value: object) -> list[Any]:
    """A list; empty if it is none."""
    return value if isinstance(value, list) else []


def mapped(value: object) -> Mapping[str, Any]:
    """A mapping; empty if it is none."""
    return value if isinstance(value, Mapping) else {}


def timed(value: object) -> float | None:
    """When something was, seconds since the epoch, UTC; None if that is not said."""
    return None if value is None or value == "" else foreign_time(value)
