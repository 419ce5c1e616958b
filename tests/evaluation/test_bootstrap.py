"""Bootstrap intervals against a plain loop and the normal approximation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from graphmem_torch.evaluation.bootstrap import (
    bootstrap_interval,
    holm,
    interval_table,
    mean_interval,
    randomization_test,
    stratified_interval,
)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_bootstrap_interval_matches_a_plain_loop_over_the_same_draws() -> None:
    values = torch.rand(37, 3, generator=_generator(5), dtype=torch.float64)
    got = bootstrap_interval(values, generator=_generator(1), resamples=300)
    drawn = torch.randint(37, (300, 37), generator=_generator(1))
    means = torch.stack([values[row].mean(0) for row in drawn])
    for column, interval in enumerate(got):
        assert interval is not None
        oracle = means[:, column].quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
        assert interval[0] == pytest.approx(float(values[:, column].mean()))
        assert interval[1:] == pytest.approx(tuple(oracle.tolist()))


def test_bootstrap_interval_is_close_to_the_normal_one_on_many_rows() -> None:
    values = torch.randn(4000, 1, generator=_generator(2), dtype=torch.float64)
    interval = bootstrap_interval(values, generator=_generator(3), resamples=3000)[0]
    assert interval is not None
    half = 1.96 * float(values.std()) / 4000**0.5
    assert interval[1] == pytest.approx(interval[0] - half, abs=0.1 * half)
    assert interval[2] == pytest.approx(interval[0] + half, abs=0.1 * half)


def test_bootstrap_interval_follows_the_seed_and_not_the_blocks() -> None:
    values = torch.rand(50, 2, generator=_generator(4))
    whole = bootstrap_interval(values, generator=_generator(7), resamples=100)
    assert whole == bootstrap_interval(values, generator=_generator(7), resamples=100)
    assert whole != bootstrap_interval(values, generator=_generator(8), resamples=100)
    blocks = bootstrap_interval(values, generator=_generator(7), resamples=100, block=500)
    assert np.allclose(np.array(blocks), np.array(whole))


def test_bootstrap_interval_of_pairs_takes_the_difficulty_out() -> None:
    difficulty = torch.rand(200, 1, generator=_generator(9), dtype=torch.float64)
    interval = bootstrap_interval(difficulty + 0.05 - difficulty, generator=_generator())[0]
    assert interval == pytest.approx((0.05, 0.05, 0.05))


def test_bootstrap_interval_drops_rows_without_a_value() -> None:
    values = torch.tensor([[1.0], [torch.nan], [1.0]])
    assert bootstrap_interval(values, generator=_generator())[0] == pytest.approx((1.0, 1.0, 1.0))
    nothing = torch.full((3, 2), torch.nan)
    assert bootstrap_interval(nothing, generator=_generator()) == [None, None]


def test_bootstrap_interval_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match="level"):
        bootstrap_interval(torch.ones(2, 1), generator=_generator(), level=95)
    with pytest.raises(ValueError, match="resamples"):
        bootstrap_interval(torch.ones(2, 1), generator=_generator(), resamples=0)


def test_interval_table_names_the_columns_and_starts_from_the_seed() -> None:
    ours = torch.rand(40, 2, generator=_generator(5))
    table = interval_table(ours, (5, 10), seed=3, resamples=100)
    expected = bootstrap_interval(ours, generator=_generator(3), resamples=100)
    assert table == {"5": list(expected[0] or ()), "10": list(expected[1] or ())}
    assert mean_interval(ours[:, 0], seed=3, resamples=100) == table["5"]
    assert interval_table(ours[:0], ("x", "y"), seed=0) == {"x": None, "y": None}


@pytest.mark.parametrize("count", [1, 5, 11])
def test_randomization_test_of_few_questions_tries_all_signs(count: int) -> None:
    values = (torch.randint(-3, 4, (count,), generator=_generator(count)) / 4 + 0.2).double()
    sums = [sum(choice) for choice in itertools.product(*([v, -v] for v in values.tolist()))]
    oracle = sum(abs(one) >= abs(sums[0]) - 1e-9 for one in sums) / len(sums)
    with_others = torch.cat([values, torch.tensor([0.0, torch.nan, 0.0]).double()])
    assert randomization_test(with_others, generator=_generator()) == pytest.approx(oracle)


def test_randomization_test_of_many_questions_is_that_of_the_normal_distribution() -> None:
    values = torch.randn(600, generator=_generator(6), dtype=torch.float64) + 0.08
    error = float(values.square().mean().sqrt()) / len(values) ** 0.5
    oracle = 2 * (1 - 0.5 * (1 + math.erf(abs(float(values.mean())) / error / 2**0.5)))
    got = randomization_test(values, generator=_generator(1), resamples=4000)
    assert got is not None and got == pytest.approx(oracle, abs=4 * (oracle / 4000) ** 0.5)
    assert got == randomization_test(values, generator=_generator(1), resamples=4000)
    assert randomization_test(values + 9, generator=_generator(), resamples=99) == 0.01


def test_randomization_test_without_values_and_of_two_that_agree() -> None:
    assert randomization_test(torch.tensor([torch.nan]), generator=_generator()) is None
    assert randomization_test(torch.zeros(4), generator=_generator()) == 1.0


def test_holm_is_the_loop_over_ordered_tests() -> None:
    generator = _generator(3)
    for _ in range(20):
        given = (torch.rand(7, generator=generator) ** 3).tolist()
        corrected = holm([*given, None])
        assert corrected[-1] is None
        for place, value in enumerate(given):
            smaller = [other for other in given if other <= value]
            steps = [
                min(1.0, other * (len(given) - sum(each < other for each in given)))
                for other in smaller
            ]
            assert corrected[place] == pytest.approx(max(steps))
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_stratified_interval_keeps_the_share_of_each_group() -> None:
    few, many = torch.tensor([1.0, 0.0, torch.nan, 1.0, 1.0]), torch.zeros(300)
    middle, low, high = stratified_interval([few, many], seed=1) or ()
    assert middle == pytest.approx(0.375) and 0.0 <= low < middle < high == pytest.approx(0.5)
    # The variance of a mean of means, by the normal distribution.
    own = [torch.randn(200, generator=_generator(i)) * (i + 1) for i in range(2)]
    middle, low, high = stratified_interval(own, seed=0, resamples=4000) or ()
    error = math.sqrt(sum(float(each.var()) / 200 for each in own)) / 2
    assert middle == pytest.approx(sum(float(each.mean()) for each in own) / 2)
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.08)
    assert stratified_interval([torch.tensor([torch.nan])], seed=0) is None
