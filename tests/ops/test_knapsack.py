"""knapsack: against brute force, the table over tokens in numpy, and OR-tools."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops import knapsack
from graphmem_torch.ops.knapsack import Packing, knapsack_reference

KINDS = ["real", "whole", "relevance", "weak", "strong", "inverse", "subset sum", "even", "free"]


def _items(kind: str, rows: int, n: int, top: int, seed: int) -> tuple[Tensor, Tensor]:
    """Values and costs (at most about `top` tokens) as the literature makes hard ones."""
    generator = torch.Generator().manual_seed(seed)
    costs = torch.randint(1, top + 1, (rows, n), generator=generator)
    noise = torch.rand(rows, n, generator=generator, dtype=torch.float64)
    if kind == "whole":
        return (noise * top).ceil(), costs
    if kind == "relevance":
        return noise**4, costs
    if kind == "weak":
        return (costs + ((noise - 0.5) * top / 5).round()).clamp(min=1), costs
    if kind == "strong":
        return (costs + top // 10 + 1).double(), costs
    if kind == "inverse":
        return costs.double(), costs + top // 10 + 1
    if kind == "subset sum":
        return costs.double(), costs
    if kind == "even":  # an odd budget can never be filled
        return 2 * costs.double(), 2 * costs
    if kind == "free":
        return noise - 0.2, (costs - top // 2).clamp(min=0)
    return noise, costs


def _table(values: Tensor, costs: Tensor, budget: int) -> float:
    best = np.zeros(budget + 1)
    for value, cost in zip(values.tolist(), costs.tolist(), strict=True):
        if cost <= budget:
            best[cost:] = np.maximum(best[cost:], best[: budget + 1 - cost] + value)
    return float(best[-1])


def _brute(values: Tensor, costs: Tensor, budget: int, required: Tensor) -> float:
    best = -np.inf
    for chosen in itertools.product((False, True), repeat=len(values)):
        mask = torch.tensor(chosen, dtype=torch.bool)
        if (mask | ~required).all() and int(costs[mask].sum()) <= budget:
            best = max(best, float(values[mask].sum()))
    return best


def _sound(got: Packing, values: Tensor, costs: Tensor, budget: Tensor) -> None:
    """Check the invariants of every answer, proven or not."""
    zero = torch.zeros((), dtype=torch.float64)
    torch.testing.assert_close(got.value, torch.where(got.mask, values.double(), zero).sum(1))
    assert torch.equal(got.cost, torch.where(got.mask, costs, 0).sum(1))
    assert (got.cost <= budget).all()
    assert (got.gap >= 0).all()
    assert (got.gap[got.exact] == 0).all()


@given(
    st.lists(
        st.tuples(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 1.0, 2.0, 2.5]), st.integers(0, 9)),
        min_size=1,
        max_size=7,
    ),
    st.integers(0, 30),
    st.integers(0, 2**7 - 1),
)
def test_matches_brute_force(items, budget, code):
    values = torch.tensor([[v for v, _ in items]], dtype=torch.float64)
    costs = torch.tensor([[c for _, c in items]])
    required = (torch.tensor([code]) >> torch.arange(len(items)) & 1).bool()[None]
    if int(costs[required].sum()) > budget:
        required[:] = False
    got = knapsack(values, costs, torch.tensor([budget]), required=required)
    expected = _brute(values[0], costs[0], budget, required[0])
    assert got.exact.all()
    assert float(got.value) == pytest.approx(expected)
    assert (got.mask | ~required).all()
    _sound(got, values, costs, torch.tensor([budget]))
    table = knapsack_reference(values, costs, torch.tensor([budget]), required)
    assert float(values[table].sum()) == pytest.approx(expected)


@pytest.mark.parametrize("n", [12, 14])
def test_matches_brute_force_of_all_subsets(n):
    """All 2^n subsets at once; more items than the search makes all subsets of."""
    bits = (torch.arange(1 << n)[:, None] >> torch.arange(n)) & 1
    for seed, kind in enumerate(KINDS):
        values, costs = _items(kind, 4, n, 25, seed)
        budget = torch.tensor([0, 31, 80, 10_000])
        worth, spent = bits.double() @ values.T, bits @ costs.T
        expected = torch.where(spent <= budget, worth, -torch.inf).amax(0)
        got = knapsack(values, costs, budget)
        torch.testing.assert_close(got.value, expected)
        assert got.exact.all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "n", "budget"), [(1, 200, 900), (3, 60, 400), (65, 33, 150)])
def test_matches_the_table(kind, rows, n, budget):
    values, costs = _items(kind, rows, n, 40, n)
    budgets = torch.arange(rows) * 7 % 60 + budget
    got = knapsack(values, costs, budgets)
    expected = [_table(*row) for row in zip(values, costs, budgets.tolist(), strict=True)]
    torch.testing.assert_close(got.value, torch.tensor(expected, dtype=torch.float64))
    assert got.exact.all()
    _sound(got, values, costs, budgets)


@pytest.mark.parametrize("kind", KINDS)
def test_reference_matches_the_table(kind):
    values, costs = _items(kind, 3, 40, 20, 3)
    budgets = torch.tensor([0, 77, 300])
    mask = knapsack_reference(values, costs, budgets)
    expected = [_table(*row) for row in zip(values, costs, budgets.tolist(), strict=True)]
    torch.testing.assert_close(
        torch.where(mask, values, 0.0).sum(1), torch.tensor(expected, dtype=torch.float64)
    )


@pytest.mark.parametrize("kind", ["real", "whole", "weak", "strong", "subset sum"])
def test_matches_ortools(kind):
    solver = pytest.importorskip("ortools.algorithms.python.knapsack_solver")
    values, costs = _items(kind, 40, 60, 100, 7)
    if kind == "real":
        values = (values * 1e6).round()
    budgets = (costs.sum(1) * torch.linspace(0.02, 0.9, 40)).long()
    got = knapsack(values, costs, budgets)
    assert got.exact.all()
    for row in range(40):
        peer = solver.KnapsackSolver(
            solver.SolverType.KNAPSACK_DYNAMIC_PROGRAMMING_SOLVER, "knapsack"
        )
        peer.init(values[row].long().tolist(), [costs[row].tolist()], [int(budgets[row])])
        assert peer.solve() == int(got.value[row])


@pytest.mark.parametrize("kind", ["real", "weak"])
def test_large(kind):
    """1,000 items and 4,096 tokens, a batch of budgets."""
    values, costs = _items(kind, 1, 1000, 80, 1)
    budgets = torch.tensor([0, 1, 100, 4096, 20_000, 10**6, 2**62])
    got = knapsack(values.expand(7, -1), costs.expand(7, -1), budgets)
    expected = [_table(values[0], costs[0], min(b, 90_000)) for b in budgets.tolist()]
    torch.testing.assert_close(got.value, torch.tensor(expected, dtype=torch.float64))
    assert (got.value.diff() >= 0).all()
    assert got.mask[-1].all()


def test_required_items_are_in_whatever_they_are_worth(generator):
    values, costs = _items("real", 20, 50, 30, 5)
    required = torch.rand(20, 50, generator=generator) < 0.1
    values[required] -= 0.5
    budget = torch.where(required, costs, 0).sum(1) + torch.arange(20) * 9
    got = knapsack(values, costs, budget, required=required)
    assert got.mask[required].all() and got.exact.all()
    mask = knapsack_reference(values, costs, budget, required)
    torch.testing.assert_close(got.value, torch.where(mask, values, 0.0).sum(1))
    assert not got.mask[(values <= 0) & ~required].any()
    assert torch.equal(got.mask[0], required[0])  # nothing is left for more


def test_items_that_cost_nothing():
    values = torch.tensor([[1.0, 0.0, -1.0, 2.0, 5.0]])
    costs = torch.tensor([[0, 0, 0, 3, 4]])
    for budget, chosen in ((0, [0]), (3, [0, 3]), (4, [0, 4]), (7, [0, 3, 4])):
        got = knapsack(values, costs, torch.tensor([budget]))
        assert got.mask[0].nonzero()[:, 0].tolist() == chosen


def test_knapsack_question_does_not_depend_on_its_neighbours():
    kinds = ["real", "strong", "subset sum", "weak", "inverse", "even"]
    rows = [_items(kind, 1, 80, 60, seed) for seed, kind in enumerate(kinds)]
    values, costs = (torch.cat(column) for column in zip(*rows, strict=True))
    budgets = torch.tensor([400, 301, 999, 1200, 350, 501])
    got = knapsack(values, costs, budgets)
    for row in range(len(kinds)):
        at = slice(row, row + 1)
        alone = knapsack(values[at], costs[at], budgets[at])
        torch.testing.assert_close(got.value[at], alone.value)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        knapsack(values[:, order], costs[:, order], budgets).value, got.value
    )


@pytest.mark.parametrize("kind", ["real", "strong"])
def test_knapsack_of_many_rows_goes_in_tiles(kind):
    """More than the 1,024 that are solved side by side."""
    values, costs = _items(kind, 1100, 12, 30, 2)
    budgets = torch.arange(1100) % 200
    parts = zip(values.split(370), costs.split(370), budgets.split(370), strict=True)
    alone = torch.cat([knapsack(*part).mask for part in parts])
    assert torch.equal(knapsack(values, costs, budgets).mask, alone)


def test_without_work_the_gap_is_honest(caplog):
    values, costs = _items("even", 3, 400, 5000, 9)
    budgets = torch.tensor([100_001, 200_001, 300_001])
    with caplog.at_level(logging.WARNING):
        got = knapsack(values, costs, budgets, work=0)
    _sound(got, values, costs, budgets)
    assert not got.exact.all()
    assert "unproven" in caplog.text
    optimum = torch.tensor(
        [_table(*row) for row in zip(values, costs, budgets.tolist(), strict=True)]
    )
    assert (got.value <= optimum).all()
    assert (got.upper_bound >= optimum).all()
    assert (got.gap / got.value < 1e-3).all()


def test_knapsack_bound_is_the_fractional_optimum():
    linprog = pytest.importorskip("scipy.optimize").linprog
    open_ = 0
    for seed, kind in enumerate(KINDS):
        values, costs = _items(kind, 6, 60, 40, seed)
        budget = torch.tensor([90, 131, 257, 301, 555, 701])
        got = knapsack(values, costs, budget, work=0)
        whole = bool((values == values.round()).all())
        for row in range(6):
            limits = [(0, int(cost <= budget[row])) for cost in costs[row]]
            peer = linprog(
                -values[row].numpy(), costs[row][None].numpy(), int(budget[row]), bounds=limits
            )
            assert float(got.upper_bound[row]) <= -peer.fun + 1e-6
            if not got.exact[row]:
                bound = np.floor(-peer.fun + 1e-6) if whole else -peer.fun
                assert float(got.upper_bound[row]) == pytest.approx(bound)
                open_ += 1
    assert open_ > 10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision_is_computed_in_float64(dtype):
    values, costs = _items("real", 2, 90, 30, 0)
    budgets = torch.tensor([300, 500], dtype=torch.int32)
    got = knapsack(values.to(dtype), costs.int(), budgets)
    assert got.value.dtype == torch.float64 and got.cost.dtype == torch.int64
    torch.testing.assert_close(got.value, knapsack(values.to(dtype).double(), costs, budgets).value)


def test_empty():
    for rows, n in ((0, 0), (0, 4), (3, 0)):
        got = knapsack(
            torch.zeros(rows, n),
            torch.zeros(rows, n, dtype=torch.int64),
            torch.full((rows,), 5),
        )
        assert got.mask.shape == (rows, n)
        assert got.exact.all() and got.gap.shape == (rows,)


def test_strided_input():
    values, costs = _items("weak", 60, 8, 30, 0)
    budgets = torch.full((16,), 300)
    got = knapsack(values.T[::1], costs.T, budgets[::2])
    torch.testing.assert_close(
        got.value, knapsack(values.T.contiguous(), costs.T.contiguous(), budgets[:8]).value
    )


@pytest.mark.parametrize("required", [None, torch.tensor([[True, False, False]])])
def test_opcheck(required):
    items = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1, 2, 3]]), torch.tensor([4])
    torch.library.opcheck(torch.ops.graphmem.knapsack.default, (*items, required, 1000))


GOOD = {
    "values": torch.ones(2, 3),
    "costs": torch.ones(2, 3, dtype=torch.int64),
    "budget": torch.tensor([5, 5]),
    "required": torch.zeros(2, 3, dtype=torch.bool),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.ones(3)}, r"values: expected floating point \[B, n\]"),
        ({"values": torch.ones(2, 3).long()}, "values: expected floating point"),
        ({"values": torch.full((2, 3), torch.nan)}, "values: expected finite"),
        ({"values": torch.full((2, 3), torch.inf)}, "values: expected finite"),
        ({"values": torch.tensor([[torch.inf, -torch.inf, 0]] * 2)}, "values: expected finite"),
        ({"values": torch.ones(2, 3).requires_grad_()}, "expected no gradient"),
        ({"costs": torch.ones(2, 3)}, "costs: expected integers"),
        ({"costs": torch.ones(2, 4).long()}, r"costs: expected integers \[2, 3\]"),
        ({"costs": torch.tensor([[1, 1, -1]] * 2)}, "costs: expected numbers in 0.."),
        ({"costs": torch.full((2, 3), 2**60)}, "costs: expected numbers in 0.."),
        ({"budget": torch.tensor([5, -1])}, "budget: expected at least 0"),
        ({"budget": torch.tensor([5.0, 1.0])}, "budget: expected integers"),
        ({"budget": torch.tensor(5)}, r"budget: expected integers \[2\]"),
        ({"required": torch.zeros(2, 3)}, "required: expected bool"),
        ({"required": torch.zeros(3, 2).bool()}, r"required: expected bool \[2, 3\]"),
        (
            {"required": torch.tensor([[False] * 3, [True] * 3]), "budget": torch.tensor([0, 2])},
            "budget: expected 3 tokens for the required items of row 1, got 2",
        ),
        ({"work": -1}, "work: expected an integer of at least 0"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    with pytest.raises(InputError, match=message):
        knapsack(**{**GOOD, **change})


def test_knapsack_negative_budget_is_refused_without_items():
    with pytest.raises(InputError, match="budget: expected at least 0"):
        knapsack(torch.ones(1, 0), torch.ones(1, 0).long(), torch.tensor([-1]))


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_matches_cpu(kind):
    values, costs = _items(kind, 65, 300, 60, 1)
    budgets = torch.arange(65) * 30 + 1
    got = knapsack(values.cuda(), costs.cuda(), budgets.cuda())
    torch.testing.assert_close(got.value.cpu(), knapsack(values, costs, budgets).value)
