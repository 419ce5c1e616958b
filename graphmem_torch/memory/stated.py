"""Stated edges: what code says about stored atoms, one transaction a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import MAX_EDGE_WEIGHT, EdgeType, Link
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.readers.jsonl import parse_edge_type
from graphmem_torch.store import Batch, MemoryStore

__all__ = ["Connected", "StatedEdge", "connect_all", "disconnect", "nodes_of", "stated_edge"]

_LEAST = torch.finfo(torch.float32).tiny  # a smaller weight would be stored as 0
_FORM = "(source, target), (source, target, type), (source, target, type, weight) or (source, Link)"


@dataclass(frozen=True, slots=True)
class Connected:
    """What a `connect` did: edges stored, and edges that were there already, as strong or more."""

    new: int
    known: int

    def __add__(self, other: Connected) -> Connected:
        """Both together."""
        return Connected(self.new + other.new, self.known + other.known)


@dataclass(frozen=True, slots=True)
class StatedEdge:
    """An edge between two stored atoms, by id; what is left open is as in `Link`."""

    source: str
    link: Link


def stated_edge(value: Any) -> StatedEdge:
    """An edge from what a caller wrote, checked as far as it can be without the store.

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
    _check_weight(weight, kind)
    return StatedEdge(source, Link(target, kind, None if weight is None else float(weight)))


def _edge_type(value: object) -> EdgeType:
    return value if isinstance(value, EdgeType) else parse_edge_type(value)


def _check_weight(weight: Any, kind: EdgeType) -> None:
    if weight is None:
        return
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


def connect_all(store: MemoryStore, values: Iterable[Any]) -> Connected:
    """Stores edges between stored atoms in one transaction: all of them, or none.

    Of the edges of one (source, target, type) the strongest counts, as everywhere in the engine
    (`Graph.from_edges`): one that is not stronger than what is stored is passed over.

    Args:
        store: Open to write.
        values: Edges in one of the forms of `stated_edge`, or `StatedEdge`s.

    Raises:
        InputError: As for `stated_edge`, or an id that is not stored.
        StoreError: Read-only store or full disk; nothing is stored then.
    """
    if not isinstance(values, Iterable):
        raise InputError(f"edges: expected {_FORM}, or an iterable of these, got {values!r:.80}")
    edges = [v if isinstance(v, StatedEdge) else stated_edge(v) for v in values]
    if not edges:
        return Connected(0, 0)
    node = nodes_of(store, [end for edge in edges for end in (edge.source, edge.link.target)])
    asked = EdgeBlock.of(
        [node[edge.source] for edge in edges],
        [node[edge.link.target] for edge in edges],
        [int(edge.link.type) for edge in edges],
        [edge.link.strength for edge in edges],
    )
    fresh = _stronger(asked, store.edges())
    if len(fresh):
        vectors = torch.empty(0, store.dim or 0)
        store.append(Batch(atoms=[], embeddings=vectors, edges=fresh))
    return Connected(len(fresh), len(asked) - len(fresh))


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


def nodes_of(store: MemoryStore, ids: Sequence[str]) -> dict[str, int]:
    """Node numbers by id.

    Raises:
        InputError: An id that is not stored.
    """
    wrong = next((name for name in ids if not isinstance(name, str)), None)
    if wrong is not None:
        raise InputError(f"expected ids of atoms as text, got {wrong!r:.80}")
    known = store.known(list(dict.fromkeys(ids)))
    missing = next((name for name in ids if name not in known), None)
    if missing is not None:
        raise InputError(
            f"expected ids of stored atoms, got {missing!r}, which is not in the store; add the "
            "atom first"
        )
    return {name: number for name, (number, _) in known.items()}


def _stronger(asked: EdgeBlock, stored: EdgeBlock) -> EdgeBlock:
    """The strongest of each (source, target, type) asked for, where none as strong is stored."""
    ends = (asked.source, asked.target, stored.source, stored.target)
    nodes = 1 + int(torch.cat(ends).max())
    asking = torch.zeros(nodes, dtype=torch.bool)
    asking[asked.source] = True
    near = asking[stored.source]  # no other edge can be one of those asked for
    stored = EdgeBlock(*(c[near] for c in _columns(stored)))
    both = EdgeBlock.cat([stored, asked])
    key = (both.source * nodes + both.target) * 256 + both.type
    _, group = torch.unique(key, return_inverse=True)
    strength = both.weight.abs()
    best = torch.zeros(int(group.max()) + 1).scatter_reduce(0, group, strength, "amax")
    place = torch.arange(len(both))
    first = torch.full((len(best),), len(both))
    first = first.scatter_reduce(
        0, group, torch.where(strength == best[group], place, len(both)), "amin"
    )
    chosen = first[first >= len(stored)].sort().values - len(stored)
    return EdgeBlock(*(c[chosen] for c in _columns(asked)))


def _columns(edges: EdgeBlock) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return edges.source, edges.target, edges.type, edges.weight
