"""Fading against `math`: one function for what is used, what is important and what modes weigh."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.ops.fading import fading, half_life_of

AGES = st.floats(0.0, 40_000.0)
LIVES = st.floats(1e-3, 1e5)


@settings(max_examples=16)
@given(age=AGES, life=LIVES)
def test_it_halves_in_each_half_life(age: float, life: float) -> None:
    found = float(fading(torch.tensor([age], dtype=torch.float64), life))
    assert found == pytest.approx(math.pow(2.0, -age / life), rel=1e-12, abs=1e-300)


@settings(max_examples=16)
@given(age=AGES, factor=st.floats(1e-3, 1.0))
def test_a_factor_per_hour_is_a_half_life(age: float, factor: float) -> None:
    """The published form: factor^hours."""
    life = half_life_of(factor)
    found = float(fading(torch.tensor([age], dtype=torch.float64), life))
    assert found == pytest.approx(math.pow(factor, 24 * age), rel=1e-10, abs=1e-300)


def test_each_age_has_its_own_half_life_and_none_is_for_ever() -> None:
    ages = torch.tensor([0.0, 10.0, 10.0, -3.0, 1e9])
    lives = torch.tensor([1.0, 10.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    assert fading(ages, lives).tolist() == [1.0, 0.5, 1.0, 1.0, 1.0]
    assert fading(ages, 0.0).tolist() == [1.0] * 5
    assert half_life_of(1.0) == 0.0


def test_the_result_has_the_precision_that_is_asked_for() -> None:
    ages = torch.tensor([3.0, 300.0], dtype=torch.float64)
    found = fading(ages, 30.0, dtype=torch.float32)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx([2**-0.1, 2**-10], rel=1e-6)


@pytest.mark.parametrize("days", [0.0, 0.3, 1.0, 57.7, 400.0])
@pytest.mark.parametrize(
    ("hours", "days_of_life"), [(1385.9475, 1385.9475 / 24), (6.5788, 6.5788 / 24)]
)
def test_days_give_what_hours_gave(days: float, hours: float, days_of_life: float) -> None:
    """The rate per hour that types of memories once had."""
    age = torch.tensor([days], dtype=torch.float64)
    former = math.exp(-math.log(2.0) / hours * (days * 24))
    assert float(fading(age, days_of_life)) == pytest.approx(former, rel=1e-12, abs=1e-300)
