"""Tensors that grow at their end in amortised constant time, and never change under a reader."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of, without_once
from graphmem_torch.errors import InputError
from graphmem_torch.ops.ragged import array_ranges, ranges, runs

__all__ = ["GrowingLists", "GrowingRows", "RowsOnDevice"]

_LEAST = 1024  # rows that a buffer has room for once it grows
_ROOM = 4  # entries that a list has room for at least beyond those it needs
_LEFT = 8  # an eighth of the entries may be left behind
_SPANS = 1024  # that are copied one by one


class GrowingRows:
    """A tensor [n, ...] on the CPU that is appended to along its first axis.

    It is written to as an array: on few numbers a call of numpy takes a third of one of torch.
    """

    def __init__(self, rows: Tensor) -> None:  # [n, ...]
        """Starts with these rows, which are not copied until others are added."""
        self._buffer, self._count = rows, rows.shape[0]
        self._view: Tensor | None = rows
        self._written: np.ndarray | None = None  # the buffer, once it is written to

    def __len__(self) -> int:
        """Rows so far."""
        return self._count

    @property
    def view(self) -> Tensor:
        """The rows so far; shares their memory, and keeps its length when others are added."""
        if self._view is None:
            self._view = self._buffer.narrow(0, 0, self._count)
        return self._view

    @property
    def array(self) -> np.ndarray:
        """`view` as an array."""
        if self._written is None:
            self._written = self._buffer.detach().numpy()
        return self._written[: self._count]

    def append(self, rows: Tensor) -> None:  # [m, ...]
        """Adds rows behind the others."""
        buffer = self._buffer
        if rows.shape[1:] != buffer.shape[1:] or rows.dtype != buffer.dtype:
            raise InputError(
                f"rows: expected {buffer.dtype} [m, {list(buffer.shape[1:])}], got "
                f"{rows.dtype} {list(rows.shape)}; convert them"
            )
        old = self._count
        self.extend(rows.shape[0])[old:] = rows.numpy()

    def extend(self, count: int) -> np.ndarray:
        """Adds rows of undefined values; the new `array`."""
        old, needed = self._count, self._count + count
        if needed > self._buffer.shape[0]:
            grown = _empty(self.array, max(needed, 2 * old, _LEAST))
            grown[:old] = self.array
            self._buffer, self._written = torch.from_numpy(grown), grown
        self._view, self._count = None, needed
        return self.array

    def copy(self) -> GrowingRows:
        """The same rows in a buffer of their own, with room for an eighth more."""
        return self.taken(np.zeros(1, dtype=np.int64), np.full(1, len(self)))

    def taken(self, first: np.ndarray, count: np.ndarray) -> GrowingRows:  # [s], [s] integers
        """The rows of some spans, one after another, in a buffer with room for an eighth more."""
        rows, total = self.array, int(count.sum())
        buffer = _empty(rows, total + total // _LEFT)
        if len(first) > _SPANS:
            rows.take(array_ranges(first, count)[1], axis=0, out=buffer[:total], mode="clip")
        else:  # copied as they lie
            end = 0
            for begin, size in zip(first.tolist(), count.tolist(), strict=True):
                buffer[end : end + size] = rows[begin : begin + size]
                end += size
        own = GrowingRows(torch.from_numpy(buffer))
        own._view, own._count = None, total
        return own


def _empty(like: np.ndarray, count: int) -> np.ndarray:  # [n, ...] -> [count, ...]
    """Undefined values; of numpy, whose memory comes in huge pages: a third of the time."""
    return np.empty((count, *like.shape[1:]), dtype=like.dtype)


class RowsOnDevice:
    """A copy on a device of rows that grow at their end: of what has grown only the new ones move.

    Tensors that were given out stay as they are. One caller at a time.
    """

    def __init__(self, device: torch.device | str) -> None:
        """Without rows."""
        self._device = device
        self._rows: Tensor | None = None  # whose copy it is; held, so that no other lies there
        self._copy = torch.empty(0, device=device)

    def of(self, rows: Tensor) -> Tensor:  # [n, ...] each
        """The rows on the device.

        Args:
            rows: `GrowingRows.view`, or any other tensor whose rows nobody writes to.
        """
        # What is made in inference mode must not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            return self._followed(rows)

    def _followed(self, rows: Tensor) -> Tensor:
        known, total = self._known(rows), rows.shape[0]
        if total == 0:
            return rows.to(self._device)
        if total > self._copy.shape[0] or known == 0:
            own = torch.empty(
                (total + (total // _LEFT if known else 0), *rows.shape[1:]),
                dtype=rows.dtype,
                device=self._device,
            )
            if known:
                own[:known] = self._copy[:known]
            self._copy = own
        if total > known:
            self._copy[known:total].copy_(rows[known:])
            self._rows = rows
        return self._copy[:total]

    def _known(self, rows: Tensor) -> int:
        """How many of the first of these are on the device."""
        old = self._rows
        if old is None or rows.dtype != old.dtype or rows.shape[1:] != old.shape[1:]:
            return 0
        same = rows.data_ptr() == old.data_ptr() and rows.stride() == old.stride()
        return min(old.shape[0], rows.shape[0]) if same else 0


class GrowingLists:
    """Lists of entries that are appended to, or replaced, in time proportional to the change.

    Only `keep` and `discard` write over entries that are there: without them, whoever has copied
    `first` and `count` can read on in the columns of that time. A list that has outgrown its room
    moves behind all others, to half as much again; one that is replaced moves there too. All are
    written anew, one after another, when an eighth of the entries was left behind by replacements.
    """

    def __init__(self, columns: Mapping[str, torch.dtype]) -> None:
        """No lists, of entries with these columns."""
        none = torch.empty(0, dtype=torch.int64)
        self._rows = {
            name: GrowingRows(torch.empty(0, dtype=dtype)) for name, dtype in columns.items()
        }
        self._first, self._count, self._room = (GrowingRows(none) for _ in range(3))
        self._left = 0  # entries that were left behind

    @classmethod
    def of(cls, counts: Tensor, columns: Mapping[str, Tensor]) -> GrowingLists:
        """Lists of `counts` [L] int64 entries, one after another in columns that are not copied."""
        lists = cls({})
        lists._rows = {name: GrowingRows(column) for name, column in columns.items()}
        lists._first = GrowingRows(offsets_of(counts)[:-1])
        lists._count, lists._room = GrowingRows(counts), GrowingRows(counts.clone())
        return lists

    def copy(self) -> GrowingLists:
        """The same lists; what is written over in one of both stays as it is in the other."""
        own = GrowingLists({})
        own._rows = {name: rows.copy() for name, rows in self._rows.items()}
        own._first, own._count, own._room = (
            rows.copy() for rows in (self._first, self._count, self._room)
        )
        own._left = self._left
        return own

    def compact(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Counts [L] and columns, as `of` takes them."""
        entry = ranges(self._first.view, self._count.view)[1]
        columns = {name: rows.view.index_select(0, entry) for name, rows in self._rows.items()}
        return self._count.view.clone(), columns

    def __len__(self) -> int:
        """Number of lists."""
        return len(self._first)

    @property
    def first(self) -> Tensor:
        """[L] int64, where each list begins in the columns; changes with the lists."""
        return self._first.view

    @property
    def count(self) -> Tensor:
        """[L] int64, the entries of each list; changes with the lists."""
        return self._count.view

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The entries of all lists, [E] each; `entries` says where those of a list are."""
        return {name: rows.view for name, rows in self._rows.items()}

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """`tensors` as arrays."""
        return {name: rows.array for name, rows in self._rows.items()}

    def resize(self, count: int) -> None:
        """Empty lists behind the others, until there are so many."""
        if (old := len(self)) < count:
            for bound in (self._first, self._count, self._room):
                bound.extend(count - old)[old:] = 0

    def spans(self, lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [r] -> [r], [r] int64
        """How many entries some lists have, and where they end in the columns."""
        count = self._count.array[lists]
        return count, self._first.array[lists] + count

    def entries(self, lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [r] -> [T], [T]
        """The entries of some lists: the place among `lists`, and where it is in the columns."""
        return array_ranges(self._first.array[lists], self._count.array[lists])

    def append(self, lists: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Adds entries, [n] a column, at the end of their `lists` [n], ascending, in the order."""
        begin, count = runs(lists)
        touched = lists[begin]
        held, _ = self.spans(touched)
        short = held + count > self._room.array[touched]
        self._move(touched[short], (held + count)[short])
        self._write(array_ranges(self._first.array[touched] + held, count)[1], columns)
        self._count.array[touched] = held + count

    def replace(
        self, lists: np.ndarray, counts: np.ndarray, columns: Mapping[str, np.ndarray]
    ) -> None:
        """Gives lists [r], each once, other entries: `counts` [r] of them, list after list."""
        if not len(lists):
            return
        self._left += int(self._room.array[lists].sum())
        end = self._extend(int(counts.sum()))
        self._first.array[lists] = end + counts.cumsum() - counts
        self._count.array[lists] = self._room.array[lists] = counts
        self._write(slice(end, None), columns)
        if _LEFT * self._left > max(end, _LEAST):
            whole = GrowingLists.of(*self.compact())
            self._rows, self._left = whole._rows, 0
            self._first, self._count, self._room = whole._first, whole._count, whole._room

    def discard(self, lists: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Takes entries, [n] a column, out of their `lists` [n], each the first that equals it."""
        if not len(lists):
            return
        touched = np.unique(lists)
        row, entry = self.entries(touched)
        held = {name: column[entry] for name, column in self.columns.items()}
        own, gone = (
            torch.from_numpy(np.stack([place, *map(_bits, parts)]))
            for place, parts in (
                (row, held.values()),
                (
                    touched.searchsorted(lists),
                    [columns[name].astype(part.dtype) for name, part in held.items()],
                ),
            )
        )
        self.keep(touched, without_once(own, gone).numpy())

    def keep(self, lists: np.ndarray, mask: np.ndarray) -> None:  # [r] integers, [T] bool
        """Leaves of some lists, each once, those of their `entries` that a mask says.

        They move up in their place, also in columns that came from elsewhere.
        """
        row, entry = self.entries(lists)
        count = np.bincount(row[mask], minlength=len(lists))
        place = array_ranges(self._first.array[lists], count)[1]
        self._write(place, {name: column[entry[mask]] for name, column in self.columns.items()})
        self._count.array[lists] = count

    def take(self, lists: np.ndarray) -> None:  # [r] integers
        """Leaves some lists, each once, in this order."""
        held = int(self._room.array.sum())
        self._first, self._count, self._room = (
            GrowingRows(torch.from_numpy(rows.array[lists]))
            for rows in (self._first, self._count, self._room)
        )
        self._left += held - int(self._room.array.sum())

    def _extend(self, count: int) -> int:
        """Makes room for entries behind all others; where they begin."""
        end = len(next(iter(self._rows.values())))
        for rows in self._rows.values():
            rows.extend(count)
        return end

    def _move(self, lists: np.ndarray, needed: np.ndarray) -> None:
        """Moves lists behind all others, where they have room for so many entries and more."""
        if not len(lists):
            return
        room = needed + np.maximum(needed // 2, _ROOM)
        begin = self._extend(int(room.sum())) + room.cumsum() - room
        first, held = self._first.array[lists], self._count.array[lists]
        source, target = array_ranges(first, held)[1], array_ranges(begin, held)[1]
        self._write(target, {name: column[source] for name, column in self.columns.items()})
        self._first.array[lists], self._room.array[lists] = begin, room

    def _write(self, place: np.ndarray | slice, columns: Mapping[str, np.ndarray]) -> None:
        for name, column in self.columns.items():
            column[place] = columns[name]


def _bits(column: np.ndarray) -> np.ndarray:  # [n] -> [n] integers
    """What equal entries, and no others, have in common."""
    return column.view(f"i{column.itemsize}") if column.dtype.kind == "f" else column
