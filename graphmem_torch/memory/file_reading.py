"""Reading of one file in batches, of which some may be read before its turn."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from graphmem_torch.atoms import Atom
from graphmem_torch.memory.encoder_thread import Unit
from graphmem_torch.memory.intake import batched
from graphmem_torch.readers.unit_rows import InlineVectors

__all__ = ["FileReading", "ReadingNotes"]


@dataclass
class ReadingNotes:
    """Notes that reading makes beside the atoms.

    Attributes:
        skipped: Errors of files and lines that are left out.
        losses: Number of things that could not be kept, by kind.
        origins: File and line by id of atom.
        inline: Embeddings in the lines by id of atom.
    """

    inline: InlineVectors
    skipped: list[str] = field(default_factory=list)
    losses: Counter[str] = field(default_factory=Counter)
    origins: dict[str, str] = field(default_factory=dict)

    def taken(self) -> ReadingNotes:
        """Return the notes as others, and empty these."""
        other = ReadingNotes(self.inline.empty())
        self.move_into(other)
        return other

    def move_into(self, other: ReadingNotes) -> None:
        """Add the notes to others, and empty them."""
        other.skipped += self.skipped
        other.losses += self.losses
        other.origins |= self.origins
        for name, row in self.inline.items():
            other.inline.setdefault(name, row)
        for notes in (self.skipped, self.losses, self.origins, self.inline):
            notes.clear()


class FileReading:
    """Atoms of a file; batches read ahead keep their notes until their turn.

    Attributes:
        units: Batches that were read ahead, as the stages have them.
    """

    def __init__(self, atoms: Iterator[Atom], notes: ReadingNotes, size: int) -> None:
        """Read nothing yet.

        Args:
            atoms: Atoms of the file, read when they are asked for.
            notes: Notes that reading them adds to.
            size: Atoms of a batch.
        """
        self.units: list[Unit] = []
        self._notes, self._batches = notes, batched(atoms, size)
        self._ahead = deque[tuple[list[Atom], ReadingNotes, Exception | None]]()

    def read_ahead(self) -> tuple[list[Atom], InlineVectors]:
        """Read the next batch before its turn; an error waits for it.

        Returns:
            The batch, empty at the end, and the embeddings in its lines.
        """
        batch, error = list[Atom](), None
        try:
            batch = next(self._batches, [])
        except Exception as raised:
            error = raised
        notes = self._notes.taken()
        self._ahead.append((batch, notes, error))
        return batch, notes.inline

    def atoms(self, notes: ReadingNotes) -> Iterator[Atom]:
        """Yield all atoms, and add the notes on a batch before its first atom.

        Raises:
            InputError: The file cannot be read, or is no file of its format.
        """
        while True:
            if not self._ahead:
                self.read_ahead()
            batch, own, error = self._ahead.popleft()
            own.move_into(notes)
            yield from batch
            if error is not None:
                raise error
            if not batch:
                return
