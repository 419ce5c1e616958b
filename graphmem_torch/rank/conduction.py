"""The graph that activation travels on: gains, both directions, and only the strongest edges."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import SpreadConfig
from graphmem_torch.graph import Graph

__all__ = ["conducting_graph"]


def conducting_graph(
    source: Tensor,  # [E] int64 rows
    target: Tensor,  # [E] int64 rows
    type: Tensor,  # [E] uint8
    weight: Tensor,  # [E] float32
    time: Tensor,  # [N] float64 seconds, NaN where unknown
    config: SpreadConfig,
) -> Graph:
    """Gains by type and direction, the decay of temporal edges, then the strongest of each node.

    w = gain * weight, times exp(-rho |dt|) with dt in hours for temporal edges (`mathematics.md`
    4). An edge of negative weight says that its ends conflict and conducts nothing; a contradiction
    conducts its |weight| where a preset gives the type a gain, for those who ask what speaks
    against something. Edges of gain 0 are left out.
    """
    gains = _per_type(config.edges)
    reverse = _per_type(config.reverse)
    strength = torch.where(type == int(EdgeType.CONTRADICTS), weight.abs(), weight.clamp(min=0.0))
    hours = (time[source] - time[target]).abs().nan_to_num_(nan=0.0) / 3600.0
    decay = torch.exp(-config.temporal_decay * hours).to(torch.float32)
    strength = torch.where(type == int(EdgeType.TEMPORAL), strength * decay, strength)
    kind = type.long()
    both = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    value = torch.cat([strength * gains[kind], strength * reverse[kind]])
    kinds = torch.cat([type, type])
    keep = value > 0
    graph = Graph.from_edges(both[:, keep], value[keep], type=kinds[keep], num_nodes=time.shape[0])
    return graph.topk_edges(config.max_edges, ties="first")


def _per_type(gains: object) -> Tensor:
    table = torch.zeros(256)
    for name, gain in dict(gains).items():  # type: ignore[call-overload]
        table[EdgeType[name.upper()]] = gain
    return table
