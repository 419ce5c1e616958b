"""Exact leading singular vectors beside Arnoldi, the one-shot Gram matrix and random sketches."""

from __future__ import annotations

import pytest
import torch

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.spectra import Best, decaying_rows, right_vectors
from graphmem_torch.linalg import gram_svd


@pytest.mark.parametrize("size", sizes("gram_svd"), ids=str)
def test_gram_svd(race: Race, size: Size) -> None:
    """Leading singular vectors, exact."""
    x = decaying_rows(size["n"], size["d"], size["decay"]).to(size.device)
    rank, best = size["rank"], Best.of(x, size["rank"])
    peers: dict[str, Call | str] = {
        "svd_lowrank": lambda: torch.svd_lowrank(x, rank, niter=2),
        "torch gram": lambda: (None, None, torch.linalg.eigh(x.T @ x)[1][:, -rank:]),
    }
    if size.device == "cpu":
        rows = x.numpy()
        sparse, extmath = peer("scipy.sparse.linalg"), peer("sklearn.utils.extmath")
        peers["scipy svds"] = (lambda: sparse.svds(rows, rank)) if sparse else "not installed"
        peers["sklearn"] = (
            (lambda: extmath.randomized_svd(rows, rank, random_state=0))
            if extmath
            else "not installed"
        )
    race(
        ours=lambda: gram_svd(x, rank, left=size["left"]),
        peers=peers,
        floors={"product alone": lambda: x.T @ x},
        accuracy=lambda found: best.sine(right_vectors(found)),
        measure="sine of the largest angle",
        at_most=1e-4,
    )
