"""Curves of gold against tokens: means, what a context of equal recall costs, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.evaluation.bootstrap import bootstrap_interval
from graphmem_torch.evaluation.tally import BUDGETS

__all__ = ["CURVE", "compare_curves", "gold_share", "tokens_for"]

CURVE: tuple[int, ...] = (
    64, 91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096,
)  # fmt: skip
"""Token budgets of a curve: two to a doubling."""

_RESAMPLES = 2000
_LEVEL = 0.95


def gold_share(
    chosen: Tensor,  # [B, K, N] bool
    gold: Tensor,  # [B, G] candidates, -1 = padding
) -> Tensor:  # [B, K] float64, NaN without gold
    """Share of each question's gold that is among what was chosen."""
    real = gold >= 0
    places = gold.clamp(min=0)[:, None].expand(-1, chosen.shape[1], -1)
    found = (chosen.gather(2, places) & real[:, None]).sum(2).double()
    count = real.sum(1, keepdim=True)
    return (found / count.clamp(min=1)).masked_fill(count == 0, torch.nan)


def tokens_for(
    recall: Tensor,  # [R, K] mean recall at each budget, R resamples
    budgets: Sequence[int],
    target: Tensor,  # [R]
) -> Tensor:  # [R] tokens, inf where the curve does not get there
    """Tokens at which a curve reaches a recall, between budgets on a logarithmic scale."""
    best = recall.cummax(1).values
    scale = torch.tensor(budgets, dtype=torch.float64).log2()
    enough = best >= target[:, None] - 1e-12
    place = enough.double().argmax(1)
    before = (place - 1).clamp(min=0)
    high, low = best.gather(1, place[:, None])[:, 0], best.gather(1, before[:, None])[:, 0]
    part = ((target - low) / (high - low).clamp(min=1e-12)).clamp(0.0, 1.0)
    part = torch.where(place == 0, 1.0, part)
    tokens = (scale[before] + part * (scale[place] - scale[before])).exp2()
    return tokens.masked_fill(~enough.any(1), torch.inf)


def compare_curves(
    curves: Mapping[str, Tensor],  # each [n, len(CURVE)] recall of every question
    *,
    subject: str,
    seed: int,
) -> dict[str, Any]:
    """Mean recall of each system at each budget, and what `subject` needs for the recall of others.

    `difference` is the recall of the subject minus that of another, resampled in pairs;
    `tokens_needed` says, for a budget of another system, its recall, the tokens at which the
    subject reaches it, and their ratio with its interval, from the same resamples of questions for
    both curves. None where the curve does not reach it.
    """
    own = curves[subject]
    report: dict[str, Any] = {}
    drawn = _resamples(len(own), seed)
    for name, curve in curves.items():
        figures: dict[str, Any] = {
            "recall": dict(zip(map(str, CURVE), curve.mean(0).tolist(), strict=True)),
            "ci": _ends(curve, seed),
        }
        if name != subject:
            figures["difference"] = _ends(own - curve, seed)
            figures["tokens_needed"] = {
                str(budget): _needed(own, curve, CURVE.index(budget), drawn) for budget in BUDGETS
            }
        report[name] = figures
    return report


def _needed(own: Tensor, other: Tensor, column: int, drawn: Tensor) -> dict[str, Any]:
    budget = CURVE[column]
    target = other[:, column].double()
    tokens = float(tokens_for(own.double().mean(0)[None], CURVE, target.mean()[None]))
    ratios = tokens_for(drawn @ own.double(), CURVE, drawn @ target) / budget
    ends = torch.tensor([(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], dtype=torch.float64)
    interval = ratios.quantile(ends, interpolation="nearest").tolist()
    reached = tokens != torch.inf
    return {
        "recall": float(target.mean()),
        "tokens": tokens if reached else None,
        "ratio": tokens / budget if reached else None,
        "ci": [end if end != torch.inf else None for end in interval],
    }


def _resamples(count: int, seed: int) -> Tensor:  # [_RESAMPLES, n], rows sum to 1
    drawn = torch.randint(count, (_RESAMPLES, count), generator=torch.Generator().manual_seed(seed))
    weights = torch.zeros(_RESAMPLES, count, dtype=torch.float64)
    return weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64)) / count


def _ends(values: Tensor, seed: int) -> dict[str, list[float] | None]:
    """[mean, low, high] at each budget."""
    found = bootstrap_interval(values, generator=torch.Generator().manual_seed(seed))
    return {
        str(budget): None if interval is None else list(interval)
        for budget, interval in zip(CURVE, found, strict=True)
    }
