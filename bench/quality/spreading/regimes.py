"""Measure the gain of activation over rankings without a graph: settings, regimes, two halves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.memory.index_builder import reweighted

from ..common.baselines import BASELINES
from ..common.fitting import Fit, linear_scores
from ..common.scores import ADVERSARIAL
from ..common.task import RetrievalTask
from .grid import Patterns, Setting, activations, anchors_of

__all__ = [
    "BASES",
    "FACTORS",
    "Judgement",
    "Regime",
    "answered",
    "background",
    "best_published",
    "confirmed",
    "judgements",
    "recall_of",
    "several",
    "unlike",
]

FACTORS: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
"""Weights of activation beside the base, both in deviations."""

_TILE = 64  # questions asked at once
_UNLIKE = 0.3  # cosine of a question and its evidence
_UNITS = 8.0  # maximum deviations of a rare value, as with `rank.scale: background`

Base = Callable[[RetrievalTask, Mapping[str, float]], Tensor]
BASES: Mapping[str, Base] = {
    "cosine": lambda task, _: BASELINES["dense"](task, task.questions),
    "fusion": lambda task, _: BASELINES["fusion"](task, task.questions),
    "linear": lambda task, weights: linear_scores(task, task.questions, weights),
}
"""Rankings without a graph, [B, T]: weak seeds, better ones, the strongest available."""


@dataclass(frozen=True)
class Regime:
    """Subset of a set's questions, and the ranking that the graph is added to.

    Attributes:
        name: Name in tables.
        base: Key of `BASES`.
        chosen: Function that selects questions of a memory, [B] bool.
    """

    name: str
    base: str
    chosen: Callable[[RetrievalTask], Tensor]


def answered(task: RetrievalTask) -> Tensor:  # [B] bool
    """Return which questions have gold and are not adversarial."""
    return (task.categories != ADVERSARIAL) & (task.gold >= 0).any(1)


def several(task: RetrievalTask) -> Tensor:  # [B] bool
    """Return which questions have evidence in several sessions."""
    sessions = task.session[task.gold.clamp(min=0)].masked_fill(task.gold < 0, -1)
    found = [len({number for number in row if number >= 0}) > 1 for row in sessions.tolist()]
    return answered(task) & torch.tensor(found, dtype=torch.bool)


def unlike(task: RetrievalTask) -> Tensor:  # [B] bool
    """Return which questions have no evidence of a cosine of 0.3."""
    cosine = BASES["cosine"](task, {})
    near = cosine.gather(1, task.gold.clamp(min=0)).masked_fill(task.gold < 0, -torch.inf)
    return answered(task) & (near.amax(1) < _UNLIKE)


@dataclass
class Judgement:
    """Recall of every setting and factor on each question of a regime.

    Attributes:
        base: [n] recall of the ranking without a graph.
        recall: [S * F, n] with activation by each setting, with each factor.
        published: [S, n] recall of SYNAPSE's score, 0.5 max(cos, 0) + 0.3 activation + 0.2
            PageRank.
        preset: [n] recall of the whole preset, hops between documents included.
        half: [n] bool, half of each question.
    """

    base: Tensor
    recall: Tensor
    published: Tensor
    preset: Tensor
    half: Tensor


def judgements(
    tasks: Sequence[RetrievalTask],
    fits: Sequence[Fit],
    settings: Sequence[Setting],
    regimes: Sequence[Regime],
    *,
    at: int = 10,
    seed: int = 0,
) -> dict[str, Judgement]:
    """Measure every setting on every memory, for some regimes.

    Args:
        tasks: Memories with their questions.
        fits: Weights of the base `linear` and of the preset, of each memory.
        settings: The grid, S of them.
        regimes: Subsets of questions.
        at: Number of hits of recall.
        seed: Seed of the halves.
    """
    parts: dict[str, list[tuple[Tensor, ...]]] = {regime.name: [] for regime in regimes}
    for number, (task, fit) in enumerate(zip(tasks, fits, strict=True)):
        patterns = Patterns.of(task.memory, settings)
        generator = torch.Generator().manual_seed(seed + number)
        half = torch.rand(len(task.questions), generator=generator) < 0.5
        preset = _of_preset(task, fit, at)
        for base in dict.fromkeys(regime.base for regime in regimes):
            alone, found, published = _recalls(task, fit.linear, base, patterns, settings, at)
            for regime in (one for one in regimes if one.base == base):
                mask = regime.chosen(task)
                columns = (alone, found, published, preset, half)
                parts[regime.name].append(tuple(each[..., mask] for each in columns))
    return {
        name: Judgement(*(torch.cat(column, -1) for column in zip(*own, strict=True)))
        for name, own in parts.items()
    }


def _of_preset(task: RetrievalTask, fit: Fit, at: int) -> Tensor:  # [B]
    """Return the recall of the whole preset."""
    index, found = reweighted(task.memory.index, fit.config), []
    for begin in range(0, len(task.questions), _TILE):
        with torch.inference_mode():
            score = index.score(task.encode(task.questions[begin : begin + _TILE]), k=at)
        found.append(score.cpu()[:, task.turns])
    return recall_of(torch.cat(found), task.gold, at)


def _recalls(
    task: RetrievalTask,
    weights: Mapping[str, float],
    base: str,
    patterns: Patterns,
    settings: Sequence[Setting],
    at: int,
) -> tuple[Tensor, Tensor, Tensor]:  # [B], [S * F, B], [S, B]
    score = BASES[base](task, weights)
    starts = anchors_of(task, score, settings, patterns)
    cosine = BASES["cosine"](task, weights).clamp(min=0)
    own = (score - score.mean(1, keepdim=True)) / score.std(1, keepdim=True).clamp(min=1e-9)
    recall = torch.zeros(len(settings), len(FACTORS), len(score), dtype=torch.float64)
    published = torch.zeros(len(settings), len(score), dtype=torch.float64)
    for place, activation in activations(patterns, settings, starts):
        scaled = background(activation)[:, task.turns]
        for factor, value in enumerate(FACTORS):
            recall[place, factor] = recall_of(own + value * scaled, task.gold, at)
        rank = patterns.pagerank[patterns.place[settings[place].edges]][task.turns]
        hybrid = 0.5 * cosine + 0.3 * activation[:, task.turns] + 0.2 * rank
        published[place] = recall_of(hybrid, task.gold, at)
    return recall_of(own, task.gold, at), recall.flatten(0, 1), published


def background(activation: Tensor) -> Tensor:  # [B, A]
    """Return activation in deviations of the background, the unit of `default`'s signals (8.8)."""
    mean = activation.mean(1, keepdim=True)
    more = activation.amax(1, keepdim=True) - mean
    unit = torch.maximum(activation.std(1, keepdim=True), more / _UNITS)
    return (activation - mean) / unit.masked_fill(unit <= 1e-6, torch.inf)


