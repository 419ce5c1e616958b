"""Write edges between stored atoms: stated by callers or judged by an oracle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT, MAX_EDGE_WEIGHT, RESEMBLING, Atom, EdgeType, Link
from graphmem_torch.checks import check_count, check_range
from graphmem_torch.config import LinkConfig
from graphmem_torch.coo import edge_keys, strongest_of_equal
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.memory.lookup import NamedEdge, nodes_of
from graphmem_torch.memory.similarity import SimilarRows
from graphmem_torch.oracle import Judge, Verdict, ask_judge
from graphmem_torch.readers.jsonl import parse_edge_type
from graphmem_torch.results import Added
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.tensor_reader import TensorReader

__all__ = [
    "JudgedEdges",
    "checked_pairs",
    "connect_all",
    "contradiction",
    "dated",
    "disconnect",
    "given_edges",
    "judge_pairs",
    "similar_ids",
    "similar_pairs",
    "told_since",
    "unlinked_edges",
]

_LEAST = torch.finfo(torch.float32).tiny  # a smaller weight would be stored as 0
_JUDGED = 64  # pairs of a call and a transaction, lost if the oracle fails
_FORM = "(source, target), (source, target, type), (source, target, type, weight) or (source, Link)"


def _stated_edge(value: Any) -> tuple[str, Link]:
    """Return the source and link of a caller's edge, checked without the store.

    The type gives the sign: a contradiction is stored negative whatever the sign of its weight
    (`Link.strength`). Every other type needs a positive weight.

    Raises:
        InputError: Another form, an unknown type (naming the nearest), a self-loop, or a weight
            that is not finite, 0, negative or too large.
    """
    parts = tuple(value) if isinstance(value, (tuple, list)) else ()
    if len(parts) == 2 and isinstance(parts[1], Link):
        parts = (parts[0], parts[1].target, parts[1].type, parts[1].weight)
    if not 2 <= len(parts) <= 4 or not all(isinstance(end, str) for end in parts[:2]):
        raise InputError(f"edge: expected {_FORM} with ids of atoms, got {value!r:.120}")
    source, target = parts[:2]
    kind = EdgeType.RELATED_TO if len(parts) < 3 else _edge_type(parts[2])
    weight = parts[3] if len(parts) == 4 else None
    if source == target:
        raise InputError(f"edge: expected two different atoms, got {source!r} twice; leave it out")
    if weight is None:
        return source, Link(target, kind)
    number = isinstance(weight, (int, float, Real)) and not isinstance(weight, bool)
    if not number or not _LEAST <= abs(weight) <= MAX_EDGE_WEIGHT:
        raise InputError(
            f"weight: expected a finite number, not 0 and at most {MAX_EDGE_WEIGHT:g} in size, got "
            f"{weight!r:.60}; leave it out for the default of the type"
        )
    if weight < 0 and kind != EdgeType.CONTRADICTS:
        raise InputError(
            f"weight: expected a positive weight for the type {kind.name.lower()!r}, got {weight}; "
            "what two atoms conflict in is an edge of the type 'contradicts'"
        )
    return source, Link(target, kind, float(weight))


def _edge_type(value: object) -> EdgeType:
    return value if isinstance(value, EdgeType) else parse_edge_type(value)


def given_edges(
    source: str | Iterable[Any], target: str | None, type: Any, weight: float | None
) -> list[tuple[str, Link]]:
    """Return what `GraphEdits.connect` is given as sources and links, checked without the store.

    Raises:
        InputError: Not an edge of these forms (`_stated_edge`).
    """
    if isinstance(source, str):
        return [_stated_edge((source, target, type, weight))]
    if target is not None or weight is not None or type != EdgeType.RELATED_TO:
        raise InputError(
            "target, type, weight: expected none beside many edges; write them into each edge"
        )
    return _stated_edges(source)


def _stated_edges(values: Iterable[Any]) -> list[tuple[str, Link]]:
    if not isinstance(values, Iterable):
        raise InputError(f"edges: expected {_FORM}, or an iterable of these, got {values!r:.80}")
    return [_stated_edge(value) for value in values]


def connect_all(
    store: MemoryStore, values: Iterable[Any], *, hidden: Collection[int] | None = ()
) -> Added:
    """Store edges of the forms that `GraphEdits.connect` takes in one transaction: all, or none.

    The strongest edge of each (source, target, type) counts, as in `Graph.from_edges`: an edge no
    stronger than the stored one is skipped.

    Raises:
        InputError: Not an edge of these forms (`_stated_edge`), an id that is not stored, or one of
            `hidden`, as in `nodes_of`.
        StoreError: Read-only store or full disk; nothing is stored then.
    """
    edges = _stated_edges(values)
    if not edges:
        return Added(0, 0)
    with store.turn():  # so that no end is deleted meanwhile
        ends = [end for source, link in edges for end in (source, link.target)]
        node = nodes_of(store, ends, hidden=hidden)
        asked = EdgeBlock.of(
            [node[source] for source, _ in edges],
            [node[link.target] for _, link in edges],
            [int(link.type) for _, link in edges],
            [link.strength for _, link in edges],
        )
        fresh = _stronger(asked, store.edges())
        if len(fresh):
            vectors = torch.empty(0, store.dim or 0)
            store.append(Batch(atoms=[], embeddings=vectors, connected=fresh))
    return Added(len(fresh), len(asked) - len(fresh))


def disconnect(store: MemoryStore, source: str, target: str, kind: str | EdgeType | None) -> int:
    """Delete the edges from one atom to another, of one type or all; returns their number.

    Raises:
        InputError: An id is not stored, or the type is unknown.
    """
    wanted = None if kind is None else int(_edge_type(kind))
    node = nodes_of(store, [source, target])

    def keep(edges: EdgeBlock) -> Tensor:
        gone = (edges.source == node[source]) & (edges.target == node[target])
        return ~gone if wanted is None else ~(gone & (edges.type == wanted))

    return store.remove_edges(keep)


def told_since(store: StoreReader, ids: Iterable[str]) -> dict[str, float | None]:
    """Return when stored atoms got their content: their time, or that of the last change.

    None for unknown times; these atoms are in no answer at a moment.
    """
    known = store.known(list(dict.fromkeys(ids)))
    nodes = [node for node, _ in known.values()]
    begun = store.begun(nodes)
    return {
        atom.id: None if atom.time is None else max(atom.time, begun.get(node, atom.time))
        for node, atom in zip(nodes, store.atoms(nodes), strict=True)
    }


def dated(store: StoreReader, made: Sequence[Atom]) -> list[Atom]:
    """Return derived atoms with the time since which their sources had all this content.

    A moment must not see later content. The time is unknown if that of a source is.
    """
    since = told_since(store, (link.target for atom in made for link in atom.edges))
    found = []
    for atom in made:
        times = [since.get(link.target) for link in atom.edges]
        known = [time for time in times if time is not None]
        found.append(replace(atom, time=max(known) if known and len(known) == len(times) else None))
    return found


def _stronger(asked: EdgeBlock, stored: EdgeBlock) -> EdgeBlock:
    """Return the strongest edge asked for each (source, target, type), if stronger than stored."""
    ends = (asked.source, asked.target, stored.source, stored.target)
    nodes = 1 + int(torch.cat(ends).max())
    asking = torch.zeros(nodes, dtype=torch.bool)
    asking[asked.source] = True
    near = asking[stored.source]  # other edges cannot match
    stored = stored.take(near)
    both = EdgeBlock.cat([stored, asked])
    key, order = edge_keys(both.source, both.target, both.type, nodes).sort(stable=True)
    chosen = strongest_of_equal(key, order, both.weight).sort().values - len(stored)
    return asked.take(chosen[chosen >= 0])


@dataclass(frozen=True, slots=True)
class JudgedEdges:
    """Result of `GraphEdits.judge`.

    Attributes:
        entailed, contradicted, neutral: Number of pairs by verdict.
        failed: Number of pairs without a usable verdict; they got no edge and can be asked again.
        new: Number of edges stored.
        known: Number of edges that existed with at least this strength.
    """

    entailed: int = 0
    contradicted: int = 0
    neutral: int = 0
    failed: int = 0
    new: int = 0
    known: int = 0

    @property
    def judged(self) -> int:
        """Number of pairs judged so far."""
        return self.entailed + self.contradicted + self.neutral + self.failed

    def __add__(self, other: JudgedEdges) -> JudgedEdges:
        """Add the counts of two calls."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return JudgedEdges(*(one + more for one, more in pairs))


