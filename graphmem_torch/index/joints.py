"""Joints: edges that make turns consecutive, derive atoms, or say what concepts atoms are about."""

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
    """Return the joining edges: source, target and type, plus `WHOLE` for an atom's own mention.

    The turns before an atom in its window have weaker edges to what it mentions.
    """
    if not len(edges):
        return torch.empty(0, 3, dtype=torch.int64)
    joins = _JOINS[edges.type.numpy()]
    source, target, type, weight = (column.numpy()[joins] for column in edges.columns)
    kind = type.astype(np.int64)
    kind[(kind == EdgeType.ABSTRACTION) & (weight == _MENTION)] += WHOLE
    return torch.from_numpy(np.stack([source, target, kind], 1))


def is_about(joints: Tensor) -> Tensor:  # [n, 3] -> [n] bool
    """Return the mask of joints from an atom to a concept that it is about."""
    return joints[:, 2] % WHOLE == int(EdgeType.ABSTRACTION)


def list_entries(joints: Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # [n, 3]
    """Return edges as entries of the lists of their sources: sources, and columns in order."""
    source, target, type = joints.numpy().T
    order = source.argsort(kind="stable")
    return source[order], {"target": target[order], "type": type[order]}
