"""Storage: SQLite is the source of truth; derived tensors go to a safetensors snapshot.

Names are imported on first use, so that code that reads only rows does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
    from graphmem_torch.edges import EdgeBlock
    from graphmem_torch.store.atom_columns import Coded, Columns
    from graphmem_torch.store.batches import Batch, NodeVectors, TokenRows
    from graphmem_torch.store.reader import StoreReader
    from graphmem_torch.store.store import MemoryStore
    from graphmem_torch.store.tensor_reader import TensorReader

__all__ = [
    "Batch",
    "Coded",
    "Columns",
    "EdgeBlock",
    "MemoryStore",
    "NodeVectors",
    "StoreReader",
    "TensorReader",
    "TokenRows",
]

_NAMES = {
    "edges": "EdgeBlock",
    "store.atom_columns": "Coded Columns",
    "store.batches": "Batch NodeVectors TokenRows",
    "store.reader": "StoreReader",
    "store.store": "MemoryStore",
    "store.tensor_reader": "TensorReader",
}

__getattr__ = lazy_names(__name__, _NAMES)
