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
    """Outcome of an `add` or a `connect`.

    Attributes:
        new: Number of atoms or edges stored.
        known: Number already stored: atoms of the same content, edges at least as strong.
        ids: Ids of all atoms, new and known, in the order of the input. Messages in `skipped` and
            edges have none. Neither compared nor printed.
        skipped: Messages left out: the place of each in the input, and the reason.
        losses: Counts of content that could not be kept, by kind: message parts without text
            (images, calls without arguments), unpaired surrogates that were replaced.
    """

    new: int
    known: int
    ids: tuple[str, ...] = field(default=(), compare=False, repr=False)
    skipped: tuple[str, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __add__(self, other: Added) -> Added:
        """Add the counts of two calls."""
        return Added(
            self.new + other.new,
            self.known + other.known,
            self.ids + other.ids,
            self.skipped + other.skipped,
            dict(Counter(self.losses) + Counter(other.losses)),
        )


@dataclass(frozen=True, slots=True)
class Page(Sequence[Atom]):
    """One page of atoms from `Memory.list`; a sequence.

    Attributes:
        atoms: The atoms.
        next: Value of `after` for the next page; None on the last page.
    """

    atoms: tuple[Atom, ...]
    next: str | None = None

    @overload
    def __getitem__(self, place: int) -> Atom: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Atom, ...]: ...

    def __getitem__(self, place: int | slice) -> Atom | tuple[Atom, ...]:
        """Return one atom, or the atoms of a slice."""
        return self.atoms[place]

    def __len__(self) -> int:
        """Return the number of atoms."""
        return len(self.atoms)


@dataclass(frozen=True, slots=True)
class Indexed:
    """Outcome of `Memory.add_files`, or of its dry run.

    Attributes:
        new: Number of memories stored.
        known: Number of memories that were stored already.
        replaced: Number of memories with a new text under the same id.
        deleted: Number of memories deleted because no file contains them any more.
        kept_vectors: Number of known memories that keep another vector than the given one.
        unchanged: Number of files with the same content as before.
        added, changed: Names of new files, and of files with other content.
        moved: Pairs of the former and the current name of a file.
        gone: Names of missing files whose memories are kept.
        pruned: Names of missing files whose memories are deleted.
        skipped: Problems of the files and lines that were left out.
        losses: Counts of content that could not be kept, by kind, as in `Added`. For chat exports
            also service messages and unreadable ones.
    """

    new: int = 0
    known: int = 0
    replaced: int = 0
    deleted: int = 0
    kept_vectors: int = 0
    unchanged: int = 0
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    gone: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict, hash=False)
