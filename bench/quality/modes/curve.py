"""Recall against cost of mode retrieval on conversations: every rule, assignment and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphmem_torch.config import ModesConfig
from graphmem_torch.evaluation.bootstrap import mean_interval
from graphmem_torch.evaluation.metrics import CUTOFFS, ranking_measures
from graphmem_torch.index.buffers import modes_by
from graphmem_torch.modes import Modes, search_modes
from graphmem_torch.progress import Progress

from ..common.measure import interleaved_medians
from ..common.rankings import gold_positions
from .grid import ASSIGNMENTS, PER_MODE, RULES, Setting, depths, index_bytes, partition
from .search import Found, agreement, by_modes, by_typical, flat

__all__ = [
    "EXACT",
    "TOLERANCE",
    "LeftOut",
    "Point",
    "SearchTask",
    "cheapest",
    "figures",
    "joined",
    "leave_one_out",
    "measure_curves",
    "measured",
    "pareto_front",
]
T = TypeVar("T")

TOLERANCE = 0.01
"""Recall that a recommended setting may lose to exact search: one point."""


def pareto_front(points: Mapping[T, tuple[float, float]]) -> list[T]:
    """Return the points that no other one beats in quality (more) and cost (less), cheapest first.

    Args:
        points: Quality and cost of each.
    """
    front: list[T] = []
    best = -float("inf")
    for point in sorted(points, key=lambda p: (points[p][1], -points[p][0])):
        if points[point][0] > best:
            front.append(point)
            best = points[point][0]
    return front


def cheapest(
    points: Mapping[T, tuple[float, float]],
    reference: float,
    *,
    tolerance: float = TOLERANCE,
) -> T:
    """Return the cheapest point whose quality is at least `reference - tolerance`.

    Without one, the point of best quality. Ties go to the cheaper, then to the better, then to the
    first.

    Args:
        points: Quality and cost of each; at least one.
        reference: Quality of exact search.
        tolerance: Acceptable loss of quality.
    """
    # Sums of the same terms in another order must not decide.
    enough = [p for p in points if points[p][0] >= reference - tolerance - 1e-9]
    if not enough:
        return max(points, key=lambda p: (points[p][0], -points[p][1]))
    return min(enough, key=lambda p: (points[p][1], -points[p][0]))


@dataclass(frozen=True)
class LeftOut:
    """Choices of a rule for groups that it does not see.

    Attributes:
        chosen: Setting chosen on all other groups, for each group.
        quality: [n] quality of these settings on the questions of their own group.
        cost: [n] their cost.
    """

    chosen: Sequence[object]
    quality: Tensor
    cost: Tensor


def leave_one_out(
    quality: Mapping[T, Tensor],  # each [n]
    cost: Mapping[T, Tensor],  # each [n]
    reference: Tensor,  # [n]
    group: Tensor,  # [n] integers from 0
) -> LeftOut | None:
    """Choose with `cheapest` for each group on the others; None for a single group.

    Args:
        quality: Quality of every question under each setting.
        cost: Cost of every question under each setting.
        reference: Quality of the exact search.
        group: Conversation of each question.
    """
    numbers = group.unique().tolist()
    if len(numbers) < 2:
        return None
    reached, spent, chosen = torch.empty_like(reference), torch.empty_like(reference), []
    for number in numbers:
        rest, own = group != number, group == number
        points = {
            name: (float(value[rest].mean()), float(cost[name][rest].mean()))
            for name, value in quality.items()
        }
        best = cheapest(points, float(reference[rest].mean()))
        chosen.append(best)
        reached[own], spent[own] = quality[best][own], cost[best][own]
    return LeftOut(chosen, reached, spent)


EXACT = 10
"""Number of best hits of exact search that `agreement` compares."""


@dataclass(frozen=True, eq=False)
class SearchTask:
    """Turns of one conversation, and its answerable questions.

    Attributes:
        vectors: [T, d] unit rows.
        queries: [B, d] unit rows.
        gold: [B, G] answering turns of each question, -1 = padding.
        costs: [T] tokens of each turn.
    """

    vectors: Tensor
    queries: Tensor
    gold: Tensor
    costs: Tensor

    @cached_property
    def exact(self) -> Tensor:  # [B, 10]
        """Return the result of exact search."""
        return flat(self.vectors, self.queries, EXACT).ranking


@dataclass(frozen=True, eq=False)
class Point:
    """One setting on all questions, conversation by conversation in order."""

    recall: Tensor  # [n, len(CUTOFFS)]
    agreement: Tensor  # [n]
    read: Tensor  # [n]
    share: Tensor  # [n] of the rows of its conversation
    tokens: Tensor  # [n] of the first ten


def measured(field: SearchTask, found: Found) -> Point:
    """Return quality and cost of a search of one conversation."""
    positions = gold_positions(found.ranking, field.gold, len(field.vectors))
    first = found.ranking[:, :EXACT]
    tokens = field.costs.double()[first.clamp(min=0)].masked_fill(first < 0, 0.0).sum(1)
    return Point(
        ranking_measures(positions, field.gold)["recall"],
        agreement(found.ranking, field.exact),
        found.read,
        found.read / len(field.vectors),
        tokens,
    )


def joined(parts: Sequence[Point]) -> Point:
    """Concatenate the questions of several conversations."""
    return Point(
        torch.cat([p.recall for p in parts]),
        torch.cat([p.agreement for p in parts]),
        torch.cat([p.read for p in parts]),
        torch.cat([p.share for p in parts]),
        torch.cat([p.tokens for p in parts]),
    )


def figures(point: Point) -> dict[str, Any]:
    """Return means over the questions."""
    recall = point.recall.mean(0).tolist()
    return {
        "recall": {str(k): value for k, value in zip(CUTOFFS, recall, strict=True)},
        "agreement": float(point.agreement.mean()),
        "read": float(point.read.mean()),
        "share": float(point.share.mean()),
        "tokens": float(point.tokens.mean()),
    }


_TEN = CUTOFFS.index(10)
ROUNDS = 20
"""Questions of each conversation that are timed."""


def measure_curves(
    fields: Sequence[SearchTask],
    *,
    preset: ModesConfig | None = None,
    seed: int = 0,
    resamples: int = 2000,
    rounds: int = ROUNDS,
    rules: Sequence[str] = tuple(RULES),
    progress: bool = False,
) -> dict[str, Any]:
    """Return the part `curves` of the report: see `bench/quality/README.md`.

    Recall is that of the answering turns. The reference is exact flat search, whose ten best also
    define `agreement`. Cost is the share of the vectors that are read, centroids included; below 1
    it is less than a flat search.

    Args:
        fields: Tasks, one for each conversation.
        preset: Settings that are measured beside the grid.
        seed: Seed of the assignments and of the bootstrap.
        resamples: Bootstrap resamples.
        rounds: Timed questions of each conversation.
        rules: Rules for the number of modes: names in `RULES`.
        progress: Whether to show a bar on stderr.
    """
    swept = [_sweep(field, rules, seed) for field in Progress(fields, "modes", shown=progress)]
    reference = joined([measured(f, flat(f.vectors, f.queries, max(CUTOFFS))) for f in fields])
    exact = reference.recall[:, _TEN]
    group = torch.cat([torch.full((len(f.queries),), i) for i, f in enumerate(fields)])
    # As many modes as one conversation has, another may not have.
    shared = [s for s in swept[0].points if all(s in other.points for other in swept)]
    whole = {s: joined([one.points[s] for one in swept]) for s in shared}
    quality = {s: p.recall[:, _TEN] for s, p in whole.items()}
    share = {s: p.share for s, p in whole.items()}
    means = {s: (float(quality[s].mean()), float(share[s].mean())) for s in whole}
    chosen = cheapest(means, float(exact.mean()))
    left = leave_one_out(quality, share, exact, group)
    return {
        "reference": figures(reference),
        "preset": None if preset is None else _preset(fields, preset, exact, seed, resamples),
        "curves": {
            name: _averages([one.facts[name] for one in swept])
            | {
                "points": [
                    {"modes": s.modes, "atoms": s.atoms} | figures(whole[s])
                    for s in whole
                    if f"{s.rule}/{s.assign}" == name
                ],
                "without_atoms": {
                    kept: figures(joined([one.typical[name][kept] for one in swept]))
                    for kept in swept[0].typical[name]
                },
            }
            for name in swept[0].facts
        },
        "front": [s.as_dict() | figures(whole[s]) for s in pareto_front(means)],
        "rule": f"fewest vectors read among settings within {TOLERANCE} of flat recall@10",
        "recommended": chosen.as_dict()
        | figures(whole[chosen])
        | {
            "difference": mean_interval(quality[chosen] - exact, seed=seed, resamples=resamples),
            "latency_ms": _latency(fields, chosen, seed, rounds),
        },
        "left_out": None
        if left is None
        else {
            "chosen": [s.as_dict() for s in left.chosen if isinstance(s, Setting)],
            "recall": float(left.quality.mean()),
            "share": float(left.cost.mean()),
            "difference": mean_interval(left.quality - exact, seed=seed, resamples=resamples),
        },
    }


@dataclass(frozen=True, eq=False)
class _Swept:
    """Every setting on one conversation; curves are named `rule/assign`."""

    points: dict[Setting, Point]
    typical: dict[str, dict[str, Point]]
    facts: dict[str, dict[str, Any]]


def _sweep(field: SearchTask, rules: Sequence[str], seed: int) -> _Swept:
    swept = _Swept({}, {}, {})
    for rule, assign in product(rules, ASSIGNMENTS):
        name = f"{rule}/{assign}"
        modes = partition(field.vectors, rule, assign, seed=seed)
        swept.facts[name] = _facts(modes, field)
        swept.typical[name] = {
            "statistics": measured(field, by_typical(modes, field.queries)),
            "representatives": measured(field, by_typical(modes, field.queries, field.vectors)),
        }
        for searched in depths(len(modes)):
            results = by_modes(
                modes, field.vectors, field.queries, searched=searched, taken=PER_MODE
            )
            # All of them are named by 0: how many that is differs.
            number = 0 if searched == len(modes) else searched
            for atoms, found in zip(PER_MODE, results, strict=True):
                swept.points[Setting(rule, assign, number, atoms)] = measured(field, found)
    return swept


def _facts(modes: Modes, field: SearchTask) -> dict[str, Any]:
    return {
        "count": float(len(modes)),
        "axes": float(len(modes.spectrum.values)),
        "exponent": modes.exponent,
        "bound": modes.bound,
        "measured_error": modes.measured_error,
        "centroid_error": modes.centroid_error,
        "bytes": index_bytes(modes, field.vectors),
    }


def _averages(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means over the conversations."""
    result: dict[str, Any] = {}
    for key, value in facts[0].items():
        parts = [fact[key] for fact in facts]
        result[key] = _averages(parts) if isinstance(value, Mapping) else sum(parts) / len(parts)
    return result


