"""What a retrieval task makes of a memory."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.graph import Graph
from graphmem_torch.quality.common.task import lift_facts, undirected


def test_undirected_goes_both_ways_by_absolute_weight() -> None:
    graph = undirected(
        Graph.from_edges(
            torch.tensor([[0, 1, 2], [1, 0, 1]]), torch.tensor([0.2, -0.9, 0.5]), num_nodes=3
        )
    )
    edges = dict(zip(map(tuple, graph.edge_index.T.tolist()), graph.weight.tolist(), strict=True))
    assert edges == pytest.approx({(0, 1): 0.9, (1, 0): 0.9, (2, 1): 0.5, (1, 2): 0.5})


def test_lift_facts_gives_a_turn_the_best_of_its_facts() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.2, 0.8, 0.5]])  # turns 0 and 2; facts 1, 3, 4
    turns = torch.tensor([0, 2])
    fact, source = torch.tensor([1, 3, 4, 4]), torch.tensor([0, 0, 0, 1])
    assert lift_facts(scores, turns, fact, source).tolist() == [[pytest.approx(0.9), 0.5]]
    assert lift_facts(scores, turns, fact[:0], source[:0]).tolist() == [
        [pytest.approx(0.1), pytest.approx(0.2)]
    ]
