"""The gate's threshold keeps its promise exactly, counted over every question held out."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch

from graphmem_torch.config import GateConfig
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.rank.abstention import confidence, conformal_threshold, gate_statistics


@pytest.mark.parametrize("n", [1, 4, 9, 10, 19, 50, 99])
@pytest.mark.parametrize("rate", [0.0, 0.03, 0.05, 0.1, 0.2, 0.3, 0.57, 0.95])
@pytest.mark.parametrize("ties", [False, True])
def test_share_of_refused_questions(
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


def test_too_few_to_promise_refuses_nobody() -> None:
    assert conformal_threshold(torch.tensor([0.5, 0.9]), 0.1) == -math.inf


@pytest.mark.parametrize(("rate", "n"), [(1.0, 3), (-0.1, 3), (0.1, 0), (math.nan, 3)])
def test_bad_rate(rate: float, n: int) -> None:
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


def test_unknown_statistic() -> None:
    scope: Any = None
    with pytest.raises(ConfigError, match="unknown gate statistic 'activatoin'"):
        gate_statistics(scope, torch.zeros(1, 1), ["activation", "activatoin"])
