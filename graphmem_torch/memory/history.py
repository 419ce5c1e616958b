"""History: versions of atoms, chains of supersession, and the changes since a moment."""

from __future__ import annotations

import math

from graphmem_torch.memory.validity import statements_of, validity_of
from graphmem_torch.results import ChainEntry, Change, History, Validity, Version
from graphmem_torch.store.reader import StoreReader

__all__ = ["changes_since", "history_of", "versions_of", "with_archived"]


def versions_of(store: StoreReader, node: int) -> list[Version]:
    """Return the versions of an atom (`Facts.versions`); inside `store.reading()`."""
    earlier, (atom,) = store.versions(node), store.atoms([node])
    ends = [until for _, until in earlier]
    atoms = [*(version for version, _ in earlier), atom]
    return [Version(*each) for each in zip(atoms, [None, *ends], [*ends, None], strict=True)]


def history_of(store: StoreReader, node: int) -> History:
    """Return the history of an atom (`Facts.history`); inside `store.reading()`."""
    (atom,) = store.atoms([node])
    found: dict[str, tuple[int, Validity]] = {}
    front = {atom.id: node}
    while front:
        there = validity_of(store, front)
        found |= {name: (front[name], span) for name, span in there.items()}
        after = [span.by for span in there.values() if span.by is not None]
        # A later statement may name another successor for some of these.
        said = store.atoms(store.validity.superseded_by(list(front.values())))
        before = [
            name
            for name, span in validity_of(store, _nodes(store, [each.id for each in said])).items()
            if span.by in front
        ]
        front = _nodes(store, [name for name in (*after, *before) if name not in found])
    hidden = store.expiry.hidden()
    chain = sorted(
        (each for each in found.items() if each[1][0] not in hidden),
        key=lambda each: (
            -math.inf if each[1][1].start is None else each[1][1].start,
            math.inf if each[1][1].stop is None else each[1][1].stop,
            each[1][0],
        ),
    )
    texts = store.atoms([number for _, (number, _) in chain])
    return History(
        atom.id,
        tuple(versions_of(store, node)),
        tuple(statements_of(store, node)),
        tuple(
            ChainEntry(name, one.rendered, span)
            for (name, (_, span)), one in zip(chain, texts, strict=True)
        ),
    )


def _nodes(store: StoreReader, ids: list[str]) -> dict[str, int]:
    return {name: number for name, (number, _) in store.known(ids).items()}


def changes_since(store: StoreReader, since: float) -> list[Change]:
    """Return the changes since a moment (`Facts.changes`); inside `store.reading()`.

    Args:
        store: Store of the atoms.
        since: Moment, seconds since the epoch UTC.
    """
    found = [Change("added", when, id_) for when, _, id_ in store.stored_since(since)]
    found += [Change("updated", when, id_) for when, _, id_ in store.replaced_since(since)]
    stated = store.validity.stated()
    named = {row.node for row in stated if row.known >= since}
    nodes = sorted(named | {row.by for row in stated if row.node in named and row.by is not None})
    ids = dict(zip(nodes, (atom.id for atom in store.atoms(nodes)), strict=True))
    before: dict[int, tuple[float | None, int | None]] = {}
    for row in stated:
        end = row.stop, row.by
        if row.known >= since:
            new = row.by is not None and before.get(row.node) != end
            by = ids[row.by] if new and row.by is not None else None
            found.append(Change("superseded" if new else "validity", row.known, ids[row.node], by))
        before[row.node] = end
    found += [
        Change("deleted", when, None, count=count) for when, count in store.life.removed(since)
    ]
    return sorted(found, key=lambda change: change.when)


def with_archived(changes: list[Change], archive: StoreReader, since: float) -> list[Change]:
    """Return the changes and the atoms archived since a moment, by time."""
    away = [Change("archived", when, id_) for when, _, id_ in archive.stored_since(since)]
    return sorted([*changes, *away], key=lambda change: change.when)
