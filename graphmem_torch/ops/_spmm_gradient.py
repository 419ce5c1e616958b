"""Gradients of sparse products, shared by `spmm` and `propagate`.

All panels are `[nodes, B]`, so that an edge reads whole rows; temporaries of `[E, B]` are cut into
tiles of bounded size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops._sparse import csr_rows

__all__ = ["edge_products", "maximum_gradients", "transposed"]

_TILE = 1 << 22  # elements of the [edges, B] temporaries


def transposed(
    indptr: Tensor,  # [R + 1]
    column: Tensor,  # [E]
    weight: Tensor,  # [E]
    columns: int,  # C
) -> tuple[Tensor, Tensor, Tensor]:  # [C + 1], [E], [E]
    """The compressed rows of the transpose; waits for no device."""
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
    """The product of a row of `left` and a row of `right` for every edge: d sum / d weight."""
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
    top: Tensor,  # [R, B], the largest of every row; NaN where no edge may win
    grad: Tensor,  # [R, B]
    others: Tensor | None = None,  # [R, B], how many terms besides the edges attain the maximum
) -> tuple[Tensor, Tensor, Tensor]:  # [C, B], [E], [R, B]
    """Gradients of a maximum over edges in x and weight, and what each of the equal terms gets.

    The terms that attain a maximum share its gradient evenly; the others get none.
    """
    tiles = list(zip(*(t.split(_step(x)) for t in (row, column, weight)), strict=True))
    attained = torch.zeros_like(top) if others is None else others.clone()
    for r, c, w in tiles:
        attained.index_add_(0, r, (x[c] * w[:, None] == top[r]).to(top.dtype))
    share = grad / attained.clamp(min=1)
    grad_x = torch.zeros_like(x)
    parts = []
    for r, c, w in tiles:
        near = x[c]
        passed = torch.where(near * w[:, None] == top[r], share[r], 0.0)
        parts.append(torch.linalg.vecdot(passed, near))
        grad_x.index_add_(0, c, passed * w[:, None])
    return grad_x, torch.cat(parts), share


def _step(panel: Tensor) -> int:
    return max(1, _TILE // max(1, panel.shape[1]))
