"""Scores of each system, one a question, and the figures computed from them; abstention."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.metrics import CUTOFFS, MEASURES, ranking_measures

from .measure import percentiles
from .rankings import budget_recall, gold_positions

__all__ = [
    "ADVERSARIAL",
    "BUDGETS",
    "GROUPS",
    "REJECTION_RATES",
    "Scores",
    "auroc",
    "difference_table",
    "gain",
    "group_masks",
    "grouped_means",
    "mean_share",
    "measured",
    "percent",
    "refusal_at",
    "share",
    "summarise",
]
BUDGETS: tuple[int, ...] = (512, 1024, 2048)
"""Token budgets of `budget_recall` (`docs/evaluation.md` 4)."""

GROUPS: Mapping[str, tuple[int, ...]] = {
    "1-4": (1, 2, 3, 4),
    "all": (1, 2, 3, 4, 5),
    "1": (1,),
    "2": (2,),
    "3": (3,),
    "4": (4,),
    "5": (5,),
}
"""LoCoMo's categories: 1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial."""

ADVERSARIAL = 5
"""Category of questions without an answer in the conversation."""

REJECTION_RATES: tuple[float, ...] = (0.5, 0.75, 0.9)
"""Shares of the unanswerable questions to reject."""


@dataclass(slots=True)
class Scores:
    """Scores of one system over all conversations; the lists have one entry per conversation.

    Attributes:
        cutoffs: K numbers of hits of the measures.
        measures: Each [B, K] per measure.
        budget: [B, len(BUDGETS)], if candidates have costs.
        confidence: [B], for systems with a gate.
        known: [B] bool, whether the configured gate was open.
        seconds: Latency of single questions.
        build_seconds: Seconds to build what the system searches, summed over the conversations.
        peak_mb: Largest peak of resident memory while the system answered.
    """

    cutoffs: tuple[int, ...] = CUTOFFS
    measures: dict[str, list[Tensor]] = field(default_factory=lambda: {m: [] for m in MEASURES})
    budget: list[Tensor] = field(default_factory=list)
    confidence: list[Tensor] = field(default_factory=list)
    known: list[Tensor] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    build_seconds: float = 0.0
    peak_mb: float | None = None

    def add(
        self,
        ranking: Tensor,  # [B, K] candidate numbers, -1 = nothing retrieved there
        gold: Tensor,  # [B, G], -1 = padding
        costs: Tensor | None = None,  # [N] tokens of each candidate
        *,
        grades: Tensor | None = None,  # [B, G] of the gold; all alike by default
        confidence: Tensor | None = None,  # [B]
        known: Tensor | None = None,  # [B] bool
    ) -> None:
        """Add the rankings of one conversation's questions."""
        highest = max((int(part.max()) for part in (ranking, gold) if part.numel()), default=-1)
        positions = gold_positions(ranking, gold, highest + 1)
        for name, value in ranking_measures(positions, gold, self.cutoffs, grades=grades).items():
            self.measures[name].append(value)
        if costs is not None:
            self.budget.append(budget_recall(ranking, gold, costs, BUDGETS))
        if confidence is not None:
            self.confidence.append(confidence)
        if known is not None:
            self.known.append(known)

    def add_peak(self, megabytes: float | None) -> None:
        """Keep the largest peak."""
        if megabytes is not None:
            self.peak_mb = max(megabytes, self.peak_mb or 0.0)


def summarise(
    scores: Mapping[str, Scores],
    categories: Tensor,  # [n] of all questions, in the order of the scores
    *,
    subjects: Collection[str],
    seed: int,
    resamples: int = 2000,
    groups: Mapping[str, tuple[int, ...]] = GROUPS,
    measure: str = "recall",
) -> dict[str, dict[str, Any]]:
    """Return the figures of every system for the report: `measured`, and its costs.

    The recall within token budgets is that of the first group.
    """
    figures = measured(
        scores,
        categories,
        subjects=subjects,
        seed=seed,
        resamples=resamples,
        groups=groups,
        measure=measure,
    )
    first = group_masks(categories, groups)[next(iter(groups))]
    return {name: figures[name] | _costs(own, categories, first) for name, own in scores.items()}


def measured(
    scores: Mapping[str, Scores],
    categories: Tensor,  # [n] of all questions, in the order of the scores
    *,
    subjects: Collection[str],
    seed: int,
    resamples: int = 2000,
    groups: Mapping[str, tuple[int, ...]] = GROUPS,
    measure: str = "recall",
) -> dict[str, dict[str, Any]]:
    """Return the measures of every system by group and cut-off, with intervals.

    Intervals of one measure: `ci.recall[group][k]` is [low, high] of each system's recall, and for
    each of `subjects` `ci.difference[system][group][k]` is [mean, low, high] of its recall minus
    that system's, resampled in pairs.

    Args:
        scores: Scores by system name.
        categories: Question categories.
        subjects: Systems that are compared with all others.
        seed: Seed of the bootstrap; each table restarts it, so that adding a system changes no
            other's interval.
        resamples: Bootstrap resamples.
        groups: Categories by name of a group.
        measure: Measure of the intervals, in place of recall.
    """
    asked = {name: torch.cat(own.measures[measure]) for name, own in scores.items()}
    masks = group_masks(categories, groups)
    drawn = {"seed": seed, "resamples": resamples}
    systems = {}
    for name, own in scores.items():
        tables = {
            group: interval_table(asked[name][mask], own.cutoffs, **drawn)
            for group, mask in masks.items()
        }
        intervals: dict[str, Any] = {
            measure: {
                group: {k: None if ends is None else ends[1:] for k, ends in table.items()}
                for group, table in tables.items()
            }
        }
        if name in subjects:
            gains = {
                group: difference_table(
                    {other: values[mask] for other, values in asked.items()},
                    name,
                    own.cutoffs,
                    **drawn,
                )
                for group, mask in masks.items()
            }
            intervals["difference"] = {
                other: {group: table[other] for group, table in gains.items()}
                for other in asked
                if other != name
            }
        systems[name] = {
            each: grouped_means(torch.cat(values), categories, own.cutoffs, groups)
            for each, values in own.measures.items()
        } | {"ci": intervals}
    return systems


