"""Memory: long-term memory on disk, with an encoder and the current index.

The names are imported when they are first used: what reads a store as it lies needs no tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
    from graphmem_torch.memory.memory import Memory
    from graphmem_torch.memory.request import Layout, Scope
    from graphmem_torch.memory.sharded import create_shards, open_shards
    from graphmem_torch.results import Added

__all__ = ["Added", "Layout", "Memory", "Scope", "create_shards", "open_shards"]

_NAMES = {
    "memory.memory": "Memory",
    "memory.request": "Layout Scope",
    "memory.sharded": "create_shards open_shards",
    "results": "Added",
}

__getattr__ = lazy_names(__name__, _NAMES)
