"""Decay: the type, age and last use of every memory, and the classification of types.

Arrays are indexed by node and only grow, so a use or a pin rebuilds nothing.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import MEMORY_TYPES, Atom, EdgeType, Link
from graphmem_torch.config import DecayConfig
from graphmem_torch.errors import StoreError
from graphmem_torch.ops.fading import DAY, fading, half_life_of
from graphmem_torch.oracle import Classifier, ask_classifier
from graphmem_torch.oracle.prompts import clean
from graphmem_torch.store import Columns, MemoryStore
from graphmem_torch.text.memory_type import RULES, memory_types

__all__ = [
    "ORACLE",
    "Classified",
    "DecayState",
    "classify_nodes",
    "extracted_atom",
    "open_nodes",
    "stated_edges",
]

_log = logging.getLogger(__name__)

ORACLE = "oracle"
"""Source name of types found by an oracle."""

_NONE = -1
_CONTENT = "#content"  # suffix of the ids of extracted atoms
_ASKED = 64  # atoms of a call and a transaction, lost if the oracle fails
_CODE = {name: code for code, name in enumerate(MEMORY_TYPES)}


class DecayState:
    """Types, ages and uses of nodes (`docs/mathematics.md` 6); safe between threads."""

    def __init__(
        self,
        store: MemoryStore,
        config: DecayConfig,
        *,
        clock: Callable[[], float] = time.time,
        rules: Callable[[Sequence[Atom]], Sequence[str]] = memory_types,
        rules_name: str = RULES,
        tile: int = 4096,
    ) -> None:
        """Start empty; reads on demand.

        Args:
            store: Store of the memories.
            config: Half-lives, and whether rules find missing types.
            clock: Current time, seconds since the epoch UTC.
            rules: Classifier of atoms.
            rules_name: Name of the rules in the store; types from other rules are found again.
            tile: Atoms that are classified before a write.
        """
        self._store, self._config, self._clock = store, config, clock
        self._rules, self._rules_name, self._tile = rules, rules_name, tile
        self._lock = threading.RLock()
        self._forget()

    def types(self, nodes: Tensor) -> list[str | None]:  # [n] int64
        """Return the memory type of each node; None if none was stated or found."""
        with self._lock:
            self._refresh()
            codes = self._kind[nodes].tolist()
        return [None if code < 0 else MEMORY_TYPES[code] for code in codes]

    def retention(self, nodes: Tensor, when: float | None = None) -> Tensor:  # [n] -> [n] float32
        """Return f(t, h) of `ops.fading`, with t the time since the last use or the creation.

        Args:
            nodes: [n] int64 node numbers.
            when: Current time, seconds since the epoch UTC; later uses are ignored. By default that
                of the settings.
        """
        with self._lock:
            self._refresh()
            now = self.now() if when is None else when
            used, born = self._store.uses.last(nodes, now), self._born[nodes]
            half_life = torch.where(self._is_pinned()[nodes], 0.0, self._half_life[nodes])
        # Without a known use or time there is no age, so retention is 1.
        since = torch.where(born > used, born, used)
        since = torch.where(since > -torch.inf, since, born.nan_to_num(nan=torch.inf))
        return fading((now - since) / DAY, half_life, dtype=torch.float32)

    def born(self, nodes: Tensor) -> Tensor:  # [n] int64 -> [n] float64
        """Return the times of memories, or else when they were stored; NaN: unknown."""
        with self._lock:
            self._refresh()
            return self._born[nodes]

    def now(self) -> float:
        """Return the current time: the clock or the latest memory, by the settings."""
        if self._config.now == "clock":
            return self._clock()
        with self._lock:
            self._refresh()
            return self._latest if self._latest > -math.inf else self._clock()

    def _is_pinned(self) -> Tensor:  # [N] bool
        """Return which nodes are pinned, or procedural by their own type and not unpinned."""
        named = self._store.life.pins()
        if not named:
            return self._procedural
        node, pinned = torch.tensor(named).unbind(1)
        known = node < len(self._procedural)  # a writer may have added nodes meanwhile
        return self._procedural.index_put((node[known],), pinned[known].bool())

    def _forget(self) -> None:
        self._version = self._removals = -1
        self._latest = -math.inf  # time of the latest memory
        self._kind = torch.empty(0, dtype=torch.int8)  # place in MEMORY_TYPES
        self._procedural = torch.empty(0, dtype=torch.bool)  # its own type says so
        self._half_life = torch.empty(0, dtype=torch.float64)  # days, 0: never fades
        self._born = torch.empty(0, dtype=torch.float64)  # seconds, NaN: unknown

    def _refresh(self) -> None:
        """Read new types and nodes."""
        version = self._store.life.types_version  # read first, so that no later change is missed
        if version != self._version:
            self._forget()
        self._version = version
        start, removals = len(self._kind), self._store.life.removals
        if removals != self._removals and self._config.now == "latest":
            self._latest = self._store.life.latest(start)  # the latest may have been removed
        self._removals = removals
        if start < self._store.next_node:
            with self._store.reading():  # a writer may add nodes meanwhile
                stop, columns = self._store.next_node, self._store.columns(start)
            self._read(start, stop, columns)

    def _read(self, start: int, stop: int, columns: Columns) -> None:
        """Append the nodes of a range."""
        place, types = columns.node - start, columns.type
        codes = torch.tensor([*(_CODE.get(name, _NONE) for name in types.names), _NONE])
        kind = torch.full((stop - start,), _NONE, dtype=torch.int8)
        kind[place] = codes[types.codes.long()].to(torch.int8)
        procedural = kind == _CODE["procedural"]
        untyped = columns.node[(types.codes < 0) & ~columns.is_concept].tolist()
        found = self._found(start, untyped)
        rows = torch.tensor(list(found), dtype=torch.int64) - start
        kind[rows] = torch.tensor([_CODE[name] for name, _ in found.values()], dtype=torch.int8)
        # An untyped node has code -1, the last entry: it does not fade.
        lives = [*(self._config.half_life_days.get(name, 0.0) for name in MEMORY_TYPES), 0.0]
        half_life = torch.tensor(lives, dtype=torch.float64)[kind.long()]
        own = [(i, half_life_of(each)) for i, (_, each) in enumerate(found.values()) if each]
        if own:
            which, value = torch.tensor(own, dtype=torch.float64).unbind(1)
            half_life[rows[which.long()]] = value
        born = torch.full((stop - start,), torch.nan, dtype=torch.float64)
        stored = self._store.life.stored_at(columns.node)
        born[place] = torch.where(columns.time.isnan(), stored, columns.time)
        stated = columns.time[~columns.time.isnan()]
        self._latest = max(self._latest, float(stated.max()) if len(stated) else -math.inf)
        # Assign all at once, so that an interrupt cannot leave different lengths.
        self._kind, self._procedural, self._half_life, self._born = (
            torch.cat([self._kind, kind]),
            torch.cat([self._procedural, procedural]),
            torch.cat([self._half_life, half_life]),
            torch.cat([self._born, born]),
        )

    def _found(self, start: int, untyped: Sequence[int]) -> dict[int, tuple[str, float | None]]:
        """Return the types of untyped nodes, as far as they are known or can be found."""
        kept = {
            node: (name, factor)
            for node, name, factor, source in self._store.life.found_types(start)
            if source in (self._rules_name, ORACLE)  # types from other rules are found again
        }
        found = {node: kept[node] for node in untyped if node in kept}
        if self._config.classify == "rules":
            found |= self._classified([node for node in untyped if node not in kept])
        return found

    def _classified(self, nodes: Sequence[int]) -> dict[int, tuple[str, float | None]]:
        """Return the types that the rules find, and store them if the store is writable."""
        found: dict[int, tuple[str, float | None]] = {}
        life, keeping = self._store.life, not self._store.readonly
        for first in range(0, len(nodes), self._tile):
            part = nodes[first : first + self._tile]
            types = self._rules(self._store.atoms(part))
            fresh = {node: (name, None) for node, name in zip(part, types, strict=True)}
            if keeping:
                try:
                    life.set_found_types(fresh, self._rules_name, keep=ORACLE, durable=False)
                    self._version += 1
                except StoreError as error:  # a full disk must not fail an answer
                    _log.warning("types of memories are found but not kept: %s", error)
                    keeping = False
            found |= fresh
        return found


@dataclass(frozen=True)
class Classified:
    """Result of `classify`.

    Attributes:
        types: Number of classified atoms by type.
        failed: Number of atoms without a usable answer of the oracle. The local rules found their
            type, and the next call asks again; earlier answers stay.
        contents: Number of memories added or changed by extraction.
        relations: Number of new edges that the oracle stated.
    """

    types: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    contents: int = 0
    relations: int = 0

    def __add__(self, other: Classified) -> Classified:
        """Return the sum of both."""
        types = Counter(self.types) + Counter(other.types)
        return Classified(
            dict(sorted(types.items())),
            self.failed + other.failed,
            self.contents + other.contents,
            self.relations + other.relations,
        )


def extracted_atom(atom: Atom, node: Mapping[str, Any]) -> Atom | None:
    """Return the content an oracle extracted as a derived atom; None if it equals the text.

    A separate memory can be found by its own words, leads to its source and is erased with it.
    `edge_writes.dated` sets its time. Its type is stored only as found: a procedural type of its
    own would pin it.
    """
    content = " ".join(str(node["content"]).split())
    own = {" ".join(text.split()) for text in (atom.text, atom.rendered)}
    if content in own or atom.id.endswith(_CONTENT):
        return None
    if content != clean(content):
        _log.warning("%r: what the oracle extracted is dropped, as UTF-8 cannot hold it", atom.id)
        return None
    return Atom(
        atom.id + _CONTENT,
        content,
        kind="observation",
        speaker=atom.speaker,
        session=atom.session,
        edges=(Link(atom.id, EdgeType.DERIVED_FROM),),
    )


def stated_edges(
    found: Sequence[tuple[Atom, Mapping[str, Any]]], known: Container[str]
) -> list[tuple[str, str, EdgeType]]:
    """Return the relations that an oracle stated between stored atoms.

    A type unknown to the graph, such as "resulted_in", becomes `RELATED_TO`; its name is lost.
    """
    pairs = [(atom.id, *each) for atom, node in found for each in node.get("relations", ())]
    named = {each.name: each for each in EdgeType}
    return [
        (source, target, named.get(type.strip().upper(), EdgeType.RELATED_TO))
        for source, target, type in pairs
        if source in known and target in known and target != source
    ]


def open_nodes(store: MemoryStore) -> list[int]:
    """Return nodes of atoms without a type of their own or from an oracle."""
    columns = store.columns()
    said = {node for node, _, _, source in store.life.found_types() if source == ORACLE}
    untyped = (columns.type.codes < 0) & ~columns.is_concept
    return [node for node in columns.node[untyped].tolist() if node not in said]


def classify_nodes(
    store: MemoryStore,
    classify: Classifier | None,
    nodes: Sequence[int],
    extract: Callable[[Sequence[tuple[Atom, Mapping[str, Any]]]], Classified] | None = None,
) -> Iterator[Classified]:
    """Find the types of nodes; yields the result of each call after storing it.

    An oracle answers with nodes of the published contract (`oracle.memory_node`): type and decay
    factor per hour are stored. `extract` receives the atoms with their answers to store the rest.

    Raises:
        StoreError: Read-only store or full disk; results of earlier calls are kept.
    """
    for start in range(0, len(nodes), _ASKED):
        store.expect_writable()
        part = list(nodes[start : start + _ASKED])
        atoms = store.atoms(part)
        answers = (
            [None] * len(part)
            if classify is None
            else ask_classifier(classify, [atom.rendered for atom in atoms])
        )
        answered = {
            node: (str(answer["type"]), float(answer["decay_factor"]))
            for node, answer in zip(part, answers, strict=True)
            if answer is not None
        }
        pairs = [(a, node) for a, node in zip(atoms, answers, strict=True) if node is not None]
        # Extract first: atoms with a stored type are not asked about again.
        kept = extract(pairs) if extract is not None and pairs else Classified()
        left = [i for i, node in enumerate(part) if node not in answered]
        names = memory_types([atoms[i] for i in left])
        guessed = {part[i]: (name, None) for i, name in zip(left, names, strict=True)}
        store.life.set_found_types(answered, ORACLE)
        store.life.set_found_types(guessed, RULES, keep=ORACLE if classify else None)
        counts = Counter(name for name, _ in (*answered.values(), *guessed.values()))
        done = Classified(dict(sorted(counts.items())), len(left) if classify else 0)
        yield done + kept
