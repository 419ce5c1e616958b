"""Fitted weights: the planted ones come back, and the loss is the convex optimum of the formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.rank.fit import fit_listwise


def planted(
    count: int, candidates: int, weights: Tensor, g: torch.Generator, noise: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Signals, and as evidence the best candidate by the planted weights and some noise."""
    x = torch.randn(count, candidates, len(weights), generator=g)
    x *= torch.tensor([1.0, 10.0, 0.1, 1.0])[: len(weights)]  # signals come in many scales
    score = x @ weights + noise * torch.randn(count, candidates, generator=g)
    return x, torch.nn.functional.one_hot(score.argmax(1), candidates).bool()


def recall(x: Tensor, gold: Tensor, weights: Tensor) -> float:
    return float(gold[torch.arange(len(x)), (x @ weights).argmax(1)].float().mean())


def test_planted_direction(generator: torch.Generator) -> None:
    truth = torch.tensor([1.0, -0.2, 8.0, 0.0])
    train = planted(300, 12, truth, generator)
    x, gold = planted(300, 12, truth, generator)
    fitted = fit_listwise([train])
    scale = torch.tensor([1.0, 10.0, 0.1, 1.0])
    cosine = torch.cosine_similarity(fitted * scale, truth * scale, dim=0)
    assert cosine > 0.99
    assert recall(x, gold, fitted) > 0.95 * recall(x, gold, truth)
    assert recall(x, gold, fitted) > 0.6  # a guess finds 1 / 12


def test_optimum_of_the_loss(generator: torch.Generator) -> None:
    """scipy minimises the same formula, written with loops, to the same weights."""
    x, gold = planted(20, 6, torch.tensor([1.0, 0.1, 3.0]), generator, noise=2.0)
    gold[3] = False  # no evidence: left out
    gold[4, :3] = True  # several pieces of evidence share the mass
    x[5, 4:] = -torch.inf  # padding
    gold[5] = torch.tensor([True, False, False, False, False, False])
    penalty = 0.05
    used = [b for b in range(20) if b != 3]
    rows = np.array([x[b, c].tolist() for b in used for c in range(6) if x[b, c, 0] > -math.inf])
    scale = rows.std(axis=0, ddof=1)

    def loss(w: np.ndarray) -> float:
        total = 0.0
        for b in used:
            kept = [c for c in range(6) if x[b, c, 0] > -math.inf]
            score = np.array([(x[b, c].numpy() / scale) @ w for c in kept])
            log_share = score - np.logaddexp.reduce(score)
            good = [place for place, c in enumerate(kept) if gold[b, c]]
            total -= float(np.mean([log_share[p] for p in good]))
        return total / len(used) + penalty * float(w @ w)

    expected = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-7}).x / scale
    got = fit_listwise([(x[:9], gold[:9]), (x[9:], gold[9:])], penalty=penalty)
    assert got.numpy() == pytest.approx(expected, rel=2e-2, abs=2e-3)


def test_a_constant_signal_weighs_nothing(generator: torch.Generator) -> None:
    x, gold = planted(40, 5, torch.tensor([1.0, 0.1]), generator)
    x = torch.cat([x, torch.full((40, 5, 1), 3.0)], dim=2)
    fitted = fit_listwise([(x, gold)])
    assert fitted[2] == 0.0
    assert fitted.isfinite().all()


def test_no_evidence() -> None:
    with pytest.raises(InputError, match="evidence"):
        fit_listwise([(torch.zeros(3, 4, 2), torch.zeros(3, 4, dtype=torch.bool))])
    with pytest.raises(InputError, match="evidence"):
        fit_listwise([])
