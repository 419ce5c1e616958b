"""spmm: a sparse matrix in compressed rows times a panel of columns."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_matrix, check_tensor
from graphmem_torch.ops._library import register

__all__ = [
    "BAG_FROM",
    "REDUCE",
    "Reduce",
    "csr_matrix",
    "csr_rows",
    "edge_products",
    "maximum_gradients",
    "spmm",
    "spmm_max",
    "spmm_reference",
    "spmm_sum",
    "transposed",
]
BAG_FROM = 5
"""Number of columns from which embedding_bag is faster than the CSR product."""


def spmm_sum(
    indptr: Tensor,  # [R + 1] int32
    column: Tensor,  # [E] int32
    weight: Tensor,  # [E]
    x: Tensor,  # [C, B], rows contiguous
) -> Tensor:  # [R, B]
    """Return y_i, the sum over the edges of row i of `weight * x[column]`; empty rows are 0."""
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
    """Return y_i, the maximum over the edges of row i of `weight * x[column]`; -inf if empty."""
    rows = indptr.shape[0] - 1
    if column.numel() == 0 or x.shape[1] == 0:
        return x.new_full((rows, x.shape[1]), -torch.inf)
    matrix = csr_matrix(indptr.to(torch.int64), column.to(torch.int64), weight, x.shape[0])
    best = torch.sparse.mm(matrix, x, "amax")
    return best.index_fill_(0, (indptr.diff() == 0).nonzero()[:, 0], -torch.inf)


def csr_rows(indptr: Tensor, edges: int) -> Tensor:  # [E] int32
    """Return the row of every edge; never waits for the device."""
    place = torch.arange(edges, dtype=torch.int32, device=indptr.device)
    return torch.searchsorted(indptr[1:].contiguous(), place, right=True, out_int32=True)


def csr_matrix(indptr: Tensor, column: Tensor, weight: Tensor, columns: int) -> Tensor:
    """Return the rows in torch's CSR layout, sharing their memory."""
    _hear_warning()
    size = (indptr.shape[0] - 1, columns)
    return torch.sparse_csr_tensor(indptr, column, weight, size, check_invariants=False)


