"""Sharded parts: facts, edges and upkeep, each done by the shard of the memories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Literal, NoReturn, TypeVar

from graphmem_torch.atoms import EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.memory.consolidation import Consolidation
from graphmem_torch.memory.edge_writes import JudgedEdges, checked_pairs, given_edges
from graphmem_torch.memory.facts import Facts
from graphmem_torch.memory.graph_edits import GraphEdits
from graphmem_torch.memory.lookup import listed_ids, one_id
from graphmem_torch.memory.shards import Shards
from graphmem_torch.memory.state import State
from graphmem_torch.memory.upkeep import Upkeep
from graphmem_torch.memory.writing import Writing
from graphmem_torch.results import (
    Added,
    Change,
    Conflict,
    Consolidated,
    History,
    Particle,
    Receipt,
    Reconciled,
    Validity,
    Version,
)
from graphmem_torch.store.receipts import read_receipt
from graphmem_torch.text.times import TimeLike

__all__ = ["ShardedFacts", "ShardedGraph", "ShardedUpkeep"]

T = TypeVar("T")


class _Routed:
    """Shards by the ids of the atoms that they hold."""

    def __init__(self, shards: Shards) -> None:
        """Keep the shards; loads nothing."""
        self._shards, self._states = shards, shards.states

    def _held(self, ids: str | Iterable[str], argument: str = "ids") -> list[list[str]]:
        """Return the ids that each shard holds; raises `InputError` if none does."""
        return self._shards.holding(listed_ids(self._states[0].store, ids), argument)

    def _by_id(
        self, ids: str | Sequence[str], ask: Callable[[int, list[str]], Mapping[str, T]]
    ) -> dict[str, T]:
        """Return values by id in the order given, from a function (place of a shard, its ids)."""
        found: dict[str, T] = {}
        for place, own in enumerate(self._held(ids)):
            if own:
                found |= ask(place, own)
        given = [ids] if isinstance(ids, str) else ids
        forms = listed_ids(self._states[0].store, ids)
        return {name: found[form] for name, form in zip(given, forms, strict=True)}

    def _place(self, id: str, argument: str = "id") -> int:
        """Return the place of the shard that holds an atom."""
        held = self._held([one_id(id, argument)], argument)
        return next(place for place, own in enumerate(held) if own)

    def _same(self, one: str, other: str, names: tuple[str, str]) -> int:
        """Return the place of the shard that holds two atoms.

        Raises:
            InputError: They are in two shards.
        """
        place, second = self._place(one, names[0]), self._place(other, names[1])
        if place != second:
            raise InputError(
                f"{names[1]}: expected a memory of shard {place}, which holds {one!r:.80}, got "
                f"{other!r:.80} of shard {second}; memories of one session are in one shard"
            )
        return place


class ShardedFacts(_Routed):
    """Validity, versions and contradictions of the memories of shards; see `Facts`.

    Contradictions are looked for inside each shard.
    """

    def __init__(self, shards: Shards) -> None:
        """Load nothing yet."""
        super().__init__(shards)
        self._parts = [Facts(Writing(state)) for state in shards.states]

    def supersede(self, old: str, new: str, **given: Any) -> Validity:
        """State that an atom replaced another of its shard; see `Facts.supersede`."""
        return self._parts[self._same(old, new, ("old", "new"))].supersede(old, new, **given)

    def set_validity(self, ids: str | Sequence[str], **given: Any) -> dict[str, Validity]:
        """State the validity of atoms; see `Facts.set_validity`. All ids are checked first."""
        return self._by_id(ids, lambda place, own: self._parts[place].set_validity(own, **given))

    def validity(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, Validity]:
        """Return the validity of atoms; see `Facts.validity`."""
        return self._by_id(ids, lambda place, own: self._parts[place].validity(own, as_of=as_of))

    def versions(self, id: str) -> list[Version]:
        """Return the versions of an atom, from first to current; see `Facts.versions`."""
        return self._parts[self._place(id)].versions(id)

    def history(self, id: str) -> History:
        """Return the versions, validity and chain of an atom; see `Facts.history`."""
        return self._parts[self._place(id)].history(id)

    def changes(self, since: TimeLike) -> list[Change]:
        """Return the changes of all shards since a moment; see `Facts.changes`."""
        found = [change for part in self._parts for change in part.changes(since)]
        return sorted(found, key=lambda change: change.when)

    def reconcile(self, **given: Any) -> Reconciled:
        """Find contradictions and repetitions inside each shard; see `Facts.reconcile`."""
        return reduce(add, (part.reconcile(**given) for part in self._parts), Reconciled())

    def conflicts(self) -> list[Conflict]:
        """Return the contradictions of all shards; see `Facts.conflicts`."""
        return [each for part in self._parts for each in part.conflicts()]

    def duplicates(self) -> list[tuple[str, ...]]:
        """Return the groups of all shards that say the same; see `Facts.duplicates`."""
        return [each for part in self._parts for each in part.duplicates()]

    def split_name(self, name: str) -> bool:
        """Separate a name from other names in the shards that have it; see `Facts.split_name`."""
        return self._each_named(lambda part: part.split_name(name))

    def join_name(self, name: str) -> bool:
        """Undo `split_name` in the shards that have the name; see `Facts.join_name`."""
        return self._each_named(lambda part: part.join_name(name))

    def _each_named(self, change: Callable[[Facts], bool]) -> bool:
        """Change a name where it is known; raises `InputError` if no shard knows it."""
        changed, errors = False, list[InputError]()
        for part in self._parts:
            try:
                changed |= change(part)
            except InputError as error:
                errors.append(error)
        if len(errors) == len(self._parts):
            raise errors[0]
        return changed


class ShardedGraph(_Routed):
    """Edges between the memories of one shard; see `GraphEdits`."""

    def __init__(self, shards: Shards) -> None:
        """Load nothing yet."""
        super().__init__(shards)
        self._parts = [GraphEdits(state) for state in shards.states]

    def connect(
        self,
        source: str | Iterable[Any],
        target: str | None = None,
        type: str | EdgeType = EdgeType.RELATED_TO,
        weight: float | None = None,
    ) -> Added:
        """Connect stored atoms, each two of one shard; see `GraphEdits.connect`.

        All edges are checked first. Each shard commits its own.
        """
        edges = given_edges(source, target, type, weight)
        routed: dict[int, list[Any]] = {}
        for name, link in edges:
            place = self._same(name, link.target, ("source", "target"))
            routed.setdefault(place, []).append((name, link))
        done = (self._parts[place].connect(own) for place, own in sorted(routed.items()))
        return reduce(add, done, Added(0, 0))

    def disconnect(self, source: str, target: str, type: str | EdgeType | None = None) -> int:
        """Delete the edges from one atom to another; see `GraphEdits.disconnect`."""
        place = self._same(source, target, ("source", "target"))
        return self._parts[place].disconnect(source, target, type)

    def judge(self, oracle: Any = None, pairs: Any = None, **given: Any) -> JudgedEdges:
        """Add the edges that an oracle judges, inside each shard; see `GraphEdits.judge`."""
        routed: list[Any] = [None] * len(self._parts)
        if pairs is not None:
            routed = [[] for _ in self._parts]
            for one, other in checked_pairs(pairs):
                routed[self._same(one, other, ("pairs", "pairs"))].append((one, other))
        asked = zip(self._parts, routed, strict=True)
        done = [part.judge(oracle, own, **given) for part, own in asked if own != []]
        return reduce(add, done, JudgedEdges())

    def structure(self, **given: Any) -> NoReturn:
        """Refused: each shard has a graph."""
        raise self._shards.refused("graph.structure")

    def missing_links(self, *given: Any, **others: Any) -> NoReturn:
        """Refused: each shard has a graph."""
        raise self._shards.refused("graph.missing_links")


class ShardedUpkeep(_Routed):
    """Refinement and archive of a memory of shards, each shard in turn; see `Upkeep`."""

    def __init__(self, shards: Shards, kind: Callable[[Shards], Any]) -> None:
        """Load nothing yet.

        Args:
            shards: The shards.
            kind: Class of the archive, called with its shards.
        """
        super().__init__(shards)
        self._kind = kind
        writings = [Writing(state) for state in shards.states]
        # Weights are those of all shards, so none learns alone.
        self._parts: list[Upkeep[State]] = [
            Upkeep(each, Consolidation(each, None), lambda state: state) for each in writings
        ]

    def consolidate(self, *, oracle: Any = None) -> Consolidated:
        """Refine each shard in turn; see `Upkeep.consolidate`. Weights are not learned."""
        done = (part.consolidate(oracle=oracle) for part in self._parts)
        return reduce(add, done, Consolidated())

    def in_background(self, *, every: float = 60.0) -> NoReturn:
        """Refused: each shard is refined by itself."""
        raise self._shards.refused("upkeep.in_background")

    def archive(self, ids: str | Iterable[str]) -> int:
        """Move atoms to the archives of their shards; see `Upkeep.archive`."""
        pairs = zip(self._parts, self._held(ids), strict=True)
        return sum(part.archive(own) for part, own in pairs if own)

    def restore(self, ids: str | Iterable[str]) -> int:
        """Move archived atoms back; see `Upkeep.restore`. All ids are checked first."""
        listed = listed_ids(self._states[0].store, ids)
        places = [
            next((at for at, state in enumerate(self._states) if state.has_archived(name)), None)
            for name in listed
        ]
        if None in places:  # raises the error of one store
            return self._parts[0].restore([listed[places.index(None)]])
        owned = [
            [n for n, at in zip(listed, places, strict=True) if at == i]
            for i in range(len(self._parts))
        ]
        pairs = zip(self._parts, owned, strict=True)
        return sum(part.restore(own) for part, own in pairs if own)

    def archived(self) -> Any:
        """Return the archives of all shards as a memory; see `Upkeep.archived`."""
        archives = self._shards.archives()
        return None if archives is None else self._kind(archives)

    def compact(self) -> int:
        """Shrink the files of all shards, and return the number of bytes; see `Upkeep.compact`."""
        return sum(part.compact() for part in self._parts)

    def check_receipt(self, receipt: Receipt | str | os.PathLike[str]) -> list[str]:
        """Verify a receipt of one of the shards; see `Upkeep.check_receipt`."""
        said = read_receipt(receipt)
        return min((part.check_receipt(said) for part in self._parts), key=len)

    def types(self, ids: str | Sequence[str]) -> dict[str, str | None]:
        """Return the memory type of each atom; see `Upkeep.types`."""
        return self._by_id(ids, lambda place, own: self._parts[place].types(own))

    def strength(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, float]:
        """Return the strength of each atom in its shard; see `Upkeep.strength`."""
        return self._by_id(ids, lambda place, own: self._parts[place].strength(own, as_of=as_of))

    def importance(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, float]:
        """Return the importance of each atom in its shard; see `Upkeep.importance`."""
        return self._by_id(ids, lambda place, own: self._parts[place].importance(own, as_of=as_of))

    def classify(
        self, oracle: Any = None, ids: str | Sequence[str] | None = None, **given: Any
    ) -> Any:
        """Find the memory types of atoms that state none; see `Upkeep.classify`."""
        return self._summed("classify", oracle, ids, given)

    def particles(self, ids: str | Sequence[str]) -> list[Particle]:
        """Return atoms as insight particles; see `Upkeep.particles`."""
        listed = [ids] if isinstance(ids, str) else [*ids]

        def ask(place: int, own: list[str]) -> dict[str, Particle]:
            return dict(zip(own, self._parts[place].particles(own), strict=True))

        found = self._by_id(listed, ask)
        return [found[name] for name in dict.fromkeys(listed)]

    def understand(self, oracle: Any, ids: str | Sequence[str] | None = None, **given: Any) -> Any:
        """Ask an oracle what atoms are and mention; see `Upkeep.understand`."""
        return self._summed("understand", oracle, ids, given)

    def _summed(
        self, name: Literal["classify", "understand"], oracle: Any, ids: Any, given: Any
    ) -> Any:
        """Return the sum of what each shard does with its ids, or with all of its atoms."""
        held: Any = [None] * len(self._parts) if ids is None else self._held(ids)
        pairs = zip(self._parts, held, strict=True)
        return reduce(
            add, [getattr(part, name)(oracle, own, **given) for part, own in pairs if own != []]
        )
