"""IVF: an inverted file of rows by nearest centroid, for approximate neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._check import check_count, check_no_gradient
from graphmem_torch.ops._kmeans import nearest_centroid, spherical_kmeans
from graphmem_torch.ops._list_scan import scan_lists
from graphmem_torch.ops.topk_cosine import best_keys, check_pair

__all__ = ["IVF"]

_SCORES = 1 << 22  # scores a tile of queries makes where lists are equally long: 16 MB
_LONG = 8  # times as many before a tile is cut, where they are not


@dataclass(frozen=True, eq=False)
class IVF:
    """Rows in lists, one a centroid; a search looks only into the lists nearest to the query.

    Sivic and Zisserman, "Video Google" (2003), as faiss `IndexIVFFlat`. Every list is contiguous,
    so that a probe is one product. An index is never changed: `add` and `remove` return another, at
    the cost of copying the rows once, and keep the centroids; build anew when most rows are new.

    Attributes:
        centroids: [L, d] float32, unit rows.
        rows: [N, d], packed list by list, in the precision they were given in.
        ids: [N] int64, what each row is called: its place among all rows ever given.
        offsets: [L + 1] int64, where each list begins.
        next_id: The id that the next row will have.
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
        """Trains the centroids on a sample and files every row.

        Args:
            x: Finite unit rows; at least one.
            lists: By default 4 sqrt(N); at most N.
            iterations: Of k-means.
            generator: By default on the CPU, seeded with 0.

        Raises:
            InputError: For no rows, rows that require a gradient, or `lists` outside 1..N.
        """
        check_pair(x, x, "x")
        check_no_gradient("IVF", x)
        count = x.shape[0]
        if count == 0:
            raise InputError("x must have at least one row; got none. Search exactly until then.")
        lists = min(count, math.ceil(4 * math.sqrt(count))) if lists is None else lists
        check_count("lists", lists)
        check_count("iterations", iterations, 0)
        if lists > count:
            raise InputError(f"lists must be at most the {count} rows; got {lists}. Give fewer.")
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        centroids = spherical_kmeans(x, lists, iterations, generator)
        label = nearest_centroid(x, centroids)
        ids = label.argsort(stable=True)
        return cls(centroids, x[ids], ids, _offsets(label, lists), count)

    def __len__(self) -> int:
        """How many rows it holds."""
        return len(self.ids)

    def search(
        self,
        queries: Tensor,  # [B, d], unit rows
        k: int,
        probes: int = 8,
    ) -> tuple[Tensor, Tensor]:  # [B, k], [B, k] int64
        """The ids of the k most similar rows in the `probes` lists nearest to each query.

        Values are exact inner products, best first; minus infinity and id -1 where those lists hold
        fewer than k. With as many probes as lists the answer is exact.

        Raises:
            InputError: For shapes or devices that do not fit, k or probes below 1.
        """
        check_pair(queries, self.rows)
        check_no_gradient("IVF", queries)
        check_count("k", k)
        check_count("probes", probes)
        probes = min(probes, len(self.centroids))
        expected = probes * max(1, len(self) // len(self.centroids))
        parts = []
        for part in queries.float().split(max(1, _SCORES // expected)):
            probe = best_keys(part, self.centroids, probes)[1]
            for own in _tiles(self.offsets.diff()[probe].sum(1)):
                parts.append(scan_lists(part[own], self.rows, self.offsets, probe[own], k))
        values, places = (torch.cat(column) for column in zip(*parts, strict=True))
        if len(self) == 0:
            return values, places
        return values, self.ids[places.clamp(min=0)].masked_fill_(places < 0, -1)

    def add(self, rows: Tensor) -> IVF:  # [n, d], unit rows
        """The index with these rows too; their ids follow the highest ever given.

        Raises:
            InputError: If they do not fit the index.
        """
        check_pair(rows, self.rows, "rows")
        check_no_gradient("IVF", rows)
        count, lists = rows.shape[0], len(self.centroids)
        label = nearest_centroid(rows, self.centroids)
        order = label.argsort(stable=True)
        added = _offsets(label, lists)
        # An old row moves by the new ones in lists before its own; a new one by all old ones up to
        # the end of its list.
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
        """The index without the rows of these ids.

        Raises:
            InputError: If `ids` is no integer vector on the device of the index or names a row
                that is not there.
        """
        if ids.dim() != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise InputError(
                f"ids must be an integer vector [n]; got {ids.dtype} {list(ids.shape)}. Give what "
                "search returned."
            )
        if ids.device != self.ids.device:
            raise InputError(
                f"ids must be on {self.ids.device} like the index; got {ids.device}. Move them."
            )
        absent = ids[~torch.isin(ids, self.ids)]
        if len(absent):
            raise InputError(
                f"ids must be of rows in the index; {len(absent)} are not, first {int(absent[0])}. "
                "Was it removed before?"
            )
        kept = ~torch.isin(self.ids, ids)
        offsets = _offsets(self._labels()[kept], len(self.centroids))
        return replace(self, rows=self.rows[kept], ids=self.ids[kept], offsets=offsets)

    def _labels(self) -> Tensor:  # [N] int64
        lists = torch.arange(len(self.centroids), device=self.ids.device)
        return lists.repeat_interleave(self.offsets.diff())


def _tiles(total: Tensor) -> Iterator[slice]:  # [B] rows that each query looks into
    """Halves the queries until a tile's scores, padded to its longest, are few."""
    left = [slice(0, len(total))]
    while left:
        own = left.pop()
        many = own.stop - own.start
        if many > 1 and many * int(total[own].max()) > _LONG * _SCORES:
            middle = own.start + many // 2
            left += [slice(middle, own.stop), slice(own.start, middle)]
        else:
            yield own


def _offsets(label: Tensor, lists: int) -> Tensor:  # [N] -> [lists + 1]
    return torch.nn.functional.pad(torch.bincount(label, minlength=lists).cumsum(0), (1, 0))
