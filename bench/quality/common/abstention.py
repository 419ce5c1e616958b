"""Knowing when not to answer: does a confidence separate answerable questions from others?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["REJECTION_RATES", "auroc", "refusal_at"]
REJECTION_RATES: tuple[float, ...] = (0.5, 0.75, 0.9)
"""Shares of the unanswerable questions that are to be rejected."""


def auroc(
    positive: Tensor,  # [P] confidence of answerable questions
    negative: Tensor,  # [Q] confidence of unanswerable questions
) -> float | None:
    """Area under the ROC curve: the chance that an answerable question gets the higher confidence.

    Ties count half (Mann-Whitney). None when one of the sides is empty.
    """
    if len(positive) == 0 or len(negative) == 0:
        return None
    ordered = negative.double().sort().values
    values = positive.double()
    below = torch.searchsorted(ordered, values, side="left")
    upto = torch.searchsorted(ordered, values, side="right")
    return float((below + upto).double().sum() / (2 * len(positive) * len(negative)))


def refusal_at(
    positive: Tensor,  # [P] confidence of answerable questions
    negative: Tensor,  # [Q] confidence of unanswerable questions
    rates: Sequence[float] = REJECTION_RATES,
) -> dict[str, float] | None:
    """Share of answerable questions refused, at thresholds set by the unanswerable ones.

    For each rate the threshold is the smallest confidence at or below which at least that share of
    the unanswerable questions lies; whatever is at or below it is refused. Keys are percentages.
    None when one of the sides is empty.
    """
    if len(positive) == 0 or len(negative) == 0:
        return None
    ordered = negative.double().sort().values
    refused = {}
    for rate in rates:
        threshold = ordered[max(math.ceil(rate * len(ordered)), 1) - 1]
        refused[f"{round(100 * rate)}"] = float((positive.double() <= threshold).double().mean())
    return refused
