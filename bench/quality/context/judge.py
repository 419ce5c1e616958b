"""The judge of contexts: needles, two hops, decay, gold per token (`docs/evaluation.md` 4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from graphmem_torch.config import Config, config_to_dict
from graphmem_torch.errors import InputError
from graphmem_torch.text.embedders import load_embedder

from ..common.measure import code_version
from ..common.remember import RememberingEmbedder
from ..request import Judged, Request
from .gold import judge_gold, read_gold_sets
from .hops import judge_hops
from .needles import judge_needles, read_essays
from .noise import judge_decay, judge_noise, random_facts
from .table import format_context

__all__ = ["judge"]


def judge(request: Request) -> Judged:
    """Everything on the data root `request.data`: conversations, passages, essays.

    What there is no data for is left out: gold without conversations and passages, needles without
    essays.

    Raises:
        InputError: None of them is there, or a file cannot be used.
    """
    root = Path(request.data)
    sets, essays = read_gold_sets(root), read_essays(root)
    if not sets and not essays:
        raise InputError(
            "expected a folder locomo, passages (NAME_corpus.jsonl with NAME_queries.jsonl) or "
            "text files (*.txt), got none of them",
            where=str(root),
        )
    config = _of_the_past(request.settings)
    device = request.device
    embedder = RememberingEmbedder(
        load_embedder(
            config.embedder.name if request.embedder is None else request.embedder,
            device,
            token_dim=config.embedder.token_dim,
        )
    )
    shared: dict[str, Any] = {"device": device, "seed": request.seed}
    with embedder.remembering():
        facts = random_facts(sets, essays)
        two_hop = judge_hops(facts, config, embedder, **shared)
        shared["progress"] = request.progress
        noise = judge_noise(facts, config, embedder, **shared)
        gold = {one.name: judge_gold(one, config, embedder, **shared) for one in sets}
        needles = judge_needles(essays, config, embedder, **shared) if essays else None
    report = {
        "dataset": "context",
        "preset": config.name,
        "commit": code_version(),
        "n": {name: found["n"] for name, found in gold.items()} | {"chains": two_hop["n"]},
        "gold": gold,
        "two_hop": two_hop,
        "needles": needles,
        "noise": noise,
        "decay": judge_decay(config),
        "config": config_to_dict(config),
        "seed": request.seed,
    }
    return Judged(report, format_context(report))


def _of_the_past(config: Config) -> Config:
    """Decay counts from the latest memory: the records were made years ago."""
    return replace(config, decay=replace(config.decay, now="latest"))
