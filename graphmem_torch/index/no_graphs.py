"""Graphs of a memory whose device records none: without torch's graphs, and cheap to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmem_torch.index.retrieve import Retrieval

__all__ = ["NoGraphs"]


class NoGraphs:
    """Surface of `index.captured.CapturedGraphs` where each question runs its operators.

    Attributes:
        records: True on devices that record questions.
        bytes: Bytes of the graphs: 0.
    """

    records: bool = False
    bytes = 0

    def use(self, wanted: bool = True) -> None:
        """Do nothing, as there are no graphs to choose."""

    def report(self) -> list[dict[str, Any]]:
        """Return an empty list."""
        return []

    def answer(self, *_: Any) -> Retrieval | None:
        """Return None, as for a question that has no graph."""
        return None
