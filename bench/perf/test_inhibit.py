"""Lateral inhibition beside one pass for each of the strongest nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.perf.contest import Call, Race, Size, sizes
from graphmem_torch.ops import inhibit

_STRENGTH, _TOP = 0.15, 7


def _by_passes(u: np.ndarray, strength: float = _STRENGTH) -> np.ndarray:  # [B, N] -> [B, N]
    """Compute the formula with one pass over everything for each of the strongest."""
    strongest = np.partition(u, u.shape[1] - _TOP, axis=1)[:, -_TOP:]
    above = np.zeros_like(u)
    for place in range(_TOP):
        above += np.maximum(strongest[:, place, None] - u, 0)
    return np.maximum(u - strength * above, 0)


@pytest.mark.parametrize("size", sizes("inhibit"), ids=str)
def test_inhibit(race: Race, size: Size) -> None:
    """Lateral inhibition by the 7 strongest."""
    generator = torch.Generator().manual_seed(0)
    host = torch.rand(size["batch"], size["n"], generator=generator) ** 8
    values, u = host.numpy(), host.to(size.device)
    truth = torch.from_numpy(_by_passes(values.astype(np.float64)))
    out = torch.empty_like(u)

    def by_torch() -> Tensor:
        strongest = u.topk(_TOP, dim=1).values
        above = torch.zeros_like(u)
        for place in range(_TOP):
            above += (strongest[:, place, None] - u).clamp_(min=0)
        return (u - _STRENGTH * above).clamp_(min=0)

    peers: dict[str, Call | str] = {"torch": by_torch}
    if size.device == "cpu":
        peers["numpy"] = lambda: _by_passes(values)
    race(
        ours=lambda: inhibit(u, strength=_STRENGTH, top=_TOP),
        peers=peers,
        floors={"topk alone": lambda: u.topk(_TOP, dim=1), "copy": lambda: out.copy_(u)},
        accuracy=lambda result: float((torch.as_tensor(result).cpu() - truth).abs().max()),
        measure="largest error",
        at_most=1e-5,
        bytes_moved=8 * u.numel(),
    )
