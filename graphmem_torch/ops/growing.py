"""Tensors that grow at their end in amortised constant time, and never change under a reader."""

from __future__ import annotations

from torch import Tensor

from graphmem_torch.errors import InputError

__all__ = ["GrowingRows"]

_LEAST = 1024  # rows that a buffer has room for once it grows


class GrowingRows:
    """A tensor [n, ...] that is appended to along its first axis.

    Attributes:
        view: The rows so far; shares their memory, and keeps its length when others are added.
    """

    def __init__(self, rows: Tensor) -> None:  # [n, ...]
        """Starts with these rows, which are not copied until others are added."""
        self._buffer = self.view = rows

    def __len__(self) -> int:
        """Rows so far."""
        return len(self.view)

    def append(self, rows: Tensor) -> Tensor:  # [m, ...]
        """Adds rows behind the others; the new view."""
        if rows.shape[1:] != self.view.shape[1:] or rows.dtype != self.view.dtype:
            raise InputError(
                f"rows: expected {self.view.dtype} [m, {list(self.view.shape[1:])}], got "
                f"{rows.dtype} {list(rows.shape)}; convert them"
            )
        old = len(self.view)
        self.extend(len(rows))
        self._buffer[old : old + len(rows)] = rows
        return self.view

    def extend(self, count: int) -> Tensor:
        """Adds rows of undefined values; the new view."""
        old, needed = len(self.view), len(self.view) + count
        if needed > len(self._buffer):
            grown = self._buffer.new_empty(max(needed, 2 * old, _LEAST), *self.view.shape[1:])
            grown[:old] = self.view
            self._buffer = grown
        # Of `data`, which does not count what is written behind the view as a change of it.
        self.view = self._buffer.data[:needed]
        return self.view
