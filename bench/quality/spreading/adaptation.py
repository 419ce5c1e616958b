"""Adapt spreading activation: inhibition, and the gains of edge types by gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import AnchorConfig, Config, SpreadConfig
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.ops import spread_activation

from ..common.baselines import BASELINES
from ..common.fitting import Fit
from ..common.task import RetrievalTask
from .grid import Patterns, Setting, activations, anchors_of
from .regimes import BASES, answered, background, recall_of

__all__ = ["learned_gains", "spared"]
_SPARED = (0, 5, 10, 30, 100)
_NEAR = 30  # hits of fusion


def spared(
    tasks: Sequence[RetrievalTask], config: Config, drawn: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Measure a preset with inhibition that spares the m strongest, and without any.

    `silenced` is the share of the atoms reached by activation that end no higher than an atom that
    keeps nothing. `of_fusion` is the same share of the gold in the first 30 by cosine and BM25: the
    loss by cognitive tunnelling.
    """
    plain = Setting("0", config.spread, config.anchors)
    settings = [
        replace(plain, name=str(m), spread=replace(config.spread, spare=m)) for m in _SPARED
    ]
    free = replace(config.spread, inhibition=0.0)
    settings.append(replace(plain, name="no inhibition", spread=free))
    recalls: list[list[Tensor]] = [[] for _ in settings]
    counts = torch.zeros(len(settings), 4)
    floor = 1 / (1 + torch.exp(torch.tensor(config.spread.gain * config.spread.threshold)))
    for task in tasks:
        patterns = Patterns.of(task.memory, settings)
        cosine = BASES["cosine"](task, {})
        starts = anchors_of(task, cosine, settings, patterns)
        mask = answered(task)
        fusion = BASELINES["fusion"](task, task.questions)
        near = fusion.topk(min(_NEAR, fusion.shape[1]), dim=1).indices
        gold = (near[:, :, None] == task.gold[:, None, :]).any(2) & mask[:, None]
        for place, activation in activations(patterns, settings, starts):
            own = activation[:, task.turns]
            rank = patterns.pagerank[patterns.place[settings[place].edges]][task.turns]
            score = 0.5 * cosine.clamp(min=0) + 0.3 * own + 0.2 * rank
            recalls[place].append(recall_of(score, task.gold, 10)[mask])
            reached = own > 0
            silent = reached & (own <= floor * (1 + 1e-5))
            there = torch.gather(reached, 1, near) & gold
            lost = torch.gather(silent, 1, near) & gold
            counts[place] += torch.tensor(
                [float(part.sum()) for part in (reached[mask], silent[mask], there, lost)]
            )
    found = [torch.cat(parts) for parts in recalls]
    return [
        {
            "spare": one.name,
            "recall": float(value.mean()),
            "difference": interval_table((value - found[0])[:, None], ["all"], **drawn)["all"],
            "silenced": float(count[1] / count[0].clamp(min=1)),
            "of_fusion": float(count[3] / count[2].clamp(min=1)),
        }
        for one, value, count in zip(settings, found, counts, strict=True)
    ]


@dataclass(frozen=True)
class _Unrolled:
    """Memory as tensors for the learner: base, start, and arcs with their kind."""

    task: RetrievalTask
    patterns: Patterns
    base: Tensor  # [B, T], in deviations
    start: Tensor  # [B, N]
    kind: Tensor  # [E], which gain is an arc's
    half: Tensor  # [B] bool


def learned_gains(
    tasks: Sequence[RetrievalTask],
    fits: Sequence[Fit],
    drawn: Mapping[str, Any],
    *,
    steps: int,
    seed: int,
) -> dict[str, Any]:
    """Learn gains of edge types, and their weight beside the base, by gradient through all rounds.

    Trained on one half of the questions by the listwise loss of `docs/mathematics.md` 8.2, through
    two rounds of sums over root fans, and measured on the other half, both ways.

    Returns:
        `gains`: mean of both halves, forwards and `reverse`; `factor`: weight of activation;
        `gain`: difference in recall@10 to the base `linear`, with its interval.
    """
    types = ("temporal", "similarity", "abstraction", "association")
    directed = dict.fromkeys(types, 1.0)
    # Arcs of both directions, distinguished by which of the two patterns has them.
    both = [
        Setting("forwards", _open(directed, {}), AnchorConfig("fused", 10, 2.0)),
        Setting("reverse", _open({}, directed), AnchorConfig("fused", 10, 2.0)),
    ]
    names = [f"{name}{way}" for way in ("", " reverse") for name in types]
    unrolled = []
    for number, (task, fit) in enumerate(zip(tasks, fits, strict=True)):
        generator = torch.Generator().manual_seed(seed + number)
        score = BASES["linear"](task, fit.linear)
        patterns = Patterns.of(task.memory, both)
        start = anchors_of(task, score, both, patterns)
        table = torch.zeros(256, dtype=torch.int64)
        for place, name in enumerate(types):
            table[EdgeType[name.upper()]] = place
        unrolled.append(
            _Unrolled(
                task,
                patterns,
                (score - score.mean(1, keepdim=True)) / score.std(1, keepdim=True),
                start[both[0].anchors],
                table[patterns.graph.type.long()],
                torch.rand(len(score), generator=generator) < 0.5,
            )
        )
    more, found = [], []
    for wanted in (True, False):
        logs = torch.full((len(names) + 2,), -0.7).requires_grad_()
        optimizer = torch.optim.Adam([logs], lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            for one in unrolled:
                _loss(one, logs, one.half == wanted).backward()
            optimizer.step()
        found.append(logs.detach().exp())
        with torch.no_grad():
            for one in unrolled:
                there = (one.half != wanted) & answered(one.task)
                recalls = (
                    recall_of(score[there], one.task.gold[there], 10)
                    for score in (_score(one, logs), one.base)
                )
                learned, base = recalls
                more.append(learned - base)
    mean = torch.stack(found).mean(0)
    return {
        "gains": dict(zip(names, mean.tolist(), strict=False)),
        "factor": float(mean[-1]),
        "gain": interval_table(torch.cat(more)[:, None], ["all"], **drawn)["all"],
    }


def _open(edges: Mapping[str, float], reverse: Mapping[str, float]) -> SpreadConfig:
    return SpreadConfig(
        edges=edges, reverse=reverse, max_edges=100_000, temporal_decay_per_hour=0.0
    )


def _score(one: _Unrolled, logs: Tensor) -> Tensor:  # [B, T]
    gains, graph = logs.exp(), one.patterns.graph
    ways = len(gains) // 2 - 1
    forwards, backwards = one.patterns.weight
    weight = forwards * gains[one.kind] + backwards * gains[ways + one.kind]
    found = spread_activation(
        graph.with_weight(weight),
        one.start,
        rounds=2,
        spread=gains[-2],
        fan="sqrt",
        inhibition=0.0,
        firing="linear",
    )
    return one.base + gains[-1] * background(found[:, one.patterns.node])[:, one.task.turns]


def _loss(one: _Unrolled, logs: Tensor, chosen: Tensor) -> Tensor:
    """Return -sum over the gold of log softmax, of the chosen questions."""
    there = chosen & answered(one.task)
    gold = one.task.gold[there]
    log = _score(one, logs)[there].log_softmax(1).gather(1, gold.clamp(min=0))
    return -(log.masked_fill(gold < 0, 0.0).sum(1) / (gold >= 0).sum(1)).sum()
