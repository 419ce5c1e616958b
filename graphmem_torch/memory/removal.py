"""What becomes of the edges when atoms go, or get another content: as if they never were there.

Linking made the edges of an atom from itself and from what was there before it. So an atom that
goes changes those of others: its neighbours in time become neighbours, the windows of the turns
after it reach further back, and where it was among the most similar another one is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from graphmem_torch.text.concepts import ConceptExtractor, names_within, spelled

__all__ = ["Heir", "Removal", "unlink"]

_ASKED = 16  # texts of which it is asked whether they say a name
_READ = 64  # texts that are read at once
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
        names: Those of concepts that it says.
        concepts: Nodes of those concepts that it mentions and that there are.
    """

    old: int
    node: int
    first: int
    atom: Atom
    names: Collection[str]
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
    gone: dict[int, Atom],
    config: LinkConfig,
    extractor: ConceptExtractor | None,
    vectors: Callable[[], tuple[Tensor, Tensor, Tensor]],
    heir: Heir | None = None,
) -> Removal:
    """What becomes of the edges of a store that linking filled; in the turn in which it is written.

    Args:
        store: Open for writing.
        gone: The atoms that go, by node number.
        config: How the edges were made.
        extractor: What found the concepts.
        vectors: Gives the numbers of all atoms but concepts, ascending [n], and the rows of their
            vectors [n, d], and which are there [n].
        heir: What takes the place of the only one that goes.
    """
    edges = store.edges()
    before, after = _Order(config), _Order(config)
    changing = [*gone.values(), *([heir.atom] if heir else [])]
    sessions = {atom.session: None for atom in changing if atom.session is not None}
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
    whole = _whole_mentions(edges)
    left_alone = _left_alone(store, whole, gone, heir)
    lost, unsaid = {*gone, *left_alone}, dict[str, int]()
    if extractor is not None:
        names = _Names(store, whole, extractor)
        read = dict(zip(touched, store.atoms(touched), strict=True))
        concepts_of = names.mentioned({node: a.text for node, a in (gone | read).items()})
        for node, concepts in concepts_of.items():
            cut.update(_mentions(concepts, [node, *then.get(node, ())]))
            if node not in gone:
                made.update(_mentions(concepts, [node, *windows[node]]))
        own = [concepts_of[node] for node in gone]
        cut.update(_associations(edges, own))
        unsaid = names.unsaid(gone, {c for each in own for c in each} - lost, lost, heir)
    same = cut & made
    cut, made = cut - same, made - same
    moved = EdgeBlock.empty() if heir is None else _moved(store, edges, heir, cut)
    aliases = set(store.alias_names(unsaid))
    renamed = dict[int, str]()
    for name in unsaid.keys() - aliases:
        others = [other for other in store.names_of(unsaid[name]) if other not in unsaid]
        renamed |= {unsaid[name]: others[0]} if others else {}  # else another atom states its id
    return Removal(
        [*gone, *left_alone],
        sorted(aliases),
        renamed,
        _block(edge for edge in cut.elements() if not lost & set(edge[:2])),
        EdgeBlock.cat([_block(made.elements()), _next_similar(vectors, edges, gone, config)]),
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
    store: MemoryStore, mentions: EdgeBlock, gone: Mapping[int, Atom], heir: Heir | None
) -> list[int]:
    """Concepts that these atoms mention, and nothing else."""
    own = _among(mentions.source, gone, store.next_node)
    alone = mentions.target[own].unique()
    others = torch.zeros(store.next_node, dtype=torch.bool)
    others[mentions.target[~own]] = True
    alone = alone[~others[alone]]
    named = () if heir is None else heir.concepts
    nodes = [node for node in alone.tolist() if node not in named]
    return [n for n, a in zip(nodes, store.atoms(nodes), strict=True) if a.kind == CONCEPT]