def _preset(
    fields: Sequence[SearchTask], preset: ModesConfig, exact: Tensor, seed: int, resamples: int
) -> dict[str, Any]:
    """Measure the settings of a preset."""
    parts, counts = [], []
    for field in fields:
        generator = torch.Generator().manual_seed(seed)
        modes = modes_by(preset, field.vectors, generator=generator)
        (found,) = by_modes(
            modes,
            field.vectors,
            field.queries,
            searched=preset.modes_searched,
            taken=[preset.atoms_per_mode],
        )
        parts.append(measured(field, found))
        counts.append(len(modes))
    point = joined(parts)
    return {
        "assign": "kmeans",  # of every preset
        "count": sum(counts) / len(counts),
        "modes": preset.modes_searched,
        "atoms": preset.atoms_per_mode,
        **figures(point),
        "difference": mean_interval(point.recall[:, _TEN] - exact, seed=seed, resamples=resamples),
    }


def _latency(
    fields: Sequence[SearchTask], setting: Setting, seed: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Return median milliseconds of one question, and per question of all at once."""
    sums: dict[str, dict[str, float]] = {"one": {}, "batch": {}}
    for field in fields:
        modes = partition(field.vectors, setting.rule, setting.assign, seed=seed)
        searched = setting.modes or len(modes)
        ways = {
            "flat": lambda q, f=field: flat(f.vectors, q, EXACT),
            "modes": lambda q, f=field, m=modes, p=searched: search_modes(
                m, f.vectors, q, modes_k=p, per_mode=setting.atoms
            ),
        }
        timed = min(rounds, len(field.queries))
        one = {
            name: lambda i, w=way, f=field: w(f.queries[i : i + 1]) for name, way in ways.items()
        }
        batch = {name: lambda _, w=way, f=field: w(f.queries) for name, way in ways.items()}
        for kind, found in (
            ("one", interleaved_medians(one, timed)),
            ("batch", interleaved_medians(batch, 5)),
        ):
            scale = 1 if kind == "one" else len(field.queries)
            for name, value in found.items():
                sums[kind][name] = sums[kind].get(name, 0.0) + value / scale / len(fields)
    return sums
