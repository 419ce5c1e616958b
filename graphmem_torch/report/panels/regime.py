"""The drift line: where the memories changed their subject, as the online detector tells it."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.report.chart import Chart, Mark, Series
from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.markup import Html, number, table, when
from graphmem_torch.report.panels.panel import Panel, node_cell, paragraph

__all__ = ["regime_panel"]

_POINTS = 600
_MARKS = 80
_LISTED = 12
_DEPTH = 30.0  # log-odds below the threshold that are told apart
_TICKS = 5
_STATISTIC = {
    "spectral": "log-odds of a new regime",
    "published": "relative drift of the mode energies",
}


def regime_panel(facts: Facts, drawing: Drawing) -> Panel:
    """The statistic of every memory in the order of storing, its threshold, and the alarms."""
    title = "Drift and regime switches"
    steps = facts.regime
    if steps is None:
        none = "There are no vectors to follow."
        if facts.detector == "none":
            none = "The settings ask for no detector (regime.detector)."
        return Panel(title, (paragraph(none),))
    count = len(steps.alarm)
    if not bool(steps.statistic.isfinite().any()):
        said = f"{number(count)} memories are too few for the detector to say anything."
        return Panel(title, (paragraph(said),))
    times = facts.time[facts.atom]
    timed = not bool(times.isnan().any())
    # Where there are more memories than points, the largest statistic of each stretch.
    width = max(1, -(-count // _POINTS))
    padded = torch.nn.functional.pad(steps.statistic, (0, -count % width), value=-torch.inf)
    best = padded.view(-1, width).max(1)
    at = (torch.arange(len(best.values)) * width + best.indices).clamp(max=count - 1)
    x = (at + 1).double().tolist()
    lowest = facts.threshold - _DEPTH
    level = best.values.clamp(min=lowest).where(best.values.isfinite(), torch.nan).tolist()
    alarms = steps.alarm.nonzero().squeeze(1)
    nodes = [int(facts.atom[i]) for i in steps.position[alarms].tolist()]
    strongest = torch.argsort(steps.statistic[alarms], descending=True, stable=True)
    drawn = strongest[:_MARKS].tolist()
    marks = [
        Mark(
            float(alarms[j] + 1),
            f"alarm at memory {int(alarms[j]) + 1:,}: {facts.texts[nodes[j]][:80]}",
            2,
            "alarm",
        )
        for j in drawn
    ]
    said = f"{len(alarms):,} alarms in {count:,} memories, in the order of storing; nothing later "
    said += "than an alarm was looked at to raise it."
    if len(alarms) > _MARKS:
        said += f" The {_MARKS} strongest alarms are drawn."
    if width > 1:
        said += f" Each point is the largest of {width} memories."
    if bool((best.values < lowest).any()):
        said += f" Values below {number(lowest)} are drawn there."
    ends = [x[0], x[-1]]
    chart = Chart(
        "Evidence of a switch",
        "memory, in the order of storing" + (", and its day" if timed else ""),
        _STATISTIC[facts.detector],
        [
            Series("statistic", x, level),
            Series("threshold", ends, [facts.threshold] * 2, tone=3),
        ],
        marks,
        x_ticks=_days(times) if timed else (),
        summary=said,
    )
    rows: list[list[str | Html]] = [
        [
            number(int(alarms[j]) + 1),
            *([when(float(facts.time[nodes[j]]))] if timed else []),
            number(float(steps.statistic[alarms[j]])),
            node_cell(facts, drawing, nodes[j]),
        ]
        for j in sorted(strongest[:_LISTED].tolist())
    ]
    columns = [("at", "number"), *([("time", "number")] if timed else []), ("statistic", "number")]
    columns.append(("begins with", "text"))
    listed = table(f"The {len(rows)} strongest alarms, in order", columns, rows)
    return Panel(title, (chart.html(), listed) if rows else (chart.html(),), wide=False)


def _days(times: Tensor) -> list[tuple[float, str]]:
    """Some memories by number and day."""
    places = torch.linspace(0, len(times) - 1, min(_TICKS, len(times))).round().long().unique()
    inner = places[1:-1] if len(places) > 4 else places
    return [(i + 1.0, f"{i + 1:,} · {when(float(times[i]))[:10]}") for i in inner.tolist()]
