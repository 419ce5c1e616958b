"""Linking: how the graph grows when atoms are added (`docs/mathematics.md` 3 and 4).

Only the new is linked. Whether atoms come one by one or all at once, the same edges are made: a
mention ties its concept to the turns before it in its window, never to later ones, and similarity
edges point to earlier atoms. The turns of a session are ordered by time, however late they come.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, DEFAULT_EDGE_WEIGHT, Atom, EdgeType, Link
from graphmem_torch.config import LinkConfig
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.ops import knn_graph, topk_cosine
from graphmem_torch.ops.growing import GrowingRows

__all__ = ["Linked", "Linker", "concept_id"]
_PAIRS = 1 << 24  # cosines of concept names at once: 64 MB
_WINDOW_DECAY = 0.9  # a mention ties its own turn strongest, so that the cap keeps that edge


def concept_id(name: str) -> str:
    """Id of the node of a concept."""
    return f"{CONCEPT}:{name}"


@dataclass(frozen=True, eq=False)
class Linked:
    """What linking a batch of atoms adds: new concepts with their vectors, and edges.

    Attributes:
        concepts: Behind the atoms of the batch.
        embeddings: [c, d], of the concepts.
        edges: Between all nodes.
        cut: [2, R] int64, ends of stored temporal edges that a turn has come between.
        aliases: Names that joined a concept of another name, with its node number.
    """

    concepts: list[Atom]
    embeddings: Tensor
    edges: EdgeBlock
    cut: Tensor
    aliases: list[tuple[str, int]]


_Edges = list[tuple[int, int, EdgeType, float]]  # source, target, type, weight


class _Session:
    """The turns of a session in the order of time; equal times in the order of storing.

    A turn without a time has that of the turn stored before it.
    """

    def __init__(self) -> None:
        self.nodes = array("q")
        self._times = array("d")
        self._last = -math.inf  # time of the turn that was stored last

    def put(self, node: int, time: float | None) -> int:
        """Puts a turn in its place among the others; which place that is."""
        self._last = self._last if time is None else float(time)
        place = bisect_right(self._times, self._last)
        self._times.insert(place, self._last)
        self.nodes.insert(place, node)
        return place


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
    ) -> None:
        """An empty graph of vectors of width `dim`.

        `extract` gives the concepts of texts (None links none), `encode` unit vectors [n, d] of
        their names.
        """
        self._config = config
        self._extract = extract
        self._encode = encode
        self._rows = GrowingRows(torch.empty(0, dim))
        self._nodes: list[int] = []
        self._sessions: dict[str, _Session] = {}
        self._members: dict[str, list[int]] = {}
        self._concept_rows = GrowingRows(torch.empty(0, dim))
        self._concept_nodes: list[int] = []
        self._concept_at: dict[int, int] = {}  # place of a node among the concepts
        self._names: dict[str, int] = {}
        self._node_of: dict[str, int] = {}
        self._pending: dict[str, list[tuple[int, Link]]] = {}

    def restore(
        self,
        atoms: Iterable[tuple[int, Atom]],
        embeddings: Tensor,
        aliases: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Takes in what was linked elsewhere.

        Args:
            atoms: In the order of node numbers.
            embeddings: The rows of their vectors.
            aliases: Names of other concepts, and their node numbers.
        """
        kept: list[int] = []
        for row, (node, atom) in enumerate(atoms):
            if atom.kind == CONCEPT:
                self._remember_concept(atom.text, node, embeddings[row : row + 1], [])
            else:
                kept.append(row)
                self._remember(atom, node)
                self._state_edges(atom, node, [])
        self._rows.append(embeddings[torch.tensor(kept, dtype=torch.int64)])
        for name, node in aliases:
            if node in self._concept_at:
                self._names.setdefault(name, self._concept_at[node])

    @property
    def unresolved(self) -> tuple[int, str | None]:
        """Number of stated edges whose target is not stored, and the first such target.

        May be asked by any thread.
        """
        pending = self._pending.copy()
        return sum(map(len, pending.values())), next(iter(pending), None)

    def knows(self, name: str) -> bool:
        """Whether a name has a concept; may be asked by any thread."""
        return name in self._names

    def link(self, atoms: Sequence[Atom], embeddings: Tensor, first: int) -> Linked:
        """Links new atoms, numbered from `first` on, and their concepts behind them."""
        edges: _Edges = []
        start = len(self._rows)
        windows: list[list[int]] = []
        follows: dict[tuple[int, int], bool] = {}  # pairs of turns: whether they get an edge
        for node, atom in enumerate(atoms, first):
            windows.append([node, *self._remember(atom, node, edges, follows)])
            self._state_edges(atom, node, edges)
        self._rows.append(embeddings)
        blocks = [self._similar(start)]
        names = self._extract([atom.text for atom in atoms]) if self._extract else []
        concepts, vectors, aliases = self._new_concepts(names, first + len(atoms), edges)
        self._tie_concepts(names, windows, edges)
        if edges:
            blocks.append(EdgeBlock.of(*zip(*edges, strict=True)))
        source, target = _ends(pair for pair, new in follows.items() if new)
        weight = DEFAULT_EDGE_WEIGHT[EdgeType.TEMPORAL]
        blocks.append(EdgeBlock.of(source, target, EdgeType.TEMPORAL, weight))
        cut = _ends(pair for pair, new in follows.items() if not new)
        return Linked(concepts, vectors, EdgeBlock.cat(blocks), cut, aliases)

    def _remember(
        self,
        atom: Atom,
        node: int,
        edges: _Edges | None = None,
        follows: dict[tuple[int, int], bool] | None = None,
    ) -> list[int]:
        """Puts an atom into its session; returns the turns before it in its window.

        The nearest comes first. What is derived from other atoms is no turn of the session.
        """
        self._nodes.append(node)
        self._node_of[atom.id] = node
        derived = any(link.type == EdgeType.DERIVED_FROM for link in atom.edges)
        if atom.session is None or derived:
            return []
        session = self._sessions.setdefault(atom.session, _Session())
        place = session.put(node, atom.time)
        if follows is not None:
            around = session.nodes[max(0, place - 1) : place + 2].tolist()
            if len(around) == 3 and not follows.pop((around[0], around[2]), False):
                follows[around[0], around[2]] = False
            follows.update(dict.fromkeys(pairwise(around), True))
        if self._config.cooccurrence:
            self._tie_session(self._members.setdefault(atom.session, []), node, edges)
        return session.nodes[max(0, place - self._config.window + 1) : place].tolist()[::-1]

    def _tie_session(self, members: list[int], node: int, edges: _Edges | None) -> None:
        """Ties an atom to earlier ones of its session, at doubling distances.

        All pairs of a session would be n² edges; these are n log n, and no two atoms of the session
        are more than log n of them apart.
        """
        if edges is not None:
            weight = DEFAULT_EDGE_WEIGHT[EdgeType.COOCCURRENCE]
            for distance in (1 << power for power in range(self._config.cooccurrence)):
                if distance > len(members):
                    break
                edges.append((members[-distance], node, EdgeType.COOCCURRENCE, weight))
        members.append(node)

    def _state_edges(self, atom: Atom, node: int, edges: _Edges) -> None:
        """Edges that the input states; those to an atom that is still to come wait for it."""
        for source, link in self._pending.pop(atom.id, ()):
            edges.append((source, node, link.type, link.strength))
        for link in atom.edges:
            target = self._node_of.get(link.target)
            if target is None:
                self._pending.setdefault(link.target, []).append((node, link))
            else:
                edges.append((node, target, link.type, link.strength))

    def _similar(self, start: int) -> EdgeBlock:
        """From each new atom to the most similar earlier ones."""
        config = self._config
        if config.similarity_k < 1 or start == len(self._rows):
            return EdgeBlock.empty()
        cosine, neighbour = knn_graph(
            self._rows.view, config.similarity_k, start=start, earlier=True
        )
        row, place = (cosine >= config.similarity_min).nonzero(as_tuple=True)
        nodes = torch.tensor(self._nodes, dtype=torch.int64)
        return EdgeBlock.of(
            nodes[start + row],
            nodes[neighbour[row, place]],
            EdgeType.SIMILARITY,
            cosine[row, place],
        )

    def _new_concepts(
        self, names: Sequence[Sequence[str]], first: int, edges: _Edges
    ) -> tuple[list[Atom], Tensor, list[tuple[str, int]]]:
        """Nodes for names that are new and not near a known one (cosine below `concept_dedup`).

        With their vectors, and the nodes of those that are near one.
        """
        fresh = list(dict.fromkeys(n for found in names for n in found if n not in self._names))
        if not fresh:
            return [], torch.empty(0, self._rows.view.shape[1]), []
        vectors = self._encode(fresh)
        alias = self._aliases(vectors)
        atoms: list[Atom] = []
        kept: list[int] = []
        for place, (name, known) in enumerate(zip(fresh, alias.tolist(), strict=True)):
            if known < 0:
                self._remember_concept(name, first + len(atoms), vectors[place : place + 1], edges)
                atoms.append(Atom(id=concept_id(name), text=name, kind=CONCEPT))
                kept.append(place)
        aliases: list[tuple[str, int]] = []
        for name, known in zip(fresh, alias.tolist(), strict=True):
            if known >= 0:
                old = len(self._concept_nodes) - len(atoms)
                concept = known if known < old else self._names[fresh[known - old]]
                self._names[name] = concept
                aliases.append((name, self._concept_nodes[concept]))
        return atoms, vectors[torch.tensor(kept, dtype=torch.int64)], aliases

    def _aliases(self, vectors: Tensor) -> Tensor:  # [n, d] -> [n] int64
        """The known concept that each new one is the same as; else -1.

        An earlier new one counts as (number of known ones + its place).

        As if they came one by one: a name is compared with those that became concepts, not with
        other names of them.
        """
        threshold, known, count = self._config.concept_dedup, len(self._concept_rows), len(vectors)
        best, alias = torch.full((count,), -torch.inf), torch.full((count,), -1, dtype=torch.int64)
        if known:
            value, index = topk_cosine(vectors, self._concept_rows.view, 1)
            near = value[:, 0] >= threshold
            best, alias = best.where(~near, value[:, 0]), alias.where(~near, index[:, 0])
        later, earlier, cosine = _near_pairs(vectors, threshold)
        own = alias < 0
        while True:  # after each turn one more name of every chain is settled
            taken = torch.zeros(count, dtype=torch.bool)
            taken[later[own[earlier]]] = True
            settled = (alias < 0) & ~taken
            if torch.equal(settled, own):
                break
            own = settled
        later, earlier, cosine = (column[own[earlier]] for column in (later, earlier, cosine))
        top = best.scatter_reduce(0, later, cosine, "amax")
        closest = (cosine == top[later]) & (cosine > best[later])
        place = torch.full((count,), count, dtype=torch.int64)
        place = place.scatter_reduce(0, later[closest], earlier[closest], "amin")
        return torch.where(own, -1, torch.where(place < count, known + place, alias))

    def _tie_concepts(
        self,
        names: Sequence[Sequence[str]],
        windows: Sequence[Sequence[int]],
        edges: _Edges,
    ) -> None:
        """Abstraction edges from a window's turns to the concept, associations within an atom."""
        weight = DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION]
        pairs: list[tuple[int, int]] = []
        for found, window in zip(names, windows, strict=False):
            concepts = list(dict.fromkeys(self._names[name] for name in found))
            for concept in concepts:
                for distance, node in enumerate(window):
                    fading = weight * _WINDOW_DECAY**distance
                    target = self._concept_nodes[concept]
                    edges.append((node, target, EdgeType.ABSTRACTION, fading))
            pairs.extend(combinations(concepts, 2))
        if not pairs:
            return
        one, other = torch.tensor(pairs).T
        rows = self._concept_rows.view
        cosine = (rows[one] * rows[other]).sum(1)
        for (a, b), value in zip(pairs, cosine.tolist(), strict=True):
            if value >= self._config.similarity_min:
                ends = self._concept_nodes[a], self._concept_nodes[b]
                edges.append((*ends, EdgeType.ASSOCIATION, value))

    def _remember_concept(self, name: str, node: int, vector: Tensor, edges: _Edges) -> None:
        self._names[name] = self._concept_at[node] = len(self._concept_nodes)
        self._concept_nodes.append(node)
        self._concept_rows.append(vector)
        self._node_of[concept_id(name)] = node
        for source, link in self._pending.pop(concept_id(name), ()):
            edges.append((source, node, link.type, link.strength))


def _ends(pairs: Iterable[tuple[int, int]]) -> Tensor:  # [2, P] int64
    return torch.tensor(list(pairs), dtype=torch.int64).reshape(-1, 2).T


def _near_pairs(vectors: Tensor, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """All pairs of rows of a cosine from `threshold` on: (later row, earlier row, cosine)."""
    height = max(1, _PAIRS // max(1, len(vectors)))
    parts = []
    for start in range(0, len(vectors), height):
        tile = vectors[start : start + height]
        cosine = tile @ vectors[: start + len(tile)].T
        later, earlier = (cosine >= threshold).nonzero(as_tuple=True)
        keep = earlier < later + start
        later, earlier = later[keep], earlier[keep]
        parts.append((later + start, earlier, cosine[later, earlier]))
    later, earlier, cosine = (torch.cat(column) for column in zip(*parts, strict=True))
    return later, earlier, cosine
