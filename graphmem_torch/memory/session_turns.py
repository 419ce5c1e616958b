"""Session: its turns in the order of time."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable
from itertools import islice

from graphmem_torch.atoms import DEFAULT_EDGE_WEIGHT, Atom, EdgeType

__all__ = ["WINDOW_TURNS", "Session", "is_turn"]

WINDOW_TURNS = 5
"""Number of turns, with that of the mention, that a concept is linked to, as in SYNAPSE."""


class Session:
    """The turns of a session in the order of time; equal times in the order of storing.

    A turn without a time has that of the turn stored before it. A new version of a turn has the
    place in the order of storing of its first version.

    Attributes:
        nodes: Node numbers of the turns.
        stored: The same in the order of storing.
    """

    def __init__(self, turns: Iterable[tuple[int, int, float | None]] = ()) -> None:
        """Create from turns: number of the first version, node number and time; see `put`."""
        self.nodes = array("q")
        self._times = array("d")
        self._last = -math.inf  # time of the last stored turn
        self.stored, self._first, self._given = array("q"), array("q"), array("d")
        for first, node, time in turns:
            self.put(node, time, first)

    def put(self, node: int, time: float | None, first: int | None = None) -> int:
        """Insert a turn in the order, and return its position.

        `first` is the node number of its first version, its own by default.
        """
        first, given = node if first is None else first, math.nan if time is None else float(time)
        at = bisect_left(self._first, first)
        self._first.insert(at, first)
        self.stored.insert(at, node)
        self._given.insert(at, given)
        if at < len(self._first) - 1:
            self._order()
            return self.nodes.index(node)
        return self._place(node, given)

    def before(self, node: int, count: int) -> list[int]:
        """Return the turns before one that were stored earlier, nearest first, at most `count`."""
        there = {*self.stored[: self.stored.index(node)]}
        earlier = reversed(self.nodes[: self.nodes.index(node)])
        return list(islice((turn for turn in earlier if turn in there), count))

    def ties(self, count: int) -> list[tuple[int, int, EdgeType, float]]:
        """Tie the last stored turn to `count` earlier ones, at doubling distances.

        All pairs of a session would be n² edges; these are n log n, and no two turns of a session
        are more than log n edges apart.

        Returns:
            Edges: source, target, type and weight.
        """
        weight = DEFAULT_EDGE_WEIGHT[EdgeType.COOCCURRENCE]
        stored, distances = self.stored, (1 << power for power in range(count))
        return [
            (stored[-1 - distance], stored[-1], EdgeType.COOCCURRENCE, weight)
            for distance in distances
            if distance < len(stored)
        ]

    def drop(self, nodes: Container[int]) -> None:
        """Remove turns."""
        kept = [at for at, node in enumerate(self.stored) if node not in nodes]
        self.stored, self._first = (
            array("q", [own[at] for at in kept]) for own in (self.stored, self._first)
        )
        self._given = array("d", [self._given[at] for at in kept])
        self._order()

    def _order(self) -> None:
        self.nodes, self._times, self._last = array("q"), array("d"), -math.inf
        for node, time in zip(self.stored, self._given, strict=True):
            self._place(node, time)

    def _place(self, node: int, time: float) -> int:
        self._last = self._last if math.isnan(time) else time
        place = bisect_right(self._times, self._last)
        self._times.insert(place, self._last)
        self.nodes.insert(place, node)
        return place


def is_turn(atom: Atom) -> bool:
    """Return whether an atom is a turn of its session, not derived from other atoms."""
    return all(link.type != EdgeType.DERIVED_FROM for link in atom.edges)
