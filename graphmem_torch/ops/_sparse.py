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

import warnings

import torch
from torch import Tensor

__all__ = ["spmm_max", "spmm_sum"]

_BAG_FROM = 5  # columns from which embedding_bag overtakes the CSR product


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
    if x.shape[1] < _BAG_FROM:
        return _csr(indptr, column, weight, x.shape[0]) @ x
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
    matrix = _csr(indptr.to(torch.int64), column.to(torch.int64), weight, x.shape[0])
    best = torch.sparse.mm(matrix, x, "amax")
    return best.masked_fill_((indptr.diff() == 0)[:, None], -torch.inf)


def _csr(indptr: Tensor, column: Tensor, weight: Tensor, columns: int) -> Tensor:
    size = (indptr.shape[0] - 1, columns)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return torch.sparse_csr_tensor(indptr, column, weight, size, check_invariants=False)
