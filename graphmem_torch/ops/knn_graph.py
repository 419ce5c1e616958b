"""knn_graph: the most similar rows of every row, exact or by an inverted file."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_matrix, check_unit_rows
from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops.ivf import IVF
from graphmem_torch.ops.tiles import (
    EQUAL,
    by_number,
    empty_best,
    merge_tile,
    stable_topk,
    tile_elements,
)
from graphmem_torch.ops.topk_cosine import HALF_PARTS, nearest_keys, tile_scores

__all__ = ["exact_knn", "knn_graph", "knn_of_lists", "refined_knn", "takes_lists"]

_TILE = 1024  # new rows of a tile; 1024 x 1024 scores are 4 MB
_LARGE = 50_000  # minimum rows for which an inverted file is worth building
_RECALL = 0.96  # on the sample; exceeds the promised 0.95 by the sample's error
_SAMPLE = 512  # rows whose exact neighbours determine the number of probes
_FEWEST = 8  # minimum number of lists
_ROUNDING = 1e-6  # difference of one inner product between two tilings
_PAIRS = 8192  # pairs of rows multiplied at once: 12 MB of 384 columns
_DENSE = 8  # reading more than one row in this many is slower than half of all products


def knn_graph(
    x: Tensor,  # [N, d], unit rows
    k: int,
    *,
    start: int = 0,
    earlier: bool = False,
    method: str = "auto",
) -> tuple[Tensor, Tensor]:  # [N - start, k], [N - start, k] int64
    """Return the k rows most similar to each row from `start` on, excluding itself, best first.

    Missing neighbours have value minus infinity and index -1. Of rows that are equally near within
    rounding, the lower numbers are returned, in ascending order (by lists, of the rows that were
    searched). A row of zeros has cosine 0 with all.

    Args:
        x: Unit rows; half precision is multiplied in float32.
        k: Neighbours a row.
        start: First row to find neighbours for; linking an addition needs only the new rows.
        earlier: Whether to search only neighbours j < i (`docs/mathematics.md` 3).
        method: "exact" computes all products, half of them by symmetry. "ivf" searches some lists
            of an `IVF` with exact values. It doubles the probes until at least 95 % of the k
            nearest are found, measured on 512 rows or more, and falls back to "exact" if that is
            faster. "auto" is "ivf" for a whole graph of 50,000 rows or more. It is "exact" for
            smaller graphs, for additions, and with `earlier`, because links must not depend on the
            order of additions.

    Returns:
        Inner products, and the rows they belong to.

    Raises:
        InputError: x is not a matrix, k is below 1, `start` is outside 0..N, the method is unknown,
            or, on a CPU, a row from `start` on has a length other than 1 and 0. Also "ivf" with
            `earlier`: most neighbours of early rows come later, so it would find few.
    """
    check_matrix("x", x, "[N, d]")
    check_count("k", k)
    check_choice("method", method, ("auto", "exact", "ivf"))
    check_count("start", start, 0, x.shape[0])
    if method == "ivf" and earlier:
        raise InputError(
            'method: expected "exact" with earlier=True, got "ivf"; leave it at "auto"'
        )
    check_unit_rows("x", x[start:])
    approximate = takes_lists(x.shape[0], start, earlier, method)
    values, indices = _knn_graph(x, k + EQUAL, start, earlier, approximate)
    return _by_number(x, values, indices, k, start, earlier, approximate)


def _by_number(
    x: Tensor,
    values: Tensor,  # [n, c] descending
    indices: Tensor,  # [n, c] int64, -1: missing
    k: int,
    start: int,
    earlier: bool,
    approximate: bool,
) -> tuple[Tensor, Tensor]:  # [n, k], [n, k] int64
    """Return the k best candidates of each row by `stable_topk`, ties by number.

    Where more rows tie with the k-th than there are candidates, all rows are compared again.
    """
    best, found, short = by_number(values, indices, k)
    if approximate or torch.compiler.is_compiling():
        return best, found
    (again,) = short.nonzero(as_tuple=True)
    if not len(again):
        return best, found
    _compare_all(x, best, found, again, k, start, earlier)
    return best, found


def _compare_all(
    x: Tensor, best: Tensor, found: Tensor, again: Tensor, k: int, start: int, earlier: bool
) -> None:
    """Find the neighbours of some rows anew, from their products with all rows."""
    for some in again.split(max(1, tile_elements(x.device, _TILE * _TILE) // len(x))):
        row = start + some
        scores = x[row].float() @ x.float().T
        number = torch.arange(len(x), device=x.device)
        out = number >= row[:, None] if earlier else number == row[:, None]
        best[some], place = stable_topk(scores.masked_fill_(out, -torch.inf), k)
        found[some] = place.masked_fill_(best[some] == -torch.inf, -1)


def takes_lists(rows: int, start: int, earlier: bool, method: str, *, large: int = _LARGE) -> bool:
    """Return whether `knn_graph` uses lists: on request, or for a whole graph of many rows."""
    return method == "ivf" or (method == "auto" and not earlier and start == 0 and rows >= large)


def exact_knn(
    x: Tensor,  # [N, d]
    k: int,
    start: int,
    earlier: bool,
    *,
    tile: int | None = None,
) -> tuple[Tensor, Tensor]:  # [N - start, k], [N - start, k] int64
    """`knn_graph` without approximation.

    The product of two tiles serves one tile by its rows and the other by its columns. That is half
    the products of searching all rows for every row. A tile has 1,024 rows on a CPU, and on a GPU
    as many as fit its free memory.
    """
    if tile is None:
        tile = math.isqrt(tile_elements(x.device, _TILE * _TILE))
    rows = x.shape[0]
    values, indices = empty_best(rows - start, k, x.device)
    tiles = list(_tiles(start, rows, tile))
    buffer = torch.empty(tile * tile, dtype=torch.float32, device=x.device)
    for high, (low_end, high_end) in enumerate(tiles):
        if high_end <= start:
            continue
        upper = x[low_end:high_end]
        own = slice(low_end - start, high_end - start)
        for first, last in tiles[: high + 1]:
            if first == low_end and high_end - low_end == 1:
                continue  # no row is its own neighbour
            scores = _products(upper, x[first:last], buffer)
            if first == low_end:
                _mask_diagonal(scores, earlier)
            merge_tile(values[own], indices[own], scores, first)
            if start <= first < low_end and not earlier:
                other = slice(first - start, last - start)
                merge_tile(values[other], indices[other], scores.T, low_end)
    return values, indices.masked_fill_(values == -torch.inf, -1)


def _products(upper: Tensor, lower: Tensor, buffer: Tensor) -> Tensor:  # [u, l] float32
    """Return the products of two tiles of rows; halves go to a GPU's tensor cores unchanged."""
    if upper.is_cuda and upper.dtype in HALF_PARTS:
        return torch.mm(upper, lower.T, out_dtype=torch.float32)
    return tile_scores(upper.float(), lower, buffer)


