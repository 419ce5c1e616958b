"""Leading eigenpairs of a kernel that is never formed, beside Lanczos one vector at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.spectra import decaying_rows
from graphmem_torch.linalg import Kernel, Spectrum, randomized_svd

_TILE = 1024


@pytest.mark.parametrize("size", sizes("implicit_kernel"), ids=str)
def test_implicit_kernel(race: Race, size: Size) -> None:
    """Eigenpairs of an RBF kernel with recency weights."""
    count, rank = size["n"], size["rank"]
    x = decaying_rows(count, size["d"], 0.7).to(size.device)
    weight = torch.exp(-torch.arange(count, device=size.device) / count).sqrt()[:, None]

    def rows(start: int) -> Tensor:  # exp(-|x_i - x_j|²) of unit vectors, weighted
        stop = min(start + _TILE, count)
        return torch.exp(2 * (x[start:stop] @ x.T - 1)) * weight[start:stop] * weight.T / count

    def product(panel: Tensor) -> Tensor:
        return torch.cat([rows(start) @ panel for start in range(0, count, _TILE)])

    trace = float(weight.double().square().sum()) / count
    kernel = Kernel(product, count, trace=trace, device=size.device)
    generator = torch.Generator().manual_seed(0)
    peers: dict[str, Call | str] = {}
    if size.device == "cpu":
        sparse, extmath = peer("scipy.sparse.linalg"), peer("sklearn.utils.extmath")

        def by_lanczos() -> np.ndarray:
            operator = sparse.LinearOperator(
                (count, count),
                matvec=lambda v: product(torch.from_numpy(v).reshape(-1, 1)).numpy(),
                dtype=np.float32,
            )
            return sparse.eigsh(operator, rank, tol=1e-3)[1]

        def formed() -> np.ndarray:
            dense = torch.cat([rows(start) for start in range(0, count, _TILE)])
            return extmath.randomized_svd(dense.numpy(), rank, random_state=0)[0]

        peers["scipy eigsh"] = by_lanczos if sparse else "not installed"
        peers["sklearn, formed"] = formed if extmath else "not installed"

    def lost(found: Spectrum | np.ndarray) -> float:
        """Return the share of energy left by the projection; the best vectors leave the least."""
        left = found.left if isinstance(found, Spectrum) else torch.from_numpy(found)
        assert left is not None
        basis = torch.linalg.qr(left.to(x)).Q
        kept = float((basis * product(basis)).sum(dtype=torch.float64))
        return (trace - kept) / trace

    best = lost(randomized_svd(kernel, rank, oversample=20, iterations=6, generator=generator))
    race(
        ours=lambda: randomized_svd(kernel, rank, generator=generator),
        peers=peers,
        floors={"one product": lambda: product(weight.expand(-1, rank + 10))},
        accuracy=lambda found: lost(found) - best,
        measure="energy lost beyond the best",
        at_most=1e-3,
    )
