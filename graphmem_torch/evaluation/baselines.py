"""Baselines without a graph, as functions on score tensors.

Each takes scores of B questions against N candidates and gives new ones. The table they reproduce
stands in `evaluation.md` (LoCoMo).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["add_neighbours", "fuse", "lift_facts", "reciprocal_rank_fusion", "standardise"]


def standardise(
    scores: Tensor,  # [B, N]
) -> Tensor:  # [B, N], each row of mean 0 and deviation 1; a constant row becomes 0
    """z-scores over the candidates of each question."""
    deviation, mean = torch.std_mean(scores.float(), dim=1, keepdim=True, correction=0)
    return (scores - mean) / deviation.clamp(min=1e-9)


def fuse(
    dense: Tensor,  # [B, N] cosine
    lexical: Tensor,  # [B, N] BM25
    weight: float = 0.7,
) -> Tensor:  # [B, N]
    """z(dense) + weight * z(lexical)."""
    return standardise(dense) + weight * standardise(lexical)


def reciprocal_rank_fusion(
    *systems: Tensor,  # each [B, N]
    offset: int = 60,
) -> Tensor:  # [B, N]
    """Sum of 1 / (offset + rank), ranks from 1 (Cormack, Clarke and Buettcher 2009).

    Candidates with equal scores share the mean of their ranks: all turns without a word of the
    question have BM25 0, and ranking them by their place in the conversation would favour its
    beginning.
    """
    return torch.stack([1.0 / (offset + _mean_ranks(scores)) for scores in systems]).sum(0)


def _mean_ranks(scores: Tensor) -> Tensor:  # [B, N] -> [B, N], 1 = best
    ascending = scores.sort(dim=1).values
    lower = torch.searchsorted(ascending, scores.contiguous(), side="left")
    upper = torch.searchsorted(ascending, scores.contiguous(), side="right")
    return scores.shape[1] - (lower + upper - 1) / 2.0


def add_neighbours(
    scores: Tensor,  # [B, N], candidates in the order of the conversation
    session: Tensor,  # [N] session number of each candidate
    weight: float = 0.25,
) -> Tensor:  # [B, N]
    """Each candidate's score plus `weight` of those before and after it in its session."""
    together = (session[1:] == session[:-1]).to(scores.dtype) * weight  # [N - 1]
    result = scores.clone()
    result[:, 1:] += together * scores[:, :-1]
    result[:, :-1] += together * scores[:, 1:]
    return result


def lift_facts(
    scores: Tensor,  # [B, M] scores of all atoms, facts included
    turns: Tensor,  # [N] which of the M atoms are turns
    fact: Tensor,  # [L] atom number of a fact, one entry per link
    source: Tensor,  # [L] position in `turns` of the turn it was derived from
) -> Tensor:  # [B, N]
    """Scores of the turns, each raised to the best of the facts derived from it."""
    own = scores[:, turns]
    if len(fact) == 0:
        return own
    where = source.expand(len(scores), -1)
    return own.scatter_reduce(1, where, scores[:, fact], reduce="amax", include_self=True)
