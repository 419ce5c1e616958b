"""Random inputs; the last ones are cached, so do not change them."""

from __future__ import annotations

import functools

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphmem_torch.graph import Graph

__all__ = ["memory_graph", "spread_matrix", "torch_csr", "unit_rows"]


@functools.lru_cache(maxsize=1)
def memory_graph(nodes: int, *, degree: int = 12, seed: int = 0) -> Graph:
    """Return a graph of a time chain, local links and Zipf hubs; about `degree` edges a node."""
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


def spread_matrix(graph: Graph, spread: float = 0.8) -> sp.csr_matrix:  # [N, N] float32
    """Return spread * W: rows are targets, weights divided by the fan of the source."""
    source = graph.source.numpy()
    fan = np.maximum(np.bincount(source, minlength=graph.num_nodes), 1)
    weight = (spread * graph.weight.numpy() / fan[source]).astype(np.float32)
    shape = (graph.num_nodes, graph.num_nodes)
    return sp.csr_matrix((weight, source, graph.indptr.numpy()), shape=shape)


def torch_csr(matrix: sp.csr_matrix, device: str = "cpu") -> Tensor:  # sparse [N, N]
    """Return the same matrix as a torch tensor."""
    indptr, indices, data = (
        torch.from_numpy(part).to(device) for part in (matrix.indptr, matrix.indices, matrix.data)
    )
    return torch.sparse_csr_tensor(indptr, indices, data, matrix.shape, check_invariants=True)


@functools.lru_cache(maxsize=2)
def unit_rows(count: int, width: int, *, seed: int = 0) -> Tensor:  # [count, width] float32
    """Return random unit vectors."""
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, width, generator=generator), dim=1)
