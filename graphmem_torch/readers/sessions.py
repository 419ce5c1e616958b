"""Split records of whole sessions: each turn in `turns` or `messages` is a memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from graphmem_torch.atoms import text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.exact import dump_json
from graphmem_torch.readers.messages import is_object, plain
from graphmem_torch.readers.source import leaving_out

__all__ = ["SESSION_KEYS", "turn_records"]

SESSION_KEYS = ("turns", "messages")
"""Keys that hold the turns of a session."""
_WRITE = '{"session": "...", "time": "...", "turns": [{"speaker": "...", "text": "..."}]}'


def turn_records(
    record: object,
    where: str | None = None,
    skipped: list[str] | None = None,
    *,
    losses: Counter[str],
    session: str | None = None,
) -> Iterator[tuple[object, str | None]]:
    """Yield the records of a session's turns with their places; any other record unchanged.

    A session has `turns` or `messages`, a list of records or texts, and no `text` of its own. Its
    other fields are defaults for the turns: `time`, `title`, `kind`, `meta` and unknown keys. Its
    `session`, else its `id`, is the session of the turns; without both, a name is made from its
    content. If the session has an `id`, turns without one get `<id>:<number>`, from 0, so that a
    grown session can be read again.

    Args:
        record: Record of any kind.
        where: File and line, for messages.
        skipped: List of errors; updated. With it, bad turns are skipped instead of raising.
        losses: Counter of sessions without turns; updated.
        session: Default name of a session.

    Raises:
        InputError: Both keys, a text or a vector beside them, or an invalid turn.
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
    if record.get("embedding") is not None:
        raise InputError(
            f"embedding: expected a vector for each of {key}, got one for the session; put them "
            "into the turns",
            where=where,
        )
    if not turns:
        losses["session without turns"] += 1
        return
    name = record.get("id")
    shared = {field: value for field, value in record.items() if field not in (key, "id")}
    if shared.get("session") is None:
        shared["session"] = str(name) if name is not None else session or _made_name(record)
    for number, turn in enumerate(turns):
        place = f"{where or 'session'}, {key}[{number}]"
        with leaving_out(skipped):
            own: Any = {"text": turn} if isinstance(turn, str) else turn
            own = plain(own) if is_object(own) else own
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


def _made_name(record: Mapping[str, Any]) -> str | None:
    """Return a name for a session without one, equal for equal content."""
    try:
        said = dump_json(plain(record), default=str)
    except (TypeError, ValueError, RecursionError):
        return None  # the turn that cannot be stored raises its own error
    return f"session:{text_hash(said)[:16]}"


def _holds_turns(record: object, key: str) -> bool:
    """Return whether a key of a record holds a list of turns; a number is a count."""
    return isinstance(record, Mapping) and isinstance(record.get(key), (list, tuple))


def _merged(shared: object, own: object) -> dict[str, Any]:
    """Return the `meta` of a turn merged with its session's; empty if neither is a mapping."""
    if isinstance(shared, Mapping) and isinstance(own, Mapping):
        return {"meta": {**shared, **own}}
    return {}
