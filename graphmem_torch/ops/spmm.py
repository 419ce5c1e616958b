"""spmm: a sparse matrix in compressed rows times a panel of columns."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._check import check_choice, check_matrix
from graphmem_torch.ops._library import register
from graphmem_torch.ops._sparse import csr_rows, spmm_max, spmm_sum
from graphmem_torch.ops._spmm_gradient import (
    edge_products,
    maximum_gradients,
    transposed,
)

__all__ = ["REDUCE", "Reduce", "spmm", "spmm_reference"]

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
    """The product of a sparse matrix in compressed rows (CSR) and a panel of B columns.

    `sum`: y_i = sum over the edges e of row i of weight_e x[column_e], 0 where there is none.
    `max`: the largest of these terms, minus infinity where there is none. Differentiable in x and
    in weight; equal terms of a maximum share the gradient evenly.

    Half precision is accumulated in float32. Indices are not looked at: one out of range reads
    memory that is not there. Nothing waits for the device, so it may run inside a CUDA graph.

    Args:
        indptr: Row i has the edges `indptr[i]:indptr[i + 1]`.
        column: The row of x that each edge reads.
        weight: What each edge multiplies by.
        x: Row-major is fastest.
        reduce: How the terms of a row are combined.

    Returns:
        `[R, B]` in the dtype of x, row-major.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit.
    """
    check_matrix("x", x, "[C, B]")
    check_choice("reduce", reduce, REDUCE)
    for name, value in (("indptr", indptr), ("column", column)):
        if value.dim() != 1 or value.dtype != torch.int32:
            raise InputError(
                f"{name} must be a vector of int32; got {value.dtype} {list(value.shape)}. "
                "Convert it with .to(torch.int32)."
            )
    if indptr.shape[0] == 0:
        raise InputError("indptr must be [R + 1]; got no elements. A matrix of no rows has [0].")
    if weight.shape != column.shape or not weight.is_floating_point():
        raise InputError(
            f"weight must be floating point {list(column.shape)}, one for each edge; got "
            f"{weight.dtype} {list(weight.shape)}. Give it in the order of column."
        )
    if not indptr.device == column.device == weight.device == x.device:
        raise InputError(
            f"indptr, column, weight and x must be on one device; got {indptr.device}, "
            f"{column.device}, {weight.device}, {x.device}. Move them together."
        )
    return _spmm(indptr, column, weight, x, reduce == "max")


def spmm_reference(
    indptr: Tensor, column: Tensor, weight: Tensor, x: Tensor, maximum: bool
) -> Tensor:  # [R, B]
    """`spmm` as it is written in the formula; forms `[E, B]`."""
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
    """Gradients in weight and x; `output` is there for the maximum only."""
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


def _gradients_fake(
    grad: Tensor,
    indptr: Tensor,
    column: Tensor,
    weight: Tensor,
    x: Tensor,
    output: Tensor | None,
) -> tuple[Tensor, Tensor]:
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
