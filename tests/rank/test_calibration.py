"""Calibration against plain loops, and its fit against Newton's method in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from graphmem_torch.config import CalibrationConfig, load_config
from graphmem_torch.errors import ConfigError
from graphmem_torch.rank.calibration import (
    constants_of,
    fit_calibration,
    hit_features,
    is_calibrated,
    probabilities,
    read_statistics,
)

NAMES = ("top_semantic", "score", "lead_2")
CONSTANTS = {"bias": -1.5, "behind": 0.8, "place": 0.3, "top_semantic": 2.0, "lead_2": -0.1}


def test_probabilities_are_those_of_a_loop_and_never_rise() -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(5, 8, generator=generator).sort(dim=1, descending=True).values * 4
    scores[1, 6:] = -torch.inf
    place = torch.arange(8).expand(5, 8)
    statistics = torch.randn(5, 3, generator=generator)
    statistics[:, 1] = scores[:, 0]
    found = torch.from_numpy(probabilities(scores, place, statistics, NAMES, CONSTANTS))
    for row in range(5):
        for column in range(8):
            if scores[row, column] == -torch.inf:
                assert found[row, column] == 0.0
                continue
            odds = -1.5 + 2.0 * float(statistics[row, 0]) - 0.1 * float(statistics[row, 2])
            odds -= 0.8 * math.sqrt(float(scores[row, 0]) - float(scores[row, column]))
            odds -= 0.3 * math.log(column + 1)
            assert found[row, column] == pytest.approx(1 / (1 + math.exp(-odds)), abs=1e-6)
    assert bool((found.diff(dim=1) < 0)[:, :5].all())
    assert bool(((found >= 0) & (found <= 1)).all())


def test_a_hit_that_a_plan_moved_back_is_behind_nothing() -> None:
    features = hit_features(np.array([[1.0, 3.0]]), np.array([[0, 1]]), np.array([1.0]))
    assert features["behind"].tolist() == [[0.0, 0.0]]
    assert features["place"].tolist() == [[0.0, pytest.approx(math.log(2))]]


def test_extreme_scores_give_probabilities() -> None:
    scores = torch.tensor([[1e6, -1e6], [-100.0, -torch.inf]])
    statistics = torch.tensor([[1.0, 1e6, 0.0], [0.0, -100.0, 0.0]])
    found = probabilities(scores, torch.tensor([[0, 1], [0, 1]]), statistics, NAMES, CONSTANTS)
    assert np.isfinite(found).all() and found[0, 1] >= 0.0


def newton(x: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: float) -> np.ndarray:
    """The slopes and the bias of a logistic model with a penalty on scaled slopes."""
    mean = (weight[:, None] * x).sum(0) / weight.sum()
    scale = np.sqrt((weight[:, None] * (x - mean) ** 2).sum(0) / weight.sum())
    z = np.column_stack([(x - mean) / scale, np.ones(len(x))])
    share, w = weight / weight[y > 0].sum(), np.zeros(z.shape[1])
    ridge = 2 * penalty * np.diag([*np.ones(x.shape[1]), 0.0])
    for _ in range(60):
        p = 1 / (1 + np.exp(-z @ w))
        slope = z.T @ (share * (p - y)) + ridge @ w
        w -= 0.7 * np.linalg.solve((z * (share * p * (1 - p))[:, None]).T @ z + ridge, slope)
    own = w[:-1] / scale
    return np.append(own, w[-1] - own @ mean)


def test_fit_is_that_of_newton() -> None:
    chance = np.random.default_rng(5)
    behind, top = np.abs(chance.normal(size=400)), chance.normal(size=400)
    odds = 0.5 - 1.2 * behind + 0.9 * top
    relevant = chance.random(400) < 1 / (1 + np.exp(-odds))
    weight = chance.random(400) + 0.1
    found = fit_calibration(
        {"behind": torch.tensor(behind), "top_semantic": torch.tensor(top)},
        torch.tensor(relevant),
        torch.tensor(weight),
    )
    slopes = newton(np.column_stack([behind, top]), relevant.astype(float), weight, 1e-3)
    assert found["behind"] == pytest.approx(-slopes[0], abs=5e-3)
    assert found["top_semantic"] == pytest.approx(slopes[1], abs=5e-3)
    assert found["bias"] == pytest.approx(slopes[2], abs=5e-3)


def test_fit_keeps_the_order_where_the_data_speak_against_it() -> None:
    behind = torch.linspace(0, 3, 200)
    relevant = behind > 1.5
    assert fit_calibration({"behind": behind}, relevant, torch.ones(200))["behind"] == 0.0


def test_constants_are_those_of_the_encoder() -> None:
    own = {"bias": 1.0}
    config = CalibrationConfig(encoders={"e5": own, "others": {"bias": 2.0}})
    assert constants_of(config, "intfloat/e5") is own and is_calibrated(config, "intfloat/e5")
    assert constants_of(config, "e6") == {"bias": 2.0} and not is_calibrated(config, "e6")
    assert not is_calibrated(config, "others")
    assert constants_of(CalibrationConfig(), "e6")["best_semantic"] > 0


def test_settings_of_the_calibration() -> None:
    config = load_config("default")
    assert {"all-MiniLM-L6-v2"} <= {*config.calibration.encoders}
    assert read_statistics(config.calibration)[0] == "score"
    with pytest.raises(ConfigError, match="did you mean 'top_semantic'"):
        read_statistics(CalibrationConfig(encoders={"others": {"top_semantics": 1.0}}))
    with pytest.raises(ConfigError, match=r"calibration.encoders.x: expected a mapping"):
        load_config("default", {"calibration": {"encoders": {"x": 3}}})
    with pytest.raises(ConfigError, match=r"calibration.encoders.x.bias: expected a number"):
        load_config("default", {"calibration": {"encoders": {"x": {"bias": "high"}}}})
