"""Personalised PageRank by the peers; questions are the columns of `start` [N, B]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from bench.perf.contest import Call, Size, peer
from bench.perf.inputs import torch_csr
from graphmem_torch.graph import Graph

__all__ = ["by_libraries", "by_products", "converged", "walk_matrix"]

_DAMPING = 0.85


def walk_matrix(graph: Graph) -> sp.csr_matrix:  # [N, N] float32
    """Return the matrix of a step: rows are targets, columns of nodes with edges sum to 1."""
    source, nodes = graph.source.numpy(), graph.num_nodes
    out = np.bincount(source, weights=graph.weight.numpy(), minlength=nodes)
    weight = (graph.weight.numpy() / out[source]).astype(np.float32)
    return sp.csr_matrix((weight, source, graph.indptr.numpy()), shape=(nodes, nodes))


def converged(matrix: sp.csr_matrix, start: np.ndarray) -> np.ndarray:  # [N, B] float64
    """Return the reference: scipy in float64 until it changes by less than 1e-9."""
    matrix, start = matrix.astype(np.float64), start.astype(np.float64)
    loop = _rounds(lambda x: matrix @ x, _without_edges(matrix), start, 8)
    x, change = start, np.inf
    while change > 1e-9:
        following = loop(x)
        x, change = following, np.abs(following - x).sum(0).max()
    return x


def by_products(
    matrix: sp.csr_matrix, start: np.ndarray, rounds: int, size: Size
) -> dict[str, Call | str]:
    """Return power iterations with the sparse products of scipy and torch, each giving [N, B]."""
    scaled = _DAMPING * matrix
    sparse = torch_csr(scaled, size.device)
    seeds = torch.from_numpy(start).to(size.device)
    lost = torch.from_numpy(_without_edges(matrix)).to(size.device)
    indptr, source, weight = sparse.crow_indices(), sparse.col_indices(), sparse.values()

    def bags(x: Tensor) -> Tensor:
        return embedding_bag(
            source, x, indptr, mode="sum", per_sample_weights=weight, include_last_offset=True
        )

    def repeat(product: Callable[[Tensor], Tensor]) -> Tensor:
        x = seeds
        for _ in range(rounds):
            again = _DAMPING * x[lost].sum(0) + (1 - _DAMPING)
            x = product(x).addcmul_(seeds, again)
        return x

    plain = _rounds(lambda x: matrix @ x, _without_edges(matrix), start, rounds)
    return {
        "scipy CSR": lambda: plain(start),
        "torch CSR": lambda: repeat(lambda x: sparse @ x),
        "torch embedding_bag": lambda: repeat(bags),
    }


def by_libraries(
    graph: Graph, matrix: sp.csr_matrix, start: np.ndarray, size: Size
) -> dict[str, Call | str]:
    """Return libraries that take one question at a time, each giving [N, B]."""
    return {
        "igraph": _by_igraph(graph, start, size),
        "scikit-network": _by_scikit_network(matrix, start, size),
        "networkx": _by_networkx(graph, start, size),
    }


def _without_edges(matrix: sp.csr_matrix) -> np.ndarray:
    return np.flatnonzero(np.bincount(matrix.indices, minlength=matrix.shape[0]) == 0)


def _rounds(
    product: Callable[[np.ndarray], np.ndarray], lost: np.ndarray, start: np.ndarray, rounds: int
) -> Callable[[np.ndarray], np.ndarray]:
    def run(x: np.ndarray) -> np.ndarray:
        for _ in range(rounds):
            again = _DAMPING * x[lost].sum(0) + (1 - _DAMPING)
            x = _DAMPING * product(x) + again * start
        return x

    return run


def _by_igraph(graph: Graph, start: np.ndarray, size: Size) -> Call | str:
    library, beyond = peer("igraph"), size.beyond("igraph")
    if library is None or beyond:
        return beyond or "not installed"
    drawn = library.Graph(graph.num_nodes, edges=graph.edge_index.T.numpy(), directed=True)
    drawn.es["weight"] = graph.weight.tolist()
    resets = start.T.astype(np.float64).tolist()

    def run() -> np.ndarray:
        found = [
            drawn.personalized_pagerank(
                damping=_DAMPING, reset=row, weights="weight", implementation="prpack"
            )
            for row in resets
        ]
        return np.array(found).T

    return run


def _by_scikit_network(matrix: sp.csr_matrix, start: np.ndarray, size: Size) -> Call | str:
    library, beyond = peer("sknetwork.ranking"), size.beyond("scikit-network")
    if library is None or beyond:
        return beyond or "not installed"
    rows = matrix.T.tocsr()
    solver = library.PageRank(_DAMPING, n_iter=20, tol=0.0)
    # It normalises the weights itself at every call, as all but the loops do.
    return lambda: np.stack([solver.fit_predict(rows, weights=s) for s in start.T], axis=1)


def _by_networkx(graph: Graph, start: np.ndarray, size: Size) -> Call | str:
    library, beyond = peer("networkx"), size.beyond("networkx")
    if library is None or beyond:
        return beyond or "not installed"
    drawn = library.DiGraph()
    drawn.add_nodes_from(range(graph.num_nodes))
    edges = zip(graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True)
    drawn.add_weighted_edges_from(edges)

    def run() -> np.ndarray:
        found = [
            library.pagerank(drawn, _DAMPING, personalization=dict(enumerate(s))) for s in start.T
        ]
        return np.array([list(one.values()) for one in found]).T

    return run
