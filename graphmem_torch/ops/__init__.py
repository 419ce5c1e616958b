"""Numerical operations: batched, registered with torch, each beside its reference.

Holds what needs only tensors and graphs; may import `graph`, `coo`, `checks` and `errors`.
"""

from __future__ import annotations

from graphmem_torch.ops.inhibit import inhibit
from graphmem_torch.ops.ivf import IVF
from graphmem_torch.ops.knapsack import Packing, knapsack
from graphmem_torch.ops.knn_graph import knn_graph
from graphmem_torch.ops.maxsim import maxsim, token_maxima
from graphmem_torch.ops.pagerank import pagerank, personalized_pagerank
from graphmem_torch.ops.propagate import propagate
from graphmem_torch.ops.solution import Solution
from graphmem_torch.ops.sparse_rows import SparseRows
from graphmem_torch.ops.spmm import spmm
from graphmem_torch.ops.spread import spread_activation
from graphmem_torch.ops.topk_cosine import topk_cosine

__all__ = [
    "IVF",
    "Packing",
    "Solution",
    "SparseRows",
    "inhibit",
    "knapsack",
    "knn_graph",
    "maxsim",
    "pagerank",
    "personalized_pagerank",
    "propagate",
    "spmm",
    "spread_activation",
    "token_maxima",
    "topk_cosine",
]
