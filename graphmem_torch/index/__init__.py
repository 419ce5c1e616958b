"""The index: a frozen snapshot of a memory as a torch module, and the retrieval that runs on it.

Imports only from `rank`, `modes`, `spectral` and lower layers; no I/O, no text models.
"""

from __future__ import annotations

from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Retrieval

__all__ = ["IndexInput", "MemoryIndex", "Retrieval"]
