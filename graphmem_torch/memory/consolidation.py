"""Consolidation: repeats the steps that refine a memory until none finds anything."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from graphmem_torch.atoms import AGGREGATE
from graphmem_torch.errors import InputError
from graphmem_torch.memory.aggregates import (
    LEVELS,
    Member,
    aggregate_atoms,
    built_of_depth,
    mentions_of,
    sources_of_depth,
    unchanged,
    written,
)
from graphmem_torch.memory.archiving import archive_nodes
from graphmem_torch.memory.clusters import Clusters, clusters
from graphmem_torch.memory.facts import reconcile_before
from graphmem_torch.memory.index_view import IndexView
from graphmem_torch.memory.intake import batched
from graphmem_torch.memory.learning import Learning, correct_if_due
from graphmem_torch.memory.lookup import with_derived
from graphmem_torch.memory.state import State
from graphmem_torch.memory.writing import Writing
from graphmem_torch.oracle import Judge
from graphmem_torch.results import Consolidated, Reconciled

__all__ = ["Consolidation"]

_log = logging.getLogger(__name__)

_ASIDE = 256  # memories archived per turn
_TOGETHER = 32  # aggregates encoded and stored per turn
_PASSES = 16  # maximum passes; more than 3 are rare
_AGGREGATED = "aggregate.done"  # key of the last state without anything to aggregate


def _always() -> bool:
    return True


@dataclass(frozen=True)
class _Extent:
    """Scope of a consolidation, with the steps that it must not retry or undo.

    Attributes:
        stop: First node added after it began; the next call takes these.
        stuck: Nodes that cannot be archived.
        made: Ids of the aggregates that it made.
    """

    stop: int
    stuck: set[int] = field(default_factory=set)
    made: set[str] = field(default_factory=set)


class Consolidation:
    """Refines one memory; run one at a time, over all threads and processes."""

    def __init__(self, writing: Writing, learning: Learning | None) -> None:
        """Keep the parts of the memory; loads nothing.

        Args:
            writing: Writing to the memory.
            learning: Learning of the memory; None learns nothing.
        """
        self._writing, self._learning = writing, learning
        self._state, self._store = writing.state, writing.state.store

    @property
    def news(self) -> object:
        """Return a value that changes with the input of `run`; None if the input includes time."""
        refine, store = self._state.config.refine, self._store
        if refine.prune_below and refine.half_life_days:
            return None
        given = store.learned.given()
        expired = len(store.expiry.expired())
        return store.state, store.uses.total(), store.validity.version, given, expired

    def run(
        self,
        summarise: Callable[..., Any] | None = None,
        judge: Judge | None = None,
        going: Callable[[], bool] = _always,
    ) -> Consolidated:
        """Take all steps until none finds anything; see `Upkeep.consolidate`.

        Steps feed each other: repetition counts as use, use prevents archiving, and archiving
        shrinks aggregates. Linking and uses come first in a pass, so their findings need no second
        pass.

        Args:
            summarise: Function that writes aggregates; None uses sentences of their members.
            judge: Judge of pairs; None is the local rules.
            going: Function that returns whether to go on.
        """
        if self._state.config.regime.detector != "none":
            with self._store.turn():
                self._state.regimes.catch_up()
        extent, done = _Extent(self._store.next_node), Consolidated()
        reconciles = self._state.config.reconcile.automatic
        for _ in range(_PASSES):
            part = self._pass(summarise, judge, going, reconciles, extent)
            done += part
            reconciles &= not part.reconciled.failed  # the next call asks again
            found = replace(part, linked=0, reinforced=0, learned=0)
            if not going() or found == Consolidated():
                return done
        _log.warning("consolidate: %d passes, and the last one found more; call it again", _PASSES)
        return done

    def _pass(
        self,
        summarise: Callable[..., Any] | None,
        judge: Judge | None,
        going: Callable[[], bool],
        reconciles: bool,
        extent: _Extent,
    ) -> Consolidated:
        """Take every step once."""
        state = self._state
        expired = self._writing.sweep()
        if (archive := state.archive()) is not None:
            expired += Writing(archive).sweep()
        linked = state.writer().consolidate(state.clock())
        now = state.decay.now()
        reinforced = state.importance.reinforce(state.current(), now)
        made, gone, reconciled = 0, 0, Reconciled()
        if reconciles and going():
            settings = state.config.reconcile
            reconciled = reconcile_before(self._writing, settings, judge, stop=extent.stop)
        snapshot = state.current()
        ended = state.ended(snapshot, now)
        least = state.importance.least(snapshot, now, ended, stop=extent.stop)
        left = [node for node in least if node not in extent.stuck]
        aside = self._archive(left, going, extent.stuck)
        if state.config.aggregate.build and going():
            made, gone = self._aggregate(summarise, going, extent)
        learning = self._learning
        learned = int(learning is not None and going() and correct_if_due(learning, state))
        return Consolidated(linked, reinforced, reconciled, made, gone, aside, learned, expired)

    def _aggregate(
        self, summarise: Callable[..., Any] | None, going: Callable[[], bool], extent: _Extent
    ) -> tuple[int, int]:
        """Make the aggregates of the memories, and delete outdated ones.

        Skips a memory unchanged since a call that found nothing. Keeps aggregates made by other
        calls meanwhile, or two calls would undo each other.

        Returns:
            Numbers of aggregates made and deleted.
        """
        store, config = self._store, self._state.config.aggregate
        made, gone, begun = 0, 0, store.state
        done = f"{begun} {config}"
        if store.meta_get(_AGGREGATED) == done:
            return 0, 0
        for depth in range(1, LEVELS + 1):
            work = partial(_found_in, self._state, depth, extent.stop)
            found, sources = self._state.with_retry(work)
            built = built_of_depth(store, depth, and_more=depth == LEVELS)
            wanted, fresh = aggregate_atoms(found, sources, built, depth)
            with self._state.turn():  # also deletes aggregates made of them
                old = store.known(sorted(built.difference(wanted)))
                own = [n for name, (n, _) in old.items() if n < extent.stop or name in extent.made]
                nodes = with_derived(store, own)
                gone += self._writing.delete([atom.id for atom in store.atoms(nodes)])
            atoms = {source.atom.id: source.atom for source in sources.values()}
            if summarise is not None and fresh:
                fresh = written(fresh, atoms, summarise)
            digests = {name: atom.digest for name, atom in atoms.items()}
            for part in batched(iter(fresh), _TOGETHER):
                if not going():
                    return made, gone
                with store.turn():
                    kept = unchanged(store, part, digests)
                    extent.made.update(atom.id for atom in kept)
                    made += self._writing.add(kept).new
        later = store.columns(extent.stop)
        whole = bool((later.is_concept | later.kind.equals(AGGREGATE)).all())
        if whole and store.state == begun:
            store.meta_set(_AGGREGATED, done)
        return made, gone

    def _archive(self, nodes: Sequence[int], going: Callable[[], bool], stuck: set[int]) -> int:
        """Archive atoms, a batch in a turn so that others wait little, and return their number."""
        done = 0
        for start in range(0, len(nodes), _ASIDE):
            if not going():
                break
            part = nodes[start : start + _ASIDE]
            try:
                with self._store.turn():
                    done += archive_nodes(self._writing, self._store.present(part))
            except InputError as error:
                if len(part) == 1:
                    _log.warning("not archived: %s", error)
                    stuck.update(part)
                else:
                    done += sum(self._archive([node], going, stuck) for node in part)
        return done


def _found_in(
    state: State, depth: int, stop: int, view: IndexView
) -> tuple[Clusters, dict[int, Member]]:
    """Return the clusters of memories of a depth before a node, and their members."""
    sources = sources_of_depth(state.store, view.snapshot, depth, stop=stop)
    beside = torch.tensor(list(sources), dtype=torch.int64)
    telling = [bool(source.said) for source in sources.values()]
    rows = beside[torch.tensor(telling, dtype=torch.bool)]
    mentions = mentions_of(state.store, view.snapshot, rows)
    return clusters(view.snapshot, rows, beside, mentions, state.config.aggregate), sources
