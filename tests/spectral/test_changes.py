"""changes_between: which nodes of a graph have other edges than before."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.changes import changes_between


def test_changes_are_undirected_and_signed() -> None:
    one = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([1.0, 0.5, 0.7]))
    turned = Graph.from_edges(torch.tensor([[1, 2, 3], [0, 1, 2]]), torch.tensor([1.0, 0.5, 0.7]))
    same = torch.arange(4)
    assert changes_between(one, turned, same).nothing
    against = Graph.from_edges(torch.tensor([[1, 2, 3], [0, 1, 2]]), torch.tensor([1.0, -0.5, 0.7]))
    found = changes_between(one, against, same)
    assert not found.nothing and found.touched.tolist() == [False, True, True, False]
    with pytest.raises(InputError, match="kept"):
        changes_between(one, turned, torch.tensor([0, 0, 1, 2]))
    with pytest.raises(InputError, match="kept"):
        changes_between(one, turned, torch.tensor([0, 1, 2, 9]))


def test_nodes_that_came_and_went() -> None:
    before = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]))
    # Node 1 went, the others moved up, and one came.
    after = Graph.from_edges(torch.tensor([[1], [2]]), num_nodes=4)
    found = changes_between(before, after, torch.tensor([0, 2, 3, -1]))
    assert found.touched.tolist() == [True, True, False, True]
    carried = found.carried(torch.tensor([[5.0], [6.0], [7.0], [8.0]]), -1.0)
    assert carried.tolist() == [[5.0], [7.0], [8.0], [-1.0]]


def test_the_part_between_some_nodes() -> None:
    graph = Graph.from_edges(
        torch.tensor([[0, 1, 2, 3], [1, 2, 3, 3]]), torch.tensor([1.0, -2.0, 3.0, 4.0])
    )
    found = changes_between(graph, graph, torch.arange(4))
    part, node = found.induced(torch.tensor([False, True, True, True]))
    assert node.tolist() == [1, 2, 3]
    assert part.edge_index.T.tolist() == [[0, 1], [1, 2], [2, 2]]
    assert part.weight.tolist() == [-2.0, 3.0, 4.0]


def test_a_graph_that_only_grew_by_a_lone_node_or_was_reordered() -> None:
    before = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=2)
    grown = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=3)
    found = changes_between(before, grown, torch.tensor([0, 1, -1]))
    assert not found.nothing and found.touched.tolist() == [False, False, True]
    turned = changes_between(before, before, torch.tensor([1, 0]))
    assert not turned.nothing and not turned.touched.any()
    empty = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=2)
    assert changes_between(before, empty, torch.arange(2)).touched.all()
    assert changes_between(empty, before, torch.arange(2)).touched.all()
