"""Additions to a memory: counts, pages of atoms, indexed files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from graphmem_torch.atoms import Atom

__all__ = ["Added", "Indexed", "Page"]


@dataclass(frozen=True, slots=True)
class Added:
    """What an `add` or a `connect` did.

    Attributes:
        new: Atoms, or edges, stored.
        known: Those there already: atoms of the same content, edges as strong or more.
        ids: Ids of the atoms in the order of the input, also of those that were there already.
            Messages in `skipped` have none; edges neither. Not compared, and not printed.
        skipped: Messages that were left out: the place of each in the input, and why.
        losses: What could not be kept of the input, by kind: parts of messages without text
            (images, calls without arguments), halves of surrogate pairs that were replaced.
    """

    new: int
    known: int
    ids: tuple[str, ...] = field(default=(), compare=False, repr=False)
    skipped: tuple[str, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __add__(self, other: Added) -> Added:
        """Both together."""
        return Added(
            self.new + other.new,
            self.known + other.known,
            self.ids + other.ids,
            self.skipped + other.skipped,
            dict(Counter(self.losses) + Counter(other.losses)),
        )


@dataclass(frozen=True, slots=True)
class Page(Sequence[Atom]):
    """Atoms in an order, by `Memory.list`; a sequence of them.

    Attributes:
        atoms: The atoms.
        next: Value of `after` for the page after this one; None if this is the last.
    """

    atoms: tuple[Atom, ...]
    next: str | None = None

    @overload
    def __getitem__(self, place: int) -> Atom: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Atom, ...]: ...

    def __getitem__(self, place: int | slice) -> Atom | tuple[Atom, ...]:
        """An atom by its place, or several."""
        return self.atoms[place]

    def __len__(self) -> int:
        """How many atoms it has."""
        return len(self.atoms)


@dataclass(frozen=True, slots=True)
class Indexed:
    """What `Memory.add_files` did, or would do.

    Attributes:
        new: Memories stored.
        known: Memories that were there already, and stay.
        replaced: Memories that say something else now, under their ids.
        deleted: Memories that no file says any more.
        unchanged: Number of files that say what they said.
        added, changed: Names of files that are new, or say something else.
        moved: Names of files before and now.
        gone: Names of files that are no more; their memories are kept.
        pruned: Names of files that are no more; their memories are deleted.
        skipped: What was wrong with files and lines that were left out.
        losses: What could not be kept of the files that were read, by kind, as in `Added`; of
            exports of chats also messages of the program, and those that cannot be read.
    """

    new: int = 0
    known: int = 0
    replaced: int = 0
    deleted: int = 0
    unchanged: int = 0
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    gone: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict, hash=False)
