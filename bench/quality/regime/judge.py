"""Judge of regime switches in streams of real dialogues (`docs/evaluation.md` 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.retrieval import text_table
from graphmem_torch.progress import Progress

from ..common.encoder import load_encoder
from ..common.run import Run
from ..common.scores import gain, percent
from ..request import Judged, Request
from .segmentation import MEASURES, NEAR, Judgement, chosen, judged
from .streams import DIALOGUES, Stream, read_streams
from .systems import System, systems_of

__all__ = ["format_table", "judge"]
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
    """Format one block a data set; F1, precision and recall in percent, within one step.

    `sparing` is the best F1 with at most 3 false alarms per 100 steps in development; `found` and
    `lag` (mean, in steps) are with at most one.
    """
    lines = []
    for name, systems in report["systems"].items():
        size = report["n"][name]
        lines.append(
            f"{name}: {size['streams']} streams, {size['steps']} steps, {size['switches']} switches"
        )
        rows = [list(_HEAD)]
        rows += [_row(system, found) for system, found in systems.items()]
        lines += text_table(rows)
        for system, found in systems.items():
            if system.startswith("cold_shipped"):
                lines.append(f"as in a new memory: {_said_near(found['near'], size)}")
        lines.append("")
    lines.append(f"F1 gained by {report['preset']}, paired over streams, with its 95 % interval")
    return "\n".join(lines)


def _said_near(near: Mapping[str, int], size: Mapping[str, int]) -> str:
    chance = percent(near["steps_near"] / max(1, size["steps"]))
    return (
        f"{near['alarms_near']} of {near['alarms']} alarms within {NEAR} steps of a switch (at "
        f"random {chance} %), {near['switches_near']} of {size['switches']} switches within {NEAR} "
        "steps of an alarm"
    )


def _row(name: str, found: Mapping[str, Any]) -> list[str]:
    low, high = found["ci"]["f1"]
    lag, sparing = found["lag"], found["sparing"]
    return [
        name,
        percent(found["f1"]),
        f"[{percent(low)}, {percent(high)}]",
        percent(found["precision"]),
        percent(found["recall"]),
        f"{found['false_per_100']:.2f}",
        f"{found['p_k']:.3f}",
        f"{found['window_diff']:.3f}",
        str(found["look_ahead"]),
        percent(sparing["f1"]),
        f"{sparing['false_per_100']:.2f}",
        "-" if lag["found"] is None else f"{100 * lag['found']:.0f} %",
        "-" if lag["mean"] is None else f"{lag['mean']:.2f}",
        gain(found["ci"]["difference"]["f1"]),
    ]


def judge(request: Request, *, resamples: int = 2000, dialogues: int = DIALOGUES) -> Judged:
    """Run the preset's detector and every baseline on each topics file of a folder, or on one file.

    Every second stream of a file is the development half of the others, and the other way round.
    Thresholds are chosen there, and a detector that learns without labels reads it. See `systems`
    for the systems and `segmentation.Judgement` for the three thresholds of each.

    Raises:
        InputError: If the data cannot be used.
    """
    run = Run(request, resamples)
    config, encoder = run.config, load_encoder(request, token_dim=0)
    sets = read_streams(request.data, encoder, seed=request.seed, dialogues=dialogues)
    systems = systems_of(config)
    found: dict[str, dict[str, Judgement]] = {name: {} for name in sets}
    work = [(name, system) for name in sets for system in systems]
    for name, system in Progress(work, "detectors", shown=request.progress):
        others = [stream for other in sets if other != name for stream in sets[other]]
        if others or not systems[system].abroad:
            found[name][system] = _halves(systems[system], sets[name], others)
    return run.judged(
        "regime",
        format_table,
        n={name: _size(streams) for name, streams in sets.items()},
        systems={name: _summary(found[name], systems, config.name, **run.drawn) for name in sets},
    )


def _halves(system: System, streams: Sequence[Stream], others: Sequence[Stream]) -> Judgement:
    """Judge each half with the other one as its development half, and join them."""
    parts = []
    for first in (0, 1):
        develop, test = streams[1 - first :: 2], streams[first::2]
        threshold = chosen(system, others if system.abroad else develop)
        parts.append(judged(system, threshold, develop, test))
    places = torch.cat([torch.arange(first, len(streams), 2) for first in (0, 1)]).argsort()
    return Judgement(
        threshold=torch.stack([part.threshold for part in parts]),
        best=torch.cat([part.best for part in parts])[places],
        sparing=torch.cat([part.sparing for part in parts])[places],
        lag=torch.cat([part.lag for part in parts]),
        length=torch.cat([part.length for part in parts]),
        quiet=torch.cat([part.quiet for part in parts])[places],
        near=torch.cat([part.near for part in parts])[places],
    )


def _summary(
    found: Mapping[str, Judgement],
    systems: Mapping[str, System],
    subject: str,
    *,
    seed: int,
    resamples: int,
) -> dict[str, Any]:
    own = found[subject].best
    summary = {}
    for name, part in found.items():
        best, sparing, more = (
            interval_table(values, MEASURES, seed=seed, resamples=resamples)
            for values in (part.best, part.sparing, own - part.best)
        )
        summary[name] = {
            **_column(best, 0),
            "look_ahead": systems[name].look_ahead,
            "thresholds": part.threshold.tolist(),
            "sparing": _column(sparing, 0),
            "lag": _lag(part),
            "near": _near(part),
            "ci": {
                **_column(best, slice(1, None)),
                "sparing": _column(sparing, slice(1, None)),
                "difference": more,
            },
        }
    return summary


def _column(table: Mapping[str, list[float] | None], which: int | slice) -> dict[str, Any]:
    """Return the means (0), or the ends, of intervals by name."""
    return {name: None if interval is None else interval[which] for name, interval in table.items()}


def _lag(part: Judgement) -> dict[str, float | None]:
    """Summarise the lags of found switches; `charged` counts a missed one as its segment."""
    hit = part.lag.isfinite()
    some, there = bool(hit.any()), len(part.lag) > 0
    return {
        "found": float(hit.double().mean()) if there else None,
        "mean": float(part.lag[hit].mean()) if some else None,
        "median": float(part.lag[hit].quantile(0.5)) if some else None,
        "charged_mean": float(torch.where(hit, part.lag, part.length).mean()) if there else None,
        "false_per_100": float(part.quiet[:, MEASURES.index("false_per_100")].mean()),
    }


def _near(part: Judgement) -> dict[str, int]:
    names = ("alarms", "alarms_near", "switches_near", "steps_near")
    return dict(zip(names, part.near.sum(0).tolist(), strict=True))


def _size(streams: Sequence[Stream]) -> dict[str, int]:
    return {
        "streams": len(streams),
        "steps": sum(len(stream.switch) for stream in streams),
        "switches": sum(int(stream.switch.sum()) for stream in streams),
    }
