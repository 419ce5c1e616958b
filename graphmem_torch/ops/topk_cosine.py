"""topk_cosine: the exact nearest rows of every query, by tiled products."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.checks import (
    check_count,
    check_matrix,
    check_tensor,
    check_unit_rows,
    needs_gradient,
)
from graphmem_torch.ops._library import import_kernels, register
from graphmem_torch.ops.tiles import (
    EQUAL,
    by_number,
    empty_best,
    merge_tile,
    stable_topk,
    tile_elements,
)

__all__ = [
    "FEW",
    "HALF_PARTS",
    "best_keys",
    "check_pair",
    "inner_products",
    "nearest_keys",
    "numbered_keys",
    "split_into",
    "tile_scores",
    "topk_cosine",
    "topk_cosine_reference",
]

FEW = 8
"""Maximum queries for which reading the keys runs at the speed of memory."""

HALF_PARTS = {torch.float16: 2, torch.bfloat16: 3}
"""Number of half-precision parts of a float32 query."""

_LANES = 8  # keys of one product in a batch
_NARROW = 64  # columns up to which a matvec runs at the speed of memory
_SMALL = 512  # keys up to which launching several products takes most of the time
_PRODUCT = 1024  # keys of one product: with 384 columns they fit the second-level cache
_COLUMNS = 16_384  # keys whose scores are selected from at once
_SCORES = 1 << 22  # scores held: 16 MB, in the third-level cache whatever B and N


def topk_cosine(
    queries: Tensor,  # [B, d], unit rows
    keys: Tensor,  # [N, d], unit rows
    k: int,
) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
    """Return the k keys of largest inner product with each query, best first; exact.

    Half precision is stored but multiplied as precisely as float32. Of keys that are equally near
    within rounding, those of lower number are returned, in ascending order; on a GPU, of those that
    its tiles keep. Keys are not checked, which would cost as much as the search: values are inner
    products if keys are not unit rows, a row of zeros has cosine 0 with all, and a key with a NaN
    is never found. A CPU holds the scores of one 16 MB tile at a time.

    Raises:
        InputError: Shapes or devices do not fit, k is below 1, or, on a CPU, the length of a query
            is neither 1 nor 0.
    """
    check_pair(queries, keys)
    check_count("k", k)
    check_unit_rows("queries", queries)
    return numbered_keys(queries, keys, k)


def numbered_keys(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`topk_cosine` without checks."""
    best, indices = _topk_cosine(queries, keys, k + EQUAL)
    values, numbers, short = by_number(best, indices, k)
    if values.is_cuda or torch.compiler.is_compiling():  # reading would wait for the device
        return values, numbers
    (again,) = short.nonzero(as_tuple=True)
    if len(again):
        for some in again.split(max(1, _SCORES // len(keys))):
            scores = inner_products(queries[some].float(), keys).nan_to_num(nan=-torch.inf)
            values[some], numbers[some] = stable_topk(scores, values.shape[1])
    return values, numbers


def nearest_keys(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`topk_cosine` without checks and dispatcher: rows of any length, not compiled."""
    if queries.is_cuda:
        return _topk_cosine(queries, keys, k)
    return best_keys(queries, keys, k)


def topk_cosine_reference(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`topk_cosine` by its definition; forms `[B, N]`."""
    values, indices = (queries.float() @ keys.float().T).topk(min(k, len(keys)), dim=1)
    return values, indices


def check_pair(queries: Tensor, keys: Tensor, name: str = "queries") -> None:
    """Raise `InputError` unless both are matrices of one width on one device."""
    check_matrix("keys", keys, "[N, d]")
    do = f"encode both with the same embedder; a single row is {name}[None]"
    check_tensor(name, queries, "floating point", ("B", keys.shape[1]), do, device=keys.device)


def best_keys(
    queries: Tensor,  # [B, d]
    keys: Tensor,  # [N, d]
    k: int,
    *,
    columns: int = _COLUMNS,
    scores: int | None = None,
    product: int = _PRODUCT,
) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
    """`topk_cosine` tile by tile on any device; never waits for the device on CUDA.

    Selects from at least `columns` keys at once and holds `scores` scores, by default from the
    device's memory. A CPU multiplies `product` keys at once.
    """
    values, indices = empty_best(queries.shape[0], min(k, keys.shape[0]), queries.device)
    if values.numel() == 0:
        return values, indices
    count = queries.shape[0]
    if scores is None:
        scores = tile_elements(queries.device, _SCORES)
    if count <= FEW or queries.is_cuda:
        columns = max(columns, scores // count)
    width = min(columns, keys.shape[0])
    height = min(count, max(1, scores // width))
    buffer = torch.empty(height * width, dtype=torch.float32, device=queries.device)
    for part, best, index in zip(
        queries.float().contiguous().split(height),  # strided input takes BLAS ten times as long
        values.split(height),
        indices.split(height),
        strict=True,
    ):
        for first in range(0, keys.shape[0], width):
            tile = tile_scores(part, keys[first : first + width], buffer, product=product)
            if tile.is_cuda:  # `merge_tile` does not check for NaN there
                tile.nan_to_num_(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
            merge_tile(best, index, tile, first)
    return values, indices.masked_fill_(values == -torch.inf, -1)


def inner_products(
    queries: Tensor,  # [B, d] float32
    keys: Tensor,  # [N, d]
) -> Tensor:  # [B, N] float32, or the type of the queries where that is wider
    """Return all inner products; half-precision keys count as float32; differentiable in both.

    On a GPU, half-precision keys are not widened. The queries are cut into parts of their type,
    whose products are exact in float32.
    """
    if torch.compiler.is_compiling() or needs_gradient(queries, keys):
        kind = torch.promote_types(queries.dtype, keys.dtype)
        return queries.to(kind) @ keys.to(kind).T
    if queries.is_cuda and keys.dtype in HALF_PARTS:
        total = queries.new_zeros(len(queries), len(keys))
        for part in split_into(queries, keys.dtype):
            total += torch.mm(part, keys.T, out_dtype=torch.float32)
        return total
    if len(queries) <= FEW and queries.dtype == torch.float32:
        scores = tile_scores(queries, keys, queries.new_empty(len(queries) * len(keys)))
        return scores.contiguous()
    return queries @ keys.to(queries.dtype).T


def split_into(values: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return half-precision numbers that sum to the float32 value, up to 2^-22 of 1."""
    parts: list[Tensor] = []
    for _ in range(HALF_PARTS[dtype]):
        parts.append(values.to(dtype))
        values = values - parts[-1].float()
    return parts


def tile_scores(
    queries: Tensor,  # [b, d] float32
    keys: Tensor,  # [w, d]; half precision is multiplied in float32
    buffer: Tensor,  # [at least b * w] float32, overwritten
    *,
    product: int = _PRODUCT,
) -> Tensor:  # [b, w]
    """Return the inner products in the form that BLAS runs fastest; rows or columns are contiguous.

    - Few queries: keys times queries, since a product with few rows takes two to five times as long
      (MKL on AVX2, 384 columns).
    - One query: batches of 8 keys at the speed of memory, where a matvec takes twice as long.
    """
    count, width = queries.shape[0], keys.shape[0]
    if count > FEW or width <= _SMALL or queries.is_cuda:
        scores = buffer[: count * width].view(count, width)
        if queries.is_cuda or width <= product:
            return torch.mm(queries, keys.float().T, out=scores)
        for tile, out in zip(keys.split(product), scores.split(product, dim=1), strict=True):
            torch.mm(queries, tile.float().T, out=out)
        return scores
    scores = buffer[: width * count].view(width, count)
    step = max(1, width) if keys.dtype == torch.float32 else product * _LANES
    batched = count == 1 and keys.shape[1] > _NARROW
    for tile, out in zip(keys.split(step), scores.split(step), strict=True):
        whole = len(tile) - len(tile) % _LANES if batched else 0
        if whole:
            lanes = tile[:whole].float().unflatten(0, (-1, _LANES))
            factor = queries.T.expand(len(lanes), -1, -1)
            torch.bmm(lanes, factor, out=out[:whole].unflatten(0, (-1, _LANES)))
        if whole < len(tile):
            torch.mm(tile[whole:].float(), queries.T, out=out[whole:])
    return scores.T


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
