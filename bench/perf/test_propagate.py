"""One step of propagation beside the sparse products of scipy, torch and cuSPARSE."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.inputs import memory_graph, spread_matrix, torch_csr
from graphmem_torch.ops import propagate


def _by_torch(matrix: sp.csr_matrix, dense: Tensor, size: Size) -> dict[str, Call | str]:
    """Return torch's methods; the state `[N, B]` and the scaled weights are built in advance."""
    sparse = torch_csr(matrix, size.device)
    indptr, source, weight = sparse.crow_indices(), sparse.col_indices(), sparse.values()
    target = torch.repeat_interleave(indptr.diff())

    def by_bags() -> Tensor:
        sums = embedding_bag(
            source,
            dense,
            indptr,
            mode="sum",
            per_sample_weights=weight,
            include_last_offset=True,
        )
        return sums.add_(dense, alpha=0.5)

    def by_gather() -> Tensor:
        return (0.5 * dense).index_add_(0, target, dense[source] * weight[:, None])

    return {
        "torch CSR": lambda: torch.addmm(dense, sparse, dense, beta=0.5),
        "torch embedding_bag": by_bags,
        "torch gather + index_add": size.beyond("torch gather + index_add") or by_gather,
    }


def _by_cupy(matrix: sp.csr_matrix, dense: Tensor) -> Call | str:
    cupy, sparse = peer("cupy"), peer("cupyx.scipy.sparse")
    if cupy is None or sparse is None:
        return "not installed"
    state, rows = cupy.from_dlpack(dense), sparse.csr_matrix(matrix)
    return lambda: torch.from_dlpack(0.5 * state + rows @ state)


@pytest.mark.parametrize("size", sizes("propagate"), ids=str)
def test_propagate(race: Race, size: Size) -> None:
    """One step of propagation, dense activation."""
    nodes, batch = size["n"], size["batch"]
    graph = memory_graph(nodes, degree=size["e"] // nodes)
    matrix = spread_matrix(graph)
    activation = torch.rand(batch, nodes, generator=torch.Generator().manual_seed(1))
    columns = np.ascontiguousarray(activation.numpy().T)
    # Its product of a matrix and a vector is quicker than that with a matrix of one column.
    state = columns[:, 0] if batch == 1 else columns
    truth = 0.5 * columns.astype(np.float64) + matrix.astype(np.float64) @ columns
    graph, activation = graph.to(size.device), activation.to(size.device)
    dense = torch.from_numpy(columns).to(size.device)

    def error(result: Tensor | np.ndarray) -> float:
        values = np.asarray(result.cpu() if isinstance(result, Tensor) else result)
        values = values if values.shape == truth.shape else values.T.reshape(truth.shape)
        return float(np.abs(values - truth).max() / truth.max())

    peers: dict[str, Call | str] = {"scipy CSR": lambda: 0.5 * state + matrix @ state}
    if size.device == "cuda":
        peers = {"CuPy CSR": _by_cupy(matrix, dense)}
    race(
        ours=lambda: propagate(graph, activation),
        peers=peers | _by_torch(matrix, dense, size),
        accuracy=error,
        measure="relative error",
        at_most=1e-4,  # a hub of 100,000 edges adds up in float32
        target=1.0,
        # Every edge reads its source's row, an index and a weight; every node is read and written.
        bytes_moved=graph.num_edges * (4 * batch + 8) + nodes * (8 * batch + 4),
    )
