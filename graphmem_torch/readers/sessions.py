"""Records of whole sessions: a line with `turns` or `messages` is as many memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.readers.source import leaving_out

__all__ = ["SESSION_KEYS", "turn_records"]

SESSION_KEYS = ("turns", "messages")
"""Keys that hold the turns of a session."""
_WRITE = '{"session": "...", "time": "...", "turns": [{"speaker": "...", "text": "..."}]}'


def turn_records(
    record: object, where: str | None = None, skipped: list[str] | None = None
) -> Iterator[tuple[object, str | None]]:
    """The records of a session's turns with their places; any other record as it is.

    A session has `turns` or `messages`, a list of records or texts, and no `text` of its own. What
    it says besides holds for each turn that does not say otherwise: `time`, `title`, `kind`, `meta`
    and keys of its own. Its `session`, else its `id`, is the session of the turns. Turns without an
    id have `<id>:<number>`, from 0, if the session has an `id`, so that one that has grown can be
    read again.

    Args:
        record: A record.
        where: File and line, for messages.
        skipped: List that receives what is wrong with turns, which are left out then.

    Raises:
        InputError: Both keys, a text beside them, no turns, or a turn that is none.
    """
    held = [key for key in SESSION_KEYS if _holds_turns(record, key)]
    if not held or not isinstance(record, Mapping):
        yield record, where
        return
    key, turns = held[0], record[held[0]]
    beside = [name for name in (*held[1:], "text", "content") if record.get(name) is not None]
    if beside:
        raise InputError(
            f"{key}: expected a session without {beside[0]!r}, got both; give them as two records",
            where=where,
        )
    if not turns:
        raise InputError(f"{key}: expected turns, got none; leave the session out", where=where)
    name = record.get("id")
    shared = {field: value for field, value in record.items() if field not in (key, "id")}
    if shared.get("session") is None and name is not None:
        shared["session"] = str(name)
    for number, turn in enumerate(turns):
        place = f"{where or 'session'}, {key}[{number}]"
        with leaving_out(skipped):
            own: Any = {"text": turn} if isinstance(turn, str) else turn
            if not isinstance(own, Mapping) or any(
                _holds_turns(own, each) for each in SESSION_KEYS
            ):
                raise InputError(
                    f"{key}: expected a text or a record of one turn, got {turn!r:.80}; write "
                    f"{_WRITE}",
                    where=place,
                )
            said = {field: value for field, value in own.items() if value is not None}
            if name is not None:
                said.setdefault("id", f"{name}:{number}")
            meta = _merged(shared.get("meta"), said.get("meta"))
            yield {**shared, **said, **meta}, place


def _holds_turns(record: object, key: str) -> bool:
    """Whether a record has a list there, as a session has; a number is a count."""
    return isinstance(record, Mapping) and isinstance(record.get(key), (list, tuple))


def _merged(shared: object, own: object) -> dict[str, Any]:
    """The `meta` of a turn with that of its session; nothing where neither is a mapping."""
    if isinstance(shared, Mapping) and isinstance(own, Mapping):
        return {"meta": {**shared, **own}}
    return {}
