"""Dense adjacency and reachability against networkx."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.adjacency import MAX_DENSE, adjacency, reach, sparse_product


def _random(nodes: int, edges: int, seed: int, *, acyclic: bool) -> Graph:
    chance = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges), generator=chance)
    if acyclic:
        ends = torch.stack([ends.amax(0), ends.amin(0)])
    ends = ends[:, ends[0] != ends[1]]
    return Graph.from_edges(ends, num_nodes=nodes)


def _reached(graph: Graph, hops: int | None) -> torch.Tensor:
    nodes = graph.num_nodes
    other = nx.DiGraph(graph.edge_index.T.tolist())
    other.add_nodes_from(range(nodes))
    found = torch.zeros(nodes, nodes)
    for start in range(nodes):
        # A path of at least one edge: from the successors on.
        for first in other.successors(start):
            depth = None if hops is None else hops - 1
            for node in nx.single_source_shortest_path_length(other, first, cutoff=depth):
                found[start, node] = 1.0
    return found


@pytest.mark.parametrize("acyclic", [True, False])
@pytest.mark.parametrize("hops", [None, 1, 2, 3])
def test_reach_is_what_networkx_reaches(hops: int | None, acyclic: bool) -> None:
    graph = _random(40, 90, 3, acyclic=acyclic)
    assert torch.equal(reach(graph, hops), _reached(graph, hops))


def test_no_edges_reach_nothing() -> None:
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    assert not reach(graph).any() and not reach(graph, 2).any()


def test_parallel_edges_count_once() -> None:
    ends = torch.tensor([[1, 1, 2], [0, 0, 1]])
    graph = Graph.from_edges(ends, torch.tensor([0.3, -2.0, 5.0]), type=torch.tensor([1, 4, 4]))
    assert adjacency(graph).tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("shape", [(1, 5, 3), (7, 4, 1), (6, 6, 6)])
def test_sparse_product_is_the_product(shape: tuple[int, int, int]) -> None:
    chance = torch.Generator().manual_seed(1)
    rows, inner, columns = shape
    left = torch.randn(rows, inner, generator=chance).relu()
    right = torch.randn(inner, columns, generator=chance)
    torch.testing.assert_close(sparse_product(left, right), left @ right)


def test_large_graphs_and_no_hops_are_refused() -> None:
    empty = torch.empty(2, 0, dtype=torch.int64)
    with pytest.raises(InputError, match=str(MAX_DENSE)):
        adjacency(Graph.from_edges(empty, num_nodes=MAX_DENSE + 1))
    with pytest.raises(InputError, match="hops"):
        reach(Graph.from_edges(empty, num_nodes=2), 0)
