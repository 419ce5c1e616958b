"""IVF: an inverted file of rows by nearest centroid, for approximate neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.checks import (
    check_count,
    check_matrix,
    check_no_gradient,
    check_tensor,
    check_unit_rows,
)
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.tiles import (
    EQUAL,
    by_number,
    empty_best,
    merge_tile,
    stable_topk,
    tile_elements,
)
from graphmem_torch.ops.topk_cosine import nearest_keys

__all__ = [
    "IVF",
    "nearest_centroid",
    "scan_each_list",
    "scan_lists",
    "scores_by_list",
    "spherical_kmeans",
]

_SAMPLE = 48  # training rows a list; more improve recall less than another probe does
_NUMBERS = 1 << 22  # floats gathered or scored at once on a CPU: 16 MB
_LONG = 8  # factor by which unequal lists may exceed the scores of a tile before it is cut


@dataclass(frozen=True, eq=False)
class IVF:
    """Rows in lists, one per centroid; a search reads only the lists nearest to the query.

    Sivic and Zisserman, "Video Google" (2003), as faiss `IndexIVFFlat`. Every list is contiguous,
    so a probe is one product. An index is immutable: `add` and `remove` copy the rows once into a
    new one and keep the centroids. Build anew when most rows are new.

    Attributes:
        centroids: [L, d] float32, unit rows.
        rows: [N, d], packed list by list, in their original precision.
        ids: [N] int64, id of each row: its number among all rows ever added.
        offsets: [L + 1] int64, first row of each list.
        next_id: Id of the next row.
    """

    centroids: Tensor
    rows: Tensor
    ids: Tensor
    offsets: Tensor
    next_id: int

    @classmethod
    def build(
        cls,
        x: Tensor,  # [N, d], unit rows
        lists: int | None = None,
        *,
        iterations: int = 6,
        generator: torch.Generator | None = None,
    ) -> IVF:
        """Train the centroids on a sample and assign every row to a list.

        Args:
            x: Finite unit rows; at least one.
            lists: Number of lists, at most N; by default 4 sqrt(N).
            iterations: Iterations of k-means.
            generator: Random generator; by default on the CPU, seeded with 0.

        Raises:
            InputError: There are no rows, rows require a gradient, `lists` is outside 1..N, or, on
                a CPU, the length of a row is neither 1 nor 0.
        """
        check_matrix("x", x, "[N, d]")
        check_no_gradient("IVF", x)
        check_unit_rows("x", x)
        count = x.shape[0]
        if count == 0:
            raise InputError("x: expected at least one row, got none; add rows first")
        lists = min(count, math.ceil(4 * math.sqrt(count))) if lists is None else lists
        check_count("lists", lists, 1, count)
        check_count("iterations", iterations, 0)
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        centroids = spherical_kmeans(x, lists, iterations, generator)
        label = nearest_centroid(x, centroids)
        ids = label.argsort(stable=True)
        return cls(centroids, x[ids], ids, _offsets(label, lists), count)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def __repr__(self) -> str:
        """Return a summary: rows, lists, width, type and device."""
        kind = str(self.rows.dtype).removeprefix("torch.")
        size = f"rows={len(self)}, lists={len(self.centroids)}, width={self.rows.shape[1]}"
        return f"IVF({size}, dtype={kind}, device='{self.rows.device}')"

    def search(
        self,
        queries: Tensor,  # [B, d], unit rows
        k: int,
        probes: int = 8,
        *,
        tile: int | None = None,
    ) -> tuple[Tensor, Tensor]:  # [B, k], [B, k] int64
        """Return the ids of the k most similar rows in the `probes` lists nearest to each query.

        Values are exact inner products, best first. If those lists have fewer than k rows, the rest
        is minus infinity and id -1. Of rows that are equally near within rounding, lower ids come
        first. With as many probes as lists, the answer is exact.

        Args:
            queries: Unit rows.
            k: Rows per query.
            probes: Lists read per query.
            tile: Maximum scores of queries served together; by default from the device's memory.

        Raises:
            InputError: Shapes or devices do not fit, k or probes is below 1, or, on a CPU, the
                length of a query is neither 1 nor 0.
        """
        self._check("queries", queries)
        if tile is None:
            tile = tile_elements(queries.device, _NUMBERS)
        check_count("k", k)
        check_count("probes", probes)
        probes = min(probes, len(self.centroids))
        expected = probes * max(1, len(self) // len(self.centroids))
        return self._search(queries.float(), k, probes, max(1, tile // expected), tile, k + EQUAL)

    def _search(
        self, queries: Tensor, k: int, probes: int, step: int, tile: int, candidates: int
    ) -> tuple[Tensor, Tensor]:
        """Return the k best of some candidates; more of them where more may tie with the k-th."""
        parts, first, size = [], self.offsets[:-1], self.offsets.diff()
        for part in queries.split(step):
            probe = nearest_keys(part, self.centroids, probes)[1]
            for own in _tiles(size[probe].sum(1), _LONG * tile):
                found = part[own], self.rows, first, size, probe[own]
                values, places = scan_lists(*found, candidates)
                if len(self):
                    places = self.ids[places.clamp(min=0)].masked_fill_(places < 0, -1)
                parts.append(by_number(values, places, k))
        values, places, short = (torch.cat(column) for column in zip(*parts, strict=True))
        (again,) = short.nonzero(as_tuple=True)
        if len(again):
            more = queries[again], k, probes, max(1, step // 4), tile, 4 * candidates
            values[again], places[again] = self._search(*more)
        return values, places

    def add(self, rows: Tensor) -> IVF:  # [n, d], unit rows
        """Return the index with more rows, whose ids follow the highest one ever used.

        Raises:
            InputError: The rows do not fit the index, or as for `build`.
        """
        self._check("rows", rows)
        count, lists = rows.shape[0], len(self.centroids)
        label = nearest_centroid(rows, self.centroids)
        order = label.argsort(stable=True)
        added = _offsets(label, lists)
        # An old row moves by the number of new rows in earlier lists; a new row moves by the number
        # of old rows up to the end of its list.
        old = torch.arange(len(self), device=rows.device) + added[self._labels()]
        new = torch.arange(count, device=rows.device) + self.offsets[label[order] + 1]
        packed = self.rows.new_empty(len(self) + count, self.rows.shape[1])
        packed.index_copy_(0, old, self.rows)
        packed.index_copy_(0, new, rows[order].to(packed.dtype))
        ids = self.ids.new_empty(len(packed))
        ids[old], ids[new] = self.ids, self.next_id + order
        return replace(
            self, rows=packed, ids=ids, offsets=self.offsets + added, next_id=self.next_id + count
        )

    def remove(self, ids: Tensor) -> IVF:  # [n] int64
        """Return the index without the rows of these ids.

        Raises:
            InputError: `ids` is not an integer vector on the index's device, or names no row.
        """
        do, device = "give what search returned", self.ids.device
        check_tensor("ids", ids, "integers", ("n",), do, device=device)
        absent = ids[~torch.isin(ids, self.ids)]
        if len(absent):
            raise InputError(
                f"ids: expected ids of rows in the index, got {len(absent)} that are not, first "
                f"{int(absent[0])}; remove each row once"
            )
        kept = ~torch.isin(self.ids, ids)
        offsets = _offsets(self._labels()[kept], len(self.centroids))
        return replace(self, rows=self.rows[kept], ids=self.ids[kept], offsets=offsets)

    def _labels(self) -> Tensor:  # [N] int64
        return torch.repeat_interleave(self.offsets.diff(), output_size=len(self))

    def _check(self, name: str, rows: Tensor) -> None:
        shape, do = ("n", self.rows.shape[1]), "encode them with the embedder of the rows"
        check_tensor(name, rows, "floating point", shape, do, device=self.rows.device)
        check_no_gradient("IVF", rows)
        check_unit_rows(name, rows)


def _tiles(total: Tensor, most: int) -> Iterator[slice]:  # [B] rows that each query looks into
    """Halve the queries until the scores of a tile, padded to its longest row, fit into `most`."""
    left = [slice(0, len(total))]
    while left:
        own = left.pop()
        many = own.stop - own.start
        if many > 1 and many * int(total[own].max()) > most:
            middle = own.start + many // 2
            left += [slice(middle, own.stop), slice(own.start, middle)]
        else:
            yield own


def _offsets(label: Tensor, lists: int) -> Tensor:  # [N] -> [lists + 1]
    return offsets_of(torch.bincount(label, minlength=lists))


def spherical_kmeans(
    x: Tensor,  # [N, d], unit rows
    lists: int,
    iterations: int,
    generator: torch.Generator,
    *,
    start: Tensor | None = None,  # [lists, d] float32, unit rows
) -> Tensor:  # [lists, d] float32, unit rows
    """Run Lloyd's iteration on a random sample, with unit centroids (Dhillon and Modha).

    The first centroids are the first rows of the sample, or `start`, in which case all rows are
    used. A list that loses all rows restarts at a random one. Needs at least as many rows as lists.
    """
    where = generator.device  # which may differ from the default device
    if start is None:
        chosen = torch.randperm(x.shape[0], generator=generator, device=where)[: _SAMPLE * lists]
        sample = x[chosen.to(x.device)].float()
        centroids = sample[:lists].clone()
    else:
        sample, centroids = x.float(), start
    for _ in range(iterations):
        label = nearest_centroid(sample, centroids)
        sums = torch.zeros_like(centroids).index_add_(0, label, sample)
        again = torch.randint(len(sample), (lists,), generator=generator, device=where)
        empty = torch.bincount(label, minlength=lists) == 0
        sums = torch.where(empty[:, None], sample[again.to(x.device)], sums)
        centroids = torch.nn.functional.normalize(sums, dim=1)
    return centroids


def nearest_centroid(x: Tensor, centroids: Tensor) -> Tensor:  # [N] int64
    """Return the list of each row."""
    return nearest_keys(x, centroids, 1)[1][:, 0]


def scan_lists(
    queries: Tensor,  # [B, d] float32
    rows: Tensor,  # [N, d], the rows of each list side by side
    first: Tensor,  # [L] int64, first row of each list
    count: Tensor,  # [L] int64, rows of each list
    probe: Tensor,  # [B, p] int64, the lists of each query
    k: int,
    *,
    gather: bool | None = None,
    budget: int | None = None,
) -> tuple[Tensor, Tensor]:  # [B, k], [B, k] int64 places in `rows`
    """Return the k rows of largest inner product, best first; minus infinity and -1 past the end.

    With `gather`, the default on a GPU, the rows of each query are copied side by side, so that a
    few products serve all queries. A copy takes `budget` floats, by default from the device's
    memory. Otherwise the pairs of query and list are sorted by list, and each probed list is
    multiplied once by all its queries without copying rows. Scores then return to query order.
    """
    gather = queries.is_cuda if gather is None else gather
    values, places = empty_best(queries.shape[0], k, queries.device)
    size = count[probe]
    end = size.cumsum(1)
    total = end[:, -1:]
    longest = int(total.max()) if total.numel() else 0
    if not longest:
        return values, places
    live = torch.arange(longest, device=queries.device) < total
    if gather:
        _, place = ranges(first[probe].flatten(), size.flatten())
        number = torch.zeros(live.shape, dtype=torch.int64, device=rows.device)
        scores = _scores_by_query(queries, rows, number.masked_scatter_(live, place), live, budget)
    else:
        flat, pair = scores_by_list(queries, rows, first, count, probe)
        ordered = size.flatten()[pair]
        begin = torch.empty_like(ordered)
        begin[pair] = ordered.cumsum(0) - ordered
        # Reorder from lists to queries: the scores of each pair move as one run.
        _, source = ranges(begin, size.flatten(), total=len(flat))
        scores = flat.new_full(live.shape, -torch.inf).masked_scatter_(live, flat[source])
    merge_tile(values, places, scores, 0, finite=True)
    lane = torch.searchsorted(end, places, right=True).clamp_(max=probe.shape[1] - 1)
    before = (end - size).gather(1, lane)
    places = first[probe.gather(1, lane)] + places - before
    return values, places.masked_fill_(values == -torch.inf, -1)


def scan_each_list(
    queries: Tensor,  # [B, d] float32
    rows: Tensor,  # [N, d], in any order
    order: Tensor,  # [N], row numbers, list by list
    offsets: Tensor,  # [L + 1], where each list begins in `order`
    probe: Tensor,  # [B, p] int64, the lists of each query
    k: int,
    *,
    kept: Tensor | None = None,  # [B or 1, N] bool, rows that count
    gather: bool | None = None,
    budget: int | None = None,
) -> tuple[Tensor, Tensor]:  # [B, p, k], [B, p, k] int64 rows
    """Return the k rows of largest inner product of each list; minus infinity and -1 past its end.

    Like `scan_lists`, but with k results per list, and with rows gathered from any order. Each
    probed list is gathered once for all its queries or, with `gather`, once per query.
    """
    if queries.is_cuda if gather is None else gather:
        return _scan_each_pair(queries, rows, order, offsets, probe, k, kept, budget)
    budget = _NUMBERS if budget is None else budget
    pair, bounds = _by_list(probe, offsets[:-1], offsets.diff())
    query = pair // probe.shape[1]
    asked = queries[query]
    values, places = empty_best(len(pair), k, queries.device)
    done = 0
    for first, last, count in bounds:
        number, width = order[first:last], min(k, last - first)
        step = max(1, budget // max(1, last - first))
        for start in range(done, done + count, step):
            own = slice(start, min(start + step, done + count))
            score = _gathered_scores(asked[own], rows, number, budget)
            if kept is not None:
                line = query[own, None] if len(kept) > 1 else 0
                score.masked_fill_(~kept[line, number.long()], -torch.inf)
            values[own, :width], places[own, :width] = stable_topk(score, width)
        places[done : done + count, :width] += first
        done += count
    found = order[places.clamp(min=0)].long().masked_fill_(values == -torch.inf, -1)
    # Return from the order of lists to that of queries.
    back = pair.argsort()
    return values[back].view(*probe.shape, k), found[back].view(*probe.shape, k)


def _scan_each_pair(
    queries: Tensor,
    rows: Tensor,
    order: Tensor,
    offsets: Tensor,
    probe: Tensor,
    k: int,
    kept: Tensor | None,
    budget: int | None,
) -> tuple[Tensor, Tensor]:
    """`scan_each_list` with each pair of query and list on its own, all in a few products."""
    first, size = offsets[probe].flatten(), offsets.diff()[probe].flatten()
    lane = torch.arange(int(size.max()) if size.numel() else 0, device=queries.device)
    live = lane < size[:, None]
    number = torch.where(live, first[:, None] + lane, 0).long()
    if len(order):
        number = order[number].long()
    query = torch.arange(len(queries), device=queries.device).repeat_interleave(probe.shape[1])
    if kept is not None:
        live &= kept[query[:, None] if len(kept) > 1 else 0, number]
    values, places = empty_best(len(size), k, queries.device)
    merge_tile(values, places, _scores_by_query(queries[query], rows, number, live, budget), 0)
    found = values > -torch.inf
    chosen = torch.where(found, number.gather(1, torch.where(found, places, 0)), -1)
    return values.view(*probe.shape, k), chosen.view(*probe.shape, k)


def _scores_by_query(
    queries: Tensor,  # [B, d]
    rows: Tensor,  # [N, d]
    number: Tensor,  # [B, w] int64, rows of each query
    live: Tensor,  # [B, w] bool, those that count
    budget: int | None,
) -> Tensor:  # [B, w]
    """Return inner products of every query with its own rows; minus infinity for masked rows."""
    if budget is None:
        budget = tile_elements(queries.device, _NUMBERS)
    step = max(1, budget // max(1, number.shape[1] * rows.shape[1]))
    parts = [
        torch.bmm(rows[own].float(), query[:, :, None]).squeeze(2)
        for own, query in zip(number.split(step), queries.split(step), strict=True)
    ]
    return torch.cat(parts).masked_fill_(~live, -torch.inf)


def _gathered_scores(
    queries: Tensor, rows: Tensor, number: Tensor, budget: int
) -> Tensor:  # [c, len(number)]
    most = max(1, budget // max(1, rows.shape[1]))
    if len(number) <= most:
        return queries @ rows.index_select(0, number).float().T
    parts = [_gathered_scores(queries, rows, part, budget) for part in number.split(most)]
    return torch.cat(parts, dim=1)


def _by_list(probe: Tensor, first: Tensor, count: Tensor) -> tuple[Tensor, list[list[int]]]:
    """Return pairs of query and list sorted by list, and the begin, end and pair count of each."""
    pair = probe.flatten().argsort(stable=True)
    asking = probe.flatten().bincount(minlength=len(first))
    bounds = torch.stack([first, first + count, asking])[:, asking > 0].T.tolist()
    return pair, bounds


def scores_by_list(
    queries: Tensor,  # [B, d] float32
    rows: Tensor,  # [N, d]
    first: Tensor,  # [L] int64, first row of each list
    count: Tensor,  # [L] int64, rows of each list
    probe: Tensor,  # [B, p] int64, the lists of each query
) -> tuple[Tensor, Tensor]:  # [sum of all], [B p] int64
    """Return the inner products of every query with the rows of its lists, pair after pair.

    Every list is multiplied once by all its queries. The pairs of query and list, numbered as
    `probe` is flattened, are sorted by list; the second result is their order.
    """
    pair, bounds = _by_list(probe, first, count)
    asked = queries[pair // probe.shape[1]]
    flat = queries.new_empty(int(count[probe].sum()))
    query = score = 0
    for begin, end, many in bounds:
        out = flat[score : score + many * (end - begin)].view(many, end - begin)
        torch.mm(asked[query : query + many], rows[begin:end].float().T, out=out)
        query += many
        score += out.numel()
    return flat, pair
