"""The logistic fit against an optimiser of scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from graphmem_torch.errors import InputError
from graphmem_torch.linalg.logistic import fit_logistic


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
