"""The threshold of abstention keeps its promise exactly, counted over every question held out."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch

from graphmem_torch.config import GateConfig
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.rank.abstention import (
    abstention_statistics,
    confidence,
    conformal_threshold,
    fit_abstention,
)


@pytest.mark.parametrize("n", [1, 9, 10, 19, 99])
@pytest.mark.parametrize("rate", [0.0, 0.03, 0.1, 0.3, 0.57, 0.95])
@pytest.mark.parametrize("ties", [False, True])
def test_conformal_threshold_share_of_refused_questions(
    n: int, rate: float, ties: bool, generator: torch.Generator
) -> None:
    """Of n + 1 exchangeable questions each is the new one once; at most `rate` are refused."""
    scores = torch.rand(n + 1, generator=generator)
    if ties:
        scores = (scores * 4).round() / 4
    refused = 0
    for new in range(n + 1):
        held_out = torch.cat([scores[:new], scores[new + 1 :]])
        refused += bool(scores[new] < conformal_threshold(held_out, rate))
    assert Fraction(refused, n + 1) <= Fraction(str(rate))
    if not ties:  # and no fewer than can be had
        assert refused == math.floor(Fraction(str(rate)) * (n + 1))


def test_conformal_threshold_of_too_few_refuses_nobody() -> None:
    assert conformal_threshold(torch.tensor([0.5, 0.9]), 0.1) == -math.inf


@pytest.mark.parametrize(("rate", "n"), [(1.0, 3), (-0.1, 3), (0.1, 0), (math.nan, 3)])
def test_conformal_threshold_bad_rate(rate: float, n: int) -> None:
    with pytest.raises(InputError, match="rate"):
        conformal_threshold(torch.rand(n), rate)


def test_confidence_is_the_weighted_sum_through_the_link(generator: torch.Generator) -> None:
    x = torch.randn(7, 2, generator=generator) * 3
    weights = {"activation": 0.7, "best_semantic": -1.3}
    raw = [0.7 * float(a) - 1.3 * float(b) + 0.2 for a, b in x]
    got = confidence(x, GateConfig(weights, bias=0.2, link="sigmoid"))
    assert got.tolist() == pytest.approx([1 / (1 + math.exp(-v)) for v in raw], rel=1e-5)
    got = confidence(x, GateConfig(weights, bias=0.2))
    assert got.tolist() == pytest.approx([min(max(v, 0.0), 1.0) for v in raw], abs=1e-5)


def test_abstention_statistics_unknown_name() -> None:
    found: Any = None
    with pytest.raises(ConfigError, match="got 'activatoin'; did you mean 'activation'"):
        abstention_statistics(found, torch.zeros(1, 1), ["activation", "activatoin"])


def test_fit_abstention_against_scikit_learn(generator: torch.Generator) -> None:
    from sklearn.linear_model import LogisticRegression

    answerable = torch.rand(200, generator=generator) < 0.2
    x = torch.randn(200, 3, generator=generator) * torch.tensor([1.0, 20.0, 0.05])
    x[:, 0] += answerable
    penalty = 0.01
    weights, bias = fit_abstention(x, answerable, penalty=penalty)
    scaled = (x - x.mean(0)) / x.std(0)
    # C * sum(loss) + |w|^2 / 2 with class weights that sum to one.
    weight = torch.where(answerable, 0.5 / answerable.sum(), 0.5 / (~answerable).sum())
    model = LogisticRegression(C=1 / (2 * penalty), tol=1e-8, max_iter=1000)
    model.fit(scaled.numpy(), answerable.numpy(), sample_weight=weight.numpy())
    expected = model.decision_function(scaled.numpy())
    assert (x @ weights + bias).numpy() == pytest.approx(expected, abs=2e-2)


def test_fit_abstention_needs_both_kinds() -> None:
    for kind in (True, False):
        with pytest.raises(InputError, match="both"):
            fit_abstention(torch.rand(5, 2), torch.full((5,), kind))
