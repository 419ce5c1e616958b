"""Report keys of records that look like fields, instead of silently keeping them as `meta`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from graphmem_torch.errors import InputError

__all__ = ["check_keys", "meant_field"]

_log = logging.getLogger(__name__)

_MEANT = {
    **dict.fromkeys(("createdat", "createtime", "date", "datetime", "timestamp", "ts"), "time"),
    **dict.fromkeys(("body", "content", "message", "value"), "text"),
    **dict.fromkeys(("conversationid", "sessionid", "threadid"), "session"),
    **dict.fromkeys(("expirationdate", "expiresat", "expiry"), "expires"),
    "metadata": "meta",
}
"""Names of these fields in other systems: letters and digits alone, in lower case."""
_VECTORS = frozenset({"embedding", "embeddings", "vector", "vectors"})
_SHORT = 4  # minimum letters of a key for a missing, doubled or swapped letter to be a slip
_LONG = 5  # minimum letters of a key for a replaced letter to be a slip
_OTHER = 8  # minimum letters of another system's name for a slip in it to count


def check_keys(
    record: Mapping[str, Any],
    fields: Collection[str],
    lists: Collection[str],
    where: str | None,
    warned: set[str] | None,
) -> None:
    """Warn of keys that would become `meta` although they look like fields.

    Args:
        record: Keys and values; null means absent.
        fields: Names of the fields.
        lists: Names of the fields for the turns of a session, which this record does not have.
        where: File and line, for messages.
        warned: Keys with an earlier warning, which is not repeated; updated. None warns each time.

    Raises:
        InputError: A vector, which would not be used.
    """
    absent = [name for name in fields if record.get(name) is None]
    for key, value in record.items():
        if not isinstance(key, str) or key in fields or (warned is not None and key in warned):
            continue
        if key in _VECTORS and not isinstance(value, (str, bool, Mapping)):
            raise InputError(
                f"{key}: expected no vector of this name here, got one; leave it out, write "
                f'"embedding" in `add` and JSON lines, or keep it as {{"meta": {{"{key}": ...}}}}',
                where=where,
            )
        several = isinstance(value, (list, tuple)) or key in lists
        field = meant_field(key, (*absent, *lists) if several else absent)
        if field == key:
            field = f"{key}: [...]"
        if field is not None:
            _log.warning(
                "%s%s: kept as meta.%s; write %r if the field is meant, or put the key into "
                "'meta' to keep it there",
                f"{where}: " if where else "",
                key,
                key,
                field,
            )
            if warned is not None:
                warned.add(key)


def meant_field(key: str, fields: Iterable[str]) -> str | None:
    """Return the field that a key looks like: in other case, with a slip, or by another name."""
    plain = _plain(key)
    other = _MEANT.get(plain)
    if other is None:
        long = (name for name in _MEANT if len(name) >= _OTHER)
        other = next((_MEANT[name] for name in long if _is_slip(plain, name)), None)
    for field in fields:
        if plain == _plain(field) or other == field or _is_slip(plain, field):
            return field
    return None


def _plain(key: str) -> str:
    return "".join(letter for letter in key.lower() if letter.isalnum())


def _is_slip(key: str, field: str) -> bool:
    """Return whether two words differ by one letter: missing, added, replaced or swapped."""
    field = _plain(field)
    if len(field) < _SHORT or abs(len(key) - len(field)) > 1:
        return False
    same = 0
    while same < min(len(key), len(field)) and key[same] == field[same]:
        same += 1
    rest, own = key[same:], field[same:]
    if len(rest) != len(own):
        return rest[1:] == own or rest == own[1:]
    if rest[:2] == own[1::-1] and len(own) > 1 and rest[2:] == own[2:]:
        return True
    return len(field) >= _LONG and rest[1:] == own[1:]
