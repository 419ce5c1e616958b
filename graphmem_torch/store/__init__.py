"""Storage: SQLite as the only truth, a safetensors snapshot of what is derived from it."""

from __future__ import annotations

from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.atom_columns import Coded, Columns
from graphmem_torch.store.blocks import Batch, NodeVectors, TokenRows
from graphmem_torch.store.store import MemoryStore

__all__ = [
    "Batch",
    "Coded",
    "Columns",
    "EdgeBlock",
    "MemoryStore",
    "NodeVectors",
    "TokenRows",
]
