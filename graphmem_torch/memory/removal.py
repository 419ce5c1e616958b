"""Removal: the graph after atoms are deleted or changed, as if they had never been there.

Linking derives the edges of an atom from it and from earlier atoms. So a deletion changes edges of
others: neighbours in time become adjacent, windows of later turns reach further back, and atoms
that lose one of their most similar ones gain another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, DEFAULT_EDGE_WEIGHT, Atom, EdgeType
from graphmem_torch.config import LinkConfig
from graphmem_torch.coo import isin, isin_pairs
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.memory.link import Linker
from graphmem_torch.memory.mentions import concept_id, mention_ties, own_mentions
from graphmem_torch.memory.names import ConceptNames, Renaming, among
from graphmem_torch.memory.session_turns import WINDOW_TURNS, Session, is_turn
from graphmem_torch.ops.tiles import empty_best, merge_tile
from graphmem_torch.ops.topk_cosine import tile_scores
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.adjacency import Adjacency
from graphmem_torch.text.concepts import ConceptExtractor

__all__ = ["NewVersion", "Removal", "unlink"]

_TILE = 1 << 20  # cosines in a batch: 4 MB, which fits a cache
_TOGETHER = 256  # atoms whose cosines are computed in a batch
_SAME = 1e-4  # maximum difference of an edge's weight and the cosine of its ends

_Edge = tuple[int, int, int, float | None]  # source, target, type, weight (None: any)
_Turn = tuple[int, int, float | None]  # number of the first version, node number, time


@dataclass(frozen=True, eq=False)
class NewVersion:
    """New version of a deleted atom.

    Attributes:
        old, node: Node numbers of the previous version and of this one.
        first: Node number of the first version.
        atom: New version.
        names: Names of concepts that it says.
        concepts: Nodes of the existing concepts that it mentions.
    """

    old: int
    node: int
    first: int
    atom: Atom
    names: Sequence[str]
    concepts: Collection[int]


@dataclass(frozen=True, eq=False)
class Removal:
    """Changes of the graph when atoms are deleted.

    Attributes:
        gone: Deleted node numbers, with those of concepts that nothing mentions or names any more.
        names: Names of concepts that nothing mentions any more, or that change their concept.
        concepts: New concepts, numbered from `first` on.
        embeddings: [c, d], their vectors.
        first: Node number of the first.
        aliases: Names, other than own names, that change their concept, with its node.
        alias_embeddings: [a, d], vectors of these names.
        cut: Deleted edges between nodes that stay.
        edges: New edges of linking.
        moved: Other edges of a deleted atom or concept, moved to its replacement.
        window: Turns before the heir in its window.
    """

    gone: list[int]
    names: list[str]
    concepts: list[Atom]
    embeddings: Tensor
    first: int
    aliases: list[tuple[str, int]]
    alias_embeddings: Tensor
    cut: EdgeBlock
    edges: EdgeBlock
    moved: EdgeBlock
    window: list[int]

    @classmethod
    def nothing(cls, first: int, dim: int) -> Removal:
        """Return the removal of nothing, with vectors of width `dim`."""
        none, edges = torch.empty(0, dim), EdgeBlock.empty()
        return cls([], [], [], none, first, [], none, edges, edges, edges, [])


def unlink(
    store: MemoryStore,
    gone: dict[int, Atom],
    config: LinkConfig,
    extractor: ConceptExtractor | None,
    linker: Linker,
    others: Callable[[list[str]], Tensor],
    heir: NewVersion | None = None,
    waiting: Collection[int] = (),
    changed: Sequence[str] = (),
    first: int | None = None,
) -> Removal:
    """Return the changes of edges that a deletion causes in a linked store; in the turn of writing.

    Without deleted atoms, only names that have `changed` are decided again.

    Args:
        store: Store, open for writing.
        gone: Deleted atoms, by node number.
        config: Settings that the edges were made with.
        extractor: Finder of the concepts.
        linker: Linker that knows what is stored.
        others: Function that returns the vectors [n, d] of names that are not own names.
        heir: New version of the only deleted atom.
        waiting: Atoms whose concepts are not linked yet.
        changed: Names that are near to other names than before.
        first: Node number of the first new concept, by default the next one after the heir.
    """
    near = store.adjacency()
    before, after = _Order(config), _Order(config)
    changing = [*gone.values(), *([heir.atom] if heir else [])]
    sessions = {atom.session: None for atom in changing if atom.session is not None}
    for session, turns in store.turns(sessions).items():
        fresh: list[_Turn] = []
        if heir and heir.atom.session == session and is_turn(heir.atom):
            fresh = [(heir.first, heir.node, heir.atom.time)]
        for run, lead in [(turns, 0)] if fresh else _runs(turns, gone, config):
            before.add(run, lead=lead)
            left = [turn for turn in run if turn[1] not in gone]
            after.add(sorted([*left, *fresh]), lead=lead)
    cut, made = before.edges, after.edges
    windows = after.windows
    then = before.windows
    touched = [node for node in windows if then.get(node, windows[node]) != windows[node]]
    left_alone = _left_alone(store, near, gone, heir)
    lost, moved = {*gone, *left_alone}, list[EdgeBlock]()
    if first is None:
        first = store.next_node if heir is None else heir.node + 1
    renamed = _Renamed(store, first)
    if extractor is not None:
        new = None if heir is None else (heir.node, heir.names)
        texts = {node: atom.whole for node, atom in gone.items() if node not in waiting}
        known = ConceptNames(store, near, linker, extractor, texts, new)
        own = known.mentioned(texts)
        limit = linker.cosines.same
        renamed = _Renamed(store, first, known.without(own, lost, limit, others, changed))
        lost |= renamed.ended.keys()
        said = renamed.said
        _add_windows(store, said.keys() - windows.keys(), config, then, windows)
        read = [node for node in touched if node not in said and node not in waiting]
        texts = {n: a.whole for n, a in zip(read, store.atoms(read), strict=True)}
        for node, concepts in (own | known.mentioned(texts)).items():
            cut.update(_mentions(concepts, [node, *then.get(node, ())]))
            if node not in gone:
                made.update(_mentions(concepts, [node, *windows[node]]))
        joined = Counter[tuple[int, int]]()
        for node, (old, concepts) in said.items():
            cut.update(_mentions(old, [node, *then.get(node, ())]))
            made.update(_mentions(concepts, [node, *windows.get(node, ())]))
            joined.update(combinations(concepts, 2))
            joined.subtract(combinations(old, 2))
        cut.update(_associations(near, own, (-joined).elements(), known))
        made.update(renamed.associations((+joined).elements(), linker))
    same = cut & made
    cut, made = cut - same, made - same
    if renamed.ended:
        moved.append(renamed.moved(near, cut, {*gone, *left_alone}))
    if heir is not None:
        moved.append(renamed.led(_moved(store, near, heir, cut), {*left_alone}))
    return Removal(
        gone=[*gone, *left_alone, *renamed.ended],
        names=renamed.names,
        concepts=renamed.concepts,
        embeddings=renamed.embeddings,
        first=renamed.first,
        aliases=renamed.aliases,
        alias_embeddings=renamed.alias_embeddings,
        cut=_block(edge for edge in cut.elements() if not lost & set(edge[:2])),
        edges=EdgeBlock.cat([_block(made.elements()), _next_similar(linker, near, gone, config)]),
        moved=EdgeBlock.cat(moved),
        window=[] if heir is None else windows.get(heir.node, []),
    )


class _Renamed:
    """Concepts under other names, and where edges lead now; empty without a `Renaming`.

    Attributes:
        ended: Concepts that are deleted, with those that replace them.
        names: Names that are deleted, or change their concept.
        concepts, embeddings, first: New concepts, their vectors, and the number of the first.
        aliases, alias_embeddings: Names that change their concept, with it, and their vectors.
        said: Atoms that say such a name, with the concepts that they mention before and after, in
            the order of their texts.
    """

    def __init__(self, store: MemoryStore, first: int, found: Renaming | None = None) -> None:
        self.first = first
        self._store, none = store, torch.empty(0, store.dim or 0)
        joined = {} if found is None else found.joined
        made = [name for name, own in joined.items() if name == own]
        self.concepts = [Atom(id=concept_id(name), text=name, kind=CONCEPT) for name in made]
        node = {name: self.first + i for i, name in enumerate(made)}
        owners = [own for own in {*joined.values()} if own not in node]
        node |= store.concepts(owners)
        now = {name: node[own] for name, own in joined.items()}
        self.aliases = [(name, now[name]) for name, own in joined.items() if name != own]
        self.embeddings = self.alias_embeddings = none
        self.ended, self.names, self.said = dict[int, int](), list[str](), {}
        if found is None:
            return
        if made:
            self.embeddings = torch.stack([found.vectors[name] for name in made])
        if self.aliases:
            self.alias_embeddings = torch.stack([found.vectors[name] for name, _ in self.aliases])
        self.names = [*found.unsaid, *joined]
        self.ended = {concept: node[own] for concept, own in found.ended.items()}
        for atom, names in found.said.items():
            old = [found.concepts[name] for name in names if name in found.concepts]
            new = [now.get(n, found.concepts.get(n, -1)) for n in names]
            self.said[atom] = list(dict.fromkeys(old)), [n for n in dict.fromkeys(new) if n >= 0]

    def associations(self, pairs: Iterable[tuple[int, int]], linker: Linker) -> Iterator[_Edge]:
        """Return edges between concepts of similar names; the linker has old ones."""
        asked = list(pairs)
        if not asked:
            return
        ends = torch.tensor(asked).T
        nodes, place = ends.unique(return_inverse=True)
        new = nodes >= self.first
        known = _numbers(linker.concept_row(node) for node in nodes[~new].tolist())
        rows = linker.concepts()[1][known]
        rows = torch.cat([rows, self.embeddings[nodes[new] - self.first]])
        cosine = (rows[place[0]] * rows[place[1]]).sum(1)
        for (one, other), value in zip(asked, cosine.tolist(), strict=True):
            if value >= linker.cosines.associated:
                yield one, other, int(EdgeType.ASSOCIATION), value

    def moved(self, near: Adjacency, linked: Counter[_Edge], lost: Collection[int]) -> EdgeBlock:
        """Return edges of deleted concepts that linking did not make, moved to replacements."""
        edges, stop = near.touching(_numbers(self.ended)), self._store.next_node
        own = ~(among(edges.source, lost, stop) | among(edges.target, lost, stop))
        left = _without(edges.take(own), linked)
        for kind in (EdgeType(number) for number in left.type.unique().tolist()):
            # Stated edges wait for an atom of that id.
            stated = isin_pairs(torch.stack(left.columns[:2]), self._store.stated(kind))
            stated &= among(left.target, self.ended, stop)
            left = left.take(~(stated & (left.type == int(kind))))
        return self.led(_without_cosines(self._store, left, EdgeType.ASSOCIATION), lost)

    def led(self, edges: EdgeBlock, lost: Collection[int]) -> EdgeBlock:
        """Return edges redirected to what is there from now on; drops those of lost nodes."""
        if not len(edges):
            return edges
        node = torch.arange(1 + max(int(edges.source.max()), int(edges.target.max())))
        for old, new in self.ended.items():
            node[old:][:1] = new
        for old in lost:
            node[old:][:1] = -1
        ends = node[edges.source], node[edges.target]
        kept = (ends[0] >= 0) & (ends[1] >= 0)
        return EdgeBlock(*ends, edges.type, edges.weight).take(kept)


def _add_windows(
    store: MemoryStore,
    nodes: Collection[int],
    config: LinkConfig,
    *windows: dict[int, list[int]],
) -> None:
    """Add the windows of some turns as they were."""
    found = {atom.session: None for atom in store.atoms(list(nodes)) if atom.session is not None}
    for turns in store.turns(found).values():
        order = _Order(config)
        order.add(turns, tie=False)
        own = {node: window for node, window in order.windows.items() if node in nodes}
        for each in windows:
            each |= own


def _runs(
    turns: Sequence[_Turn], gone: Collection[int], config: LinkConfig
) -> Iterator[tuple[Sequence[_Turn], int]]:
    """Yield the runs of a session in which linking reaches across deleted turns.

    Each has its turns, and the number of leading ones whose own windows begin earlier. If times
    are not in the order of storing, all turns are one run: any turn may move another.
    """
    if not _in_order(turns):
        yield turns, 0
        return
    width = WINDOW_TURNS - 1
    reach = max(1, width, (1 << config.cooccurrence) >> 1)
    lost = [i for i, (_, node, _) in enumerate(turns) if node in gone]
    kept = [i for i, (_, node, _) in enumerate(turns) if node not in gone]
    ends: list[list[int]] = []
    for number, at in enumerate(lost):
        there = at - number  # remaining turns before it
        start = kept[there - reach] if there > reach else 0
        stop = 1 + max([at, *kept[there : there + reach]])
        if ends and start <= ends[-1][1]:
            ends[-1][1] = max(stop, ends[-1][1])
        else:
            ends.append([start, stop])
    for start, stop in ends:
        yield turns[start:stop], width if start else 0


def _in_order(turns: Sequence[_Turn]) -> bool:
    """Return whether the times of turns are in the order of storing."""
    times = [time for _, _, time in turns if time is not None]
    return all(time <= later for time, later in pairwise(times))


class _Order:
    """Edges and windows that linking makes of the turns of sessions.

    A window holds the turns stored before its own, the nearest first.
    """

    def __init__(self, config: LinkConfig) -> None:
        self._config = config
        self.edges: Counter[_Edge] = Counter()
        self.windows: dict[int, list[int]] = {}

    def add(self, turns: Sequence[_Turn], *, lead: int = 0, tie: bool = True) -> None:
        """Add turns of a session, in the order of storing.

        The first `lead` get no windows. Without `tie` no edges are made.
        """
        nodes, width = [node for _, node, _ in turns], WINDOW_TURNS - 1
        line: Sequence[int] = nodes
        if _in_order(turns):
            for place in range(lead, len(line)):
                self.windows[line[place]] = nodes[max(0, place - width) : place][::-1]
        else:
            session = Session()
            for number, (first, node, time) in enumerate(turns):
                place = session.put(node, time, first)
                if number >= lead:
                    before = session.nodes[max(0, place - width) : place]
                    self.windows[node] = before.tolist()[::-1]
            line = session.nodes
        if not tie:
            return
        self._tie(EdgeType.TEMPORAL, pairwise(line))
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
    """Return a weight as it is stored."""
    return float(torch.tensor(weight, dtype=torch.float32))


def _block(edges: Iterable[_Edge]) -> EdgeBlock:
    rows = [(*edge, torch.nan if weight is None else weight) for *edge, weight in edges]
    return EdgeBlock.of(*zip(*rows, strict=True)) if rows else EdgeBlock.empty()


def _left_alone(
    store: MemoryStore, near: Adjacency, gone: Mapping[int, Atom], heir: NewVersion | None
) -> list[int]:
    """Return the concepts that only these atoms mention."""
    mentions = near.edges(_numbers(gone), "source")
    mentions = mentions.take(own_mentions(mentions))
    others = near.edges(mentions.target, "target")
    others = others.take(own_mentions(others))
    alone = torch.zeros(store.next_node, dtype=torch.bool)
    alone[mentions.target] = True
    alone[others.target[~among(others.source, gone, store.next_node)]] = False
    named = () if heir is None else heir.concepts
    nodes = [node for node in alone.nonzero().flatten().tolist() if node not in named]
    return [n for n, a in zip(nodes, store.atoms(nodes), strict=True) if a.kind == CONCEPT]


def _numbers(nodes: Iterable[int]) -> Tensor:  # [n] int64
    return torch.tensor([*nodes], dtype=torch.int64)


def _associations(
    near: Adjacency,
    mentioned: Mapping[int, Sequence[int]],
    others: Iterable[tuple[int, int]],
    names: ConceptNames,
) -> Iterator[_Edge]:
    """Yield the edges between concepts that atoms mention together, in the stored direction.

    Args:
        near: Stored edges.
        mentioned: Concepts that the deleted atoms mention.
        others: More pairs of concepts, in the order of the texts that mention both.
        names: Names of concepts, which give the order in the texts of atoms.
    """
    of_atoms = {node: [*combinations(concepts, 2)] for node, concepts in mentioned.items()}
    pairs = [*others]
    every = [*pairs, *(pair for own in of_atoms.values() for pair in own)]
    if not every:
        return
    kind = int(EdgeType.ASSOCIATION)
    asked = torch.tensor(every, dtype=torch.int64).T
    ends = asked.unique()
    tied = near.edges(ends, "source")
    tied = tied.take((tied.type == kind) & isin(tied.target, ends))
    asked = torch.cat([asked, asked.flip(0)], dim=1)
    tied = tied.take(isin_pairs(torch.stack([tied.source, tied.target]), asked))
    left = Counter(zip(tied.source.tolist(), tied.target.tolist(), strict=True))
    for node, own in of_atoms.items():
        both = any(left[one, other] and left[other, one] for one, other in own)
        pairs += combinations(names.in_order(node, mentioned[node]), 2) if both else own
    for one, other in pairs:
        # The edges of a renamed concept follow those of others.
        pair = (one, other) if left[one, other] > 0 else (other, one)
        left[pair] -= 1
        yield *pair, kind, None


def _next_similar(
    linker: Linker,
    near: Adjacency,
    gone: Mapping[int, Atom],
    config: LinkConfig,
) -> EdgeBlock:
    """Return new similarity edges of atoms that had the maximum number and lose one."""
    lost = _similar(near.edges(_numbers(gone), "target"))
    open_ = lost.source[~isin(lost.source, _numbers(gone))].unique()
    similar = _similar(near.edges(open_, "source"))
    open_, held = similar.source.unique(return_counts=True)
    open_ = open_[held >= config.similarity_k]
    if not len(open_) or config.similarity_k < 1:
        return EdgeBlock.empty()
    node, rows, live = linker.rows()
    dead = (~live | isin(node, _numbers(gone))).nonzero().squeeze(1)
    asking = torch.searchsorted(node, open_)
    best, found = empty_best(len(asking), config.similarity_k, rows.device)
    buffer = torch.empty(_TILE)
    for part, *kept in zip(*(each.split(_TOGETHER) for each in (asking, best, found)), strict=True):
        width = _TILE // len(part)
        for first in range(0, int(part[-1]), width):
            own = slice(int(torch.searchsorted(part, first, right=True)), None)
            last = min(first + width, int(part[-1]))
            cosine = tile_scores(rows[part[own]], rows[first:last], buffer)
            cosine.index_fill_(1, dead[(dead >= first) & (dead < last)] - first, -torch.inf)
            some = part[own][: int(torch.searchsorted(part[own], last))]
            later = torch.arange(first, last) >= some[:, None]
            cosine[: len(some)].masked_fill_(later, -torch.inf)  # only earlier atoms
            merge_tile(kept[0][own], kept[1][own], cosine, first, finite=True)
    row, place = (best >= config.min_similarity).nonzero(as_tuple=True)
    ends = node[asking[row]], node[found[row, place]]
    edges = EdgeBlock.of(*ends, EdgeType.SIMILARITY, best[row, place])
    there = torch.stack([similar.source, similar.target])
    return edges.take(~isin_pairs(torch.stack([edges.source, edges.target]), there))


def _similar(edges: EdgeBlock) -> EdgeBlock:
    return edges.take(edges.type == int(EdgeType.SIMILARITY))


def _moved(
    store: MemoryStore, near: Adjacency, heir: NewVersion, linked: Counter[_Edge]
) -> EdgeBlock:
    """Return the edges of the old version that linking did not make, moved to the new one."""
    own = near.touching(_numbers([heir.old]))
    own = _without_cosines(store, _without(own, linked), EdgeType.SIMILARITY)
    ends = [torch.where(end == heir.old, heir.node, end) for end in (own.source, own.target)]
    return EdgeBlock(ends[0], ends[1], own.type, own.weight)


def _without(edges: EdgeBlock, linked: Counter[_Edge]) -> EdgeBlock:
    """Return the edges without those that linking made, as often as it made them."""
    left, keep = Counter[_Edge](), torch.ones(len(edges), dtype=torch.bool)
    columns = zip(*(column.tolist() for column in edges.columns), strict=True)
    for i, edge in enumerate(columns):
        left[edge] += 1
        keep[i] = left[edge] > linked[edge]
    return edges.take(keep)


def _without_cosines(store: MemoryStore, edges: EdgeBlock, kind: EdgeType) -> EdgeBlock:
    """Return the edges without those of a type whose weight is the cosine of their ends."""
    nodes, place = torch.stack(edges.columns[:2]).unique(return_inverse=True)
    rows = store.vectors(nodes.tolist(), tokens=False).embeddings
    cosine = (rows[place[0]] * rows[place[1]]).sum(1)
    return edges.take(~((edges.type == int(kind)) & ((cosine - edges.weight).abs() < _SAME)))
