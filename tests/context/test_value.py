"""Values of memories: shares, ranks and plain scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from graphmem_torch.context.costs import values_from_scores
from graphmem_torch.errors import InputError

INF = float("inf")


def test_share_is_the_softmax_at_a_temperature() -> None:
    scores = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 4
    expected = softmax(scores.double().numpy() / 1.5, axis=1)
    np.testing.assert_allclose(values_from_scores(scores, kind="share"), expected, rtol=1e-12)


def test_share_is_monotone_and_sums_to_one_without_what_is_not_there() -> None:
    scores = torch.tensor([[3.0, -INF, 1.0, 2.0]])
    values = values_from_scores(scores, kind="share", temperature=0.5)
    assert values[0, 1] == 0
    assert values.sum().item() == pytest.approx(1.0)
    assert values[0].argsort(descending=True).tolist() == [0, 3, 2, 1]


def test_rank_knows_no_scale() -> None:
    scores = torch.tensor([[0.1, 0.3, 0.2], [5.0, 70.0, 6.0]])
    values = values_from_scores(scores, kind="rank")
    expected = np.array([1 / 3, 1, 1 / 2]) / (1 + 1 / 2 + 1 / 3)
    np.testing.assert_allclose(values, [expected, expected], rtol=1e-12)


def test_rank_of_equal_scores_goes_by_place() -> None:
    values = values_from_scores(torch.zeros(1, 3), kind="rank")
    assert values[0, 0] > values[0, 1] > values[0, 2] > 0


def test_score_is_taken_as_it_is_but_never_below_zero() -> None:
    scores = torch.tensor([[2.5, -1.0, -INF, 0.0]])
    assert values_from_scores(scores, kind="score").tolist() == [[2.5, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("kind", ["share", "rank", "score"])
@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (1, 1)])
def test_odd_shapes_and_rows_without_candidates(kind: str, shape: tuple[int, int]) -> None:
    values = values_from_scores(torch.full(shape, -INF), kind=kind)  # type: ignore[arg-type]
    assert values.shape == shape
    assert values.dtype == torch.float64
    assert bool((values == 0).all())


def test_far_scores_stay_finite() -> None:
    values = values_from_scores(torch.tensor([[1e30, -1e30, 0.0]]), kind="share")
    assert values.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("bad", [float("nan"), INF])
def test_scores_that_are_no_scores(bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        values_from_scores(torch.tensor([[1.0, bad]]))


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match=r"\[B, k\]"):
        values_from_scores(torch.zeros(3))
    with pytest.raises(InputError, match="temperature"):
        values_from_scores(torch.zeros(1, 3), kind="share", temperature=0.0)
    with pytest.raises(InputError, match="kind"):
        values_from_scores(torch.zeros(1, 3), kind="rang")  # type: ignore[arg-type]
