"""Upkeep: refinement, the archive, memory types and importance of one memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory import edge_writes
from graphmem_torch.memory.archiving import archive_nodes, restore_atoms
from graphmem_torch.memory.consolidation import Consolidation
from graphmem_torch.memory.decay import (
    ORACLE,
    Classified,
    classify_nodes,
    extracted_atom,
    open_nodes,
    stated_edges,
)
from graphmem_torch.memory.insight import to_particles, understand_nodes
from graphmem_torch.memory.refining import Refining
from graphmem_torch.memory.state import State
from graphmem_torch.memory.validity import validity_of
from graphmem_torch.memory.writing import Writing
from graphmem_torch.oracle import method_of
from graphmem_torch.progress import Progress
from graphmem_torch.rank.signals import CENTRALITY
from graphmem_torch.results import Consolidated, Particle, Receipt, Understood
from graphmem_torch.store.lock import WriterLock
from graphmem_torch.store.receipts import read_receipt, receipt_problems
from graphmem_torch.text.times import TimeLike, parse_time

__all__ = ["Upkeep"]

M = TypeVar("M")

_log = logging.getLogger(__name__)


class Upkeep(Generic[M]):
    """Refinement and archive of a growing memory (`docs/mathematics.md` 5 and 6)."""

    def __init__(
        self, writing: Writing, consolidation: Consolidation, kind: Callable[[State], M]
    ) -> None:
        """Load nothing yet.

        Args:
            writing: Writing to the memory.
            consolidation: Consolidation of the memory.
            kind: Class of the archive, called with a state.
        """
        self._writing, self._consolidation, self._kind = writing, consolidation, kind
        self._state, self._store = writing.state, writing.state.store

    # Refinement: important memories stay, the others are archived.

    def consolidate(self, *, oracle: Any = None) -> Consolidated:
        """Refine the memory, as the settings say, and return what was done.

        Each step commits before the next starts, so an interrupted run loses nothing and can be
        repeated; readers are not blocked. The steps repeat until none finds anything, so a second
        call does nothing. Memories that are added during the call are left to the next one:

        * memories that have expired are deleted, here and in the archive;
        * the detector of regime switches reads the new memories (`Themes.switches`);
        * memories that wait for it are linked (`link.batch_concepts`);
        * used memories gain importance;
        * contradictions and repetitions are found (`reconcile.automatic`);
        * memories below the minimum importance are archived (`refine`);
        * related memories are merged into aggregates (`aggregate`);
        * feedback changes the weights, if enough of it is new.

        Args:
            oracle: Object that judges pairs (`judge`, as in `Facts.reconcile`), writes
                aggregates (`summarise(texts, question, max_tokens)`), or both. By default the local
                rules judge, and aggregates are sentences of their members.

        Raises:
            InputError: An oracle that can do neither.
            StoreError: Read-only store or full disk; completed steps stay.
        """
        judge = method_of(oracle, "judge") if hasattr(oracle, "judge") else None
        writes = oracle is not None and (judge is None or hasattr(oracle, "summarise"))
        summarise = method_of(oracle, "summarise") if writes else None
        return self._consolidation.run(summarise, judge)

    def in_background(self, *, every: float = 60.0) -> Refining:
        """Consolidate whenever something has changed, in a separate thread.

        The thread ends with the memory, with `stop`, or as a context manager with its block. An
        error is logged, and the run is repeated. One thread or process refines a store at a time.

        Args:
            every: Seconds between two checks for changes.

        Raises:
            InputError: It runs already, or `every` is out of range.
            StoreError: Read-only store.
        """
        self._store.expect_writable()
        state = self._state
        with state.lock:
            if state.refining is not None and state.refining.running:
                raise InputError(
                    "in_background: expected a memory that nothing refines in the background, got "
                    "one that is refined; stop that first"
                )
            lock = WriterLock(self._store.path, "refining.lock")
            state.refining = Refining(self._consolidation, lock, every)
            return state.refining

    # The archive.

    def archive(self, ids: str | Iterable[str]) -> int:
        """Move atoms to the archive, all or none, where no question finds them.

        Their versions, pins, types, stated edges and validity move with them. So does what they
        superseded, which would otherwise be valid again. They are deleted here once the archive
        has them: an interrupted call leaves them in both, and can be repeated. `archived` searches
        them, `restore` moves them back, `Memory.forget` erases them.

        Args:
            ids: Ids of stored atoms; may repeat.

        Returns:
            The number of atoms that were moved.

        Raises:
            InputError: An id that is not stored, or under which something else was archived; an
                archive has no archive.
            StoreError: Read-only store or full disk; the memory is unchanged.
        """
        with self._state.turn():
            return archive_nodes(self._writing, self._state.resolve_ids(ids)[1])

    def restore(self, ids: str | Iterable[str]) -> int:
        """Move archived atoms back, all or none, and return their number.

        Atoms that superseded them come too. Linking makes their edges again; stated edges return
        when both ends are here. A restored atom counts as used.

        Args:
            ids: Ids of archived atoms; may repeat.

        Raises:
            InputError: An id that is not in the archive, such as a forgotten one, or under which
                something else was added since.
            StoreError: Read-only store or full disk; the archive is unchanged.
        """
        return restore_atoms(self._writing, ids)

    def archived(self) -> M | None:
        """Return the archive as a memory to search; None if nothing was ever archived.

        It shares the same resources as a namespace, and ends with this memory.
        """
        archive = self._state.archive()
        return None if archive is None else self._kind(archive)

    # The disk.

    def compact(self) -> int:
        """Shrink the files by the space freed by deletions, and return the number of bytes.

        Deleting frees pages for new data, but keeps the length of the file. This rewrites the file
        and that of the archive, in time and space proportional to what is left. Others can read
        meanwhile; while they do, the file may stay long.

        Raises:
            StoreError: Read-only store or full disk; nothing has changed.
        """
        self._store.expect_writable()
        archive = self._state.archive()
        return self._store.compact() + (0 if archive is None else archive.store.compact())

    def check_receipt(self, receipt: Receipt | str | os.PathLike[str]) -> list[str]:
        """Verify a receipt, and return the reasons it fails; an empty list means it is valid.

        Args:
            receipt: Receipt of `Memory.forget`, or a file with its `to_json`.

        Raises:
            InputError: No receipt.
        """
        receipt = read_receipt(receipt)
        archive = self._state.archive()
        with self._store.reading():
            others = [] if archive is None else [archive.store]
            return receipt_problems([self._store, *others], receipt)

    # Types and strength: used memories stay strong, others decay.

    def types(self, ids: str | Sequence[str]) -> dict[str, str | None]:
        """Return the memory type of each atom: its stated type, else the one that was found.

        None if unknown: `decay.classify` says whether the local rules read new text.

        Args:
            ids: Ids of stored atoms.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        named, nodes = self._state.resolve_ids(ids)
        found = self._state.decay.types(torch.tensor(nodes, dtype=torch.int64))
        return self._state.as_given(ids, dict(zip(named, found, strict=True)))

    def strength(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, float]:
        """Return S(t) = e^{-lambda t} + beta C(n) of each atom (`docs/mathematics.md` 6).

        t is the time since its last use, C(n) its PageRank relative to the largest of any atom; the
        constants are those of the settings under `decay`.

        Args:
            ids: Ids of stored atoms.
            as_of: Moment that counts as now, a time as in `Memory.retrieve`.

        Raises:
            InputError: An id that is not stored, that of a concept, or no time.
        """
        state, now = self._state, None if as_of is None else parse_time(as_of, "as_of")
        named, nodes = state.resolve_ids(ids)
        if not named:
            return {}
        snapshot, rows = state.rows_for(named)
        left = state.decay.retention(torch.tensor(nodes), now)
        central = snapshot.centrality[rows]
        values = left + CENTRALITY * central
        return state.as_given(ids, dict(zip(named, values.tolist(), strict=True)))

    def importance(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, float]:
        """Return the importance of atoms, in [0, 1], by the settings under `refine`.

        The importance is novelty, increased by recorded uses and decayed since the last one.

        Args:
            ids: Ids of stored atoms.
            as_of: Moment that counts as now, a time as in `Memory.retrieve`.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        return self._state.importance_of(ids, as_of=as_of)

    def classify(
        self,
        oracle: Any = None,
        ids: str | Sequence[str] | None = None,
        *,
        extract: bool = False,
        progress: bool = False,
    ) -> Classified:
        """Find the memory types of atoms that state none.

        An oracle answers in the form of ContextOS, {content, type, decay_factor per hour,
        relations}; if it fails, the local rules answer. A type changes how an atom decays, never
        its text.

        Args:
            oracle: Object with `classify(texts)`, or that function; by default the rules of
                `text.memory_type`.
            ids: Atoms to classify; by default all without a type that they state or an oracle gave.
                Atoms that state a type are skipped.
            extract: Whether to store the oracle's extraction: content other than the atom's text as
                an observation derived from it (`<id>#content`), relations with stored atoms as
                edges. Other relations are dropped, with a warning.
            progress: Whether to show a bar on stderr.

        Raises:
            StoreError: Read-only store or full disk; results of earlier calls stay.
        """
        asked = None if oracle is None else method_of(oracle, "classify")
        if ids is None:
            hidden = self._store.expiry.hidden()
            nodes = [node for node in open_nodes(self._store) if node not in hidden]
        else:
            wanted = self._state.resolve_ids(ids)[1]
            atoms = self._store.atoms(wanted)
            nodes = [node for node, atom in zip(wanted, atoms, strict=True) if atom.type is None]
        done = Classified()
        with Progress(what="classify", unit="atoms", total=len(nodes), shown=progress) as bar:
            keep = partial(_keep_extracted, self._writing) if extract else None
            for part in classify_nodes(self._store, asked, nodes, keep):
                done += part
                bar.update(sum(part.types.values()))
        return done

    # Insight: nature and subjects of a memory (`docs/mathematics.md` 5.3).

    def particles(self, ids: str | Sequence[str]) -> list[Particle]:
        """Return atoms as insight particles: signifiers, keys, imprint, times and importance.

        Uses what an oracle said by `understand`; otherwise applies the local rules
        (`memory.insight.read_insight`) at each call.

        Args:
            ids: Ids of stored atoms.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        with self._store.reading():
            named, nodes = self._state.resolve_ids(ids)
            if not nodes:
                return []
            importance = self._state.importance_of(named)
            values = {node: importance[name] for name, node in zip(named, nodes, strict=True)}
            validity = validity_of(self._store, dict(zip(named, nodes, strict=True)), None)
            return to_particles(self._store, nodes, values, validity)

    def understand(
        self, oracle: Any, ids: str | Sequence[str] | None = None, *, progress: bool = False
    ) -> Understood:
        """Ask an oracle what atoms are and mention; `particles` returns the stored answers.

        Args:
            oracle: Object with `extract(texts)`, or that function, which returns objects
                {signifiers, keys, importance}.
            ids: Atoms to ask about; by default all without an answer.
            progress: Whether to show a bar on stderr.

        Raises:
            InputError: No oracle, or an id that is not stored.
            StoreError: Read-only store or full disk; answers of earlier calls stay.
        """
        extract = method_of(oracle, "extract")
        if ids is None:
            hidden = self._store.expiry.hidden()
            nodes = [node for node in self._store.insights.unsaid() if node not in hidden]
        else:
            nodes = self._state.resolve_ids(ids)[1]
        done = Understood()
        with Progress(what="understand", unit="atoms", total=len(nodes), shown=progress) as bar:
            for part in understand_nodes(self._store, extract, nodes):
                done += part
                bar.update(part.said + part.failed)
        return done


