"""Panels: the parts of the page below the graph, and markup that they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.report.contents import ReportFacts, characteristic_words
from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.markup import (
    Chart,
    Html,
    Mark,
    Series,
    clipped,
    escaped,
    number,
    table,
    when,
)

__all__ = ["PANELS", "paragraph", "questions_panel"]
_NO_EDGES = "The memories have no edges yet."
_TEXT = 140


@dataclass(frozen=True)
class Panel:
    """One part of the page, with a heading."""

    title: str
    body: tuple[Html, ...]
    wide: bool = False  # spans all columns of the page

    def html(self, key: str) -> str:
        """Return the panel as a section with id `key`."""
        kind = ' class="wide"' if self.wide else ""
        body = "".join(part.text for part in self.body)
        return (
            f'<section id="{key}"{kind} aria-labelledby="{key}-title">'
            f'<h2 id="{key}-title">{escaped(self.title)}</h2>{body}</section>'
        )


def paragraph(text: str) -> Html:
    """Return a line of explanation."""
    return Html(f'<p class="note">{escaped(text)}</p>')


def node_cell(facts: ReportFacts, drawing: Drawing, node: int) -> Html:
    """Return a memory's text, as a button that shows it in the graph if it is drawn."""
    text = escaped(clipped(facts.texts[node], _TEXT))
    place = int(drawing.place[node])
    if place < 0:
        return Html(text)
    return Html(f'<button type="button" class="goto" data-node="{place}">{text}</button>')


def community_cell(facts: ReportFacts, community: int) -> Html:
    """Return a community's colour and name."""
    name = facts.names[community] or f"community {community + 1}"
    return Html(
        f'<span class="swatch" data-community="{community}"></span>{escaped(clipped(name, 60))}'
    )


def questions_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """List the hits of each question: score, memory, and the reasons in words."""
    node = {name: place for place, name in enumerate(facts.ids)}
    columns = [("score", "number"), ("memory", "text"), ("why", "text")]
    parts = [paragraph("A score is the probability that a memory is relevant to the question.")]
    if not all(result.calibrated for result in facts.results):
        said = "None were fitted to these settings and encoder: scores are rough estimates."
        parts.append(paragraph(said))
    for result in facts.results:
        rows: list[list[str | Html]] = [
            [
                f"{hit.score:.2f}",
                node_cell(facts, drawing, node[hit.id])
                if hit.id in node
                else clipped(hit.text, _TEXT),
                " · ".join(hit.why),
            ]
            for hit in result.hits
        ]
        unknown = {True: "", False: ", no record of this", None: ", cannot tell"}[result.known]
        heading = f"{result.question} (confidence {result.confidence:.2f}{unknown})"
        parts.append(table(heading, columns, rows))
    return Panel("Questions", tuple(parts), wide=True)


_SHOWN = 25


def communities_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """List the largest communities, one row each."""
    if not facts.num_nodes:
        return Panel("Communities", (paragraph("The store is empty: there is nothing to part."),))
    sizes = facts.sizes
    inside, typical = facts.inside()
    alone = int((sizes == 1).sum())
    rows: list[list[str | Html]] = [
        [
            community_cell(facts, k),
            number(int(sizes[k])),
            number(int(inside[k])),
            node_cell(facts, drawing, int(typical[k])),
        ]
        for k in range(min(_SHOWN, len(sizes) - alone))
    ]
    said = f"{len(sizes):,} communities; {alone:,} of them are single nodes without an edge."
    if not facts.graph.num_edges:
        said = f"{_NO_EDGES} Each of them stands alone."
    elif len(sizes) - alone > _SHOWN:
        said += f" The {_SHOWN} largest are listed."
    columns = [("Community", "text"), ("nodes", "number"), ("links inside", "number")]
    listed = table("By size", [*columns, ("best linked memory", "text")], rows)
    return Panel("Communities", (paragraph(said), listed) if rows else (paragraph(said),))


def bridges_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """List the links between communities that the graph would miss most."""
    title = "Bridges"
    found = facts.structure.bridges
    if not len(found):
        none = "No edge joins two communities." if facts.graph.num_edges else _NO_EDGES
        return Panel(title, (paragraph(none),))
    rows: list[list[str | Html]] = [
        [
            node_cell(facts, drawing, a),
            node_cell(facts, drawing, b),
            f"cuts off {side:,}" if math.isinf(score) else number(score),
        ]
        for (a, b), score, side in zip(
            found.pairs.T.tolist(), found.score.tolist(), found.side.tolist(), strict=True
        )
    ]
    columns = [("one end", "text"), ("other end", "text"), ("score", "number")]
    said = (
        "Links between two communities, by how much the total effective resistance of the graph "
        "would rise without them; a link that alone holds on to a part is told by the nodes it "
        "would cut off."
    )
    return Panel(title, (paragraph(said), table(f"The best {len(found)}", columns, rows)))


def frontiers_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """List the remote memories that are weakly connected to the rest."""
    title = "Frontiers"
    found = facts.structure.frontiers
    if not len(found):
        return Panel(title, (paragraph(_NO_EDGES),))
    rows: list[list[str | Html]] = [
        [node_cell(facts, drawing, node), number(score), number(degree)]
        for node, score, degree in zip(
            found.node.tolist(), found.score.tolist(), found.degree.tolist(), strict=True
        )
    ]
    columns = [("memory", "text"), ("score", "number"), ("degree", "number")]
    said = (
        "Memories that lie far from the rest (spectral centrality: their mean resistance) and have "
        "little that ties them to it: centrality / (degree + 1)."
    )
    return Panel(title, (paragraph(said), table(f"The best {len(found)}", columns, rows)))


