"""Smallest eigenpairs of the Laplacian beside ARPACK, LOBPCG and spectral embedding."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import LinearOperator, eigsh

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.inputs import memory_graph, torch_csr
from graphmem_torch.graph import Graph
from graphmem_torch.linalg import lanczos
from graphmem_torch.spectral import Laplacian, laplacian

_TOL = 1e-6


def _side_by_side(nodes: int, parts: int, *, identical: bool) -> Graph:
    """Return a union of memory graphs without edges between them."""
    size = nodes // parts
    graphs = [memory_graph(size, seed=0 if identical else i) for i in range(parts)]
    index = torch.cat([g.edge_index + size * i for i, g in enumerate(graphs)], 1)
    return Graph.from_edges(index, torch.cat([g.weight for g in graphs]), num_nodes=size * parts)


def _similarity(operator: Laplacian) -> sp.csr_matrix:  # [N, N] float32
    """Return D^-1/2 W D^-1/2, the input of the peers."""
    parts = (operator.entry, operator.column, operator.indptr)
    return sp.csr_matrix(tuple(p.cpu().numpy() for p in parts), shape=operator.shape)


def _arpack(matrix: sp.csr_matrix, k: int, null: np.ndarray | None = None) -> Call:
    """Return the largest pairs of D^-1/2 W D^-1/2; `null` vectors are deflated and added back."""
    nodes = matrix.shape[0]
    start = np.random.default_rng(0).standard_normal(nodes).astype(np.float32)

    def product(x: np.ndarray) -> np.ndarray:
        x = x.reshape(-1)
        return matrix @ x - 3 * (null @ (null.T @ x))

    def run() -> Any:
        if null is None:
            values, vectors = eigsh(matrix, k, which="LA", tol=_TOL, v0=start)
            return 1 - values, vectors
        operator = LinearOperator(matrix.shape, matvec=product, dtype=np.float32)
        values, vectors = eigsh(operator, k - null.shape[1], which="LA", tol=_TOL, v0=start)
        zeros = np.zeros(null.shape[1], np.float32)
        return np.append(zeros, 1 - values), np.hstack([null, vectors])

    return run


def _lobpcg(matrix: sp.csr_matrix, k: int, device: str) -> Call:
    sparse = torch_csr(matrix, device)
    start = torch.randn(matrix.shape[0], k, generator=torch.Generator().manual_seed(0)).to(device)

    def run() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values, vectors = torch.lobpcg(sparse, k, X=start, niter=300, tol=_TOL)
        return 1 - values.cpu().numpy(), vectors.cpu().numpy()

    return run


def _embedding(matrix: sp.csr_matrix, k: int) -> Call | str:
    manifold = peer("sklearn.manifold")
    if manifold is None:
        return "not installed"

    def run() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = manifold.spectral_embedding(
                matrix, n_components=k, drop_first=False, norm_laplacian=True, random_state=0
            )
        values = np.linalg.norm(made, axis=0)
        return None, made / np.where(values > 0, values, 1)

    return run


@pytest.mark.parametrize("size", sizes("lanczos"), ids=str)
def test_lanczos(race: Race, size: Size) -> None:
    """Smallest eigenpairs of the normalised Laplacian."""
    parts, k = size["parts"], size["k"]
    graph = (
        memory_graph(size["n"], degree=size["degree"])
        if parts == 1
        else _side_by_side(size["n"], parts, identical=bool(size["identical"]))
    )
    exact = laplacian(graph, dtype=torch.float64)
    operator = laplacian(graph.to(size.device))
    matrix = _similarity(operator)
    found = lanczos(exact, k, tol=1e-7, generator=torch.Generator().manual_seed(1))
    truth = found.values.numpy()
    null = operator.null_space()
    basis = null.vectors(min(null.count, k)).cpu().numpy()

    def largest_error(result: Any) -> float:
        """Return the error of the Rayleigh-Ritz values, in float64; a missed copy is an error."""
        vectors = result.vectors if hasattr(result, "vectors") else torch.from_numpy(result[1])
        span = torch.linalg.qr(vectors.detach().cpu().double()).Q
        values = torch.linalg.eigvalsh(span.T @ exact.matmul(span)).numpy()
        return float(np.abs(values - truth).max())

    peers: dict[str, Call | str] = {"torch.lobpcg": _lobpcg(matrix, k, size.device)}
    if size.device == "cpu":
        peers["ARPACK"] = _arpack(matrix, k)
        peers["ARPACK deflated"] = _arpack(matrix, k, basis)
        peers["sklearn"] = _embedding(matrix, k)
    race(
        ours=lambda: lanczos(operator, k, tol=_TOL, generator=torch.Generator().manual_seed(0)),
        peers=peers,
        accuracy=largest_error,
        measure="largest error of a value",
        at_most=1e-5,
        target={"ARPACK deflated": size["target"], "torch.lobpcg": 1 / 20}
        if size.device == "cpu"
        else None,
    )
