"""Tensors that grow at their end in amortised constant time and never change for a reader."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of, without_once
from graphmem_torch.errors import InputError
from graphmem_torch.ops.ragged import array_ranges, ranges, runs

__all__ = ["GrowingLists", "GrowingRows", "RowsOnDevice"]

_LEAST = 1024  # minimum rows of a buffer that grows
_ROOM = 4  # minimum spare entries of a list that grows
_LEFT = 8  # at most one entry in this many may be abandoned
_SPANS = 1024  # spans up to which each is copied alone


class GrowingRows:
    """Tensor [n, ...] on the CPU, appended to along its first axis.

    It is written to as an array: for few numbers, a numpy call takes a third of a torch call.
    """

    def __init__(self, rows: Tensor) -> None:  # [n, ...]
        """Start with these rows, which are copied only when others are added."""
        self._buffer, self._count = rows, rows.shape[0]
        self._view: Tensor | None = rows
        self._written: np.ndarray | None = None  # the buffer, set by the first write

    @classmethod
    def within(cls, buffer: np.ndarray, count: int) -> GrowingRows:
        """Return the first rows of a buffer, which is written to when others are added."""
        own = cls(torch.from_numpy(buffer))
        own._view, own._count = None, count
        return own

    def __len__(self) -> int:
        """Number of rows."""
        return self._count

    @property
    def view(self) -> Tensor:
        """Current rows without copying; the length stays when others are added."""
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
        """Append rows."""
        buffer = self._buffer
        if rows.shape[1:] != buffer.shape[1:] or rows.dtype != buffer.dtype:
            raise InputError(
                f"rows: expected {buffer.dtype} [m, {list(buffer.shape[1:])}], got "
                f"{rows.dtype} {list(rows.shape)}; convert them"
            )
        old = self._count
        self.extend(rows.shape[0])[old:] = rows.numpy()

    def extend(self, count: int) -> np.ndarray:
        """Append rows of undefined values and return the new `array`."""
        old, needed = self._count, self._count + count
        if needed > self._buffer.shape[0]:
            grown = _empty(self.array, max(needed + needed // _LEFT, 2 * old, _LEAST))
            grown[:old] = self.array
            self._buffer, self._written = torch.from_numpy(grown), grown
        self._view, self._count = None, needed
        return self.array

    def copy(self) -> GrowingRows:
        """Copy the rows to a new buffer with room for an eighth more."""
        return self.taken(np.zeros(1, dtype=np.int64), np.full(1, len(self)))

    def taken(self, first: np.ndarray, count: np.ndarray) -> GrowingRows:  # [s], [s] integers
        """Copy the rows of some spans, in order, to a new buffer with room for an eighth more."""
        rows, total = self.array, int(count.sum())
        buffer = _empty(rows, total + total // _LEFT)
        if len(first) > _SPANS:
            rows.take(array_ranges(first, count)[1], axis=0, out=buffer[:total], mode="clip")
        else:  # copied in place
            end = 0
            for begin, size in zip(first.tolist(), count.tolist(), strict=True):
                buffer[end : end + size] = rows[begin : begin + size]
                end += size
        own = GrowingRows(torch.from_numpy(buffer))
        own._view, own._count = None, total
        return own


def _empty(like: np.ndarray, count: int) -> np.ndarray:  # [n, ...] -> [count, ...]
    """Allocate undefined values by numpy, whose huge pages make this three times as fast."""
    return np.empty((count, *like.shape[1:]), dtype=like.dtype)


class RowsOnDevice:
    """Copy on a device of rows that grow at their end; only new rows move.

    Tensors returned earlier never change. Not for concurrent callers.
    """

    def __init__(self, device: torch.device | str, dtype: torch.dtype | None = None) -> None:
        """Start without rows; the copy has `dtype`, by default that of the rows."""
        self._device, self._dtype = device, dtype
        self._rows: Tensor | None = None  # source of the copy, kept alive for its address
        self._copy = torch.empty(0, device=device)

    def of(self, rows: Tensor) -> Tensor:  # [n, ...] each
        """Return the rows on the device.

        Args:
            rows: `GrowingRows.view`, or another tensor whose rows never change.
        """
        # Tensors created in inference mode cannot be written to outside it.
        with torch.inference_mode(False), torch.no_grad():
            return self._followed(rows)

    @property
    def whole(self) -> Tensor:
        """Rows on the device, and room for others after them: the last result begins it."""
        return self._copy

    def _followed(self, rows: Tensor) -> Tensor:
        known, total = self._known(rows), rows.shape[0]
        if total == 0:
            return rows.to(self._device, self._dtype)
        if total > self._copy.shape[0] or known == 0:
            own = torch.empty(
                (total + (0 if self._rows is None else total // _LEFT), *rows.shape[1:]),
                dtype=self._dtype or rows.dtype,
                device=self._device,
            )
            if known:
                own[:known] = self._copy[:known]
            own[total:] = 0  # readers of the `whole` multiply them by 0
            self._copy = own
        if total > known:
            self._copy[known:total].copy_(rows[known:])
            self._rows = rows
        return self._copy[:total]

    def _known(self, rows: Tensor) -> int:
        """Return how many of the first rows are on the device."""
        old = self._rows
        if old is None or rows.dtype != old.dtype or rows.shape[1:] != old.shape[1:]:
            return 0
        same = rows.data_ptr() == old.data_ptr() and rows.stride() == old.stride()
        return min(old.shape[0], rows.shape[0]) if same else 0


class GrowingLists:
    """Lists of entries that are appended to or replaced in time proportional to the change.

    Only `keep` and `discard` overwrite entries. Otherwise a reader that copied `first` and `count`
    can go on reading the columns of that time. A list that outgrows its room moves to the end and
    gets half as much again; a replaced list moves there too. Once replacements abandon an eighth of
    the entries, all lists are rewritten.
    """

    def __init__(self, columns: Mapping[str, torch.dtype]) -> None:
        """Start without lists, for entries with these columns."""
        none = torch.empty(0, dtype=torch.int64)
        self._rows = {
            name: GrowingRows(torch.empty(0, dtype=dtype)) for name, dtype in columns.items()
        }
        self._first, self._count, self._room = (GrowingRows(none) for _ in range(3))
        self._left = 0  # entries abandoned by replacements

    @classmethod
    def of(cls, counts: Tensor, columns: Mapping[str, Tensor]) -> GrowingLists:
        """Return lists of `counts` [L] int64 entries, consecutive in columns; copies nothing."""
        lists = cls({})
        lists._rows = {name: GrowingRows(column) for name, column in columns.items()}
        lists._first = GrowingRows(offsets_of(counts)[:-1])
        lists._count, lists._room = GrowingRows(counts), GrowingRows(counts.clone())
        return lists

    def copy(self) -> GrowingLists:
        """Return the same lists; overwriting entries of one copy does not change the other."""
        own = GrowingLists({})
        own._rows = {name: rows.copy() for name, rows in self._rows.items()}
        own._first, own._count, own._room = (
            rows.copy() for rows in (self._first, self._count, self._room)
        )
        own._left = self._left
        return own

    def compact(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return counts [L] and columns, in the form that `of` takes."""
        entry = ranges(self._first.view, self._count.view)[1]
        columns = {name: rows.view.index_select(0, entry) for name, rows in self._rows.items()}
        return self._count.view.clone(), columns

    def __len__(self) -> int:
        """Number of lists."""
        return len(self._first)

    @property
    def first(self) -> Tensor:
        """[L] int64, first entry of each list in the columns; changes with the lists."""
        return self._first.view

    @property
    def count(self) -> Tensor:
        """[L] int64, number of entries of each list; changes with the lists."""
        return self._count.view

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Entries of all lists, [E] each; `entries` returns the places of one list."""
        return {name: rows.view for name, rows in self._rows.items()}

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """`tensors` as arrays."""
        return {name: rows.array for name, rows in self._rows.items()}

    def resize(self, count: int) -> None:
        """Append empty lists up to a total of `count`."""
        if (old := len(self)) < count:
            for bound in (self._first, self._count, self._room):
                bound.extend(count - old)[old:] = 0

    def spans(self, lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [r] -> [r], [r] int64
        """Return the number of entries of some lists, and their ends in the columns."""
        count = self._count.array[lists]
        return count, self._first.array[lists] + count

    def entries(self, lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [r] -> [T], [T]
        """Return the entries of some lists: index into `lists`, and place in the columns."""
        return array_ranges(self._first.array[lists], self._count.array[lists])

    def append(self, lists: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Append entries, [n] a column, to their `lists` [n], which ascend."""
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
        """Replace the entries of distinct lists [r] by `counts` [r] others, list after list."""
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
        """Remove entries, [n] a column, from their `lists` [n]: for each, the first equal one."""
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
        """Keep only the `entries` of distinct lists that the mask selects.

        Entries move up in place, also in columns given by a caller.
        """
        row, entry = self.entries(lists)
        count = np.bincount(row[mask], minlength=len(lists))
        place = array_ranges(self._first.array[lists], count)[1]
        self._write(place, {name: column[entry[mask]] for name, column in self.columns.items()})
        self._count.array[lists] = count

    def take(self, lists: np.ndarray) -> None:  # [r] integers
        """Keep only these distinct lists, in this order."""
        held = int(self._room.array.sum())
        self._first, self._count, self._room = (
            GrowingRows(torch.from_numpy(rows.array[lists]))
            for rows in (self._first, self._count, self._room)
        )
        self._left += held - int(self._room.array.sum())

    def _extend(self, count: int) -> int:
        """Make room for entries after all others; return its first place."""
        end = len(next(iter(self._rows.values())))
        for rows in self._rows.values():
            rows.extend(count)
        return end

    def _move(self, lists: np.ndarray, needed: np.ndarray) -> None:
        """Move lists to the end, with room for `needed` entries and more."""
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
    """Return the bits of a column as integers, equal exactly if the entries are equal."""
    return column.view(f"i{column.itemsize}") if column.dtype.kind == "f" else column
