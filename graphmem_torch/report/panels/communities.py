"""The communities: how large, about what, and what is typical of each."""

from __future__ import annotations

from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.markup import Html, number, table
from graphmem_torch.report.panels.panel import NO_EDGES, Panel, community_cell, node_cell, paragraph

__all__ = ["communities_panel"]

_SHOWN = 25


def communities_panel(facts: Facts, drawing: Drawing) -> Panel:
    """A row for each of the largest communities."""
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
        said = f"{NO_EDGES} Each of them stands alone."
    elif len(sizes) - alone > _SHOWN:
        said += f" The {_SHOWN} largest are listed."
    columns = [("Community", "text"), ("nodes", "number"), ("links inside", "number")]
    listed = table("By size", [*columns, ("best linked memory", "text")], rows)
    return Panel("Communities", (paragraph(said), listed) if rows else (paragraph(said),))
