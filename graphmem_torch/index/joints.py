"""Joints: edges by which turns follow each other, and atoms are about concepts or derived."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import DEFAULT_EDGE_WEIGHT, EdgeType
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.index.buffer_schema import WHOLE

__all__ = ["is_about", "joints_of", "list_entries"]

_JOINS = np.zeros(256, dtype=bool)  # by type
_JOINS[[EdgeType.TEMPORAL, EdgeType.DERIVED_FROM, EdgeType.ABSTRACTION]] = True
_MENTION = np.float32(DEFAULT_EDGE_WEIGHT[EdgeType.ABSTRACTION])


def joints_of(edges: EdgeBlock) -> Tensor:  # [n, 3] int64
    """The edges that join: source, target and type, with `WHOLE` where an atom is about a concept.

    The turns before an atom in its window are tied to what it mentions by less.
    """
    if not len(edges):
        return torch.empty(0, 3, dtype=torch.int64)
    joins = _JOINS[edges.type.numpy()]
    source, target, type, weight = (column.numpy()[joins] for column in edges.columns)
    kind = type.astype(np.int64)
    kind[(kind == EdgeType.ABSTRACTION) & (weight == _MENTION)] += WHOLE
    return torch.from_numpy(np.stack([source, target, kind], 1))


def is_about(joints: Tensor) -> Tensor:  # [n, 3] -> [n] bool
    """Which join an atom to a concept that it is about."""
    return joints[:, 2] % WHOLE == int(EdgeType.ABSTRACTION)


def list_entries(joints: Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # [n, 3]
    """Edges as entries of the lists of their sources, by these."""
    source, target, type = joints.numpy().T
    order = source.argsort(kind="stable")
    return source[order], {"target": target[order], "type": type[order]}
