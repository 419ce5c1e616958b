"""Ranking: signals of memories, candidates, anchors, paths, abstention, and the lexical index.

The rest of the package imports from the modules; what stands here is for use on its own.
"""

from __future__ import annotations

from graphmem_torch.ops.bm25 import BM25

__all__ = ["BM25"]
