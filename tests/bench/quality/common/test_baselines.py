"""Flat baselines against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmem_torch.quality.common.baselines import (
    add_neighbours,
    fuse,
    lift_facts,
    reciprocal_rank_fusion,
    standardise,
)


def _scores(seed: int, batch: int = 4, count: int = 17) -> torch.Tensor:
    return torch.randn(batch, count, generator=torch.Generator().manual_seed(seed))


def test_fusion_is_a_sum_of_z_scores() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    dense, lexical = _scores(1), _scores(2).relu()
    oracle = scipy_stats.zscore(dense.numpy(), axis=1) + 0.7 * scipy_stats.zscore(
        lexical.numpy(), axis=1
    )
    assert np.allclose(fuse(dense, lexical).numpy(), oracle, atol=1e-5)


def test_a_constant_row_has_no_say() -> None:
    assert standardise(torch.full((2, 5), 3.0)).tolist() == [[0.0] * 5] * 2


def test_rrf_matches_scipy_ranks_with_ties() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    dense = _scores(3)
    lexical = torch.randint(0, 4, dense.shape, generator=torch.Generator().manual_seed(0)).float()
    oracle = sum(
        1.0 / (60.0 + scipy_stats.rankdata(-s.numpy(), method="average", axis=1))
        for s in (dense, lexical)
    )
    assert np.allclose(reciprocal_rank_fusion(dense, lexical).numpy(), oracle, atol=1e-7)


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [4, 1, 7], [12]])
def test_neighbours_stay_inside_the_session(sizes: list[int]) -> None:
    session = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    scores = _scores(4, count=sum(sizes))
    got = add_neighbours(scores, session)
    for row in range(len(scores)):
        for i in range(sum(sizes)):
            expected = float(scores[row, i])
            for j in (i - 1, i + 1):
                if 0 <= j < sum(sizes) and session[i] == session[j]:
                    expected += 0.25 * float(scores[row, j])
            assert float(got[row, i]) == pytest.approx(expected, abs=1e-5)


def test_a_turn_takes_the_best_of_its_facts() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.2, 0.8, 0.5]])  # turns 0 and 2; facts 1, 3, 4
    turns = torch.tensor([0, 2])
    fact, source = torch.tensor([1, 3, 4, 4]), torch.tensor([0, 0, 0, 1])
    assert lift_facts(scores, turns, fact, source).tolist() == [[pytest.approx(0.9), 0.5]]
    assert lift_facts(scores, turns, fact[:0], source[:0]).tolist() == [
        [pytest.approx(0.1), pytest.approx(0.2)]
    ]
