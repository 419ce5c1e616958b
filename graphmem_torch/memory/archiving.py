"""Archiving: moving atoms to the archive of a memory, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphmem_torch.errors import InputError
from graphmem_torch.memory.archive import (
    carry_insights,
    expect_apart,
    keep_ties,
    restore_ties,
    state_validity,
    superseded_with,
    superseding_with,
    ties_of,
)
from graphmem_torch.memory.lookup import listed_ids
from graphmem_torch.memory.transfer import copy_atoms
from graphmem_torch.memory.writing import Writing

__all__ = ["archive_nodes", "restore_atoms"]


def archive_nodes(writing: Writing, chosen: Sequence[int]) -> int:
    """Move atoms to the archive with what they superseded; in the turn. Returns their number.

    Raises:
        InputError: An archived atom has the same id and other content, or the memory is an archive.
    """
    state = writing.state
    nodes = superseded_with(state.store, chosen)
    if nodes:
        archive = state.archive(create=True)
        assert archive is not None
        moving = expect_apart(state.store, nodes, archive.store)
        keep_ties(archive.store, ties_of(state.store, nodes))
        copy_atoms(state, moving, archive)
        carry_insights(state.store, nodes, archive.store)
        state_validity(archive.store)
        writing.remove(nodes, deleted=False)
    return len(nodes)


def restore_atoms(writing: Writing, ids: str | Iterable[str]) -> int:
    """Move archived atoms back with what superseded them; returns their number.

    See `Upkeep.restore`.
    """
    state = writing.state
    state.store.expect_writable()
    archive = state.archive()
    if archive is None:
        raise InputError(
            f"ids: expected ids of archived atoms, got {ids!r:.80}, and nothing is archived; "
            "what was forgotten cannot come back"
        )
    with state.turn(), archive.store.turn():
        listed = listed_ids(archive.store, ids)
        missing = next((name for name in listed if not archive.has(name)), None)
        if missing is not None:
            raise InputError(
                f"ids: expected ids of archived atoms, got {missing!r:.80}, which is not in "
                "the archive; what was forgotten cannot come back"
            )
        named, nodes = archive.resolve_ids(superseding_with(archive.store, listed), hidden=())
        copy_atoms(archive, expect_apart(archive.store, nodes, state.store), state)
        # The archive still has them: an interrupted call can be repeated.
        carry_insights(archive.store, nodes, state.store)
        restore_ties(state.store, archive.store)
        Writing(archive).remove(nodes, deleted=False)
        state.note_uses([node for node, _ in state.store.known(named).values()])
    return len(nodes)
