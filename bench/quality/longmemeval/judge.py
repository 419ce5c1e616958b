"""Judge of chats with an assistant: a preset and all baselines, by turns and by sessions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common.chats import read_chats
from ..common.compare import Column, compare_shipped, system_table
from ..common.run import Run
from ..common.scores import percent
from ..common.tables import Head, Table
from ..request import Judged, Request

__all__ = ["format_longmemeval", "judge"]


def judge(request: Request, *, resamples: int = 2000, timed: int = 20) -> Judged:
    """Run presets and every baseline on the sessions of a folder, pooled as one memory.

    Args:
        request: Evaluation request.
        resamples: Number of resamples of the intervals.
        timed: Questions with measured latency.

    Raises:
        InputError: No sessions or questions there, or lines that cannot be used.
    """
    run, asked = Run(request, resamples), read_chats(Path(request.data))
    return run.judged("longmemeval", format_longmemeval, **compare_shipped(asked, run, timed=timed))


def format_longmemeval(report: Mapping[str, Any]) -> list[str | Table]:
    """Return sessions, then turns, a line for each system; the preset by type of question."""
    subject = report["preset"]
    by_session = [
        Column("@1", "recall", "all", 1),
        Column("@5", "recall", "all", 5),
        Column("@10", "recall", "all", 10),
        Column("any @5", "any", "all", 5),
        Column("all of them @5", "complete", "all", 5),
        Column("@10", "complete", "all", 10),
    ]
    by_turn = [Column("@5", "recall", "all", 5), Column("@10", "recall", "all", 10)]
    counts = report["n"]
    said = (
        f"{counts['all']} questions, and {counts['abstention']} without an answer, which count in "
        "no mean; recall, %"
    )
    return [
        "sessions",
        system_table(report["sessions"], subject, by_session, "all", 5, "@5"),
        "turns",
        system_table(report["systems"], subject, by_turn, "all", 5, "@5"),
        "recall@5 by type",
        _types(report, said),
    ]


def _types(report: Mapping[str, Any], said: str) -> Table:
    subject = report["preset"]
    heads = [Head("type"), Head("n"), Head("sessions", percent), Head("turns", percent)]
    rows = []
    for group, count in report["n"].items():
        figures = (report["sessions"][subject], report["systems"][subject])
        cells = [each["recall"][group]["5"] for each in figures]
        dense = report["systems"].get("dense", {}).get("recall", {}).get(group, {}).get("5")
        rows.append([group, count, *cells, dense])
    return Table([*heads, Head("turns, dense", percent)], rows, [said])