def recall_of(score: Tensor, gold: Tensor, at: int) -> Tensor:  # [B, T], [B, G] -> [B]
    """Return the share of gold in the first hits; NaN without gold."""
    best = score.topk(min(at, score.shape[1]), dim=1).indices
    found = (best[:, :, None] == gold[:, None, :]).any(1).sum(1)
    return found.double() / (gold >= 0).sum(1)


def confirmed(
    found: Judgement, settings: Sequence[Setting], drawn: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the best setting, chosen on one half and measured on the other, both ways.

    The base itself is one of the choices. Settings without rounds are controls: the gain of the
    anchors without any edge.

    Returns:
        `n`, the number `tried`, recall of the `base`; `best`, the gain of the best setting on the
        questions it was chosen on; `gain` on the others, with its interval; `anchors`, the same of
        the best control; `of_graph`, the best setting's advantage over it; `of_presets`; `preset`,
        the whole preset's gain over the base; the settings `chosen`.
    """
    spreads = [place for place, one in enumerate(settings) if one.spread.rounds]
    alone = [place for place, one in enumerate(settings) if not one.spread.rounds]
    gains = (found.recall - found.base).view(len(settings), len(FACTORS), -1)

    def interval(more: Tensor) -> list[float] | None:
        return interval_table(more[:, None], ["gain"], **drawn)["gain"]

    more, picked = _crossed(gains[spreads].flatten(0, 1), found.half)
    control, _ = _crossed(gains[alone].flatten(0, 1), found.half)
    chosen: list[dict[str, Any] | None] = []
    for place, _ in picked:
        if place is None:
            chosen.append(None)
            continue
        one = settings[spreads[place // len(FACTORS)]]
        chosen.append({"name": one.name, "factor": FACTORS[place % len(FACTORS)]} | one.changes())
    return {
        "n": len(more),
        "tried": len(spreads) * len(FACTORS),
        "base": float(found.base.mean()) if len(more) else None,
        "best": sum(value for _, value in picked) / len(picked),
        "gain": interval(more),
        "anchors": interval(control),
        "of_graph": interval(more - control),
        "of_presets": {
            one.name: interval(_crossed(gains[place], found.half)[0])
            for place, one in enumerate(settings)
            if one.name in ("synapse-published", "default")
        },
        "preset": interval(found.preset - found.base),
        "chosen": chosen,
    }


def _crossed(
    gains: Tensor,  # [S, n]
    half: Tensor,  # [n] bool
) -> tuple[Tensor, list[tuple[int | None, float]]]:  # [n]
    """Return the gain of each half's best on the other, with its index and its own gain."""
    more, picked = torch.zeros(len(half), dtype=torch.float64), list[tuple[int | None, float]]()
    for own in (half, ~half):
        place, value = None, 0.0
        if len(gains) and own.any():
            means = gains[:, own].mean(1)
            if means.max() > 0:
                place, value = int(means.argmax()), float(means.max())
                more = torch.where(own, more, gains[place])
        picked.append((place, value))
    return more, picked


def best_published(
    found: Judgement, settings: Sequence[Setting], drawn: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the best setting of SYNAPSE's own score, chosen on one half, measured on the other."""
    own = next(place for place, one in enumerate(settings) if one.name == "synapse-published")
    value, chosen = torch.zeros_like(found.base), []
    for half in (found.half, ~found.half):
        place = int(found.published[:, half].mean(1).argmax()) if half.any() else own
        chosen.append({"name": settings[place].name} | settings[place].changes())
        value = torch.where(half, value, found.published[place])
    before = found.published[own]
    return {
        "n": len(value),
        "tried": len(settings),
        "synapse": interval_table(before[:, None], ["recall"], **drawn)["recall"],
        "best": interval_table(value[:, None], ["recall"], **drawn)["recall"],
        "gain": interval_table((value - before)[:, None], ["gain"], **drawn)["gain"],
        "over_base": interval_table((value - found.base)[:, None], ["gain"], **drawn)["gain"],
        "chosen": chosen,
    }
