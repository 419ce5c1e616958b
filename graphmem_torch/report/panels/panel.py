"""Panel: one part of the page, and what all panels write in the same way."""

from __future__ import annotations

from dataclasses import dataclass

from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.markup import Html, clipped, escaped

__all__ = ["NO_EDGES", "Panel", "community_cell", "node_cell", "paragraph"]

NO_EDGES = "The memories have no edges yet."
"""Said where a panel is about edges and there are none."""

_TEXT = 140


@dataclass(frozen=True)
class Panel:
    """One part of the page.

    Attributes:
        title: Its heading.
        body: Its content.
        wide: Whether it takes the whole width.
    """

    title: str
    body: tuple[Html, ...]
    wide: bool = False

    def html(self, key: str) -> str:
        """As a section, `key` its id."""
        kind = ' class="wide"' if self.wide else ""
        body = "".join(part.text for part in self.body)
        return (
            f'<section id="{key}"{kind} aria-labelledby="{key}-title">'
            f'<h2 id="{key}-title">{escaped(self.title)}</h2>{body}</section>'
        )


def paragraph(text: str) -> Html:
    """A line of explanation."""
    return Html(f'<p class="note">{escaped(text)}</p>')


def node_cell(facts: Facts, drawing: Drawing, node: int) -> Html:
    """A memory's text, as a button that shows it in the graph where it is drawn there."""
    text = escaped(clipped(facts.texts[node], _TEXT))
    place = int(drawing.place[node])
    if place < 0:
        return Html(text)
    return Html(f'<button type="button" class="goto" data-node="{place}">{text}</button>')


def community_cell(facts: Facts, community: int) -> Html:
    """A community's colour and name."""
    name = facts.names[community] or f"community {community + 1}"
    return Html(
        f'<span class="swatch" data-community="{community}"></span>{escaped(clipped(name, 60))}'
    )
