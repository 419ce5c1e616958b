"""`--ablate`: a preset without each of its parts, and the paper's experiments.

SYNAPSE (arXiv 2601.02744) removes its parts one by one and reports F1 of answers. Here the measures
are recall of the answering turns, and the refusals of the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.metrics import ranking_measures
from graphmem_torch.rank.registry import SIGNALS, Weight

from ..common.abstention import foreign_questions
from ..common.encoder import CachingEmbedder
from ..common.rankings import gold_positions
from ..common.run import Run
from ..common.scores import ADVERSARIAL, auroc, gain, percent
from ..common.sets import locomo_set
from ..common.tables import Head, Table
from ..common.task import RetrievalTask, build_tasks
from ..request import Judged, Request
from .experiments import (
    Found,
    cold_starts,
    gate_sweep,
    low_similarity,
    paraphrased,
    retrieved,
    tunnelling,
)

__all__ = ["judge_ablations", "variants"]

WHOLE = "as it is"
_PAPER: Mapping[str, str] = {WHOLE: "40.5", "vectors only": "25.2"}
"""F1 of answers over all categories, for the numbers of the paper that are known here."""

_CUTOFFS = (5, 10, 25)
_DEPTH = 50
_GROUPS: Mapping[str, tuple[int, ...]] = {
    "1-4": (1, 2, 3, 4),
    "1": (1,),
    "2": (2,),
    "3": (3,),
    "4": (4,),
}


def variants(config: Config) -> dict[str, Config]:
    """Return the preset, and the preset without each of its parts; missing parts are skipped.

    `no gate` answers everything. `no node decay` keeps all activation from round to round. `no edge
    decay` treats temporal edges alike, whatever time they span. `no activation` keeps PageRank. `no
    graph` scores like the preset without a graph, and `vectors only` by cosine.

    Some variants undo a correction of the preset. `silence fires` has the sigmoid of every round as
    printed. `fires in every round` and `whole fan` have the paper's score otherwise. `gate of the
    score` lets the gate read the activation of the score. `all compete` inhibits across turns and
    concepts. In `waiting undiluted` a turn with one edge passes all its activation to it.
    """
    spread, gate, weights = config.spread, config.gate, config.rank.weights

    def ranked(own: Mapping[str, float]) -> Config:
        return replace(config, rank=replace(config.rank, weights=dict(own), cold_weights={}))

    def reads_graph(key: str) -> bool:
        return SIGNALS[Weight.named(key).signal].graph

    without = {k: w for k, w in weights.items() if not reads_graph(k)}
    found = {
        WHOLE: config,
        "no gate": replace(config, gate=replace(gate, threshold=0.0)),
        "no inhibition": replace(config, spread=replace(spread, inhibition=0.0)),
        "no fan": replace(
            config, spread=replace(spread, fan="none"), gate=replace(gate, fan="score")
        ),
        "no node decay": replace(config, spread=replace(spread, retention=1.0)),
        "no edge decay": replace(config, spread=replace(spread, temporal_decay_per_hour=0.0)),
        "no activation": ranked({k: w for k, w in weights.items() if k != "activation"}),
        "no graph": ranked(config.rank.cold_weights or without),
        "vectors only": ranked({"semantic": 1.0}),
        "waiting undiluted": replace(config, spread=replace(spread, min_fan="one")),
        "all compete": replace(config, spread=replace(spread, competitors="all")),
        "gate of the score": replace(config, gate=replace(gate, firing="score", fan="score")),
    }
    if spread.firing == "once":
        found["fires in every round"] = replace(config, spread=replace(spread, firing="zeroed"))
    if spread.firing in ("once", "zeroed"):
        every_round = replace(spread, firing="sigmoid")
        found["silence fires"] = replace(
            config, spread=every_round, gate=replace(gate, firing="score")
        )
    if spread.fan == "sqrt":
        found["whole fan"] = replace(config, spread=replace(spread, fan="degree"))
    for every in (10, 20):
        link = replace(config.link, batch_concepts=every)
        found[f"consolidated every {every}"] = replace(config, link=link)
    return {name: own for name, own in found.items() if name == WHOLE or own != config}


@dataclass(frozen=True)
class _Measured:
    """Measures of one variant.

    Attributes:
        recall: [n, 3], at `_CUTOFFS`.
        known: [n], whether its gate is open.
        sure: [n], its confidence.
        foreign: [m], its confidence in questions of other conversations.
        found: Its results in each conversation.
    """

    recall: Tensor
    known: Tensor
    sure: Tensor
    foreign: Tensor
    found: Sequence[Found]

    def score(self, categories: Tensor) -> Tensor:  # [n], NaN without gold
        """Return recall@10 of answered questions; 1 for a refused adversarial one."""
        answered = self.recall[:, 1] * self.known
        return torch.where(categories == ADVERSARIAL, (~self.known).double(), answered)


def judge_ablations(request: Request, *, resamples: int = 2000) -> Judged:
    """Run SYNAPSE's ablations and experiments for a preset on a LoCoMo file.

    Args:
        request: Evaluation request; of several presets the first is used.
        resamples: Number of resamples of the intervals.

    Returns:
        `ablations` by variant, `gate`, `paraphrases`, `cold_start`, `low_similarity` and
        `tunnelling` (see `bench/quality/README.md`), and their tables.
    """
    asked = locomo_set(request.data, evidence=request.evidence, input=request.input)
    run = Run(request, resamples)
    config, encoder, drawn = run.config, run.encoder, run.drawn
    every = variants(config)
    found: dict[str, _Measured] = {}
    tasks: list[RetrievalTask] = []
    with encoder.caching():
        for name, own in every.items():
            built = tasks
            if name == WHOLE or (own.spread, own.link) != (config.spread, config.link):
                built = _built(asked.conversations, own, encoder, request)
            if name == WHOLE:
                tasks = built
            found[name] = _measured(built, own)
            if built is not tasks:
                for task in built:
                    task.memory.close()
        categories = torch.cat([task.categories for task in tasks])
        report: dict[str, Any] = {
            "n": {"1-4": int((categories != ADVERSARIAL).sum()), "5": int((categories == 5).sum())},
            "ablations": _ablations(found, categories, config, drawn),
        }
        report["n"]["foreign"] = len(found[WHOLE].foreign)
        whole = found[WHOLE].found
        report["gate"] = gate_sweep(whole, tasks, config)
        report["paraphrases"] = paraphrased(tasks, config, whole)
        rankings = {name: one.found for name, one in found.items()}
        report["low_similarity"] = low_similarity(tasks, rankings, drawn)
        report["tunnelling"] = tunnelling(tasks, rankings)
        for task in tasks:
            task.memory.close()
        report["cold_start"] = cold_starts(asked.conversations, every, encoder, request.device)
    return run.judged("locomo", _tables, input=request.input, **report)


def _built(
    conversations: Any, config: Config, encoder: CachingEmbedder, request: Request
) -> list[RetrievalTask]:
    return build_tasks(conversations, config, encoder, request.device, request.progress)[0]


def _measured(tasks: Sequence[RetrievalTask], config: Config) -> _Measured:
    found = [retrieved(task, config, task.questions, _DEPTH) for task in tasks]
    recalls = []
    for task, one in zip(tasks, found, strict=True):
        positions = gold_positions(one.ranking, task.gold, len(task.ids))
        recalls.append(ranking_measures(positions, task.gold, _CUTOFFS)["recall"])
    asked = [(task, foreign_questions(task, tasks)) for task in tasks]
    foreign = [retrieved(task, config, own, 1).confidence for task, own in asked if own]
    known, sure = (torch.cat([getattr(one, n) for one in found]) for n in ("known", "confidence"))
    return _Measured(
        torch.cat(recalls), known, sure, torch.cat(foreign or [known.new_empty(0)]), found
    )


def _ablations(
    found: Mapping[str, _Measured], categories: Tensor, config: Config, drawn: Mapping[str, Any]
) -> dict[str, Any]:
    """Measure every variant alone and against the whole, question by question."""
    whole, report = found[WHOLE], {}
    masks = {name: torch.isin(categories, torch.tensor(own)) for name, own in _GROUPS.items()}
    adversarial = categories == ADVERSARIAL
    answerable = ~adversarial & ~whole.recall[:, 1].isnan()
    for name, one in found.items():
        score, base = one.score(categories)[:, None], whole.score(categories)[:, None]
        report[name] = {
            "paper": _PAPER.get(name),
            "recall": {
                group: interval_table(one.recall[mask], _CUTOFFS, **drawn)
                for group, mask in masks.items()
            },
            "difference": {
                group: interval_table((one.recall - whole.recall)[mask], _CUTOFFS, **drawn)
                for group, mask in masks.items()
            },
            "refused": float((~one.known)[~adversarial].double().mean()),
            "refused_adversarial": float((~one.known)[adversarial].double().mean()),
            "refused_foreign": _share(
                one.foreign < (0.0 if name == "no gate" else config.gate.threshold)
            ),
            "auroc_foreign": auroc(one.sure[answerable], one.foreign),
            "score": interval_table(score, ["all"], **drawn)["all"],
            "score_difference": interval_table(score - base, ["all"], **drawn)["all"],
        }
    return report


def _share(mask: Tensor) -> float | None:
    return float(mask.double().mean()) if len(mask) else None


def _first(interval: Sequence[float] | None) -> str:
    return "-" if interval is None else percent(interval[0])


def _tables(report: Mapping[str, Any]) -> list[str | Table]:
    """Return tables: shares in percent, differences in points with their intervals."""
    rows = [
        [
            name,
            _first(one["recall"]["1-4"]["10"]),
            "" if name == WHOLE else gain(one["difference"]["1-4"]["10"]),
            _first(one["recall"]["1"]["10"]),
            "" if name == WHOLE else gain(one["difference"]["1"]["10"]),
            _first(one["recall"]["2"]["10"]),
            percent(one["refused"]),
            percent(one["refused_adversarial"]),
            "-" if one["refused_foreign"] is None else percent(one["refused_foreign"]),
            "-" if one["auroc_foreign"] is None else f"{one['auroc_foreign']:.3f}",
            _first(one["score"]),
            "" if name == WHOLE else gain(one["score_difference"]),
            one["paper"] or "-",
        ]
        for name, one in report["ablations"].items()
    ]
    titles = (
        f"{report['preset']}|1-4 @10|difference|multi-hop @10|difference|temporal @10|refused|"
        "adversarial refused|foreign refused|AUROC foreign|score|difference|paper, F1"
    )
    said = "score: recall@10 of what is not refused, and the share of adversarial questions refused"
    tables: list[str | Table] = [Table([Head(t) for t in titles.split("|")], rows, [said])]
    for key, names in (
        ("gate", "threshold|refused|adversarial refused|paraphrases refused|score"),
        ("low_similarity", "system|n|all|below|drop|difference to vectors only"),
        ("tunnelling", "variant|found by fusion|lost|lost @10"),
        ("cold_start", "turns|system|n|recall@5|newest five|tokens of five|tokens of all"),
    ):
        part = report[key]
        if key == "gate":
            for row, share in zip(part, report["paraphrases"]["refused"], strict=True):
                row["paraphrases"] = share
            lines = [
                [f"{r['threshold']:.3g}"]
                + [percent(r[k]) for k in ("refused", "adversarial", "paraphrases", "score")]
                for r in part
            ]
        else:
            lines = [[_shown(value) for value in row.values()] for row in part]
        tables.append(Table([Head(t) for t in names.split("|")], lines))
    share = report["paraphrases"]
    tables.append(
        f"{share['n']} adversarial questions said otherwise, cosine {share['cosine']:.2f} to what "
        f"they were; the gate decides otherwise on {percent(share['flipped'])} %"
    )
    return tables


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return percent(value)
    return gain(value) if isinstance(value, list) else str("-" if value is None else value)
