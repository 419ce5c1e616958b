"""Checks of what callers give to LangGraph's store: operations, and configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from graphmem_torch.checks import check_flag
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.integrations.framework import importing

with importing("langgraph", "langgraph-checkpoint", ">=4.3,<5", "langgraph"):
    from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, SearchOp

__all__ = ["checked_config", "checked_expiry", "checked_minutes", "checked_paths", "expect_types"]


def expect_types(op: Op) -> None:
    """Raise `InputError` if an operation has an argument of a wrong type."""
    if isinstance(op, ListNamespacesOp):
        for condition in op.match_conditions or ():
            _expect_labels(condition.match_type, condition.path)
        if op.max_depth is not None:
            _expect_integer("max_depth", op.max_depth)
    elif isinstance(op, SearchOp):
        _expect_labels("namespace_prefix", op.namespace_prefix)
        if not isinstance(op.query, str | None):
            raise InputError(f"query: expected a text, got {op.query!r:.60}; give one")
        if not isinstance(op.filter, Mapping | None):
            raise InputError(
                f"filter: expected conditions by field, got {op.filter!r:.60}; write "
                '{"year": {"$gte": 1986}}'
            )
    elif isinstance(op, GetOp | PutOp):
        _expect_labels("namespace", op.namespace)
    if isinstance(op, SearchOp | ListNamespacesOp):
        _expect_integer("limit", op.limit)
        _expect_integer("offset", op.offset)


def _expect_labels(name: str, labels: object) -> None:
    """Raise `InputError` for a string, each letter of which would be a label, and other types."""
    if not isinstance(labels, tuple | list):
        raise InputError(
            f"{name}: expected a tuple of labels, got {labels!r:.60}; write ({labels!r:.60},)"
        )


def _expect_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name}: expected an integer, got {value!r:.60}; give a whole number")


def checked_config(
    name: str, given: Mapping[str, Any] | None, known: tuple[str, ...]
) -> dict[str, Any]:
    """Return a configuration of LangGraph as a dictionary."""
    if not isinstance(given, Mapping | None):
        raise InputError(f"{name}: expected a mapping, got {given!r:.80}; write {{...}}")
    config = dict(given or {})
    if foreign := [each for each in config if each not in known]:
        raise InputError(unknown(name, foreign[0], known))
    return config


def checked_expiry(ttl: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return LangGraph's `TTLConfig`, whose numbers are minutes."""
    numbers = ("default_ttl", "sweep_interval_minutes")
    config = checked_config("ttl", ttl, ("refresh_on_read", "omit_expired", *numbers))
    for name in numbers:
        if config.get(name) is not None:
            checked_minutes(f"ttl: {name}", config[name])
    for name in ("refresh_on_read", "omit_expired"):
        if config.get(name) is not None:
            check_flag(f"ttl: {name}", config[name])
    return config


def checked_minutes(name: str, value: object) -> float:
    """Return a positive number of minutes."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    raise InputError(
        f"{name}: expected minutes above 0, got {value!r:.60}; leave it out for items that stay"
    )


def checked_paths(paths: object) -> list[str]:
    """Return the paths of indexed fields."""
    if isinstance(paths, list | tuple) and all(isinstance(path, str) for path in paths):
        return list(paths)
    raise InputError(
        f"index: expected False, or a list of paths such as 'memory' or 'tags[*]', got "
        f"{paths!r:.80}; give one"
    )
