"""GrowingIVF: an inverted file that finds, for each row it takes in, the nearest earlier rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.ops.growing import GrowingLists, GrowingRows
from graphmem_torch.ops.ivf import spherical_kmeans
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.ops.topk_cosine import nearest_keys

__all__ = ["GrowingIVF", "Training"]

_ENERGY = 0.85  # share of the squared length that the axes keep, on which rows are compared
_STEP = 32  # axes are a multiple of this
_COARSE = 96  # axes that lists are formed on
_LISTS = 6.0  # lists of a square root of the rows
_TRAINED = 16  # training rows a list
_ITERATIONS = 3  # of k-means; more improve recall less than another probe does
_NEARER = 0.7  # share of the best centroid's cosine that the threshold of a list follows
_PROBED = 0.998, 0.993, 0.985  # shares of the sampled neighbours that probed lists may contain
_CHEAP = 0.04  # share of the rows up to which more of the neighbours are worth reading for
_COMPARED = 0.997  # share of the neighbours of the sample that are compared in full
_NEAR = 64  # nearest rows among which the k best on the axes are
_SAMPLE = 1024  # rows whose exact neighbours determine the thresholds
_MOST = 256  # maximum candidates of a row
_TILE = 512  # rows taken in at once
_SCORES = 1 << 24  # scores held at once: 64 MB
_PAIRS = 4096  # pairs of rows multiplied at once: 6 MB of 384 columns
_ROUNDING = 1e-5  # difference of a product on the axes between two tilings


@dataclass(frozen=True, eq=False)
class Training:
    """Values that a `GrowingIVF` learns from rows.

    Attributes:
        axes: [d, r] float32, orthonormal columns: the principal axes.
        centroids: [L, c] float32, unit rows on the first c axes.
        gaps: [g] float32, for sampled neighbours: cosine of their list's centroid with the row,
            less 0.7 of the cosine of the row's best centroid.
        losses: [g] float32, for sampled neighbours: k-th best product on the axes of the row, less
            the neighbour's.
        probed: Share of the sampled neighbours that the lists to search contain.
    """

    axes: Tensor
    centroids: Tensor
    gaps: Tensor
    losses: Tensor
    probed: float = _PROBED[-1]

    @classmethod
    def of(cls, x: Tensor, k: int, *, least: float) -> Training:
        """Train on rows.

        Args:
            x: [N, d] float32, unit rows, N > 0.
            k: Number of neighbours.
            least: Cosine below which a neighbour does not count.
        """
        sample = torch.arange(0, len(x), max(1, len(x) // _SAMPLE))
        # What is measured must not be known from the training.
        free = torch.ones(len(x), dtype=torch.bool)
        free[sample] = len(x) < 2 * _SAMPLE
        (others,) = free.nonzero(as_tuple=True)
        lists = min(len(others), math.ceil(_LISTS * math.sqrt(len(x))))
        generator = torch.Generator().manual_seed(0)
        chosen = torch.randperm(len(others), generator=generator)[: _TRAINED * lists]
        some = x[others[chosen]]
        energy, axes = (each.flip(-1) for each in torch.linalg.eigh(some.T @ some))
        needed = int((energy.cumsum(0) < _ENERGY * energy.sum()).sum()) + 1
        axes = axes[:, : _STEP * math.ceil(needed / _STEP)].contiguous()
        low = _unit(some @ axes[:, :_COARSE])
        centroids = spherical_kmeans(low, lists, _ITERATIONS, generator)
        own = cls(axes, centroids, torch.empty(0), torch.empty(0))
        return own._measured(x, sample, k, least)

    def measured(self, x: Tensor, first: int, count: int, k: int, *, least: float) -> Training:
        """Return the training with measures of `count` rows from `first` on for the oldest."""
        sample = torch.arange(first, len(x), max(1, (len(x) - first) // count))
        return self._measured(x, sample, k, least)

    def _measured(self, x: Tensor, sample: Tensor, k: int, least: float) -> Training:
        cosine, near = nearest_keys(x[sample], x, max(_NEAR, k + 1))
        counts = (near != sample[:, None]).logical_and_(cosine >= least)
        counts[:, k + 1 :] = False
        row = counts.nonzero()[:, 0]
        if not len(row):
            return self
        low = x[sample] @ self.axes
        products = torch.cat(
            [
                (x[some] @ self.axes @ each[:, :, None]).squeeze(2)
                for some, each in zip(near.split(_TILE), low.split(_TILE), strict=True)
            ]
        )
        best = products.topk(min(k + 1, products.shape[1]), dim=1).values[:, -1]
        losses = best[row] - products[counts]
        centre = self._cosines(low)
        each, place = near[counts].unique(return_inverse=True)
        gaps = centre[row, self.labels(x[each] @ self.axes)[place]] - _NEARER * centre.amax(1)[row]
        kept = -_SAMPLE * k
        return replace(
            self,
            gaps=torch.cat([self.gaps, gaps])[kept:],
            losses=torch.cat([self.losses, losses])[kept:],
        )

    @property
    def reach(self) -> float:
        """Threshold of the gaps: lists above it contain `probed` of the sampled neighbours."""
        return -_quantile(-self.gaps, self.probed) if len(self.gaps) else math.inf

    @property
    def margin(self) -> float:
        """Loss on the axes up to which rows are compared in full: `_COMPARED` of the sample's."""
        return max(0.0, _quantile(self.losses, _COMPARED)) + _ROUNDING

    def lists(self, low: Tensor, reach: float) -> tuple[Tensor, Tensor]:  # [n] int64, [n, L] bool
        """Return the list of each row [n, r], and the lists to search: those about as near."""
        cosine = self._cosines(low)
        best, label = cosine.max(1, keepdim=True)
        return label[:, 0], cosine >= best * _NEARER + reach

    def labels(self, low: Tensor) -> Tensor:  # [n, r] -> [n] int64
        """Return the list of each row."""
        return torch.cat([self._cosines(part).argmax(1) for part in low.split(_TILE)])

    def _cosines(self, low: Tensor) -> Tensor:  # [n, L]
        return _unit(low[:, : self.centroids.shape[1]]) @ self.centroids.T


