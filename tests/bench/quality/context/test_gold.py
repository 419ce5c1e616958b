"""Curves of gold against tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from graphmem_torch.quality.context.gold import CURVE, compare_curves, gold_share, tokens_for


def test_gold_share_by_hand() -> None:
    chosen = torch.tensor([[[1, 0, 1], [0, 0, 0]], [[1, 1, 1], [0, 1, 0]]]).bool()
    gold = torch.tensor([[0, 2], [1, -1]])
    assert gold_share(chosen, gold).tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_gold_share_without_gold_is_no_number() -> None:
    found = gold_share(torch.ones(1, 2, 3).bool(), torch.full((1, 1), -1))
    assert bool(found.isnan().all())


def test_tokens_for_interpolates_on_a_logarithmic_scale() -> None:
    recall = torch.tensor([[0.2, 0.6, 1.0]], dtype=torch.float64)
    budgets = (64, 256, 1024)
    targets = [0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
    wanted = torch.tensor(targets, dtype=torch.float64)
    found = tokens_for(recall.expand(len(targets), -1), budgets, wanted)
    expected = np.exp2(np.interp(targets, [0.2, 0.6, 1.0], np.log2(budgets)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_tokens_for_a_recall_never_reached_are_endless() -> None:
    found = tokens_for(torch.tensor([[0.1, 0.3]]).double(), (64, 128), torch.tensor([0.4]).double())
    assert math.isinf(float(found))


def test_tokens_for_take_a_falling_curve_at_its_best_so_far() -> None:
    recall = torch.tensor([[0.5, 0.4, 0.5]]).double()
    assert float(tokens_for(recall, (64, 128, 256), torch.tensor([0.5]).double())) == 64


def test_compare_curves_finds_who_needs_a_third_of_the_tokens() -> None:
    chance = torch.Generator().manual_seed(0)
    ability = torch.rand(300, 1, generator=chance, dtype=torch.float64)
    scale = torch.tensor(CURVE, dtype=torch.float64).log2()
    theirs = (scale / 14 * ability).clamp(max=1.0)
    ours = ((scale + math.log2(3)) / 14 * ability).clamp(max=1.0)
    report = compare_curves({"ours": ours, "theirs": theirs}, subject="ours", seed=0)
    needed = report["theirs"]["tokens_needed"]["512"]
    assert needed["ratio"] == pytest.approx(1 / 3, abs=1e-3)
    assert needed["ci"][0] <= needed["ratio"] <= needed["ci"][1]
    assert needed["recall"] == pytest.approx(float(theirs[:, CURVE.index(512)].mean()))
    mean, low, high = report["theirs"]["difference"]["512"]
    assert low <= mean <= high
    assert mean == pytest.approx(float((ours - theirs)[:, CURVE.index(512)].mean()))
    assert "tokens_needed" not in report["ours"]


def test_compare_curves_says_none_where_nothing_is_reached() -> None:
    low, high = torch.zeros(20, len(CURVE)).double(), torch.ones(20, len(CURVE)).double()
    needed = compare_curves({"ours": low, "theirs": high}, subject="ours", seed=0)
    needed = needed["theirs"]["tokens_needed"]["1024"]
    assert needed["ratio"] is None
    assert needed["tokens"] is None
    assert needed["ci"] == [None, None]
