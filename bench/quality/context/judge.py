"""Judge of contexts: needles, two hops, decay, gold per token (`docs/evaluation.md` 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import mean_range, text_table

from ..common.run import Run
from ..common.scores import BUDGETS
from ..request import Judged, Request
from .gold import CURVE, judge_gold, read_gold_sets
from .hops import MEMORIES, judge_hops
from .needles import judge_needles, read_essays
from .noise import NOISE, judge_decay, judge_noise, random_facts

__all__ = ["format_context", "judge"]


def judge(
    request: Request, *, memories: int = MEMORIES, noise_levels: Sequence[int] = NOISE
) -> Judged:
    """Judge contexts on everything on the data root: conversations, passages, essays.

    Parts without data are left out: gold without conversations and passages, needles without
    essays.

    Args:
        request: Evaluation request.
        memories: Memories of chains in the ablation of two hops.
        noise_levels: Numbers of distractors.

    Raises:
        InputError: None of them exists, or a file is invalid.
    """
    root = Path(request.data)
    sets, essays = read_gold_sets(root), read_essays(root)
    if not sets and not essays:
        raise InputError(
            "expected a folder locomo, passages (NAME_corpus.jsonl with NAME_queries.jsonl) or "
            "text files (*.txt), got none of them; name another folder",
            where=str(root),
        )
    run = Run(request)
    config, embedder = _of_the_past(run.config), run.encoder
    shared: dict[str, Any] = {"device": request.device, "seed": request.seed}
    with embedder.caching():
        facts = random_facts(sets, essays)
        two_hop = judge_hops(facts, config, embedder, memories=memories, **shared)
        shared["progress"] = request.progress
        noise = judge_noise(facts, config, embedder, levels=noise_levels, **shared)
        gold = {one.name: judge_gold(one, config, embedder, **shared) for one in sets}
        needles = judge_needles(essays, config, embedder, **shared) if essays else None
    return run.judged(
        "context",
        format_context,
        config=config,
        n={name: found["n"] for name, found in gold.items()} | {"chains": two_hop["n"]},
        gold=gold,
        two_hop=two_hop,
        needles=needles,
        noise=noise,
        decay=judge_decay(config),
    )


def _of_the_past(config: Config) -> Config:
    """Return settings whose decay counts from the latest memory: the records are years old."""
    return replace(config, decay=replace(config.decay, now="latest"))


def format_context(report: Mapping[str, Any]) -> str:
    """Format every part of the report."""
    parts = [
        *_gold(report),
        *_hops(report),
        *_needles(report),
        *_noise(report),
        *_decay(report),
    ]
    return "\n\n".join(parts)


def _gold(report: Mapping[str, Any]) -> Iterable[str]:
    for name, found in report.get("gold", {}).items():
        for group, systems in found["groups"].items():
            rows = [
                [
                    f"{name}, {group}",
                    *(f"@{b}" for b in CURVE),
                    *(f"tokens for @{b}" for b in BUDGETS),
                ]
            ]
            for system, figures in systems.items():
                cells = [f"{100 * figures['recall'][str(b)]:.1f}" for b in CURVE]
                needed = figures.get("tokens_needed")
                cells += [_ratio(needed[str(b)]) if needed else "" for b in BUDGETS]
                rows.append([system, *cells])
            yield (
                f"gold kept in contexts of so many tokens, %, {found['n'][group]} questions; the "
                f"tokens with which {report['preset']} has their recall, as a share of theirs\n"
                + _lines(rows)
            )


def _ratio(needed: Mapping[str, Any]) -> str:
    if needed["ratio"] is None:
        return "not reached"
    low, high = ("-" if end is None else f"{end:.2f}" for end in needed["ci"])
    return f"{needed['ratio']:.2f} [{low}, {high}]"


def _hops(report: Mapping[str, Any]) -> Iterable[str]:
    tables = {f"chains, edges {k}": v for k, v in report.get("two_hop", {}).items() if k != "n"}
    tables |= {
        name: found["two_hop"]
        for name, found in report.get("gold", {}).items()
        if "two_hop" in found
    }
    for name, arms in tables.items():
        columns = list(next(iter(arms.values()), {}))
        rows = [[f"two hops: {name}", *columns]]
        rows += [
            [arm, *(mean_range(figures[column]) for column in columns)]
            for arm, figures in arms.items()
        ]
        yield _lines(rows)


def _needles(report: Mapping[str, Any]) -> Iterable[str]:
    found = report.get("needles")
    if not found:
        return
    for kind, grid in found["kinds"].items():
        for budget, cells in grid["cells"].items():
            depths = (f"{100 * depth:.0f}%" for depth in found["depths"])
            rows = [["tokens \\ depth", *depths, "all", "by cosine alone"]]
            rows += [
                [str(length), *_shares(row), *_shares([_mean(row), _mean(nearest)])]
                for length, row, nearest in zip(
                    found["lengths"], cells, grid["vector"]["cells"][budget], strict=True
                )
            ]
            yield (
                f"{kind} needles in a context of {budget} tokens: {grid['full'][budget]} of "
                f"{grid['of']} cells full (by cosine alone {grid['vector']['full'][budget]}), "
                f"{mean_range(grid['ci'][budget])} % of needles, by cosine alone "
                f"{mean_range(grid['vector']['ci'][budget])}, {grid['trials']} in a cell\n"
                + _lines(rows)
            )


def _noise(report: Mapping[str, Any]) -> Iterable[str]:
    found = report.get("noise")
    if found and found["noise"]:
        names = ("needle", "policy", "vector")
        rows = [["distractors", "needle kept %", "policy kept %", "needle by cosine alone %"]]
        rows += [
            [level, *(mean_range(shares["ci"][name]) for name in names)]
            for level, shares in found["noise"].items()
        ]
        yield f"one needle, {found['budget']} tokens, {found['trials']} trials\n" + _lines(rows)


def _decay(report: Mapping[str, Any]) -> Iterable[str]:
    found = report.get("decay")
    if found:
        days = list(next(iter(found.values())))
        rows = [["strength kept", *(f"day {day}" for day in days)]]
        rows += [[kind, *(f"{kept[day]:.3f}" for day in days)] for kind, kept in found.items()]
        yield _lines(rows)


def _shares(values: Iterable[float]) -> list[str]:
    return [f"{100 * value:.0f}" for value in values]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(text_table(rows))
