"""Lookup: nodes of a store by id or by conditions that callers give."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType
from graphmem_torch.errors import InputError, nearest, unknown
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.text.unicode_forms import composed

if TYPE_CHECKING:
    from graphmem_torch.store import MemoryStore

__all__ = [
    "NamedEdge",
    "atoms_by_id",
    "is_visible",
    "listed_ids",
    "named_nodes",
    "nodes_of",
    "nodes_that_fit",
    "num_visible",
    "one_id",
    "refresh_expiry",
    "same_names",
    "waiting_meta",
    "waiting_nodes",
    "with_derived",
]

NamedEdge = tuple[str, str, str, float]
"""Source, target, type name and weight of an edge."""

_WAITING = "link.waiting"  # key in a store for the nodes whose concepts are not linked yet
_LIKE = 0.75  # minimum `difflib` ratio of a suggested id: generated ids resemble each other
_SHOWN = 16  # names that a message compares


def listed_ids(store: StoreReader, ids: str | Iterable[str]) -> list[str]:
    """Return one or several ids as a list, in the stored Unicode form."""
    if not isinstance(ids, Iterable):
        raise InputError(f"ids: expected an id or a list of them, got {ids!r:.80}; name one")
    listed = [ids] if isinstance(ids, str) else list(ids)
    texts = all(isinstance(name, str) for name in listed)
    return store.forms.ids(listed) if texts else listed


def one_id(id: str, argument: str = "id") -> str:
    """Return an id; raises `InputError` if it is a list of them or no text."""
    if not isinstance(id, str):
        raise InputError(f"{argument}: expected one id, got {id!r:.80}; ask for each alone")
    return id


def named_nodes(
    store: StoreReader,
    ids: str | Iterable[str],
    is_archived: Callable[[str], bool] | None = None,
    argument: str = "ids",
    *,
    hidden: Collection[int] | None = None,
) -> tuple[list[str], list[int]]:
    """Return ids of stored atoms, each once, in the order given, and their node numbers.

    Args:
        store: Store of the atoms.
        ids: Ids in any form of Unicode.
        is_archived: Function that says whether an id is in the archive.
        argument: Name of the argument, for errors.
        hidden: Nodes that count as not stored, as in `nodes_of`.

    Raises:
        InputError: An id that is not stored, one of an expired atom (`hidden`, as in `nodes_of`),
            or that of a concept.
    """
    listed = listed_ids(store, ids)
    found = nodes_of(store, listed, is_archived, argument, hidden=hidden)
    named = list(dict.fromkeys(listed))
    concept = next((name for name in named if name.startswith(f"{CONCEPT}:")), None)
    if concept is not None:
        raise InputError(
            f"{argument}: expected ids of memories, got the concept {concept!r}; leave it out"
        )
    return named, [found[name] for name in named]


def atoms_by_id(
    store: StoreReader,
    ids: str | Iterable[str],
    is_archived: Callable[[str], bool] | None = None,
) -> list[Atom]:
    """Return atoms by id, in the order given; ids may repeat.

    Raises:
        InputError: An id that is not stored or has expired, or that of a concept.
    """
    with store.reading():
        listed = listed_ids(store, ids)
        named, nodes = named_nodes(store, listed, is_archived)
        found = dict(zip(named, store.atoms(nodes), strict=True))
    return [found[name] for name in listed]


def nodes_that_fit(
    store: StoreReader,
    among: Collection[int] | None,
    *,
    session: str | None = None,
    speaker: str | None = None,
    before: float | None = None,
) -> list[int]:
    """Return the nodes of memories that satisfy all conditions, ascending.

    Args:
        store: Store of the memories.
        among: Nodes to search; None searches all.
        session: Name of their session, in any form of Unicode.
        speaker: Name of their speaker, in any form of Unicode.
        before: Moment that their time precedes, seconds since the epoch UTC.

    Raises:
        InputError: A session or speaker that no memory of the store has.
    """
    rows = store.origins()
    kept = {row[0] for row in rows} if among is None else {*among}
    for name, value, own in (
        ("session", session, [(row[0], row[2]) for row in rows]),
        ("speaker", speaker, [(row[0], row[1]) for row in rows]),
    ):
        if value is None:
            continue
        names = list(dict.fromkeys(each for _, each in own if each is not None))
        same = same_names(name, value, names)
        kept &= {node for node, each in own if each in same}
    if before is not None:
        kept &= {row[0] for row in rows if row[3] is not None and row[3] < before}
    return [row[0] for row in rows if row[0] in kept]


def same_names(argument: str, value: str, names: Sequence[str]) -> set[str]:
    """Return the forms of Unicode in which a name is stored.

    Args:
        argument: Name of the argument, for the error.
        value: Name, in any form.
        names: Names that are stored.

    Raises:
        InputError: No such name.
    """
    same = {each for each in names if composed(each) == composed(value)}
    if not same:
        raise InputError(unknown(argument, value, names[:_SHOWN], what="one such as"))
    return same


def with_derived(store: StoreReader, nodes: Sequence[int]) -> list[int]:
    """Return nodes and all that is derived from them, directly or indirectly, ascending."""
    reached, new = {*nodes}, {*nodes}
    while new:
        new = {*store.sources_of(sorted(new), EdgeType.DERIVED_FROM)} - reached
        reached |= new
    return sorted(reached)


def refresh_expiry(store: MemoryStore, nodes: Sequence[int]) -> None:
    """Move the expiry of atoms with a `ttl` to now plus that, never earlier.

    Raises:
        StoreError: Read-only store or full disk.
    """
    store.expect_writable()
    if store.expiry.later(nodes, store.expiry.clock()):
        with store.turn():
            store.expiry.refresh(nodes, store.expiry.clock())


def waiting_nodes(store: StoreReader) -> list[int]:
    """Return atoms whose concepts are not linked yet, ascending; see `link.batch_concepts`."""
    kept = store.meta_get(_WAITING)
    return store.present(json.loads(kept)) if kept else []


def waiting_meta(waiting: Sequence[int], before: Sequence[int]) -> dict[str, str]:
    """Return the strings to store for waiting atoms; none if no atom waits or has waited."""
    return {_WAITING: json.dumps(list(waiting))} if waiting or before else {}


def is_visible(store: StoreReader, id: object) -> bool:
    """Return whether an atom of this id is stored and has not expired; no concept."""
    if not isinstance(id, str) or id.startswith(f"{CONCEPT}:"):
        return False
    known = store.known(store.forms.ids([id]))
    return any(node not in store.expiry.hidden() for node, _ in known.values())


def num_visible(store: StoreReader) -> int:
    """Return the number of atoms that have not expired, without concepts."""
    with store.reading():
        return store.num_atoms - len(store.expiry.hidden())


def nodes_of(
    store: StoreReader,
    ids: Sequence[str],
    is_archived: Callable[[str], bool] | None = None,
    argument: str = "ids",
    *,
    hidden: Collection[int] | None = None,
) -> dict[str, int]:
    """Return node numbers by id, as it was given.

    Args:
        store: Store of the atoms.
        ids: Ids of atoms, in any form of Unicode.
        is_archived: Function that returns whether a missing id is archived, for the message.
        argument: Name of the argument, for the message.
        hidden: Nodes that count as not stored; by default those that have expired by now.

    Raises:
        InputError: An id that is not stored, or has expired.
    """
    for name in ids:
        if not isinstance(name, str):
            raise InputError(
                f"{argument}: expected texts, got {name!r:.80}; give ids as they were added"
            )
    stored = dict(zip(ids, store.forms.ids(ids), strict=True))
    known = store.known(list(dict.fromkeys(stored.values())))
    away = store.expiry.hidden() if hidden is None else hidden
    for name, form in stored.items():
        if form in known and known[form][0] in away:
            raise InputError(
                f"ids: expected ids of memories, got {name!r:.80}, which has expired; add it again"
            )
        if form in known:
            continue
        if is_archived is not None and is_archived(name):
            raise InputError(
                f"{argument}: expected ids of memories, got {name!r:.80}, which is archived; "
                "`upkeep.restore` brings it back"
            )
        near = nearest(name, store.ids_like(name), cutoff=_LIKE)
        do = f"did you mean {near!r}?" if near else "check it, or add the memory first"
        raise InputError(
            f"{argument}: expected ids of memories, got {name!r:.80}, which is not in the store; "
            f"{do}"
        )
    return {name: known[form][0] for name, form in stored.items()}
