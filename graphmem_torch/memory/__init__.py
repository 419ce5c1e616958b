"""Memory: long-term memory on disk, with an encoder and the current index."""

from __future__ import annotations

from graphmem_torch.memory.memory import Memory
from graphmem_torch.results import Added

__all__ = ["Added", "Memory"]
