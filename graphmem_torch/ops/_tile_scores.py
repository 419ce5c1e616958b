"""The inner products of some queries with a tile of keys, at the speed of BLAS or of memory."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["FEW", "tile_scores"]

FEW = 8  # queries up to which the keys are read at the speed of memory
_LANES = 8  # keys of one product of a batch
_PRODUCT = 1024  # keys of one product: with 384 columns they stay in the second-level cache


def tile_scores(
    queries: Tensor,  # [b, d] float32
    keys: Tensor,  # [w, d]; half precision is multiplied in float32
    buffer: Tensor,  # [at least b * w] float32, overwritten
) -> Tensor:  # [b, w]
    """The inner products, by the form in which BLAS is fast.

    Few queries: batches of 8 keys times the queries run at the speed of memory, where a matvec, or
    a product with few rows, takes two to five times as long (MKL on AVX2, 384 columns).
    """
    count, width = queries.shape[0], keys.shape[0]
    if count > FEW:
        scores = buffer[: count * width].view(count, width)
        for tile, out in zip(keys.split(_PRODUCT), scores.split(_PRODUCT, dim=1), strict=True):
            torch.mm(queries, tile.float().T, out=out)
        return scores
    scores = buffer[: width * count].view(width, count)
    whole = width - width % _LANES
    step = width if keys.dtype == torch.float32 else _PRODUCT * _LANES
    for tile, out in zip(keys[:whole].split(step), scores[:whole].split(step), strict=True):
        lanes = tile.float().unflatten(0, (-1, _LANES))
        factor = queries.T.expand(len(lanes), -1, -1)
        torch.bmm(lanes, factor, out=out.unflatten(0, (-1, _LANES)))
    if whole < width:
        torch.mm(keys[whole:].float(), queries.T, out=scores[whole:])
    return scores.T.contiguous()
