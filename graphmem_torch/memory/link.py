"""Linking: how the graph grows when atoms are added (`docs/mathematics.md` 3 and 4).

Only new atoms are linked. The edges do not depend on how atoms are batched. A mention ties its
concept to the turns before it in its window, never to later ones. Similarity edges point to
earlier atoms. The turns of a session are ordered by time, however late they come.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, DEFAULT_EDGE_WEIGHT, Atom, EdgeType, Link
from graphmem_torch.config import LinkConfig
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.memory.held_rows import DEAD, held_rows
from graphmem_torch.memory.lexicon import Forms, Lexicon
from graphmem_torch.memory.linked import Linked
from graphmem_torch.memory.mentions import NAME_COSINE, NameCosines, concept_id, mention_ties
from graphmem_torch.memory.people import People
from graphmem_torch.memory.session_turns import WINDOW_TURNS, Session, is_turn
from graphmem_torch.memory.similarity import SimilarRows
from graphmem_torch.memory.split_names import SplitNames
from graphmem_torch.ops.growing import GrowingRows
from graphmem_torch.store.tensor_reader import TensorReader

__all__ = ["SURE", "Linker"]

SURE = 2.0
"""Stands in for a cosine where memories show that two names belong to one person."""

_TIE = 1e-6  # cosines that differ by less are the same


_Edges = list[tuple[int, int, EdgeType, float]]  # source, target, type, weight


class Linker:
    """Makes the edges of new atoms, from the vectors, session ends and concepts of the old.

    After an error its state may be ahead of the store: make a new one from the store.
    """

    def __init__(
        self,
        dim: int,
        config: LinkConfig,
        extract: Callable[[Sequence[str]], list[list[str]]] | None,
        encode: Callable[[Sequence[str]], Tensor],
        device: str = "cpu",
        cosines: NameCosines | None = None,
    ) -> None:
        """Create an empty graph of vectors of width `dim`.

        `extract` returns the concepts of texts (None links none), `encode` the unit vectors [n, d]
        of their names. `device` runs the search for similar atoms. `cosines` are those of
        `encode`, by default of an encoder whose unrelated texts are orthogonal.
        """
        self.cosines = cosines or NameCosines(NAME_COSINE, config.min_similarity)
        self._config = config
        self._extract = extract
        self._encode = encode
        self._rows = GrowingRows(torch.empty(0, dim))
        self._nodes = array("q")
        self._dead: set[int] = set()  # rows of deleted atoms
        self.search = SimilarRows(config, device)
        self._sessions: dict[str, Session] = {}
        self._concept_rows = GrowingRows(torch.empty(0, dim))
        self._concept_nodes = array("q")
        self._concept_at: dict[int, int] = {}  # position of a node in the concepts
        self._names = Lexicon()  # by position in the concepts
        self._people, self._split = People(), SplitNames()
        self._node_of: dict[str, int | None] = {}  # by id, as asked; None: not stored
        self._store: TensorReader | None = None  # source of sessions and ids not loaded yet
        self._stated: dict[str, list[tuple[int, Link]]] = {}  # by target, with `_pending`
        self._pending: dict[str, list[tuple[int, Link]]] = {}

    def take_up(self, store: TensorReader) -> None:
        """Load all that is stored, into an empty graph.

        The turns of a session and the nodes of ids are read from the store when needed. By then
        the store must hold what this graph holds, except for the current batch.
        """
        self._store = store
        held = held_rows(store)
        outline = store.outline(stating=held is not None)
        if held is not None:
            self._rows, self._dead = held.rows, held.dead
            self._nodes.frombytes(held.node.tobytes())
        else:
            embeddings = store.embeddings()
            named = torch.tensor([name is not None for _, name, _ in outline], dtype=torch.bool)
            self._rows.append(embeddings[~named] if bool(named.any()) else embeddings)
            self._concept_rows.append(embeddings[named])
            self._nodes.extend(node for node, name, _ in outline if name is None)
            for node, name, _ in outline:
                if name is not None:
                    self._put_concept(name, node)
        self._name((name, node) for _, name, node in store.aliases())
        self._split = SplitNames.of(store)
        if self._extract is not None:
            said = store.spoken()
            first = store.first_versions()
            self._people.add(
                (first.get(node, node), Atom("", text, speaker=who, session=at))
                for node, who, at, text in said
            )
            self._people.settle(lambda: (text for *_, text in store.spoken()))
        nodes = [node for node, _, stating in outline if stating]
        atoms = store.atoms(nodes)
        self._find(atoms)
        for node, atom in zip(nodes, atoms, strict=True):
            self._state_edges(atom, node, [])

    def restore(
        self,
        atoms: Sequence[tuple[int, Atom]],
        embeddings: Tensor,
        aliases: Iterable[tuple[str, int]] = (),
        first: Mapping[int, int] | None = None,
    ) -> None:
        """Load atoms that were linked elsewhere.

        Args:
            atoms: Atoms with their node numbers, ascending.
            embeddings: Vectors of the atoms.
            aliases: Names of other concepts, and their node numbers.
            first: Number of the first version, for nodes with earlier versions.
        """
        kept: list[int] = []
        self._find(atom for _, atom in atoms)
        for row, (node, atom) in enumerate(atoms):
            if atom.kind == CONCEPT:
                self._remember_concept(atom.text, node, embeddings[row : row + 1], [])
            else:
                kept.append(row)
                # The store has these: a session that is read later includes them.
                if self._store is None or atom.session in self._sessions:
                    self._remember(atom, node, first=(first or {}).get(node))
                else:
                    self._number(atom, node)
                self._state_edges(atom, node, [])
        self._rows.append(embeddings[torch.tensor(kept, dtype=torch.int64)])
        self._name(aliases)

    def _name(self, aliases: Iterable[tuple[str, int]]) -> None:
        for name, node in aliases:
            if node in self._concept_at and name not in self._names:
                self._names.put(name, self._concept_at[node], own=False)

    @property
    def unresolved(self) -> tuple[int, str | None]:
        """Return the number of stated edges without a stored target, and the first such target.

        Any thread may call this.
        """
        pending = self._pending.copy()
        return sum(map(len, pending.values())), next(iter(pending), None)

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:  # [n] int64, [n, d], [n] bool
        """Return node numbers of atoms, ascending, their vectors, and whether each is stored."""
        there = torch.ones(len(self._nodes), dtype=torch.bool)
        there[torch.tensor(list(self._dead), dtype=torch.int64)] = False
        return _copied(self._nodes), self._rows.view, there

    def concepts(self) -> tuple[Tensor, Tensor]:  # [c] int64, [c, d]
        """Return node numbers of concepts, -1 where deleted, and the vectors of their names."""
        return _copied(self._concept_nodes), self._concept_rows.view

    def concept_vector(self, node: int) -> Tensor:  # [d]
        """Return the vector of a concept's own name."""
        return self._concept_rows.view[self._concept_at[node]]

    def concept_row(self, node: int) -> int:
        """Return the position of a concept in `concepts`."""
        return self._concept_at[node]

    @property
    def aliases(self) -> KeysView[str]:
        """Names of concepts that are not their own."""
        return self._names.others

    def names_of(self, node: int) -> list[str]:
        """Return the names of a concept."""
        return self._names.of(self._concept_at[node]) if node in self._concept_at else []

    def aliases_near(self, words: Iterable[str], forms: Forms) -> dict[str, int]:
        """Return the `aliases` that texts of these words may say, with the nodes of their concepts.

        See `Lexicon.near`.
        """
        names = self._names.near(words, forms)
        return {name: self._concept_nodes[self._names[name]] for name in names}

    def knows(self, name: str) -> bool:
        """Return whether a name has a concept; any thread may call it."""
        return name in self._names

    def link(
        self,
        atoms: Sequence[Atom],
        embeddings: Tensor,
        first: int,
        waiting: Sequence[tuple[int, Atom]] = (),
        ready: int | None = None,
        between: int = 0,
    ) -> Linked:
        """Link new atoms, numbered from `first` on, and their concepts, numbered after them.

        Args:
            atoms: New atoms.
            embeddings: [n, d], vectors of the atoms.
            first: Node number of the first atom.
            waiting: Atoms that were linked before without their concepts, with their numbers.
            ready: Number of `waiting` and `atoms` whose concepts are linked; None links all.
            between: Number of nodes between the atoms and their concepts.
        """
        edges: _Edges = []
        start = len(self._rows)
        follows: dict[tuple[int, int], bool] = {}  # pairs of turns: whether they get an edge
        self._find(atoms)
        self._recall({atom.session for atom in (*atoms, *(atom for _, atom in waiting))})
        windows = [self._window(node, atom) for node, atom in waiting]
        for node, atom in enumerate(atoms, first):
            windows.append([node, *self._remember(atom, node, edges, follows)])
            self._state_edges(atom, node, edges)
        self._rows.append(embeddings)
        blocks = [self._similar(start)]
        told = [atom.whole for atom in (*(atom for _, atom in waiting), *atoms)][:ready]
        names = self._extract(told) if self._extract else []
        behind = first + len(atoms) + between
        concepts, vectors, aliases, others = self._new_concepts(names, behind, edges)
        self._tie_concepts(names, windows, edges)
        if edges:
            blocks.append(EdgeBlock.of(*zip(*edges, strict=True)))
        source, target = _ends(pair for pair, new in follows.items() if new)
        weight = DEFAULT_EDGE_WEIGHT[EdgeType.TEMPORAL]
        blocks.append(EdgeBlock.of(source, target, EdgeType.TEMPORAL, weight))
        source, target = _ends(pair for pair, new in follows.items() if not new)
        cut = EdgeBlock.of(source, target, EdgeType.TEMPORAL, weight)
        return Linked(concepts, vectors, EdgeBlock.cat(blocks), cut, aliases, others)

    def link_again(
        self,
        old: tuple[int, Atom],
        atom: Atom,
        embedding: Tensor,
        node: int,
        first: int,
        window: Sequence[int],
        first_concept: int,
    ) -> Linked:
        """Link a new version of an atom by its own content.

        Edges that are stated, or follow from its place in the session, are left to the caller.

        Args:
            old: Node number and atom of the previous version.
            atom: New version.
            embedding: [1, d], its vector.
            node: Its node number.
            first: Node number of its first version.
            window: Turns before it in its window.
            first_concept: Node number of the first new concept.
        """
        # The store still has the previous version.
        self._recall({old[1].session, atom.session})
        self.forget([old])
        self._find([atom])
        edges: _Edges = []
        start = len(self._rows)
        self._remember(atom, node, first=first)
        self._state_edges(atom, node, [])
        self._rows.append(embedding)
        blocks = [self._similar(start)]
        names = self._extract([atom.whole]) if self._extract else []
        concepts, vectors, aliases, others = self._new_concepts(names, first_concept, edges)
        self._tie_concepts(names, [[node, *window]], edges)
        if edges:
            blocks.append(EdgeBlock.of(*zip(*edges, strict=True)))
        none = EdgeBlock.empty()
        return Linked(concepts, vectors, EdgeBlock.cat(blocks), none, aliases, others)

    def nodes_named(self, names: Iterable[str]) -> list[int]:
        """Return the concepts of the names that have one."""
        return [self._concept_nodes[self._names[name]] for name in names if name in self._names]

    def forget(self, atoms: Sequence[tuple[int, Atom]], names: Iterable[str] = ()) -> None:
        """Forget deleted atoms and concepts, and names of concepts."""
        gone = {node for node, _ in atoms}
        concepts = gone & self._concept_at.keys()
        for node in concepts:
            at = self._concept_at.pop(node)
            self._concept_rows.view[at] = 0.0  # similar to no name
            self._concept_nodes[at] = -1
            for name in self._names.of(at):
                self._names.drop(name)
        for name in names:
            self._names.drop(name)
        sessions, rows = set[str](), list[int]()
        for node, atom in atoms:
            self._node_of[atom.id] = None
            for link in atom.edges:
                for links in (self._stated, self._pending):
                    kept = [each for each in links.pop(link.target, []) if each[0] not in gone]
                    if kept:
                        links[link.target] = kept
            if atom.kind == CONCEPT:
                continue
            rows.append(bisect_left(self._nodes, node))
            if atom.session in self._sessions and is_turn(atom):
                sessions.add(atom.session)
        for session in sessions:
            self._sessions[session].drop(gone)
        for _, atom in atoms:
            if waiting := self._stated.get(atom.id):
                self._pending[atom.id] = list(waiting)
        self._dead.update(rows)
        self.search.forget(self._rows.view, rows, self._dead)
        if len(self._dead) > DEAD:
            numbers, vectors, there = self.rows()
            (left,) = there.nonzero(as_tuple=True)
            self._rows = GrowingRows(vectors[left])
            self._nodes = array("q", numbers[left].tolist())
            self._dead = set()
            self.search.keep(left)

    def rename(
        self,
        concepts: Sequence[Atom],
        embeddings: Tensor,
        first: int,
        aliases: Iterable[tuple[str, int]],
    ) -> EdgeBlock:
        """Add concepts, numbered from `first` on, in place of forgotten ones.

        Args:
            concepts: New concepts.
            embeddings: [c, d], their vectors.
            first: Node number of the first concept.
            aliases: Names that belong to another concept from now on.

        Returns:
            The edges that other atoms state to the concepts.
        """
        edges: _Edges = []
        for place, (node, atom) in enumerate(enumerate(concepts, first)):
            self._remember_concept(atom.text, node, embeddings[place : place + 1], edges)
        self._name(aliases)
        return EdgeBlock.of(*zip(*edges, strict=True)) if edges else EdgeBlock.empty()

    def _remember(
        self,
        atom: Atom,
        node: int,
        edges: _Edges | None = None,
        follows: dict[tuple[int, int], bool] | None = None,
        first: int | None = None,
    ) -> list[int]:
        """Put an atom into its session; returns the turns before it in its window, nearest first.

        An atom that is derived from others is no turn of the session.
        """
        self._number(atom, node)
        if atom.session is None or not is_turn(atom):
            return []
        session = self._sessions.setdefault(atom.session, Session())
        place = session.put(node, atom.time, first)
        if follows is not None:
            around = session.nodes[max(0, place - 1) : place + 2].tolist()
            if len(around) == 3 and not follows.pop((around[0], around[2]), False):
                follows[around[0], around[2]] = False
            follows.update(dict.fromkeys(pairwise(around), True))
        if edges is not None:
            edges += session.ties(self._config.cooccurrence)
        return session.nodes[max(0, place - WINDOW_TURNS + 1) : place].tolist()[::-1]

    def _window(self, node: int, atom: Atom) -> list[int]:
        """Return an atom that was put into its session, and the turns before it in its window."""
        if atom.session is None or not is_turn(atom):
            return [node]
        return [node, *self._sessions[atom.session].before(node, WINDOW_TURNS - 1)]

    def _number(self, atom: Atom, node: int) -> None:
        self._nodes.append(node)
        self._node_of[atom.id] = node

    def _recall(self, sessions: Iterable[str | None]) -> None:
        """Load the stored turns of sessions."""
        if self._store is not None:
            asked = [name for name in sessions if name is not None and name not in self._sessions]
            found = self._store.turns(asked) if asked else {}
            self._sessions |= {name: Session(turns) for name, turns in found.items()}

    def _find(self, atoms: Iterable[Atom]) -> None:
        """Load the stored nodes to which atoms state edges."""
        if self._store is not None:
            names = dict.fromkeys(link.target for atom in atoms for link in atom.edges)
            asked = [name for name in names if name not in self._node_of]
            known = self._store.known(asked)
            self._node_of |= {name: known[name][0] if name in known else None for name in asked}

    def _state_edges(self, atom: Atom, node: int, edges: _Edges) -> None:
        """Add the edges that the input states; an edge to an atom not yet added waits for it."""
        for source, link in self._pending.pop(atom.id, ()):
            edges.append((source, node, link.type, link.strength))
        for link in atom.edges:
            self._stated.setdefault(link.target, []).append((node, link))
            target = self._node_of.get(link.target)
            if target is None:
                self._pending.setdefault(link.target, []).append((node, link))
            else:
                edges.append((node, target, link.type, link.strength))

    def _similar(self, start: int) -> EdgeBlock:
        """Return the edges from each new atom to the most similar earlier ones."""
        if self._config.similarity_k < 1 or start == len(self._rows):
            return EdgeBlock.empty()
        cosine, *rows = self.search.edges(self._rows.view, start, self._dead)
        source, target = ([self._nodes[i] for i in each.tolist()] for each in rows)
        return EdgeBlock.of(source, target, EdgeType.SIMILARITY, cosine)

    def _new_concepts(
        self, names: Sequence[Sequence[str]], first: int, edges: _Edges
    ) -> tuple[list[Atom], Tensor, list[tuple[str, int]], Tensor]:
        """Create nodes for new names that match no known one (cosine below `cosines.same`).

        Returns their vectors, the names that match one with its node, and those names' vectors.
        """
        fresh = list(dict.fromkeys(n for found in names for n in found if n not in self._names))
        if not fresh:
            none = torch.empty(0, self._rows.view.shape[1])
            return [], none, [], none
        vectors = self._encode(fresh)
        new, joined = list[int](), list[int]()
        atoms, aliases = list[Atom](), list[tuple[str, int]]()
        for place, name in enumerate(fresh):
            vector = vectors[place : place + 1]
            near = self._near(name, vector[0])
            if near:
                top = max(near.values()) - _TIE
                concept = min(place for place, value in near.items() if value >= top)
                self._names.put(name, concept, own=False)
                aliases.append((name, self._concept_nodes[concept]))
                joined.append(place)
            else:
                self._remember_concept(name, first + len(atoms), vector, edges)
                atoms.append(Atom(id=concept_id(name), text=name, kind=CONCEPT))
                new.append(place)
        return atoms, vectors[new], aliases, vectors[joined]

    def _near(self, name: str, vector: Tensor) -> dict[int, float]:
        """Return the concepts that a name may join, by position, with the cosines of own names."""
        sure, alike = self.related(name)
        own = [self._names[each] for each in alike if each not in self._names.others]
        cosine = (self._concept_rows.view[own] @ vector).tolist() if own else ()
        limit = self.cosines.same
        found = {place: c for place, c in zip(own, cosine, strict=True) if c >= limit}
        return found | {self._names[n]: SURE for n in sure if n not in self._names.others}

    def related(self, name: str) -> tuple[list[str], list[str]]:
        """Return known names that may share a concept with a name.

        Returns:
            Names that memories show to be the same person's, and names of the same parts. A split
            name is related to none.
        """
        if name in self._split:
            return [], []
        mates = sorted(mate for mate in self._people.mates(name) if mate in self._names)
        both = mates, self._names.alike(name)
        sure, alike = ([n for n in each if n not in self._split] for each in both)
        return sure, alike

    def split_names(self) -> set[str]:
        """Return the known names that stand alone."""
        return (
            {name for name in self._names if name in self._split} if self._split.hashes else set()
        )

    def split(self, names: Iterable[str]) -> tuple[SplitNames, list[str]]:
        """Make exactly these names stand alone, whether known or not.

        Returns:
            The state to store, and the known names to decide again.
        """
        before, self._split = self.split_names(), self._split.of_names(names)
        found = dict[str, None]()
        for name in sorted(before ^ self.split_names()):
            own = self._names.of(self._names[name])
            sure, alike = self.related(name)
            found |= dict.fromkeys([*own, *sure, *alike])
        return self._split, list(found)

    def hear(
        self,
        came: Sequence[tuple[int, Atom]],
        went: Sequence[tuple[int, Atom]] = (),
        first: Mapping[int, int] | None = None,
    ) -> list[str]:
        """Update what is known of people, before atoms are linked or forgotten.

        Args:
            came: Added atoms, with their node numbers.
            went: Deleted atoms, with their node numbers.
            first: Number of the first version, for nodes with earlier versions.

        Returns:
            Known names to decide again, because they belong to other persons than before.
        """
        if self._extract is None:
            return []
        first = first or {}
        self._people.drop((first.get(node, node), atom) for node, atom in went)
        self._people.add((first.get(node, node), atom) for node, atom in came)
        gone = {node for node, _ in went}

        def texts() -> Iterator[str]:
            if self._store is not None:
                rows = self._store.spoken()
                yield from (text for node, _, _, text in rows if node not in gone)
            yield from (atom.whole for _, atom in came)

        return [name for name in sorted(self._people.settle(texts)) if name in self._names]

    def unsettled(self) -> list[str]:
        """Return known names whose concept is not the one `related` gives, as in an older release.

        These are aliases that may not join the own name of their concept, and names of one person
        that are two concepts.
        """
        own = {place: name for name, place in self._names.owners()}
        found = dict[str, None]()
        for name in self._names.others:
            sure, alike = self.related(name)
            if own.get(self._names[name]) not in (*sure, *alike):
                found[name] = None
        for name in self._people.names:
            if name in self._names and name not in self._split:
                mates = (self._names[mate] for mate in self.related(name)[0])
                if any(place != self._names[name] for place in mates):
                    found[name] = None
        return list(found)

    def _tie_concepts(
        self,
        names: Sequence[Sequence[str]],
        windows: Sequence[Sequence[int]],
        edges: _Edges,
    ) -> None:
        """Add abstraction edges from a window's turns to the concept, associations in an atom."""
        pairs: list[tuple[int, int]] = []
        for found, window in zip(names, windows, strict=False):
            concepts = list(dict.fromkeys(self._names[name] for name in found))
            ties = mention_ties([self._concept_nodes[concept] for concept in concepts], window)
            edges.extend((node, name, EdgeType.ABSTRACTION, weight) for node, name, weight in ties)
            pairs.extend(combinations(concepts, 2))
        if not pairs:
            return
        one, other = torch.tensor(pairs).T
        rows = self._concept_rows.view
        cosine = (rows[one] * rows[other]).sum(1)
        near = (cosine.double() >= self.cosines.associated).nonzero().flatten()
        for place, value in zip(near.tolist(), cosine[near].tolist(), strict=True):
            ends = (self._concept_nodes[concept] for concept in pairs[place])
            edges.append((*ends, EdgeType.ASSOCIATION, value))

    def _remember_concept(self, name: str, node: int, vector: Tensor, edges: _Edges) -> None:
        self._put_concept(name, node)
        self._concept_rows.append(vector)
        self._node_of[concept_id(name)] = node
        for source, link in self._pending.pop(concept_id(name), ()):
            edges.append((source, node, link.type, link.strength))

    def _put_concept(self, name: str, node: int) -> None:
        place = self._concept_at[node] = len(self._concept_nodes)
        self._concept_nodes.append(node)
        self._names.drop(name)  # in a damaged store another concept may have it
        self._names.put(name, place, own=True)


def _copied(numbers: array[int]) -> Tensor:  # [n] int64
    return torch.from_numpy(np.array(numbers))


def _ends(pairs: Iterable[tuple[int, int]]) -> Tensor:  # [2, P] int64
    return torch.tensor(list(pairs), dtype=torch.int64).reshape(-1, 2).T
