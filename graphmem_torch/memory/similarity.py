"""Search for the earlier atoms most similar to new ones: exact, or by an inverted file."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.config import LinkConfig
from graphmem_torch.ops import knn_graph
from graphmem_torch.ops.growing_ivf import GrowingIVF, Training

__all__ = ["SimilarRows"]

_LARGE = 50_000  # rows from which an inverted file is used
_PARTS = 16  # measurements of the probes until the rows have doubled
_RECENT = 256  # rows of such a measurement
_DENSE = 2  # reading more than one row in this many is hardly faster than reading all


class SimilarRows:
    """Search of rows that grow at their end.

    With `link.exact` off, the lists are trained on the first 50,000 rows, and again whenever the
    rows have doubled. The number of lists that are searched is measured sixteen times between. All
    of it happens at fixed numbers of rows, so a result depends on the rows alone: not on batches,
    and not on when a process began.
    """

    def __init__(self, config: LinkConfig, device: str, *, large: int = _LARGE) -> None:
        """Start without rows.

        Args:
            config: Settings of linking.
            device: Type of the device of the rows; only a CPU uses an inverted file.
            large: Number of rows from which an inverted file is used, a multiple of 16.
        """
        self._k, self._least = config.similarity_k, config.min_similarity
        self._exact = config.exact or device != "cpu"
        self._large = large
        self._lists: GrowingIVF | None = None
        self._trained = self._measured = 0  # numbers of rows
        self._sparse = False  # whether lists are worth searching

    def earlier(self, x: Tensor, start: int, k: int) -> tuple[Tensor, Tensor]:
        """Return the earlier rows most similar to each row from `start` on, as `knn_graph` does.

        Args:
            x: [N, d], unit rows. The first `start` are those of the last call, or more.
            start: First row to search for.
            k: Number of neighbours, at least `link.similarity_k`.

        Returns:
            Cosines and rows, [N - start, k] each. Those below `link.min_similarity` may be missing.
        """
        parts = []
        while start < len(x):
            stop = len(x) if self._exact else min(len(x), self._stop(start))
            lists = None if self._exact else self._at(x[:start])
            if lists is None:
                parts.append(knn_graph(x[:stop], k, start=start, earlier=True))
            else:
                parts.append(lists.follow(x[:stop], k, least=self._least)[:2])
            start = stop
        if not parts:
            return knn_graph(x, k, start=start, earlier=True)
        values, rows = (torch.cat(column) for column in zip(*parts, strict=True))
        return values, rows

    def _stop(self, count: int) -> int:
        """Return the next number of rows at which something is trained or measured."""
        trained = self._trained_at(count)
        if trained == 0:
            return self._large
        step = trained // _PARTS
        return count - count % step + step

    def _trained_at(self, count: int) -> int:
        """Return the number of rows that the lists are trained on when there are `count` rows."""
        if count < self._large:
            return 0
        return self._large << (count // self._large).bit_length() - 1

    def _at(self, x: Tensor) -> GrowingIVF | None:
        """Return the lists of all rows of x, if they are worth searching."""
        trained = self._trained_at(len(x))
        if trained == 0:
            return None
        if self._lists is None or self._trained != trained:
            training = Training.of(x[:trained], self._k, least=self._least)
            self._lists, self._trained, self._measured = GrowingIVF(training), trained, 0
        lists, step = self._lists, trained // _PARTS
        if (last := len(x) - len(x) % step) > self._measured:
            lists.add(x[len(lists) : last])
            if last > trained:
                recent = lists.training.measured(x[:last], _RECENT, self._k, least=self._least)
                lists.training = recent
            self._measured, self._sparse = last, lists.share * _DENSE < 1
        lists.add(x[len(lists) :])
        return lists if self._sparse else None
