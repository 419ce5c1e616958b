"""Effective resistance beside a sparse factorisation and the plain sum of modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import splu

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.inputs import memory_graph
from graphmem_torch.spectral import ElectricalNetwork, Laplacian, effective_resistance, laplacian


def _combinatorial(operator: Laplacian) -> sp.csc_matrix:  # [N, N] float64
    """D - W with |w|."""
    low, high = operator.low.cpu().numpy(), operator.high.cpu().numpy()
    weight = operator.weight.cpu().double().numpy()
    half = sp.coo_matrix((weight, (low, high)), shape=operator.shape)
    both = half + half.T
    return (sp.diags(np.asarray(both.sum(1)).ravel()) - both).tocsc()


def _grounded_lu(matrix: sp.csc_matrix, pairs: np.ndarray) -> Call:
    """Factorise once with the last node grounded, then solve for each pair."""
    nodes = matrix.shape[0]

    def run() -> np.ndarray:
        factor = splu(matrix[:-1, :-1])
        sides = np.zeros((nodes, pairs.shape[1]))
        place = np.arange(pairs.shape[1])
        sides[pairs[0], place] += 1
        sides[pairs[1], place] -= 1
        solved = np.vstack([factor.solve(sides[:-1]), np.zeros((1, pairs.shape[1]))])
        return solved[pairs[0], place] - solved[pairs[1], place]

    return run


def _by_networkx(matrix: sp.csc_matrix, pairs: np.ndarray) -> Call | str:
    networkx = peer("networkx")
    if networkx is None:
        return "not installed"
    weight = sp.diags(matrix.diagonal()) - matrix
    plain = networkx.from_scipy_sparse_array(weight)

    def run() -> np.ndarray:
        options = {"weight": "weight", "invert_weight": False}
        found = networkx.resistance_distance(plain, **options)
        return np.array([found[i][j] for i, j in pairs.T.tolist()])

    return run


def _relative(truth: torch.Tensor, order: Any) -> Any:
    def error(result: Any) -> float:
        values = result.values if hasattr(result, "converged") else torch.as_tensor(result)
        return float(order(((values.cpu().double() - truth) / truth).abs()))

    return error


@pytest.mark.parametrize("size", sizes("effective_resistance"), ids=str)
def test_pairs(race: Race, size: Size) -> None:
    """Effective resistance of pairs, exact."""
    graph = memory_graph(size["n"])
    operator = laplacian(graph, signed=False)
    generator = torch.Generator().manual_seed(1)
    first = torch.randint(0, size["n"], (size["pairs"],), generator=generator)
    step = torch.randint(1, size["n"], (size["pairs"],), generator=generator)
    pairs = torch.stack([first, (first + step) % size["n"]])
    double = ElectricalNetwork(graph, dtype=torch.float64)
    exact = effective_resistance(graph, pairs, "cg", tol=1e-10, network=double).values
    there, asked = graph.to(size.device), pairs.to(size.device)
    peers: dict[str, Call | str] = {}
    if size.device == "cpu":
        matrix = _combinatorial(operator)
        peers["sparse LU"] = size.beyond("sparse LU") or _grounded_lu(matrix, pairs.numpy())
        peers["networkx"] = size.beyond("networkx") or _by_networkx(matrix, pairs.numpy())
    peers["20 modes"] = lambda: effective_resistance(
        there,
        asked,
        "truncated",
        network=ElectricalNetwork(there, generator=torch.Generator().manual_seed(0)),
    )
    race(
        ours=lambda: effective_resistance(there, asked, "cg"),
        peers=peers,
        accuracy=_relative(exact, torch.amax),
        measure="largest relative error",
        at_most=1e-5,
        target=1 / 5 if size.device == "cpu" else None,
        against="sparse LU" if size.device == "cpu" else None,
    )


@pytest.mark.parametrize("size", sizes("effective_resistance"), ids=str)
def test_all_edges(race: Race, size: Size) -> None:
    """Effective resistance of all edges, by a sketch of 64 columns."""
    graph = memory_graph(size["n"])
    there = graph.to(size.device)
    asked = there.edge_index
    some = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(2))[:200]
    pairs = graph.edge_index[:, some]
    double = ElectricalNetwork(graph, dtype=torch.float64)
    exact = effective_resistance(graph, pairs, "cg", tol=1e-10, network=double).values
    mean = _relative(exact, torch.mean)

    def error(result: Any) -> float:
        return mean(result.values.cpu()[some])

    def plain() -> Any:
        generator = torch.Generator(there.device)
        network = ElectricalNetwork(there, columns=64, generator=generator)
        return effective_resistance(there, asked, "sketch", network=network)

    race(ours=plain, accuracy=error, measure="mean relative error", at_most=0.05)
