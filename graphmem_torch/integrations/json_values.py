"""JSON values of frameworks, which an adapter keeps exactly or refuses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.exact import DigitsError, exact_value

__all__ = ["json_copy"]


def json_copy(value: Any, place: str) -> Any:
    """Return a copy of a JSON value: plain dictionaries, lists and scalars.

    Raises:
        InputError: JSON cannot hold the value; the message names its place.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = str.__str__(value)
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError(
                f"{place}: expected text, got half of a surrogate pair in {text!r:.60}; remove it"
            )
        return text
    if isinstance(value, int):
        number: Any = int(value)  # type checkers know no `numbers.Real`
        try:
            return exact_value(number)
        except DigitsError as error:
            raise InputError(f"{place}: {error}; give a shorter one, or a string") from error
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    try:
        if isinstance(value, Mapping):
            if all(isinstance(name, str) for name in value):
                pairs = value.items()
                return {
                    json_copy(name, place): json_copy(own, f"{place}.{name}") for name, own in pairs
                }
            value = next(name for name in value if not isinstance(name, str))
            place += ": names"
        elif isinstance(value, list | tuple):
            return [json_copy(own, f"{place}[{i}]") for i, own in enumerate(value)]
    except RecursionError as error:
        raise InputError(f"{place:.80}: expected fewer levels, got too many; flatten it") from error
    raise InputError(
        f"{place:.120}: expected what JSON can hold, got {value!r:.60} ({type(value).__name__}); "
        "give its text, or the mapping that it stands for"
    )
