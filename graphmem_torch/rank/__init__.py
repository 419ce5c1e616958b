"""Ranking: signals of memories, candidates, anchors, paths, abstention, and the lexical index.

The rest of the package imports from the modules; this re-export is for standalone use.
"""

from __future__ import annotations

from graphmem_torch.ops.bm25 import BM25

__all__ = ["BM25"]
