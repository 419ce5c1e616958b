"""The figures of proof graphs as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["format_proofs"]

_BRIDGES = (
    ("P@10", "precision@10"),
    ("P@100", "precision@100"),
    ("found", "found"),
    ("r@10", "recall@10"),
    ("r@100", "recall@100"),
    ("MRR", "reciprocal_rank"),
)
_CHAINS = ("atoms@10", "atoms@50", "atoms@200", "own_size", "tokens@512", "tokens@2048")


def format_proofs(report: Mapping[str, Any]) -> str:
    """For each set bridges, then chains of each setting; percent, the preset last."""
    subject = report["preset"]
    lines: list[str] = []
    for name, found in report["sets"].items():
        size, bridges, chains = found["size"], found["bridges"], found["chains"]
        lines += [
            f"{name}: {size['statements']:,} statements, {size['dependencies']:,} dependencies; "
            f"{bridges['removed']:,} removed in each of {bridges['draws']} draws, "
            f"{bridges['candidates']:,} absent pairs",
            *_bridges(bridges, subject),
            "",
        ]
        for setting, judged in chains["settings"].items():
            lines += [
                f"{name}, chains {setting}: {chains['n']} theorems, "
                f"{judged['gold_mean']:.0f} statements a chain; completeness",
                *_chains(judged, subject),
                "",
            ]
    return "\n".join(lines).rstrip()


def _bridges(bridges: Mapping[str, Any], subject: str) -> list[str]:
    title = [
        *(title for title, _ in _BRIDGES),
        "chains F1",
        "resistance",
        f"{subject} minus, found",
    ]
    rows = [["system", *title]]
    plain = _percent(bridges["nothing_added"]["f1"])
    rows.append(["(nothing added)", *([""] * len(_BRIDGES)), plain, "", ""])
    for name, figures in bridges["systems"].items():
        rows.append(
            [
                name,
                *(_percent(figures[key]) for _, key in _BRIDGES),
                _percent(figures["chains"]["f1"]),
                f"-{100 * figures['resistance']['fall']:.2f}%",
                _interval(bridges["ci"]["difference"].get(name, {}).get("found")),
            ]
        )
    return _aligned(rows)


def _chains(judged: Mapping[str, Any], subject: str) -> list[str]:
    rows = [["system", *_CHAINS, f"{subject} minus, own_size"]]
    rows.append(["(ceiling)", *(_percent(judged["ceiling"][key]) for key in _CHAINS), ""])
    for name, figures in judged["systems"].items():
        rows.append(
            [
                name,
                *(_percent(figures[key]) for key in _CHAINS),
                _interval(judged["ci"]["difference"].get(name, {}).get("own_size")),
            ]
        )
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def _interval(value: Sequence[float] | None) -> str:
    if value is None:
        return ""
    mean, low, high = (100 * v for v in value)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
