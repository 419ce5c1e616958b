"""Judge of passages: a preset and all baselines on every set, and on all of them merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphmem_torch.errors import InputError

from ..common.compare import Column, compare_shipped, system_table
from ..common.run import Run
from ..common.scores import gain
from ..common.sets import QuestionSet, merged_passages, passage_set
from ..common.tables import Head, Table
from ..common.texts import read_passage_sets
from ..request import Judged, Request

__all__ = ["format_multihop", "judge", "read_multihop"]
_OVER = ("dense", "fusion")  # baselines of the gains


def judge(request: Request, *, resamples: int = 2000, timed: int = 20) -> Judged:
    """Run presets and every baseline on the passage sets of a folder, and on their merged pools.

    Args:
        request: Evaluation request.
        resamples: Number of resamples of the intervals.
        timed: Questions of each set with measured latency.

    Raises:
        InputError: No passage sets there, or one that cannot be used.
    """
    run, asked = Run(request, resamples), read_multihop(Path(request.data))
    sets = {one.name: compare_shipped(one, run, timed=timed) for one in asked}
    counts = {name: found["n"]["all"] for name, found in sets.items()}
    return run.judged("multihop", format_multihop, n=counts, sets=sets)


def read_multihop(folder: Path) -> list[QuestionSet]:
    """Read the passage sets of a folder, and several of them as one memory.

    Raises:
        InputError: No set, or an invalid one.
    """
    sets = [passage_set(one) for one in read_passage_sets(folder)]
    if not sets:
        raise InputError(
            "expected *_corpus.jsonl with *_queries.jsonl beside them, found none; add them",
            where=str(folder),
        )
    return sets if len(sets) == 1 else [*sets, merged_passages(sets)]


def format_multihop(report: Mapping[str, Any]) -> list[Table]:
    """Return a table for each set, and every system's gain over cosine and over fusion at 5."""
    parts = []
    for name, found in report["sets"].items():
        columns = [Column(f"@{k}", "recall", "all", k) for k in (2, 5, 10)]
        columns.append(Column("all of it @5", "complete", "all", 5))
        said = f"{name}: {found['n']['all']} questions; recall of the gold passages, %"
        systems, subject = found["systems"], report["preset"]
        parts.append(system_table(systems, subject, columns, "all", 5, "@5", notes=[said]))
    return [*parts, _gains(report)]


def _gains(report: Mapping[str, Any]) -> Table:
    subject = report["preset"]
    heads = [Head(f"{subject}, recall@5"), *(Head(f"over {other}", gain) for other in _OVER)]
    rows = []
    for name, found in report["sets"].items():
        more = found["systems"][subject]["ci"]["difference"]
        rows.append([name, *(more[o]["all"]["5"] if o in more else None for o in _OVER)])
    return Table(heads, rows)
