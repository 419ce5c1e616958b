"""The judgement of regime switches as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["format_table"]

_HEAD = (
    "system",
    "F1",
    "[95 %]",
    "precision",
    "recall",
    "false/100",
    "P_k",
    "WinDiff",
    "ahead",
    "sparing F1",
    "false/100",
    "found",
    "lag",
    "F1 gained on it",
)


def format_table(report: Mapping[str, Any]) -> str:
    """One block a data set; F1, precision and recall in percent, within one step.

    `sparing` is the best F1 with at most 3 false alarms per 100 steps in development; `found` and
    `lag` (mean, in steps) are those with at most one.
    """
    lines = []
    for name, systems in report["systems"].items():
        size = report["n"][name]
        lines.append(
            f"{name}: {size['streams']} streams, {size['steps']} steps, {size['switches']} switches"
        )
        rows = [list(_HEAD)]
        rows += [_row(system, found) for system, found in systems.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        lines += [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines.append("")
    lines.append(f"F1 gained by {report['preset']}, paired over streams, with its 95 % interval")
    return "\n".join(lines)


def _row(name: str, found: Mapping[str, Any]) -> list[str]:
    low, high = found["ci"]["f1"]
    lag = found["lag"]
    gain = [100 * value for value in found["ci"]["difference"]["f1"]]
    return [
        name,
        f"{100 * found['f1']:.1f}",
        f"[{100 * low:.1f}, {100 * high:.1f}]",
        f"{100 * found['precision']:.1f}",
        f"{100 * found['recall']:.1f}",
        f"{found['false_per_100']:.2f}",
        f"{found['p_k']:.3f}",
        f"{found['window_diff']:.3f}",
        str(found["look_ahead"]),
        f"{100 * found['sparing']['f1']:.1f}",
        f"{found['sparing']['false_per_100']:.2f}",
        "-" if lag["found"] is None else f"{100 * lag['found']:.0f} %",
        "-" if lag["mean"] is None else f"{lag['mean']:.2f}",
        f"{gain[0]:+.1f} [{gain[1]:+.1f}, {gain[2]:+.1f}]",
    ]
