"""Where an atom lies in the graph: near the question's anchors, or between communities.

`mathematics.md` 2.6. Both read the whole graph as it was when the index was built: what a question
excludes is neither anchor nor hit, but still carries current between the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.signals.registry import signal

__all__: list[str] = []


@signal("proximity", graph=True)
def _proximity(scope: Scope) -> Tensor:
    """Electrical nearness to the nearest anchor, weighed by the anchor's relevance; in [0, 1]."""
    direction, component = scope.index.direction, scope.index.component
    if scope.anchors is None or direction is None or component is None:
        return scope.zeros()
    anchors, relevance = scope.anchors
    if anchors.shape[1] == 0:
        return scope.zeros()
    known, rows = anchors >= 0, anchors.clamp(min=0)
    start = direction.float()[rows] * relevance.where(known, 0.0)[:, :, None]
    there = scope.pick(component)[:, None] == component[rows][:, :, None]
    if scope.rows is None:
        near = start @ direction.float().T
    else:
        near = torch.bmm(start, direction.float()[scope.rows.clamp(min=0)].mT)
    near = near.where(there, 0.0).amax(1).clamp(min=0.0, max=1.0)
    return near if scope.rows is None else near.where(scope.rows >= 0, 0.0)


@signal("bridge", graph=True)
def _bridge(scope: Scope) -> Tensor:
    """How much the atom's edges into other communities hold the graph together; in [0, 1]."""
    bonus = scope.index.bridge_bonus
    return scope.zeros() if bonus is None else scope.pick(bonus.float()).expand(scope.shape)
