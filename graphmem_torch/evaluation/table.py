"""The evaluation's figures as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["format_table"]

_COLUMNS = (
    ("1-4 @10", "recall", "1-4", "10"),
    ("@25", "recall", "1-4", "25"),
    ("all @10", "recall", "all", "10"),
    ("@25", "recall", "all", "25"),
    ("multi-hop @10", "recall", "1", "10"),
    ("@25", "recall", "1", "25"),
    ("nDCG @10", "ndcg", "1-4", "10"),
)


def format_table(report: Mapping[str, Any]) -> str:
    """Recall in percent, a line for each system, and what the preset gains over it."""
    subject = report["preset"]
    header = [
        "system",
        *(title for title, *_ in _COLUMNS),
        "p50 ms",
        f"{subject} minus it, 1-4 @10",
    ]
    differences = report["systems"][subject]["ci"]["difference"]
    rows = [header]
    for name, figures in report["systems"].items():
        cells = [_percent(figures[measure][group][k]) for _, measure, group, k in _COLUMNS]
        latency = figures["latency_ms"]["p50"]
        cells.append("-" if latency is None else f"{latency:.1f}")
        cells.append(_interval(differences[name]["1-4"]["10"]) if name in differences else "")
        rows.append([name, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    counts = report["n"]
    kind = (
        "each conversation scored by a fit on the others"
        if report["config"]["eval"]["cv"]
        else "as shipped"
    )
    lines.append(f"{counts['1-4']} questions of categories 1-4, {counts['5']} adversarial; {kind}")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _interval(value: list[float] | None) -> str:
    if value is None:
        return "-"
    mean, low, high = (100 * v for v in value)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
