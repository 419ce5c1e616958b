"""The sparse products of the CPU, each chosen by measurement.

At 100k nodes and 1.3M edges, one thread, milliseconds for B = 1 / 4 / 16 / 64 columns:

| product | 1 | 4 | 16 | 64 |
| --- | --- | --- | --- | --- |
| torch CSR @ dense | 2.1 | 2.9 | 12.2 | 62 |
| embedding_bag (FBGEMM), int32 | 5.4 | 3.9 | 3.3 | 12.1 |
| largest, torch.sparse.mm "amax" | 9.8 | 15 | 23 | 44 |
| largest, gather + segment_reduce | 10 | 79 | 286 | |
"""

from __future__ import annotations

import functools
import warnings

import torch
from torch import Tensor

__all__ = ["BAG_FROM", "csr_matrix", "csr_rows", "spmm_max", "spmm_sum"]

BAG_FROM = 5
"""Columns from which embedding_bag overtakes the CSR product."""


def spmm_sum(
    indptr: Tensor,  # [R + 1] int32
    column: Tensor,  # [E] int32
    weight: Tensor,  # [E]
    x: Tensor,  # [C, B], rows contiguous
) -> Tensor:  # [R, B]
    """Row i is the sum over its edges of `weight * x[column]`; empty rows are 0."""
    rows = indptr.shape[0] - 1
    if column.numel() == 0 or x.shape[1] == 0:
        return x.new_zeros(rows, x.shape[1])
    if x.shape[1] == 1:
        return torch.mv(csr_matrix(indptr, column, weight, x.shape[0]), x[:, 0])[:, None]
    if x.shape[1] < BAG_FROM:
        return csr_matrix(indptr, column, weight, x.shape[0]) @ x
    return torch.nn.functional.embedding_bag(
        column, x, indptr, mode="sum", per_sample_weights=weight, include_last_offset=True
    )


def spmm_max(
    indptr: Tensor,  # [R + 1] int32
    column: Tensor,  # [E] int32
    weight: Tensor,  # [E]
    x: Tensor,  # [C, B]
) -> Tensor:  # [R, B]
    """Row i is the largest over its edges of `weight * x[column]`; empty rows are -inf."""
    rows = indptr.shape[0] - 1
    if column.numel() == 0 or x.shape[1] == 0:
        return x.new_full((rows, x.shape[1]), -torch.inf)
    matrix = csr_matrix(indptr.to(torch.int64), column.to(torch.int64), weight, x.shape[0])
    best = torch.sparse.mm(matrix, x, "amax")
    return best.index_fill_(0, (indptr.diff() == 0).nonzero()[:, 0], -torch.inf)


def csr_rows(indptr: Tensor, edges: int) -> Tensor:  # [E] int32
    """The row of every edge; waits for no device."""
    place = torch.arange(edges, dtype=torch.int32, device=indptr.device)
    return torch.searchsorted(indptr[1:].contiguous(), place, right=True, out_int32=True)


def csr_matrix(indptr: Tensor, column: Tensor, weight: Tensor, columns: int) -> Tensor:
    """The rows as a tensor of torch's own CSR layout, which shares their memory."""
    _hear_warning()
    size = (indptr.shape[0] - 1, columns)
    return torch.sparse_csr_tensor(indptr, column, weight, size, check_invariants=False)


@functools.cache
def _hear_warning() -> None:
    """Torch says once a process that its layout is in beta; filters a call cost 60 microseconds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        torch.zeros(1, 1).to_sparse_csr()