def _keep_extracted(
    writing: Writing, found: Sequence[tuple[Atom, Mapping[str, Any]]]
) -> Classified:
    """Store what an oracle extracted from atoms, in place of earlier extractions."""
    state, store = writing.state, writing.state.store
    pairs = [(a, node) for atom, node in found if (a := extracted_atom(atom, node))]
    said = {atom.id: node for atom, node in pairs}
    with state.turn():
        made = {a.id: a for a in edge_writes.dated(store, [atom for atom, _ in pairs])}
        known = store.known([*made])
        fresh = {n: a for n, a in made.items() if n not in known or known[n][1] != a.digest}
        writing.add([atom for name, atom in fresh.items() if name not in known])
        for name in fresh.keys() & known.keys():
            changes = {"text": fresh[name].text, "time": fresh[name].time}
            writing.update(name, None, changes)
    types = {
        number: (str(said[name]["type"]), float(said[name]["decay_factor"]))
        for name, (number, _) in store.known([*fresh]).items()
    }
    store.life.set_found_types(types, ORACLE)
    targets = {target for _, node in found for target, _ in node.get("relations", ())}
    there = store.known([*targets, *(atom.id for atom, _ in found)])
    missing = sorted(targets - there.keys())
    if missing:
        _log.warning(
            "The oracle related memories to %d that are not stored, such as %.80r; these "
            "relations are dropped",
            len(missing),
            missing[0],
        )
    related = stated_edges(found, there)
    relations = edge_writes.connect_all(store, related).new if related else 0
    return Classified(contents=len(fresh), relations=relations)
