"""Spreading activation over all nodes, and on the frontier, beside loops of sparse products."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from bench.perf.contest import Call, Race, Size, sizes
from bench.perf.inputs import memory_graph, spread_matrix, torch_csr
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, spread_activation

_ROUNDS, _TOP = 3, 7


def _inputs(size: Size) -> tuple[Graph, sp.csr_matrix, SparseRows]:
    """Return the graph, 0.8 W, and the anchors of every question."""
    graph = memory_graph(size["n"], degree=size["e"] // size["n"])
    generator = torch.Generator().manual_seed(1)
    anchors = torch.randint(size["n"], (size["batch"], size["seeds"]), generator=generator)
    values = torch.rand(anchors.shape, generator=generator) * 0.5 + 0.5
    return graph, spread_matrix(graph), SparseRows.of(anchors, values, size["n"])


def _csr(rows: SparseRows | Tensor | np.ndarray | sp.csr_matrix) -> sp.csr_matrix:  # [B, N]
    if isinstance(rows, SparseRows):
        row, column = rows.row.cpu().numpy(), rows.column.cpu().numpy()
        return sp.csr_matrix((rows.value.cpu().numpy(), (row, column)), shape=rows.shape)
    return sp.csr_matrix(rows.cpu().numpy() if isinstance(rows, Tensor) else rows)


def _follow(state: sp.csr_matrix, outgoing: sp.csr_matrix) -> sp.csr_matrix:  # [B, N]
    """Follow the edges of active nodes with scipy's sparse product."""
    for _ in range(_ROUNDS):
        state = (0.5 * state + state @ outgoing).tocsr()
        for begin, end in pairwise(state.indptr):
            u = state.data[begin:end]
            strongest = np.partition(u, max(0, len(u) - _TOP))[-_TOP:]
            u -= 0.15 * np.maximum(strongest[:, None] - u, 0).sum(0)
        fired = np.maximum(state.data, 0)
        state.data = 1 / (1 + np.exp(-5 * (fired - 0.5)))
    return state


def _over_all(state: np.ndarray, matrix: sp.csr_matrix) -> np.ndarray:  # [N, B] -> [B, N]
    """Multiply all nodes with scipy, with one pass for each of the strongest."""
    touched = state != 0
    for _ in range(_ROUNDS):
        u = 0.5 * state + matrix @ state
        touched |= u != 0
        strongest = np.partition(u.T.copy(), len(u) - _TOP, axis=1)[:, -_TOP:]
        above = np.zeros_like(u)
        for place in range(_TOP):
            above += np.maximum(strongest[:, place] - u, 0)
        fired = np.maximum(u - 0.15 * above, 0)
        state = np.where(touched, 1 / (1 + np.exp(-5 * (fired - 0.5))), 0).astype(u.dtype)
    return state.T


def _by_torch(start: Tensor, matrix: sp.csr_matrix) -> Call:
    """Run the same rounds with the sparse product of torch."""
    sparse = torch_csr(matrix, str(start.device))

    def run() -> Tensor:
        state, touched = start, start != 0
        for _ in range(_ROUNDS):
            u = torch.addmm(state, sparse, state, beta=0.5)
            touched = touched | (u != 0)
            strongest = u.t().contiguous().topk(_TOP, dim=1).values
            above = torch.zeros_like(u)
            for place in range(_TOP):
                above += (strongest[:, place] - u).clamp_(min=0)
            fired = (u - 0.15 * above).clamp_(min=0)
            state = torch.sigmoid(5 * (fired - 0.5)) * touched
        return state.t()

    return run


@pytest.mark.parametrize("size", sizes("spread_activation"), ids=str)
def test_spread_dense(race: Race, size: Size) -> None:
    """Three rounds over all nodes."""
    graph, matrix, anchors = _inputs(size)
    truth = _follow(_csr(anchors).astype(np.float64), matrix.T.tocsr().astype(np.float64))
    start = anchors.to_dense()
    columns = start.t().contiguous()
    graph, start = graph.to(size.device), start.to(size.device)
    peers: dict[str, Call | str] = {"torch CSR": _by_torch(columns.to(size.device), matrix)}
    if size.device == "cpu":
        peers["scipy CSR"] = lambda: _over_all(columns.numpy(), matrix)
    race(
        ours=lambda: spread_activation(graph, start, rounds=_ROUNDS, method="dense"),
        peers=peers,
        accuracy=lambda result: float(abs(_csr(result) - truth).max()),
        measure="largest error",
        at_most=1e-5,
    )


@pytest.mark.parametrize("size", sizes("spread_activation"), ids=str)
def test_spread_frontier(race: Race, size: Size) -> None:
    """Three rounds along the edges of active nodes."""
    graph, matrix, anchors = _inputs(size)
    outgoing, state = matrix.T.tocsr(), _csr(anchors)
    truth = _follow(state.astype(np.float64), outgoing.astype(np.float64))
    graph = graph.to(size.device)
    start = SparseRows(anchors.key.to(size.device), anchors.value.to(size.device), anchors.shape)
    race(
        ours=lambda: spread_activation(graph, start, rounds=_ROUNDS, method="frontier"),
        peers={"scipy sparse product": lambda: _follow(state, outgoing)},
        accuracy=lambda result: float(abs(_csr(result) - truth).max()),
        measure="largest error",
        at_most=1e-5,
    )