def _unit(low: Tensor) -> Tensor:
    return torch.nn.functional.normalize(low, dim=1)


def _quantile(values: Tensor, share: float) -> float:
    """Return the smallest value that a share of the values does not exceed; 0 for none."""
    return float(values.kthvalue(math.ceil(share * len(values))).values) if len(values) else 0.0


class GrowingIVF:
    """Rows in lists by nearest centroid, appended to in amortised constant time.

    Lists are compared on the principal axes; what is found is compared again in full. What is found
    for a row depends on the training and the earlier rows only, not on how rows are batched. A list
    is packed when it is first searched, so that a few searches cost little. On a CPU.
    """

    def __init__(self, training: Training, labels: Tensor | None = None) -> None:
        """Start with rows whose lists, [n] integers, are known; by default without rows."""
        self.training = training
        none = torch.empty(0, dtype=torch.int32)
        self._labels = GrowingRows(none if labels is None else labels.to(torch.int32))
        lists = len(training.centroids)
        columns = {"number": none, "row": torch.empty(0, training.axes.shape[1])}
        self._lists = GrowingLists.of(torch.zeros(lists, dtype=torch.int64), columns)
        self._packed = np.zeros(lists, dtype=bool)
        self._buffer = np.empty(0, dtype=np.float32)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._labels)

    @property
    def labels(self) -> Tensor:
        """[n] int32, list of each row."""
        return self._labels.view

    def forget(self, x: Tensor, gone: Tensor, left: Tensor) -> None:  # [g] int64, [n] bool
        """Form the centroids of lists without some rows, whose vectors they may reveal.

        Args:
            x: [N, d] float32, all rows.
            gone: Rows that are no longer left.
            left: Whether each row that was taken in is left.
        """
        label, width = self._labels.view, self.training.centroids.shape[1]
        lists = label[gone].unique()
        (kept,) = (left & torch.isin(label, lists)).nonzero(as_tuple=True)
        low = _unit(x[kept] @ self.training.axes[:, :width])
        sums = torch.zeros(len(lists), width)
        sums.index_add_(0, torch.searchsorted(lists, label[kept]), low)
        centroids = self.training.centroids.index_copy(0, lists.long(), _unit(sums))
        self.training = replace(self.training, centroids=centroids)

    def recall(self, x: Tensor, sample: Tensor, k: int, *, least: float) -> float:
        """Return the share of the nearest rows of a sample [s] int64 that a search finds.

        Args:
            x: [N, d] float32, all rows, which are in the lists.
            sample: Numbers of rows.
            k: Number of neighbours.
            least: Cosine below which a neighbour does not count.
        """
        low, own = x[sample] @ self.training.axes, len(sample)
        _, probed = self.training.lists(low, self.training.reach)
        self._pack(x, probed.any(0).numpy())
        pairs = self._limited(low, *self._nearest(low, probed, k + 1), k + 1)
        values, _ = _best(x, x[sample], *pairs, k + 1, least)
        exact, _ = nearest_keys(x[sample], x, k + 1)
        counts = exact >= least
        # Any of equal rows is right, and a missing row moves up those after it.
        last = exact.masked_fill(~counts, torch.inf).amin(1, keepdim=True)
        found = (values >= last - _ROUNDING).sum(1).clamp(max=counts.sum(1))
        # A row always finds itself.
        return float(found.sum() - own) / (int(counts.sum()) - own) if counts.sum() > own else 1.0

    def choose(self, sample: Tensor) -> float:  # [s, d]
        """Search as many lists for rows like these as is cheap, and return their `share`."""
        for probed in _PROBED:
            self.training = replace(self.training, probed=probed)
            if (share := self.share(sample)) < _CHEAP:
                break
        return share

    def share(self, sample: Tensor) -> float:  # [s, d]
        """Return the share of the rows that rows like these are compared with, on average."""
        size = self._labels.view.bincount(minlength=len(self._packed)).double()
        _, probed = self.training.lists(sample @ self.training.axes, self.training.reach)
        return float((probed.double() @ size).mean()) / max(1, len(self))

    def add(self, x: Tensor) -> None:  # [n, d]
        """Take in rows without a search."""
        for part in x.split(_SCORES // 1024):
            low = part @ self.training.axes
            self._put(low, self.training.labels(low))

    def follow(self, x: Tensor, k: int, *, least: float) -> tuple[Tensor, Tensor]:
        """Take in the rows after the first `len(self)` and find the most similar earlier ones.

        Cosines that are equal within rounding are ordered by number, lower first.

        Args:
            x: [N, d] float32, unit rows, those taken in before included.
            k: Number of neighbours.
            least: Cosine below which a row is no neighbour.

        Returns:
            Cosines, best first, and the numbers of the rows they belong to, [n, k] each. Missing
            neighbours have value minus infinity and number -1.
        """
        values, numbers = [torch.empty(0, k)], [torch.empty(0, k, dtype=torch.int64)]
        reach, tile = self.training.reach, max(1, min(_TILE, 4 * _SCORES // max(1, len(self))))
        while (start := len(self)) < len(x):
            part = x[start : start + tile]
            low = part @ self.training.axes
            label, probed = self.training.lists(low, reach)
            self._pack(x, probed.any(0).numpy())
            query, number = self._candidates(low, label, probed, k)
            best, found = _best(x, part, query, number, k, least)
            values.append(best)
            numbers.append(found)
            self._put(low, label)
        return torch.cat(values), torch.cat(numbers)

    def _put(self, low: Tensor, label: Tensor) -> None:
        """Append rows, and pack those whose lists are packed."""
        first, known = len(self), self._packed[label.numpy()]
        self._labels.append(label.to(torch.int32))
        if known.any():
            (own,) = torch.from_numpy(known).nonzero(as_tuple=True)
            own = own[label[own].argsort(stable=True)]
            columns = {"number": (first + own).int().numpy(), "row": low[own].numpy()}
            self._lists.append(label[own].numpy(), columns)

    def _pack(self, x: Tensor, wanted: np.ndarray) -> None:  # [L] bool
        """Pack the rows of lists that are not packed yet."""
        wanted = wanted & ~self._packed
        if not wanted.any():
            return
        label = self._labels.array
        (number,) = wanted[label].nonzero()
        number = number[label[number].argsort(kind="stable")]
        row = np.empty((len(number), self.training.axes.shape[1]), dtype=np.float32)
        step = _SCORES // 1024
        for begin in range(0, len(number), step):
            own = torch.from_numpy(number[begin : begin + step])
            torch.mm(x[own], self.training.axes, out=torch.from_numpy(row[begin : begin + step]))
        columns = {"number": number.astype(np.int32), "row": row}
        self._lists.append(label[number].astype(np.int64), columns)
        self._packed |= wanted

    def _candidates(
        self, low: Tensor, label: Tensor, probed: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:  # [c], [c] int64
        """Return pairs of new row and the number of an earlier row, near on the axes, in order."""
        query, number, score = self._nearest(low, probed, k)
        # New rows count as if they were in the lists already.
        row, column = probed[:, label].tril_(-1).nonzero(as_tuple=True)
        query = torch.cat([query, row])
        number = torch.cat([number, len(self) + column])
        score = torch.cat([score, (low @ low.T)[row, column]])
        return self._limited(low, query, number, score, k)

    def _limited(
        self, low: Tensor, query: Tensor, number: Tensor, score: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:  # [c], [c] int64
        """Return the pairs within the margin of the k-th best of each row, in order."""
        order = ((query << 40) + number).argsort()
        query, number, score = query[order], number[order], score[order]
        (scores,) = _packed(query, len(low), score)
        most = max(k, _MOST)
        if scores.shape[1] > most:  # of many equal rows, the lower numbers
            lane = ranges(0, query.bincount(minlength=len(low)))[1]
            chosen = torch.zeros(scores.shape, dtype=torch.bool)
            chosen.scatter_(1, stable_topk(scores, most, sorted=False)[1], True)
            kept = chosen[query, lane]
        else:
            kept = torch.ones(len(query), dtype=torch.bool)
        if scores.shape[1] >= k:
            kept &= score >= scores.topk(k, dim=1).values[query, -1] - self.training.margin
        return query[kept], number[kept]

    def _nearest(
        self, low: Tensor, probed: Tensor, k: int
    ) -> tuple[Tensor, Tensor, Tensor]:  # [c], [c] int64, [c]
        """Return pairs of row and stored row in its lists, and their products on the axes.

        They include all within the margin of the k-th best.
        """
        size = self._lists.count
        lists, query = (probed & (size > 0)).T.nonzero(as_tuple=True)  # list after list
        count = size[lists]
        flat = self._scores(low.numpy(), query.numpy(), lists, count)
        if not len(flat):
            return query[:0], query[:0], torch.empty(0)
        begin = count.cumsum(0) - count
        # The k best lists by their best row bound the k-th best row from below.
        best = torch.from_numpy(np.maximum.reduceat(flat, begin.numpy()))
        bests = torch.full((len(low), max(k, len(size))), -torch.inf)
        bests[query, lists] = best
        bound = bests.topk(k, dim=1).values[:, -1] - self.training.margin
        (kept,) = (best >= bound[query]).nonzero(as_tuple=True)
        pair, place = ranges(begin[kept], count[kept])
        score = torch.from_numpy(flat)[place]
        pair = kept[pair]
        (hit,) = (score >= bound[query[pair]]).nonzero(as_tuple=True)
        pair, place = pair[hit], place[hit]
        entry = self._lists.first[lists[pair]] + place - begin[pair]
        return query[pair], self._lists.tensors["number"][entry].long(), score[hit]

    def _scores(
        self, low: np.ndarray, query: np.ndarray, lists: Tensor, count: Tensor
    ) -> np.ndarray:  # [sum of count] float32, pair after pair; overwritten by the next call
        """Return the products of rows and lists; each list is multiplied once by all its rows."""
        total = int(count.sum())
        if total > len(self._buffer):  # fresh memory takes longer than the products
            self._buffer = np.empty(total + total // 4, dtype=np.float32)
        rows, flat, asked = self._lists.columns["row"], self._buffer, np.empty_like(low)
        each, many = lists.unique_consecutive(return_counts=True)
        bounds = torch.stack([self._lists.first[each], self._lists.count[each], many]).T.tolist()
        pair = score = 0
        for begin, size, asking in bounds:
            # A copy of few rows stays in the cache; one of all pairs is larger than the lists.
            low.take(query[pair : pair + asking], axis=0, out=asked[:asking], mode="clip")
            out = flat[score : score + asking * size].reshape(asking, size)
            np.dot(asked[:asking], rows[begin : begin + size].T, out=out)
            pair += asking
            score += asking * size
        return flat[:total]


def _best(
    x: Tensor,  # [N, d]
    part: Tensor,  # [B, d]
    query: Tensor,  # [c] int64, ascending
    number: Tensor,  # [c] int64, ascending for each query
    k: int,
    least: float,
) -> tuple[Tensor, Tensor]:  # [B, k], [B, k] int64
    """Return the k best candidates of each row from `least` on, ties by number."""
    cosine = torch.cat(
        [
            torch.linalg.vecdot(part[one], x[other])
            for one, other in zip(query.split(_PAIRS), number.split(_PAIRS), strict=True)
        ]
    )
    kept = cosine >= least
    query, number, cosine = query[kept], number[kept], cosine[kept]
    values, numbers = _packed(query, len(part), cosine, number, width=k)
    best, place = stable_topk(values, k, plain=values.numel())
    return best, numbers.gather(1, place).masked_fill_(best == -torch.inf, -1)


def _packed(
    query: Tensor, queries: int, *columns: Tensor, width: int = 0
) -> list[Tensor]:  # [queries, at least `width`]
    """Return columns with the entries of each query in a row, padded by -1 or minus infinity."""
    count = query.bincount(minlength=queries)
    place = query, ranges(0, count)[1]
    shape = queries, max(width, int(count.max()))
    return [
        column.new_full(shape, -torch.inf if column.is_floating_point() else -1).index_put_(
            place, column
        )
        for column in columns
    ]