@functools.cache
def _hear_warning() -> None:
    """Silence torch's beta warning for the process; a filter per call cost 60 microseconds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        torch.zeros(1, 1).to_sparse_csr()


_TILE = 1 << 22  # elements of the [edges, B] temporaries


def transposed(
    indptr: Tensor,  # [R + 1]
    column: Tensor,  # [E]
    weight: Tensor,  # [E]
    columns: int,  # C
) -> tuple[Tensor, Tensor, Tensor]:  # [C + 1], [E], [E]
    """Return the compressed rows of the transpose; never waits for the device."""
    ordered, order = torch.sort(column, stable=True)
    places = torch.arange(columns + 1, dtype=column.dtype, device=column.device)
    starts = torch.searchsorted(ordered, places, out_int32=True)
    return starts, csr_rows(indptr, column.shape[0])[order], weight[order]


def edge_products(
    row: Tensor,  # [E] int32
    column: Tensor,  # [E] int32
    left: Tensor,  # [R, B]
    right: Tensor,  # [C, B]
) -> Tensor:  # [E]
    """Return inner products of `left[row]` and `right[column]` for all edges: d sum / d weight."""
    parts = [
        torch.linalg.vecdot(left[r], right[c])
        for r, c in zip(*(t.split(_step(left)) for t in (row, column)), strict=True)
    ]
    return torch.cat(parts)


def maximum_gradients(
    row: Tensor,  # [E] int32
    column: Tensor,  # [E] int32
    weight: Tensor,  # [E]
    x: Tensor,  # [C, B]
    top: Tensor,  # [R, B], maximum of every row; NaN if no edge may win
    grad: Tensor,  # [R, B]
    others: Tensor | None = None,  # [R, B], number of other terms that attain the maximum
) -> tuple[Tensor, Tensor, Tensor]:  # [C, B], [E], [R, B]
    """Return gradients of a maximum over edges in x and weight, and the share of an equal term.

    The terms that attain a maximum share its gradient evenly; the others get none.
    """
    tiles = list(zip(*(t.split(_step(x)) for t in (row, column, weight)), strict=True))
    attained = torch.zeros_like(top) if others is None else others.clone()
    for r, c, w in tiles:
        equal = x.index_select(0, c) * w[:, None] == top.index_select(0, r)
        _add_rows(attained, r, equal.to(top.dtype))
    share = grad / attained.clamp(min=1)
    grad_x = torch.zeros_like(x)
    parts = []
    for r, c, w in tiles:
        near = x.index_select(0, c)
        equal = near * w[:, None] == top.index_select(0, r)
        passed = torch.where(equal, share.index_select(0, r), 0.0)
        parts.append(torch.linalg.vecdot(passed, near))
        _add_rows(grad_x, c, passed * w[:, None])
    return grad_x, torch.cat(parts), share


def _add_rows(total: Tensor, place: Tensor, rows: Tensor) -> None:  # [R, B], [n], [n, B]
    """`total.index_add_(0, place, rows)`, on a CPU 4 to 12 times as fast for a few columns."""
    total.scatter_add_(0, place.long()[:, None].expand_as(rows), rows)


def _step(panel: Tensor) -> int:
    return max(1, _TILE // max(1, panel.shape[1]))


Reduce = Literal["sum", "max"]
REDUCE = get_args(Reduce)


def spmm(
    indptr: Tensor,  # [R + 1] int32, ascending from 0 to E
    column: Tensor,  # [E] int32, in 0..C-1
    weight: Tensor,  # [E]
    x: Tensor,  # [C, B]
    *,
    reduce: Reduce = "sum",
) -> Tensor:  # [R, B]
    """Return the product of a sparse matrix in compressed rows (CSR) and a panel of B columns.

    - `sum`: y_i = sum over the edges e of row i of weight_e x[column_e], 0 for an empty row.
    - `max`: the largest of these terms, minus infinity for an empty row.

    Differentiable in x and in weight; equal terms of a maximum share the gradient evenly. Half
    precision is accumulated in float32. Indices are not checked: one out of range reads invalid
    memory. Never waits for the device, so CUDA graphs may record it.

    Args:
        indptr: Row i has the edges `indptr[i]:indptr[i + 1]`.
        column: Row of x that each edge reads.
        weight: Factor of each edge.
        x: Panel; row-major is fastest.
        reduce: Reduction of the terms of a row.

    Returns:
        `[R, B]` in the dtype of x, row-major.

    Raises:
        InputError: Shapes, dtypes or devices do not fit.
    """
    check_matrix("x", x, "[C, B]")
    check_choice("reduce", reduce, REDUCE)
    do = "convert it with .to(torch.int32), where x is"
    check_tensor("indptr", indptr, "int32", ("R + 1",), do, device=x.device)
    check_count("the length of indptr", indptr.shape[0])  # even a matrix without rows has one
    check_tensor("column", column, "int32", ("E",), do, device=x.device)
    do = "give one for each edge, in the order of column"
    check_tensor("weight", weight, "floating point", column.shape, do, device=x.device)
    return _spmm(indptr, column, weight, x, reduce == "max")


def spmm_reference(
    indptr: Tensor, column: Tensor, weight: Tensor, x: Tensor, maximum: bool
) -> Tensor:  # [R, B]
    """`spmm` by its formula; forms `[E, B]`."""
    sent = weight[:, None] * x[column]
    place = csr_rows(indptr, column.shape[0]).to(torch.int64)[:, None].expand_as(sent)
    out = sent.new_full((indptr.shape[0] - 1, x.shape[1]), -torch.inf if maximum else 0.0)
    return out.scatter_reduce(0, place, sent, "amax" if maximum else "sum")


def _cpu(indptr: Tensor, column: Tensor, weight: Tensor, x: Tensor, maximum: bool) -> Tensor:
    work = torch.promote_types(x.dtype, torch.float32)
    product = spmm_max if maximum else spmm_sum
    return product(indptr, column, weight.to(work), x.to(work)).to(x.dtype)


def _fake(indptr: Tensor, column: Tensor, weight: Tensor, x: Tensor, maximum: bool) -> Tensor:
    return x.new_empty(indptr.shape[0] - 1, x.shape[1])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, maximum = inputs
    ctx.save_for_backward(*tensors, output if maximum else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_weight, grad_x = _spmm_backward(grad, *ctx.saved_tensors)
    return None, None, grad_weight, grad_x, None


def _gradients(
    grad: Tensor,  # [R, B]
    indptr: Tensor,
    column: Tensor,
    weight: Tensor,
    x: Tensor,
    output: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the gradients in weight and x; `output` is for a maximum only."""
    work = torch.promote_types(x.dtype, torch.float32)
    panel, factor, grad = x.to(work), weight.to(work), grad.to(work)
    row = csr_rows(indptr, column.shape[0])
    if output is None:
        turned = transposed(indptr, column, factor, x.shape[0])
        grad_x = _spmm(*turned, grad.contiguous(), False)
        grad_weight = edge_products(row, column, grad, panel)
    else:
        # Rounded to half precision, a maximum would equal none of its terms.
        top = output if output.dtype == work else _spmm(indptr, column, factor, panel, True)
        grad_x, grad_weight, _ = maximum_gradients(row, column, factor, panel, top, grad)
    return grad_weight.to(weight.dtype), grad_x.to(x.dtype)


def _gradients_fake(*inputs: Any) -> tuple[Tensor, Tensor]:
    weight, x = inputs[3:5]
    return torch.empty_like(weight), x.new_empty(x.shape)


_spmm_backward = register(
    "spmm_backward(Tensor grad, Tensor indptr, Tensor column, Tensor weight, Tensor x, "
    "Tensor? output) -> (Tensor, Tensor)",
    _gradients,
    fake=_gradients_fake,
)
_spmm = register(
    "spmm(Tensor indptr, Tensor column, Tensor weight, Tensor x, bool maximum) -> Tensor",
    _cpu,
    launcher="spmm:launch_spmm",
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