def _whole_mentions(edges: EdgeBlock) -> EdgeBlock:
    """From turns to what they mention themselves: the turns before them are tied by less."""
    whole = _rounded(DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION])
    return edges.take((edges.type == int(EdgeType.ABSTRACTION)) & (edges.weight == whole))


def _associations(edges: EdgeBlock, mentioned: Iterable[Sequence[int]]) -> Iterator[_Edge]:
    """The edges between concepts that atoms mention together, in the direction that is stored."""
    pairs = [pair for concepts in mentioned for pair in combinations(concepts, 2)]
    if not pairs:
        return
    kind = int(EdgeType.ASSOCIATION)
    asked = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    ends, stop = asked.unique().tolist(), 1 + max(int(edges.source.max()), int(edges.target.max()))
    tied = edges.take(edges.type == kind)
    tied = tied.take(_among(tied.source, ends, stop) & _among(tied.target, ends, stop))
    tied = tied.take(isin_pairs(torch.stack([tied.source, tied.target]), asked))
    left = Counter(zip(tied.source.tolist(), tied.target.tolist(), strict=True))
    for one, other in pairs:
        # A concept of another name has its edges behind those of others.
        pair = (one, other) if left[one, other] > 0 else (other, one)
        left[pair] -= 1
        yield *pair, kind, None


class _Names:
    """Which atoms say which names of concepts, by the edges of linking and the letters of texts.

    An atom that mentions a concept says one of its names. What its letters leave open is asked of
    what found the concepts.
    """

    def __init__(self, store: MemoryStore, whole: EdgeBlock, extractor: ConceptExtractor) -> None:
        self._store, self._whole, self._extractor = store, whole, extractor
        self._forms = cache(lambda word: frozenset(map(spelled, extractor.forms(word))))
        self._aliases = {name: node for _, name, node in store.aliases()}
        self._other = defaultdict[int, list[str]](list)
        for name, node in self._aliases.items():
            self._other[node].append(name)
        self._own: dict[int, str] = {}

    def mentioned(self, texts: Mapping[int, str]) -> dict[int, list[int]]:
        """The concepts that atoms mention, given their texts by node number."""
        found: dict[int, list[int]] = {node: [] for node in texts}
        ties = self._whole.take(_among(self._whole.source, texts, self._store.next_node))
        for node, concept in zip(ties.source.tolist(), ties.target.tolist(), strict=True):
            found[node].append(concept)
        self._learn({concept for each in found.values() for concept in each})
        return {
            node: self._meant(spelled(text), dict.fromkeys(found[node]))
            for node, text in texts.items()
        }

    def unsaid(
        self,
        gone: Mapping[int, Atom],
        concepts: Iterable[int],
        lost: Collection[int],
        heir: Heir | None,
    ) -> dict[str, int]:
        """Names that no atom says but those that go, with their concepts.

        Args:
            gone: The atoms that go.
            concepts: What these mention of what stays.
            lost: Nodes that go.
            heir: What comes.
        """
        texts = [atom.text for atom in gone.values()]
        bodies = [spelled(text) for text in texts]
        every = "".join(bodies)
        heard = self._within(every, self._aliases)
        asked = {node for node in concepts if node in self._other}
        asked |= {self._aliases[name] for name in heard} - {*lost}
        if not asked:
            return {}
        self._learn(asked)
        said = () if heir is None else heir.names
        ties = self._whole.take(_among(self._whole.target, asked, self._store.next_node))
        sayers: dict[int, dict[int, None]] = {node: {} for node in asked}
        for node, concept in zip(ties.source.tolist(), ties.target.tolist(), strict=True):
            if node not in gone:
                sayers[concept][node] = None
        open_ = dict[tuple[str, int], list[str]]()
        for node in asked:
            names = {
                name
                for name in self._within(every, self._of(node))
                if any(self._within(body, [name]) for body in bodies)
            }
            found = self._open(list(sayers[node]), node, names.difference(said))
            open_ |= {(name, node): others for name, others in found.items()}
        # Their letters are there; whether they were said is asked only now.
        names = {name for name, _ in open_}
        own = [t for t, body in zip(texts, bodies, strict=True) if self._within(body, names)]
        told = {name for found in self._extractor.extract(own) for name in found}
        return {
            name: node
            for (name, node), others in open_.items()
            if name in told and not self._is_said(others, name)
        }

    def _open(
        self, nodes: Sequence[int], concept: int, names: Collection[str]
    ) -> dict[str, list[str]]:
        """Those names of a concept that it is not plain are said, and the texts that may do so.

        Of very many that spell a name one is taken to say it.

        Args:
            nodes: The atoms that mention the concept.
            concept: Its number.
            names: Some of its names.
        """
        open_: dict[str, list[str]] = {name: [] for name in names}
        for first in range(0, len(nodes), _READ):
            if not open_:
                break
            marks = [mark for name in open_ for mark in self._marks(name)]
            for text in self._store.texts_of(nodes[first : first + _READ]):
                lower = text.lower()
                if not any(mark in lower for mark in marks):
                    continue
                within = self._within(spelled(text), self._of(concept))
                for name in within:
                    if name in open_:
                        open_[name].append(text)
                        if len(within) == 1 or len(open_[name]) > _ASKED:
                            del open_[name]
        return open_

    def _marks(self, name: str) -> list[str]:
        """Letters of which a text has some that may say a name."""
        forms = self._forms(max(name.split(), key=len, default=""))
        return [max(form.split(), key=len, default="") for form in forms]

    def _is_said(self, texts: list[str], name: str) -> bool:
        """Whether one of the texts says a name."""
        return any(name in found for found in self._extractor.extract(texts))

    def _meant(self, body: str, concepts: Iterable[int]) -> list[int]:
        """Those concepts of which a text, `spelled`, has a name."""
        return [node for node in concepts if self._within(body, self._of(node))]

    def _learn(self, concepts: Iterable[int]) -> None:
        fresh = [node for node in concepts if node not in self._own]
        for node, atom in zip(fresh, self._store.atoms(fresh), strict=True):
            self._own[node] = atom.text if atom.kind == CONCEPT else ""

    def _of(self, concept: int) -> list[str]:
        """All names of a concept, none of another node."""
        return [name for name in (self._own[concept], *self._other.get(concept, ())) if name]

    def _within(self, body: str, names: Iterable[str]) -> list[str]:
        return names_within(body, names, self._forms)


