"""Judge of presets and all baselines on LoCoMo conversations (`docs/evaluation.md` 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem_torch.errors import InputError

from ..common.compare import Column, build, compare, system_table
from ..common.encoder import caching
from ..common.fitting import leave_one_out
from ..common.run import Run
from ..common.sets import locomo_set
from ..common.tables import Table
from ..request import Judged, Request
from .ablation import judge_ablations

__all__ = ["format_table", "judge"]


def judge(request: Request, *, resamples: int = 2000, timed: int = 20) -> Judged:
    """Run presets and every baseline on a LoCoMo file, or on the one in a folder.

    Without repaired evidence (JSON lines) the file's own is repaired. With `cv` the weights of
    `default` and of `linear` are fitted for each conversation on the others. With `ablate` the
    preset is compared with itself without each of its parts; see `judge_ablations`.

    Args:
        request: Evaluation request.
        resamples: Number of resamples of the intervals.
        timed: Questions of each conversation with measured latency.

    Raises:
        InputError: if the data cannot be used, or `cv` is asked for with a single conversation.
    """
    if request.ablate:
        return judge_ablations(request, resamples=resamples)
    asked = locomo_set(request.data, evidence=request.evidence, input=request.input)
    count = len(asked.conversations)
    if request.cv and count < 2:
        raise InputError(
            f"cv: expected at least 2 conversations to leave one out, got {count}; leave out --cv",
            where=str(request.data),
        )
    run = Run(request, resamples)
    encoders = run.encoders
    built = build(asked, request.presets, encoders, request.device, request.progress)
    fits = built.shipped
    if request.cv:
        with caching(encoders):
            fits = [
                {"": leave_one_out(one.tasks, built.ground.tasks, one.config)}
                for one in built.presets
            ]
    found = compare(built, fits, encoders, request, run.rankings, resamples=resamples, timed=timed)
    options = {"cv": request.cv, "conversations": count}
    return run.judged("locomo", format_table, options=options, input=request.input, **found)


_COLUMNS = (
    Column("1-4 @10", "recall", "1-4", 10),
    Column("@25", "recall", "1-4", 25),
    Column("all @10", "recall", "all", 10),
    Column("@25", "recall", "all", 25),
    Column("multi-hop @10", "recall", "1", 10),
    Column("@25", "recall", "1", 25),
    Column("nDCG @10", "ndcg", "1-4", 10),
)


def format_table(report: Mapping[str, Any]) -> Table:
    """Return recall in percent, a line for each system, with the first preset's gain over it."""
    counts = report["n"]
    kind = (
        "each conversation scored by a fit on the others"
        if report["config"]["eval"]["cv"]
        else "as shipped"
    )
    said = f"{counts['1-4']} questions of categories 1-4, {counts['5']} adversarial; {kind}"
    return system_table(
        report["systems"], report["preset"], _COLUMNS, "1-4", 10, "1-4 @10", notes=[said]
    )
