"""The archive of a memory: what was put aside, as a namespace of its own, and what tied it.

What is archived is a memory that can be searched and given back. Linking makes its edges anew
there, and again where it comes back; edges that were stated, judged or connected, and what was
stated of its validity, are kept by the archive until both of their ends are in the memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphmem_torch.atoms import LINKED, EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.memory.history import versions_of
from graphmem_torch.memory.lookup import with_derived
from graphmem_torch.memory.validity import NamedStatement, named_statements, restore_statements
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.validity_log import StatedValidity

if TYPE_CHECKING:
    from graphmem_torch.store import MemoryStore

__all__ = [
    "ERASING",
    "ArchiveLinks",
    "apart",
    "carry_insights",
    "derived_of_both",
    "expect_apart",
    "keep_ties",
    "kept_ties",
    "loose_ends",
    "restore_ties",
    "state_validity",
    "superseded_with",
    "superseding_with",
    "ties_of",
]

ERASING = "archive.erasing"
"""Key, in a memory, of the nodes that are still to be erased from its archive."""

_TIES = "archive.ties"  # key of the ties between what an archive holds and others


@dataclass(frozen=True)
class ArchiveLinks:
    """What holds between atoms by their ids.

    Attributes:
        edges: Source, target, name of the type, weight.
        validity: Statements on when atoms are valid, as they were known.
    """

    edges: tuple[tuple[str, str, str, float], ...] = ()
    validity: tuple[NamedStatement, ...] = ()

    @property
    def ids(self) -> set[str]:
        """All that are named."""
        pairs = [*(tie[:2] for tie in self.edges), *((said[0], said[3]) for said in self.validity)]
        return {end for pair in pairs for end in pair if end is not None}

    def among(self, ids: Collection[str]) -> ArchiveLinks:
        """Those between these alone."""
        return ArchiveLinks(
            tuple(tie for tie in self.edges if tie[0] in ids and tie[1] in ids),
            tuple(
                said for said in self.validity if said[0] in ids and (not said[3] or said[3] in ids)
            ),
        )

    def __add__(self, other: ArchiveLinks) -> ArchiveLinks:
        """Both, each once."""
        return ArchiveLinks(
            tuple(dict.fromkeys([*self.edges, *other.edges])),
            tuple(dict.fromkeys([*self.validity, *other.validity])),
        )

    def __sub__(self, other: ArchiveLinks) -> ArchiveLinks:
        """Those that the other has not."""
        edges, validity = {*other.edges}, {*other.validity}
        return ArchiveLinks(
            tuple(tie for tie in self.edges if tie not in edges),
            tuple(said for said in self.validity if said not in validity),
        )


_NONE = ArchiveLinks()


def ties_of(store: StoreReader, nodes: Sequence[int]) -> ArchiveLinks:
    """What linking does not make again of some atoms, with each other and with others."""
    edges = store.edge_arrays()
    own = np.zeros(store.next_node, bool)
    own[list(nodes)] = True
    made = np.isin(edges.type, [int(kind) for kind in LINKED])
    edges = edges.take((own[edges.source] | own[edges.target]) & ~made)
    ends = np.unique(np.concatenate([edges.source, edges.target])).tolist()
    name = dict(zip(ends, [atom.id for atom in store.atoms(ends)], strict=True))
    ties = zip(*(column.tolist() for column in edges), strict=True)
    return ArchiveLinks(
        tuple(
            (name[a], name[b], EdgeType(kind).name.lower(), weight) for a, b, kind, weight in ties
        ),
        tuple(named_statements(store, {*nodes})),
    )


def keep_ties(archive: MemoryStore, more: ArchiveLinks = _NONE, gone: Collection[str] = ()) -> bool:
    """Keeps ties in an archive, but those of ids that are gone; whether it changed."""
    kept = kept_ties(archive)
    now = kept + more
    now = now.among(now.ids.difference(gone))
    if now == kept:
        return False
    gone_by = _stated_in(archive, kept - now)
    archive.validity.retract(gone_by)
    archive.meta_set(_TIES, json.dumps(asdict(now)))
    return True


def state_validity(archive: MemoryStore) -> None:
    """Has an archive know when what it holds was true, also where what superseded it is not there.

    Who is asked for a moment (`valid_at`) finds no value there that had ended.
    """
    known = {*archive.validity.stated()}
    said = [each for each in _stated_in(archive, kept_ties(archive)) if each not in known]
    archive.validity.state(said)


def _stated_in(archive: StoreReader, ties: ArchiveLinks) -> list[StatedValidity]:
    """What ties say of the validity of atoms of an archive, without what it does not hold."""
    node = {name: number for name, (number, _) in archive.known(sorted(ties.ids)).items()}
    return [
        StatedValidity(node[one], start, stop, None if by is None else node.get(by), known)
        for one, start, stop, by, known in ties.validity
        if one in node
    ]


def carry_insights(source: MemoryStore, nodes: Sequence[int], to: MemoryStore) -> None:
    """Has atoms that were copied keep their uses, what these made of them, and what was said.

    Nothing is counted twice where that was done before.
    """
    ids = dict(zip(nodes, (atom.id for atom in source.atoms(list(nodes))), strict=True))
    there = to.known(sorted(ids.values()))
    node = {old: there[name][0] for old, name in ids.items() if name in there}
    to.uses.raise_to({node[old]: own for old, own in source.uses.of([*node]).items()})
    importance = [row for row in source.insights.importance() if row.node in node]
    to.insights.set_importance([row._replace(node=node[row.node]) for row in importance])
    to.insights.say({node[old]: said for old, said in source.insights.said([*node]).items()})


def loose_ends(store: StoreReader, archive: StoreReader, gone: Sequence[int]) -> set[str]:
    """Ids in the ties of an archive that neither has, once some of its nodes are gone."""
    ids = sorted(kept_ties(archive).ids)
    away = {name for name, (node, _) in archive.known(ids).items() if node not in gone}
    return {*ids} - away - store.known(ids).keys()


def restore_ties(store: MemoryStore, archive: MemoryStore) -> None:
    """ArchiveLinks what is in the memory again by what the archive kept."""
    from graphmem_torch.memory.edge_writes import connect_all, unlinked_edges

    ties = kept_ties(archive)
    back = ties.among(store.known(sorted(ties.ids)))
    if back != _NONE:
        connect_all(store, unlinked_edges(store, back.edges) if back.edges else [])
        # What an earlier call that was killed has stated already is not stated twice.
        stated = {*named_statements(store)}
        restore_statements(store, [said for said in back.validity if said not in stated])
        archive.meta_set(_TIES, json.dumps(asdict(ties - back)))


def kept_ties(archive: StoreReader) -> ArchiveLinks:
    """The ties that an archive keeps."""
    kept = json.loads(archive.meta_get(_TIES) or "{}")
    return ArchiveLinks(**{name: tuple(map(tuple, rows)) for name, rows in kept.items()})


def superseded_with(store: StoreReader, nodes: Sequence[int]) -> list[int]:
    """Atoms with all that they superseded, which would be valid again without them."""
    found = {*nodes}
    while more := {*store.validity.superseded_by(sorted(found))} - found:
        found |= more
    return sorted(found)


def superseding_with(archive: StoreReader, names: Sequence[str]) -> list[str]:
    """Ids of archived atoms with all in the archive that superseded them."""
    found, ties = {*names}, kept_ties(archive)
    while more := {s[3] for s in ties.validity if s[0] in found and s[3]} - found:
        found |= more
    return list(archive.known(sorted(found)))


def expect_apart(store: StoreReader, nodes: Sequence[int], other: StoreReader) -> list[int]:
    """Those of some atoms that another store does not hold in a later version, which are to move.

    Raises:
        InputError: It holds something else under one of their ids.
    """
    ids = dict(zip(nodes, (atom.id for atom in store.atoms(nodes)), strict=True))
    there = other.known(list(ids.values()))
    moving = []
    for node in nodes:
        theirs = _said(other, there[ids[node]][0]) if ids[node] in there else []
        mine = _said(store, node) if theirs else []
        if not theirs or theirs[-1] in mine:  # what an interrupt left in both is behind
            moving.append(node)
        elif mine[-1] not in theirs:
            raise InputError(
                f"ids: expected ids that the memory and its archive have for one thing, got "
                f"{ids[node]!r:.80}, which says something else in each; delete it in the memory, "
                "or in `upkeep.archived()`, or forget both"
            )
    return moving


def _said(store: StoreReader, node: int) -> list[str]:
    """Digests of the versions of an atom, the last one last."""
    return [version.atom.digest for version in versions_of(store, node)]


def apart(
    ids: Sequence[str], store: StoreReader, archive: StoreReader | None
) -> tuple[list[str], list[str]]:
    """Ids of a memory apart from those of its archive.

    Raises:
        InputError: An id that is in neither.
    """
    stored = store.forms.ids(ids)
    here = store.known(list(dict.fromkeys(stored)))
    left = [name for name, form in zip(ids, stored, strict=True) if form not in here]
    forms = archive.forms.ids(left) if archive else left
    away = archive.known(list(dict.fromkeys(forms))) if archive else {}
    missing = next((n for n, form in zip(left, forms, strict=True) if form not in away), None)
    if missing is not None:
        raise InputError(
            f"expected ids of stored or archived atoms, got {missing!r:.80}, which is in "
            "neither; add the atom first"
        )
    return list(here), list(away)


def derived_of_both(
    store: StoreReader, archive: StoreReader, nodes: Sequence[int], archived: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Nodes of a memory and of its archive, and what is derived from any of them in either.

    With those of the same ids in the other: what an interrupt left in both, or what was added again
    once it was archived.
    """
    count, here, away = -1, {*nodes}, {*archived}
    while count < len(here) + len(away):
        count = len(here) + len(away)
        here |= _told_of(store, archive.contents(sorted(away))[0])
        here = {*with_derived(store, sorted(here))}
        away |= _told_of(archive, store.contents(sorted(here))[0])
        away = {*with_derived(archive, sorted(away))}
    return sorted(here), sorted(away)


def _told_of(store: StoreReader, ids: Sequence[str]) -> set[int]:
    """Nodes of these ids, and of what says that it is derived from one of them."""
    own = {node for node, _ in store.known(ids).values()}
    return own | {*store.stating(EdgeType.DERIVED_FROM, ids)}
