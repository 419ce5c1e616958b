"""Graphs that the tests of all operations share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from graphmem_torch.graph import Graph


def _random_graph(
    nodes: int, edges: int, *, seed: int = 0, signed: bool = False, hub: bool = False
) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, max(1, nodes), (2, edges), generator=generator)
    if hub:
        index[1, : edges // 2] = 0
    weight = torch.rand(edges, generator=generator) + 0.05
    if signed:
        weight *= torch.where(torch.rand(edges, generator=generator) < 0.3, -1.0, 1.0)
    # Types tell parallel edges apart, so that some remain parallel.
    kind = torch.randint(0, 3, (edges,), generator=generator)
    return Graph.from_edges(index, weight, type=kind, num_nodes=nodes)


@pytest.fixture
def random_graph() -> Callable[..., Graph]:
    """`random_graph(nodes, edges, seed=, signed=, hub=)`: parallel edges, loops and empty rows."""
    return _random_graph


SHAPES = [
    pytest.param((1, 1, 0), id="one node"),
    pytest.param((1, 1, 4), id="loops"),
    pytest.param((3, 17, 40), id="odd"),
    pytest.param((1, 130, 60), id="mostly empty rows"),
    pytest.param((64, 33, 900), id="hub"),
    pytest.param((65, 20, 300), id="more questions than nodes"),
    pytest.param((4, 9, 0), id="no edges"),
]


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> tuple[int, int, int]:
    """Questions, nodes, edges."""
    return request.param
