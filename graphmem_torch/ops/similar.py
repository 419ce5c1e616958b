"""topk_cosine and knn_graph: exact nearest neighbours by tiled products."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._check import check_count, check_matrix
from graphmem_torch.ops._library import register

__all__ = ["knn_graph", "topk_cosine"]

_COLUMNS = 16_384  # keys a tile scores
_SCORES = 1 << 24  # scores a tile holds: 64 MB, whatever B and N


def topk_cosine(
    queries: Tensor,  # [B, d], unit rows
    keys: Tensor,  # [N, d], unit rows
    k: int,
) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
    """The k keys of largest inner product with each query, best first; exact.

    Scores are made tile by tile, at most 64 MB at once. Half precision is stored but multiplied in
    float32.

    Raises:
        InputError: For shapes or devices that do not fit, or k below 1.
    """
    check_matrix("queries", queries, "[B, d]")
    check_matrix("keys", keys, "[N, d]")
    check_count("k", k)
    if queries.shape[1] != keys.shape[1] or queries.device != keys.device:
        raise InputError(
            f"queries must have {keys.shape[1]} columns on {keys.device} like the keys; got "
            f"{list(queries.shape)} on {queries.device}. Encode both with the same embedder."
        )
    return _topk_cosine(queries, keys, k)


def knn_graph(
    x: Tensor,  # [N, d], unit rows
    k: int,
    *,
    start: int = 0,
    earlier: bool = False,
) -> tuple[Tensor, Tensor]:  # [N - start, k] int64, [N - start, k]
    """The k rows most similar to each row from `start` on, other than itself, best first; exact.

    Where there are fewer than k others, the rest is index -1 and value minus infinity.

    Args:
        x: Rows of unit length; half precision is multiplied in float32.
        k: Neighbours a row.
        start: First row to find neighbours for: linking an addition looks only at the new rows.
        earlier: Only neighbours j < i (`mathematics.md` section 3).

    Returns:
        Indices, then their inner products.

    Raises:
        InputError: If x is no matrix, k is below 1 or `start` is outside 0..N.
    """
    check_matrix("x", x, "[N, d]")
    check_count("k", k)
    if not 0 <= start <= x.shape[0]:
        raise InputError(f"start must be in 0..{x.shape[0]}; got {start}. Give the first new row.")
    return _knn_graph(x, k, start, earlier)


def _topk(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    count = min(k, keys.shape[0])
    height = max(1, _SCORES // min(_COLUMNS, max(1, keys.shape[0])))
    parts = [_best(part, keys, count, -1, False) for part in queries.float().split(height)]
    values, indices = (torch.cat(column) for column in zip(*parts, strict=True))
    return values, indices


def _knn(x: Tensor, k: int, start: int, earlier: bool) -> tuple[Tensor, Tensor]:
    rows = x.shape[0] - start
    indices = torch.full((rows, k), -1, device=x.device)
    values = torch.full((rows, k), -torch.inf, device=x.device)
    if rows == 0:
        return indices, values
    height = max(1, min(1024, _SCORES // _COLUMNS))
    for first in range(start, x.shape[0], height):
        last = min(first + height, x.shape[0])
        keys = x[:last] if earlier else x
        value, index = _best(x[first:last].float(), keys, min(k, keys.shape[0]), first, earlier)
        part = slice(first - start, last - start)
        values[part, : value.shape[1]] = value
        indices[part, : index.shape[1]] = index.masked_fill_(value == -torch.inf, -1)
    return indices, values


def _best(
    queries: Tensor,  # [b, d]
    keys: Tensor,  # [N, d]
    k: int,
    row: int,  # which key the first query is, so that none finds itself; -1: none of them
    earlier: bool,
) -> tuple[Tensor, Tensor]:
    """The k best keys of each query, merged tile by tile."""
    values = queries.new_empty(queries.shape[0], 0)
    indices = torch.empty(queries.shape[0], 0, dtype=torch.int64, device=queries.device)
    own = row + torch.arange(queries.shape[0], device=queries.device)[:, None]
    for begin in range(0, keys.shape[0], _COLUMNS):
        tile = keys[begin : begin + _COLUMNS].float()
        scores = queries @ tile.T
        if row >= 0 and begin + tile.shape[0] > row and (earlier or begin < row + len(queries)):
            column = torch.arange(begin, begin + tile.shape[0], device=queries.device)
            scores.masked_fill_(column >= own if earlier else column == own, -torch.inf)
        value, index = scores.topk(min(k, tile.shape[0]), dim=1)
        values = torch.cat([values, value], dim=1)
        indices = torch.cat([indices, index + begin], dim=1)
        if begin:
            values, place = values.topk(min(k, values.shape[1]), dim=1)
            indices = indices.gather(1, place)
    return values, indices


def _topk_fake(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    shape = (queries.shape[0], torch.sym_min(k, keys.shape[0]))
    return queries.new_empty(shape, dtype=torch.float32), queries.new_empty(
        shape, dtype=torch.int64
    )


def _knn_fake(x: Tensor, k: int, start: int, earlier: bool) -> tuple[Tensor, Tensor]:
    shape = (x.shape[0] - start, k)
    return x.new_empty(shape, dtype=torch.int64), x.new_empty(shape, dtype=torch.float32)


_topk_cosine = register(
    "topk_cosine(Tensor queries, Tensor keys, int k) -> (Tensor, Tensor)", _topk, fake=_topk_fake
)
_knn_graph = register(
    "knn_graph(Tensor x, int k, int start, bool earlier) -> (Tensor, Tensor)", _knn, fake=_knn_fake
)
