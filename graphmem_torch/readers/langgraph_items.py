"""Items of LangGraph's long-term store as atoms, as its adapter keeps them and imports write them.

An item is found by an id of its namespace and key. Its text is what is searched; `meta` holds what
the store must give back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["item_fields", "item_id", "value_text"]

_KIND = "item"


def item_id(namespace: Sequence[str], key: str) -> str:
    """Return the id of the atom of an item."""
    named = json.dumps([[*namespace], key])
    return f"{_KIND}:{hashlib.sha256(named.encode()).hexdigest()[:32]}"


def item_fields(
    namespace: Sequence[str],
    key: str,
    value: Mapping[str, Any],
    text: str,
    *,
    created: str,
    updated: str,
    order: tuple[int, int],
) -> dict[str, Any]:
    """Return the fields `id`, `text`, `kind` and `meta` of the atom of an item.

    Args:
        namespace: Labels of its namespace.
        key: Its key.
        value: Its value, which JSON can hold.
        text: Text to search; empty for an item that no query finds.
        created: Time of its first put, ISO 8601.
        updated: Time of its last put, ISO 8601.
        order: Number of the item that began its namespace, and its own, in the order of puts.
    """
    return {
        "id": item_id(namespace, key),
        # An atom needs a text: that of an item without one is its place.
        "text": text or f"{'.'.join(namespace)}/{key}",
        "kind": _KIND,
        "meta": {
            "namespace": [*namespace],
            "key": key,
            "value": value,
            "within": [".".join(namespace[:depth]) for depth in range(len(namespace) + 1)],
            "indexed": bool(text),
            "created": created,
            "updated": updated,
            "order": [*order],
        },
    }


def value_text(value: Mapping[str, Any]) -> str:
    """Return the strings and numbers in a value as lines, each after its name if there are more."""
    found: list[tuple[str, str]] = []

    def collect(name: str, own: Any) -> None:
        if isinstance(own, dict):
            for inner, each in own.items():
                collect(inner, each)
        elif isinstance(own, list):
            for each in own:
                collect(name, each)
        elif own is not None and str(own).strip():
            found.append((name, str(own)))

    collect("", value)
    if len(found) == 1:
        return found[0][1]
    return "\n".join(f"{name}: {text}" for name, text in found)
