"""Memory types: pinned memories, what is used stays strong, what is not decays."""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from graphmem_torch.errors import InputError
from graphmem_torch.memory.ask import moment
from graphmem_torch.memory.classifying import Classified, classify_nodes, open_nodes
from graphmem_torch.memory.core import MemoryCore
from graphmem_torch.memory.link import concept_id
from graphmem_torch.memory.stated import nodes_of
from graphmem_torch.oracle import classifier_of

__all__ = ["TypedMemory"]


class TypedMemory(MemoryCore):
    """What can be said and asked of the life of memories (`docs/mathematics.md` 6)."""

    def pin(self, ids: str | Sequence[str]) -> None:
        """Pins atoms: `compile` puts them into every context, and they do not decay.

        On disk for good when it returns.

        Raises:
            InputError: An id that is not stored; nothing is pinned then.
            StoreError: Read-only store or full disk; likewise.
        """
        self.store.life.set_pins(self._named(ids)[1], True)

    def unpin(self, ids: str | Sequence[str]) -> None:
        """Takes pins back, also of procedural memories, which are pinned from the start.

        Raises:
            InputError: An id that is not stored; nothing is unpinned then.
            StoreError: Read-only store or full disk; likewise.
        """
        self.store.life.set_pins(self._named(ids)[1], False)

    def pinned(self) -> list[str]:
        """Ids of the pinned atoms, in the order of storing.

        Those that were pinned, and those whose stated type is `procedural`, but for those that were
        unpinned. A type that was only found by a classifier pins nothing: one wrong guess would
        take a part of every context.
        """
        return self.store.life.pinned()

    def touch(self, ids: str | Sequence[str], *, when: float | None = None) -> None:
        """Notes that atoms were used: their decay starts anew.

        Args:
            ids: Of stored atoms.
            when: Seconds since the epoch UTC; now by default.

        Raises:
            InputError: An id that is not stored, or a time that is not finite.
            StoreError: Read-only store or full disk.
        """
        now = clock.time() if when is None else moment("when", when)
        nodes = self._named(ids)[1]
        if nodes:
            self.store.log_access(nodes, now)

    def types(self, ids: str | Sequence[str]) -> dict[str, str | None]:
        """The memory type of each atom: its own, else the one that was found.

        None where none is known: `decay.classify` says whether the local rules look at new text.

        Raises:
            InputError: An id that is not stored.
        """
        named, nodes = self._named(ids)
        found = self._life.types(torch.tensor(nodes, dtype=torch.int64))
        return dict(zip(named, found, strict=True))

    def strength(self, ids: str | Sequence[str], *, as_of: float | None = None) -> dict[str, float]:
        """S(t) = S_0 e^{-lambda t} + beta C(n) of each atom (`docs/mathematics.md` 6).

        t is the time since its last access, C(n) its PageRank relative to the largest of any atom;
        the constants are those of the settings under `decay`.

        Args:
            ids: Of stored atoms.
            as_of: The moment that counts as now, seconds since the epoch UTC.

        Raises:
            InputError: An id that is not stored, or a moment that is not finite.
        """
        now = None if as_of is None else moment("as_of", as_of)
        named, nodes = self._named(ids)
        if not named:
            return {}
        own = self.config.decay
        left = self._life.retention(torch.tensor(nodes), now)
        rows = self.rows_of(named)  # an index of later has them at the same place
        central = self.index.pagerank.cpu().float()[rows]
        values = own.initial * left + own.centrality * central
        return dict(zip(named, values.tolist(), strict=True))

    def classify(
        self,
        oracle: Any = None,
        ids: str | Sequence[str] | None = None,
        *,
        progress: bool = False,
    ) -> Classified:
        """Finds the memory types of atoms that state none.

        An oracle is asked through the contract of ContextOS, {content, type, decay_factor per
        hour}; what it answers is checked, and where it does not answer, or not in that form, the
        local rules do. What is found changes how an atom decays, never its content.

        Args:
            oracle: An object with `classify(texts)`, or such a function; by default the rules of
                `text.memory_type`.
            ids: Atoms to look at; by default all that neither state a type nor have one from an
                oracle. A type that an atom states is never looked at.
            progress: Shows a bar on stderr.

        Raises:
            InputError: No oracle, or an id that is not stored.
            StoreError: Read-only store or full disk; what earlier calls gave is kept.
        """
        from tqdm import tqdm

        asked = None if oracle is None else classifier_of(oracle)
        if ids is None:
            nodes = open_nodes(self.store)
        else:
            wanted = self._named(ids)[1]
            atoms = self.store.atoms(wanted)
            nodes = [node for node, atom in zip(wanted, atoms, strict=True) if atom.type is None]
        done = Classified()
        with tqdm(total=len(nodes), desc="classify", disable=None if progress else True) as bar:
            for part in classify_nodes(self.store, asked, nodes):
                done += part
                bar.update(sum(part.types.values()))
        return done

    def _named(self, ids: str | Sequence[str]) -> tuple[list[str], list[int]]:
        """Ids of stored atoms, each once, in the order given, and their node numbers."""
        if not isinstance(ids, Iterable):
            raise InputError(f"ids: expected ids of atoms, got {ids!r:.80}")
        listed = [ids] if isinstance(ids, str) else list(ids)
        found = nodes_of(self.store, listed)
        named = list(dict.fromkeys(listed))
        concept = next((name for name in named if name.startswith(concept_id(""))), None)
        if concept is not None:
            raise InputError(f"expected ids of memories, got the concept {concept!r}; leave it out")
        return named, [found[name] for name in named]
