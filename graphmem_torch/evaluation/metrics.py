"""Ranking measures of a batch of questions, in tensors.

They follow from the position of each gold candidate in the ranking. A question without gold has no
value (NaN) and is left out of every mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["CUTOFFS", "MEASURES", "NOT_FOUND", "ranking_measures"]

CUTOFFS: tuple[int, ...] = (5, 10, 25, 50)
"""Cut-offs k of every measure (`docs/evaluation.md` 4)."""

MEASURES: tuple[str, ...] = ("recall", "any", "complete", "ndcg")
"""Names of the measures of `ranking_measures`."""

NOT_FOUND = 1 << 40
"""Position of a gold candidate that was not retrieved: beyond every cut-off."""


def ranking_measures(
    positions: Tensor,  # [B, G] int64, 0 = first, `NOT_FOUND`
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
