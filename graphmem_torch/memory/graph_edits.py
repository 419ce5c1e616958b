"""Graph edits: edges between the memories of one memory, and the structure of its graph."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from graphmem_torch.atoms import EdgeType
from graphmem_torch.judge.entailment import LexicalJudge
from graphmem_torch.memory import edge_writes
from graphmem_torch.memory.index_view import IndexView
from graphmem_torch.memory.state import State
from graphmem_torch.memory.structure_cache import MissingLink, missing_links
from graphmem_torch.oracle import Judge, Oracle, method_of
from graphmem_torch.progress import Progress
from graphmem_torch.readers.jsonl import parse_edge_type
from graphmem_torch.results import Added
from graphmem_torch.spectral.structure import Structure

__all__ = ["GraphEdits"]


class GraphEdits:
    """Edges that callers and oracles state, and the structure of the graph."""

    def __init__(self, state: State) -> None:
        """Keep the state of the memory; loads nothing.

        Args:
            state: State of the memory.
        """
        self._state, self._store = state, state.store

    def connect(
        self,
        source: str | Iterable[Any],
        target: str | None = None,
        type: str | EdgeType = EdgeType.RELATED_TO,
        weight: float | None = None,
    ) -> Added:
        """Connect stored atoms: `connect("a", "b", "supports")`, or many edges at once.

        The edges are on disk when the call returns. The strongest edge of each (source, target,
        type) counts; one no stronger than the stored edge is skipped.

        Args:
            source: Id of an atom; or an iterable of (source, target), (source, target, type),
                (source, target, type, weight) or (source, Link), stored in one transaction.
            target: Id of another atom.
            type: Name of an `EdgeType`.
            weight: Strength, by default that of the type. Contradictions are stored negative
                whatever the sign; other types need a positive weight.

        Returns:
            Numbers of new and of known edges.

        Raises:
            InputError: An id is not stored, a type is unknown, or a weight is unusable; nothing is
                stored then.
            StoreError: Read-only store or full disk; nothing is stored then.
        """
        edges = edge_writes.given_edges(source, target, type, weight)
        return edge_writes.connect_all(self._store, edges, hidden=None)

    def disconnect(self, source: str, target: str, type: str | EdgeType | None = None) -> int:
        """Delete the edges from one atom to another, and return their number.

        Args:
            source: Id of an atom.
            target: Id of another atom.
            type: Name of an `EdgeType`; None is any.

        Raises:
            InputError: An id is not stored, or the type is unknown.
            StoreError: Read-only store or full disk.
        """
        return edge_writes.disconnect(self._store, source, target, type)

    def judge(
        self,
        oracle: Oracle | Judge | None = None,
        pairs: Iterable[tuple[str, str]] | None = None,
        *,
        k: int = 4,
        min_cosine: float = 0.6,
        progress: bool = False,
    ) -> edge_writes.JudgedEdges:
        """Add implications and contradictions between atoms, as an oracle judges them.

        An implication weighs 0.5 to 1 by the confidence of the verdict, a contradiction minus the
        confidence (`docs/mathematics.md` 2.1). If a call of the oracle fails, its pairs get no
        edges.

        Args:
            oracle: An object with `judge(premises, hypotheses)`, or that function; by default the
                local rules (`judge.entailment.LexicalJudge`).
            pairs: Ids (premise, hypothesis); by default each atom with its most similar earlier
                ones, in both directions.
            k: Maximum number of earlier atoms for each atom.
            min_cosine: Minimum cosine of these.
            progress: Whether to show a bar on stderr.

        Raises:
            InputError: An id is not stored, a pair is invalid, or the oracle is unusable.
        """
        local = LexicalJudge(self._state.embedder) if oracle is None else oracle
        judge = method_of(local, "judge")
        if pairs is None:
            asked = self._state.with_retry(partial(_similar_ids, self._state, k, min_cosine))
        else:
            asked = edge_writes.checked_pairs(pairs)
        done = edge_writes.JudgedEdges()
        with Progress(what="judge", unit="pairs", total=len(asked), shown=progress) as bar:
            for done in edge_writes.judge_pairs(self._store, judge, asked):
                bar.update(done.judged - bar.done)
        return done

    def structure(self, *, concepts: bool = False, refresh: bool = False) -> Structure:
        """Return spectrum, communities, bridges, frontiers and frustration of the graph.

        `docs/mathematics.md` 2. Kept until the store changes.

        Args:
            concepts: Whether concepts count as nodes; otherwise only the memories do.
            refresh: Whether to analyse everything again, as after a regime switch.

        Raises:
            InputError: The library for communities is not installed.
        """
        state = self._state
        with state.lock:
            state.expire_switched()
        if refresh:
            state.structure.expire()
        return state.structure.get(state.config.structure, state.device, concepts=concepts)

    def missing_links(
        self, k: int = 10, *, type: str | EdgeType = EdgeType.DEPENDENCY
    ) -> list[MissingLink]:
        """Return the k likeliest absent edges of a type, the likeliest first.

        Args:
            k: Number of edges.
            type: Name of an `EdgeType`.

        Raises:
            InputError: Unknown type, fewer than 2 edges of it, or more than 20,000 memories.
        """
        kind = parse_edge_type(type) if isinstance(type, str) else type
        return missing_links(self._store, k, type=kind)


def _similar_ids(state: State, k: int, min_cosine: float, view: IndexView) -> list[tuple[str, str]]:
    return edge_writes.similar_ids(state.store, view.snapshot, k=k, min_cosine=min_cosine)
