"""One step of propagation, and personalised PageRank, against scipy and torch sparse products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bench.perf.inputs import memory_graph
from graphmem_torch.graph import Graph
from graphmem_torch.ops import personalized_pagerank, propagate

_NODES = 100_000
_ROUNDS = 20


@pytest.fixture(scope="module")
def graph() -> Graph:
    """100,000 nodes and about 1.2 million edges."""
    return memory_graph(_NODES)


def _matrix(graph: Graph) -> sp.csr_matrix:
    """Rows are targets, weights divided by the fan of the source."""
    source = graph.source.numpy()
    fan = np.maximum(np.bincount(source, minlength=graph.num_nodes), 1)
    weight = (graph.weight.numpy() / fan[source]).astype(np.float32)
    shape = (graph.num_nodes, graph.num_nodes)
    return sp.csr_matrix((weight, source, graph.indptr.numpy()), shape=shape)


@pytest.mark.parametrize("batch", [1, 16, 64])
def test_propagate(race: Callable[..., None], graph: Graph, batch: int) -> None:
    """U = 0.5 a + 0.8 W a, dense activation."""
    activation = torch.rand(batch, _NODES, generator=torch.Generator().manual_seed(1))
    matrix = _matrix(graph)
    columns = np.ascontiguousarray(activation.numpy().T)
    sparse = torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr),
        torch.from_numpy(matrix.indices),
        torch.from_numpy(matrix.data),
        check_invariants=True,
    )
    dense = torch.from_numpy(columns)

    def ours() -> torch.Tensor:
        return propagate(graph, activation)

    def by_scipy() -> np.ndarray:
        return 0.5 * columns + 0.8 * (matrix @ columns)

    def by_torch() -> torch.Tensor:
        return 0.5 * dense + 0.8 * (sparse @ dense)

    assert np.allclose(ours().numpy().T, by_scipy(), rtol=1e-4, atol=1e-4)
    race(ours, scipy=by_scipy, torch_csr=by_torch)


def test_personalized_pagerank(race: Callable[..., None], graph: Graph) -> None:
    """Sixteen questions, 20 rounds, damping 0.85."""
    seeds = torch.zeros(16, _NODES)
    seeds[torch.arange(16), torch.arange(16) * 5_000] = 1.0
    source = graph.source.numpy()
    out = np.bincount(source, weights=graph.weight.numpy(), minlength=_NODES)
    weight = (graph.weight.numpy() / np.maximum(out, 1e-12)[source]).astype(np.float32)
    matrix = sp.csr_matrix((weight, source, graph.indptr.numpy()), shape=(_NODES, _NODES))
    start = np.ascontiguousarray(seeds.numpy().T)
    dangling = (out == 0)[:, None]

    def ours() -> torch.Tensor:
        return personalized_pagerank(graph, seeds, tol=0.0, max_iter=_ROUNDS).values

    def by_scipy() -> np.ndarray:
        rank = start
        for _ in range(_ROUNDS):
            lost = (rank * dangling).sum(0, keepdims=True)
            rank = 0.85 * (matrix @ rank + lost * start) + 0.15 * start
        return rank

    race(ours, rounds=5, scipy=by_scipy)
