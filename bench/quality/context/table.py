"""The context judge's figures as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..common.tables import aligned, mean_range
from ..common.tally import BUDGETS
from .gold import CURVE

__all__ = ["format_context"]


def format_context(report: Mapping[str, Any]) -> str:
    """Every part of the report that there is."""
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
    return "\n".join(aligned(rows))
