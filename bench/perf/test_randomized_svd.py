"""Leading singular vectors, near the optimum, beside sklearn and torch."""

from __future__ import annotations

import pytest
import torch

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.spectra import Best, decaying_rows, right_vectors
from graphmem_torch.linalg import decompose, gram_svd, randomized_svd


@pytest.mark.parametrize("size", sizes("randomized_svd"), ids=str)
def test_randomized_svd(race: Race, size: Size) -> None:
    """Leading singular vectors by the route that costs less."""
    x = decaying_rows(size["n"], size["d"], size["decay"]).to(size.device)
    rank, best = size["rank"], Best.of(x, size["rank"])
    generator = torch.Generator().manual_seed(0)
    peers: dict[str, Call | str] = {"svd_lowrank": lambda: torch.svd_lowrank(x, rank, niter=2)}
    if size.device == "cpu":
        extmath, rows = peer("sklearn.utils.extmath"), x.numpy()
        peers["sklearn"] = (
            (lambda: extmath.randomized_svd(rows, rank, random_state=0))
            if extmath
            else "not installed"
        )
    race(
        ours=lambda: decompose(x, rank, generator=generator),
        peers=peers,
        # Both routes, whichever was taken: they show whether the cost model chose well.
        floors={
            "gram": size.beyond("gram") or (lambda: gram_svd(x, rank)),
            "randomized": lambda: randomized_svd(x, rank, generator=generator),
        },
        accuracy=lambda found: best.excess(right_vectors(found)),
        measure="energy lost beyond the best",
        at_most=0.05,
        target={"sklearn": 1 / 3.8, "svd_lowrank": 1 / 1.7} if size["target"] else None,
    )
