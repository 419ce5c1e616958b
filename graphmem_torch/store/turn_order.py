"""Search for temporal edges that do not follow the order of a session's turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmem_torch.atoms import CONCEPT, EdgeType
from graphmem_torch.store.arrays import Array, read_linked_edges
from graphmem_torch.store.reader import TURNS, StoreReader

__all__ = ["misplaced_edges"]


def misplaced_edges(store: StoreReader, *, by_time: bool) -> tuple[Array, Array]:
    """Find wrong and missing temporal edges of linking; see `TensorReader.misplaced_edges`.

    Returns:
        [2, W] int64 and [2, M] int64.
    """
    with store.reading():
        first = store.first_versions()
        rows = store._database.query(TURNS, (CONCEPT, int(EdgeType.DERIVED_FROM)))
        rows.sort(key=lambda row: first.get(row[0], row[0]))
        edges = read_linked_edges(store._database)
        stated = np.array(store.stated_pairs(EdgeType.TEMPORAL), np.int64).reshape(-1, 2).T
    node = np.array([row[0] for row in rows], np.int64)
    codes = _codes([row[3] for row in rows])
    pairs = _neighbours(node, codes, [row[5] for row in rows] if by_time else None)
    edges = edges.take(edges.type == int(EdgeType.TEMPORAL))
    made = np.stack([edges.source, edges.target])
    last = max((int(each.max()) for each in (node, made) if each.size), default=0)
    stated_keys, made_keys, pair_keys = (_keys(each, last) for each in (stated, made, pairs))
    own = np.isin(made_keys, stated_keys)
    wrong = made[:, ~np.isin(made_keys, pair_keys) & ~own]
    missing = pairs[:, ~np.isin(pair_keys, made_keys)]
    session = np.full(last + 1, -1)  # of the turns, by node
    session[node] = codes
    one, other = session[wrong]
    if bool(((one == other) & (one >= 0)).all()):
        missing = missing[:, np.isin(session[missing[0]], one)]
    return wrong, missing


def _keys(pairs: Array, last: int) -> Array:  # [2, n] -> [n] int64
    """Return a distinct key for each pair of nodes up to `last`; -1 for pairs beyond."""
    known = (pairs <= last).all(0)
    return np.where(known, pairs[0] * (last + 1) + pairs[1], -1)


def _codes(names: Sequence[Any]) -> Array:  # [n] int64
    """Encode names as integers, in the order of first occurrence."""
    number: dict[Any, int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], np.int64)


def _neighbours(
    node: Array, session: Array, times: Sequence[float | None] | None
) -> Array:  # [2, P] int64
    """Pair each turn with the next of its session, by time if `times` is given, else as given."""
    order = session.argsort(kind="stable")
    node, session = node[order], session[order]
    if times is not None and len(node):
        time = np.array([np.nan if each is None else each for each in times], np.float64)[order]
        first = np.ones(len(node), bool)
        first[1:] = session[1:] != session[:-1]
        # A turn without a time takes that of the turn stored before it.
        held = first | ~np.isnan(time)
        known = np.maximum.accumulate(np.where(held, np.arange(len(node)), 0))
        moment = time[known]
        order = np.where(np.isnan(moment), -np.inf, moment).argsort(kind="stable")
        order = order[session[order].argsort(kind="stable")]
        node, session = node[order], session[order]
    return np.stack([node[:-1], node[1:]])[:, session[1:] == session[:-1]]
