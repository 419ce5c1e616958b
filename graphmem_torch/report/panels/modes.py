"""The modes of the memory: what it is about, in order of their energy."""

from __future__ import annotations

import torch

from graphmem_torch.report.chart import Chart, Series
from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.markup import Html, number, table, when
from graphmem_torch.report.naming import characteristic_words
from graphmem_torch.report.panels.panel import Panel, node_cell, paragraph

__all__ = ["modes_panel"]

_BARS = 60
_SHOWN = 40


def modes_panel(facts: Facts, drawing: Drawing) -> Panel:
    """Size, variance, recency and typical memories of the modes."""
    title = "Modes"
    modes = facts.modes
    if modes is None:
        return Panel(title, (paragraph("There are no vectors to find modes in."),))
    energy = modes.energy
    order = torch.argsort(energy, descending=True, stable=True).tolist()
    texts = [facts.texts[i] for i in facts.atom.tolist()]
    words = characteristic_words(texts, modes.label.long(), count=3, ignore=facts.speakers)
    bars = order[:_BARS]
    chart = Chart(
        "Energy of the modes",
        "mode, by energy",
        "share of the energy, %",
        [
            Series(
                "energy",
                [float(i + 1) for i in range(len(bars))],
                [100 * float(energy[k]) for k in bars],
                kind="bars",
                tone=4,
                notes=[f"mode {k + 1} ({words[k]}): {float(energy[k]):.2%}" for k in bars],
            )
        ],
        summary=f"{len(modes):,} modes; their centroids keep {float(energy.sum()):.1%} of the "
        f"energy (mean squared distance to them {number(modes.centroid_error)}, measured; nothing "
        "certifies it).",
    )
    timed = not bool(modes.latest.isnan().all())
    rows = []
    for k in order[:_SHOWN]:
        typical = [int(facts.atom[i]) for i in modes.representative[k].tolist() if i >= 0]
        cells = [
            f"{k + 1}",
            words[k],
            number(int(modes.size[k])),
            number(float(modes.variance[k])),
            *([when(float(modes.latest[k]))] if timed else []),
            Html("".join(node_cell(facts, drawing, node).text for node in typical)),
        ]
        rows.append(cells)
    columns = [("mode", "number"), ("about", "text"), ("memories", "number")]
    columns += [("variance", "number"), *([("latest", "number")] if timed else [])]
    caption = "By energy" + (f": {_SHOWN} of {len(modes):,}" if len(modes) > _SHOWN else "")
    listed = table(caption, [*columns, ("typical memories", "text")], rows)
    return Panel(title, (chart.html(), listed), wide=True)
