"""Share parts between the readers of chat exports: records, times, and counts of losses.

A reader yields records for `atom_from_record`. A record has `id` (program, conversation and the
export's own id), `text`, `speaker`, `session` (the conversation), `time`, `title` (its name), and
in `meta` the key `export` (the program) and `edited` (time of the last change). An unreadable
message is counted and does not affect the others.
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
"""Fields of an atom for `atom_from_record`."""

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
    """Return the record of one message.

    Args:
        program: Name of the program.
        conversation: Program's id or name of the conversation.
        message: Program's id of the message.
        text: Text of the message.
        speaker: Name of the speaker.
        time: Time of the message in seconds since the epoch, UTC.
        title: Display name of the conversation.
        edited: Time of the last change in seconds since the epoch, UTC.
        meta: Further entries of `meta`; empty ones are dropped.
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
    """Yield the records of messages; unreadable ones are counted.

    Args:
        messages: Messages of the export.
        convert: Function from a message to its record, or to None for one that it counts itself.
        losses: Counter of skipped content by kind; updated.
    """
    for message in messages:
        found = None
        try:
            if isinstance(message, Mapping):
                found = convert(message)
            else:
                losses[ODD] += 1
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # A shape that no known export has.
            losses[ODD] += 1
        if found is not None:
            yield found


def count_all(losses: Counter[str], kind: str, found: object) -> None:
    """Count the items of a list as lost; other values count nothing."""
    if isinstance(found, list) and found:
        losses[kind] += len(found)


def linked(records: Iterable[Record], replies: Mapping[str, str]) -> Iterator[Record]:
    """Return the records with an edge from each reply to the message it answers, if present.

    Args:
        records: All records of an export.
        replies: Id of the answered message by id of the reply.
    """
    every = list(records)
    known = {each["id"] for each in every}
    for each in every:
        target = replies.get(each["id"])
        yield {**each, "edges": [[target, "related_to"]]} if target in known else each


def is_export_atom(atom: Atom) -> bool:
    """Return whether an atom comes from a chat export, judged by its `meta`."""
    return _EXPORT in atom.meta and atom.id.startswith(f"{atom.meta[_EXPORT]}:")


def edited_at(atom: Atom) -> float:
    """Return the time of the last change of an exported message, else the time it was said."""
    edited = atom.meta.get(_EDITED)
    return float(edited) if isinstance(edited, (int, float)) else atom.time or 0.0


def text_of(value: object) -> str:
    """Return a string, stripped; empty for any other value."""
    return value.strip() if isinstance(value, str) else ""


def listed(value: object) -> list[Any]:
    """Return a list; empty for any other value."""
    return value if isinstance(value, list) else []


def mapped(value: object) -> Mapping[str, Any]:
    """Return a mapping; empty for any other value."""
    return value if isinstance(value, Mapping) else {}


def timed(value: object) -> float | None:
    """Return a time in seconds since the epoch, UTC; None if it is missing."""
    return None if value is None or value == "" else foreign_time(value)
