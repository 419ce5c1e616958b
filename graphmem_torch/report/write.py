"""write_report: a memory as one page that needs no network."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.errors import InputError, output_file
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.report.contents import ReportFacts, ReportInput, gather
from graphmem_torch.report.drawing import Drawing, draw
from graphmem_torch.report.markup import escaped, number, script_json
from graphmem_torch.report.panels import PANELS, paragraph, questions_panel

__all__ = ["Report", "checked_target", "write_report"]

_SLOT = lazy_pattern(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class Report:
    """Summary of a written report.

    Attributes:
        path: The file.
        bytes: Size of the file.
        nodes, edges: Numbers in the store.
        drawn_nodes, drawn_edges: Numbers on the page.
        communities: Number of communities.
        modes: Number of modes.
        alarms: Number of regime switches detected.
    """

    path: str
    bytes: int
    nodes: int
    edges: int
    drawn_nodes: int
    drawn_edges: int
    communities: int
    modes: int
    alarms: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def write_report(
    data: ReportInput,
    path: str | os.PathLike[str],
    *,
    limit: int = 50_000,
    most_edges: int = 150_000,
    iterations: int = 100,
) -> Report:
    """Write the report of a memory.

    Args:
        data: Contents of the memory.
        path: File to write, replaced atomically.
        limit: Maximum nodes to draw, the best linked first; the page notes the rest.
        most_edges: Maximum edges on the page, each node's strongest first.
        iterations: Steps of the layout, as for `layout`.

    Raises:
        InputError: See `checked_target`.
        OSError: The file cannot be written.
    """
    target = checked_target(path, limit)
    facts = gather(data)
    drawing = draw(facts, limit=limit, most_edges=most_edges, iterations=iterations)
    content = _page(facts, drawing).encode("utf-8")
    _write(target, content)
    return Report(
        path=str(target),
        bytes=len(content),
        nodes=facts.num_nodes,
        edges=facts.graph.num_edges,
        drawn_nodes=drawing.data["nodes"],
        drawn_edges=drawing.data["edges"]["count"] if drawing.data["nodes"] else 0,
        communities=len(facts.sizes),
        modes=len(facts.modes) if facts.modes is not None else 0,
        alarms=int(facts.regime.alarm.sum()) if facts.regime is not None else 0,
    )


def checked_target(path: str | os.PathLike[str], limit: int) -> Path:
    """Return the file of a report, checked before anything is computed.

    Raises:
        InputError: The path is a folder or its folder does not exist, or the limit is out of range.
    """
    target = output_file(path)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 200_000:
        raise InputError(
            f"limit: expected a number of nodes from 1 to 200,000, got {limit!r:.60}; try 50000"
        )
    return target


def _write(target: Path, content: bytes) -> None:
    """Replace a file atomically; write to pipes and devices directly."""
    place = Path(os.path.realpath(target))  # keeps a symbolic link
    if place.exists() and not place.is_file():
        place.write_bytes(content)
        return
    partial = place.with_name(f".{place.name[:200]}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)


def _page(facts: ReportFacts, drawing: Drawing) -> str:
    from graphmem_torch.version import __version__

    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    tiles = {
        "memories": len(facts.atom),
        "concepts": facts.stats["kinds"].get(CONCEPT, 0),
        "edges": facts.graph.num_edges,
        "communities": len(facts.sizes),
        "modes": len(facts.modes) if facts.modes is not None else 0,
        "alarms": int(facts.regime.alarm.sum()) if facts.regime is not None else 0,
    }
    builders = (questions_panel, *PANELS) if facts.results else PANELS
    panels = [build(facts, drawing) for build in builders]
    return _filled(
        "page.html",
        title=escaped(f"{facts.name}: graphmem report"),
        css=_asset("page.css"),
        heading=escaped(facts.name),
        subtitle=escaped(f"What this memory contains and how it is connected · {now}"),
        tiles="".join(
            f"<div><dt>{name}</dt><dd>{number(count)}</dd></div>" for name, count in tiles.items()
        ),
        graph=_graph(facts, drawing),
        panels="\n".join(panel.html(f"panel{i}") for i, panel in enumerate(panels)),
        footer=escaped(f"Written by graphmem {__version__}, {now}. This page loads nothing."),
        data=script_json(drawing.data),
        js=_asset("page.js"),
    )


def _graph(facts: ReportFacts, drawing: Drawing) -> str:
    if not drawing.data["nodes"]:
        said = paragraph(
            "The store is empty: there is no graph to draw yet. `graphmem index` fills it."
        )
        return f"<section><h2>The graph</h2>{said.text}</section>"
    label = (
        f"Picture of the graph: {drawing.data['nodes']:,} memories as dots in "
        f"{len(facts.sizes):,} communities; the tables below list what matters in it"
    )
    notes = list(drawing.notes)
    if not facts.graph.num_edges:
        notes.insert(0, "The memories have no edges yet: each of them is isolated.")
    return _filled(
        "graph.html",
        label=escaped(label),
        notes=paragraph(" ".join(notes)).text if notes else "",
    )


def _filled(name: str, **values: str) -> str:
    """Fill the slots of a template; filled-in text is not scanned again."""
    return _SLOT.sub(lambda slot: values[slot[1]], _asset(name))


def _asset(name: str) -> str:
    return (files("graphmem_torch.report") / "page" / name).read_text(encoding="utf-8")
