"""Memory: the application object, a store on disk with an embedder and the current index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory.answering import AnsweringMemory
from graphmem_torch.memory.learned import LearnedMemory
from graphmem_torch.memory.linked import LinkedMemory
from graphmem_torch.memory.themed import ThemedMemory
from graphmem_torch.memory.typed import TypedMemory
from graphmem_torch.memory.writer import Added, Writer, as_atom
from graphmem_torch.readers.read import document_atoms

if TYPE_CHECKING:
    from graphmem_torch.report import Report

__all__ = ["Memory"]


class Memory(LinkedMemory, ThemedMemory, LearnedMemory, TypedMemory, AnsweringMemory):
    """Long-term memory: `add` atoms, `retrieve` for a batch of questions, `compile` a context.

    What `add` has returned for is on disk for good. Retrieval sees everything that was added before
    it.
    """

    def add(
        self,
        atoms: Atom | str | Mapping[str, Any] | Iterable[Atom | str | Mapping[str, Any]],
        *,
        progress: bool = False,
        origins: Mapping[str, str] | None = None,
    ) -> Added:
        """Stores and links atoms, a batch at a time.

        Each batch is one transaction; after an error the ones before stay.

        Args:
            atoms: Atoms, texts, or mappings with the fields of a line of JSON lines. An id that is
                stored already with the same content is passed over, so that an interrupted run can
                be repeated.
            progress: Shows a bar on stderr.
            origins: For ids of atoms, where they came from, for messages; may be filled while the
                atoms are read.

        Raises:
            InputError: Empty text, an id that is stored with other content, an unusable field.
            EmbedderError, StoreError: As they say.
        """
        from tqdm import tqdm

        if isinstance(atoms, (Atom, str, Mapping)):
            atoms = [atoms]
        if not isinstance(atoms, Iterable):
            raise InputError(f"expected atoms, texts or mappings, got {atoms!r}")
        if self._writer is None:
            self._writer = Writer(self.store, self.embedder, self.config.link)
            self._writer.stored = self._watched
        places = {} if origins is None else origins  # it may be filled as the atoms are read
        done = Added(0, 0)
        with tqdm(desc="index", unit=" atoms", disable=None if progress else True) as bar:
            for added in self._writer.batches(map(as_atom, atoms), places):
                done += added
                bar.update(added.new + added.known)
        self._writer.warn_of_unresolved()
        return done

    def add_document(self, text: str, *, name: str, time: float | None = None) -> Added:
        """Cuts a document into chunks and stores them in the session `name`, ids `name#0`, ..."""
        return self.add(
            document_atoms(
                text,
                name=name,
                tokenizer=self.chunker,
                max_tokens=self.config.embedder.max_tokens,
                time=time,
            )
        )

    def report(self, path: str | os.PathLike[str], *, limit: int = 50_000) -> Report:
        """Writes one self-contained HTML page about the memory; see `report.write_report`."""
        from graphmem_torch.report import write_report

        return write_report(self, path, limit=limit)
