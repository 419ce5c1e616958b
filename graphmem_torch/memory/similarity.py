"""Search for the earlier atoms most similar to new ones: exact, or by an inverted file."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from graphmem_torch.config import LinkConfig
from graphmem_torch.ops import knn_graph
from graphmem_torch.ops.growing import RowsOnDevice
from graphmem_torch.ops.growing_ivf import GrowingIVF, Training
from graphmem_torch.ops.knn_graph import refined_knn

__all__ = ["SimilarRows"]

_LARGE = 50_000  # rows from which an inverted file is used
_PARTS = 8  # measurements of the probes until the rows have doubled
_RECENT = 256  # rows of such a measurement
_UNSAVED = 4096  # rows whose lists a new process computes again
_FOUND = 0.975  # share of the edges of a sample below which all rows are compared
_DENSE = 0.3  # share of the rows beyond which reading lists is hardly faster than reading all


class SimilarRows:
    """Search of rows that grow at their end.

    Unless `link.exact` is set, lists are trained on the first 50,000 rows, and again whenever the
    rows have doubled. Which lists are searched is measured eight times between. All of it happens
    at fixed numbers of rows, so a result depends on the rows alone: not on batches, and not on when
    a process began.
    """

    def __init__(
        self, config: LinkConfig, device: str, *, large: int = _LARGE, half: bool | None = None
    ) -> None:
        """Start without rows.

        Args:
            config: Settings of linking.
            device: Device that compares rows.
            large: Number of rows from which an inverted file is used, a multiple of 8.
            half: Whether `edges` compares half-precision copies of all rows and refines what it
                finds; by default on every device but a CPU.
        """
        self._rows = RowsOnDevice(device, torch.float16)
        self._k, self._least = config.similarity_k, config.min_similarity
        self._half = torch.device(device).type != "cpu" if half is None else half
        self._exact = config.exact or self._half
        self._large = large
        self._lists: GrowingIVF | None = None
        self._trained = self._measured = 0  # numbers of rows
        self._sparse = False  # whether lists are worth searching
        self._saved = 0, 0, 0  # numbers of rows: trained, measured and known at the last save

    def edges(self, x: Tensor, start: int, dead: Collection[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the similarity edges of the rows from `start` on.

        Args:
            x: [N, d], unit rows on the CPU. The first `start` are those of the last call, or more.
            start: First row to search for.
            dead: Rows that get no edges.

        Returns:
            Cosine [E] of each edge, its row and its earlier row [E] int64.
        """
        k = self._k + len(dead)
        if self._half:
            cosine, neighbour = refined_knn(x, self._rows.of(x), k, start, least=self._least)
        else:
            cosine, neighbour = self.earlier(x, start, k)
        near = cosine >= self._least
        if dead:
            near &= ~torch.isin(neighbour, torch.tensor(list(dead)))
            near &= near.cumsum(1) <= self._k
        row, place = near.nonzero(as_tuple=True)
        return cosine[row, place], start + row, neighbour[row, place]

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
            lists = self._at(x[:start])
            stop = len(x) if self._exact else min(len(x), self._stop(start))
            if lists is None:
                parts.append(knn_graph(x[:stop], k, start=start, earlier=True))
            else:
                parts.append(lists.follow(x[:stop], k, least=self._least))
            start = stop
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return knn_graph(x, k, start=start, earlier=True)
        values, rows = (torch.cat(column) for column in zip(*parts, strict=True))
        return values, rows

    def forget(self, x: Tensor, gone: Collection[int], dead: Collection[int]) -> None:
        """Remove what is kept of deleted rows.

        Args:
            x: [N, d], all rows.
            gone: Rows deleted now.
            dead: Rows deleted, now or before.
        """
        if self._lists is not None and (known := [row for row in gone if row < len(self._lists)]):
            left = torch.ones(len(self._lists), dtype=torch.bool)
            left[[row for row in dead if row < len(left)]] = False
            self._lists.forget(x, torch.tensor(known), left)
            self._saved = 0, 0, 0

    def keep(self, rows: Tensor) -> None:  # [n] int64, ascending
        """Keep only these rows, which are numbered anew."""
        if self._lists is not None:
            known = rows[rows < len(self._lists)]
            self._lists = GrowingIVF(self._lists.training, self._lists.labels[known])
            self._measured = int((rows < self._measured).sum())

    @property
    def unsaved(self) -> bool:
        """Return whether `state` has changed by more than a few rows since it was last saved."""
        if self._lists is None:
            return False
        trained, measured, count = self._saved
        grown = len(self._lists) - count
        return (trained, measured) != (self._trained, self._measured) or grown >= _UNSAVED

    def state(self, x: Tensor) -> dict[str, Tensor]:  # [N, d]
        """Return what `load` takes, by name, for all rows x; there must be lists."""
        assert self._lists is not None
        training, labels = self._lists.training, self._lists.labels
        self._saved = self._trained, self._measured, len(labels)
        return {
            "axes": training.axes,
            "centroids": training.centroids,
            "gaps": training.gaps,
            "losses": training.losses,
            "probed": torch.tensor(training.probed, dtype=torch.float64),
            "labels": labels,
            "first": x[: len(labels), 0],
            "counts": torch.tensor([self._trained, self._measured, int(self._sparse)]),
            "settings": self._settings(),
        }

    def load(self, state: Mapping[str, Tensor], kept: Tensor, x: Tensor) -> None:
        """Continue from a `state` of settings and rows like these; another is ignored.

        Args:
            state: Tensors by name.
            kept: [n] bool, which rows of the state are still there.
            x: [N, d], all rows; the first are those that are still there.
        """
        if self._exact or not self._fits(state, x.shape[1]):
            return
        labels = state["labels"][kept]
        if len(labels) > len(x) or not torch.equal(state["first"][kept], x[: len(labels), 0]):
            return
        trained, measured, sparse = state["counts"].tolist()
        axes, centroids, gaps, losses = (
            state[name] for name in ("axes", "centroids", "gaps", "losses")
        )
        training = Training(axes, centroids, gaps, losses, float(state["probed"]))
        self._lists, self._sparse = GrowingIVF(training, labels), bool(sparse)
        self._trained, self._measured = trained, int(kept[:measured].sum())
        self._saved = self._trained, self._measured, len(labels)

    def _settings(self) -> Tensor:
        return torch.tensor([self._k, self._least, self._large], dtype=torch.float64)

    def _fits(self, state: Mapping[str, Tensor], width: int) -> bool:
        """Return whether a state is whole, and of these settings."""
        try:
            axes, centroids, labels = (state[name] for name in ("axes", "centroids", "labels"))
            same = torch.equal(state["settings"], self._settings())
            trained, measured, _ = state["counts"].tolist()
            return (
                same
                and len(state["gaps"]) == len(state["losses"])
                and 0.0 < float(state["probed"]) <= 1.0
                and axes.shape[0] == width
                and centroids.shape[1] <= axes.shape[1]
                and len(labels) == len(state["first"]) >= measured >= trained > 0
                and 0 <= int(labels.min()) <= int(labels.max()) < len(centroids)
            )
        except (KeyError, ValueError, IndexError, RuntimeError):
            return False

    def _stop(self, count: int) -> int:
        """Return the next number of rows at which something is trained or measured."""
        if self._trained == 0:
            return self._large
        return min(2 * self._trained, self._measured + self._trained // _PARTS)

    def _at(self, x: Tensor) -> GrowingIVF | None:
        """Return the lists of all rows of x, if they are worth searching."""
        if self._exact or len(x) < self._large:
            return None
        trained = self._large << (len(x) // self._large).bit_length() - 1
        if self._lists is None or self._trained < trained:
            training = Training.of(x[:trained], self._k, least=self._least)
            self._lists, self._trained, self._measured = GrowingIVF(training), trained, trained
            self._judge(x[:trained], trained)
        lists, step = self._lists, self._trained // _PARTS
        while (last := self._measured + step) <= len(x):
            first = self._measured
            lists.training = lists.training.measured(
                x[:last], first, _RECENT, self._k, least=self._least
            )
            self._measured = last
            self._judge(x[:last], _RECENT)
        lists.add(x[len(lists) :])
        return lists if self._sparse else None

    def _judge(self, x: Tensor, recent: int) -> None:
        """Decide whether lists are worth searching for rows like the last ones."""
        assert self._lists is not None
        self._lists.add(x[len(self._lists) :])
        step = max(1, recent // _RECENT)
        sample = torch.arange(len(x) - recent, len(x), step)
        self._sparse = self._lists.choose(x[sample]) < _DENSE
        if self._sparse:
            self._sparse = self._lists.recall(x, sample, self._k, least=self._least) >= _FOUND
