"""Selection under a budget, against every subset."""

from __future__ import annotations

import itertools

import pytest
import torch

from graphmem_torch.context import select_by_density
from graphmem_torch.errors import InputError


def optimum(values: list[float], costs: list[int], budget: int) -> float:
    return max(
        sum(v for v, taken in zip(values, choice, strict=True) if taken)
        for choice in itertools.product((0, 1), repeat=len(values))
        if sum(c for c, taken in zip(costs, choice, strict=True) if taken) <= budget
    )


@pytest.mark.parametrize("seed", range(40))
def test_never_over_budget_and_at_least_half_of_the_optimum(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    n = int(torch.randint(0, 10, (1,), generator=g))
    values = torch.rand(n, generator=g) ** 3 * (torch.rand(n, generator=g) < 0.9)
    costs = torch.randint(1, 30, (n,), generator=g)
    for budget in (0, 1, 7, 25, 80, 1000):
        chosen = select_by_density(values, costs, budget)
        assert chosen.dtype == torch.bool
        assert int(costs[chosen].sum()) <= budget
        best = optimum(values.tolist(), costs.tolist(), budget)
        assert float(values[chosen].sum()) >= best / 2 - 1e-6
        if int(chosen.sum()) > 1:  # the greedy choice: what still fits is in
            left = budget - int(costs[chosen].sum())
            assert not (costs[~chosen] <= left).any()


def test_one_large_item_beats_a_small_dense_one() -> None:
    chosen = select_by_density(torch.tensor([2.0, 99.0]), torch.tensor([1, 100]), 100)
    assert chosen.tolist() == [False, True]


def test_a_smaller_item_behind_one_that_does_not_fit_is_taken() -> None:
    values, costs = torch.tensor([9.0, 5.0, 1.0]), torch.tensor([6, 5, 4])
    assert select_by_density(values, costs, 10).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("values", "costs", "budget"),
    [([1.0], [1], -1), ([-1.0], [1], 3), ([1.0], [0], 3), ([1.0, 2.0], [1], 3)],
)
def test_bad_input(values: list[float], costs: list[int], budget: int) -> None:
    with pytest.raises(InputError):
        select_by_density(torch.tensor(values), torch.tensor(costs), budget)
