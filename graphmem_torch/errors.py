"""Exceptions of graphmem_torch.

Every message says what was expected, what came, and what to do. `InputError` and its kin derive
from `ValueError`, so that callers who only know the standard library catch them too.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "EmbedderError",
    "GraphMemError",
    "InputError",
    "OracleError",
    "StoreDamagedError",
    "StoreError",
    "StoreLockedError",
]


class GraphMemError(Exception):
    """Base of every error that graphmem_torch raises on purpose."""


class InputError(GraphMemError, ValueError):
    """Input that cannot be used; `where` is the file and line it came from, when there is one."""

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class ConfigError(GraphMemError, ValueError):
    """A preset or an override that does not fit the configuration dataclasses."""


class EmbedderError(GraphMemError, ValueError):
    """An embedder that cannot be loaded, gives unusable vectors, or is not the store's own."""


class OracleError(GraphMemError):
    """A language model gave no usable answer; the message says why and what to do."""


class StoreError(GraphMemError):
    """The store cannot do what was asked (full disk, read-only, wrong schema version)."""


class StoreLockedError(StoreError):
    """Another process is writing to the store; the message names it."""


class StoreDamagedError(StoreError):
    """The store's database is damaged; the message says how to find and mend it."""
