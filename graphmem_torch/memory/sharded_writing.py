"""Sharded writing: memories added, changed and deleted in the shards that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory.intake import changes_given
from graphmem_torch.memory.listed_vectors import ListedVectors
from graphmem_torch.memory.lookup import listed_ids
from graphmem_torch.memory.placing import places_of
from graphmem_torch.memory.shards import Shards
from graphmem_torch.memory.writing import Writing
from graphmem_torch.results import Added, Indexed
from graphmem_torch.store.shard_folder import shard_of
from graphmem_torch.text.times import TimeLike

__all__ = ["ShardedWriting", "joined_files"]


class ShardedWriting(Writing):
    """Writes to a memory of shards, all in this process; safe between threads.

    Each shard commits its own transactions: if a later shard fails, those of earlier ones stay.
    """

    def __init__(self, shards: Shards) -> None:
        """Load nothing yet."""
        super().__init__(shards.first)
        self._shards, self._states = shards, shards.states
        self._writings = [Writing(state) for state in shards.states]

    def _add_and_notify(
        self,
        places: Mapping[str, str],
        vectors: ListedVectors,
        replace: bool,
        part: Sequence[Atom],
    ) -> Added:
        """Store a batch, each atom in its shard; one that is stored already stays where it is."""
        routed: dict[int, list[Atom]] = {}
        for place, atom in zip(places_of(self._states, part), part, strict=True):
            if replace:
                self._expect_session(place, atom)
            routed.setdefault(place, []).append(atom)
        done, stored = Added(0, 0), dict[str, str]()
        for place, own in sorted(routed.items()):
            added = self._writings[place]._add_and_notify(places, vectors, replace, own)
            stored |= zip((atom.id for atom in own), added.ids, strict=True)
            done += added
        return Added(done.new, done.known, tuple(stored[atom.id] for atom in part))

    def add_document(
        self, text: str, *, name: str, time: TimeLike | None = None, title: str | None = None
    ) -> Added:
        """Cut a document into chunks and store them in its shard; see `Memory.add_document`."""
        named = name if isinstance(name, str) else ""
        place = shard_of(Atom("", "", session=named), self._shards.group.shards)
        return self._writings[place].add_document(text, name=name, time=time, title=title)

    def update(
        self,
        id: str | Mapping[str, Any],
        given: Mapping[str, Any] | None,
        changes: Mapping[str, Any],
    ) -> Atom:
        """Store a new version of an atom in its shard; see `Memory.update`.

        Raises:
            InputError: A session of another shard.
        """
        wanted, values = changes_given(id, given, changes)
        held = self._shards.holding([wanted], "id")
        place = next(place for place, own in enumerate(held) if own)
        if values.get("session") is not None:
            self._expect_session(place, Atom(wanted, "", session=values["session"]))
        return self._writings[place].update(id, given, changes)

    def _expect_session(self, place: int, atom: Atom) -> None:
        """Raise InputError if a new version has a session of another shard than its memory."""
        other = shard_of(atom, self._shards.group.shards)
        if atom.session is None or other == place:
            return
        store = self._states[place].store
        known = store.known(store.forms.ids([atom.id]))
        if [each.session for each in store.atoms([node for node, _ in known.values()])] == [
            atom.session
        ]:  # an import brought it here
            return
        raise InputError(
            f"session: expected one of shard {place}, which holds {atom.id!r:.80}, got one of "
            f"shard {other}: {atom.session!r:.80}; delete the memory, and add it again"
        )

    def delete(self, ids: str | Iterable[str]) -> int:
        """Delete atoms in their shards; checks all ids first. See `Memory.delete`."""
        self._store.expect_writable()
        held = self._shards.holding(listed_ids(self._store, ids))
        pairs = zip(self._writings, held, strict=True)
        return sum(writing.delete(own) for writing, own in pairs if own)


def joined_files(parts: Sequence[Indexed]) -> Indexed:
    """Return what became of files, from what each shard did: it takes a part of each of them."""
    values: dict[str, Any] = {}
    for field in fields(Indexed):
        each = [getattr(part, field.name) for part in parts]
        if isinstance(each[0], tuple):
            values[field.name] = tuple(dict.fromkeys(item for own in each for item in own))
        elif isinstance(each[0], int):
            values[field.name] = sum(each)
        else:  # each shard reads all of the files
            values[field.name] = max(each, key=lambda own: sum(own.values()))
    values["unchanged"] = min(part.unchanged for part in parts)
    values["changed"] = tuple(name for name in values["changed"] if name not in values["added"])
    return Indexed(**values)
