"""The logistic and the listwise fit against an optimiser of scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.linalg.logistic import fit_listwise, fit_logistic


def test_fit_logistic_optimum_is_scipys() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) * [1.0, 20.0, 0.1] + [0.0, 5.0, 1.0]
    chance = 1 / (1 + np.exp(-(x @ [1.0, -0.1, 3.0] - 3.0)))
    y = rng.random(300) < chance
    weight = rng.random(300) + 0.5
    found = fit_logistic(torch.tensor(x), torch.tensor(y), torch.tensor(weight), penalty=0.01)

    mean = np.average(x, axis=0, weights=weight)
    scale = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
    z = (x - mean) / scale

    def loss(w: np.ndarray) -> float:
        odds = z @ w[:3] + w[3]
        each = np.logaddexp(0, odds) - y * odds
        return float(weight @ each / (weight @ y) + 0.01 * w[:3] @ w[:3])

    best = minimize(loss, np.zeros(4), tol=1e-12).x
    np.testing.assert_allclose(found.weights.numpy(), best[:3] / scale, rtol=5e-3, atol=1e-4)
    odds = found.log_odds(torch.tensor(x, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(odds, z @ best[:3] + best[3], atol=2e-2)


def test_fit_logistic_a_sample_with_its_weights_stands_for_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, 1, generator=generator)
    y = torch.rand(20_000, generator=generator) < (2 * x[:, 0] - 3).sigmoid()
    keep = y | (torch.rand(20_000, generator=generator) < 0.2)
    weight = torch.where(y, 1.0, 5.0)[keep]
    whole, part = fit_logistic(x, y), fit_logistic(x[keep], y[keep], weight)
    torch.testing.assert_close(part.weights, whole.weights, rtol=0.1, atol=0.1)
    assert abs(part.bias - whole.bias) < 0.2


def test_fit_logistic_a_constant_signal_counts_nothing() -> None:
    x = torch.tensor([[1.0, 7.0], [0.0, 7.0], [1.0, 7.0], [0.0, 7.0]])
    found = fit_logistic(x, torch.tensor([True, False, True, False]))
    assert found.weights[1] == 0 and found.weights[0] > 0
    assert found.probability(x).isfinite().all()


@pytest.mark.parametrize("label", [True, False])
def test_fit_logistic_one_class_or_wrong_shapes(label: bool) -> None:
    both = torch.tensor([True, False])
    with pytest.raises(InputError, match="signals: expected finite"):
        fit_logistic(torch.tensor([[torch.nan], [1.0]]), both)
    for weight in (torch.ones(3), torch.tensor([-1.0, 1.0])):
        with pytest.raises(InputError, match="weight: expected"):
            fit_logistic(torch.zeros(2, 1), both, weight)
    with pytest.raises(InputError, match="rows of both kinds"):
        fit_logistic(torch.zeros(3, 1), torch.full((3,), label))
    with pytest.raises(InputError, match=r"\[n, F\]"):
        fit_logistic(torch.zeros(3, 1), torch.full((2,), label))


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


def test_fit_listwise_finds_a_planted_direction(generator: torch.Generator) -> None:
    truth = torch.tensor([1.0, -0.2, 8.0, 0.0])
    train = planted(300, 12, truth, generator)
    x, gold = planted(300, 12, truth, generator)
    fitted = fit_listwise([train])
    scale = torch.tensor([1.0, 10.0, 0.1, 1.0])
    cosine = torch.cosine_similarity(fitted * scale, truth * scale, dim=0)
    assert cosine > 0.99
    assert recall(x, gold, fitted) > 0.95 * recall(x, gold, truth)
    assert recall(x, gold, fitted) > 0.6  # a guess finds 1 / 12


@pytest.mark.parametrize(
    ("counts", "start"), [((), None), ((3.0, 0.5), None), ((), (0.7, 0.0, -2.0))]
)
def test_fit_listwise_is_the_optimum_of_the_loss(
    generator: torch.Generator, counts: tuple[float, ...], start: tuple[float, ...] | None
) -> None:
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
    count = [(counts or (1.0, 1.0))[b >= 9] for b in range(20)]
    centre = np.array(start or (0.0, 0.0, 0.0)) * scale

    def loss(w: np.ndarray) -> float:
        total = 0.0
        for b in used:
            kept = [c for c in range(6) if x[b, c, 0] > -math.inf]
            score = np.array([(x[b, c].numpy() / scale) @ w for c in kept])
            log_share = score - np.logaddexp.reduce(score)
            good = [place for place, c in enumerate(kept) if gold[b, c]]
            total -= count[b] * float(np.mean([log_share[p] for p in good]))
        return total / sum(count[b] for b in used) + penalty * float((w - centre) @ (w - centre))

    expected = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-7}).x / scale
    near = None if start is None else torch.tensor(start)
    batches = [(x[:9], gold[:9]), (x[9:], gold[9:])]
    got = fit_listwise(batches, counts, penalty=penalty, start=near)
    assert got.numpy() == pytest.approx(expected, rel=2e-2, abs=2e-3)


def test_fit_listwise_a_constant_signal_weighs_nothing(generator: torch.Generator) -> None:
    x, gold = planted(40, 5, torch.tensor([1.0, 0.1]), generator)
    x = torch.cat([x, torch.full((40, 5, 1), 3.0)], dim=2)
    fitted = fit_listwise([(x, gold)])
    assert fitted[2] == 0.0
    assert fitted.isfinite().all()


def test_fit_listwise_no_evidence() -> None:
    with pytest.raises(InputError, match="evidence"):
        fit_listwise([(torch.zeros(3, 4, 2), torch.zeros(3, 4, dtype=torch.bool))])
    with pytest.raises(InputError, match="evidence"):
        fit_listwise([])
