"""What the store holds and what it is bound to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.markup import Html, escaped, number, when
from graphmem_torch.report.panels.panel import Panel

__all__ = ["store_panel"]


def store_panel(facts: Facts, drawing: Drawing) -> Panel:
    """Counts, sizes and bindings."""
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
