"""Judge of interdependent steps, with aggregates and plans (`docs/evaluation.md` 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, Atom
from graphmem_torch.config import Config
from graphmem_torch.evaluation.bootstrap import mean_interval
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.text.embedder import encode_checked
from graphmem_torch.text.words import count_words

from ..common.run import Run
from ..common.scores import gain, mean_share
from ..common.tables import Head, Table
from ..common.task import memory_of
from ..request import Judged, Request
from .projects import GROUPS, Asked, projects

__all__ = ["PROJECTS", "judge"]

PROJECTS = (40, 12)
"""Number of projects, and steps of each."""

_CUTOFF, _DEPTH = 10, 40  # hits that count, and that are asked for
_WORDS = 200  # words of a context, by which hits of any length are compared
_PART = 64  # questions of one batch

Hits = list[list[tuple[str, str]]]
"""Id and text of hits, best first, for each question."""


def judge(request: Request, *, size: tuple[int, int] = PROJECTS, resamples: int = 2000) -> Judged:
    """Ask what a step needs, what waits for it, what leads up to it, and what can be begun.

    The gold is the turns that say so, to which aggregates lead. The preset with and without
    aggregates and query plans is compared with search by cosine.

    Args:
        request: Evaluation request; no data is read.
        size: Number of projects, and steps of each, see `PROJECTS`.
        resamples: Number of resamples of the intervals.
    """
    run = Run(request, resamples)
    config = replace(run.config, aggregate=replace(run.config.aggregate, build=False))
    encoder, drawn = run.encoder, run.drawn
    made, atoms, asked = projects(*size, seed=request.seed)
    concepts = encoder.extractor(config.link.concepts)
    found: dict[str, Hits] = {}
    with encoder.caching():
        with memory_of(atoms, config, encoder, request.device, concepts=concepts) as memory:
            found["cosine"] = _by_cosine(memory, asked)
            found[config.name] = _asked(memory, asked, plan=False)
            found["with plans"] = _asked(memory, asked, plan=True)
        own = _aggregating(config)
        with memory_of(atoms, own, encoder, request.device, concepts=concepts) as memory:
            memory.upkeep.consolidate()
            built = len(memory.store.ids_of_kind(AGGREGATE))
            found["with aggregates"] = _asked(memory, asked, plan=False)
            found["with both"] = _asked(memory, asked, plan=True)
    measures: dict[str, Callable[[Sequence[tuple[str, str]]], Sequence[tuple[str, str]]]] = {
        "recall": lambda hits: hits[:_CUTOFF],
        "in words": _within,
    }
    values = {
        name: {
            measure: _recall([cut(each) for each in hits], asked)
            for measure, cut in measures.items()
        }
        for name, hits in found.items()
    }
    return run.judged(
        "planning",
        _tables,
        config=config,
        n={
            "projects": len(made),
            "turns": len(atoms),
            "aggregates": built,
            **{group: sum(each.group == group for each in asked) for group in GROUPS},
        },
        embedder=encoder.name,
        systems={
            name: _summary(own_values, values[config.name], asked, drawn)
            for name, own_values in values.items()
        },
    )


def _aggregating(config: Config) -> Config:
    return replace(config, aggregate=replace(config.aggregate, build=True))


def _asked(memory: Memory, asked: Sequence[Asked], *, plan: bool) -> Hits:
    found: Hits = []
    for at in range(0, len(asked), _PART):
        part = [each.text for each in asked[at : at + _PART]]
        results = memory.retrieve(part, k=_DEPTH, scope=Scope(plan=plan))
        found += [[(hit.id, hit.text) for hit in result.hits] for result in results]
    return found


def _by_cosine(memory: Memory, asked: Sequence[Asked]) -> Hits:
    columns = memory.store.columns()
    own = ~columns.is_concept
    atoms: list[Atom] = memory.store.atoms(columns.node[own].tolist())
    rows = memory.store.embeddings()[own].float()
    texts = [each.text for each in asked]
    query = encode_checked(memory.embedder, texts, query=True).pooled.float()
    best = (query @ rows.T).topk(min(_DEPTH, len(rows)), dim=1).indices
    return [[(atoms[i].id, atoms[i].text) for i in row] for row in best.tolist()]


def _within(hits: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the first hits that fit into a number of words together."""
    kept, words = [], 0
    for hit in hits:
        words += count_words(hit[1])
        if words > _WORDS:
            break
        kept.append(hit)
    return kept


def _recall(
    found: Sequence[Sequence[tuple[str, str]]], asked: Sequence[Asked]
) -> Tensor:  # [B] float64
    """Return the share of the gold in the hits."""
    values = []
    for hits, each in zip(found, asked, strict=True):
        names = {name for name, _ in hits}
        values.append(sum(name in names for name in each.gold) / len(each.gold))
    return torch.tensor(values, dtype=torch.float64)


def _summary(
    values: Mapping[str, Tensor],
    beside: Mapping[str, Tensor],
    asked: Sequence[Asked],
    drawn: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the mean of each measure and group, and its gain over that of the preset."""
    groups = {group: torch.tensor([each.group == group for each in asked]) for group in GROUPS}
    groups["all"] = torch.ones(len(asked), dtype=torch.bool)
    return {
        measure: {
            group: {
                "mean": mean_interval(own[which], **drawn),
                "difference": mean_interval((own - beside[measure])[which], **drawn),
            }
            for group, which in groups.items()
        }
        for measure, own in values.items()
    }


def _tables(report: Mapping[str, Any]) -> list[Table]:
    n, preset = report["n"], report["preset"]
    said = {
        "recall": f"recall@{_CUTOFF}, percent",
        "in words": f"recall within {_WORDS} words, percent",
    }
    tables = []
    for measure, note in said.items():
        heads = [Head("system"), *(Head(f"{g} ({n[g]})", mean_share) for g in GROUPS)]
        heads += [Head("all", mean_share), Head(f"more than {preset}", gain)]
        rows = []
        for name, found in report["systems"].items():
            own = found[measure]
            means = [own[group]["mean"] for group in (*GROUPS, "all")]
            rows.append([name, *means, own["all"]["difference"]])
        tables.append(Table(heads, rows, [note]))
    told = f"{n['projects']} projects in {n['turns']:,} turns, {n['aggregates']} aggregates"
    return [*tables[:-1], replace(tables[-1], notes=[*tables[-1].notes, told])]
