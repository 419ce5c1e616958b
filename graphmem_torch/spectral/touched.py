"""Communities and centralities of a changed graph, found anew only where it changed."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops.solution import Solution
from graphmem_torch.spectral._pseudo_inverse import SMALL
from graphmem_torch.spectral.centrality import centrality
from graphmem_torch.spectral.changes import Changes
from graphmem_torch.spectral.communities import communities
from graphmem_torch.spectral.leiden import connected_parts
from graphmem_torch.spectral.symmetric import undirected
from graphmem_torch.spectral.workspace import Workspace

__all__ = ["centrality_after", "communities_after"]

_MOST = 0.5  # share of the nodes in changed communities from which all are found anew


def communities_after(
    changes: Changes,
    label: Tensor,  # [N] of the old nodes
    method: str,
    *,
    resolution: float = 1.0,
) -> Tensor:  # [N'] int32
    """Communities anew where edges or nodes came or went, the others as they were.

    The changed communities are taken apart together, as a graph of their own. Modularity weighs
    chance by the weight of the whole graph, so there the resolution is their share of it.

    Args:
        changes: From the old graph to the new one.
        label: Old communities, numbered from 0.
        method: As for `communities`.
        resolution: As for `communities`.
    """
    graph = changes.graph
    count = int(label.max()) + 1 if label.numel() else 0
    carried = changes.carried(label, -1).long()
    changed = torch.zeros(count + 1, dtype=torch.bool, device=label.device)
    changed[carried[changes.touched]] = True
    region = changed[carried] | (carried < 0)
    if float(region.float().mean()) > _MOST:
        return communities(graph, method, resolution=resolution)
    part, node = changes.induced(region)
    low, high, weight = undirected(graph)
    strength = weight.double().abs()
    share = float(strength[region[low] & region[high]].sum() / strength.sum())
    # Without a weight there (NaN where there is none at all) every node is its own community.
    fresh = communities(part, method, resolution=resolution * share if share > 0 else 1.0)
    carried[node] = fresh.long() + count
    return connected_parts(carried, low, high)


def centrality_after(
    changes: Changes,
    values: Tensor,  # [N] of the old nodes
    error: Tensor,  # [N] relative
    *,
    columns: int,
    workspace: Workspace,
) -> Solution:  # values [N'], residual [N']
    """Centralities anew in components that changed: they depend on nothing outside.

    In a large graph all are estimated again, from the old sketch, and those components keep theirs.

    Args:
        changes: From the old graph to the new one.
        values: Old centralities.
        error: And their errors.
        columns: As for `centrality`.
        workspace: Of the new graph, begun from the old one.
    """
    label = workspace.operator.component
    changed = torch.zeros(changes.graph.num_nodes, dtype=torch.bool, device=label.device)
    changed[label[changes.touched]] = True
    inside = changed[label]
    carried, carried_error = changes.carried(values, 0.0), changes.carried(error, 0.0)
    if changes.graph.num_nodes > SMALL:
        found = centrality(changes.graph, "sketch", columns=columns, workspace=workspace)
        fresh, fresh_error = found.values[inside], found.residual[inside]
    else:
        found = centrality(changes.induced(inside)[0], "exact")
        fresh, fresh_error = found.values, found.residual
    carried[inside] = fresh.to(carried.dtype)
    carried_error[inside] = fresh_error.to(carried_error.dtype)
    return Solution(carried, None, carried_error, found.iterations, found.converged)
