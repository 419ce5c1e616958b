"""Shards: the states of a memory's shards, and what they take from each other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.config.settings import RankConfig
from graphmem_torch.errors import ConfigError, InputError, MissingNodeError, StoreError
from graphmem_torch.index.lockstep import gather, run_together, stacked
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory.archive import apart
from graphmem_torch.memory.context_atoms import JoinedContextAtoms
from graphmem_torch.memory.contexts import ContextCompiler
from graphmem_torch.memory.index_builder import Snapshot, reweighted
from graphmem_torch.memory.index_view import IndexView
from graphmem_torch.memory.lookup import listed_ids
from graphmem_torch.memory.namespace_folders import checked_name
from graphmem_torch.memory.shard_statistics import (
    ShardStatistics,
    ShardTerms,
    TermHashes,
    as_part,
    stamp_of,
    term_hash,
)
from graphmem_torch.memory.state import State
from graphmem_torch.rank.abstention import ABOVE
from graphmem_torch.rank.peers import Peers
from graphmem_torch.rank.registry import signal_names
from graphmem_torch.results import Result
from graphmem_torch.store.shard_folder import STATISTICS_NAME, ShardFolder
from graphmem_torch.text.naming import name_parts

__all__ = ["Group", "LocalGroup", "Shards", "ids_in"]

T = TypeVar("T")
Joined = TypeVar("Joined")

_log = logging.getLogger(__name__)


class Group(Protocol):
    """The processes that hold the shards of a memory.

    Attributes:
        shards: Number of shards S.
        numbers: Numbers of the shards that this process holds, ascending.
    """

    shards: int
    numbers: Sequence[int]

    def exchange(self, asked: Sequence[int], what: str, own: Sequence[Tensor]) -> Tensor:
        """Return the tensors of the asked shards, in order, from those of this process."""

    def collect(self, own: Sequence[T]) -> list[T]:
        """Return a value of each of S shards, from those of the shards of this process."""

    def portable(self, result: Result) -> Result:
        """Return a result in a form that other processes can take."""

    def expect_shares(self, filled: Sequence[int]) -> None:
        """Raise `InputError` if a process has none of the shards with atoms."""


class LocalGroup:
    """One process that holds all shards."""

    def __init__(self, shards: int) -> None:
        """Keep the number of shards."""
        self.shards = shards
        self.numbers: Sequence[int] = range(shards)

    def exchange(self, asked: Sequence[int], what: str, own: Sequence[Tensor]) -> Tensor:
        """Return the tensors of the asked shards."""
        return stacked(what, own)

    def collect(self, own: Sequence[T]) -> list[T]:
        """Return the values of all shards."""
        return [*own]

    def portable(self, result: Result) -> Result:
        """Return the result as it is."""
        return result

    def expect_shares(self, filled: Sequence[int]) -> None:
        """Do nothing: the process has all shards."""


class Shards:
    """The shards of a memory, or of one of its namespaces; safe between threads.

    Attributes:
        states: State of each shard of this process, in the order of `group.numbers`.
        group: The processes.
        folder: Folder of the shards; None for a namespace.
        contexts: Compiler of contexts from all shards.
        context_atoms: Atoms of all shards for contexts.
    """

    def __init__(self, states: Sequence[State], group: Group, folder: ShardFolder | None) -> None:
        """Check the settings; reads no store.

        Raises:
            ConfigError: A setting that shards cannot follow; the message names it.
        """
        self.states, self.group, self.folder = [*states], group, folder
        _check_settings(states[0].config)
        self._hashes = [TermHashes() for _ in states]
        self._whole: tuple[str, ShardStatistics, list[str]] | None = None
        self._there: list[int] = []  # numbers of the shards with atoms
        self._parts: tuple[list[Snapshot], list[IndexView]] | None = None
        self._within: dict[str, Shards] = {}
        self._lock = threading.RLock()
        self._reset_contexts()

    def _reset_contexts(self) -> None:
        self.contexts, self.context_atoms = ContextCompiler(), JoinedContextAtoms(len(self.states))

    @property
    def first(self) -> State:
        """State of the first shard, for what all share."""
        return self.states[0]

    def ask(
        self, work: Callable[[State, IndexView], T], as_of: float | None = None
    ) -> list[tuple[State, T]]:
        """Run a function of each shard with atoms, together; repeats it if atoms were deleted.

        Args:
            work: Function of a shard and its index, which is weighed by all shards.
            as_of: Moment of the versions, seconds since the epoch UTC; None is the present.

        Returns:
            The results of the shards of this process.
        """
        return self.ask_and_join(work, list, as_of)

    def ask_and_join(
        self,
        work: Callable[[State, IndexView], T],
        join: Callable[[list[tuple[State, T]]], Joined],
        as_of: float | None = None,
    ) -> Joined:
        """Return what a function makes of the results of `ask`; repeats both if atoms were deleted.

        Args:
            work: Function of a shard and its index, which is weighed by all shards.
            join: Function of the results of the shards, which may read their stores.
            as_of: Moment of the versions, seconds since the epoch UTC; None is the present.
        """
        while True:
            given = self._given(as_of)
            try:
                with self._lock:
                    asked, there = self._views(given), self._there
                works = [_bound(work, *each) for each in asked]
                found = run_together(works, partial(self.group.exchange, there))
                told = [(state, each) for (state, _), each in zip(asked, found, strict=True)]
                return join(told)
            except MissingNodeError:
                pairs = zip(self.states, given, strict=True)
                if all(view.snapshot.state == own.store.state for own, view in pairs):
                    raise

    def count(self) -> None:
        """Count the terms and names of all shards, as a question does."""
        self.ask(lambda *_: None)

    def _given(self, as_of: float | None) -> list[IndexView]:
        """Return the index of each shard of this process, weighed by that shard alone."""
        with self._lock:
            return [each.view() if as_of is None else each.view_at(as_of) for each in self.states]

    def _views(self, given: Sequence[IndexView]) -> list[tuple[State, IndexView]]:
        """Return the shards of this process that have atoms, with their indexes."""
        if not any(self.group.collect([view.snapshot.index.num_atoms for view in given])):
            return []
        snapshots = [view.snapshot for view in given]
        if self._parts is None or any(
            one is not other for one, other in zip(self._parts[0], snapshots, strict=True)
        ):
            self._parts = snapshots, self._weighed(given)
        views = zip(self.states, self._parts[1], strict=True)
        return [(state, view) for state, view in views if view.snapshot.index.num_atoms]

    def _weighed(self, views: Sequence[IndexView]) -> list[IndexView]:
        """Return the indexes of the shards of this process, weighed by the counts of all."""
        snapshots = [view.snapshot for view in views]
        shards = [
            self._terms(place, view) if view.snapshot.index.num_atoms else None
            for place, view in enumerate(views)
        ]
        stamp, whole, speakers = self._counted(snapshots, shards)
        indexes = [each.index for each in snapshots]
        told = self.group.collect(
            [
                (
                    index.num_atoms > 0,
                    index.plan.starts,
                    index.spreads,
                    index.plan.spreads and len(each.concept) > 0,
                )
                for index, each in zip(indexes, snapshots, strict=True)
            ]
        )
        there = self._there = [number for number, (filled, *_) in enumerate(told) if filled]
        self.group.expect_shares(there)
        leads = len(whole.title) > 0
        starts = leads or any(filled and starts for filled, starts, *_ in told)
        warm = any(filled and spreads for filled, _, spreads, _ in told)
        spread = self.first.config.spread
        linear = spread.firing == "linear" and not spread.inhibition
        lends = linear and all(spreads or not filled for filled, *_, spreads in told)
        found = []
        for view, shard, number in zip(views, shards, self.group.numbers, strict=True):
            if shard is None:
                found.append(view)
                continue
            index = shard.snapshot.index
            rank = _as_of_whole(index, int(whole.totals[0]), warm=warm)
            if rank != index.config.rank:
                index = reweighted(index, replace(index.config, rank=rank))
                shard = replace(shard, snapshot=replace(shard.snapshot, index=index))
            peers = None
            if len(there) > 1:
                peers = Peers(there.index(number), starts, leads, lends, gather)
            found.append(replace(view, snapshot=as_part(shard, whole, speakers, peers)))
        self._whole = stamp, whole, speakers
        return found

    def _terms(self, place: int, view: IndexView) -> ShardTerms:
        """Return a shard of this process with the hashes of its terms and names."""
        state, snapshot = self.states[place], view.snapshot
        hashes = self._hashes[place].of(snapshot.vocabulary)
        with state.lock:
            inputs = state.builder.hop_inputs(snapshot)
        names = [atom.text for atom in view.store.atoms(snapshot.concept.tolist())]
        # Shards spell one name differently: "Hong Kong", "the Hong Kong".
        hashed = [term_hash(" ".join(name_parts(name))) for name in names]
        concepts = torch.tensor(hashed, dtype=torch.int64)
        return ShardTerms(snapshot, hashes, inputs, concepts)

    def _counted(
        self, snapshots: Sequence[Snapshot], shards: Sequence[ShardTerms | None]
    ) -> tuple[str, ShardStatistics, list[str]]:
        """Return the stamp of the states of all shards, their counts, and their speakers."""
        config = self.first.config
        gate = not ABOVE.isdisjoint(signal_names(config.gate.weights))
        told = self.group.collect([(each.state, each.speakers) for each in snapshots])
        stamp = stamp_of([state for state, _ in told], ["nearest"] if gate else [])
        if self._whole is not None and self._whole[0] == stamp:
            return self._whole
        speakers = list(dict.fromkeys(name for _, names in told for name in names))
        kept = None
        if self.folder is not None:
            kept = ShardStatistics.load(self.folder.path / STATISTICS_NAME, stamp)
        # All processes take the file, or none.
        if all(self.group.collect([kept is not None for _ in snapshots])) and kept is not None:
            return stamp, kept, speakers
        embedder = self.first.embedder if gate else None
        parts = [None if each is None else ShardStatistics.of(each, embedder) for each in shards]
        every = [each for each in self.group.collect(parts) if each is not None]
        whole = ShardStatistics.joined(every)
        names, size = whole.titles, len(whole.title)
        counts = [
            torch.zeros(size, dtype=torch.int64)
            if each is None
            else torch.bincount(each.mentions(names)[1], minlength=size)
            for each in shards
        ]
        mentioned = torch.stack(self.group.collect(counts)).sum(0)
        return stamp, replace(whole, mentioned=mentioned), speakers

    def holding(
        self, ids: Sequence[str], argument: str = "ids", *, archived: bool = False
    ) -> list[list[str]]:
        """Return which of some ids each shard of this process holds, in the order given.

        Args:
            ids: Ids in any form of Unicode.
            argument: Name of the argument, for errors.
            archived: Whether the archive of a shard counts as the shard.

        Raises:
            InputError: An id that no shard holds.
        """
        listed = listed_ids(self.first.store, ids)
        if not all(isinstance(name, str) for name in listed):
            self.first.resolve_ids(listed, argument)  # raises
        wanted = list(dict.fromkeys(listed))
        archives = [state.archive() if archived else None for state in self.states]
        held = []
        for each in zip(self.states, archives, strict=True):
            own = [ids_in(place, wanted) for place in each if place is not None]
            held.append([name for name in wanted if any(name in there for there in own)])
        lost = {*wanted}.difference(*held)
        if lost:  # raises the error of one store
            missing = [name for name in wanted if name in lost]
            if any(archives):
                apart(missing, self.first.store, None)
            owners = (state for state in self.states if state.has_archived(missing[0]))
            next(owners, self.first).resolve_ids(missing, argument, hidden=())
        return held

    def within(self, name: str, *, create: bool = False) -> Shards:
        """Return the shards of a namespace; those that lack it get an empty one.

        Args:
            name: Name of the namespace, in any form of Unicode.
            create: Whether to make it if no shard has it.

        Raises:
            InputError: No such namespace, or no name.
        """
        own = self.first.expect_root().spaces.stored(checked_name(name))
        there = create or any(state.spaces.has(own) for state in self.states)
        if not there:
            self.first.space(own)  # raises
        make = not self.first.store.readonly
        states = [state.space(own, create=make) for state in self.states]
        with self._lock:
            known = self._within.get(own)
            if known is None or any(
                one is not other for one, other in zip(known.states, states, strict=True)
            ):
                known = self._within[own] = Shards(states, self.group, None)
            return known

    def archives(self) -> Shards | None:
        """Return the archives of all shards; None if nothing was ever archived.

        Shards without an archive get an empty one, unless they are read-only.
        """
        there = [state.archive() for state in self.states]
        if not any(there):
            return None
        if not self.first.store.readonly:
            there = [state.archive(create=True) for state in self.states]
        states = [state for state in there if state is not None]
        return Shards(states, LocalGroup(len(states)), None)

    def expect_here(self, name: str) -> None:
        """Check that this process holds all shards.

        Args:
            name: Name of the method, for the message.

        Raises:
            InputError: Other processes hold some.
        """
        if len(self.states) < self.group.shards:
            raise InputError(
                f"{name}: expected all {self.group.shards} shards in one process, got "
                f"{len(self.states)} here; open the folder with `Memory.open`"
            )

    def refused(self, name: str) -> InputError:
        """Return the error for what only a memory of one store does."""
        shell = ""
        if self.folder is not None:
            shell = f"name one of them, as `--store {self.folder.stores[0]}`, or in Python "
        return InputError(
            f"{name}: expected a memory of one store, got one of {self.group.shards} shards; "
            f"{shell}use `memory.shards[number].{name}`"
        )

    def save(self) -> None:
        """Write the statistics of the present states, if they are known."""
        if self._whole is None or self.folder is None or self.first.store.readonly:
            return
        stamp, whole, _ = self._whole
        path = self.folder.path / STATISTICS_NAME
        if 0 in self.group.numbers and ShardStatistics.load(path, stamp) is None:
            try:
                whole.save(path, stamp)
            except StoreError as error:  # it is derived from the shards
                _log.warning("the next opening counts the terms anew: %s", error)

    def drop_statistics(self) -> None:
        """Forget the counts, and delete their file, before memories are erased."""
        self._whole = self._parts = None
        self._reset_contexts()
        self._hashes = [TermHashes() for _ in self.states]
        if self.folder is not None:
            self.folder.drop_statistics()


def ids_in(state: State, ids: Sequence[str]) -> set[str]:
    """Return which of some ids a shard holds."""
    forms = state.store.forms.ids(list(ids))
    known = state.store.known(list(dict.fromkeys(forms)))
    return {name for name, form in zip(ids, forms, strict=True) if form in known}


def _bound(work: Callable[[State, IndexView], T], state: State, view: IndexView) -> Callable[[], T]:
    return lambda: work(state, view)


def _as_of_whole(index: MemoryIndex, atoms: int, *, warm: bool) -> RankConfig:
    """Return the settings of the ranking of a shard in a memory of `atoms` atoms.

    What one store decides by its size is decided by that of all shards.

    Args:
        index: Index of the shard.
        atoms: Number of atoms of all shards.
        warm: Whether any shard spreads. One too small for it would have weights of its own.
    """
    rank = index.config.rank
    if warm and not index.spreads:
        rank = replace(rank, cold_weights={})
    return replace(rank, exhaustive_up_to=0) if atoms > rank.exhaustive_up_to else rank


def _check_settings(config: Config) -> None:
    """Raise `ConfigError` for settings that read what one shard does not know."""
    unfit = {
        "segment.retrieve": (config.segment.retrieve, "false", "true"),
        "modes.use": (config.modes.use == "candidates", "none or kept", config.modes.use),
        "rank.unique": (config.rank.unique, "false", "true"),
        "plan.use": (config.plan.use, "false", "true"),
    }
    for name, (met, fit, got) in unfit.items():
        if met:
            raise ConfigError(
                f"{name}: expected {fit} for a memory of shards, got {got} (preset "
                f"{config.name!r}); use another preset, such as `default`, or one store"
            )
