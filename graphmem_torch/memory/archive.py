"""The archive of a memory: what was put aside, as a namespace of its own, and the edges it had.

What is archived is a memory that can be searched and given back. Linking makes its edges anew
there, and again where it comes back; edges that were stated, judged or connected are kept by the
archive until both of their ends are in the memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.memory.edges import connect_all, with_derived
from graphmem_torch.memory.exchange import unlinked_edges
from graphmem_torch.store import MemoryStore

__all__ = ["apart", "derived_of_both", "keep_ties", "restore_ties", "ties_of"]

_TIES = "archive.ties"  # key of the edges between what an archive holds and others
_LINKED = (
    EdgeType.TEMPORAL,
    EdgeType.SIMILARITY,
    EdgeType.ABSTRACTION,
    EdgeType.ASSOCIATION,
    EdgeType.COOCCURRENCE,
)

Tie = tuple[str, str, str, float]
"""Ids of source and target, name of the type, weight."""


def ties_of(store: MemoryStore, nodes: Sequence[int]) -> list[Tie]:
    """The edges of some atoms that linking does not make."""
    edges = store.edges()
    own = torch.zeros(store.next_node, dtype=torch.bool)
    own[torch.tensor(list(nodes), dtype=torch.int64)] = True
    made = torch.isin(edges.type, torch.tensor([int(kind) for kind in _LINKED], dtype=torch.uint8))
    edges = edges.take((own[edges.source] | own[edges.target]) & ~made)
    ends = torch.cat([edges.source, edges.target]).unique().tolist()
    name = dict(zip(ends, [atom.id for atom in store.atoms(ends)], strict=True))
    return [
        (name[source], name[target], EdgeType(kind).name.lower(), weight)
        for source, target, kind, weight in zip(*(c.tolist() for c in edges.columns), strict=True)
    ]


def keep_ties(archive: MemoryStore, more: Iterable[Tie] = (), gone: Collection[str] = ()) -> bool:
    """Keeps edges in an archive, each once, but those of ids that are gone; whether it changed."""
    kept = _ties(archive)
    now = [tie for tie in dict.fromkeys([*kept, *more]) if not {*tie[:2]} & {*gone}]
    if now == kept:
        return False
    archive.meta_set(_TIES, json.dumps(now))
    return True


def restore_ties(store: MemoryStore, archive: MemoryStore) -> None:
    """Connects what is in the memory again by the edges that the archive kept."""
    ties = _ties(archive)
    there = store.known(list({end for tie in ties for end in tie[:2]}))
    back = [tie for tie in ties if tie[0] in there and tie[1] in there]
    connect_all(store, unlinked_edges(store, back) if back else [])
    if back:
        archive.meta_set(_TIES, json.dumps([tie for tie in ties if tie not in {*back}]))


def _ties(archive: MemoryStore) -> list[Tie]:
    return [tuple(tie) for tie in json.loads(archive.meta_get(_TIES) or "[]")]


def apart(
    ids: Sequence[str], store: MemoryStore, archive: MemoryStore | None
) -> tuple[list[str], list[str]]:
    """Ids of a memory apart from those of its archive.

    Raises:
        InputError: An id that is in neither.
    """
    here = store.known(list(dict.fromkeys(ids)))
    away = archive.known([name for name in ids if name not in here]) if archive else {}
    missing = next((name for name in ids if name not in here and name not in away), None)
    if missing is not None:
        raise InputError(
            f"expected ids of stored or archived atoms, got {missing!r:.80}, which is in "
            "neither; add the atom first"
        )
    return list(here), list(away)


def derived_of_both(
    store: MemoryStore, archive: MemoryStore, nodes: Sequence[int], archived: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Nodes of a memory and of its archive, and what is derived from any of them in either."""
    kind, count = EdgeType.DERIVED_FROM, -1
    here, away = {*nodes}, {*archived}
    while count < len(here) + len(away):
        count = len(here) + len(away)
        here |= {*store.stating(kind, archive.contents(sorted(away))[0])}
        here = {*with_derived(store, sorted(here))}
        away |= {*archive.stating(kind, store.contents(sorted(here))[0])}
        away = {*with_derived(archive, sorted(away))}
    return sorted(here), sorted(away)
