"""What becomes of the edges when atoms go, or get another content: as if they never were there.

Linking made the edges of an atom from itself and from what was there before it. So an atom that
goes changes those of others: its neighbours in time become neighbours, the windows of the turns
after it reach further back, and where it was among the most similar another one is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, DEFAULT_EDGE_WEIGHT, Atom, EdgeType
from graphmem_torch.config import LinkConfig
from graphmem_torch.coo import isin_pairs
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.memory.link import Session, is_turn, mention_ties
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.concepts import ConceptExtractor

__all__ = ["Heir", "Removal", "unlink"]

_ASKED = 64  # texts that are searched for a name at once
_TILE = 1 << 24  # cosines at once: 64 MB
_SAME = 1e-4  # by which the cosine of an edge may differ from that of its ends

_Edge = tuple[int, int, int, float | None]  # source, target, type, weight (None: any)


@dataclass(frozen=True, eq=False)
class Heir:
    """A new version of an atom that goes.

    Attributes:
        old, node: Node numbers of the version before and of this one.
        first: That of the first version.
        atom: The new version.
        concepts: Nodes of those concepts that it mentions and that there are.
    """

    old: int
    node: int
    first: int
    atom: Atom
    concepts: Collection[int]


@dataclass(frozen=True, eq=False)
class Removal:
    """What goes with atoms, and what comes in its place.

    Attributes:
        gone: Node numbers, concepts that nothing mentions any more among them.
        names: Names of concepts, other than their own, that nothing mentions any more.
        renamed: Concepts of whose names their own one is mentioned no more, by the one that is.
        cut: Edges between nodes that stay.
        edges: Edges of linking that come.
        moved: Other edges of an atom, as those of its heir.
        window: The turns before the heir in its window.
    """

    gone: list[int]
    names: list[str]
    renamed: dict[int, str]
    cut: EdgeBlock
    edges: EdgeBlock
    moved: EdgeBlock
    window: list[int]


def unlink(
    store: MemoryStore,
    gone: Mapping[int, Atom],
    config: LinkConfig,
    extractor: ConceptExtractor | None,
    heir: Heir | None = None,
) -> Removal:
    """What becomes of the edges of a store that linking filled; in the turn in which it is written.

    Args:
        store: Open for writing.
        gone: The atoms that go, by node number.
        config: How the edges were made.
        extractor: What found the concepts.
        heir: What takes the place of the only one that goes.
    """
    edges = store.edges()
    before, after = _Order(config), _Order(config)
    atoms = [*gone.values(), *([heir.atom] if heir else [])]
    sessions = {atom.session: None for atom in atoms if atom.session is not None}
    for session, turns in store.turns(sessions).items():
        before.add(turns)
        left = [turn for turn in turns if turn[1] not in gone]
        if heir and heir.atom.session == session and is_turn(heir.atom):
            left = sorted([*left, (heir.first, heir.node, heir.atom.time)])
        after.add(left)
    cut, made = before.edges, after.edges
    windows = after.windows
    then = before.windows
    touched = [node for node in windows if then.get(node, windows[node]) != windows[node]]
    mentioned: dict[str, int] = {}
    own: list[list[str]] = []
    if extractor is not None:
        texts = [atom.text for atom in (*gone.values(), *store.atoms(touched))]
        found = extractor.extract(texts)
        own = found[: len(gone)]
        mentioned = store.concepts(list(dict.fromkeys(name for names in found for name in names)))
        for node, names in zip((*gone, *touched), found, strict=True):
            concepts = list(dict.fromkeys(mentioned[n] for n in names if n in mentioned))
            cut.update(_mentions(concepts, [node, *then.get(node, ())]))
            if node in gone:
                kind = int(EdgeType.ASSOCIATION)
                cut.update((one, other, kind, None) for one, other in combinations(concepts, 2))
            else:
                made.update(_mentions(concepts, [node, *windows[node]]))
    same = cut & made
    cut, made = cut - same, made - same
    left_alone = _left_alone(store, edges, gone, heir)
    lost = {*gone, *left_alone}
    moved = EdgeBlock.empty() if heir is None else _moved(store, edges, heir, cut)
    names = list(dict.fromkeys(name for each in own for name in each))
    kept = {name: mentioned[name] for name in names if mentioned.get(name, -1) not in {-1, *lost}}
    unsaid = set(_unmentioned(store, edges, kept, gone, heir, extractor))
    aliases = set(store.alias_names(kept))
    renamed = {
        kept[name]: next(other for other in store.names_of(kept[name]) if other not in unsaid)
        for name in unsaid - aliases
    }
    return Removal(
        [*gone, *left_alone],
        sorted(unsaid & aliases),
        renamed,
        _block(edge for edge in cut.elements() if not lost & set(edge[:2])),
        EdgeBlock.cat([_block(made.elements()), _next_similar(store, edges, gone, config)]),
        moved,
        [] if heir is None else windows.get(heir.node, []),
    )


class _Order:
    """What linking made of the turns of sessions: edges, and the turns before each in its window.

    The nearest comes first; a window holds what was stored before its turn.
    """

    def __init__(self, config: LinkConfig) -> None:
        self._config = config
        self.edges: Counter[_Edge] = Counter()
        self.windows: dict[int, list[int]] = {}

    def add(self, turns: Sequence[tuple[int, int, float | None]]) -> None:
        """Takes in the turns of a session: first version, node number, time, as stored."""
        session, width = Session(), self._config.window - 1
        for first, node, time in turns:
            place = session.put(node, time, first)
            self.windows[node] = session.nodes[max(0, place - width) : place].tolist()[::-1]
        self._tie(EdgeType.TEMPORAL, pairwise(session.nodes))
        nodes = [node for _, node, _ in turns]
        for distance in (1 << power for power in range(self._config.cooccurrence)):
            self._tie(EdgeType.COOCCURRENCE, zip(nodes, nodes[distance:], strict=False))

    def _tie(self, kind: EdgeType, pairs: Iterable[tuple[int, int]]) -> None:
        weight = _rounded(DEFAULT_EDGE_WEIGHT[kind])
        self.edges.update((one, other, int(kind), weight) for one, other in pairs)


def _mentions(concepts: Iterable[int], window: Sequence[int]) -> Iterator[_Edge]:
    for node, concept, weight in mention_ties(concepts, window):
        yield node, concept, int(EdgeType.ABSTRACTION), _rounded(weight)


@cache
def _rounded(weight: float) -> float:
    """As it is stored."""
    return float(torch.tensor(weight, dtype=torch.float32))


def _block(edges: Iterable[_Edge]) -> EdgeBlock:
    rows = [(*edge, torch.nan if weight is None else weight) for *edge, weight in edges]
    return EdgeBlock.of(*zip(*rows, strict=True)) if rows else EdgeBlock.empty()


def _left_alone(
    store: MemoryStore, edges: EdgeBlock, gone: Mapping[int, Atom], heir: Heir | None
) -> list[int]:
    """Concepts that these atoms mention, and nothing else."""
    mentions = _whole_mentions(edges)
    own = _among(mentions.source, gone, store.next_node)
    alone = mentions.target[own].unique()
    alone = alone[~torch.isin(alone, mentions.target[~own])]
    named = () if heir is None else heir.concepts
    nodes = [node for node in alone.tolist() if node not in named]
    return [n for n, a in zip(nodes, store.atoms(nodes), strict=True) if a.kind == CONCEPT]


def _whole_mentions(edges: EdgeBlock) -> EdgeBlock:
    """From turns to what they mention themselves: the turns before them are tied by less."""
    whole = _rounded(DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION])
    return edges.take((edges.type == int(EdgeType.ABSTRACTION)) & (edges.weight == whole))


def _unmentioned(
    store: MemoryStore,
    edges: EdgeBlock,
    names: Mapping[str, int],
    gone: Mapping[int, Atom],
    heir: Heir | None,
    extractor: ConceptExtractor | None,
) -> list[str]:
    """Those names of concepts that stay which no atom mentions but those that go."""
    aliases = set(store.alias_names(names))
    # A concept of one name is mentioned by that.
    asked = [name for name, node in names.items() if name in aliases or store.names_of(node)]
    if not asked or extractor is None:
        return []
    mentions, left = _whole_mentions(edges), []
    said = set(extractor.extract([heir.atom.text])[0]) if heir else set()
    for name in [name for name in asked if name not in said]:
        nodes = mentions.source[mentions.target == names[name]].unique().tolist()
        nodes = [node for node in nodes if node not in gone]
        parts = (nodes[i : i + _ASKED] for i in range(0, len(nodes), _ASKED))
        texts = ([atom.text for atom in store.atoms(part)] for part in parts)
        if not any(name in found for part in texts for found in extractor.extract(part)):
            left.append(name)
    return left


def _next_similar(
    store: MemoryStore, edges: EdgeBlock, gone: Mapping[int, Atom], config: LinkConfig
) -> EdgeBlock:
    """Similarity edges of those that had as many as there may be, and lose one."""
    similar, stop = edges.take(edges.type == int(EdgeType.SIMILARITY)), store.next_node
    lost = _among(similar.target, gone, stop) & ~_among(similar.source, gone, stop)
    held = torch.bincount(similar.source, minlength=stop)
    open_ = similar.source[lost].unique()
    open_ = open_[held[open_] >= config.similarity_k]
    if not len(open_) or config.similarity_k < 1:
        return EdgeBlock.empty()
    node = store.nodes(concepts=False)
    node = node[~_among(node, gone, stop)]
    vectors = store.embeddings()[torch.searchsorted(store.nodes(), node)]
    similar = similar.take(_among(similar.source, open_.tolist(), stop))
    blocks, there = [], torch.stack([similar.source, similar.target])
    for part in torch.searchsorted(node, open_).split(max(1, _TILE // max(1, len(node)))):
        cosine = vectors[part] @ vectors.T
        cosine[torch.arange(len(node)) >= part[:, None]] = -torch.inf  # only earlier ones
        best = cosine.topk(min(config.similarity_k, len(node)), dim=1)
        row, place = (best.values >= config.similarity_min).nonzero(as_tuple=True)
        ends = torch.stack([node[part[row]], node[best.indices[row, place]]])
        fresh = ~isin_pairs(ends, there)
        (source, target), weight = ends[:, fresh], best.values[row, place][fresh]
        blocks.append(EdgeBlock.of(source, target, EdgeType.SIMILARITY, weight))
    return EdgeBlock.cat(blocks)


def _moved(store: MemoryStore, edges: EdgeBlock, heir: Heir, linked: Counter[_Edge]) -> EdgeBlock:
    """What linking did not make of the edges of the old version, as edges of the new one."""
    own = edges.take((edges.source == heir.old) | (edges.target == heir.old))
    columns = zip(*(column.tolist() for column in own.columns), strict=True)
    left = Counter({edge: n for edge, n in linked.items() if heir.old in edge[:2]})
    keep = torch.ones(len(own), dtype=torch.bool)
    for i, edge in enumerate(columns):
        if left[edge] > 0:
            left[edge] -= 1
            keep[i] = False
    own = own.take(keep)
    other = torch.where(own.source == heir.old, own.target, own.source)
    vectors = store.vectors([heir.old, *other.tolist()]).embeddings
    cosine = vectors[1:] @ vectors[0]
    similar = (own.type == int(EdgeType.SIMILARITY)) & ((cosine - own.weight).abs() < _SAME)
    own = own.take(~similar)
    ends = [torch.where(end == heir.old, heir.node, end) for end in (own.source, own.target)]
    return EdgeBlock(ends[0], ends[1], own.type, own.weight)


def _among(values: Tensor, nodes: Iterable[int], stop: int) -> Tensor:  # [n] int64 -> [n] bool
    """Which values are some of the nodes below `stop`."""
    there = torch.zeros(stop, dtype=torch.bool)
    there[torch.tensor(list(nodes), dtype=torch.int64)] = True
    return there[values]
