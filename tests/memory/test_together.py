"""Many writers of one memory: temporal edges against a loop over the turns of every session."""

from __future__ import annotations

from itertools import pairwise

import torch

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, Link
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store import Batch, MemoryStore
from tests.memories import opened, turns

Pairs = list[tuple[str, str]]


def temporal(store: MemoryStore) -> Pairs:
    """The temporal edges that are stored, by the ids of their ends."""
    edges, node = store.edges(), store.columns().node.tolist()
    name = dict(zip(node, store.ids(), strict=True))
    ends = zip(edges.source.tolist(), edges.target.tolist(), edges.type.tolist(), strict=True)
    return sorted((name[a], name[b]) for a, b, kind in ends if kind == EdgeType.TEMPORAL)


def expected(store: MemoryStore) -> Pairs:
    """Those that there must be: each turn with the next one of its session."""
    sessions: dict[str, list[str]] = {}
    for atom in store.atoms(store.columns().node.tolist()):
        derived = any(link.type == EdgeType.DERIVED_FROM for link in atom.edges)
        if atom.kind != CONCEPT and atom.session is not None and not derived:
            sessions.setdefault(atom.session, []).append(atom.id)
    return sorted(pair for ids in sessions.values() for pair in pairwise(ids))


def break_as_threads_did(store: MemoryStore, count: int = 4, late: int = 3) -> None:
    """Stores turns whose edges were numbered before others took these numbers."""
    atoms = [Atom(f"b{i}", f"broken {i}", session="b") for i in range(count)]
    first = store.next_node - late
    ends = torch.arange(first, first + count)
    edges = EdgeBlock.of(ends[:-1], ends[1:], EdgeType.TEMPORAL, 1.0)
    store.append(Batch(atoms, torch.eye(count, store.dim), edges=edges))


def test_check_finds_edges_of_writers_that_did_not_wait() -> None:
    with opened() as memory:
        memory.add(turns(14))
        assert memory.check() == [] and temporal(memory.store) == expected(memory.store)
        break_as_threads_did(memory.store)
        assert temporal(memory.store) != expected(memory.store)
        assert "join others than neighbours of one session" in "\n".join(memory.check())


def test_check_knows_edges_that_are_stated() -> None:
    """A temporal edge that an atom states, or a caller makes, may join what it likes."""
    with opened() as memory:
        memory.add(turns(14))
        memory.connect("a0", "a9", "temporal")
        memory.add([Atom("x", "stated", session="s0", edges=(Link("a1", EdgeType.TEMPORAL),))])
        assert memory.check() == []
        memory.disconnect("a2", "a3")
        assert memory.check() == [], "an edge that was taken away is no damage"
