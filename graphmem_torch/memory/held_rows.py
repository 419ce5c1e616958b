"""Vectors of the atoms of a store from its snapshot, which is mapped and not read."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from graphmem_torch.ops.growing import GrowingRows
from graphmem_torch.store.snapshot import map_rows
from graphmem_torch.store.tensor_reader import TensorReader

__all__ = ["DEAD", "HeldRows", "held_rows"]

DEAD = 64
"""Rows of deleted atoms that are skipped before they are removed."""


class HeldRows(NamedTuple):
    """Vectors of the atoms of a store.

    Attributes:
        node: [A] int64 node numbers, ascending, deleted ones included.
        rows: [A, d], their vectors.
        dead: Rows of deleted atoms.
    """

    node: np.ndarray
    rows: GrowingRows
    dead: set[int]


def held_rows(store: TensorReader) -> HeldRows | None:
    """Return the vectors of a store without concepts, whose snapshot may be of an earlier state.

    Returns:
        None if they have to be read from the database: there are concepts, whose vectors no
        snapshot has; there is no usable snapshot; or more than `DEAD` atoms were deleted since.
    """
    dim = store.dim
    with store.reading():
        if store.path is None or dim is None or store.num_nodes != store.num_atoms:
            return None
        found = map_rows(store.path, dim)
        if found is None:
            return None
        try:
            columns = json.loads(found.meta["columns"])
            state, edges, stop = str(columns["state"]), int(columns["edges"]), int(columns["stop"])
        except (LookupError, TypeError, ValueError):
            return None
        changes = store.changes(state, edges)
        if changes is None or stop > store.next_node:
            return None
        later = store.nodes(stop).numpy()
        node, gone = np.concatenate([found.node, later]), np.unique(changes.gone.numpy())
        place = np.searchsorted(found.node, gone).clip(max=max(0, len(found.node) - 1))
        dead = place[found.node[place] == gone] if len(found.node) else place[:0]
        # A damaged snapshot has other nodes.
        if len(dead) > DEAD or len(node) - len(dead) != store.num_atoms:
            return None
        rows = GrowingRows.within(found.buffer, len(found.node))
        if len(later):
            rows.append(store.embeddings(stop))
        return HeldRows(node, rows, {*dead.tolist()})
