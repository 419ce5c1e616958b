"""Readers: files, folders and streams to atoms: text, JSON lines, LoCoMo, proof graphs.

May import `text`, `atoms`, `errors`; knows no store and no index.
"""

from __future__ import annotations

from graphmem_torch.readers.jsonl import atom_from_record
from graphmem_torch.readers.locomo import LocomoSample, read_locomo
from graphmem_torch.readers.read import document_atoms, read_atoms

__all__ = ["LocomoSample", "atom_from_record", "document_atoms", "read_atoms", "read_locomo"]
