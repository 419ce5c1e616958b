"""What a memory is worth to a context: values for the knapsack, from the scores of a ranking."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphmem_torch.errors import InputError

__all__ = ["ValueKind", "values_from_scores"]

ValueKind = Literal["share", "rank", "score"]


def values_from_scores(
    scores: Tensor,  # [B, k]; -inf: nothing there
    *,
    kind: ValueKind = "rank",
    temperature: float = 1.5,
) -> Tensor:  # [B, k] float64 in [0, 1], or the scores where they count themselves
    """Hybrid scores as values of which a knapsack may take the sum (`mathematics.md` 6).

    A score is made to rank, and sums of scores mean nothing: two memories of a fair score are then
    worth more than the one that answers, and short ones win. What a sum should mean is the evidence
    that is expected in the context, so the value of a memory is how likely it is to be evidence:

    - `share`: softmax(scores / temperature), the memory's share of what is expected; for scores
      that are log-odds, as fitted ones are. The sum over a context is the share that it holds.
    - `rank`: 1 / rank, ranks from 1, over the sum of all: the same for scores of any scale.
    - `score`: the score itself, at least 0: ContextOS's utility. Of 512 tokens of LoCoMo it fills
      nearly all with short turns and keeps a fifth of what a top-k does.

    Args:
        scores: In any order.
        kind: As above.
        temperature: Of `share`; 1 takes the scores for log-odds as they are.

    Raises:
        InputError: A score that is NaN or +inf, a kind that there is not, a temperature of 0 or
            less.
    """
    if scores.dim() != 2:
        raise InputError(f"scores: expected [B, k], got {list(scores.shape)}; add the missing axis")
    if not temperature > 0:
        raise InputError(f"temperature: expected more than 0, got {temperature}; 1.5 is usual")
    there = scores > -torch.inf
    if bool((torch.isnan(scores) | (scores == torch.inf)).any()):
        raise InputError("scores: expected finite numbers or -inf, got others; repair the signals")
    worth = scores.double()
    if kind == "share":
        # A row without candidates would be NaN.
        return torch.softmax(worth / temperature, dim=1).where(there, 0.0)
    if kind == "rank":
        order = worth.argsort(dim=1, descending=True, stable=True)
        place = torch.arange(1, scores.shape[1] + 1, dtype=torch.float64, device=scores.device)
        value = torch.zeros_like(worth).scatter(1, order, (1.0 / place).expand_as(worth))
        value = value.where(there, 0.0)
        return value / value.sum(1, keepdim=True).clamp(min=1e-300)
    if kind == "score":
        return worth.clamp(min=0.0)
    raise InputError(f"kind: expected share, rank or score, got {kind!r}")
