"""The graph of a memory: edges from code and from judges, structure, missing links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphmem_torch.atoms import EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.memory.core import MemoryCore
from graphmem_torch.memory.judging import JudgedEdges, checked_pairs, judge_pairs, similar_pairs
from graphmem_torch.memory.missing import MissingLink, missing_links
from graphmem_torch.memory.stated import Connected, connect_all, disconnect
from graphmem_torch.memory.survey import survey
from graphmem_torch.oracle import Judge, Oracle, judge_of
from graphmem_torch.readers.jsonl import parse_edge_type
from graphmem_torch.spectral.structure import Structure
from graphmem_torch.text.entailment import LexicalJudge

__all__ = ["LinkedMemory"]


class LinkedMemory(MemoryCore):
    """What can be said and asked of the edges between memories."""

    def connect(
        self,
        source: str | Iterable[Any],
        target: str | None = None,
        type: str | EdgeType = EdgeType.RELATED_TO,
        weight: float | None = None,
    ) -> Connected:
        """Connects stored atoms: `connect("a", "b", "supports")`, or many edges at once.

        On disk for good when it returns, and seen by the next question. Of the edges of one
        (source, target, type) the strongest counts; one that is not stronger than what is stored is
        passed over. To weaken an edge, `disconnect` it first.

        Args:
            source: Id of an atom; or an iterable of (source, target), (source, target, type),
                (source, target, type, weight) or (source, Link), stored in one transaction.
            target: Id of another atom.
            type: Name of an `EdgeType`.
            weight: Its strength, by default that of the type. Contradictions are stored negative
                whatever its sign, for other types it must be positive.

        Raises:
            InputError: An id that is not stored, an unknown type (naming the nearest), a weight
                that does not fit; nothing is stored then.
            StoreError: Read-only store or full disk; likewise.
        """
        if isinstance(source, str):
            return connect_all(self.store, [(source, target, type, weight)])
        if target is not None or weight is not None or type != EdgeType.RELATED_TO:
            raise InputError(
                "target, type, weight: expected none beside many edges; write them into each edge"
            )
        return connect_all(self.store, source)

    def disconnect(self, source: str, target: str, type: str | EdgeType | None = None) -> int:
        """Deletes the edges from one atom to another, of one type or of all; how many there were.

        Raises:
            InputError: An id that is not stored, or an unknown type.
            StoreError: Read-only store or full disk; nothing is deleted then.
        """
        return disconnect(self.store, source, target, type)

    def judge_edges(
        self,
        oracle: Oracle | Judge | None = None,
        pairs: Iterable[tuple[str, str]] | None = None,
        *,
        k: int = 4,
        least: float = 0.6,
        progress: bool = False,
    ) -> JudgedEdges:
        """Adds implications and contradictions between atoms, as an oracle judges them.

        `docs/mathematics.md` 2.1: an implication weighs 0.5 to 1 by the verdict's confidence, a
        contradiction -0.5. An oracle that fails or answers nonsense costs its pairs their edges and
        nothing else; a warning says so.

        Args:
            oracle: An object with `judge(premises, hypotheses)`, or that function; by default the
                local rule (`text.entailment.LexicalJudge`).
            pairs: (premise, hypothesis) ids; by default each atom with its `k` most similar earlier
                ones, both ways round.
            k: Of the default pairs.
            least: Cosine from which an atom counts as similar.
            progress: Shows a bar on stderr.

        Raises:
            InputError: An id that is not stored, or something that is no pair or no oracle.
        """
        from tqdm import tqdm

        judge = judge_of(LexicalJudge(self.embedder) if oracle is None else oracle)
        asked = self._similar_ids(k, least) if pairs is None else checked_pairs(pairs)
        done = JudgedEdges()
        with tqdm(
            total=len(asked), desc="judge", unit=" pairs", disable=None if progress else True
        ) as bar:
            for done in judge_pairs(self.store, judge, asked):
                bar.update(done.judged - bar.n)
        return done

    def _similar_ids(self, k: int, least: float) -> list[tuple[str, str]]:
        """Ids of similar atoms, both ways round."""
        current = self._current()
        rows = similar_pairs(current.index.embeddings.float(), k=k, least=least).cpu()
        atoms = self.store.atoms(current.node[rows.unique()].tolist())
        name = dict(zip(rows.unique().tolist(), [atom.id for atom in atoms], strict=True))
        ends = [(name[a], name[b]) for a, b in rows.T.tolist()]
        return [pair for a, b in ends for pair in ((a, b), (b, a))]

    def structure(self, *, refresh: bool = False) -> Structure:
        """Spectrum, communities, bridges, frontiers and frustration of the graph of memories.

        `docs/mathematics.md` 2. Kept until the store changes, and then brought up to date where it
        did.

        Args:
            refresh: Analyses everything anew, as after a regime switch.

        Raises:
            InputError: If the library for communities is not installed.
        """
        known = None if refresh else self._survey
        if known is not None and known.structure.settings != self.config.structure:
            known = None
        self._survey = survey(self.store, self.config.structure, self.device, known)
        return self._survey.structure

    def missing_links(
        self, k: int = 10, *, type: str | EdgeType = EdgeType.DEPENDENCY
    ) -> list[MissingLink]:
        """The k likeliest edges of a type that are not there, by the pattern of those that are.

        Raises:
            InputError: Fewer than 2 such edges, more than 20,000 memories, or k below 1.
        """
        kind = parse_edge_type(type) if isinstance(type, str) else type
        return missing_links(self.store, k, type=kind)