def _costs(
    own: Scores,
    categories: Tensor,  # [n]
    first: Tensor,  # [n] bool
) -> dict[str, Any]:
    """Return a system's time, memory and refusals, and its recall within token budgets."""
    figures: dict[str, Any] = {
        "latency_ms": percentiles(own.seconds),
        "build_s": own.build_seconds,
        "peak_mb": own.peak_mb,
        "gate_auroc": None,
        "refusal": None,
        "budget_recall": None,
    }
    if own.budget:
        figures["budget_recall"] = _means(torch.cat(own.budget)[first], BUDGETS)
    if own.confidence:
        confidence = torch.cat(own.confidence)
        adversarial = categories == ADVERSARIAL
        figures["gate_auroc"] = auroc(confidence[~adversarial], confidence[adversarial])
        figures["refusal"] = refusal_at(confidence[~adversarial], confidence[adversarial])
        if own.known and figures["refusal"] is not None:
            closed = (~torch.cat(own.known)).double()
            figures["refusal"] |= {
                "gate_answerable": float(closed[~adversarial].mean()),
                "gate_adversarial": float(closed[adversarial].mean()),
            }
    return figures


def group_masks(
    categories: Tensor,  # [B] int64
    groups: Mapping[str, tuple[int, ...]] = GROUPS,
) -> dict[str, Tensor]:  # each [B] bool
    """Return which questions belong to each group."""
    return {
        name: torch.isin(categories, torch.tensor(members, dtype=torch.int64))
        for name, members in groups.items()
    }


def grouped_means(
    values: Tensor,  # [B, K] float64, NaN = no value
    categories: Tensor,  # [B] int64
    keys: Sequence[int],  # names of the K columns
    groups: Mapping[str, tuple[int, ...]] = GROUPS,
) -> dict[str, dict[str, float | None]]:
    """Return means over the questions with a value, per group and column; None without values."""
    masks = group_masks(categories, groups)
    return {group: _means(values[mask], keys) for group, mask in masks.items()}


def _means(values: Tensor, keys: Sequence[int]) -> dict[str, float | None]:
    """Return the mean of each column over the rows with a value; None without values."""
    means = values.nanmean(0).tolist() if len(values) else [float("nan")] * len(keys)
    return {str(key): None if mean != mean else mean for key, mean in zip(keys, means, strict=True)}


def difference_table(
    values: Mapping[str, Tensor],  # each [n, K]
    subject: str,
    names: Sequence[object],  # [K]
    *,
    seed: int,
    resamples: int = 2000,
) -> dict[str, dict[str, list[float] | None]]:
    """Return the gain of `subject` over each other system, by column, resampled in pairs."""
    return {
        name: interval_table(values[subject] - value, names, seed=seed, resamples=resamples)
        for name, value in values.items()
        if name != subject
    }


def auroc(
    positive: Tensor,  # [P] confidence of answerable questions
    negative: Tensor,  # [Q] confidence of unanswerable questions
) -> float | None:
    """Return the AUROC: the chance that an answerable question gets the higher confidence.

    Ties count half (Mann-Whitney). None if one of the sides is empty.
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
    """Return the refused share of answerable questions, at thresholds set by the unanswerable.

    For each rate the threshold is the smallest confidence at or below which at least that share of
    the unanswerable questions lies; questions at or below it are refused. Keys are percentages.
    None if one of the sides is empty.
    """
    if len(positive) == 0 or len(negative) == 0:
        return None
    ordered = negative.double().sort().values
    refused = {}
    for rate in rates:
        threshold = ordered[max(math.ceil(rate * len(ordered)), 1) - 1]
        refused[f"{round(100 * rate)}"] = float((positive.double() <= threshold).double().mean())
    return refused


def percent(value: float | None) -> str:
    """Return a share in percent; a dash for None."""
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def share(value: Sequence[float] | None) -> str:
    """Return a mean in percent with the ends of its interval; a dash for none."""
    if value is None:
        return "-"
    mean, low, high = map(percent, value)
    return f"{mean} [{low}, {high}]"


def mean_share(value: Sequence[float] | None) -> str:
    """Return the mean of an interval in percent; a dash for none."""
    return percent(None if value is None else value[0])


def gain(value: Sequence[float] | None) -> str:
    """Return a difference with the ends of its interval, in points; empty for None."""
    if value is None:
        return ""
    mean, low, high = (100 * each for each in value)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
