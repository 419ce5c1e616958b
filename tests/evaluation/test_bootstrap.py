"""Bootstrap intervals against a plain loop and the normal approximation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmem_torch.evaluation.bootstrap import bootstrap_interval


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_matches_a_plain_loop_over_the_same_draws() -> None:
    values = torch.rand(37, 3, generator=_generator(5), dtype=torch.float64)
    got = bootstrap_interval(values, generator=_generator(1), resamples=300)
    drawn = torch.randint(37, (300, 37), generator=_generator(1))
    means = np.array([values[row].mean(0).numpy() for row in drawn])
    for column, interval in enumerate(got):
        assert interval is not None
        oracle = np.quantile(means[:, column], [0.025, 0.975])
        assert interval[0] == pytest.approx(float(values[:, column].mean()))
        assert interval[1:] == pytest.approx(tuple(oracle))


def test_close_to_the_normal_interval_on_many_rows() -> None:
    values = torch.randn(4000, 1, generator=_generator(2), dtype=torch.float64)
    interval = bootstrap_interval(values, generator=_generator(3), resamples=3000)[0]
    assert interval is not None
    half = 1.96 * float(values.std()) / 4000**0.5
    assert interval[1] == pytest.approx(interval[0] - half, abs=0.1 * half)
    assert interval[2] == pytest.approx(interval[0] + half, abs=0.1 * half)


def test_the_seed_decides_and_blocks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.rand(50, 2, generator=_generator(4))
    whole = bootstrap_interval(values, generator=_generator(7), resamples=100)
    assert whole == bootstrap_interval(values, generator=_generator(7), resamples=100)
    assert whole != bootstrap_interval(values, generator=_generator(8), resamples=100)
    monkeypatch.setattr("graphmem_torch.evaluation.bootstrap._CHUNK", 500)
    blocks = bootstrap_interval(values, generator=_generator(7), resamples=100)
    assert np.allclose(np.array(blocks), np.array(whole))


def test_a_pair_takes_the_difficulty_out() -> None:
    difficulty = torch.rand(200, 1, generator=_generator(9), dtype=torch.float64)
    interval = bootstrap_interval(difficulty + 0.05 - difficulty, generator=_generator())[0]
    assert interval == pytest.approx((0.05, 0.05, 0.05))


def test_rows_without_a_value_are_dropped() -> None:
    values = torch.tensor([[1.0], [torch.nan], [1.0]])
    assert bootstrap_interval(values, generator=_generator())[0] == pytest.approx((1.0, 1.0, 1.0))
    nothing = torch.full((3, 2), torch.nan)
    assert bootstrap_interval(nothing, generator=_generator()) == [None, None]


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="level"):
        bootstrap_interval(torch.ones(2, 1), generator=_generator(), level=95)
    with pytest.raises(ValueError, match="resamples"):
        bootstrap_interval(torch.ones(2, 1), generator=_generator(), resamples=0)
