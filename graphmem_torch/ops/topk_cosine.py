"""topk_cosine: the exact nearest rows of every query, by tiled products."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_matrix
from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import import_kernels, register
from graphmem_torch.ops.running_topk import empty_best, merge_tile

__all__ = ["FEW", "best_keys", "check_pair", "tile_scores", "topk_cosine", "topk_cosine_reference"]
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


_COLUMNS = 16_384  # keys whose scores are selected from at once
_SCORES = 1 << 22  # scores held: 16 MB, in the third-level cache whatever B and N


def topk_cosine(
    queries: Tensor,  # [B, d], unit rows
    keys: Tensor,  # [N, d], unit rows
    k: int,
) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
    """The k keys of largest inner product with each query, best first; exact.

    Half precision is stored but multiplied in float32. Scores exist a tile of 16 MB at a
    time. Which of equal keys is returned is not specified. Values must be finite.

    Raises:
        InputError: For shapes or devices that do not fit, or k below 1.
    """
    check_pair(queries, keys)
    check_count("k", k)
    return _topk_cosine(queries, keys, k)


def check_pair(queries: Tensor, keys: Tensor, name: str = "queries") -> None:
    """Raises `InputError` unless both are matrices of one width on one device."""
    check_matrix(name, queries, "[B, d]")
    check_matrix("keys", keys, "[N, d]")
    if queries.shape[1] != keys.shape[1] or queries.device != keys.device:
        raise InputError(
            f"{name} must have {keys.shape[1]} columns on {keys.device} like the keys; got "
            f"{list(queries.shape)} on {queries.device}. Encode both with the same embedder."
        )


def topk_cosine_reference(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`topk_cosine` as it is defined; forms `[B, N]`."""
    values, indices = (queries.float() @ keys.float().T).topk(min(k, len(keys)), dim=1)
    return values, indices


def best_keys(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`topk_cosine` tile by tile, on any device; on CUDA it never waits for the device."""
    values, indices = empty_best(queries.shape[0], min(k, keys.shape[0]), queries.device)
    if values.numel() == 0:
        return values, indices
    count = queries.shape[0]
    width = min(_SCORES // count if count <= FEW else _COLUMNS, keys.shape[0])
    height = min(count, max(1, _SCORES // width))
    buffer = torch.empty(height * width, dtype=torch.float32, device=queries.device)
    for part, best, index in zip(
        queries.float().contiguous().split(height),  # strided, BLAS takes ten times as long
        values.split(height),
        indices.split(height),
        strict=True,
    ):
        for first in range(0, keys.shape[0], width):
            scores = tile_scores(part, keys[first : first + width], buffer)
            merge_tile(best, index, scores, first)
    return values, indices


def _run(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    if queries.is_cuda:
        kernels = import_kernels("topk_cosine")
        if k <= kernels.LARGEST_K:
            return kernels.launch_topk_cosine(queries, keys, k)
    return best_keys(queries, keys, k)


def _fake(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    shape = (queries.shape[0], torch.sym_min(k, keys.shape[0]))
    values = queries.new_empty(shape, dtype=torch.float32)
    return values, queries.new_empty(shape, dtype=torch.int64)


_topk_cosine = register(
    "topk_cosine(Tensor queries, Tensor keys, int k) -> (Tensor, Tensor)",
    _run,
    fake=_fake,
)
