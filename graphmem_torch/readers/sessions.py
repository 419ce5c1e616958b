"""Records of whole sessions: a line with `turns` or `messages` is as many memories."""

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
    """The records of a session's turns with their places; any other record as it is.

    A session has `turns` or `messages`, a list of records or texts, and no `text` of its own. What
    it says besides holds for each turn that does not say otherwise: `time`, `title`, `kind`, `meta`
    and keys of its own. Its `session`, else its `id`, is the session of the turns; without both the
    session has a name made from its content, so that its turns belong together. Turns without an id
    have `<id>:<number>`, from 0, if the session has an `id`, so that one that has grown can be
    read again.

    Args:
        record: A record.
        where: File and line, for messages.
        skipped: List that receives what is wrong with turns, which are left out then.
        losses: Counter that receives what is left out, by kind: sessions without turns.
        session: Name of a session that has none of its own.

    Raises:
        InputError: Both keys, a text beside them, or a turn that is none.
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
    """A name for a session that has none, the same whenever it says the same."""
    try:
        said = dump_json(plain(record), default=str)
    except (TypeError, ValueError, RecursionError):
        return None  # the turn that cannot be stored is an error of its own
    return f"session:{text_hash(said)[:16]}"


def _holds_turns(record: object, key: str) -> bool:
    """Whether a record has a list there, as a session has; a number is a count."""
    return isinstance(record, Mapping) and isinstance(record.get(key), (list, tuple))


def _merged(shared: object, own: object) -> dict[str, Any]:
    """The `meta` of a turn with that of its session; nothing where neither is a mapping."""
    if isinstance(shared, Mapping) and isinstance(own, Mapping):
        return {"meta": {**shared, **own}}
    return {}
