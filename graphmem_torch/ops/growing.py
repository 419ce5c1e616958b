"""Tensors that grow at their end in amortised constant time, and never change under a reader."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.ops.ragged import array_ranges, ranges

__all__ = ["GrowingLists", "GrowingRows"]

_LEAST = 1024  # rows that a buffer has room for once it grows
_ROOM = 4  # entries that a list has room for at least beyond those it needs


class GrowingRows:
    """A tensor [n, ...] that is appended to along its first axis.

    Attributes:
        view: The rows so far; shares their memory, and keeps its length when others are added.
    """

    def __init__(self, rows: Tensor) -> None:  # [n, ...]
        """Starts with these rows, which are not copied until others are added."""
        self._buffer = self.view = rows
        self._count = rows.shape[0]

    def __len__(self) -> int:
        """Rows so far."""
        return self._count

    def append(self, rows: Tensor) -> Tensor:  # [m, ...]
        """Adds rows behind the others; the new view."""
        if rows.shape[1:] != self.view.shape[1:] or rows.dtype != self.view.dtype:
            raise InputError(
                f"rows: expected {self.view.dtype} [m, {list(self.view.shape[1:])}], got "
                f"{rows.dtype} {list(rows.shape)}; convert them"
            )
        old = self._count
        self.extend(rows.shape[0]).narrow(0, old, rows.shape[0]).copy_(rows)
        return self.view

    def extend(self, count: int) -> Tensor:
        """Adds rows of undefined values; the new view."""
        old, needed = self._count, self._count + count
        if needed > self._buffer.shape[0]:
            grown = self._buffer.new_empty(max(needed, 2 * old, _LEAST), *self.view.shape[1:])
            grown[:old] = self.view
            # Of `data`, which does not count what is written behind a view as a change of it.
            self._buffer = grown.data
        self.view = self._buffer.data.narrow(0, 0, needed)
        self._count = needed
        return self.view


class GrowingLists:
    """Lists of entries that are appended to, or replaced, in time proportional to the change.

    A list that has outgrown its room moves behind all others, to half as much again; what it leaves
    is not used again, and at most twice as much as there is.
    """

    def __init__(self, columns: Mapping[str, torch.dtype]) -> None:
        """No lists, of entries with these columns."""
        self._rows = {
            name: GrowingRows(torch.empty(0, dtype=dtype)) for name, dtype in columns.items()
        }
        self._bounds = GrowingRows(torch.empty(0, 3, dtype=torch.int64))  # first, count, room

    @classmethod
    def of(cls, counts: Tensor, columns: Mapping[str, Tensor]) -> GrowingLists:
        """Lists of `counts` [L] int64 entries, one after another in columns that are not copied."""
        lists = cls({})
        lists._rows = {name: GrowingRows(column) for name, column in columns.items()}
        lists._bounds = GrowingRows(torch.stack([offsets_of(counts)[:-1], counts, counts], 1))
        return lists

    def compact(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Counts [L] and columns, as `of` takes them."""
        first, count, _ = self._bounds.view.unbind(1)
        entry = ranges(first, count)[1]
        return count.clone(), {name: rows.view[entry] for name, rows in self._rows.items()}

    def __len__(self) -> int:
        """Number of lists."""
        return len(self._bounds)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The entries of all lists, [E] each; `entries` says where those of a list are."""
        return {name: rows.view.numpy() for name, rows in self._rows.items()}

    def resize(self, count: int) -> None:
        """Empty lists behind the others, until there are so many."""
        self._bounds.append(torch.zeros(count - len(self), 3, dtype=torch.int64))

    def entries(self, lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [r] -> [T], [T]
        """The entries of some lists: the place among `lists`, and where it is in the columns."""
        first, count, _ = self._bounds.view.numpy()[lists].T
        return array_ranges(first, count)

    def append(self, lists: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Adds entries, [n] a column, at the end of their `lists` [n], ascending, in the order."""
        begin = np.flatnonzero(np.diff(lists, prepend=-1))
        touched, count = lists[begin], np.diff(begin, append=len(lists))
        bounds = self._bounds.view.numpy()
        _, held, room = bounds[touched].T
        short = held + count > room
        self._make_room(touched[short], (held + count)[short], keep=True)
        self._write(array_ranges(bounds[touched, 0] + held, count)[1], columns)
        bounds[touched, 1] = held + count

    def replace(
        self, lists: np.ndarray, counts: np.ndarray, columns: Mapping[str, np.ndarray]
    ) -> None:
        """Gives lists [r], each once, other entries: `counts` [r] of them, list after list."""
        bounds = self._bounds.view.numpy()
        short = counts > bounds[lists, 2]
        self._make_room(lists[short], counts[short], keep=False)
        bounds[lists, 1] = counts
        self._write(array_ranges(bounds[lists, 0], counts)[1], columns)

    def _make_room(self, lists: np.ndarray, needed: np.ndarray, *, keep: bool) -> None:
        """Moves lists behind all others."""
        if not len(lists):
            return
        bounds = self._bounds.view.numpy()
        first, held, _ = bounds[lists].T
        room = needed + np.maximum(needed // 2, _ROOM)
        end = len(next(iter(self._rows.values())))
        begin = end + room.cumsum() - room
        source, target = array_ranges(first, held)[1], array_ranges(begin, held)[1]
        for rows in self._rows.values():
            rows.extend(int(room.sum()))
            if keep:
                column = rows.view.numpy()
                column[target] = column[source]
        bounds[lists] = np.stack([begin, held, room], 1)

    def _write(self, place: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        for name, column in self.columns.items():
            column[place] = columns[name]