def judge_pairs(
    store: MemoryStore, judge: Judge, pairs: Sequence[tuple[str, str]]
) -> Iterator[JudgedEdges]:
    """Judge pairs (premise, hypothesis) of atom ids; yields the count after each call.

    Results of each call are stored before the next, so an interrupted run keeps them.

    Raises:
        InputError: An id is not stored; raised before the first call.
        StoreError: See `connect_all`.
    """
    node = nodes_of(store, [end for pair in pairs for end in pair])
    done = JudgedEdges()
    for start in range(0, len(pairs), _JUDGED):
        store.expect_writable()
        part = pairs[start : start + _JUDGED]
        ends = [node[end] for pair in part for end in pair]
        texts = [atom.said for atom in store.atoms(ends)]
        verdicts = ask_judge(judge, texts[::2], texts[1::2])
        edges = [
            edge
            for (premise, hypothesis), verdict in zip(part, verdicts, strict=True)
            if (edge := _verdict_edge(premise, hypothesis, verdict, node)) is not None
        ]
        stored = connect_all(store, edges)
        labels = [None if verdict is None else verdict.label for verdict in verdicts]
        done = JudgedEdges(
            entailed=done.entailed + labels.count("entail"),
            contradicted=done.contradicted + labels.count("contradict"),
            neutral=done.neutral + labels.count("neutral"),
            failed=done.failed + labels.count(None),
            new=done.new + stored.new,
            known=done.known + stored.known,
        )
        yield done


