"""The figures of `graphmem eval modes` as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.tables import aligned, gain

__all__ = ["format_modes"]


def format_modes(report: Mapping[str, Any]) -> str:
    """Curves and the retrieval experiment for conversations, curves alone at scale."""
    if "sizes" in report:
        return "\n\n".join(_size(part) for part in report["sizes"])
    return f"{_curves(report)}\n\n{_systems(report)}"


def _curves(report: Mapping[str, Any]) -> str:
    curves = report["curves"]
    rows = [["modes", "searched", "taken", "recall@10", "@25", "as flat", "vectors read"]]
    rows.append(["flat, exact", "", "", *_point(curves["reference"])])
    for name, curve in curves["curves"].items():
        rows.append([f"{name}, {curve['count']:.0f} modes", *[""] * 6])
        best: dict[int, Mapping[str, Any]] = {}
        for point in curve["points"]:
            kept = best.get(point["modes"])
            if kept is None or point["recall"]["10"] > kept["recall"]["10"]:
                best[point["modes"]] = point
        for searched, point in best.items():
            rows.append(["", str(searched or "all"), str(point["atoms"]), *_point(point)])
        for kept, point in curve["without_atoms"].items():
            rows.append([f"  only {kept}", "", "", *_point(point)])
    chosen, left = curves["recommended"], curves["left_out"]
    lines = [
        *aligned(rows),
        "Of each number of modes searched the best number of atoms taken is shown.",
        f"Recommended ({curves['rule']}): {_setting(chosen)}: recall@10 "
        f"{_percent(chosen['recall']['10'])}, {gain(chosen['difference'])} against flat, "
        f"{_percent(chosen['share'])} % of the vectors read",
        "  ms a question (flat / modes): "
        + ", ".join(
            f"{kind} {found['flat']:.3f} / {found['modes']:.3f}"
            for kind, found in chosen["latency_ms"].items()
        ),
    ]
    own = curves["preset"]
    if own is not None:
        lines.append(
            f"  as {report['preset']} has it ({own['count']:.0f} modes by {own['assign']}, "
            f"{own['modes']} searched, {own['atoms']} atoms of each): recall@10 "
            f"{_percent(own['recall']['10'])}, {gain(own['difference'])} against flat, "
            f"{_percent(own['share'])} % read"
        )
    if left is not None:
        lines.append(
            f"  chosen for each conversation on the others: {_percent(left['recall'])}, "
            f"{gain(left['difference'])} against flat, {_percent(left['share'])} % read"
        )
    return "\n".join(lines)


def _systems(report: Mapping[str, Any]) -> str:
    subject = report["preset"]
    titles = ("p@5", "p@10", "recall@10", "mrr", "p@1024t", "recall@1024t")
    rows = [["system", *titles, "tokens@10", "equal precision", f"{subject} minus it, p@10"]]
    for name, figures in report["systems"].items():
        equal = figures["equal_precision"]
        cost = "-" if equal["tokens"] is None else f"{equal['tokens']:.0f} ({equal['ratio']:.2f}x)"
        difference = figures["difference"]["p@10"] if "difference" in figures else None
        rows.append(
            [
                name,
                *(_percent(figures[title]) for title in titles),
                f"{figures['tokens@10']:.0f}",
                cost,
                "" if name == subject else gain(difference),
            ]
        )
    counts = report["n"]
    return "\n".join(
        [
            *aligned(rows),
            f"{counts['questions']} questions of categories 1-4 in {counts['conversations']} "
            "conversations. Equal precision: tokens until as much gold is found as in the ten "
            "best of flat, and how many times fewer than flat's.",
        ]
    )


def _size(part: Mapping[str, Any]) -> str:
    rows = [
        ["index", "searched", "agreement@10", "sentence found", "read", "faster: one", "batch"],
        ["flat, exact", "", *_scale_point(part["flat"]), "", ""],
    ]
    for index in part["modes"]:
        size = index["bytes"]
        smaller = " / ".join(
            f"{size['flat'] / size[kept]:.1f}" for kept in ("centroids", "statistics", "whole")
        )
        title = f"{index['assign']}, {index['count']} modes"
        if index["axes"] < index["asked"]:
            title += f" ({index['asked']} asked)"
        rows.append([f"{title}; smaller {smaller}", *[""] * 6])
        for kept, point in index["without_atoms"].items():
            rows.append([f"  only {kept}", "", *_scale_point(point), "", ""])
        rows += _searched(index["points"])
    for index in part["ivf"]:
        rows.append([f"inverted file, {index['count']} lists", *[""] * 6])
        rows += _searched(index["points"])
    return "\n".join(
        [
            f"{part['rows']:,} vectors of {part['width']} dimensions",
            *aligned(rows),
            "Agreement: share of the exact ten best, for texts that are not indexed. Smaller: "
            "centroids alone / with statistics / with all atoms, times.",
        ]
    )


def _searched(points: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            "",
            str(point["searched"]),
            *_scale_point(point),
            f"{point['faster_one']:.2f}x",
            f"{point['faster_batch']:.2f}x",
        ]
        for point in points
    ]


def _scale_point(point: Mapping[str, Any]) -> list[str]:
    shares = [point[key] for key in ("agreement", "known_item")]
    return [*("-" if s is None else _percent(s[0]) for s in shares), f"{point['read']:,.0f}"]


def _point(point: Mapping[str, Any]) -> list[str]:
    return [
        _percent(point["recall"]["10"]),
        _percent(point["recall"]["25"]),
        _percent(point["agreement"]),
        f"{_percent(point['share'])} %",
    ]


def _setting(setting: Mapping[str, Any]) -> str:
    searched = setting["modes"] or "all"
    return (
        f"{setting['rule']}/{setting['assign']}, {searched} modes searched, {setting['atoms']} "
        "atoms of each"
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"
