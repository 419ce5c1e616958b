"""The judge of passages: a preset and all baselines on every set, and on all of them merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import text_table

from ..common.compare import Column, build, compare, system_table
from ..common.encoder import load_encoder
from ..common.fitting import Fit
from ..common.measure import framed
from ..common.scores import gain
from ..common.sets import QuestionSet, merged_passages, passage_set
from ..common.texts import read_passage_sets
from ..request import Judged, Request

__all__ = ["format_multihop", "judge", "read_multihop"]
_OVER = ("dense", "fusion")  # what every system is held against


def judge(request: Request, *, resamples: int = 2000, timed: int = 20) -> Judged:
    """Run a preset and every baseline on the passage sets of a folder, and on their merged pools.

    Args:
        request: What is evaluated.
        resamples: Of the intervals.
        timed: Questions of each set whose latency is measured.

    Returns:
        The report (see `bench/quality/README.md`) and its table.

    Raises:
        InputError: No passage sets there, or one that cannot be used.
        ConfigError: There is no such preset.
    """
    config = request.settings
    encoder = load_encoder(request)
    sets: dict[str, Any] = {}
    for asked in read_multihop(Path(request.data)):
        built = build(asked, config, encoder, request.device, request.progress)
        sets[asked.name] = compare(
            built,
            {"": [Fit.shipped(config)]},
            encoder,
            seed=request.seed,
            resamples=resamples,
            timed=timed,
            progress=request.progress,
        )
        built.close()
    report = framed(
        "multihop",
        config,
        request.seed,
        n={name: found["n"]["all"] for name, found in sets.items()},
        sets=sets,
    )
    return Judged(report, format_multihop(report))


def read_multihop(folder: Path) -> list[QuestionSet]:
    """The passage sets of a folder, and all of them as one memory where there are several.

    Raises:
        InputError: There are none, or one cannot be used.
    """
    sets = [passage_set(one) for one in read_passage_sets(folder)]
    if not sets:
        raise InputError(
            "expected *_corpus.jsonl with *_queries.jsonl beside them, found none",
            where=str(folder),
        )
    return sets if len(sets) == 1 else [*sets, merged_passages(sets)]


def format_multihop(report: Mapping[str, Any]) -> str:
    """A table for each set, and what every system gains over cosine and over fusion at 5."""
    parts = []
    for name, found in report["sets"].items():
        columns = [Column(f"@{k}", "recall", "all", k) for k in (2, 5, 10)]
        columns.append(Column("all of it @5", "complete", "all", 5))
        lines = system_table(found["systems"], report["preset"], columns, "all", 5, "@5")
        lines.append(f"{name}: {found['n']['all']} questions; recall of the gold passages, %")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, "\n".join(_gains(report))])


def _gains(report: Mapping[str, Any]) -> Sequence[str]:
    subject = report["preset"]
    rows = [[f"{subject}, recall@5", *(f"over {other}" for other in _OVER)]]
    for name, found in report["sets"].items():
        more = found["systems"][subject]["ci"]["difference"]
        rows.append([name, *(gain(more[other]["all"]["5"]) for other in _OVER if other in more)])
    return text_table(rows)
