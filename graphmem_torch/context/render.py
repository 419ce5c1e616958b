"""Rendering: memories as numbered entries with their sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from graphmem_torch.results import Hit

__all__ = ["SEPARATOR", "render", "render_entry"]

SEPARATOR = "\n---\n"


def render_entry(hit: Hit) -> str:
    """One memory: a line that names its source, then its text.

    `[D1:3 | session_1 | 2023-05-08 13:56 UTC]`
    """
    parts = [hit.id]
    if hit.session is not None:
        parts.append(hit.session)
    if hit.time is not None:
        parts.append(f"{datetime.fromtimestamp(hit.time, UTC):%Y-%m-%d %H:%M} UTC")
    return f"[{' | '.join(parts)}]\n{hit.text}"


def render(entries: Sequence[str]) -> str:
    """The entries with a separator between them."""
    return SEPARATOR.join(entries)
