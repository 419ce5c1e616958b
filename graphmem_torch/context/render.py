"""Rendering: memories in their order as one text, under headers or each with its label."""

from __future__ import annotations

from collections.abc import Sequence

from graphmem_torch.atoms import Atom
from graphmem_torch.context.formats import Format
from graphmem_torch.context.labels import label_of

__all__ = ["UNLABELLED", "render"]

UNLABELLED = "Undated"
"""Header of what has no label, behind something that has one."""


def render(
    layout: Format, atoms: Sequence[Atom], texts: Sequence[str] | None = None, *, inline: bool
) -> str:
    """The memories as a context, without the prompt around it.

    Args:
        layout: How entries and headers are written.
        atoms: In their order; the first is cited as 1.
        texts: What is written of each; by default the whole of it.
        inline: Whether each entry bears its label. Otherwise it is a header wherever it changes.
    """
    written = [atom.rendered for atom in atoms] if texts is None else texts
    pieces: list[str] = []
    over: str | None = None
    for number, (atom, text) in enumerate(zip(atoms, written, strict=True), start=1):
        label = label_of(atom) if layout.grouped else None
        if not inline and label != over:
            pieces.append(layout.headed(label or UNLABELLED))
            over = label
        pieces.append(layout.entry(number, atom, text, label if inline else None))
    return layout.joined(pieces)
