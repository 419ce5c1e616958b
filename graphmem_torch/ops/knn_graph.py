"""knn_graph: the most similar rows of every row, exactly or through an inverted file."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_matrix, check_unit_rows
from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops.ivf import IVF
from graphmem_torch.ops.tiles import empty_best, merge_tile, tile_elements
from graphmem_torch.ops.topk_cosine import nearest_keys, tile_scores

__all__ = ["exact_knn", "knn_graph", "knn_of_lists", "takes_lists"]

_TILE = 1024  # new rows of a tile; 1024 x 1024 scores are 4 MB
_LARGE = 50_000  # rows from which on an inverted file pays for its building
_RECALL = 0.96  # on the sample; above the 0.95 promised by more than the sample's error
_SAMPLE = 512  # rows whose exact neighbours say how many lists to look into
_FEWEST = 8  # lists
_ROUNDING = 1e-6  # between the same inner product in two tilings
_DENSE = 8  # looking into more than one row in 8 takes longer than half of all products


def knn_graph(
    x: Tensor,  # [N, d], unit rows
    k: int,
    *,
    start: int = 0,
    earlier: bool = False,
    method: str = "auto",
) -> tuple[Tensor, Tensor]:  # [N - start, k], [N - start, k] int64
    """The k rows most similar to each row from `start` on, other than itself, best first.

    Where there are fewer than k others, the rest is value minus infinity and index -1. Which of
    equal rows is returned is not specified. A row of zeros has cosine 0 with all.

    Args:
        x: Rows of unit length; half precision is multiplied in float32.
        k: Neighbours a row.
        start: First row to find neighbours for: linking an addition looks only at the new rows.
        earlier: Only neighbours j < i (`docs/mathematics.md` 3).
        method: "exact": all products, half of them by symmetry. "ivf": only those with the rows of
            some lists (`IVF`), values exact; the number of lists is raised until at least 95 % of
            the k nearest are found, measured on 512 rows or more, and where that takes so many
            lists, or so long ones, that the exact graph is quicker, the exact one is made. "auto":
            "ivf" for the graph of 50,000 rows or more, "exact" below, for an addition, and with
            `earlier`: what is linked must not depend on how the rows arrived.

    Returns:
        Inner products, and the rows they are with.

    Raises:
        InputError: If x is no matrix, k is below 1, `start` is outside 0..N, the method is not
            known, or "ivf" is asked for with `earlier`, which it would answer poorly for early
            rows: most of what lies near them comes later. On a CPU also for a row from `start` on
            whose length is neither 1 nor 0.
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
    return _knn_graph(x, k, start, earlier, takes_lists(x.shape[0], start, earlier, method))


def takes_lists(rows: int, start: int, earlier: bool, method: str, *, large: int = _LARGE) -> bool:
    """Whether `knn_graph` looks into lists: where asked to, or for the whole graph of many rows."""
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

    The product of two tiles is symmetric, so its rows serve the one tile and its columns the other:
    half the products of a search of every row among all. A tile has 1,024 rows on a CPU, and on a
    GPU as many as its free memory allows.
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
        upper = x[low_end:high_end].float()
        own = slice(low_end - start, high_end - start)
        for first, last in tiles[: high + 1]:
            if first == low_end and high_end - low_end == 1:
                continue  # no row is its own neighbour
            scores = tile_scores(upper, x[first:last], buffer)
            if first == low_end:
                _mask_diagonal(scores, earlier)
            merge_tile(values[own], indices[own], scores, first)
            if start <= first < low_end and not earlier:
                other = slice(first - start, last - start)
                merge_tile(values[other], indices[other], scores.T, low_end)
    return values, indices.masked_fill_(values == -torch.inf, -1)


def _tiles(start: int, rows: int, tile: int) -> Iterator[tuple[int, int]]:
    """Tiles of the old rows, wide where few are new, then of those from `start` on."""
    wide = tile * tile // max(1, min(tile, rows - start))
    for first, last, step in ((0, start, wide), (start, rows, tile)):
        for begin in range(first, last, step):
            yield begin, min(begin + step, last)


def _mask_diagonal(scores: Tensor, earlier: bool) -> None:
    """No row is its own neighbour; with `earlier`, nor are those after it."""
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
    """`knn_graph` through an inverted file; exact where more than a row in `dense` is looked into.

    Each row asks for one more than k, itself; rows of a list ask together.
    """
    index = IVF.build(x)
    asking = index.ids[index.ids >= start]
    probes = _enough(index, x, asking[:: max(1, len(asking) // _SAMPLE)], k)
    size = index.offsets.diff().double()
    looked_into = probes * float(size.square().sum()) / len(index)  # by the average row
    if looked_into * dense > len(index):
        return exact_knn(x, k, start, False)
    values, found = index.search(x[asking], k + 1, probes)
    values.masked_fill_(found == asking[:, None], -torch.inf)
    values, order = values.topk(k, dim=1)
    found = found.gather(1, order).masked_fill_(values == -torch.inf, -1)
    place = (asking - start)[:, None].expand(-1, k)
    return values.scatter(0, place, values), found.scatter(0, place, found)


def _enough(index: IVF, x: Tensor, sample: Tensor, k: int) -> int:
    """How many lists hold `_RECALL` of the k nearest of these rows; doubled until they do.

    Counted by value, since any of equal rows will do; the row itself is always found.
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
