"""LoCoMo under decay: the share of a conversation that is left, and recall."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.evaluation.bootstrap import mean_interval
from graphmem_torch.evaluation.metrics import ranking_measures
from graphmem_torch.memory import Scope
from graphmem_torch.progress import Progress

from ..common.encoder import CachingEmbedder
from ..common.rankings import gold_positions
from ..common.scores import gain, percent
from ..common.sets import locomo_set
from ..common.tables import Head, Table
from ..common.task import TURN, RetrievalTask, memory_of
from ..request import Request

__all__ = ["GRID", "sweep", "sweep_table"]

GRID = ((0.0, 0.0), *itertools.product((15.0, 30.0, 60.0, 120.0), (0.05, 0.2)))
"""Pairs of half-life in days, 0 for none, and base."""

_PRUNE = 0.25  # importance below which a turn is archived
_CUTOFF = 10


def sweep(
    request: Request,
    config: Config,
    encoder: CachingEmbedder,
    drawn: Mapping[str, Any],
    grid: Sequence[tuple[float, float]],
) -> dict[str, Any]:
    """Return the share of the turns that is left, and recall, by half-life and base of importance.

    Importance is taken at the latest turn, without earlier uses. Archived turns are not found. The
    baseline of each setting archives as many turns at random.
    """
    asked = locomo_set(request.data, evidence=request.evidence).answerable()
    settings = {None: config} | {each: _pruning(config, *each) for each in grid}
    left: dict[Any, list[float]] = {name: [] for name in settings}
    recall: dict[Any, list[Tensor]] = {name: [] for name in settings}
    random: dict[Any, list[Tensor]] = {name: [] for name in settings}
    dice = torch.Generator().manual_seed(request.seed)
    concepts = encoder.extractor(config.link.concepts)
    for conversation in Progress(asked.conversations, "locomo", shown=request.progress):
        gone, atoms = dict[Any, int](), conversation.atoms
        for name, own in settings.items():
            with memory_of(atoms, own, encoder, request.device, concepts=concepts) as memory:
                task = RetrievalTask(conversation, memory)
                gone[name] = 0 if name is None else memory.upkeep.consolidate().archived
                left[name].append(1 - gone[name] / len(atoms))
                recall[name].append(_recall(task))
        with memory_of(atoms, config, encoder, request.device, concepts=concepts) as memory:
            task = RetrievalTask(conversation, memory)
            for name, count in gone.items():
                rows = torch.randperm(len(atoms), generator=dice)[:count].tolist()
                random[name].append(_recall(task, [atoms[i].id for i in rows]))
    every = torch.cat(recall[None])
    rows = [
        {
            "half_life": None if name is None else name[0],
            "base": None if name is None else name[1],
            "left": sum(left[name]) / len(left[name]),
            "recall": mean_interval(torch.cat(recall[name]), **drawn),
            "difference": None
            if name is None
            else mean_interval(torch.cat(recall[name]) - every, **drawn),
            "any": mean_interval(torch.cat(random[name]), **drawn),
        }
        for name in settings
    ]
    return {"n": len(every), "prune": _PRUNE, "rows": rows}


def _pruning(config: Config, half_life: float, base: float) -> Config:
    refine = replace(
        config.refine, half_life_days=half_life, base=base, prune_below=_PRUNE, max_memories=0
    )
    return replace(config, refine=refine, decay=replace(config.decay, now="latest"))


def _recall(task: RetrievalTask, without: Sequence[str] = ()) -> Tensor:  # [B], categories 1 to 4
    results = task.memory.retrieve(
        task.questions, k=_CUTOFF, scope=Scope(kinds=[TURN], exclude=list(without))
    )
    ranked = task.positions([[hit.id for hit in result.hits] for result in results])
    places = gold_positions(ranked, task.gold, len(task.ids))
    recall = ranking_measures(places, task.gold, (_CUTOFF,))["recall"][:, 0]
    return recall[task.categories <= 4]


def _interval(value: Sequence[float] | None) -> str:
    return "" if value is None else "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * v for v in value))


def sweep_table(found: Mapping[str, Any]) -> list[Table]:
    """Return a line for each setting."""
    heads = [
        Head("half-life, days", lambda value: "-" if value is None else f"{value:g}"),
        Head("base", lambda value: "-" if value is None else f"{value:g}"),
        Head("turns left", percent),
        Head("recall@10", _interval),
        Head("less than all", gain),
        Head("of as many at random", _interval),
    ]
    rows = [
        [row[key] for key in ("half_life", "base", "left", "recall", "difference", "any")]
        for row in found["rows"]
    ]
    said = (
        f"LoCoMo, {found['n']} questions; importance below {found['prune']} is archived; a "
        "half-life of 0: none"
    )
    return [Table(heads, rows, [said])]
