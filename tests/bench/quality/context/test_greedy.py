"""Selection baselines against loops over items."""

from __future__ import annotations

import torch

from graphmem_torch.quality.context.greedy import fill_by_density, prefix, skipping


def _greedy(values: list[float], costs: list[int], budget: int) -> set[int]:
    left, chosen = budget, set()
    order = sorted(range(len(values)), key=lambda i: -values[i] / costs[i])
    for i in order:
        if costs[i] <= left:
            chosen.add(i)
            left -= costs[i]
    return chosen


def test_fill_by_density_is_the_loop_of_the_paper() -> None:
    chance = torch.Generator().manual_seed(3)
    values = torch.rand(20, 30, generator=chance, dtype=torch.float64)
    costs = torch.randint(1, 40, (30,), generator=chance)
    budgets = torch.tensor([0, 1, 17, 90, 10_000])
    chosen = fill_by_density(values, costs, budgets)
    for row in range(20):
        for column, budget in enumerate(budgets.tolist()):
            expected = _greedy(values[row].tolist(), costs.tolist(), budget)
            assert set(chosen[row, column].nonzero().flatten().tolist()) == expected


def test_fill_by_density_without_items() -> None:
    empty = fill_by_density(torch.zeros(2, 0), torch.zeros(0, dtype=torch.int64), torch.tensor([5]))
    assert empty.shape == (2, 1, 0)


def test_prefix_stops_at_the_first_that_does_not_fit() -> None:
    ranking = torch.tensor([[2, 0, 1, -1], [3, -1, -1, -1]])
    costs = torch.tensor([[5, 9, 1, 0], [4, 0, 0, 0]])
    chosen = prefix(ranking, costs, torch.tensor([4, 6, 14, 15]), 4)
    kept = [[set(chosen[b, k].nonzero().flatten().tolist()) for k in range(4)] for b in range(2)]
    assert kept == [[set(), {2}, {0, 2}, {0, 1, 2}], [{3}, {3}, {3}, {3}]]


def test_skipping_goes_on_behind_what_does_not_fit() -> None:
    ranking = torch.tensor([[2, 0, 1, -1], [3, -1, -1, -1]])
    costs = torch.tensor([[5, 9, 1, 0], [4, 0, 0, 0]])
    chosen = skipping(ranking, costs, torch.tensor([0, 4, 6, 15]), 4)
    kept = [[set(chosen[b, k].nonzero().flatten().tolist()) for k in range(4)] for b in range(2)]
    assert kept == [[set(), {1}, {1, 2}, {0, 1, 2}], [set(), {3}, {3}, {3}]]


def test_prefix_of_nothing() -> None:
    chosen = prefix(torch.full((1, 2), -1), torch.ones(1, 2), torch.tensor([3]), 2)
    assert not bool(chosen.any())
