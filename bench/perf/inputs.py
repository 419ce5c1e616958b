"""Random inputs of the shapes of `performance.md`."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.graph import Graph

__all__ = ["memory_graph", "unit_rows"]


def memory_graph(nodes: int, *, degree: int = 12, seed: int = 0) -> Graph:
    """Time chain, local links and Zipf hubs: about `degree` edges a node, weights in (0, 1)."""
    generator = torch.Generator().manual_seed(seed)
    chain = torch.arange(nodes - 1)
    count = nodes * (degree - 1) // 2
    start = torch.randint(nodes, (count,), generator=generator)
    near = (start + torch.randint(1, 50, (count,), generator=generator)) % nodes
    hubs = (torch.rand(count, generator=generator) ** 4 * nodes / 10).long()
    source = torch.cat([chain, start, start])
    target = torch.cat([chain + 1, near, hubs])
    weight = torch.rand(len(source), generator=generator) * 0.9 + 0.1
    return Graph.from_edges(torch.stack([source, target]), weight, num_nodes=nodes)


def unit_rows(count: int, width: int, *, seed: int = 0) -> Tensor:  # [count, width] float32
    """Random unit vectors."""
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, width, generator=generator), dim=1)