def _next_similar(
    vectors: Callable[[], tuple[Tensor, Tensor, Tensor]],
    edges: EdgeBlock,
    gone: Mapping[int, Atom],
    config: LinkConfig,
) -> EdgeBlock:
    """Similarity edges of those that had as many as there may be, and lose one."""
    similar = edges.take(edges.type == int(EdgeType.SIMILARITY))
    stop = 1 + int(max([*gone, *(int(end.max()) for end in similar.columns[:2] if len(end))]))
    lost = _among(similar.target, gone, stop) & ~_among(similar.source, gone, stop)
    open_ = similar.source[lost].unique()
    similar = similar.take(_among(similar.source, open_.tolist(), stop))
    held = torch.bincount(similar.source, minlength=stop)
    open_ = open_[held[open_] >= config.similarity_k]
    if not len(open_) or config.similarity_k < 1:
        return EdgeBlock.empty()
    node, rows, live = vectors()
    dead = ~live | _among(node, gone, max(stop, 1 + int(node[-1])))
    blocks, there = [], torch.stack([similar.source, similar.target])
    for part in torch.searchsorted(node, open_).split(max(1, _TILE // max(1, len(node)))):
        cosine = rows[part] @ rows[: int(part[-1])].T
        cosine[:, dead[: cosine.shape[1]].nonzero().squeeze(1)] = -torch.inf
        for own, first in zip(cosine, part.tolist(), strict=True):
            own[first:] = -torch.inf  # only earlier ones
        best = cosine.topk(min(config.similarity_k, cosine.shape[1]), dim=1)
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
