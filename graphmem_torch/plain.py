"""Conversion of Python and numpy values to JSON values, for `meta` and for filters.

Both use `plain_value`, so a filter finds what was stored from the same value.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from numbers import Integral, Real
from typing import Any
from uuid import UUID

from graphmem_torch.errors import InputError

__all__ = ["plain_meta", "plain_value"]

_PLAIN = frozenset({str, int, float, bool, type(None)})  # the most common types


def plain_meta(value: Any, place: str) -> Any:
    """Return `meta`, or a part of it, with every value as a JSON value.

    Args:
        value: Value from a caller; lists and mappings of any depth.
        place: Name of the field, for messages, such as `atom 'a': meta`.

    Raises:
        InputError: A value has no single JSON form; the message names its key.
    """
    if type(value) in _PLAIN:
        return value
    try:
        if isinstance(value, Mapping):
            return {
                key: each if type(each) in _PLAIN else plain_meta(each, f"{place}.{key}")
                for key, each in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [plain_meta(each, place) for each in value]
    except RecursionError as error:
        raise InputError(f"{place:.80}: expected fewer levels, got too many; flatten it") from error
    return plain_value(value, place)


def plain_value(value: Any, place: str) -> Any:
    """Return the JSON value of a scalar.

    - `datetime` with a time zone: ISO 8601 in UTC, `2024-05-03T10:00:00+00:00`; sorts by time.
    - `date`: ISO 8601. `UUID`: its 36 characters. `Enum`: its value.
    - Numpy scalars: Python values; a `datetime64` in days is a date.

    Other numbers are returned unchanged, because `exact` keeps all their digits.

    Args:
        value: Scalar.
        place: Name of the field, for messages.

    Raises:
        InputError: The type has no JSON form, or a time has no zone.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum) and value.value is not value:
        return plain_value(value.value, place)
    if isinstance(value, str):
        return str.__str__(value)  # a subclass may define its own hash or text
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InputError(
                f"{place}: expected a datetime with a time zone, got {value!r:.80}; give it one, "
                "such as value.replace(tzinfo=timezone.utc), or a string"
            )
        with suppress(OverflowError):  # the first and last day of the calendar
            value = value.astimezone(UTC)
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    kind = getattr(getattr(value, "dtype", None), "kind", None) if _is_numpy(value) else None
    if kind == "b":
        return bool(value)
    if kind == "M" and type(day := value.item()) is date:
        return day.isoformat()
    if isinstance(value, Real | Decimal) and kind != "m":
        if isinstance(value, Integral):
            return int(value)
        return float(value) if kind == "f" and float(value) == value else value
    raise InputError(
        f"{place}: expected a string, number, boolean, date, UUID or None, got {value!r:.80} "
        f"({type(value).__name__}); give its text, such as str(value)"
    )


def _is_numpy(value: object) -> bool:
    """Return whether a value is a numpy scalar; numpy need not be installed."""
    return type(value).__module__ == "numpy"
