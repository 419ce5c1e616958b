"""AUROC against scikit-learn, refusal against counting."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.quality.common.abstention import auroc, refusal_at


@pytest.mark.parametrize("levels", [3, 1000])
def test_auroc_matches_scikit_learn_with_and_without_ties(levels: int) -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(levels)
    positive = torch.randint(levels, (80,), generator=generator) + levels // 3
    negative = torch.randint(levels, (50,), generator=generator)
    truth = [1] * 80 + [0] * 50
    oracle = sklearn_metrics.roc_auc_score(truth, torch.cat([positive, negative]).numpy())
    assert auroc(positive, negative) == pytest.approx(oracle)


def test_refusal_counts_answerable_questions_at_or_below_the_threshold() -> None:
    negative = torch.tensor([0.1, 0.2, 0.3, 0.4])
    positive = torch.tensor([0.05, 0.2, 0.35, 0.9])
    # Half of the negatives lie at or below 0.2, three quarters at or below 0.3.
    assert refusal_at(positive, negative, (0.5, 0.75, 1.0)) == {
        "50": 0.5,
        "75": 0.5,
        "100": 0.75,
    }


def test_a_constant_confidence_refuses_everything() -> None:
    assert refusal_at(torch.ones(5), torch.ones(7), (0.5,)) == {"50": 1.0}
    assert auroc(torch.ones(5), torch.ones(7)) == 0.5


def test_one_side_alone_says_nothing() -> None:
    assert auroc(torch.ones(3), torch.empty(0)) is None
    assert refusal_at(torch.empty(0), torch.ones(3)) is None
