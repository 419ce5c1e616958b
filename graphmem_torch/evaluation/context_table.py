"""The context judge's figures as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphmem_torch.evaluation.context_curves import CURVE
from graphmem_torch.evaluation.tally import BUDGETS

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
                + _aligned(rows)
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
        columns = list(next(iter(arms.values())))
        rows = [[f"two hops: {name}", *columns]]
        rows += [
            [arm, *(_interval(figures[column]) for column in columns)]
            for arm, figures in arms.items()
        ]
        yield _aligned(rows)


def _interval(value: Sequence[float] | None) -> str:
    if value is None:
        return "-"
    mean, low, high = (100 * v for v in value)
    return f"{mean:.0f} [{low:.0f}, {high:.0f}]"


def _needles(report: Mapping[str, Any]) -> Iterable[str]:
    found = report.get("needles", {"kinds": {}})
    for kind, grid in found["kinds"].items():
        for budget, cells in grid["cells"].items():
            rows = [["tokens \\ depth", *(f"{100 * depth:.0f}%" for depth in found["depths"])]]
            rows += [
                [str(length), *(f"{100 * share:.0f}" for share in row)]
                for length, row in zip(found["lengths"], cells, strict=True)
            ]
            yield (
                f"{kind} needles in a context of {budget} tokens: {grid['full'][budget]} of "
                f"{grid['of']} cells full, {100 * grid['share'][budget]:.1f} % of needles, "
                f"{grid['trials']} in a cell\n" + _aligned(rows)
            )


def _noise(report: Mapping[str, Any]) -> Iterable[str]:
    found = report.get("noise")
    if found:
        names = ("needle", "policy", "vector")
        rows = [["distractors", "needle kept %", "policy kept %", "needle by cosine alone %"]]
        rows += [
            [level, *(f"{100 * shares[name]:.0f}" for name in names)]
            for level, shares in found["noise"].items()
        ]
        yield f"one needle, {found['budget']} tokens, {found['trials']} trials\n" + _aligned(rows)


def _decay(report: Mapping[str, Any]) -> Iterable[str]:
    found = report.get("decay")
    if found:
        days = list(next(iter(found.values())))
        rows = [["strength kept", *(f"day {day}" for day in days)]]
        rows += [[kind, *(f"{kept[day]:.3f}" for day in days)] for kind, kept in found.items()]
        yield _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
