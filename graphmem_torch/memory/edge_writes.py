"""Edges between stored atoms: those that code states, and those that an oracle judges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import MAX_EDGE_WEIGHT, RESEMBLING, Atom, EdgeType, Link
from graphmem_torch.checks import check_count, check_range
from graphmem_torch.coo import strongest_of_equal
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.memory.lookup import NamedEdge, nodes_of
from graphmem_torch.ops import knn_graph
from graphmem_torch.oracle import Judge, Verdict, ask_judge
from graphmem_torch.readers.jsonl import parse_edge_type
from graphmem_torch.results import Added
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.reader import StoreReader

__all__ = [
    "JudgedEdges",
    "checked_pairs",
    "connect_all",
    "contradiction",
    "dated",
    "disconnect",
    "judge_pairs",
    "similar_ids",
    "similar_pairs",
    "told_since",
    "unlinked_edges",
]

_LEAST = torch.finfo(torch.float32).tiny  # a smaller weight would be stored as 0
_JUDGED = 64  # pairs a call: what a failing oracle can lose, and a transaction
_FORM = "(source, target), (source, target, type), (source, target, type, weight) or (source, Link)"


def _stated_edge(value: Any) -> tuple[str, Link]:
    """Source and link of an edge that a caller wrote, checked without the store.

    The type gives the sign: a contradiction is stored negative whatever the sign of its weight
    (`Link.strength`), every other type takes a positive weight.

    Raises:
        InputError: Another form, an unknown type (naming the nearest), an atom with itself, or a
            weight that is not finite, 0, negative or beyond the largest.
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


def connect_all(store: MemoryStore, values: Iterable[Any]) -> Added:
    """Stores edges of the forms that `GraphEdits.connect` takes in one transaction: all, or none.

    Of the edges of one (source, target, type) the strongest counts, as everywhere in the engine
    (`Graph.from_edges`): one that is not stronger than what is stored is passed over.

    Raises:
        InputError: No edge of these forms (`_stated_edge`), or an id that is not stored.
        StoreError: Read-only store or full disk; nothing is stored then.
    """
    if not isinstance(values, Iterable):
        raise InputError(f"edges: expected {_FORM}, or an iterable of these, got {values!r:.80}")
    edges = [_stated_edge(value) for value in values]
    if not edges:
        return Added(0, 0)
    with store.turn():  # lest an end is deleted meanwhile
        node = nodes_of(store, [end for source, link in edges for end in (source, link.target)])
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
    """Deletes the edges from one atom to another, of one type or of all; how many there were.

    Raises:
        InputError: An id that is not stored, or an unknown type.
    """
    wanted = None if kind is None else int(_edge_type(kind))
    node = nodes_of(store, [source, target])

    def keep(edges: EdgeBlock) -> Tensor:
        gone = (edges.source == node[source]) & (edges.target == node[target])
        return ~gone if wanted is None else ~(gone & (edges.type == wanted))

    return store.remove_edges(keep)


def told_since(store: StoreReader, ids: Iterable[str]) -> dict[str, float | None]:
    """From when on stored atoms told what they tell now: their time, or when they were changed.

    None for those of unknown time, which are in no answer of a moment.
    """
    known = store.known(list(dict.fromkeys(ids)))
    nodes = [node for node, _ in known.values()]
    begun = store.begun(nodes)
    return {
        atom.id: None if atom.time is None else max(atom.time, begun.get(node, atom.time))
        for node, atom in zip(nodes, store.atoms(nodes), strict=True)
    }


def dated(store: StoreReader, made: Sequence[Atom]) -> list[Atom]:
    """Atoms that are derived from others, at the time from which on these told all of it.

    A moment must not be told what was said later; of unknown time where that of a source is.
    """
    since = told_since(store, (link.target for atom in made for link in atom.edges))
    found = []
    for atom in made:
        times = [since.get(link.target) for link in atom.edges]
        known = [time for time in times if time is not None]
        found.append(replace(atom, time=max(known) if known and len(known) == len(times) else None))
    return found


