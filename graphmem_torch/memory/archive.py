"""Archive of a memory: archived atoms in a namespace of their own, and their links.

An archived atom can be searched and restored. Linking rebuilds its automatic edges in the archive,
and again after a restore. The archive keeps the other edges and the stated validity until both ends
are in the memory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphmem_torch.atoms import LINKED, EdgeType
from graphmem_torch.errors import InputError, StoreDamagedError, StoreError
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
    "finish_forgetting",
    "keep_ties",
    "kept_ties",
    "loose_ends",
    "restore_ties",
    "state_validity",
    "superseded_with",
    "superseding_with",
    "ties_of",
]

_log = logging.getLogger(__name__)

ERASING = "archive.erasing"
"""Key, in a memory, of the nodes that are still to be erased from its archive."""

_TIES = "archive.ties"  # key of the links of archived atoms


@dataclass(frozen=True)
class ArchiveLinks:
    """Edges and validity statements between atoms, by id.

    Attributes:
        edges: Source, target, name of the type, weight.
        validity: Statements on when atoms are valid, with when they were known.
    """

    edges: tuple[tuple[str, str, str, float], ...] = ()
    validity: tuple[NamedStatement, ...] = ()

    @property
    def ids(self) -> set[str]:
        """Ids at the ends of all links."""
        pairs = [*(tie[:2] for tie in self.edges), *((said[0], said[3]) for said in self.validity)]
        return {end for pair in pairs for end in pair if end is not None}

    def among(self, ids: Collection[str]) -> ArchiveLinks:
        """Return the links with both ends in `ids`."""
        return ArchiveLinks(
            tuple(tie for tie in self.edges if tie[0] in ids and tie[1] in ids),
            tuple(
                said for said in self.validity if said[0] in ids and (not said[3] or said[3] in ids)
            ),
        )

    def __add__(self, other: ArchiveLinks) -> ArchiveLinks:
        """Return the union of both."""
        return ArchiveLinks(
            tuple(dict.fromkeys([*self.edges, *other.edges])),
            tuple(dict.fromkeys([*self.validity, *other.validity])),
        )

    def __sub__(self, other: ArchiveLinks) -> ArchiveLinks:
        """Return the links that `other` lacks."""
        edges, validity = {*other.edges}, {*other.validity}
        return ArchiveLinks(
            tuple(tie for tie in self.edges if tie not in edges),
            tuple(said for said in self.validity if said not in validity),
        )


_NONE = ArchiveLinks()


def ties_of(store: StoreReader, nodes: Sequence[int]) -> ArchiveLinks:
    """Return the links at some atoms that linking cannot rebuild."""
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
    """Add links to an archive, drop those of the ids in `gone`; returns whether it changed."""
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
    """State in an archive when its atoms were true, even if what superseded them is elsewhere.

    Questions with `valid_at` then find no value that had ended.
    """
    known = {*archive.validity.stated()}
    said = [each for each in _stated_in(archive, kept_ties(archive)) if each not in known]
    archive.validity.state(said)


def _stated_in(archive: StoreReader, ties: ArchiveLinks) -> list[StatedValidity]:
    """Return the validity statements of links whose atoms are in the archive."""
    node = {name: number for name, (number, _) in archive.known(sorted(ties.ids)).items()}
    return [
        StatedValidity(node[one], start, stop, None if by is None else node.get(by), known)
        for one, start, stop, by, known in ties.validity
        if one in node
    ]


def carry_insights(source: MemoryStore, nodes: Sequence[int], to: MemoryStore) -> None:
    """Copy the uses, importance and insights of atoms that were copied to another store.

    A repeated call counts nothing twice.
    """
    ids = dict(zip(nodes, (atom.id for atom in source.atoms(list(nodes))), strict=True))
    there = to.known(sorted(ids.values()))
    node = {old: there[name][0] for old, name in ids.items() if name in there}
    to.uses.raise_to({node[old]: own for old, own in source.uses.of([*node]).items()})
    importance = [row for row in source.insights.importance() if row.node in node]
    to.insights.set_importance([row._replace(node=node[row.node]) for row in importance])
    to.insights.say({node[old]: said for old, said in source.insights.said([*node]).items()})


def loose_ends(store: StoreReader, archive: StoreReader, gone: Sequence[int]) -> set[str]:
    """Return ids in the links of an archive that neither store has without the nodes `gone`."""
    ids = sorted(kept_ties(archive).ids)
    away = {name for name, (node, _) in archive.known(ids).items() if node not in gone}
    return {*ids} - away - store.known(ids).keys()


def restore_ties(store: MemoryStore, archive: MemoryStore) -> None:
    """Restore the links that the archive kept between atoms that are in the memory again."""
    from graphmem_torch.memory.edge_writes import connect_all, unlinked_edges

    ties = kept_ties(archive)
    back = ties.among(store.known(sorted(ties.ids)))
    if back != _NONE:
        connect_all(store, unlinked_edges(store, back.edges) if back.edges else [])
        # An interrupted earlier call may have restored some statements already.
        stated = {*named_statements(store)}
        restore_statements(store, [said for said in back.validity if said not in stated])
        archive.meta_set(_TIES, json.dumps(asdict(ties - back)))


def kept_ties(archive: StoreReader) -> ArchiveLinks:
    """Return the links that an archive keeps."""
    kept = json.loads(archive.meta_get(_TIES) or "{}")
    return ArchiveLinks(**{name: tuple(map(tuple, rows)) for name, rows in kept.items()})


def superseded_with(store: StoreReader, nodes: Sequence[int]) -> list[int]:
    """Return atoms with all that they superseded, which would be valid again without them."""
    found = {*nodes}
    while more := {*store.validity.superseded_by(sorted(found))} - found:
        found |= more
    return sorted(found)


def superseding_with(archive: StoreReader, names: Sequence[str]) -> list[str]:
    """Return ids of archived atoms with all in the archive that superseded them."""
    found, ties = {*names}, kept_ties(archive)
    while more := {s[3] for s in ties.validity if s[0] in found and s[3]} - found:
        found |= more
    return list(archive.known(sorted(found)))


def expect_apart(store: StoreReader, nodes: Sequence[int], other: StoreReader) -> list[int]:
    """Return the atoms to move: those that another store does not hold in a later version.

    Raises:
        InputError: The other store has different content under an id.
    """
    ids = dict(zip(nodes, (atom.id for atom in store.atoms(nodes)), strict=True))
    there = other.known(list(ids.values()))
    moving = []
    for node in nodes:
        theirs = _said(other, there[ids[node]][0]) if ids[node] in there else []
        mine = _said(store, node) if theirs else []
        if not theirs or theirs[-1] in mine:  # an interrupted move leaves an older copy
            moving.append(node)
        elif mine[-1] not in theirs:
            raise InputError(
                f"ids: expected ids that the memory and its archive have for one thing, got "
                f"{ids[node]!r:.80}, which says something else in each; delete it in the memory, "
                "or in `upkeep.archived()`, or forget both"
            )
    return moving


def _said(store: StoreReader, node: int) -> list[str]:
    """Return the digests of the versions of an atom, the last one last."""
    return [version.atom.digest for version in versions_of(store, node)]


def apart(
    ids: Sequence[str], store: StoreReader, archive: StoreReader | None
) -> tuple[list[str], list[str]]:
    """Split ids into those of a memory and those of its archive.

    Raises:
        InputError: An id is in neither.
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
    """Return nodes of a memory and of its archive, with all that is derived from them in either.

    Includes atoms with the same ids in the other store, left by an interrupt or added again since.
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
    """Return the nodes of these ids, and of the atoms derived from them."""
    own = {node for node, _ in store.known(ids).values()}
    return own | {*store.stating(EdgeType.DERIVED_FROM, ids)}


class _Archive(Protocol):
    """State of an archive, which can erase its atoms."""

    store: MemoryStore

    def erase(self, nodes: Sequence[int]) -> Any:
        """Erase atoms; in the turn of the store."""


def finish_forgetting(store: MemoryStore, archive: _Archive) -> None:
    """Erase forgotten atoms from an archive, if an interrupted call has left any."""
    if store.readonly or store.meta_get(ERASING) is None:
        return
    try:
        with store.turn(), archive.store.turn():
            nodes = archive.store.present(json.loads(store.meta_get(ERASING) or "[]"))
            ends = loose_ends(store, archive.store, nodes)
            # A restored memory has left bytes there.
            if keep_ties(archive.store, gone=ends) or nodes or archive.store.unwiped:
                archive.erase(nodes)
            store.meta_set(ERASING, None)
    except StoreDamagedError:
        raise
    except StoreError as error:
        _log.warning(
            "%s: what was forgotten is still in the archive (%s); it is erased when that is next "
            "used",
            archive.store.path,
            error,
        )
