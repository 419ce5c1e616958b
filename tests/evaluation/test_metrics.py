"""Ranking measures against brute force and scikit-learn."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.evaluation.metrics import CUTOFFS, NOT_FOUND, ranking_measures
from graphmem_torch.quality.common.rankings import (
    budget_recall,
    gold_positions,
    gold_tensor,
    rank_candidates,
)


def _case(seed: int, batch: int = 23, count: int = 61) -> tuple[torch.Tensor, list[list[int]]]:
    chance = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(batch, count, generator=generator)
    gold = [chance.sample(range(count), chance.choice([0, 1, 1, 2, 5, 12])) for _ in range(batch)]
    return scores, gold


def test_rank_candidates_gives_ties_to_the_lower_number_and_drops_minus_infinity() -> None:
    scores = torch.tensor([[1.0, 3.0, -torch.inf, 3.0, 1.0]])
    assert rank_candidates(scores).tolist() == [[1, 3, 0, 4, -1]]


def test_rank_candidates_refuses_nan() -> None:
    with pytest.raises(ValueError, match="got NaN"):
        rank_candidates(torch.tensor([[1.0, torch.nan]]))


@pytest.mark.parametrize("seed", range(5))
def test_ranking_measures_match_sets(seed: int) -> None:
    scores, gold = _case(seed)
    ranking = rank_candidates(scores)
    padded = gold_tensor(gold)
    measures = ranking_measures(gold_positions(ranking, padded, scores.shape[1]), padded)
    for row, wanted in enumerate(gold):
        order = np.argsort(-scores[row].numpy(), kind="stable").tolist()
        for column, k in enumerate(CUTOFFS):
            got = {name: float(value[row, column]) for name, value in measures.items()}
            if not wanted:
                assert all(math.isnan(value) for value in got.values())
                continue
            hits = set(order[:k]) & set(wanted)
            assert got["recall"] == pytest.approx(len(hits) / len(wanted))
            assert got["any"] == float(bool(hits))
            assert got["complete"] == float(hits == set(wanted))


@pytest.mark.parametrize("seed", range(3))
def test_ndcg_matches_scikit_learn(seed: int) -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    scores, gold = _case(seed)
    padded = gold_tensor(gold)
    positions = gold_positions(rank_candidates(scores), padded, scores.shape[1])
    ours = ranking_measures(positions, padded)["ndcg"]
    for row, wanted in enumerate(gold):
        if not wanted:
            continue
        relevance = np.zeros((1, scores.shape[1]))
        relevance[0, wanted] = 1.0
        for column, k in enumerate(CUTOFFS):
            oracle = sklearn_metrics.ndcg_score(relevance, scores[row : row + 1].numpy(), k=k)
            assert float(ours[row, column]) == pytest.approx(oracle, abs=1e-9)


def _trec(ranking: list[int], grades: dict[int, float], k: int) -> dict[str, float]:
    """Return trec_eval's output for a ranking: recall_k, ndcg_cut_k, map_cut_k, recip_rank of k."""
    gain = dcg = precisions = found = reciprocal = 0.0
    for place, name in enumerate(ranking[:k], start=1):
        gain = grades.get(name, 0.0)
        dcg += gain / math.log2(place + 1)
        if gain > 0:
            found += 1
            precisions += found / place
            reciprocal = reciprocal or 1 / place
    ideal = sorted(grades.values(), reverse=True)[:k]
    best = sum(gain / math.log2(place + 1) for place, gain in enumerate(ideal, start=1))
    total = len(grades)
    return {
        "recall": found / total,
        "ndcg": dcg / best,
        "map": precisions / total,
        "mrr": reciprocal,
    }


@pytest.mark.parametrize("seed", range(3))
def test_graded_measures_match_trec_eval_and_scikit_learn(seed: int) -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    chance = random.Random(seed)
    scores, gold = _case(seed)
    ranking = rank_candidates(scores)[:, :40]  # some of the gold is not retrieved
    padded = gold_tensor(gold)
    grades = torch.zeros(padded.shape, dtype=torch.float64)
    wanted: list[dict[int, float]] = []
    for row, names in enumerate(padded.tolist()):
        wanted.append({name: chance.choice([1.0, 2.0, 3.0]) for name in names if name >= 0})
        for place, name in enumerate(names):
            grades[row, place] = wanted[row].get(name, 7.0)  # a grade of padding counts nothing
    cutoffs = (1, 3, 10, 100)
    positions = gold_positions(ranking, padded, scores.shape[1])
    got = ranking_measures(positions, padded, cutoffs, grades=grades)
    for row, relevant in enumerate(wanted):
        for column, k in enumerate(cutoffs):
            values = {name: float(value[row, column]) for name, value in got.items()}
            if not relevant:
                assert all(math.isnan(value) for value in values.values())
                continue
            for name, value in _trec(ranking[row].tolist(), relevant, k).items():
                assert values[name] == pytest.approx(value, abs=1e-12), name
            if k <= 40:
                truth = np.zeros((1, scores.shape[1]))
                truth[0, list(relevant)] = list(relevant.values())
                oracle = sklearn_metrics.ndcg_score(truth, scores[row : row + 1].numpy(), k=k)
                assert values["ndcg"] == pytest.approx(oracle, abs=1e-9)


def test_gold_positions_of_what_was_not_retrieved() -> None:
    ranking = torch.tensor([[4, 2, -1, -1]])
    padded = gold_tensor([[2, 7]])
    positions = gold_positions(ranking, padded, 60)
    assert positions.tolist() == [[1, NOT_FOUND]]
    assert ranking_measures(positions, padded)["recall"].tolist() == [[0.5] * len(CUTOFFS)]


def test_ranking_measures_of_a_store_smaller_than_the_cutoff() -> None:
    padded = gold_tensor([[0, 1]])
    positions = gold_positions(torch.tensor([[0]]), padded, 2)
    assert ranking_measures(positions, padded)["complete"].tolist() == [[0.0] * len(CUTOFFS)]


def test_gold_tensor_without_gold() -> None:
    padded = gold_tensor([[], []])
    positions = gold_positions(torch.tensor([[0, 1], [1, 0]]), padded, 2)
    assert bool(torch.isnan(ranking_measures(positions, padded)["recall"]).all())


@given(st.integers(0, 10_000), st.lists(st.integers(1, 200), min_size=1, max_size=4))
def test_budget_recall_matches_a_loop(seed: int, budgets: list[int]) -> None:
    scores, gold = _case(seed, batch=6, count=20)
    costs = torch.randint(1, 40, (20,), generator=torch.Generator().manual_seed(seed))
    ranking = rank_candidates(scores)
    got = budget_recall(ranking, gold_tensor(gold), costs, budgets)
    for row, wanted in enumerate(gold):
        for column, budget in enumerate(budgets):
            if not wanted:
                assert math.isnan(float(got[row, column]))
                continue
            spent, kept = 0, set()
            for candidate in ranking[row].tolist():
                spent += int(costs[candidate])
                if spent > budget:
                    break
                kept.add(candidate)
            assert float(got[row, column]) == pytest.approx(len(kept & set(wanted)) / len(wanted))
