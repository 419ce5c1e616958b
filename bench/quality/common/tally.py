"""What the judge notes of each system, question by question, and the figures it makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.evaluation.bootstrap import bootstrap_interval
from graphmem_torch.evaluation.metrics import (
    CUTOFFS,
    budget_recall,
    gold_positions,
    group_masks,
    grouped_means,
    ranking_measures,
)

from .abstention import auroc, refusal_at
from .measure import percentiles

__all__ = ["ADVERSARIAL", "BUDGETS", "MEASURES", "Tally", "summarise"]
BUDGETS: tuple[int, ...] = (512, 1024, 2048)
"""Token budgets of `budget_recall` (`docs/evaluation.md` 4)."""

MEASURES: tuple[str, ...] = ("recall", "any", "complete", "ndcg")

ADVERSARIAL = 5
"""The category whose questions have no answer in the conversation."""


@dataclass(slots=True)
class Tally:
    """One system over all conversations; the lists have one entry per conversation.

    Attributes:
        measures: Each [B, len(CUTOFFS)] per measure.
        budget: [B, len(BUDGETS)].
        confidence: [B], for systems that have one.
        known: [B] bool, whether the gate as it is set was open.
        seconds: Latency of single questions.
        build_seconds: Building what the system searches, summed over the conversations.
        peak_mb: Largest peak of resident memory while the system answered.
    """

    measures: dict[str, list[Tensor]] = field(default_factory=lambda: {m: [] for m in MEASURES})
    budget: list[Tensor] = field(default_factory=list)
    confidence: list[Tensor] = field(default_factory=list)
    known: list[Tensor] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    build_seconds: float = 0.0
    peak_mb: float | None = None

    def note(
        self,
        ranking: Tensor,  # [B, K] candidate numbers, -1 = nothing retrieved there
        gold: Tensor,  # [B, G], -1 = padding
        costs: Tensor,  # [N] tokens of each candidate
        *,
        confidence: Tensor | None = None,  # [B]
        known: Tensor | None = None,  # [B] bool
    ) -> None:
        """Take in the rankings of one conversation's questions."""
        positions = gold_positions(ranking, gold, len(costs))
        for name, value in ranking_measures(positions, gold).items():
            self.measures[name].append(value)
        self.budget.append(budget_recall(ranking, gold, costs, BUDGETS))
        if confidence is not None:
            self.confidence.append(confidence)
        if known is not None:
            self.known.append(known)

    def note_peak(self, megabytes: float | None) -> None:
        """Keep the largest peak."""
        if megabytes is not None:
            self.peak_mb = max(megabytes, self.peak_mb or 0.0)


def summarise(
    tallies: Mapping[str, Tally],
    categories: Tensor,  # [n] of all questions, in the order of the tallies
    *,
    subject: str,
    seed: int,
    resamples: int = 2000,
) -> dict[str, dict[str, Any]]:
    """The figures of every system, as the evaluation's JSON has them.

    Intervals: `ci.recall[group][k]` is [low, high] of each system's recall, and for `subject`
    `ci.difference[system][group][k]` is [mean, low, high] of its recall minus that system's,
    resampled in pairs.

    Args:
        tallies: By system name.
        categories: Question categories.
        subject: The system that is compared with all others.
        seed: Of the bootstrap; each table starts from it anew, so that adding a system changes no
            other's interval.
        resamples: Bootstrap resamples.
    """
    recalls = {name: torch.cat(tally.measures["recall"]) for name, tally in tallies.items()}
    systems = {}
    for name, tally in tallies.items():
        table = _intervals(recalls[name], categories, seed, resamples)
        intervals: dict[str, Any] = {
            "recall": {
                group: {k: None if ends is None else ends[1:] for k, ends in row.items()}
                for group, row in table.items()
            }
        }
        if name == subject:
            intervals["difference"] = {
                other: _intervals(recalls[name] - theirs, categories, seed, resamples)
                for other, theirs in recalls.items()
                if other != subject
            }
        systems[name] = _figures(tally, categories) | {"ci": intervals}
    return systems


def _figures(tally: Tally, categories: Tensor) -> dict[str, Any]:
    figures: dict[str, Any] = {
        name: grouped_means(torch.cat(tally.measures[name]), categories, CUTOFFS)
        for name in MEASURES
    }
    budget = grouped_means(torch.cat(tally.budget), categories, BUDGETS)
    figures |= {
        "latency_ms": percentiles(tally.seconds),
        "build_s": tally.build_seconds,
        "peak_mb": tally.peak_mb,
        "gate_auroc": None,
        "refusal": None,
        "budget_recall": budget["1-4"],
    }
    if tally.confidence:
        confidence = torch.cat(tally.confidence)
        adversarial = categories == ADVERSARIAL
        figures["gate_auroc"] = auroc(confidence[~adversarial], confidence[adversarial])
        figures["refusal"] = refusal_at(confidence[~adversarial], confidence[adversarial])
        if tally.known and figures["refusal"] is not None:
            closed = (~torch.cat(tally.known)).double()
            figures["refusal"] |= {
                "gate_answerable": float(closed[~adversarial].mean()),
                "gate_adversarial": float(closed[adversarial].mean()),
            }
    return figures


def _intervals(
    values: Tensor,  # [n, len(CUTOFFS)]
    categories: Tensor,  # [n]
    seed: int,
    resamples: int,
) -> dict[str, dict[str, list[float] | None]]:
    """[mean, low, high] of each column in each group."""
    table = {}
    for group, mask in group_masks(categories).items():
        found = bootstrap_interval(
            values[mask], generator=torch.Generator().manual_seed(seed), resamples=resamples
        )
        table[group] = {
            str(k): None if interval is None else list(interval)
            for k, interval in zip(CUTOFFS, found, strict=True)
        }
    return table
