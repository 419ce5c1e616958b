"""PageRank of a whole graph beside graph libraries and loops over sparse products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import Tensor

from bench.perf.contest import Race, Size, sizes
from bench.perf.inputs import memory_graph
from bench.perf.walks import by_libraries, by_products, converged, walk_matrix
from graphmem_torch.ops import pagerank

_ROUNDS = 20


@pytest.mark.parametrize("size", sizes("pagerank"), ids=str)
def test_pagerank(race: Race, size: Size) -> None:
    """PageRank of every node."""
    nodes = size["n"]
    graph = memory_graph(nodes, degree=size["e"] // nodes)
    matrix = walk_matrix(graph)
    start = np.full((nodes, 1), 1 / nodes, dtype=np.float32)
    exact = converged(matrix, start)
    given = graph.to(size.device)
    race(
        ours=lambda: pagerank(given).values[:, None],
        peers={
            **by_products(matrix, start, _ROUNDS, size),
            **by_libraries(graph, matrix, start, size),
        },
        accuracy=lambda found: _error(found, exact),
        measure="L1 error",
        at_most=1e-3,
    )


def _error(found: Any, exact: np.ndarray) -> float:
    values = found.cpu().numpy() if isinstance(found, Tensor) else found
    return float(np.abs(values - exact).sum())
