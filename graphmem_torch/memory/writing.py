"""Writing: adding, changing and deleting the atoms of one memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_flag
from graphmem_torch.errors import InputError
from graphmem_torch.memory.archive import keep_ties
from graphmem_torch.memory.intake import (
    Intake,
    batched,
    changed_atom,
    changes_given,
    checked,
    digest_of,
    with_expiry,
)
from graphmem_torch.memory.known_vectors import NOTHING_KNOWN, KnownVectors
from graphmem_torch.memory.listed_vectors import ListedVectors
from graphmem_torch.memory.lookup import with_derived
from graphmem_torch.memory.state import State
from graphmem_torch.memory.writer import Writer
from graphmem_torch.progress import Progress
from graphmem_torch.readers.messages import is_object
from graphmem_torch.readers.read import document_atoms
from graphmem_torch.results import Added, RegimeSwitch
from graphmem_torch.store import Batch
from graphmem_torch.text.times import DurationLike, TimeLike, parse_time

__all__ = ["Given", "Writing"]

Given = Atom | str | Mapping[str, Any]
"""A memory as a caller gives it."""

_SWEPT = 1024  # expired memories deleted in one turn


class Writing:
    """Writes to one memory; safe between threads."""

    def __init__(self, state: State) -> None:
        """Load nothing yet.

        Args:
            state: State of the memory.
        """
        self.state = state
        self._store = state.store
        self._states = [state]  # of all shards

    def add(
        self,
        atoms: Given | Iterable[Given],
        *,
        session: str | None = None,
        key: str | None = None,
        embeddings: Any = None,
        progress: bool = False,
        origins: Mapping[str, str] | None = None,
        expires: TimeLike | None = None,
        ttl: DurationLike | None = None,
        replace: bool = False,
    ) -> Added:
        """Store and link atoms, batch by batch; see `Memory.add`."""
        self._store.expect_writable()
        check_flag("replace", replace)
        if isinstance(atoms, (Atom, str, Mapping)) or is_object(atoms):
            atoms = [cast("Mapping[str, Any]", atoms)]
        if not isinstance(atoms, Iterable):
            raise InputError(f"atoms: expected atoms, texts or mappings, got {atoms!r:.80}")
        places = {} if origins is None else origins  # it may fill while the atoms are read
        if key is not None:
            if not (isinstance(key, str) and key.strip()):
                said = f"key: expected a name of this call, got {key!r:.80}; leave it out"
                raise InputError(said)
            key = self._store.keyed.stored(key)
        vectors = ListedVectors(embeddings, self._store.dim)
        listed = isinstance(atoms, (list, tuple))
        if isinstance(atoms, (list, tuple)):
            vectors.expect_count(len(atoms))
        intake = Intake(session, key, expires, ttl, vectors)
        made = intake.atoms(atoms if listed else vectors.counted(atoms))
        if listed and embeddings is not None:
            made = iter(list(made))  # so that nothing is stored before a missing vector is found
        whole: list[Atom] = []
        if key is not None:
            whole = list(made)
            for atom in whole:
                digest_of(atom)  # raises an error that names what JSON cannot hold
            if any(each.store.keyed.used(key, whole) for each in self._states):
                ids = self._store.forms.ids([atom.id for atom in whole])
                return Added(0, len(whole), tuple(ids)) + intake.report()
            made = iter(whole)
        done = Added(0, 0)
        add = partial(self._add_and_notify, places, vectors, replace)
        with Progress(what="index", unit="atoms", shown=progress) as bar:
            for batch in batched(made, self.state.config.link.batch_atoms):
                done += intake.store(batch, add)
                bar.update(len(batch))
        if not listed:
            vectors.expect_count()
        if key is not None:
            for each in self._states:
                each.store.keyed.put(key, whole, done.ids)
        for each in self._states:
            each.warn_of_unresolved()
        return done + intake.report()

    def _add_and_notify(
        self,
        places: Mapping[str, str],
        vectors: ListedVectors,
        replace: bool,
        part: Sequence[Atom],
    ) -> Added:
        atoms = self._store.forms.adopt(part)
        known = vectors.known(part).renamed(part, atoms)
        added, switches = self.add_batch(atoms, places, known=known, replace=replace)
        vectors.release(part)
        self.state.regimes.notify(switches)
        return added

    def add_batch(
        self,
        atoms: list[Atom],
        places: Mapping[str, str],
        writer: Writer | None = None,
        known: KnownVectors = NOTHING_KNOWN,
        *,
        replace: bool = False,
    ) -> tuple[Added, list[RegimeSwitch]]:
        """Store one batch in a transaction.

        Args:
            atoms: Atoms in the order of storing.
            places: File and line that atoms came from by id, for messages.
            writer: Writer to use instead of that of the memory.
            known: Vectors that are not encoded.
            replace: Whether an atom whose id is stored becomes its new version.

        Returns:
            The stored atoms, and the regime switches in them, of which nobody is notified yet.
        """
        now = self.state.clock()
        atoms = [with_expiry(atom, now) for atom in atoms]
        self.make_room([atom.id for atom in atoms])
        own = writer or self.state.writer()
        fresh, switches = (own.put if replace else own.add)(atoms, places, now, known)
        self._store.uses.settle()
        done = Added(len(fresh), len(atoms) - len(fresh), tuple(atom.id for atom in atoms))
        return done, switches

    def add_document(
        self, text: str, *, name: str, time: TimeLike | None = None, title: str | None = None
    ) -> Added:
        """Cut a document into chunks and store them; see `Memory.add_document`."""
        size = self.state.config.embedder.max_tokens
        when = None if time is None else parse_time(time)
        cut = document_atoms(
            text, name=name, tokenizer=self.state.chunker, max_tokens=size, time=when, title=title
        )
        losses: Counter[str] = Counter()
        chunks = [checked(chunk, losses) for chunk in cut]
        known = self._store.known([chunk.id for chunk in chunks])
        bare = [replace(chunk, title=None) for chunk in chunks]  # as earlier releases stored them
        added = self.add(
            old if known.get(old.id, (0, ""))[1] == old.digest else new
            for old, new in zip(bare, chunks, strict=True)
        )
        return added + Added(0, 0, losses=losses)

    def update(
        self,
        id: str | Mapping[str, Any],
        given: Mapping[str, Any] | None,
        changes: Mapping[str, Any],
    ) -> Atom:
        """Store a new version of an atom; see `Memory.update`."""
        self._store.expect_writable()
        wanted, values = changes_given(id, given, changes)
        name = self.state.resolve_ids(wanted)[0][0]
        now = self.state.clock()

        def change(atom: Atom) -> Atom:
            return with_expiry(changed_atom(atom, values), now)

        expiry = values.keys() & {"expires", "ttl"}
        if not expiry or len(expiry) < len(values):
            atom = self.state.writer().update(name, change, now)
            if not expiry or change(atom) == atom:
                return atom
        with self._store.turn():  # of equal content: no version is made
            nodes = self.state.resolve_ids(name)[1]
            atom = change(*self._store.atoms(nodes))
            self._store.expiry.put(nodes[0], atom.expires, atom.ttl)
        return atom

    def delete(self, ids: str | Iterable[str]) -> int:
        """Delete atoms, all or none, and return their number; see `Memory.delete`."""
        with self.state.turn():
            named, nodes = self.state.resolve_ids(ids, hidden=())
            self.remove(nodes)
            self.drop_archive_links(named)
        return len(nodes)

    def make_room(self, ids: Sequence[str]) -> None:
        """Delete atoms of these ids that have expired, and what is derived from them alone."""
        if not self._store.expiry.hidden() or not self._store.known(ids):
            return
        with self.state.turn():
            hidden = self._store.expiry.hidden()
            there = {node for node, _ in self._store.known(ids).values()} & hidden
            if there:
                self._sweep(sorted({*with_derived(self._store, sorted(there))} & hidden))

    def sweep(self) -> int:
        """Delete what has expired, and return its number; what is derived goes with the first."""
        count = 0
        while self._store.expiry.expired():
            with self.state.turn():
                now = self.state.clock()
                own = self._store.expiry.expired(now)
                derived = self._store.expiry.hidden(now) - {*own}
                count += self._sweep(sorted([*derived, *own[:_SWEPT]]))
        return count

    def _sweep(self, nodes: Sequence[int]) -> int:
        """Delete nodes, and return their number; in the turn."""
        if not nodes:
            return 0
        ids = [atom.id for atom in self._store.atoms(nodes)]
        self.remove(nodes)
        self.drop_archive_links(ids)
        return len(nodes)

    def remove(
        self, nodes: Sequence[int], writer: Writer | None = None, *, deleted: bool = True
    ) -> None:
        """Remove atoms; in the turn.

        Args:
            nodes: Numbers of the atoms.
            writer: Writer to use instead of that of the memory.
            deleted: Whether it counts as a deletion, not as a move to another store.
        """
        store = partial(self._store_removal, deleted)
        (writer or self.state.writer()).remove(nodes, store)

    def _store_removal(self, deleted: bool, batch: Batch, meta: Mapping[str, str]) -> None:
        self._store.append(batch, when=self.state.clock(), meta=meta, deleted=deleted)

    def drop_archive_links(self, gone: Collection[str]) -> None:
        """Remove links to deleted atoms from the archive; in the turn."""
        archive = self.state if self.state.is_archive else self.state.archive()
        if archive is not None and gone:
            keep_ties(archive.store, gone=gone)
