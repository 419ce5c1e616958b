"""Figures of a run against direct computation; AUROC against scikit-learn, refusal by counting."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.quality.common.rankings import gold_tensor
from graphmem_torch.quality.common.scores import (
    BUDGETS,
    GROUPS,
    Scores,
    auroc,
    difference_table,
    gain,
    grouped_means,
    percent,
    refusal_at,
    summarise,
)

CATEGORIES = torch.tensor([1, 2, 4, 5, 5, 4])
GOLD = [[0], [3, 4], [], [2], [1], [6]]
COSTS = torch.full((60,), 100)


def _scores(shift: int, confidence: list[float] | None = None) -> Scores:
    """Two conversations of three questions; gold stands `shift` places down the ranking."""
    scores = Scores()
    for part in (slice(0, 3), slice(3, 6)):
        gold = GOLD[part]
        rows = []
        for wanted in gold:
            others = [i for i in range(60) if i not in wanted]
            rows.append(others[:shift] + list(wanted) + others[shift:])
        values = None if confidence is None else torch.tensor(confidence[part])
        scores.add(
            torch.tensor(rows),
            gold_tensor(gold),
            COSTS,
            confidence=values,
            known=None if values is None else values > 0.5,
        )
    return scores


def test_summarise_means_differences_and_gate() -> None:
    confidence = [0.9, 0.8, 0.4, 0.3, 0.6, 0.7]
    systems_scores = {"ours": _scores(0, confidence), "theirs": _scores(7), "far": _scores(24)}
    systems_scores["ours"].seconds = [0.001, 0.002, 0.003]
    systems = summarise(systems_scores, CATEGORIES, subjects=["ours"], seed=0, resamples=200)
    ours, theirs, far = (systems[name] for name in systems_scores)

    assert ours["recall"]["1-4"] == {"5": 1.0, "10": 1.0, "25": 1.0, "50": 1.0}
    assert theirs["recall"]["1-4"] == {"5": 0.0, "10": 1.0, "25": 1.0, "50": 1.0}
    # The question with two gold turns has one of them at place 25.
    assert far["recall"]["2"]["25"] == 0.5
    assert far["complete"]["2"]["25"] == 0.0
    assert far["any"]["2"]["25"] == 1.0
    assert ours["recall"]["3"]["10"] is None
    assert set(ours["recall"]) == set(GROUPS)

    # A hundred tokens a turn: 5, 10 and 20 turns.
    assert theirs["budget_recall"] == {str(b): v for b, v in zip(BUDGETS, (0, 1, 1), strict=True)}

    assert ours["latency_ms"]["p50"] == pytest.approx(2.0)
    assert theirs["latency_ms"] == {"p50": None, "p95": None}
    # Answerable .9 .8 .4 .7 against .3 .6: seven of eight pairs in order.
    assert ours["gate_auroc"] == pytest.approx(7 / 8)
    assert theirs["gate_auroc"] is None
    assert theirs["refusal"] is None
    assert ours["refusal"]["gate_answerable"] == pytest.approx(0.25)
    assert ours["refusal"]["gate_adversarial"] == pytest.approx(0.5)

    assert ours["ci"]["recall"]["1-4"]["10"] == pytest.approx([1.0, 1.0])
    assert ours["ci"]["difference"]["theirs"]["all"]["5"] == pytest.approx([1.0, 1.0, 1.0])
    assert ours["ci"]["difference"]["theirs"]["all"]["10"] == pytest.approx([0.0, 0.0, 0.0])
    assert ours["ci"]["difference"]["theirs"]["3"]["10"] is None
    assert "difference" not in theirs["ci"]


@pytest.mark.parametrize("levels", [3, 1000])
def test_auroc_matches_scikit_learn_with_and_without_ties(levels: int) -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(levels)
    positive = torch.randint(levels, (80,), generator=generator) + levels // 3
    negative = torch.randint(levels, (50,), generator=generator)
    truth = [1] * 80 + [0] * 50
    oracle = sklearn_metrics.roc_auc_score(truth, torch.cat([positive, negative]).numpy())
    assert auroc(positive, negative) == pytest.approx(oracle)


def test_refusal_at_counts_answerable_questions_at_or_below_the_threshold() -> None:
    negative = torch.tensor([0.1, 0.2, 0.3, 0.4])
    positive = torch.tensor([0.05, 0.2, 0.35, 0.9])
    # Half of the negatives lie at or below 0.2, three quarters at or below 0.3.
    assert refusal_at(positive, negative, (0.5, 0.75, 1.0)) == {
        "50": 0.5,
        "75": 0.5,
        "100": 0.75,
    }


def test_refusal_at_of_a_constant_confidence_is_everything() -> None:
    assert refusal_at(torch.ones(5), torch.ones(7), (0.5,)) == {"50": 1.0}
    assert auroc(torch.ones(5), torch.ones(7)) == 0.5


def test_auroc_and_refusal_at_of_one_side_are_none() -> None:
    assert auroc(torch.ones(3), torch.empty(0)) is None
    assert refusal_at(torch.empty(0), torch.ones(3)) is None


def test_grouped_means_average_only_what_has_a_value() -> None:
    values = torch.tensor([[1.0], [0.0], [torch.nan], [0.5]], dtype=torch.float64)
    table = grouped_means(values, torch.tensor([1, 4, 4, 5]), (10,))
    assert table["1"] == {"10": 1.0}
    assert table["4"] == {"10": 0.0}
    assert table["1-4"] == {"10": 0.5}
    assert table["all"] == {"10": 0.5}
    assert table["5"] == {"10": 0.5}
    assert table["2"] == {"10": None}


def test_difference_table_resamples_in_pairs() -> None:
    ours, theirs = (
        torch.rand(40, 2, generator=torch.Generator().manual_seed(seed)) for seed in (5, 6)
    )
    gains = difference_table(
        {"a": ours, "b": theirs, "c": ours}, "a", (5, 10), seed=3, resamples=100
    )
    assert gains["b"] == interval_table(ours - theirs, (5, 10), seed=3, resamples=100)
    assert gains["c"] == {"5": [0.0, 0.0, 0.0], "10": [0.0, 0.0, 0.0]}


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (percent(0.123), "12.3"),
        (percent(None), "-"),
        (percent(float("nan")), "-"),
        (gain([0.05, -0.01, 0.1]), "+5.0 [-1.0, +10.0]"),
        (gain(None), ""),
    ],
)
def test_percent_and_gain_write_hundredths(cell: str, expected: str) -> None:
    assert cell == expected
