"""knapsack against OR-tools, the table over tokens in numpy and the greedy rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.perf.contest import Race, Size, peer, sizes
from graphmem_torch.ops import knapsack


@pytest.mark.parametrize("size", sizes("knapsack"), ids=str)
def test_knapsack(race: Race, size: Size) -> None:
    """Best items within a budget."""
    values, costs, budget = _items(size["kind"], size["batch"], size["n"], size["budget"])
    given = [part.to(size.device) for part in (values, costs, budget)]
    optimum = knapsack(*given).upper_bound
    rows = list(zip(values, costs, budget.tolist(), strict=True))
    race(
        ours=lambda: knapsack(*given).value,
        peers={
            "ortools": _ortools(rows, "KNAPSACK_MULTIDIMENSION_BRANCH_AND_BOUND_SOLVER"),
            "ortools table": _ortools(rows, "KNAPSACK_DYNAMIC_PROGRAMMING_SOLVER"),
            "numpy table": lambda: [_table(*row) for row in rows],
            "greedy": lambda: [_greedy(*row) for row in rows],
        },
        # Where ours proves its answer the bound is the optimum; elsewhere it is above it.
        accuracy=lambda found: _share(found, optimum),
        measure="value / optimum",
        at_least=1.0 - 1e-9,
        target=0.1,
        against="ortools",
    )


def _items(kind: str, batch: int, n: int, budget: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return passages of 5 to 80 tokens; whole values, because OR-tools takes no others."""
    generator = torch.Generator().manual_seed(0)
    costs = torch.randint(5, 81, (batch, n), generator=generator)
    noise = torch.rand(batch, n, generator=generator, dtype=torch.float64)
    values = {
        "random": lambda: noise * 1e6,
        "weakly correlated": lambda: 1e4 * costs * (0.9 + 0.2 * noise),
        "strongly correlated": lambda: costs + 10.0,
    }[kind]()
    budgets = budget + torch.arange(batch) * 7  # no two questions alike
    return values.round(), costs, budgets


def _ortools(rows: list[tuple[Tensor, Tensor, int]], kind: str) -> Callable[[], list[float]] | str:
    module: Any = peer("ortools.algorithms.python.knapsack_solver")
    if module is None:
        return "not installed"
    lists = [(v.long().tolist(), [c.tolist()], [budget]) for v, c, budget in rows]

    def solve(values: list[int], costs: list[list[int]], budget: list[int]) -> float:
        solver = module.KnapsackSolver(getattr(module.SolverType, kind), "knapsack")
        solver.set_time_limit(20.0)
        solver.init(values, costs, budget)
        return float(solver.solve())

    return lambda: [solve(*row) for row in lists]


def _table(values: Tensor, costs: Tensor, budget: int) -> float:
    best = np.zeros(budget + 1)
    for value, cost in zip(values.tolist(), costs.tolist(), strict=True):
        best[cost:] = np.maximum(best[cost:], best[: budget + 1 - cost] + value)
    return float(best[-1])


def _greedy(values: Tensor, costs: Tensor, budget: int) -> float:
    """Take items by decreasing value per token while they fit."""
    order = torch.argsort(values / costs, descending=True)
    value, left = 0.0, budget
    for worth, cost in zip(values[order].tolist(), costs[order].tolist(), strict=True):
        if cost <= left:
            value, left = value + worth, left - cost
    return value


def _share(found: Tensor | list[float], optimum: Tensor) -> float:
    """Return the worst question's value as a share of its optimum."""
    return float((torch.as_tensor(found, dtype=torch.float64).cpu() / optimum.cpu()).min())
