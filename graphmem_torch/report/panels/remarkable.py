"""Bridges and frontiers: the links and the memories that stand out by where they are."""

from __future__ import annotations

import math

from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.markup import Html, number, table
from graphmem_torch.report.panels.panel import NO_EDGES, Panel, node_cell, paragraph

__all__ = ["bridges_panel", "frontiers_panel"]


def bridges_panel(facts: Facts, drawing: Drawing) -> Panel:
    """The links between communities that the graph would miss the most."""
    title = "Bridges"
    found = facts.structure.bridges
    if not len(found):
        none = "No edge joins two communities." if facts.graph.num_edges else NO_EDGES
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


def frontiers_panel(facts: Facts, drawing: Drawing) -> Panel:
    """The remote memories with little that ties them to the rest."""
    title = "Frontiers"
    found = facts.structure.frontiers
    if not len(found):
        return Panel(title, (paragraph(NO_EDGES),))
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
