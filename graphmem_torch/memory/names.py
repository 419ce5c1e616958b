"""Names of concepts when atoms are deleted: which atoms say which, and which concepts result.

Linking takes names in the order in which they are first said. Each name joins the nearest concept
whose own name was said before it, or becomes a concept. Names are near if memories show that they
belong to one person. Names of the same parts are near from a cosine of `NAME_COSINE` on
(`Linker.related`). So a name depends on earlier own names only, and a deletion decides again only

* the names of a concept whose own name is said no more, or only after another of its names,
* a name of another concept that is first said later than before, perhaps after a nearer concept,
* the later names near one that becomes a concept, and those of a concept that joins another,
* names that are shown to belong to another person than before, or that a caller splits or joins.

They are decided in the order in which they are now first said. The result equals that of adding
only the remaining atoms in the order of their node numbers. Rounding may decide otherwise between
two cosines, or a cosine and the threshold. Other exceptions: a concept without a name that is said
(edges of a caller lead there) stays as it is. What an earlier release left under a deleted name is
found when a name of that concept is found. Of the names in a new version of an atom, known names
precede new ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.memory.link import SURE, Linker
from graphmem_torch.memory.mentions import own_mentions
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.adjacency import Adjacency
from graphmem_torch.text.concepts import ConceptExtractor, Letters, names_within, spelled

__all__ = ["ConceptNames", "Renaming", "among"]

_READ = 64  # texts read in one batch
_PLAIN = 16  # texts whose letters are compared before the extractor runs
_TIE = 1e-6  # cosines that differ by less are the same
_BEFORE_ALL = (-1, 0)  # place of a name whose first mention is unknown

_Place = tuple[int, int]  # node number of an atom, and the place of a name in what it says


@dataclass(frozen=True, eq=False)
class Renaming:
    """Changes of names.

    Attributes:
        unsaid: Names that nothing says any more, of concepts that stay.
        joined: Own name of the new concept, by name that changes its concept; a name that becomes a
            concept maps to itself. In the order in which the names are first said.
        ended: Concepts that lose their own name, with the own name of the concept to which that
            name, or another of theirs, belongs now.
        vectors: [d], vector of each name in `joined`.
        said: All names of each atom that says one of `joined`, by atom.
        concepts: Previous concept of each name in `said`.
    """

    unsaid: list[str]
    joined: dict[str, str]
    ended: dict[int, str]
    vectors: dict[str, Tensor]
    said: dict[int, list[str]]
    concepts: dict[str, int]


class ConceptNames:
    """Names of concepts in a store, from the edges of linking and the letters of texts.

    An atom that mentions a concept says one of its names. Where the letters do not decide which,
    the extractor does.
    """

    def __init__(
        self,
        store: MemoryStore,
        near: Adjacency,
        linker: Linker,
        extractor: ConceptExtractor,
        gone: Mapping[int, str],
        new: tuple[int, Sequence[str]] | None = None,
    ) -> None:
        """Create without reading.

        Args:
            store: Store before the deletion.
            near: Stored edges.
            linker: Linker that knows the names, and follows the store.
            extractor: Finder of the concepts.
            gone: Texts of the atoms that are deleted, by node number.
            new: Node number and names of the atom that replaces the only deleted one.
        """
        self._store, self._near, self._linker = store, near, linker
        self._extractor = extractor
        self._gone, self._new = gone, new or (-1, ())
        self._bodies = {node: spelled(text) for node, text in gone.items()}
        self._forms = cache(lambda word: frozenset(map(spelled, extractor.forms(word))))
        self.node = dict[str, int]()
        self.own: dict[int, str] = {}
        self._names: dict[int, list[str]] = {}
        self._sayers: dict[int, Tensor] = {}  # ascending
        self._told: dict[int, list[str]] = {}
        self._spelt: dict[tuple[int, int], list[str]] = {}  # by concept and atom
        self._first: dict[str, _Place | None] = {}

    def mentioned(self, texts: Mapping[int, str]) -> dict[int, list[int]]:
        """Return the concepts that atoms mention, given their texts by node number."""
        found: dict[int, list[int]] = {node: [] for node in texts}
        nodes = torch.tensor([*texts], dtype=torch.int64)
        ties = self._near.edges(nodes, "source")
        ties = ties.take(own_mentions(ties))
        for node, concept in zip(ties.source.tolist(), ties.target.tolist(), strict=True):
            found[node].append(concept)
        self.learn({concept for each in found.values() for concept in each})
        bodies = {
            node: self._bodies[node] if node in self._bodies else spelled(text)
            for node, text in texts.items()
        }
        mentions = dict[int, list[int]]()
        for node, body in bodies.items():
            names = {concept: self.names_of(concept) for concept in found[node]}
            # One call for all: the words of a text are split once.
            said = {*self._within(body, {name for each in names.values() for name in each})}
            mentions[node] = [concept for concept in names if not said.isdisjoint(names[concept])]
        return mentions

    def in_order(self, node: int, concepts: Collection[int]) -> list[int]:
        """Return concepts that a deleted atom mentions, in the order in which it says them."""
        names = self.told(node, self._gone[node])
        known = self._store.concepts(names)
        order = dict.fromkeys(known[name] for name in names if known.get(name) in concepts)
        return [*order, *(concept for concept in concepts if concept not in order)]

    def told(self, node: int, text: str) -> list[str]:
        """Return the names that an atom says."""
        self._tell({node: text})
        return self._told[node]

    def _tell(self, texts: Mapping[int, str]) -> None:
        """Find and cache the names that atoms say; one batch is faster than single atoms."""
        fresh = [node for node in texts if node not in self._told]
        if fresh:
            told = self._extractor.extract([texts[node] for node in fresh])
            self._told |= dict(zip(fresh, told, strict=True))

    def without(
        self,
        mentioned: Mapping[int, Sequence[int]],
        lost: Collection[int],
        threshold: float,
        others: Callable[[list[str]], Tensor],
        changed: Sequence[str] = (),
    ) -> Renaming:
        """Return the changes of names when the atoms are deleted.

        Args:
            mentioned: Concepts that the deleted atoms mention.
            lost: Nodes that are deleted.
            threshold: Minimum cosine at which names of the same parts share a concept.
            others: Function that returns the vectors [n, d] of names that are not own names.
            changed: Names that are near to other names than before.
        """
        unsaid, later = self._changed(mentioned, lost)
        replay = _Replay(self, self._linker, lost, threshold, others)
        self.learn(self._linker.nodes_named(changed))
        replay.ask(name for name in changed if self.node[name] not in lost)
        for concept in dict.fromkeys(self.node[name] for name in [*unsaid, *later]):
            own, behind = self.own[concept], self.names_of(concept)[1:]
            place = self.first(own)
            if place is None and any(self.first(name) is not None for name in behind):
                replay.end(concept)
            elif place is not None and own in later:
                replay.ask(self._before(place, concept))
            replay.ask(name for name in behind if name in later)
        joined = replay.run()
        said = self._saying(dict.fromkeys(self.node[name] for name in joined), joined)
        names = list(dict.fromkeys(name for each in said.values() for name in each))
        known = self._store.concepts(names)
        ended = {
            concept: next(joined[name] for name in self.names_of(concept) if name in joined)
            for concept in replay.ended
        }
        own_vectors = {name: replay.vector(name) for name in joined}
        kept = {own for concept, own in self.own.items() if concept not in ended}
        return Renaming(sorted(unsaid - kept), joined, ended, own_vectors, said, known)

    def _changed(
        self, mentioned: Mapping[int, Sequence[int]], lost: Collection[int]
    ) -> tuple[set[str], set[str]]:
        """Return the names that no remaining atom says, and those first said later than before."""
        saying, letters = dict[str, list[int]](), Letters(self._bodies, self._forms)
        words = {word for body in self._bodies.values() for word in body.split()}
        near = self._linker.aliases_near(words, self._forms)
        self.node |= near
        for name, concept in near.items():
            if concept not in lost and (having := letters.saying(name)):
                saying[name] = [*having]
        for node in sorted(self._gone):
            for concept in mentioned[node]:
                if concept in lost or len(self.names_of(concept)) < 2:
                    continue
                nodes = saying.setdefault(self.own[concept], [])
                if node not in nodes and node in letters.saying(self.own[concept]):
                    nodes.append(node)
        saying = {name: sorted(nodes) for name, nodes in saying.items() if name and nodes}
        unsaid, later = set[str](), set[str]()
        self._load({self.node[name] for name in saying})
        self._tell({n: self._gone[n] for nodes in saying.values() for n in nodes})
        for name, nodes in saying.items():
            # Its letters occur, which proves little: several names share most of them.
            own = next((n for n in nodes if name in self.told(n, self._gone[n])), None)
            if own is None or self._is_plainly_said(name, own):
                continue
            if (self.first(name) or (own, 0))[0] < own:
                continue
            (later if self.first(name) is not None else unsaid).add(name)
        return unsaid, later

    def first(self, name: str) -> _Place | None:
        """Return where a remaining atom first says a name; None: nowhere."""
        if name not in self._first:
            self._first[name] = None
            for node, text, within in self._texts(self.node[name], [name]):
                if name in within and name in self.told(node, text):
                    self._first[name] = node, self._told[node].index(name)
                    break
            else:
                node, said = self._new
                if name in said:
                    self._first[name] = node, said.index(name)
        return self._first[name]

    def _is_plainly_said(self, name: str, stop: int) -> bool:
        """Return whether letters prove that a remaining atom before `stop` says a name.

        Reads the first texts only. The letters of a name that others of its concept contain never
        prove it.
        """
        texts = islice(self._texts(self.node[name], [name], stop), _PLAIN)
        return any(within == [name] for *_, within in texts)

    def _before(self, place: _Place, concept: int) -> list[str]:
        """Return the names of a concept that are said before a place."""
        names = self.names_of(concept)
        found = dict[str, None]()
        for node, text, within in self._texts(concept, names, place[0] + 1):
            told = self.told(node, text) if within else []
            end = place[1] if node == place[0] else len(told)
            found |= dict.fromkeys(name for name in told[:end] if name in within)
        if place[0] == self._new[0]:
            found |= dict.fromkeys(name for name in self._new[1][: place[1]] if name in names)
        return list(found)

    def _saying(
        self, concepts: Iterable[int], names: Collection[str]
    ) -> dict[int, list[str]]:  # by atom
        """Return the atoms that say one of some names, with all names that each says."""
        self._load(concepts)
        found = dict[int, list[str]]()
        for concept in concepts:
            asked = [name for name in self.names_of(concept) if name in names]
            for node, text, within in self._texts(concept, asked):
                if node not in found and any(name in names for name in within):
                    told = self.told(node, text)
                    if any(name in names for name in told):
                        found[node] = told
        return found

    def _texts(
        self, concept: int, names: Sequence[str], stop: int | None = None
    ) -> Iterator[tuple[int, str, list[str]]]:
        """Yield the remaining atoms that mention a concept and may say given names, ascending.

        Args:
            concept: Node number of the concept.
            names: Names, one of which the letters of the text must allow.
            stop: Upper bound of the node numbers, exclusive.

        Yields:
            Node number, text, and all names of the concept that its letters allow.
        """
        self._load([concept])
        nodes = self._sayers[concept]
        nodes = nodes if stop is None else nodes[nodes < stop]
        marks = [mark for name in names for mark in self._marks(name)]
        for first in range(0, len(nodes), _READ):
            part = nodes[first : first + _READ].tolist()
            for node, text in zip(part, self._store.texts_of(part), strict=True):
                lower = text.lower()
                if any(mark in lower for mark in marks):
                    if (concept, node) not in self._spelt:
                        within = self._within(spelled(text), self.names_of(concept))
                        self._spelt[concept, node] = within
                    yield node, text, self._spelt[concept, node]

    def _load(self, concepts: Iterable[int]) -> None:
        """Load the remaining atoms that mention concepts."""
        fresh = [concept for concept in concepts if concept not in self._sayers]
        if not fresh:
            return
        self.learn(fresh)
        ties = self._near.edges(torch.tensor(fresh), "target")
        ties, size = ties.take(own_mentions(ties)), self._store.next_node
        pairs = (ties.target * size + ties.source)[~among(ties.source, self._gone, size)].unique()
        nodes, counts = (pairs // size).unique_consecutive(return_counts=True)
        parts = (pairs % size).split(counts.tolist())
        self._sayers |= dict.fromkeys(fresh, pairs[:0])
        self._sayers |= dict(zip(nodes.tolist(), parts, strict=True))

    def _marks(self, name: str) -> list[str]:
        """Return letter runs, one of which occurs in every text that may say a name."""
        forms = self._forms(max(name.split(), key=len, default=""))
        return [max(form.split(), key=len, default="") for form in forms]

    def learn(self, concepts: Iterable[int]) -> None:
        """Load the names of concepts."""
        fresh = [node for node in concepts if node not in self.own]
        for node, atom in zip(fresh, self._store.atoms(fresh), strict=True):
            self.own[node] = atom.text if atom.kind == CONCEPT else ""
            names = self._names[node] = [self.own[node]] if self.own[node] else []
            names += [name for name in self._linker.names_of(node) if name != self.own[node]]
            self.node |= dict.fromkeys(names, node)

    def names_of(self, concept: int) -> list[str]:
        """Return all names of a concept, its own first; none for another node."""
        return self._names[concept]

    def _within(self, body: str, names: Iterable[str]) -> list[str]:
        return names_within(body, names, self._forms)


class _Replay:
    """Decides names again, in the order in which they are first said.

    Attributes:
        ended: Concepts that have lost their own name.
    """

    def __init__(
        self,
        names: ConceptNames,
        linker: Linker,
        lost: Collection[int],
        threshold: float,
        others: Callable[[list[str]], Tensor],
    ) -> None:
        self._names, self._linker, self._lost, self._threshold = names, linker, lost, threshold
        self._others = others
        self.ended: list[int] = []
        self._asked: set[str] = set()
        self._open: list[tuple[_Place, str]] = []
        self._own: dict[str, str] = {}  # own name of the concept, by decided name
        self._found: dict[str, dict[str, float]] = {}
        self._vectors: dict[str, Tensor] = {}

    def ask(self, names: Iterable[str]) -> None:
        """Queue the names that are said, to be decided."""
        for name in names:
            place = None if name in self._asked else self._names.first(name)
            if place is not None:
                self._asked.add(name)
                heapq.heappush(self._open, (place, name))

    def end(self, concept: int) -> None:
        """End a concept, and queue its other names."""
        self.ended.append(concept)
        self.ask(self._names.names_of(concept)[1:])

    def run(self) -> dict[str, str]:
        """Decide; returns the own name of the new concept of each name that changes its concept."""
        while self._open:
            self._decide(*heapq.heappop(self._open))
        names, found = self._names, dict[str, str]()
        for name, own in self._own.items():
            kept = names.own[names.node[own]] == own and names.node[own] == names.node[name]
            if not kept:
                found[name] = own
        return found

    def vector(self, name: str) -> Tensor:  # [d]
        """Return the vector of a name."""
        if name not in self._vectors:
            if name in self._linker.aliases:
                self._vectors[name] = self._others([name])[0]
            else:
                self._vectors[name] = self._linker.concept_vector(self._names.node[name])
        return self._vectors[name]

    def _decide(self, place: _Place, name: str) -> None:
        near = self._near(name)
        earlier = [
            (cosine, self._place(other), other)
            for other, cosine in near.items()
            if self._is_own(other) and self._place(other) < place
        ]
        top = max((cosine for cosine, *_ in earlier), default=0.0)
        closest = [(first, other) for cosine, first, other in earlier if cosine >= top - _TIE]
        self._own[name] = own = min(closest)[1] if closest else name
        was_own = self._names.own[self._names.node[name]] == name
        if was_own and own != name:
            self.end(self._names.node[name])
        elif own == name and not was_own:
            self.ask(other for other in near if self._place(other) > place)

    def _is_own(self, name: str) -> bool:
        """Return whether a name is the own name of a concept."""
        concept = self._names.node[name]
        if name in self._own:
            return self._own[name] == name
        return self._names.own[concept] == name and concept not in self.ended

    def _place(self, name: str) -> _Place:
        return self._names.first(name) or _BEFORE_ALL

    def _near(self, name: str) -> dict[str, float]:
        """Return the other names near one, with their cosines."""
        if name not in self._found:
            names = self._names
            sure, alike = self._linker.related(name)
            names.learn(self._linker.nodes_named([*sure, *alike]))
            own = self.vector(name)
            found = {other: float(self.vector(other) @ own) for other in alike}
            found = {other: value for other, value in found.items() if value >= self._threshold}
            found |= dict.fromkeys(sure, SURE)
            self._found[name] = {n: v for n, v in found.items() if names.node[n] not in self._lost}
        return self._found[name]


def among(values: Tensor, nodes: Iterable[int], stop: int) -> Tensor:  # [n] int64 -> [n] bool
    """Return a mask of the values that are some of the nodes below `stop`."""
    there = torch.zeros(stop, dtype=torch.bool)
    there[torch.tensor(list(nodes), dtype=torch.int64)] = True
    return there[values]
