"""Conflicts: stored contradictions, their resolutions, and the aggregates that state them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, Atom, EdgeType, Link, text_hash
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.judge.entailment import LexicalJudge
from graphmem_torch.memory.edge_writes import (
    dated,
)
from graphmem_torch.memory.validity import validity_of
from graphmem_torch.memory.validity_spans import spans_of
from graphmem_torch.results import Conflict, Validity
from graphmem_torch.store.tensor_reader import TensorReader

__all__ = [
    "aggregates_of",
    "atoms_of",
    "begin_of",
    "conflicts_of",
    "explained",
    "outdated_statements",
]

_STATES = "conflict:"  # prefix of the ids of aggregates that state a conflict


def conflicts_of(store: TensorReader, *, open_from: float | None = None) -> list[Conflict]:
    """Return the stored conflicts; see `Facts.conflicts`.

    Args:
        store: Store of the memories.
        open_from: Minimum confidence of open conflicts; given, resolved ones are skipped.
    """
    with store.reading():
        edges = store.edges()
        against = edges.take(edges.type == int(EdgeType.CONTRADICTS))
        if open_from is not None:
            against = against.take(against.weight.double().abs() >= open_from)
            against = against.take(_at_one_time(store, against))
        sure: dict[tuple[int, int], float] = {}
        for a, b, weight in zip(
            against.source.tolist(), against.target.tolist(), against.weight.tolist(), strict=True
        ):
            pair = (max(a, b), min(a, b))
            sure[pair] = max(sure.get(pair, 0.0), min(abs(weight), 1.0))
        nodes = {node for pair in sure for node in pair} - store.expiry.hidden()
        there = atoms_of(store, sorted(nodes))
        spans = validity_of(store, {atom.id: node for node, atom in there.items()})
        stated = _stated(store) if there else {}
    found = []
    for pair, confidence in sure.items():
        if pair[0] not in there or pair[1] not in there:
            continue
        ends = sorted(pair, key=lambda node: (begin_of(spans[there[node].id]), node))
        one, other = (there[node] for node in ends)
        how, by = _resolution(
            (one.id, other.id), (spans[one.id], spans[other.id]), stated.get(frozenset(pair))
        )
        if open_from is not None and how is not None:
            continue
        found.append(
            Conflict(
                one.id,
                other.id,
                (one.said, other.said),
                confidence,
                "open" if how is None else "resolved",
                how,
                by,
            )
        )
    return sorted(found, key=lambda each: (each.earlier, each.later))


def explained(conflicts: Sequence[Conflict], local: LexicalJudge) -> list[Conflict]:
    """Return conflicts with reasons: those the rules find in both texts, or that it was stated."""
    texts = [[each.texts[side] for each in conflicts] for side in (0, 1)]
    return [
        replace(each, reason="stated or judged" if said is None else str(said))
        for each, said in zip(conflicts, local.compare(*texts), strict=True)
    ]


def _at_one_time(store: TensorReader, edges: EdgeBlock) -> Tensor:  # [E] bool
    """Return which edges have stored ends whose validity overlaps."""
    ends = torch.stack([edges.source, edges.target]).long()
    node, start, stop = spans_of(store, ends.unique().tolist())
    if not len(node):
        return torch.zeros(len(edges), dtype=torch.bool)
    place = torch.searchsorted(node, ends).clamp(max=len(node) - 1)
    return (node[place] == ends).all(0) & (stop[place] > start[place].amax(0)).all(0)


def atoms_of(store: TensorReader, nodes: Sequence[int]) -> dict[int, Atom]:
    """Return the atoms of the nodes that are stored."""
    present = store.present(nodes)
    return dict(zip(present, store.atoms(present), strict=True))


def _stated(store: TensorReader) -> dict[frozenset[int], str]:
    """Return the ids of aggregates that state conflicts, by the pair of nodes in conflict."""
    found: dict[int, set[int]] = {}
    source, target = store.stated(EdgeType.DERIVED_FROM)
    for one, other in zip(source.tolist(), target.tolist(), strict=True):
        found.setdefault(one, set()).add(other)
    nodes = [node for node, of in found.items() if len(of) == 2]
    atoms = atoms_of(store, sorted(nodes))
    return {
        frozenset(found[node]): atom.id
        for node, atom in atoms.items()
        if atom.kind == AGGREGATE and atom.id.startswith(_STATES)
    }


def begin_of(span: Validity) -> float:
    """Return the start of a span, seconds since the epoch UTC; minus infinity if unknown."""
    return -math.inf if span.start is None else span.start


def _stop(span: Validity) -> float:
    return math.inf if span.stop is None else span.stop


def _resolution(
    ids: tuple[str, str], spans: tuple[Validity, Validity], aggregate: str | None
) -> tuple[Any, str | None]:
    """Return the kind of resolution and the deciding memory; disjoint validity resolves as well."""
    one, other = spans
    apart = _stop(one) <= max(begin_of(one), begin_of(other)) or _stop(other) <= max(
        begin_of(other), begin_of(one)
    )
    if apart:
        by = next((span.by for span in (one, other) if span.by in ids), one.by or other.by)
        return ("validity" if by is None else "superseded"), by
    return (None, None) if aggregate is None else ("aggregate", aggregate)


def aggregates_of(store: TensorReader, left: Sequence[Conflict]) -> list[Atom]:
    """Return an aggregate for each conflict that quotes both memories and is derived from both."""
    made = []
    with store.reading():
        node = store.known([name for c in left for name in (c.earlier, c.later)])
        order = [node[name][0] for name in node]
        atoms = dict(zip(node, store.atoms(order), strict=True))
    for each in left:
        ends = [atoms[name] for name in (each.earlier, each.later) if name in atoms]
        if len(ends) == 2:
            made.append(
                Atom(
                    _stating_id(ends),
                    f"Two memories contradict each other: {_both(ends)}",
                    kind=AGGREGATE,
                    edges=tuple(Link(atom.id, EdgeType.DERIVED_FROM) for atom in ends),
                )
            )
    return dated(store, made)


def _both(ends: Sequence[Atom]) -> str:
    return " / ".join(atom.said for atom in ends)


def _stating_id(ends: Sequence[Atom]) -> str:
    """Return the id of the aggregate that states a conflict of two memories with this content."""
    return _STATES + text_hash("\n".join([*(atom.id for atom in ends), _both(ends)]))[:32]


def outdated_statements(store: TensorReader) -> list[str]:
    """Return ids of conflict aggregates whose memories are gone or changed.

    Call it in the turn that deletes them.
    """
    names = [name for name in store.ids_of_kind(AGGREGATE) if name.startswith(_STATES)]
    made = store.atoms([node for node, _ in store.known(names).values()])
    known = store.known([link.target for atom in made for link in atom.edges])
    atoms = dict(zip(known, store.atoms([node for node, _ in known.values()]), strict=True))
    outdated = []
    for atom in made:
        ends = [atoms[link.target] for link in atom.edges if link.target in atoms]
        if atom.id not in {_stating_id(ends), _stating_id(ends[::-1])}:
            outdated.append(atom.id)
    return outdated