def refined_knn(
    x: Tensor,  # [N, d] float32, unit rows on the CPU
    half: Tensor,  # [N, d], the same in half precision, on any device
    k: int,
    start: int,
    *,
    least: float,
) -> tuple[Tensor, Tensor]:  # [N - start, k], [N - start, k] int64, on the CPU
    """Return the k earlier rows most similar to each row from `start` on, as `knn_graph` does.

    The half-precision rows give candidates, which are compared again in full. The rounding of unit
    rows bounds the change of a product. Where a row that is no candidate could be among the k best
    and from `least` on, all rows are compared.

    Values below `least` may be missing.
    """
    kind, count, dim = torch.finfo(half.dtype), len(x) - start, x.shape[1]
    length = kind.eps / 2 + kind.smallest_normal * kind.eps / 2 * math.sqrt(dim)
    change = 2 * length + length**2 + dim * 2.0**-22  # of the two rows, and of the summation
    values, indices = (each.cpu() for each in exact_knn(half, k + EQUAL, start, True))
    last = values[:, -1]
    row = torch.arange(start, len(x))[:, None].expand_as(indices)
    there = indices >= 0
    pairs = zip(row[there].split(_PAIRS), indices[there].split(_PAIRS), strict=True)
    exact = [torch.linalg.vecdot(x[one], x[other]) for one, other in pairs]
    values[there] = torch.cat([*exact, x.new_empty(0)])
    key, order = torch.where(there, indices, len(x)).sort(dim=1)
    best, place = stable_topk(values.gather(1, order), k, plain=values.numel())
    found = key.gather(1, place).masked_fill_(best == -torch.inf, -1)
    floor = best[:, -1].clamp(min=least)
    (again,) = (last + change >= floor - _ROUNDING).nonzero(as_tuple=True)
    if count and len(again):
        _compare_all(x, best, found, again, k, start, True)
    return best, found


