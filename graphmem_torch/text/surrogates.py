"""Repair halves of surrogate pairs, which no encoding accepts: join or replace them.

They come from texts cut between two UTF-16 units, such as in the middle of an emoji.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graphmem_torch.lazy import lazy_pattern

__all__ = ["HALVES", "replace_surrogates"]

HALVES = "half surrogate pair replaced by U+FFFD"
"""Name of a replaced half in reports."""

_PAIR = lazy_pattern("[\ud800-\udbff][\udc00-\udfff]")
_HALF = lazy_pattern("[\ud800-\udfff]")


def replace_surrogates(value: Any) -> tuple[Any, int]:
    """Replace halves of surrogate pairs in a text, or in the texts of mappings and lists.

    Two adjacent halves become their character; any other becomes U+FFFD.

    Returns:
        The value (unchanged if nothing was replaced), and the number of halves replaced.
    """
    try:
        return _replaced(value)
    except RecursionError:  # the JSON writer reports it
        return value, 0


def _replaced(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        if value.isascii() or not _HALF.search(value):
            return value, 0
        return _HALF.subn("\ufffd", _PAIR.sub(_joined, value))
    if isinstance(value, Mapping):
        pairs = [(_replaced(key), _replaced(each)) for key, each in value.items()]
        if all(key[0] is old for (key, _), old in zip(pairs, value, strict=True)) and all(
            each[0] is old for (_, each), old in zip(pairs, value.values(), strict=True)
        ):
            return value, 0
        return {key[0]: each[0] for key, each in pairs}, sum(k[1] + v[1] for k, v in pairs)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        found = [_replaced(each) for each in value]
        if all(each[0] is old for each, old in zip(found, value, strict=True)):
            return value, 0
        return type(value)(each[0] for each in found), sum(each[1] for each in found)
    return value, 0


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")
