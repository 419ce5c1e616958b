"""The retrieval experiment of the paper, against counting."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from graphmem_torch.quality.modes.experiment import COLUMNS, answer_measures, compare


def test_answer_measures_against_counting() -> None:
    chance = random.Random(3)
    count = 30
    costs = [chance.randrange(20, 200) for _ in range(count)]
    rankings = [chance.sample(range(count), count) for _ in range(6)]
    rankings[1] = rankings[1][:4] + [-1] * (count - 4)
    golds = [sorted(chance.sample(range(count), 1 + i % 3)) for i in range(6)]
    gold = torch.tensor([g + [-1] * (3 - len(g)) for g in golds])
    measured, found, tokens = answer_measures(torch.tensor(rankings), gold, torch.tensor(costs))
    for row, (ranking, own) in enumerate(zip(rankings, golds, strict=True)):
        figures = dict(zip(COLUMNS, measured[row].tolist(), strict=True))
        listed = [i for i in ranking if i >= 0]
        ranks = [listed.index(g) + 1 for g in own if g in listed]
        assert figures["mrr"] == pytest.approx(1 / min(ranks) if ranks else 0.0)
        for k in (5, 10):
            hits = len(set(listed[:k]) & set(own))
            assert figures[f"p@{k}"] == pytest.approx(hits / k)
            assert figures[f"tokens@{k}"] == sum(costs[i] for i in listed[:k])
        assert figures["recall@10"] == pytest.approx(len(set(listed[:10]) & set(own)) / len(own))
        for budget in (512, 1024, 2048):
            spent = list(itertools.accumulate(costs[i] for i in listed))
            fits = [i for i, cost in zip(listed, spent, strict=True) if cost <= budget]
            hits = len(set(fits) & set(own))
            assert figures[f"p@{budget}t"] == pytest.approx(hits / max(1, len(fits)))
            assert figures[f"recall@{budget}t"] == pytest.approx(hits / len(own))
        for depth in (1, 10, 50):
            assert found[row, depth - 1] == len(set(listed[:depth]) & set(own))
            assert tokens[row, depth - 1] == sum(costs[i] for i in listed[:depth])


def test_compare_at_equal_precision_is_as_much_gold_for_fewer_tokens() -> None:
    costs = torch.full((40,), 10)
    gold = torch.tensor([[0], [1]])
    late = torch.arange(40).roll(9).expand(2, -1)  # gold 0 at 10th place, gold 1 at 11th
    early = torch.arange(40).expand(2, -1)
    never = torch.arange(39, 4, -1).expand(2, -1)
    answers = {
        name: [answer_measures(ranking, gold, costs)]
        for name, ranking in (("late", late), ("early", early), ("never", never))
    }
    report = compare(answers, subject="early", reference="late", seed=0, resamples=20)
    assert report["late"]["equal_precision"] == {"hits": 10, "tokens": 100.0, "ratio": 1.0}
    # One of the two is found at once.
    assert report["early"]["equal_precision"] == {"hits": 1, "tokens": 10.0, "ratio": 10.0}
    assert report["never"]["equal_precision"]["tokens"] is None
    assert "difference" not in report["early"]
    assert report["late"]["difference"]["p@5"][0] == pytest.approx(0.2)
    assert report["never"]["difference"]["mrr"][0] == pytest.approx(0.75)
