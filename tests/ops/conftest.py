"""Graphs that the tests of all operations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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


class _Largest(TorchDispatchMode):
    """The most elements that any tensor made inside of it has."""

    elements = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = (x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        self.elements = max(self.elements, *made, 0)
        return result


@pytest.fixture
def largest() -> Callable[[], TorchDispatchMode]:
    """`with largest() as seen: ...`, then `seen.elements`: no tensor made was larger."""
    return _Largest


SHAPES = [
    pytest.param((1, 1, 0), id="one node"),
    pytest.param((1, 1, 4), id="loops"),
    pytest.param((3, 17, 40), id="odd"),
    pytest.param((1, 130, 60), id="mostly empty rows"),
    pytest.param((64, 17, 300), id="hub"),
    pytest.param((65, 9, 100), id="more questions than nodes"),
    pytest.param((4, 9, 0), id="no edges"),
]


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> tuple[int, int, int]:
    """Questions, nodes, edges."""
    return request.param
