"""GrowingIVF: an inverted file that finds, for each row it takes in, the nearest earlier rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.ops.growing import GrowingLists
from graphmem_torch.ops.ivf import nearest_centroid, scan_lists, scores_by_list, spherical_kmeans
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.ops.topk_cosine import nearest_keys

__all__ = ["GrowingIVF", "Training"]

_WIDTH = 128  # principal axes that candidates are compared on
_LISTS = 4.0  # lists of a square root of the rows
_ITERATIONS = 3  # of k-means; more improve recall less than another probe does
_PROBED = 0.99  # share of the neighbours of the sample that the probes contain
_COMPARED = 0.998  # share of the neighbours of the sample that are compared in full
_SAMPLE = 512  # rows whose exact neighbours determine probes and candidates
_NEAREST = 8  # lists read first, for a bound on what may be a candidate
_MOST = 256  # maximum candidates of a row
_TIE = 1e-5  # difference on the axes up to which a row is as near as the last candidate
_TILE = 512  # rows taken in at once
_SCORES = 1 << 24  # scores held at once: 64 MB
_PAIRS = 8192  # pairs of rows multiplied at once: 12 MB of 384 columns


@dataclass(frozen=True, eq=False)
class Training:
    """What a `GrowingIVF` learns from its first rows.

    Attributes:
        axes: [d, r] float32, orthonormal columns: the principal axes.
        centroids: [L, r] float32, unit rows.
        probes: Number of lists searched for a row.
        candidates: Number of rows, nearest on the axes, that are compared in full.
    """

    axes: Tensor
    centroids: Tensor
    probes: int
    candidates: int

    @classmethod
    def of(cls, x: Tensor, k: int, *, least: float) -> Training:
        """Train on rows.

        Probes and candidates are the fewest that keep 99 and 99.8 % of the k nearest of 512 rows.

        Args:
            x: [N, d] float32, unit rows, N > 0.
            k: Number of neighbours.
            least: Cosine below which a neighbour does not count.
        """
        axes = torch.linalg.eigh(x.T @ x)[1].flip(1)[:, :_WIDTH].contiguous()
        low = x @ axes
        lists = min(len(x), math.ceil(_LISTS * math.sqrt(len(x))))
        generator = torch.Generator().manual_seed(0)
        centroids = spherical_kmeans(low, lists, _ITERATIONS, generator)
        sample = torch.arange(0, len(x), max(1, len(x) // _SAMPLE))
        near, counts = _neighbours(x, sample, k, least)
        cosine = (low[near] @ low[sample, :, None]).squeeze(2)
        order = nearest_keys(low[sample], low, min(_MOST, len(x)))[0]
        place = torch.searchsorted(-order, -cosine)  # 0 is the row itself
        compared = max(k, int(_quantile(place[counts], _COMPARED)))
        own = cls(axes, centroids, lists, compared)
        return replace(own, probes=own._enough(x, sample, near, counts))

    def measured(self, x: Tensor, count: int, k: int, *, least: float) -> Training:
        """Return the training with the probes that the last `count` rows of x need."""
        sample = torch.arange(max(0, len(x) - count), len(x))
        return replace(self, probes=self._enough(x, sample, *_neighbours(x, sample, k, least)))

    def _enough(self, x: Tensor, sample: Tensor, near: Tensor, counts: Tensor) -> int:
        """Return the number of lists that contain `_PROBED` of the neighbours of a sample."""
        rank = (x[sample] @ self.axes @ self.centroids.T).argsort(1, descending=True).argsort(1)
        label = nearest_centroid(x[near.flatten()] @ self.axes, self.centroids).view_as(near)
        return int(_quantile(rank.gather(1, label)[counts], _PROBED)) + 1


def _neighbours(
    x: Tensor, sample: Tensor, k: int, least: float
) -> tuple[Tensor, Tensor]:  # [s, k + 1] int64, [s, k + 1] bool
    """Return the nearest rows of a sample, and which of them count: not the row itself."""
    cosine, near = nearest_keys(x[sample], x, k + 1)
    return near, (near != sample[:, None]).logical_and_(cosine >= least)


def _quantile(values: Tensor, share: float) -> float:
    """Return the smallest value that a share of the values does not exceed; 0 for none."""
    return float(values.kthvalue(math.ceil(share * len(values))).values) if len(values) else 0.0


class GrowingIVF:
    """Rows in lists by nearest centroid, appended to in amortised constant time.

    Lists are compared on the principal axes; what is found is compared again in full. What is found
    for a row depends on the training and the earlier rows only, not on how rows are batched. On a
    CPU.
    """

    def __init__(self, training: Training) -> None:
        """Start without rows."""
        self.training = training
        lists, width = training.centroids.shape
        # The last column is 1, so that a product also subtracts the bound of the query.
        none = {"number": torch.empty(0, dtype=torch.int64), "row": torch.empty(0, width + 1)}
        self._lists = GrowingLists.of(torch.zeros(lists, dtype=torch.int64), none)
        self._count = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._count

    @property
    def share(self) -> float:
        """Share of the rows that a row is compared with, on average over the rows."""
        size = self._lists.count.double()
        read = self.training.probes * float(size.square().sum())
        return min(1.0, read / max(1, len(self)) ** 2)

    def add(self, x: Tensor, labels: Tensor | None = None) -> Tensor:  # [n, d] -> [n] int64
        """Take in rows without a search, and return the list of each.

        Args:
            x: [n, d] float32, unit rows.
            labels: The lists, if known.
        """
        made = []
        for first in range(0, len(x), _SCORES // 1024):
            part = slice(first, first + _SCORES // 1024)
            low = x[part] @ self.training.axes
            made.append(self._nearest(low) if labels is None else labels[part])
            self._put(low, made[-1])
        return torch.cat(made) if made else torch.empty(0, dtype=torch.int64)

    def follow(
        self, x: Tensor, k: int, *, least: float
    ) -> tuple[Tensor, Tensor, Tensor]:  # [n, k], [n, k] int64, [n] int64
        """Take in the rows after the first `len(self)` and find the most similar earlier ones.

        Cosines that are equal within rounding are ordered by number, lower first.

        Args:
            x: [N, d] float32, unit rows, those taken in before included.
            k: Number of neighbours.
            least: Cosine below which a row is no neighbour.

        Returns:
            Cosines, best first, the numbers of the rows they belong to, and the list of each new
            row. Missing neighbours have value minus infinity and number -1.
        """
        parts, expected = [], max(1, int(self.share * len(self)))
        tile = min(_TILE, max(1, _SCORES // expected))
        while (start := len(self)) < len(x):
            low = x[start : start + tile] @ self.training.axes
            label = self._nearest(low)
            query, number = self._candidates(low, label, k)
            cosine = _products(x, start + query, number)
            parts.append((*_best(query, cosine, number, len(low), k, least), label))
            self._put(low, label)
        if not parts:
            none = torch.empty(0, k, dtype=torch.int64)
            return none.float(), none, none[:, 0]
        values, numbers, labels = (torch.cat(column) for column in zip(*parts, strict=True))
        return values, numbers, labels

    def _put(self, low: Tensor, label: Tensor) -> None:
        order = label.argsort(stable=True)
        rows = torch.nn.functional.pad(low[order], (0, 1), value=1.0)
        columns = {"number": (self._count + order).numpy(), "row": rows.numpy()}
        self._lists.append(label[order].numpy(), columns)
        self._count += len(low)

    def _nearest(self, low: Tensor) -> Tensor:  # [n, r] -> [n] int64
        """Return the list of each row, of equally near ones the first."""
        parts = [part @ self.training.centroids.T for part in low.split(_TILE)]
        return torch.cat([stable_topk(part, 1)[1][:, 0] for part in parts])

    def _candidates(
        self, low: Tensor, label: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:  # [c], [c] int64
        """Return pairs of new row and the number of an earlier row that may be near."""
        lists, training = self._lists, self.training
        stored, first, count = lists.tensors["row"], lists.first, lists.count
        near, probe = stable_topk(low @ training.centroids.T, training.probes, sorted=False)
        few = probe.gather(1, near.topk(min(_NEAREST, len(probe[0])), dim=1).indices)
        asked = torch.nn.functional.pad(low, (0, 1))
        most = max(k, training.candidates)
        best = scan_lists(asked, stored, first, count, few, most)[0][:, -1]
        bound = best.clamp_(min=-2.0) - _TIE
        asked[:, -1] = -bound
        flat, pair = scores_by_list(asked, stored, first, count, probe)
        (hit,) = (flat >= 0).nonzero(as_tuple=True)
        size = count[probe].flatten()[pair]
        end = size.cumsum(0)
        run = torch.searchsorted(end, hit, right=True)
        place = first[probe.flatten()[pair[run]]] + hit - (end - size)[run]
        # New rows count as if they were in the lists already.
        probed = torch.zeros(len(low), len(first), dtype=torch.bool).scatter_(1, probe, True)
        excess = low @ low.T - bound[:, None]
        row, column = probed[:, label].logical_and_(excess >= 0).tril_(-1).nonzero(as_tuple=True)
        query = torch.cat([pair[run] // probe.shape[1], row])
        number = torch.cat([lists.tensors["number"][place], self._count + column])
        excess = torch.cat([flat[hit], excess[row, column]])
        best = _packed(query, excess, len(low), most)[0].topk(most, dim=1).values[:, -1]
        kept = excess >= best[query] - _TIE
        return query[kept], number[kept]


def _products(x: Tensor, one: Tensor, other: Tensor) -> Tensor:  # [c]
    """Return the inner products of pairs of rows."""
    parts = [
        torch.linalg.vecdot(x[a], x[b])
        for a, b in zip(one.split(_PAIRS), other.split(_PAIRS), strict=True)
    ]
    return torch.cat(parts)


def _best(
    query: Tensor, value: Tensor, number: Tensor, queries: int, k: int, least: float
) -> tuple[Tensor, Tensor]:  # [queries, k], [queries, k] int64
    """Return the k best of the candidates of each query from `least` on, ties by number."""
    kept = value >= least
    query, value, number = query[kept], value[kept], number[kept]
    order = torch.from_numpy(np.lexsort((number.numpy(), query.numpy())))
    query, value, number = query[order], value[order], number[order]
    values, place = _packed(query, value, queries, k)
    numbers = number.new_full(values.shape, -1).index_put_(place, number)
    best, column = stable_topk(values, k, plain=values.numel())
    return best, numbers.gather(1, column)


def _packed(
    query: Tensor, value: Tensor, queries: int, least: int
) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # [queries, at least `least`], [c], [c] int64
    """Return the values of each query in a row, padded by minus infinity, and their places."""
    order = query.argsort(stable=True)
    count = query.bincount(minlength=queries)
    lane = ranges(0, count)[1]
    place = torch.empty_like(lane).index_copy_(0, order, lane)
    values = value.new_full((queries, max(least, int(count.max()))), -torch.inf)
    return values.index_put_((query, place), value), (query, place)