def _verdict_edge(
    premise: str, hypothesis: str, verdict: Verdict | None, node: dict[str, int]
) -> tuple[str, Link] | None:
    """Return the edge of a verdict; None for neutral or no verdict (`docs/mathematics.md` 2.1).

    Entailment gives an implication of weight 0.5 to 1 by its confidence. Contradiction gives an
    edge of weight minus its confidence. It is symmetric, and always stored from later to earlier so
    that it is stored once.
    """
    if verdict is None or verdict.label == "neutral":
        return None
    if verdict.label == "entail":
        return premise, Link(hypothesis, EdgeType.IMPLICATION, 0.5 + 0.5 * verdict.confidence)
    if node[premise] < node[hypothesis]:
        premise, hypothesis = hypothesis, premise
    return contradiction(premise, hypothesis, verdict.confidence)


def contradiction(later: str, earlier: str, confidence: float) -> tuple[str, Link]:
    """Return the contradiction edge of two atoms, with a minimum weight above 0."""
    return later, Link(earlier, EdgeType.CONTRADICTS, max(confidence, _LEAST))


def checked_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return pairs (premise, hypothesis), each once.

    Raises:
        InputError: Not a pair of two different ids.
    """
    if not isinstance(pairs, Iterable):
        raise InputError(f"pairs: expected pairs (premise, hypothesis) of ids, got {pairs!r:.80}")
    found: dict[tuple[str, str], None] = {}
    for pair in pairs:
        whole = isinstance(pair, (tuple, list)) and len(pair) == 2
        if not whole or not all(isinstance(end, str) for end in pair) or pair[0] == pair[1]:
            raise InputError(
                f"pairs: expected pairs (premise, hypothesis) of two different ids, got {pair!r}"
            )
        found[pair[0], pair[1]] = None
    return list(found)


def similar_pairs(
    embeddings: Tensor,  # [A, d] unit rows
    *,
    k: int,
    min_cosine: float,
) -> Tensor:  # [2, P] int64, later row and earlier row
    """Return each atom with its k most similar earlier ones, by cosine from `min_cosine` on.

    Raises:
        InputError: k below 1, or `min_cosine` outside [-1, 1].
    """
    check_count("k", k)
    check_range("min_cosine", min_cosine, -1.0, 1.0)
    if len(embeddings) < 2:
        return torch.empty(2, 0, dtype=torch.int64)
    link = LinkConfig(similarity_k=k, min_similarity=min_cosine)
    cosine, neighbour = SimilarRows(link, embeddings.device.type).earlier(embeddings, 0, k)
    row, place = ((cosine >= min_cosine) & (neighbour >= 0)).nonzero(as_tuple=True)
    return torch.stack([row, neighbour[row, place].long()])


def similar_ids(
    store: MemoryStore, snapshot: Snapshot, *, k: int, min_cosine: float
) -> list[tuple[str, str]]:
    """Return the pairs of `similar_pairs` as ids of visible atoms, in both directions."""
    rows = similar_pairs(snapshot.index.embeddings.float(), k=k, min_cosine=min_cosine).cpu()
    if hidden := store.expiry.hidden():
        away = torch.isin(rows, snapshot.rows_of(sorted(hidden)))
        rows = rows[:, ~away.any(0)]
    every = rows.unique()
    atoms = store.atoms(snapshot.node[every].tolist())
    name = dict(zip(every.tolist(), [atom.id for atom in atoms], strict=True))
    ends = [(name[a], name[b]) for a, b in rows.T.tolist()]
    return [pair for a, b in ends for pair in ((a, b), (b, a))]


def unlinked_edges(store: MemoryStore, edges: Sequence[NamedEdge]) -> list[NamedEdge]:
    """Return edges without those that linking rebuilt, whose weight may differ by rounding."""
    node = nodes_of(store, [end for edge in edges for end in edge[:2]], hidden=())
    asked = EdgeBlock.of(
        [node[edge[0]] for edge in edges],
        [node[edge[1]] for edge in edges],
        [int(parse_edge_type(edge[2])) for edge in edges],
        1.0,
    )
    stored, size = store.edges(), store.next_node
    linked = torch.isin(asked.type, torch.tensor(RESEMBLING, dtype=torch.uint8))
    again = torch.isin(_keys(asked, size), _keys(stored, size)) & linked
    return [edge for edge, known in zip(edges, again.tolist(), strict=True) if not known]


def _keys(edges: EdgeBlock, size: int) -> Tensor:  # [E] int64
    return edge_keys(edges.source, edges.target, edges.type, size)


def stated_edges(
    store: TensorReader, nodes: Sequence[int]
) -> list[tuple[str, str, EdgeType, float]]:
    """Return the edges of nodes that callers connected, by the ids of their ends."""
    if not nodes:
        return []
    edges, own = store.connected_edges(), torch.tensor(nodes)
    edges = edges.take(torch.isin(edges.source, own) | torch.isin(edges.target, own))
    edges = edges.take(edges.type != int(EdgeType.TEMPORAL))
    ends = sorted({*edges.source.tolist(), *edges.target.tolist()})
    atoms = zip(ends, store.atoms(ends), strict=True)
    names = {node: atom.id for node, atom in atoms if atom.kind != CONCEPT}
    columns = zip(*(column.tolist() for column in edges.columns), strict=True)
    return [
        (names[source], names[target], EdgeType(kind), weight)
        for source, target, kind, weight in columns
        if source in names and target in names
    ]


def mentioned_concepts(store: TensorReader, nodes: Sequence[int]) -> list[int]:
    """Return the concepts that nodes mention."""
    edges = store.edges() if nodes else EdgeBlock.empty()
    own = torch.isin(edges.source, torch.tensor(nodes, dtype=torch.int64))
    own &= edges.type == int(EdgeType.ABSTRACTION)
    found = edges.target[own].unique().tolist()
    atoms = zip(found, store.atoms(found), strict=True)
    return [node for node, atom in atoms if atom.kind == CONCEPT]
