"""Memory: long-term memory on disk, with an encoder and the current index.

The names are imported when they are first used: what reads a store as it lies needs no tensors.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmem_torch.memory.memory import Memory
    from graphmem_torch.memory.request import Layout, Scope
    from graphmem_torch.results import Added

__all__ = ["Added", "Layout", "Memory", "Scope"]

_MODULE = {
    "Added": "results",
    "Layout": "memory.request",
    "Memory": "memory.memory",
    "Scope": "memory.request",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"graphmem_torch.{_MODULE[name]}"), name)
    globals()[name] = value
    return value
