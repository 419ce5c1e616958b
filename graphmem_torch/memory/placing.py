"""Placing: the store of each atom in a memory of one store or of shards."""

from __future__ import annotations

from collections.abc import Sequence

from graphmem_torch.atoms import Atom
from graphmem_torch.memory.state import State
from graphmem_torch.store.shard_folder import shard_of
from graphmem_torch.text.unicode_forms import composed

__all__ = ["places_of"]


def places_of(states: Sequence[State], atoms: Sequence[Atom]) -> list[int]:
    """Return the place of the store that each atom belongs to.

    An atom that is stored already stays where it is. All versions of one go where the first does.

    Args:
        states: The only store of a memory, or all of its shards.
        atoms: Atoms, stored or not.
    """
    if len(states) == 1:
        return [0] * len(atoms)
    ids = [atom.id for atom in atoms]
    at: dict[str, int] = {}
    for place, state in enumerate(states):
        forms = state.store.forms.ids(ids)
        known = state.store.known(forms)
        at |= {name: place for name, form in zip(ids, forms, strict=True) if form in known}
    first: dict[str, int] = {}
    return [
        at[atom.id]
        if atom.id in at
        else first.setdefault(composed(atom.id), shard_of(atom, len(states)))
        for atom in atoms
    ]
