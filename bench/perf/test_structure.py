"""Communities, cut edges, bridges, frustration and the whole structure beside graph libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import eigsh

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.inputs import memory_graph
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import cut_edges, undirected
from graphmem_torch.spectral import (
    ElectricalNetwork,
    bridge_scores,
    bridges,
    communities,
    components,
    frustration,
    laplacian,
    modularity,
)
from graphmem_torch.spectral.structure import Structure, structure_of

_SIZES = sizes("structure")


def _edges(graph: Graph) -> tuple[np.ndarray, np.ndarray]:  # [M, 2], [M]
    low, high, weight = undirected(graph)
    return torch.stack([low, high], 1).numpy(), weight.double().abs().numpy()


def _igraph(graph: Graph, pairs: np.ndarray) -> Any:
    igraph = peer("igraph")
    return None if igraph is None else igraph.Graph(n=graph.num_nodes, edges=pairs)


def _networkx(graph: Graph, pairs: np.ndarray, weight: np.ndarray, size: Size) -> Any:
    networkx = peer("networkx")
    if networkx is None or size.beyond("networkx"):
        return None
    plain = networkx.Graph()
    plain.add_nodes_from(range(graph.num_nodes))
    plain.add_weighted_edges_from(zip(*pairs.T.tolist(), weight.tolist(), strict=True))
    return plain


def _networkit_leiden(graph: Graph, pairs: np.ndarray, weight: np.ndarray) -> Call | str:
    networkit = peer("networkit")
    if networkit is None:
        return "not installed"
    networkit.setNumberOfThreads(1)
    ends = np.ascontiguousarray(pairs.T, dtype=np.uint64)
    built = networkit.GraphFromCoo(
        (weight, (ends[0], ends[1])), n=graph.num_nodes, weighted=True, directed=False
    )

    def run() -> np.ndarray:
        networkit.setSeed(0, False)
        found = networkit.community.ParallelLeiden(built, iterations=3, randomize=False)
        found.run()
        return np.array(found.getPartition().getVector())

    return run


def _dense(label: Any) -> torch.Tensor:  # [N] int64
    return torch.unique(torch.as_tensor(np.asarray(label)), return_inverse=True)[1]


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_leiden(race: Race, size: Size) -> None:
    """Communities by Leiden; peers have their graph built before."""
    graph = memory_graph(size["n"], degree=size["degree"])
    pairs, weight = _edges(graph)
    by_igraph, by_networkx = _igraph(graph, pairs), _networkx(graph, pairs, weight, size)
    peers: dict[str, Call | str] = {"networkit": _networkit_leiden(graph, pairs, weight)}
    peers["igraph"] = "not installed"
    if by_igraph is not None:
        peers["igraph"] = lambda: (
            by_igraph.community_leiden("modularity", weights=weight).membership
        )
    peers["networkx louvain"] = size.beyond("networkx") or "not installed"
    if by_networkx is not None:

        def louvain() -> np.ndarray:
            label = np.empty(graph.num_nodes, dtype=np.int64)
            parts = peer("networkx").community.louvain_communities(by_networkx, seed=0)
            for number, nodes in enumerate(parts):
                label[list(nodes)] = number
            return label

        peers["networkx louvain"] = louvain
    there = graph.to(size.device)
    race(
        ours=lambda: communities(there).cpu(),
        peers=peers,
        accuracy=lambda label: modularity(graph, _dense(label)),
        measure="modularity",
        at_least=size["modularity"],
    )


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_fiedler(race: Race, size: Size) -> None:
    """Communities by recursive Fiedler bisection with sweep cuts."""
    graph = memory_graph(size["n"], degree=size["degree"])
    there = graph.to(size.device)
    race(
        ours=lambda: communities(there, "fiedler").cpu(),
        accuracy=lambda label: modularity(graph, _dense(label)),
        measure="modularity",
        at_least=0.0,
    )


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_cut_edges(race: Race, size: Size) -> None:
    """Cut edges and what they cut off; the peers only find which they are."""
    graph = memory_graph(size["n"], degree=2)
    # Without its time chain, so that there are some.
    graph = graph.select(graph.target - graph.source != 1)
    pairs, weight = _edges(graph)
    low, high, _ = undirected(graph.to(size.device))
    label = components(graph.to(size.device))
    by_igraph, by_networkx = _igraph(graph, pairs), _networkx(graph, pairs, weight, size)
    peers: dict[str, Call | str] = {"igraph": "not installed"}
    if by_igraph is not None:
        peers["igraph"] = by_igraph.bridges
    peers["networkx"] = size.beyond("networkx") or "not installed"
    if by_networkx is not None:
        number = {(i, j): at for at, (i, j) in enumerate(pairs.tolist())}
        peers["networkx"] = lambda: [
            number[min(edge), max(edge)] for edge in peer("networkx").bridges(by_networkx)
        ]
    oracle = next((call for call in peers.values() if callable(call)), None)
    if oracle is None:
        pytest.skip("neither igraph nor a small enough graph for networkx to tell the truth")
    truth = np.zeros(len(pairs), dtype=bool)
    truth[oracle()] = True

    def wrong(result: Any) -> float:
        if isinstance(result, torch.Tensor):
            found = result.cpu().numpy() > 0
        else:
            found = np.zeros_like(truth)
            found[list(result)] = True
        return float(np.count_nonzero(found != truth))

    race(
        ours=lambda: cut_edges(low, high, label),
        peers=peers,
        accuracy=wrong,
        measure="wrong edges",
        at_most=0,
    )


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_bridges(race: Race, size: Size) -> None:
    """The ten best bridges between communities, exactly scored."""
    graph = memory_graph(size["n"], degree=size["degree"])
    label = communities(graph)
    there, theirs = graph.to(size.device), label.to(size.device)

    def error(found: Any) -> float:
        exact = bridge_scores(graph, found.pairs.cpu(), "cg", tol=1e-14).score
        return float(((found.score.cpu() - exact) / exact).abs().max())

    race(
        ours=lambda: bridges(
            there,
            theirs,
            network=ElectricalNetwork(there, generator=torch.Generator().manual_seed(0)),
        ),
        accuracy=error,
        measure="largest relative error",
        at_most=1e-5,
    )


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_frustration(race: Race, size: Size) -> None:
    """Frustration of a graph in which every tenth edge contradicts."""
    graph = memory_graph(size["n"], degree=size["degree"])
    sign = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(1)) < 0.1
    graph = graph.with_weight(torch.where(sign, -graph.weight, graph.weight))
    operator = laplacian(graph, dtype=torch.float64)
    parts = (operator.entry, operator.column, operator.indptr)
    matrix = sp.csr_matrix(tuple(part.numpy() for part in parts), shape=operator.shape)
    there = graph.to(size.device)
    truth = float(frustration(graph, tol=1e-10).value.max())

    def arpack() -> float:
        return 1 - float(eigsh(matrix, 1, which="LA", tol=1e-8, return_eigenvectors=False)[0])

    def error(result: Any) -> float:
        value = result if isinstance(result, float) else float(result.value.max())
        return abs(value - truth)

    race(
        ours=lambda: frustration(there),
        peers={"ARPACK": arpack},
        accuracy=error,
        measure="error of the eigenvalue",
        at_most=1e-7,
    )


def _residual(found: Structure) -> float:
    return float(found.residual.max())


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_whole(race: Race, size: Size) -> None:
    """Spectrum, communities, centrality, bridges, links, frontiers and frustration together."""
    there = memory_graph(size["n"], degree=size["degree"]).to(size.device)
    race(
        ours=lambda: structure_of(there),
        accuracy=_residual,
        measure="largest residual",
        at_most=1e-4,
    )
