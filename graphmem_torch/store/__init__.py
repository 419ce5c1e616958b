"""Storage: SQLite is the source of truth; derived tensors go to a safetensors snapshot.

Names are imported on first use, so that code that reads only rows does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_MODULE = {
    "Batch": "store.batches",
    "Coded": "store.atom_columns",
    "Columns": "store.atom_columns",
    "EdgeBlock": "edges",
    "MemoryStore": "store.store",
    "NodeVectors": "store.batches",
    "StoreReader": "store.reader",
    "TensorReader": "store.tensor_reader",
    "TokenRows": "store.batches",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"graphmem_torch.{_MODULE[name]}"), name)
    globals()[name] = value
    return value
