"""Personalised PageRank of a batch beside graph libraries and loops over sparse products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.perf.contest import Race, Size, sizes
from bench.perf.inputs import memory_graph
from bench.perf.walks import by_libraries, by_products, converged, walk_matrix
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, pagerank, personalized_pagerank

_ROUNDS = 20


@pytest.mark.parametrize("size", sizes("personalized_pagerank"), ids=str)
def test_personalized_pagerank(race: Race, size: Size) -> None:
    """Personalised PageRank, all values, 20 rounds."""
    graph, seeds, start = _inputs(size)
    matrix = walk_matrix(graph)
    exact = converged(matrix, start)
    given, panel = graph.to(size.device), seeds.to_dense().to(size.device)
    race(
        ours=lambda: (
            personalized_pagerank(given, panel, tol=0.0, max_iter=_ROUNDS, method="power").values.T
        ),
        peers={
            **by_products(matrix, start, _ROUNDS, size),
            **by_libraries(graph, matrix, start, size),
        },
        accuracy=lambda found: float(np.abs(_array(found) - exact).sum(0).max()),
        measure="L1 error",
        at_most=1e-3,
        target={"igraph": 1 / 8, "torch embedding_bag": 1.0, "torch CSR": 1.0},
    )


@pytest.mark.parametrize("size", sizes("personalized_pagerank_top"), ids=str)
def test_personalized_pagerank_top(race: Race, size: Size) -> None:
    """Personalised PageRank, top 30 by local push."""
    graph, seeds, start = _inputs(size)
    matrix = walk_matrix(graph)
    exact = _best(converged(matrix, start), size["k"])
    given = graph.to(size.device)
    rows = SparseRows(seeds.key.to(size.device), seeds.value.to(size.device), seeds.shape)
    # As a memory holds it: the PageRank of the graph, which no question changes.
    background = pagerank(given).values

    def push(background: Tensor | None) -> Tensor | None:
        found = personalized_pagerank(
            given, rows, k=size["k"], method="push", background=background
        )
        return found.indices

    others = {
        **by_products(matrix, start, _ROUNDS, size),
        **by_libraries(graph, matrix, start, size),
    }
    race(
        ours=lambda: push(background),
        peers={
            "push without background": lambda: push(None),
            **{
                name: call if isinstance(call, str) else lambda call=call: _best(call(), size["k"])
                for name, call in others.items()
            },
        },
        accuracy=lambda found: _shared(found, exact),
        measure=f"recall@{size['k']}",
        at_least=0.95,
        target=0.01,
        against="igraph",
    )


def _inputs(size: Size) -> tuple[Graph, SparseRows, np.ndarray]:
    """Return a memory, five weighted seeds a question, and the seeds as columns that sum to 1."""
    nodes, batch = size["n"], size["batch"]
    graph = memory_graph(nodes, degree=size["e"] // nodes)
    generator = torch.Generator().manual_seed(0)
    place = torch.randint(nodes, (batch, 5), generator=generator)
    seeds = SparseRows.of(place, torch.rand(batch, 5, generator=generator) + 0.2, nodes)
    dense = seeds.to_dense()
    start = (dense / dense.sum(1, keepdim=True)).T.contiguous().numpy()
    return graph, seeds, start


def _array(found: Any) -> np.ndarray:
    return found.cpu().numpy() if isinstance(found, Tensor) else found


def _best(values: Any, k: int) -> Tensor:  # [N, B] -> [B, k]
    """Rank the values of the peers, which takes part of their time."""
    return torch.as_tensor(values).topk(k, dim=0).indices.T


def _shared(found: Tensor, exact: Tensor) -> float:
    same = found.cpu()[:, :, None] == exact[:, None, :]
    return float(same.any(2).float().mean())
