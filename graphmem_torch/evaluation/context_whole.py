"""Which memories stand whole in a compiled context: a source that was cut or lost is not kept."""

from __future__ import annotations

from collections.abc import Iterable

from graphmem_torch.atoms import Atom
from graphmem_torch.context.formats import Format
from graphmem_torch.results import Context

__all__ = ["kept_whole"]


def kept_whole(context: Context, atoms: Iterable[Atom], layout: Format) -> set[str]:
    """Ids of the sources among these atoms whose whole text the prompt holds.

    Looked for in the prompt as it would be sent; one that is longer than its budget keeps nothing.

    Args:
        context: As `Memory.compile` made it.
        atoms: Those that matter.
        layout: The format that it is written in.
    """
    if context.tokens > context.budget:
        return set()
    sources, kept = set(context.sources), set()
    for atom in atoms:
        if atom.id in sources:
            # An entry without its number: only the text is known before the place is.
            entry = layout.entry(1, atom, atom.rendered).partition(" ")[2].rstrip(",\n")
            if entry in context.text:
                kept.add(atom.id)
    return kept
