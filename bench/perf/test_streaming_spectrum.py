"""A window of rows that moves: an update beside a fresh decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.spectra import decaying_rows
from graphmem_torch.linalg import StreamingSpectrum, gram_svd


@pytest.mark.parametrize("size", sizes("streaming_spectrum"), ids=str)
def test_streaming_spectrum(race: Race, size: Size) -> None:
    """Rows in, as many out, eigenvalues."""
    count, batch, rank = size["n"], size["batch"], size["rank"]
    x = decaying_rows(count + batch, size["d"], size["decay"]).to(size.device)
    old, kept, fresh = x[:batch], x[batch:], x[count:]
    stream = StreamingSpectrum(rank, size["d"], device=size.device)
    for part in x[:count].split(8192):
        stream.add(part)
    _ = stream.values

    def update() -> torch.Tensor:
        """Move there and back again for the next round: two moves and one decomposition."""
        stream.add(fresh)
        stream.remove(old)
        found = stream.values
        stream.add(old)
        stream.remove(fresh)
        return found

    peers: dict[str, Call | str] = {
        "fresh gram_svd": lambda: gram_svd(kept, rank).values,
        "svd_lowrank": lambda: torch.svd_lowrank(kept, rank, niter=2)[1].square() / count,
    }
    if size.device == "cpu":
        extmath, rows = peer("sklearn.utils.extmath"), kept.numpy()
        peers["sklearn"] = (
            (lambda: extmath.randomized_svd(rows, rank, random_state=0)[1] ** 2 / count)
            if extmath
            else "not installed"
        )
    truth = gram_svd(kept.double(), rank)

    def off(found: Any) -> float:
        values = torch.as_tensor(np.asarray(found.cpu() if torch.is_tensor(found) else found))
        return float((values - truth.values.cpu()).abs().max() / (truth.total_energy or 1.0))

    race(
        ours=update,
        peers=peers,
        accuracy=off,
        measure="largest error / energy",
        at_most=size["tol"],
    )
