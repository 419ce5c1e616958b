"""Measure the gain of each part of the preset `weave` on LoCoMo and LongMemEval.

`python -m bench.quality.weave --data ROOT [--json OUT]`

`ROOT` has the folders `locomo` and `longmemeval`, as for `graphmem eval all`. Each memory is filled
and consolidated once by the preset, by the preset without each of its parts, and by `default`,
which has none. The measure is recall@10 (LoCoMo) and recall@5 (LongMemEval) of the answering turns;
archived ones count as not found. The figure of a part is the mean difference of the whole preset to
the preset without it, with its 95 % bootstrap interval.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor
from tyro.conf import arg

from graphmem_torch.config import Config, load_config
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.retrieval import text_table
from graphmem_torch.memory import Scope
from graphmem_torch.results import Consolidated

from .common.chats import read_chats
from .common.encoder import CachingEmbedder, load_encoder
from .common.measure import code_version
from .common.questions import Conversation, find_evidence
from .common.sets import QuestionSet, locomo_set
from .common.task import TURN, memory_of
from .request import Request

__all__ = ["main", "measure", "variants"]

WHOLE = "weave"


@dataclass(frozen=True)
class Weave:
    """Measure the parts of the preset weave.

    Attributes:
        data: Folder of the data sets.
        json: File for the report.
        seed: Seed of the intervals.
    """

    data: Annotated[Path, arg(metavar="ROOT")]
    json: Annotated[Path | None, arg(metavar="OUT")] = None
    seed: int = 0


def variants(config: Config) -> dict[str, Config]:
    """Return the preset, the preset without each of its parts, and without all of them."""
    none: dict[str, Any] = {
        "reconcile": replace(config.reconcile, automatic=False),
        "aggregate": replace(config.aggregate, build=False),
        "refine": replace(config.refine, prune_below=0.0, max_memories=0),
    }
    names = {"reconcile": "reconciling", "aggregate": "aggregates", "refine": "pruning"}
    without = {f"no {names[name]}": replace(config, **{name: own}) for name, own in none.items()}
    found = {WHOLE: config, **without, "none of them": replace(config, **none)}
    return {name: own for name, own in found.items() if name == WHOLE or own != config}


def measure(
    asked: QuestionSet, config: Config, encoder: CachingEmbedder, *, seed: int = 0
) -> dict[str, Any]:
    """Return recall of every variant and the gain of each part, by group of questions.

    Args:
        asked: Memories with their questions.
        config: Preset.
        encoder: Encoder.
        seed: Seed of the intervals.
    """
    found: dict[str, Tensor] = {}
    done: dict[str, Consolidated] = {}
    with encoder.caching():
        for name, own in variants(config).items():
            parts = [_recall(each, own, encoder, asked.at) for each in asked.conversations]
            found[name] = torch.cat([recall for recall, _ in parts])
            done[name] = sum((did for _, did in parts), Consolidated())
    category = torch.tensor([q.category for each in asked.conversations for q in each.questions])
    gold = torch.tensor([bool(q.gold) for each in asked.conversations for q in each.questions])
    groups = {
        name: gold & torch.isin(category, torch.tensor(numbers))
        for name, numbers in asked.groups.items()
    }
    groups = {name: which for name, which in groups.items() if bool(which.any())}
    return {
        "at": asked.at,
        "n": {name: int(which.sum()) for name, which in groups.items()},
        "did": {name: str(each) for name, each in done.items()},
        "recall": {
            name: {group: float(recall[which].mean()) for group, which in groups.items()}
            for name, recall in found.items()
        },
        "adds": {
            name: {
                group: interval_table((found[WHOLE] - recall)[which, None], ["gain"], seed=seed)[
                    "gain"
                ]
                for group, which in groups.items()
            }
            for name, recall in found.items()
            if name != WHOLE
        },
    }


def _recall(
    conversation: Conversation, config: Config, encoder: CachingEmbedder, at: int
) -> tuple[Tensor, Consolidated]:  # [B]
    """Return the share of each question's gold in its first hits; 0 without gold."""
    concepts = encoder.extractor(config.link.concepts)
    with memory_of(conversation.atoms, config, encoder, "cpu", concepts=concepts) as memory:
        done = memory.upkeep.consolidate()
        results = [
            memory.retrieve(question.text, k=at, scope=Scope(kinds=[TURN], asked=question.time))
            for question in conversation.questions
        ]
    shares = [
        len({hit.id for hit in result.hits}.intersection(question.gold))
        / max(1, len(question.gold))
        for result, question in zip(results, conversation.questions, strict=True)
    ]
    return torch.tensor(shares, dtype=torch.float64), done


def _lines(name: str, report: Mapping[str, Any]) -> list[str]:
    groups = list(report["n"])
    rows = [[f"{name} recall@{report['at']}", *(f"{g} ({report['n'][g]})" for g in groups), "did"]]
    for variant, recall in report["recall"].items():
        cells = []
        for group in groups:
            cell = f"{100 * recall[group]:.1f}"
            if variant != WHOLE:
                mean, low, high = (100 * value for value in report["adds"][variant][group])
                cell += f" {mean:+.1f} [{low:+.1f}, {high:+.1f}]"
            cells.append(cell)
        rows.append([variant, *cells, report["did"][variant]])
    return text_table(rows)


def main(arguments: list[str] | None = None) -> int:
    """Print a table of each set: recall, and the gain of the whole preset."""
    asked = tyro.cli(Weave, args=arguments)
    config = load_config("weave")
    encoder = load_encoder(Request(data=asked.data, preset="weave", device="cpu"))
    data = asked.data / "locomo" / "locomo5.json"
    sets = [
        locomo_set(data, evidence=find_evidence(data)),
        read_chats(asked.data / "longmemeval"),
    ]
    report = {}
    for each in sets:
        report[each.name] = measure(each, config, encoder, seed=asked.seed)
        print("\n".join([*_lines(each.name, report[each.name]), ""]), flush=True)
    if asked.json is not None:
        text = json.dumps({"code": code_version(), "sets": report}, indent=1)
        asked.json.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
