"""How many modes: each rule against its definition, written out in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.modes.select import (
    numerical_rank,
    predicted_counts,
    select_count,
    spectral_exponent,
)


def spectrum_of(seed: int, count: int = 30) -> torch.Tensor:
    drawn = np.random.default_rng(seed).gamma(0.7, size=count)
    return torch.from_numpy(np.sort(drawn)[::-1].copy())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epsilon", [0.5, 0.1, 0.01, 1e-9])
def test_energy(seed: int, epsilon: float) -> None:
    values = spectrum_of(seed).numpy()
    wanted = next(
        k
        for k in range(1, len(values) + 1)
        if values[:k].sum() >= (1 - epsilon) * values.sum() - 1e-12
    )
    found = select_count(
        torch.from_numpy(values), float(values.sum()), (99, 30), select="energy", epsilon=epsilon
    )
    assert found == wanted


@pytest.mark.parametrize("shape", [(30, 900), (500, 30), (30, 30)])
def test_gcv(shape: tuple[int, int]) -> None:
    n, d = shape
    for seed in range(5):
        values = spectrum_of(seed).numpy()
        scores = {
            k: values[k:].sum() / ((1 - k / n) * (1 - k / d)) ** 2 for k in range(1, min(shape))
        }
        wanted = min(scores, key=lambda k: scores[k])
        total = float(values.sum())
        assert select_count(torch.from_numpy(values), total, shape, select="gcv") == wanted


def test_gap_counts_the_fall_to_nothing() -> None:
    three = torch.tensor([1.0, 0.9, 0.8])
    assert select_count(three, 2.7, (50, 40), select="gap") == 3
    # There are others behind these three: what is below the third is not known.
    assert select_count(torch.tensor([1.0, 0.9, 0.3]), 2.7, (50, 40), select="gap") == 2
    assert select_count(torch.tensor([5.0, 1.0, 0.9, 0.8]), 7.7, (50, 40), select="gap") == 1
    assert select_count(torch.tensor([5.0]), 7.7, (50, 40), select="gap") == 1


@pytest.mark.parametrize("select", ["energy", "gcv", "gap"])
def test_one_eigenvalue(select: str) -> None:
    assert select_count(torch.tensor([2.0]), 2.0, (1, 1), select=select) == 1
    assert select_count(torch.tensor([2.0]), 2.0, (9, 5), select=select) == 1


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.5])
def test_exponent_of_a_power_law(exponent: float) -> None:
    values = 7.0 * torch.arange(1, 200, dtype=torch.float64) ** -exponent
    assert spectral_exponent(values) == pytest.approx(exponent)


def test_predictions() -> None:
    assert predicted_counts(2.0, 0.01) == pytest.approx((100.0, 10.0))
    assert predicted_counts(3.0, 0.01) == pytest.approx((10.0, 0.01 ** (-1 / 3)))
    assert predicted_counts(1.0, 0.1)[0] == math.inf
    assert predicted_counts(-0.1, 0.1) == (math.inf, math.inf)
    assert all(math.isnan(value) for value in predicted_counts(math.nan, 0.1))
    assert predicted_counts(1.1, 1e-300) == (math.inf, pytest.approx(1e-300 ** (-1 / 1.1)))
    assert math.isnan(spectral_exponent(torch.tensor([1.0, 0.5])))
    assert math.isnan(spectral_exponent(torch.tensor([1.0, 0.5, 0.0, 0.0])))


def test_predicted_order_is_that_of_the_tail() -> None:
    """A hundred times less energy left out takes 100^(1/(s-1)) times as many modes."""
    s = 3.0
    values = torch.arange(1, 100_001, dtype=torch.float64) ** -s
    few, many = (
        select_count(values, float(values.sum()), (10**6, 10**6), epsilon=e) for e in (1e-4, 1e-6)
    )
    ratio = predicted_counts(s, 1e-6)[0] / predicted_counts(s, 1e-4)[0]
    assert many / few == pytest.approx(ratio, rel=0.05)


def test_numerical_rank() -> None:
    values = torch.tensor([1.0, 0.5, 1e-3, 1e-9, 0.0], dtype=torch.float64)
    assert numerical_rank(values) == 3
    assert numerical_rank(values, torch.float64) == 4
    assert numerical_rank(torch.zeros(4)) == 0
    assert numerical_rank(torch.zeros(0)) == 0


def test_bad_input() -> None:
    values = torch.tensor([1.0, 0.5])
    for epsilon in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(InputError, match="epsilon"):
            select_count(values, 1.5, (5, 5), epsilon=epsilon)
    with pytest.raises(InputError, match="select"):
        select_count(values, 1.5, (5, 5), select="elbow")
    with pytest.raises(InputError, match="values"):
        select_count(values[:0], 0.0, (5, 5))
