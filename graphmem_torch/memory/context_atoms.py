"""Context atoms: what contexts read of the atoms of one store, or of several shards as one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.index.retrieve import Retrieval
from graphmem_torch.memory.index_builder import Snapshot, to_rows
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import SIGNALS
from graphmem_torch.store.tensor_reader import TensorReader

if TYPE_CHECKING:
    from graphmem_torch.context.choose import Vectors
    from graphmem_torch.context.pool import Relations

__all__ = ["ContextAtoms", "ContextHits", "JoinedContextAtoms", "StoredContextAtoms", "joined_hits"]

_LED = ("named", "date", "event", "reply", "succession")  # signals of hits without shared words
_BROUGHT = 0.25  # minimum share of edges in the absolute score of a connected hit
_LEAST = 1e-6

Verdict = tuple[float, bool | None]
"""Confidence that a question is answered, and the verdict of the gate; None: undecided."""


@dataclass(frozen=True, eq=False)
class ContextAtoms:
    """A atoms that contexts may hold.

    Attributes:
        node: [A] int64 number of every row, which no other atom of the memory ever has.
        time: [A] float64 seconds since the epoch UTC, NaN = unknown.
        embeddings: [A, d] unit rows.
        pinned: [P] int64 rows of the pinned atoms.
        related: Function from types of edges to the relations that these make.
        fetch: Reads the atoms of nodes.
    """

    node: Tensor
    time: Tensor
    embeddings: Vectors
    pinned: Tensor
    related: Callable[[Sequence[str]], Relations]
    fetch: Callable[[Sequence[int]], Sequence[Atom]]

    def __len__(self) -> int:
        """Return the number of atoms, A."""
        return len(self.node)


@dataclass(frozen=True, eq=False)
class ContextHits:
    """Hits of B questions, best first, on the CPU.

    Attributes:
        rows: [B, k] int64, -1 = none.
        scores: [B, k], -inf where there is none.
        place: [B, k] int64 place of each hit in the ranking.
        apart: [B, k] bool, hits below the minimum relevance that no edge leads to.
        allowed: [B or 1, A] bool atoms that exist for the question; None: all.
        judged: Confidence and verdict of each question.
    """

    rows: Tensor
    scores: Tensor
    place: Tensor
    apart: Tensor
    allowed: Tensor | None
    judged: Sequence[Verdict]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        query: QueryBatch,
        found: Retrieval,
        judged: Sequence[Verdict],
        floor: float,
    ) -> ContextHits:
        """Return the hits of a retrieval.

        Args:
            snapshot: Snapshot of the memory.
            query: The questions as tensors.
            found: Retrieval of the index.
            judged: Confidence and verdict of each question, by `questions.verdicts`.
            floor: Minimum relevance of a hit; 0 for none.
        """
        allowed = None if query.allowed is None else query.allowed.cpu()
        apart = _apart(snapshot, query, found, floor).cpu()
        rows, scores, place = (each.cpu() for each in (found.rows, found.scores, found.place))
        return cls(rows.clone(), scores, place, apart, allowed, judged)

    @property
    def unrelated(self) -> Tensor:  # [B, k] bool
        """Hits unrelated to the question.

        None are if no hit reaches the floor, as the question then distinguishes no memories.
        """
        there = self.rows >= 0
        return self.apart & there & (~self.apart & there).any(1, keepdim=True)


def _apart(snapshot: Snapshot, query: QueryBatch, found: Retrieval, floor: float) -> Tensor:
    """Return which hits are below the floor without edges to them, [B, k] bool."""
    rows, index = found.rows, snapshot.index
    if not floor or not rows.numel() or not index.num_atoms:
        return torch.zeros(rows.shape, dtype=torch.bool)
    with torch.inference_mode():
        below = index.relevance(query, rows) < floor
        led = [
            i for i, name in enumerate(index.signal_names) if SIGNALS[name].graph or name in _LED
        ]
        brought = found.shares[:, :, led].clamp(min=0.0).sum(2)
        below &= brought < _BROUGHT * found.shares.abs().sum(2).clamp(min=_LEAST)
    return below


class _StoredRelations:
    """Relations of one store by types of edges, kept until the store changes."""

    def __init__(self, store: TensorReader) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: tuple[str, dict[tuple[str, ...], Relations]] = "", {}  # state of the store

    def of(self, snapshot: Snapshot, types: Sequence[str]) -> Relations:
        """Return the relations of edges of these types."""
        from graphmem_torch.context.pool import Relations

        key = tuple(types)
        with self._lock:
            if self._kept[0] != snapshot.state:
                self._kept = snapshot.state, {}
            kept = self._kept[1]
            if key not in kept:
                edges = self._store.edges() if key else EdgeBlock.empty()
                rows = to_rows(edges, snapshot.node)
                kept[key] = Relations.of(rows, key, snapshot.index.num_atoms)
            return kept[key]


class StoredContextAtoms:
    """Atoms of one store for contexts; caches pins and relations. Safe for threads."""

    def __init__(self, store: TensorReader) -> None:
        """Read on demand."""
        self._store = store
        self._lock = threading.Lock()
        self._relations = _StoredRelations(store)
        self._pins: tuple[object, Tensor] | None = None

    def of(self, snapshot: Snapshot) -> ContextAtoms:
        """Return the atoms of a snapshot."""
        return ContextAtoms(
            node=snapshot.node,
            time=snapshot.index.time.cpu(),
            embeddings=snapshot.index.embeddings,
            pinned=self._pinned(snapshot),
            related=partial(self._relations.of, snapshot),
            fetch=self._store.atoms,
        )

    def _pinned(self, snapshot: Snapshot) -> Tensor:  # [P] int64
        """Return rows of the pinned memories; cached until the store or the pins change."""
        life = self._store.life
        version = (snapshot.state, tuple(life.pins()))
        with self._lock:
            if self._pins is None or self._pins[0] != version:
                pinned = torch.tensor(life.pinned_nodes(), dtype=torch.int64)
                rows = torch.isin(snapshot.node, pinned)
                self._pins = version, rows.nonzero().squeeze(1)
            return self._pins[1]


class _JoinedRows:
    """Rows of several matrices, one after another, without copying them."""

    def __init__(self, parts: Sequence[Vectors]) -> None:
        self._parts = parts
        sizes = torch.tensor([part.shape[0] for part in parts])
        self._starts = offsets_of(sizes)
        self.shape = torch.Size([int(sizes.sum()), parts[0].shape[1]])
        self.device = parts[0].device

    def __getitem__(self, rows: Tensor) -> Tensor:  # [...] int64 -> [..., d]
        flat = rows.flatten()
        part = torch.searchsorted(self._starts.to(flat.device), flat, right=True) - 1
        found = torch.empty(len(flat), self.shape[1], device=self.device)
        for number, own in enumerate(self._parts):
            at = (part == number).nonzero().squeeze(1)
            vectors = own[(flat[at] - int(self._starts[number])).to(own.device)]
            found[at] = vectors.to(found)
        return found.view(*rows.shape, self.shape[1])


class JoinedContextAtoms:
    """Atoms of several shards as one; keeps what it joined while they do not change.

    Node n of shard s of S has the number n S + s.
    """

    def __init__(self, shards: int) -> None:
        """Keep none yet.

        Args:
            shards: Number of shards S.
        """
        self._shards = shards
        self._kept: tuple[list[Tensor], ContextAtoms] | None = None

    def of(self, parts: Sequence[ContextAtoms], numbers: Sequence[int]) -> ContextAtoms:
        """Return the atoms of some shards, one after another.

        Args:
            parts: Atoms of each.
            numbers: Number of each.
        """
        starts = _starts(map(len, parts))
        pinned = torch.cat([p.pinned + at for p, at in zip(parts, starts, strict=False)])
        nodes, kept = [part.node for part in parts], self._kept
        if kept is None or [*map(id, kept[0])] != [*map(id, nodes)]:
            kept = self._kept = nodes, self._joined(parts, numbers, starts)
        # Only nodes stay while nothing changes: pins do not, and texts are read anew.
        return replace(kept[1], pinned=pinned, fetch=self._reader(parts, numbers))

    def split(self, nodes: Tensor) -> list[list[int]]:
        """Return the nodes of each of S shards among joined ones."""
        own = [nodes[nodes % self._shards == number] for number in range(self._shards)]
        return [(each // self._shards).tolist() for each in own]

    def _joined(
        self, parts: Sequence[ContextAtoms], numbers: Sequence[int], starts: Sequence[int]
    ) -> ContextAtoms:
        from graphmem_torch.context.pool import Relations

        pairs = zip(parts, numbers, strict=True)
        known: dict[tuple[str, ...], Relations] = {}

        def related(types: Sequence[str]) -> Relations:
            if (key := tuple(types)) not in known:
                each = [part.related(types) for part in parts]
                ends = offsets_of(torch.cat([own.indptr.diff() for own in each]))
                first = [own.first + at for own, at in zip(each, starts, strict=False)]
                known[key] = Relations(ends, torch.cat(first))
            return known[key]

        return ContextAtoms(
            node=torch.cat([part.node * self._shards + number for part, number in pairs]),
            time=torch.cat([part.time for part in parts]),
            embeddings=_JoinedRows([part.embeddings for part in parts]),
            pinned=parts[0].pinned,
            related=related,
            fetch=parts[0].fetch,
        )

    def _reader(
        self, parts: Sequence[ContextAtoms], numbers: Sequence[int]
    ) -> Callable[[Sequence[int]], list[Atom]]:
        def fetch(nodes: Sequence[int]) -> list[Atom]:
            own = self.split(torch.tensor([*nodes], dtype=torch.int64))
            pairs = zip(parts, numbers, strict=True)
            read = {number: iter(part.fetch(own[number])) for part, number in pairs if own[number]}
            return [next(read[node % self._shards]) for node in nodes]

        return fetch


def _starts(sizes: Iterable[int]) -> list[int]:
    """Return where each of several runs starts, and where the last one ends."""
    return [0, *accumulate(sizes)]


def joined_hits(
    parts: Sequence[ContextHits], sizes: Sequence[int], count: int, judged: Sequence[Verdict]
) -> ContextHits:
    """Return the best hits of S shards in the order of their common ranking.

    Args:
        parts: Hits of each shard.
        sizes: Number of atoms of each shard.
        count: Maximum number of hits of a question.
        judged: Confidence and verdict of each question, by all shards.
    """
    rows = [
        torch.where(part.rows < 0, -1, part.rows + start)
        for part, start in zip(parts, _starts(sizes), strict=False)
    ]
    place = torch.cat([part.place.masked_fill(part.rows < 0, count) for part in parts], dim=1)
    order = place.argsort(dim=1, stable=True)[:, :count]
    allowed = None
    if any(part.allowed is not None for part in parts):
        masks = [
            torch.ones(1, size, dtype=torch.bool) if part.allowed is None else part.allowed
            for part, size in zip(parts, sizes, strict=True)
        ]
        most = max(map(len, masks))
        allowed = torch.cat([mask.expand(most, -1) for mask in masks], dim=1)

    def sorted_(values: Sequence[Tensor]) -> Tensor:
        return torch.cat([*values], dim=1).gather(1, order)

    return ContextHits(
        rows=sorted_(rows),
        scores=sorted_([part.scores for part in parts]),
        place=place.gather(1, order),
        apart=sorted_([part.apart for part in parts]),
        allowed=allowed,
        judged=judged,
    )
