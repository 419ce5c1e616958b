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

MEASURES: tuple[str, ...] = ("recall", "any", "complete", "ndcg", "map", "mrr")
"""Names of the measures of `ranking_measures`."""

NOT_FOUND = 1 << 40
"""Position of a gold candidate that was not retrieved: beyond every cut-off."""


def ranking_measures(
    positions: Tensor,  # [B, G] int64, 0 = first, `NOT_FOUND`
    gold: Tensor,  # [B, G] int64, -1 = padding
    cutoffs: Sequence[int] = CUTOFFS,
    *,
    grades: Tensor | None = None,  # [B, G], > 0 where there is gold
) -> dict[str, Tensor]:  # each [B, len(cutoffs)] float64
    """Return the `MEASURES` at each cut-off, as defined by trec_eval; NaN without gold.

    - Recall, any, and complete (all gold found).
    - nDCG: linear gains over the best order of the gold (Jarvelin and Kekalainen 2002).
    - `map`: average precision, the precision at each gold found, over all gold.
    - `mrr`: reciprocal rank of the first gold.

    Args:
        positions: Position of each gold candidate.
        gold: Gold candidates.
        cutoffs: K cut-offs.
        grades: Relevance of each gold candidate; all equal by default.
    """
    real = gold >= 0  # [B, G]
    count = real.sum(1)  # [B]
    depth = torch.tensor(cutoffs)  # [K]
    inside = real[:, :, None] & (positions[:, :, None] < depth)  # [B, G, K]
    hits = inside.sum(1).double()  # [B, K]
    all_gold = count.clamp(min=1)[:, None]  # [B, 1]

    relevance = real.double() if grades is None else grades.double().masked_fill(~real, 0.0)
    gain = relevance / torch.log2(positions.double() + 2.0)  # [B, G]
    found_gain = (gain[:, :, None] * inside).sum(1)  # [B, K]
    places = torch.arange(gold.shape[1]).double()  # [G]
    best = relevance.sort(dim=1, descending=True).values
    ladder = (best / torch.log2(places + 2.0)).cumsum(1)  # [B, G]
    best_gain = ladder[:, depth.clamp(max=gold.shape[1]) - 1]  # [B, K]

    order = (
        positions.masked_fill(~real, NOT_FOUND).sort(dim=1).values.double()[:, :, None]
    )  # [B, G, 1]
    precision = (places[:, None] + 1.0) / (order + 1.0)  # [B, G, 1]
    first = order[:, 0]  # [B, 1]

    nothing = (count == 0)[:, None]
    measures = {
        "recall": hits / all_gold,
        "any": (hits > 0).double(),
        "complete": (hits == count[:, None]).double(),
        "ndcg": found_gain / best_gain,
        "map": (precision * (order < depth)).sum(1) / all_gold,
        "mrr": (first < depth).double() / (first + 1.0),
    }
    return {name: value.masked_fill(nothing, torch.nan) for name, value in measures.items()}
