"""The sparse product with a panel beside those of scipy, torch and cuSPARSE."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.inputs import memory_graph, spread_matrix, torch_csr
from graphmem_torch.ops.spmm import spmm


@pytest.mark.parametrize("size", sizes("spmm"), ids=str)
def test_spmm(race: Race, size: Size) -> None:
    """Sparse matrix in compressed rows times a panel of columns."""
    nodes, batch = size["n"], size["batch"]
    matrix = spread_matrix(memory_graph(nodes, degree=size["e"] // nodes))
    sparse = torch_csr(matrix, size.device)
    indptr, column, weight = sparse.crow_indices(), sparse.col_indices(), sparse.values()
    drawn = torch.rand(nodes, batch, generator=torch.Generator().manual_seed(1))
    x = drawn.to(size.device)
    # Its product of a matrix and a vector is quicker than that with a matrix of one column.
    panel = drawn.numpy()[:, 0] if batch == 1 else drawn.numpy()
    truth = matrix.astype(np.float64) @ drawn.numpy()

    def by_bags() -> Tensor:
        return embedding_bag(
            column, x, indptr, mode="sum", per_sample_weights=weight, include_last_offset=True
        )

    def error(result: Tensor | np.ndarray) -> float:
        values = np.asarray(result.cpu() if isinstance(result, Tensor) else result)
        return float(np.abs(values.reshape(truth.shape) - truth).max() / truth.max())

    peers: dict[str, Call | str] = {
        "torch CSR": lambda: sparse @ (x[:, 0] if batch == 1 else x),
        "torch embedding_bag": by_bags,
    }
    if size.device == "cuda":
        cupy, rows = peer("cupy"), peer("cupyx.scipy.sparse")
        peers["CuPy CSR"] = "not installed"
        if cupy is not None and rows is not None:
            there, state = rows.csr_matrix(matrix), cupy.from_dlpack(x)
            peers["CuPy CSR"] = lambda: torch.from_dlpack(there @ state)
    else:
        peers["scipy CSR"] = lambda: matrix @ panel
    race(
        ours=lambda: spmm(indptr, column, weight, x),
        peers=peers,
        accuracy=error,
        measure="relative error",
        at_most=1e-4,  # a hub of 100,000 edges adds up in float32
        target=1.0,
        # Every edge reads a row, an index and a weight; every row is written.
        bytes_moved=len(matrix.data) * (4 * batch + 8) + nodes * (4 * batch + 4),
    )