def _stronger(asked: EdgeBlock, stored: EdgeBlock) -> EdgeBlock:
    """The strongest of each (source, target, type) asked for, where none as strong is stored."""
    ends = (asked.source, asked.target, stored.source, stored.target)
    nodes = 1 + int(torch.cat(ends).max())
    asking = torch.zeros(nodes, dtype=torch.bool)
    asking[asked.source] = True
    near = asking[stored.source]  # no other edge can be one of those asked for
    stored = stored.take(near)
    both = EdgeBlock.cat([stored, asked])
    key, order = ((both.source * nodes + both.target) * 256 + both.type).sort(stable=True)
    chosen = strongest_of_equal(key, order, both.weight).sort().values - len(stored)
    return asked.take(chosen[chosen >= 0])


@dataclass(frozen=True, slots=True)
class JudgedEdges:
    """What a `GraphEdits.judge` did.

    Attributes:
        entailed, contradicted, neutral: Pairs by verdict.
        failed: Pairs without a usable verdict; they got no edge and can be asked again.
        new: Edges stored.
        known: Edges that were there already, as strong or more.
    """

    entailed: int = 0
    contradicted: int = 0
    neutral: int = 0
    failed: int = 0
    new: int = 0
    known: int = 0

    @property
    def judged(self) -> int:
        """Pairs that were asked about so far."""
        return self.entailed + self.contradicted + self.neutral + self.failed


def judge_pairs(
    store: MemoryStore, judge: Judge, pairs: Sequence[tuple[str, str]]
) -> Iterator[JudgedEdges]:
    """Judges pairs (premise, hypothesis) of atom ids; yields the count after each call.

    What each call of the oracle gave is stored before the next one: an interrupted run keeps it.

    Raises:
        InputError: An id that is not stored; before anything is asked.
        StoreError: As in `connect_all`.
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
    """The edge that a verdict makes; None for neutral or no verdict (`docs/mathematics.md` 2.1).

    Entailment gives an implication of weight 0.5 to 1 by its confidence, contradiction an edge that
    weighs minus its confidence, from the later atom to the earlier: it has no direction of its own,
    and one way of writing it keeps it from being stored twice.
    """
    if verdict is None or verdict.label == "neutral":
        return None
    if verdict.label == "entail":
        return premise, Link(hypothesis, EdgeType.IMPLICATION, 0.5 + 0.5 * verdict.confidence)
    if node[premise] < node[hypothesis]:
        premise, hypothesis = hypothesis, premise
    return contradiction(premise, hypothesis, verdict.confidence)


def contradiction(later: str, earlier: str, confidence: float) -> tuple[str, Link]:
    """The edge that says that two atoms contradict each other; it has a least weight."""
    return later, Link(earlier, EdgeType.CONTRADICTS, max(confidence, _LEAST))


def checked_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs (premise, hypothesis), each once.

    Raises:
        InputError: Something that is no pair of two different ids.
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
    least: float,
) -> Tensor:  # [2, P] int64, later row and earlier row
    """Each atom with its k most similar earlier ones, where the cosine is `least` or more.

    Raises:
        InputError: k below 1, or `least` outside [-1, 1].
    """
    check_count("k", k)
    check_range("least", least, -1.0, 1.0)
    if len(embeddings) < 2:
        return torch.empty(2, 0, dtype=torch.int64)
    cosine, neighbour = knn_graph(embeddings, k, earlier=True)
    row, place = ((cosine >= least) & (neighbour >= 0)).nonzero(as_tuple=True)
    return torch.stack([row, neighbour[row, place].long()])


def similar_ids(
    store: MemoryStore, snapshot: Snapshot, *, k: int, least: float
) -> list[tuple[str, str]]:
    """The pairs of `similar_pairs` as ids of atoms, both ways round."""
    rows = similar_pairs(snapshot.index.embeddings.float(), k=k, least=least).cpu()
    every = rows.unique()
    atoms = store.atoms(snapshot.node[every].tolist())
    name = dict(zip(every.tolist(), [atom.id for atom in atoms], strict=True))
    ends = [(name[a], name[b]) for a, b in rows.T.tolist()]
    return [pair for a, b in ends for pair in ((a, b), (b, a))]


def unlinked_edges(store: MemoryStore, edges: Sequence[NamedEdge]) -> list[NamedEdge]:
    """The edges but those that linking has made again, whose weight may differ by rounding."""
    node = nodes_of(store, [end for edge in edges for end in edge[:2]])
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
    return (edges.source * size + edges.target) * 256 + edges.type