def _tiles(start: int, rows: int, tile: int) -> Iterator[tuple[int, int]]:
    """Yield tiles of the old rows, wide if few rows are new, then of those from `start` on."""
    wide = tile * tile // max(1, min(tile, rows - start))
    for first, last, step in ((0, start, wide), (start, rows, tile)):
        for begin in range(first, last, step):
            yield begin, min(begin + step, last)


def _mask_diagonal(scores: Tensor, earlier: bool) -> None:
    """Exclude each row as its own neighbour and, with `earlier`, all rows after it."""
    if earlier:
        after = torch.ones_like(scores, dtype=torch.bool).triu_()
        scores.masked_fill_(after, -torch.inf)
    else:
        scores.fill_diagonal_(-torch.inf)


def knn_of_lists(
    x: Tensor,  # [N, d], N > 0
    k: int,
    start: int,
    *,
    dense: int = _DENSE,
) -> tuple[Tensor, Tensor]:  # [N - start, k], [N - start, k] int64
    """`knn_graph` by an inverted file; exact if more than one row in `dense` would be read.

    Each row asks for k + 1 rows, because it finds itself. The rows of a list ask together.
    """
    index = IVF.build(x)
    asking = index.ids[index.ids >= start]
    probes = _enough(index, x, asking[:: max(1, len(asking) // _SAMPLE)], k)
    size = index.offsets.diff().double()
    looked_into = probes * float(size.square().sum()) / len(index)  # by an average row
    if looked_into * dense > len(index):
        return exact_knn(x, k, start, False)
    values, found = index.search(x[asking], k + 1, probes)
    values.masked_fill_(found == asking[:, None], -torch.inf)
    values, order = values.topk(k, dim=1)
    found = found.gather(1, order).masked_fill_(values == -torch.inf, -1)
    place = (asking - start)[:, None].expand(-1, k)
    return values.scatter(0, place, values), found.scatter(0, place, found)


def _enough(index: IVF, x: Tensor, sample: Tensor, k: int) -> int:
    """Return the number of lists that contain `_RECALL` of the k nearest of these rows.

    Doubles the number until they do. Compares values, since any of equal rows is right; the row
    itself is always found.
    """
    exact, _ = nearest_keys(x[sample], x, k + 1)
    wanted = exact.numel() - len(sample)
    probes = _FEWEST
    while probes < len(index.centroids):
        found, _ = index.search(x[sample], k + 1, probes)
        near = int((found >= exact[:, -1:] - _ROUNDING).sum()) - len(sample)
        if near >= _RECALL * wanted:
            break
        probes *= 2
    return probes


def _run(x: Tensor, k: int, start: int, earlier: bool, approximate: bool) -> tuple[Tensor, Tensor]:
    if approximate and start < x.shape[0]:
        return knn_of_lists(x, k, start)
    return exact_knn(x, k, start, earlier)


def _fake(x: Tensor, k: int, start: int, earlier: bool, approximate: bool) -> tuple[Tensor, Tensor]:
    shape = (x.shape[0] - start, k)
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.int64)


_knn_graph = register(
    "knn_graph(Tensor x, int k, int start, bool earlier, bool approximate) -> (Tensor, Tensor)",
    _run,
    fake=_fake,
)
