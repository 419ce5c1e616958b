"""Hits by time: order the hits that fit a question by time, earliest or latest first.

An order of the query plan (`docs/mathematics.md` 5.7).
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.succession import term_weights

__all__ = ["order_by_time"]

_SAYS = 0.5  # minimum share of a question's idf in the best hit to select by words
_ALIKE = 0.75  # share of the best hit's idf from which a hit fits too


def order_by_time(
    memory: MemoryTensors,
    rows: Tensor,  # [B, K] int64, -1 = none
    scores: Tensor,  # [B, K]
    tier: Tensor,  # [B, K]
    when: Tensor,  # [A] seconds, NaN = unknown
    terms: Tensor,  # [B, W] int64, -1 = padding
    unknown: Tensor,  # [B] int64
    way: Tensor,  # [B], 1: the first in front, -1: the latest
) -> Tensor:  # [B, K] int64
    """Return the places of hits, with those that fit moved to the front by time in each tier.

    A hit fits if it has three quarters of the idf of question terms that the best hit has. If the
    best hit has less than half of the question's idf, the hits before the widest score gap fit. A
    fitting hit of unknown time follows the other fitting ones.

    Args:
        memory: A atoms.
        rows: Hits of B questions, best first.
        scores: Scores of the hits.
        tier: Tiers of the hits, ascending.
        when: Time of every atom.
        terms: Terms of the questions, without words of time and order.
        unknown: Number of question terms that no atom has; each weighs as the heaviest.
        way: Direction for each question.
    """
    there = rows >= 0
    nearest = there & (tier == tier[:, :1])
    weight, idf = term_weights(memory, terms)
    has = weight.gather(1, rows.clamp(min=0)).masked_fill(~there, 0.0)
    best = has.masked_fill(~nearest, 0.0).amax(1, keepdim=True)
    total = (idf.sum(1) + unknown * idf.amax(1))[:, None]
    fits = torch.where(best >= _SAYS * total, has >= _ALIKE * best, _before_gap(scores, nearest))
    key = (when[rows.clamp(min=0)] * way[:, None]).nan_to_num(nan=torch.inf)
    fits &= there
    order = key.masked_fill(~fits, torch.inf).argsort(dim=1, stable=True)
    for column in (~fits, tier, ~there):
        order = order.gather(1, column.long().gather(1, order).argsort(dim=1, stable=True))
    return order


def _before_gap(scores: Tensor, nearest: Tensor) -> Tensor:  # [B, K], [B, K] bool -> [B, K] bool
    """Return the hits before the widest gap between consecutive scores of the first tier."""
    own = scores.masked_fill(~nearest, torch.nan)
    fall = (own[:, :-1] - own[:, 1:]).nan_to_num(nan=-torch.inf)
    place = torch.arange(scores.shape[1], device=scores.device)
    last = fall.argmax(1, keepdim=True) if fall.shape[1] else place[:1].expand(len(scores), 1)
    return nearest & (place <= last)