_POINTS = 600
_MARKS = 80
_LISTED = 12
_DEPTH = 30.0  # log-odds below the threshold that are distinguished
_TICKS = 5
_STATISTIC = {
    "spectral": "log-odds of a new regime",
    "published": "relative drift of the mode energies",
}


def regime_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """Plot the statistic of every memory in the order of storing, its threshold, and the alarms."""
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
    # With more memories than points, show the largest statistic of each stretch.
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
    return Panel(title, (chart.html(), listed) if rows else (chart.html(),))


def _days(times: Tensor) -> list[tuple[float, str]]:
    """Return some memories by number and day."""
    places = torch.linspace(0, len(times) - 1, min(_TICKS, len(times))).round().long().unique()
    inner = places[1:-1] if len(places) > 4 else places
    return [(i + 1.0, f"{i + 1:,} · {when(float(times[i]))[:10]}") for i in inner.tolist()]


_LEAST = 1e-7  # of the largest eigenvalue: smaller ones are rounding
_SPECTRUM_POINTS = 400


def spectrum_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """Plot eigenvalues with the chosen K, and the energy in the leading ones."""
    title = "Spectrum of the memory kernel"
    if facts.spectrum is None or facts.modes is None:
        return Panel(title, (paragraph("There are no vectors to take a spectrum of."),))
    values = facts.spectrum.values
    values = values[values > _LEAST * values[0]]
    kept = len(facts.modes.spectrum.values)
    total = facts.spectrum.total_energy or float(values.sum())
    share = values.cumsum(0) / total
    at = torch.arange(len(values))
    if len(values) > _SPECTRUM_POINTS:
        at = torch.linspace(0, len(values) - 1, _SPECTRUM_POINTS).round().long().unique()
    rank = [float(i + 1) for i in at.tolist()]
    mark = Mark(float(kept), f"K = {kept}", 2, f"K = {kept} are kept")
    exponent = facts.modes.exponent
    eigenvalues = Chart(
        "Eigenvalues",
        "rank k",
        "eigenvalue λ of E Eᵀ / N",
        [Series("eigenvalue", rank, values[at].tolist())],
        [mark],
        log_y=True,
        summary=f"K = {kept} eigenvectors are kept; they hold {float(share[kept - 1]):.1%} of the "
        f"energy. The rows projected on them err by {number(facts.modes.measured_error)} in the "
        f"mean square (certified bound {number(facts.modes.bound)}). Fitted power law: "
        f"λ ~ k^−{number(exponent)}.",
    )
    energy = Chart(
        "Energy of the leading eigenvectors",
        "rank k",
        "share of the energy, %",
        [Series("share", rank, (100 * share[at]).tolist(), tone=3)],
        [mark],
    )
    return Panel(title, (eigenvalues.html(), energy.html()))


def laplacian_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """Plot the eigenvalues next to 0, and count the zeros."""
    title = "Spectrum of the graph"
    values = facts.structure.values.tolist()
    if not values:
        return Panel(title, (paragraph(_NO_EDGES),))
    zeros = facts.structure.num_components
    said = (
        "The graph has one component, so 0 occurs once. The spectral gap is "
        if zeros == 1
        else f"The graph has {zeros:,} components, so 0 occurs {zeros:,} times. The first value "
        "above is "
    )
    said += f"{number(values[0])}: small values mean parts that hardly hang together."
    if not facts.structure.converged:
        said += " The values are within their residuals, not exact."
    camps = facts.structure.frustration
    worst = camps.contradictory
    if len(worst):
        part = int(worst[0])
        said += (
            f" Contradictions that no split into two camps resolves are in {len(worst):,} of the "
            f"components; the worst is frustrated by {number(float(camps.value[part]))}."
        )
    ranks = [float(zeros + i + 1) for i in range(len(values))]
    chart = Chart(
        "Smallest eigenvalues beside the zeros",
        "rank",
        "eigenvalue μ of the normalised Laplacian",
        [Series("μ", ranks, values, kind="dots")],
        summary=said,
    )
    return Panel(title, (chart.html(),))


_BARS = 60
_MODES_SHOWN = 40


def modes_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """Show size, variance, recency and typical memories of the modes."""
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
    for k in order[:_MODES_SHOWN]:
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
    caption = "By energy" + (
        f": {_MODES_SHOWN} of {len(modes):,}" if len(modes) > _MODES_SHOWN else ""
    )
    listed = table(caption, [*columns, ("typical memories", "text")], rows)
    return Panel(title, (chart.html(), listed), wide=True)


def store_panel(facts: ReportFacts, drawing: Drawing) -> Panel:
    """List counts, sizes and bindings."""
    known = facts.time[~facts.time.isnan()]
    span = f"{when(float(known.min()))} to {when(float(known.max()))} UTC" if len(known) else "none"
    rows = {
        **facts.stats,
        "preset": facts.preset,
        "memories with a time": f"{len(known):,}",
        "times": span,
    }
    body = "".join(
        f"<dt>{escaped(key.replace('_', ' '))}</dt><dd>{escaped(_told(value))}</dd>"
        for key, value in rows.items()
    )
    return Panel("The store", (Html(f'<dl class="facts">{body}</dl>'),))


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_told(part)}" for key, part in value.items()) or "none"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return "none" if value is None else str(value)


PANELS: tuple[Callable[[ReportFacts, Drawing], Panel], ...] = (
    communities_panel,
    bridges_panel,
    frontiers_panel,
    regime_panel,
    spectrum_panel,
    laplacian_panel,
    modes_panel,
    store_panel,
)
"""Panels in the order of the page, as functions of the facts and the drawing."""
