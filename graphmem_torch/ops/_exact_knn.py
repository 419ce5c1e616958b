"""Exact nearest neighbours within one set of rows: every pair of tiles is multiplied once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from graphmem_torch.ops._block_topk import empty_best, merge_tile
from graphmem_torch.ops._tile_scores import tile_scores

__all__ = ["exact_knn"]

_TILE = 1024  # new rows of a tile
_SCORES = _TILE * _TILE  # scores of a pair of tiles: 4 MB


def exact_knn(
    x: Tensor,  # [N, d]
    k: int,
    start: int,
    earlier: bool,
) -> tuple[Tensor, Tensor]:  # [N - start, k] values, [N - start, k] int64
    """`knn_graph` without approximation; minus infinity and -1 where there are no more others.

    The product of two tiles is symmetric, so its rows serve the one tile and its columns the other:
    half the products of a search of every row among all.
    """
    rows = x.shape[0]
    values, indices = empty_best(rows - start, k, x.device)
    tiles = list(_tiles(start, rows))
    buffer = torch.empty(_SCORES, dtype=torch.float32, device=x.device)
    for high, (low_end, high_end) in enumerate(tiles):
        if high_end <= start:
            continue
        upper = x[low_end:high_end].float()
        own = slice(low_end - start, high_end - start)
        for first, last in tiles[: high + 1]:
            scores = tile_scores(upper, x[first:last], buffer)
            if first == low_end:
                _mask_diagonal(scores, earlier)
            merge_tile(values[own], indices[own], scores, first)
            if start <= first < low_end and not earlier:
                other = slice(first - start, last - start)
                merge_tile(values[other], indices[other], scores.T, low_end)
    return values, indices.masked_fill_(values == -torch.inf, -1)


def _tiles(start: int, rows: int) -> Iterator[tuple[int, int]]:
    """Tiles of the old rows, wide where few are new, then of those from `start` on."""
    wide = _SCORES // max(1, min(_TILE, rows - start))
    for first, last, step in ((0, start, wide), (start, rows, _TILE)):
        for begin in range(first, last, step):
            yield begin, min(begin + step, last)


def _mask_diagonal(scores: Tensor, earlier: bool) -> None:
    """No row is its own neighbour; with `earlier`, nor are those after it."""
    if earlier:
        after = torch.ones_like(scores, dtype=torch.bool).triu_()
        scores.masked_fill_(after, -torch.inf)
    else:
        scores.fill_diagonal_(-torch.inf)
