"""Ranking measures of a batch of questions, in tensors.

A ranking is a tensor of candidate numbers, best first; gold is a padded tensor of candidate
numbers. Everything else follows from the position of each gold candidate in the ranking. A question
without gold has no value (NaN) and is left out of every mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "CUTOFFS",
    "MEASURES",
    "NOT_FOUND",
    "budget_recall",
    "gold_positions",
    "gold_tensor",
    "rank_candidates",
    "ranking_measures",
]

CUTOFFS: tuple[int, ...] = (5, 10, 25, 50)
"""Cut-offs k of every measure (`docs/evaluation.md` 4)."""

MEASURES: tuple[str, ...] = ("recall", "any", "complete", "ndcg")
"""Names of the measures of `ranking_measures`."""

NOT_FOUND = 1 << 40
"""Position of a gold candidate that was not retrieved: beyond every cut-off."""


def rank_candidates(
    scores: Tensor,  # [B, N], larger is better; -inf: not retrieved
) -> Tensor:  # [B, N] int64
    """Candidates by descending score; ties go to the lower number, `-inf` becomes -1.

    Raises:
        ValueError: if a score is NaN.
    """
    if bool(torch.isnan(scores).any()):
        raise ValueError("scores: expected numbers, got NaN; a system must score every candidate")
    values, order = scores.sort(dim=1, descending=True, stable=True)
    return order.masked_fill_(values == -torch.inf, -1)


def gold_tensor(gold: Sequence[Sequence[int]]) -> Tensor:  # [B, G] int64, -1 = padding
    """Pad lists of gold candidate numbers to one tensor; G is at least 1."""
    rows = [torch.tensor(sorted(set(g)), dtype=torch.int64) for g in gold]
    if not rows or max(len(row) for row in rows) == 0:
        return torch.full((len(rows), 1), -1, dtype=torch.int64)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def gold_positions(
    ranking: Tensor,  # [B, K] int64, -1 = nothing retrieved there
    gold: Tensor,  # [B, G] int64, -1 = padding
    num_candidates: int,
) -> Tensor:  # [B, G] int64
    """Position (0 = first) of each gold candidate; `NOT_FOUND` where it was not retrieved."""
    batch, length = ranking.shape
    position = torch.full((batch, num_candidates + 1), NOT_FOUND, dtype=torch.int64)
    # Column N takes the writes of the -1 entries, so that they touch no candidate.
    slots = ranking.masked_fill(ranking < 0, num_candidates)
    steps = torch.arange(length).expand(batch, length)
    position.scatter_(1, slots, steps)
    found = position.gather(1, gold.clamp(min=0))
    return found.masked_fill(gold < 0, NOT_FOUND)


def ranking_measures(
    positions: Tensor,  # [B, G] int64 as of `gold_positions`
    gold: Tensor,  # [B, G] int64, -1 = padding
    cutoffs: Sequence[int] = CUTOFFS,
) -> dict[str, Tensor]:  # each [B, len(cutoffs)] float64
    """Recall, any, complete (all gold found) and binary nDCG at each cut-off; NaN without gold.

    nDCG@k divides by the gain of min(k, gold) hits at the top (Jarvelin and Kekalainen 2002).
    """
    real = gold >= 0  # [B, G]
    count = real.sum(1)  # [B]
    depth = torch.tensor(cutoffs)  # [K]
    inside = real[:, :, None] & (positions[:, :, None] < depth)  # [B, G, K]
    hits = inside.sum(1).double()  # [B, K]

    gain = 1.0 / torch.log2(positions.double() + 2.0)  # [B, G]
    found_gain = (gain[:, :, None] * inside).sum(1)  # [B, K]
    longest = max(cutoffs)
    ladder = (1.0 / torch.log2(torch.arange(longest).double() + 2.0)).cumsum(0)
    best_hits = torch.minimum(count[:, None], depth).clamp(min=1)  # [B, K]
    best_gain = ladder[best_hits - 1]

    nothing = (count == 0)[:, None]
    measures = {
        "recall": hits / count.clamp(min=1)[:, None],
        "any": (hits > 0).double(),
        "complete": (hits == count[:, None]).double(),
        "ndcg": found_gain / best_gain,
    }
    return {name: value.masked_fill(nothing, torch.nan) for name, value in measures.items()}


def budget_recall(
    ranking: Tensor,  # [B, K] int64, -1 = nothing retrieved there
    gold: Tensor,  # [B, G] int64, -1 = padding
    costs: Tensor,  # [N] tokens of each candidate
    budgets: Sequence[int],
) -> Tensor:  # [B, len(budgets)] float64, NaN without gold
    """Recall of the longest prefix of the ranking whose tokens stay within each budget."""
    tokens = costs.double()[ranking.clamp(min=0)].masked_fill(ranking < 0, 0.0)
    spent = tokens.cumsum(1)  # [B, K]
    fits = [(spent <= budget).sum(1) for budget in budgets]  # each [B]: length of the prefix
    positions = gold_positions(ranking, gold, len(costs))
    real = gold >= 0
    hits = torch.stack([(real & (positions < length[:, None])).sum(1) for length in fits], dim=1)
    count = real.sum(1)[:, None]
    return (hits.double() / count.clamp(min=1)).masked_fill(count == 0, torch.nan)
