"""Rankings and gold as tensors, and the recall of a ranking within a token budget.

A ranking is a tensor of candidate numbers, best first; gold is a padded tensor of candidate
numbers. `evaluation.metrics` computes measures from the positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem_torch.evaluation.metrics import NOT_FOUND

__all__ = ["budget_recall", "gold_positions", "gold_tensor", "rank_candidates"]


def rank_candidates(
    scores: Tensor,  # [B, N], larger is better; -inf: not retrieved
) -> Tensor:  # [B, N] int64
    """Rank candidates by descending score; ties go to the lower number, `-inf` becomes -1.

    Raises:
        ValueError: A score is NaN.
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
    """Return the position (0 = first) of each gold candidate, or `NOT_FOUND`."""
    batch, length = ranking.shape
    position = torch.full((batch, num_candidates + 1), NOT_FOUND, dtype=torch.int64)
    # Column N receives the writes of the -1 entries, so that they touch no candidate.
    slots = ranking.masked_fill(ranking < 0, num_candidates)
    steps = torch.arange(length).expand(batch, length)
    position.scatter_(1, slots, steps)
    found = position.gather(1, gold.clamp(min=0))
    return found.masked_fill(gold < 0, NOT_FOUND)


def budget_recall(
    ranking: Tensor,  # [B, K] int64, -1 = nothing retrieved there
    gold: Tensor,  # [B, G] int64, -1 = padding
    costs: Tensor,  # [N] tokens of each candidate
    budgets: Sequence[int],
) -> Tensor:  # [B, len(budgets)] float64, NaN without gold
    """Return the recall of the longest prefix of the ranking within each token budget."""
    tokens = costs.double()[ranking.clamp(min=0)].masked_fill(ranking < 0, 0.0)
    spent = tokens.cumsum(1)  # [B, K]
    fits = [(spent <= budget).sum(1) for budget in budgets]  # each [B]: length of the prefix
    positions = gold_positions(ranking, gold, len(costs))
    real = gold >= 0
    hits = torch.stack([(real & (positions < length[:, None])).sum(1) for length in fits], dim=1)
    count = real.sum(1)[:, None]
    return (hits.double() / count.clamp(min=1)).masked_fill(count == 0, torch.nan)
