"""Decay: the type, age and last use of every memory, and how its type is found.

All of it is numbered by node and only grows, so that neither a use nor a pin rebuilds anything.
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
"""Names an oracle where its answers are kept."""

_NONE = -1
_CONTENT = "#content"  # ends the id of what was extracted from an atom
_ASKED = 64  # atoms a call: what a failing oracle can lose, and a transaction
_CODE = {name: code for code, name in enumerate(MEMORY_TYPES)}


class DecayState:
    """What `docs/mathematics.md` 6 needs to know of the nodes of a store; safe between threads."""

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
        """Nothing is read before it is asked for.

        Args:
            store: Of the memories.
            config: Half-lives, and whether rules find the types that are not stated.
            clock: Now, seconds since the epoch UTC.
            rules: Types of atoms.
            rules_name: Under which the store keeps what they found; what others did is found anew.
            tile: Atoms that the rules look at before what they found is stored.
        """
        self._store, self._config, self._clock = store, config, clock
        self._rules, self._rules_name, self._tile = rules, rules_name, tile
        self._lock = threading.RLock()
        self._forget()

    def types(self, nodes: Tensor) -> list[str | None]:  # [n] int64
        """The memory type of each node; None where none is stated and none was looked for."""
        with self._lock:
            self._refresh()
            codes = self._kind[nodes].tolist()
        return [None if code < 0 else MEMORY_TYPES[code] for code in codes]

    def retention(self, nodes: Tensor, when: float | None = None) -> Tensor:  # [n] -> [n] float32
        """Return f(t, h) of `ops.fading`, t since a memory was last used, or since it came to be.

        Args:
            nodes: [n] int64 node numbers.
            when: Now, seconds since the epoch UTC; what was used later counts as not used yet. By
                default as the settings say.
        """
        with self._lock:
            self._refresh()
            now = self.now() if when is None else when
            used, born = self._store.uses.last(nodes, now), self._born[nodes]
            half_life = torch.where(self._is_pinned()[nodes], 0.0, self._half_life[nodes])
        # What has neither a known use nor a known time has no age: it keeps everything.
        since = torch.where(born > used, born, used)
        since = torch.where(since > -torch.inf, since, born.nan_to_num(nan=torch.inf))
        return fading((now - since) / DAY, half_life, dtype=torch.float32)

    def born(self, nodes: Tensor) -> Tensor:  # [n] int64 -> [n] float64
        """When memories came to be: their time, else when they were stored; NaN: unknown."""
        with self._lock:
            self._refresh()
            return self._born[nodes]

    def now(self) -> float:
        """What is now, as the settings say."""
        if self._config.now == "clock":
            return self._clock()
        with self._lock:
            self._refresh()
            return self._latest if self._latest > -math.inf else self._clock()

    def _is_pinned(self) -> Tensor:  # [N] bool
        """By node: procedural of itself, or pinned, and not unpinned."""
        named = self._store.life.pins()
        if not named:
            return self._procedural
        node, pinned = torch.tensor(named).unbind(1)
        known = node < len(self._procedural)  # a writer may have gone on meanwhile
        return self._procedural.index_put((node[known],), pinned[known].bool())

    def _forget(self) -> None:
        self._version = self._removals = -1
        self._latest = -math.inf  # time of the latest memory
        self._kind = torch.empty(0, dtype=torch.int8)  # place in MEMORY_TYPES
        self._procedural = torch.empty(0, dtype=torch.bool)  # by its own word
        self._half_life = torch.empty(0, dtype=torch.float64)  # days, 0: never fades
        self._born = torch.empty(0, dtype=torch.float64)  # seconds, NaN: unknown

    def _refresh(self) -> None:
        """Reads what came since: types that were found, nodes."""
        version = self._store.life.types_version  # first, lest one of meanwhile passes unseen
        if version != self._version:
            self._forget()
        self._version = version
        start, removals = len(self._kind), self._store.life.removals
        if removals != self._removals and self._config.now == "latest":
            self._latest = self._store.life.latest(start)  # it may be among what is gone
        self._removals = removals
        if start < self._store.next_node:
            with self._store.reading():  # a writer may go on meanwhile
                stop, columns = self._store.next_node, self._store.columns(start)
            self._read(start, stop, columns)

    def _read(self, start: int, stop: int, columns: Columns) -> None:
        """Takes in the nodes of a range."""
        place, types = columns.node - start, columns.type
        codes = torch.tensor([*(_CODE.get(name, _NONE) for name in types.names), _NONE])
        kind = torch.full((stop - start,), _NONE, dtype=torch.int8)
        kind[place] = codes[types.codes.long()].to(torch.int8)
        procedural = kind == _CODE["procedural"]
        untyped = columns.node[(types.codes < 0) & ~columns.is_concept].tolist()
        found = self._found(start, untyped)
        rows = torch.tensor(list(found), dtype=torch.int64) - start
        kind[rows] = torch.tensor([_CODE[name] for name, _ in found.values()], dtype=torch.int8)
        # The code of what has no type takes the entry after the last one: it does not fade.
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
        # All at once, lest an interrupt leaves them of different lengths.
        self._kind, self._procedural, self._half_life, self._born = (
            torch.cat([self._kind, kind]),
            torch.cat([self._procedural, procedural]),
            torch.cat([self._half_life, half_life]),
            torch.cat([self._born, born]),
        )

    def _found(self, start: int, untyped: Sequence[int]) -> dict[int, tuple[str, float | None]]:
        """The types of nodes that state none, as far as they are known or can be found."""
        kept = {
            node: (name, factor)
            for node, name, factor, source in self._store.life.found_types(start)
            if source in (self._rules_name, ORACLE)  # what other rules found is found anew
        }
        found = {node: kept[node] for node in untyped if node in kept}
        if self._config.classify == "rules":
            found |= self._classified([node for node in untyped if node not in kept])
        return found

    def _classified(self, nodes: Sequence[int]) -> dict[int, tuple[str, float | None]]:
        """What the rules say of these nodes; kept in the store where it can be written."""
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
                except StoreError as error:  # an answer must not fail with the disk
                    _log.warning("types of memories are found but not kept: %s", error)
                    keeping = False
            found |= fresh
        return found


@dataclass(frozen=True)
class Classified:
    """What a `classify` did.

    Attributes:
        types: How many atoms were found to be of each type.
        failed: How many of them the oracle gave no usable answer for: the local rules found their
            type, and the next call asks again. What an oracle has said of them before stays.
        contents: Memories that were added, or changed, for what the oracle extracted.
        relations: Edges that it stated, and that were not there yet.
    """

    types: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    contents: int = 0
    relations: int = 0

    def __add__(self, other: Classified) -> Classified:
        """Both together."""
        types = Counter(self.types) + Counter(other.types)
        return Classified(
            dict(sorted(types.items())),
            self.failed + other.failed,
            self.contents + other.contents,
            self.relations + other.relations,
        )


def extracted_atom(atom: Atom, node: Mapping[str, Any]) -> Atom | None:
    """What an oracle extracted from an atom as one derived from it; None where it is its text.

    A memory of its own, not a note beside the text: it is found by its own words, its source
    through it, and it is erased with its source. `edge_writes.dated` gives it its time. Its
    type is the oracle's word, not its own, which
    would pin what is procedural.
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
    """Relations that an oracle stated between stored atoms.

    A type that the graph does not have, such as "resulted_in", is `RELATED_TO`: that there is a
    relation is kept, its name is not.
    """
    pairs = [(atom.id, *each) for atom, node in found for each in node.get("relations", ())]
    named = {each.name: each for each in EdgeType}
    return [
        (source, target, named.get(type.strip().upper(), EdgeType.RELATED_TO))
        for source, target, type in pairs
        if source in known and target in known and target != source
    ]


def open_nodes(store: MemoryStore) -> list[int]:
    """Nodes of the atoms whose type neither they themselves nor an oracle has said."""
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
    """Finds the types of nodes; yields what each call gave once it is stored.

    The oracle's answers are nodes of the published contract (`oracle.memory_node`): type and decay
    factor per hour are kept; `extract` is given atoms with their answers, to keep the rest.

    Raises:
        StoreError: Read-only store or full disk; what earlier calls gave is kept.
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
        # First: what is known to be of a type is not asked about again.
        kept = extract(pairs) if extract is not None and pairs else Classified()
        left = [i for i, node in enumerate(part) if node not in answered]
        names = memory_types([atoms[i] for i in left])
        guessed = {part[i]: (name, None) for i, name in zip(left, names, strict=True)}
        store.life.set_found_types(answered, ORACLE)
        store.life.set_found_types(guessed, RULES, keep=ORACLE if classify else None)
        counts = Counter(name for name, _ in (*answered.values(), *guessed.values()))
        done = Classified(dict(sorted(counts.items())), len(left) if classify else 0)
        yield done + kept
