"""Graphs with known spectra, and the dense forms that the Laplacian is compared with."""

from __future__ import annotations

from collections.abc import Callable, Set

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.linalg import SymmetricOperator


def _graph(
    edges: list[tuple[int, int]], weight: list[float] | None = None, nodes: int = 0
) -> Graph:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    given = None if weight is None else torch.tensor(weight)
    return Graph.from_edges(index, given, num_nodes=nodes or None)


def _random(
    nodes: int, edges: int, *, seed: int = 0, signed: bool = False, copies: int = 1
) -> Graph:
    """Parallel and opposite edges, loops, isolated nodes; `copies` of it side by side."""
    g = torch.Generator().manual_seed(seed)
    index = torch.randint(0, max(1, nodes), (2, edges), generator=g)
    weight = torch.rand(edges, generator=g) + 0.05
    if signed:
        weight *= torch.where(torch.rand(edges, generator=g) < 0.3, -1.0, 1.0)
    kind = torch.randint(0, 3, (edges,), generator=g).repeat(copies)
    index = torch.cat([index + nodes * i for i in range(copies)], 1)
    return Graph.from_edges(index, weight.repeat(copies), type=kind, num_nodes=nodes * copies)


def _adjacency(graph: Graph, *, signed: bool = True) -> np.ndarray:
    """W by a loop over the edges: the larger |w| of both ways, a positive one on a tie."""
    dense = np.zeros((graph.num_nodes, graph.num_nodes))
    rows = zip(graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True)
    for i, j, w in rows:
        if i != j and (abs(w), w > 0) > (abs(dense[i, j]), dense[i, j] > 0):
            dense[i, j] = dense[j, i] = w
    return dense if signed else np.abs(dense)


def _dense(graph: Graph, *, signed: bool = True, normalized: bool = True) -> np.ndarray:
    """The Laplacian as it is written."""
    weight = _adjacency(graph, signed=signed)
    degree = np.abs(weight).sum(1)
    if not normalized:
        return np.diag(degree) - weight
    root = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    return np.diag((degree > 0).astype(float)) - root[:, None] * weight * root


@pytest.fixture
def graph_of() -> Callable[..., Graph]:
    """`graph_of([(i, j), ...], weight, nodes)`."""
    return _graph


@pytest.fixture
def random_graph() -> Callable[..., Graph]:
    """`random_graph(nodes, edges, seed=, signed=, copies=)`."""
    return _random


@pytest.fixture
def adjacency() -> Callable[..., np.ndarray]:
    """`adjacency(graph, signed=)`: W as a dense array."""
    return _adjacency


@pytest.fixture
def dense_laplacian() -> Callable[..., np.ndarray]:
    """`dense_laplacian(graph, signed=, normalized=)`."""
    return _dense


class DenseOperator(SymmetricOperator):
    """A symmetric matrix as an operator of a user's own: with what is abstract and nothing else."""

    def __init__(self, matrix: Tensor) -> None:  # [N, N]
        self.matrix, self.shape = matrix, (len(matrix), len(matrix))
        self.dtype, self.device = matrix.dtype, matrix.device

    def matmul(self, x: Tensor) -> Tensor:
        self.check_columns(x)
        return self.matrix @ x

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal()

    def bounds(self) -> tuple[float, float]:
        middle = self.diagonal()
        radius = self.matrix.abs().sum(1) - middle.abs()  # of Gershgorin's circles
        return float((middle - radius).min()), float((middle + radius).max())


def hop_distances(edges: Tensor, seeds: list[int], hops: int, allowed: Tensor) -> Tensor:
    """Hops [N] from the nearest seed over allowed nodes, inf where there is no way; by scipy."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import dijkstra

    count, keep = len(allowed), allowed[edges[1]]
    source, target = edges[:, keep].numpy()
    matrix = coo_matrix(
        (torch.ones(source.shape[0]).numpy(), (source, target)), shape=(count, count)
    ).tocsr()
    if not seeds:
        return torch.full((count,), torch.inf)
    found = dijkstra(matrix, indices=seeds, unweighted=True, limit=hops, min_only=True)
    return torch.from_numpy(found).float()


def walked(graph: Graph, seeds: dict[int, float], gone: Set[int] = frozenset()) -> list[float]:
    """Personalised PageRank by networkx; where a node has no edges the walk starts again."""
    import networkx as nx

    walk = nx.DiGraph()
    walk.add_nodes_from(n for n in range(graph.num_nodes) if n not in gone)
    ends = (graph.source.tolist(), graph.target.tolist(), graph.weight.tolist())
    for source, target, weight in zip(*ends, strict=True):
        if source in gone or target in gone:
            continue
        old = walk.get_edge_data(source, target, {"weight": 0.0})["weight"]
        walk.add_edge(source, target, weight=old + weight)
    found = nx.pagerank(walk, alpha=0.85, personalization=seeds, tol=1e-12, max_iter=1000)
    return [found.get(node, 0.0) for node in range(graph.num_nodes)]
