"""Following files: detects changed files and applies the changes to the store.

A file with unchanged size and times is not read. A changed one is compared chunk by chunk (line by
line): equal content keeps its id and is not encoded again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType, text_hash
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.memory.edge_writes import connect_all
from graphmem_torch.memory.exchange import KnownVectors, stored_rows
from graphmem_torch.memory.exporting import Exported
from graphmem_torch.memory.intake import with_expiry
from graphmem_torch.memory.lookup import nodes_of
from graphmem_torch.memory.writer import batched
from graphmem_torch.memory.writing import Writing
from graphmem_torch.progress import Progress
from graphmem_torch.readers.chats import edited_at, is_export_atom
from graphmem_torch.readers.proofs import edges_beside, read_proofs
from graphmem_torch.readers.read import (
    Source,
    check_paths,
    common_base,
    find_sources,
    proof_sets,
    read_source,
    source_name,
    told_by_content,
)
from graphmem_torch.readers.slack import slack_tables
from graphmem_torch.readers.source import leaving_out, raw_parts, says_nothing
from graphmem_torch.results import Added, Indexed, RegimeSwitch
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.followed_files import NOBODY, Held, SourceRow
from graphmem_torch.text.tokens import Tokenizer

__all__ = ["FileSync", "ReadSettings"]

_log = logging.getLogger(__name__)

_BASE = "sources.base"  # key of the folder that names of sources are relative to
_SINCE = "sources.since"  # key of the first node whose files are all followed
_FRESH = 2_000_000_000  # ns: a file changed just now may change again with the same time stamp
_MANY = 1024  # memories replaced per batch


@dataclass(frozen=True)
class ReadSettings:
    """Settings for reading files as memories.

    Attributes:
        tokenizer: Counter of tokens.
        tokenizer_name: Name of the tokenizer in the settings, if any.
        max_tokens: Maximum tokens of a chunk.
        format: Name of the format of every file, whatever its suffix.
        input: Parts of LoCoMo to read.
        batch: Memories stored per batch.
        takes: Whether a store takes a memory, as a shard does; None: all.
    """

    tokenizer: Tokenizer
    tokenizer_name: str | None
    max_tokens: int
    format: str | None
    input: str
    batch: int
    takes: Callable[[Atom], bool] | None = None


@dataclass
class _File:
    """File that was found.

    Attributes:
        source: Path and format.
        name: Name in the store.
        row: Row of the store, if it was followed before.
        reading: Settings it is read with.
        stamp: Sizes and times of it and the files read with it; empty: unknown.
        digest: SHA-256 of its content, if it had to be read.
    """

    source: Source
    name: str
    row: SourceRow | None
    reading: dict[str, object] = field(default_factory=dict)
    stamp: str = ""
    digest: str = ""

    @property
    def path(self) -> Path:
        assert self.source.path is not None
        return self.source.path

    @property
    def proofs(self) -> bool:
        return self.reading["as"] == "proofs"

    @property
    def settings(self) -> str:
        return json.dumps(self.reading, sort_keys=True)


class FileSync:
    """One run over files; call `run` once."""

    def __init__(self, writing: Writing, reading: ReadSettings, *, dry_run: bool) -> None:
        """Prepare a run; reads nothing.

        Args:
            writing: Writing to the memory that the files go to.
            reading: Settings for reading.
            dry_run: Whether to count only and change nothing.
        """
        self._writing, self._state = writing, writing.state
        self._store, self._reading = writing.state.store, reading
        self._known = None if dry_run else KnownVectors(self._state.embedder)
        # Encodes with `_known`; None in a dry run.
        self._writer = None if self._known is None else self._state.writer_with(self._known)
        self._switches: list[RegimeSwitch] = []  # not notified yet
        self._deleted: set[str] = set()
        self._bar: Progress | None = None
        self._done = Indexed()
        # Queue to store: source, ids that become its own, atoms, and those of them it held before.
        # `_ended`: sources that are complete once the queue is stored.
        self._queue: list[tuple[int, list[str], list[Atom], dict[str, Held]]] = []
        self._ended: list[SourceRow] = []
        self._given: dict[str, int] = {}  # by label, the next free number of this run
        self._since = 0  # earlier nodes may be of files read by an older release
        self._skipped: list[str] | None = None
        self._skip_bad = False
        self._losses: Counter[str] = Counter()
        self._origins: dict[str, str] = {}
        self._planned: set[str] = set()  # ids counted in a dry run

    def run(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        prune: bool,
        skip_bad: bool,
        progress: bool,
    ) -> Indexed:
        """Follow files and folders; see `Memory.add_files`."""
        several = list(paths) if isinstance(paths, Iterable) else []
        listed = [paths] if isinstance(paths, (str, os.PathLike)) else several
        if self._writer is not None:
            self._writer.load()  # before taking the lock
        with (
            nullcontext() if self._writer is None else self._store.following(),
            Progress(what="index", unit="atoms", shown=progress) as self._bar,
        ):
            try:
                done = self._run(listed, prune=prune, skip_bad=skip_bad)
            except BaseException:
                self._state.regimes.read_again()  # nodes the detector has read may be rolled back
                raise
            self._advance(0)
        if self._writer is not None:
            gone = self._deleted.difference(self._store.known(sorted(self._deleted)))
            self._writing.drop_archive_links(gone)
            self._writer.warn_of_unresolved()
        return done

    def _run(
        self, paths: Sequence[str | os.PathLike[str]], *, prune: bool, skip_bad: bool
    ) -> Indexed:
        self._skipped, self._skip_bad = ([] if skip_bad else None), skip_bad
        kept = self._store.meta_get(_BASE)
        base = None if kept is None or not Path(kept).is_dir() else Path(kept)
        rows = {row.name: row for row in self._store.sources.rows()}
        lost = [p for p in paths if prune and base and _was_followed(Path(p), base, rows)]
        given = [path for path in paths if path not in lost]

        def emptied(folder: Path) -> bool:
            return base is not None and _holds_one(folder, base, rows)

        found: list[Source] = []
        if given or not lost:
            if not skip_bad:
                check_paths(given, self._reading.format)
            found = list(find_sources(given, self._reading.format, self._skipped, emptied))
        if self._skipped is None:
            self._skipped = []  # a bad file or line stops no other; its error is raised last
        if base is None:
            base = self._new_base(given, found)
        self._begin(kept)
        files = _files(found, base, rows)
        changed = self._changed(files)
        there = {file.name for file in files}
        absent = [row for name, row in rows.items() if name not in there and _is_gone(base / name)]
        # An empty file still exists, and may get content again.
        moved = self._match(changed, [row for row in absent if not (base / row.name).exists()])
        self._count_unchanged([file for file in files if file not in changed])
        # Followed files first, so that content moved from one to another is known.
        try:
            for file in sorted(changed, key=lambda file: file.row is None):
                with leaving_out(self._skipped):
                    self._follow(file, moved)
        finally:  # store what was read before an error
            self._flush()
        for source in found:
            if source.path is None:
                with leaving_out(self._skipped):
                    self._pour(source)
        scope = [Path(path).resolve() for path in paths if str(path) != "-"]
        for row in absent:
            if row.name not in moved.values() and _is_within(base / row.name, scope):
                self._part_from(row, prune)
        self._delete_released()
        if self._skipped and not skip_bad:
            first, *others = self._skipped
            more = f" (and {len(others):,} more that cannot be used)" if others else ""
            raise InputError(f"{first}{more}")
        return replace(self._done, skipped=tuple(self._skipped), losses=dict(+self._losses))

    # Find the changes.

    def _new_base(self, paths: Sequence[str | os.PathLike[str]], found: Sequence[Source]) -> Path:
        """Return the folder for relative names of sources, and store it."""
        base, here = common_base(paths), Path.cwd()
        names = (source_name(each.path, here) for each in found if each.path is not None)
        if any(self._store.numbered(name) for name in names):
            base = here  # as in older releases
        if self._known is not None:
            self._store.meta_set(_BASE, str(base))
        return base

    def _begin(self, kept: str | None) -> None:
        """Set the node before which atoms may be of files read by an older release."""
        since = self._store.meta_get(_SINCE)
        if since is None:
            since = "0" if kept is None else str(self._store.next_node)
            if self._known is not None:
                self._store.meta_set(_SINCE, since)
        self._since = int(since)

    def _changed(self, files: list[_File]) -> list[_File]:
        """Return the files with changed content or settings.

        Removes empty files from `files`.
        """
        suspects = []
        for file in files:
            old = {} if file.row is None else json.loads(file.row.reading)
            file.reading = self._settings(file.source, old)
            with leaving_out(self._skipped):
                row, stamp = file.row, _stamp(file)
                if not row or not stamp or (row.stamp, row.reading) != (stamp, file.settings):
                    suspects.append(file)
        sets = proof_sets([file.source for file in suspects], named=bool(self._reading.format))
        several = len(sets) + sum(file.proofs for file in files if file not in suspects) > 1
        changed = []
        for file in suspects:
            if not self._reading.format and file.reading["as"] in ("text", "whatsapp"):
                file.source = told_by_content(file.source)
                file.reading = self._settings(file.source, {})
            if file.path in sets and not file.proofs:
                file.reading = {
                    "as": "proofs",
                    "prefix": f"{sets[file.path]}:" if several else "",
                }
            elif file.path not in sets and file.proofs:
                file.reading = self._settings(file.source, {})
            with leaving_out(self._skipped):
                # Stamp before reading, so that the next run finds changes made meanwhile.
                file.stamp = _stamp(file)
                file.digest = _digest(file)
                if not file.digest and not file.source.named:
                    _log.warning("%s: left out, the file is empty", file.path)
                    files.remove(file)
                elif not file.row or (file.row.digest, file.row.reading) != (
                    file.digest,
                    file.settings,
                ):
                    changed.append(file)
                elif self._known is not None:
                    self._store.sources.put(replace(file.row, stamp=_settled(file.stamp)))
        return changed

    def _settings(self, source: Source, old: Mapping[str, object]) -> dict[str, object]:
        """Return the settings that a file is read with, beyond its content."""
        own = self._reading
        if source.format in ("jsonl", "locomo") and old.get("as") == "proofs" and not own.format:
            return dict(old)
        if source.format == "text" and old.get("as") == "whatsapp" and not own.format:
            return dict(old)
        if source.format == "jsonl":
            return {"as": "jsonl"}
        if source.format == "locomo":
            return {"as": "locomo", "input": own.input}
        if source.format != "text":  # a chat, or a zip
            return {"as": source.format}
        return {"as": "text", "max_tokens": own.max_tokens, "tokenizer": own.tokenizer_name}

    def _match(self, changed: Sequence[_File], gone: Sequence[SourceRow]) -> dict[str, str]:
        """Give new files the rows of removed files with equal content; returns old names by new.

        A file that still exists keeps its ids: a copy of it, or one swapped with it, is another
        file.
        """
        before = defaultdict[str, list[SourceRow]](list)
        for row in gone:
            if row.digest:
                before[row.digest].append(row)
        moved: dict[str, str] = {}
        for file in changed:
            if file.row is None and (same := before[file.digest]):
                row = min(same, key=lambda row: Path(row.name).name != Path(file.name).name)
                same.remove(row)
                moved[file.name] = row.name
                file.row = replace(row, name=file.name)
        if moved and self._known is not None:
            rows = {
                file.row.number: file.name for file in changed if file.row and file.name in moved
            }
            self._store.sources.move(rows)
        return moved

    def _count_unchanged(self, files: Sequence[_File]) -> None:
        counts = self._store.sources.counts()
        known = sum(counts.get(file.row.number, 0) for file in files if file.row is not None)
        self._note(unchanged=len(files), known=known)
        self._advance(known)

    # Apply the changes.

    def _follow(self, file: _File, moved: Mapping[str, str]) -> None:
        """Update the store to the content of a file."""
        sources, before = self._store.sources, len(self._skipped or ())
        text = file.reading["as"] == "text"
        row, held = file.row, dict[str, Held]()
        if row is None:
            row, held = self._first(file, text)
        else:
            held = sources.held(row.number)
        # Atoms deleted or forgotten from a file come back only if its content changes.
        same = file.name in moved and row.reading == file.settings
        # Not current until all of it is stored.
        row = replace(row, digest=None, stamp="", reading=file.settings)
        atoms: Iterator[Atom] = filter(self._reading.takes, self._atoms(file, row))
        if text:
            stored = self._store.atoms([each.node for each in held.values()])
            if held:  # another document with the same label may have used numbers since
                given = self._store.numbered(row.label)
                row = replace(row, next=max([row.next, *(number + 1 for _, number in given)]))
            row = replace(row, next=max(row.next, self._given.get(row.label, 0)))
            fresh, following = _renumbered(list(atoms), stored, row)
            self._given[row.label] = following
            if same:
                fresh = [atom for atom in fresh if atom.id in held]
            atoms, row = iter(fresh), replace(row, next=following)
        first = next(atoms, None)
        if first is None and self._reading.takes is None:  # of another kind; the reader has warned
            return
        atoms = chain([] if first is None else [first], atoms)
        if self._known is not None:
            row = sources.put(row)
        differs = False
        if held:
            said = list(atoms)
            broken = not self._skip_bad and len(self._skipped or ()) > before
            differs = self._compare(row, held, said, broken)
        else:
            for batch in batched(atoms, self._reading.batch):
                self._store_all(row, batch, {})
        if file.name in moved:
            self._note(moved=((moved[file.name], file.name),))
        elif file.row is None:
            self._note(added=(file.name,))
        elif differs:
            self._note(changed=(file.name,))
        else:
            self._note(unchanged=1)
        whole = len(self._skipped or ()) == before and _stamp(file) == file.stamp
        if whole:
            self._ended.append(replace(row, digest=file.digest, stamp=_settled(file.stamp)))

    def _first(self, file: _File, text: bool) -> tuple[SourceRow, dict[str, Held]]:
        """Return the row of a file that was never followed, and the atoms it already holds."""
        row = SourceRow(NOBODY, file.name, file.name, None, "", file.settings, 0)
        numbered = self._store.numbered(file.name) if text else []
        if not numbered:
            return row, {}
        ids = [name for name, _ in numbered]
        if self._store.sources.holders(ids):  # an earlier document had this name
            return replace(row, next=1 + numbered[-1][1]), {}
        known = {name: Held(*each) for name, each in self._store.known(ids).items()}
        chunks = self._store.atoms([each.node for each in known.values()])
        if any(each.node >= self._since for each in known.values()):
            return row, {}
        if any(atom.session != file.name for atom in chunks):
            return row, {}
        # The file was read by an older release.
        row = replace(row, next=1 + numbered[-1][1])
        if self._known is not None:
            row = self._store.sources.put(row)
            self._store.sources.hold(row.number, ids)
        return row, {name: known[name] for name in ids}

    def _atoms(self, file: _File, row: SourceRow) -> Iterator[Atom]:
        """Yield the atoms of a file in its order."""
        own = self._reading
        if file.proofs:
            prefix = str(file.reading["prefix"])
            return read_proofs(file.path, prefix=prefix, origins=self._origins)
        return read_source(
            file.source,
            tokenizer=own.tokenizer,
            name=file.name,
            salt=row.label,
            max_tokens=own.max_tokens,
            locomo_input=own.input,
            origins=self._origins,
            known=_StoredFile(self._store),
            skipped=self._skipped,
            losses=self._losses,
        )

    def _compare(
        self, row: SourceRow, held: Mapping[str, Held], atoms: list[Atom], broken: bool
    ) -> bool:
        """Store the new content of a source and release the removed; returns whether it differs.

        A broken source releases nothing, as unreadable lines may hold what is missing.
        """
        said, twice = dict[str, Atom](), 0
        for atom in atoms:
            first = said.setdefault(atom.id, atom)
            twice += first is not atom and first.digest == atom.digest
            if first.digest != atom.digest:
                with leaving_out(self._skipped):
                    raise self._other_content(atom, "is given twice,")
        other = [n for n, atom in said.items() if n in held and held[n].digest != atom.digest]
        nodes = [held[name].node for name in other]
        stored = dict(zip(other, self._store.atoms(nodes), strict=True))
        turned = {
            name
            for name, old in stored.items()
            if said[name].whole != old.whole and said[name].edges == old.edges
        }
        staying = _staying(held, list(said.values()), turned)
        away = [] if broken else [name for name in held if name not in said]
        if self._known is not None:
            self._store.sources.release(row.number, away)
        else:
            self._note(deleted=len(away))
        turned &= staying
        self._turn([said[name] for name in said if name in turned])
        self._note(known=len(staying) - len(turned) + twice)
        self._advance(len(staying))
        rest = [atom for name, atom in said.items() if name not in staying]
        for batch in batched(iter(rest), _MANY):
            self._store_all(row, batch, held)
        return bool(away or turned or rest)

    def _turn(self, atoms: Sequence[Atom]) -> None:
        """Give each changed atom that keeps its place a new version."""
        if atoms:
            self._flush()  # store what was read before them first
        for atom in atoms:
            with leaving_out(self._skipped):
                self._update(atom)
                self._note(replaced=1)

    def _other_content(self, atom: Atom, met: str) -> InputError:
        return InputError(
            f"atom {atom.id!r} {met} with other content; give the new one an id of its own",
            where=self._origins.get(atom.id),
        )

    def _store_all(self, row: SourceRow, atoms: list[Atom], held: Mapping[str, Held]) -> None:
        """Store atoms of a source in order; replaces those that it held.

        A chat message that another export has too is known, or was edited since.

        Raises:
            InputError: An id is stored with other content from elsewhere.
        """
        ids = [atom.id for atom in atoms]
        waiting = {atom.id for each in self._queue for atom in each[2] if is_export_atom(atom)}
        if not waiting.isdisjoint(ids):
            self._flush()
        known, holders = self._store.known(ids), self._store.sources.holders(ids)
        taken: list[Atom] = []
        mine: list[str] = []
        again: dict[str, Held] = {}
        edited: list[Atom] = []
        said: dict[str, Atom] = {}
        for atom in atoms:
            kept, first = known.get(atom.id), said.setdefault(atom.id, atom)
            if first is not atom and first.digest != atom.digest:
                with leaving_out(self._skipped):
                    raise self._other_content(atom, "is given twice,")
            elif kept is None:
                taken.append(atom)
                mine.append(atom.id)
            elif atom.id in held or holders.get(atom.id) == {NOBODY}:
                taken.append(atom)
                again[atom.id] = Held(*kept)
            elif atom.is_of(kept[1]):
                # An atom without a source was added by a caller.
                mine += [atom.id] if atom.id in holders else []
                self._note(known=1)
            elif atom.id in holders and is_export_atom(atom):
                mine.append(atom.id)
                edited.append(atom)
            else:
                with leaving_out(self._skipped):
                    raise self._other_content(atom, "is stored already")
        edited = self._later(edited, known)
        if self._known is None:
            self._plan(taken, again)
            self._turn(edited)
            return
        self._queue.append((row.number, mine, taken, again))
        # Deleting scans the whole store, so use larger batches.
        most = _MANY if any(each[3] for each in self._queue) else self._reading.batch
        if sum(len(each[2]) for each in self._queue) >= most:
            self._flush()
        self._turn(edited)
        self._advance(len(atoms))

    def _later(self, atoms: Sequence[Atom], known: Mapping[str, tuple[int, str]]) -> list[Atom]:
        """Return the messages of an export that differ from the stored ones and are not older."""
        stored = self._store.atoms([known[atom.id][0] for atom in atoms])
        pairs = zip(atoms, stored, strict=True)
        later = [atom for atom, old in pairs if edited_at(atom) >= edited_at(old)]
        self._note(known=len(atoms) - len(later))
        return later

    def _flush(self) -> None:
        """Store the queue, and mark the sources that it completes."""
        queue, self._queue = self._queue, []
        ended, self._ended = self._ended, []
        before = len(self._skipped or ())
        if self._known is None:
            return
        again = {name: each for *_, held in queue for name, each in held.items()}
        mine = [(number, [*own, *held]) for number, own, _, held in queue]
        self._put([atom for *_, atoms, _ in queue for atom in atoms], again, mine)
        if len(self._skipped or ()) == before:
            for row in ended:
                self._store.sources.put(row)

    def _put(
        self,
        atoms: list[Atom],
        again: Mapping[str, Held],
        mine: Sequence[tuple[int, Sequence[str]]],
    ) -> None:
        """Store atoms, replacing those of the same ids, and record their sources."""
        assert self._known is not None and self._writer is not None
        store, ids = self._store, list(again)
        # Encode before taking the lock.
        old = store.present([each.node for each in again.values()])
        hashes = {atom.rendered: text_hash(atom.rendered) for atom in atoms}
        stored = store.cached(list(hashes.values()))
        fresh = [text for text, own in hashes.items() if own not in stored]
        self._known.learn(self._exported([*old, *self._mentioned(old)]), fresh)
        self._writer.prepare(atoms)
        # One transaction, so that statements about replaced atoms are never lost.
        with store.gathering() if ids else nullcontext():
            nodes = [node for node, _ in store.known(ids).values()]
            before = {atom.id: (n, atom) for n, atom in zip(nodes, store.atoms(nodes), strict=True)}
            edges = self._connected(nodes)
            if before:
                store.lay_aside(nodes)
                self._delete(list(before))
            for number, names in mine:
                store.sources.hold(number, names)
            added = Added(0, 0)
            for batch in batched(iter(atoms), self._reading.batch):
                added += self._sound(batch)
            known = store.known([*ids, *(end for edge in edges for end in edge[:2])])
            text = {atom.id: atom.text for atom in atoms}
            same = {n for name, (n, atom) in before.items() if atom.text == text.get(name)}
            if before:
                heirs = {n: known[name][0] for name, (n, _) in before.items() if name in known}
                store.take_up(nodes, heirs, same)
            connect_all(store, [edge for edge in edges if edge[0] in known and edge[1] in known])
        self._note(
            new=added.new - len(before),
            known=added.known + len(same),
            replaced=len(before) - len(same),
        )

    def _exported(self, nodes: Sequence[int]) -> list[Exported]:
        """Return nodes with their vectors."""
        rows = zip(self._store.atoms(nodes), stored_rows(self._store, nodes), strict=True)
        return [Exported("", atom, None, None, own) for atom, own in rows]

    def _connected(self, nodes: Sequence[int]) -> list[tuple[str, str, EdgeType, float]]:
        """Return the callers' edges of atoms that are replaced."""
        if not nodes:
            return []
        edges, own = self._store.connected_edges(), torch.tensor(nodes)
        edges = edges.take(torch.isin(edges.source, own) | torch.isin(edges.target, own))
        edges = edges.take(edges.type != int(EdgeType.TEMPORAL))
        ends = sorted({*edges.source.tolist(), *edges.target.tolist()})
        atoms = zip(ends, self._store.atoms(ends), strict=True)
        names = {node: atom.id for node, atom in atoms if atom.kind != CONCEPT}
        columns = zip(*(column.tolist() for column in edges.columns), strict=True)
        return [
            (names[source], names[target], EdgeType(kind), weight)
            for source, target, kind, weight in columns
            if source in names and target in names
        ]

    def _mentioned(self, nodes: Sequence[int]) -> list[int]:
        """Return the concepts of atoms that are replaced."""
        edges = self._store.edges() if nodes else EdgeBlock.empty()
        own = torch.isin(edges.source, torch.tensor(nodes, dtype=torch.int64))
        own &= edges.type == int(EdgeType.ABSTRACTION)
        found = edges.target[own].unique().tolist()
        atoms = zip(found, self._store.atoms(found), strict=True)
        return [node for node, atom in atoms if atom.kind == CONCEPT]

    def _add(self, atoms: list[Atom]) -> Added:
        added, found = self._writing.add_batch(atoms, self._origins, self._writer)
        self._switches += found
        return added

    def _update(self, atom: Atom) -> None:
        if self._writer is not None:
            change = partial(_changed, with_expiry(atom, now := self._state.clock()))
            self._writer.update(atom.id, change, now)

    def _delete(self, ids: Sequence[str]) -> int:
        with self._store.turn():
            nodes = list(nodes_of(self._store, ids, hidden=()).values())
            if self._writer is not None:
                self._writing.remove(nodes, self._writer)
        self._deleted.update(ids)
        return len(nodes)

    def _advance(self, count: int) -> None:
        """Show progress and notify of switches; outside of a turn, which listeners may need."""
        if self._bar is not None:
            self._bar.update(count)
        self._state.regimes.notify(self._switches)
        self._switches = []

    def _sound(self, atoms: list[Atom]) -> Added:
        """Add atoms; with `skip_bad`, without those that cannot be stored."""
        try:
            return self._add(atoms)
        except (InputError, EmbedderError) as error:
            if self._skipped is None:
                raise
            if len(atoms) == 1:
                self._skipped.append(str(error))
                return Added(0, 0)
            half = len(atoms) // 2
            return self._sound(atoms[:half]) + self._sound(atoms[half:])

    def _plan(self, atoms: Sequence[Atom], again: Mapping[str, Held]) -> None:
        """Count the results of `_put` without storing."""
        old = self._store.atoms([each.node for each in again.values()])
        texts = {atom.id: atom.text for atom in old}
        same = sum(texts.get(atom.id) == atom.text for atom in atoms)
        twice = sum(atom.id in self._planned for atom in atoms if atom.id not in again)
        self._planned.update(atom.id for atom in atoms)
        self._note(
            new=len(atoms) - len(again) - twice, known=same + twice, replaced=len(again) - same
        )

    def _pour(self, source: Source) -> None:
        """Add atoms from standard input, which is not followed."""
        own = self._reading
        atoms = read_source(
            source,
            tokenizer=own.tokenizer,
            name="",
            max_tokens=own.max_tokens,
            locomo_input=own.input,
            origins=self._origins,
            skipped=self._skipped,
            losses=self._losses,
        )
        for batch in batched(atoms, own.batch):
            if self._known is None:
                stored = self._store.known([atom.id for atom in batch])
                added = Added(len(batch) - len(stored), len(stored))
            else:
                added = self._sound(batch)
            self._note(new=added.new, known=added.known)
            self._advance(len(batch))

    def _part_from(self, row: SourceRow, prune: bool) -> None:
        """List a source whose file is gone, or release its atoms with `prune`."""
        if not prune:
            self._note(gone=(row.name,))
            return
        self._note(pruned=(row.name,))
        if self._known is not None:
            self._store.sources.drop(row.number)
        else:
            self._note(deleted=self._store.sources.counts().get(row.number, 0))

    def _delete_released(self) -> None:
        """Delete atoms without a source, also those an earlier run left."""
        if self._known is None:
            return
        ids = list(self._store.sources.held(NOBODY))
        if ids:
            self._note(deleted=self._delete(ids))

    def _note(self, **counts: Any) -> None:
        """Add to the counts and lists of the result."""
        now = {name: getattr(self._done, name) + more for name, more in counts.items()}
        self._done = replace(self._done, **now)


class _StoredFile:
    """Container of the ids of stored memories."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and id in self._store.known([id])


def _files(found: Sequence[Source], base: Path, rows: Mapping[str, SourceRow]) -> list[_File]:
    """Return each file once, however often and by whichever links it was found."""
    files: dict[str, _File] = {}
    for source in found:
        if source.path is None:
            continue
        name = source_name(source.path, base)
        if source.path.is_symlink() and name not in rows:
            name = source_name(source.path.resolve(), base)
        file = files.setdefault(name, _File(source, name, rows.get(name)))
        # A file named by the caller counts as named, even if also found otherwise.
        if source.named and not file.source.named:
            file.source = source
    return list(files.values())


def _parts(file: _File) -> list[Path]:
    """Return the files that are read for a file, with tables beside it."""
    table = file.proofs and file.path.suffix.lower() == ".jsonl"
    beside = [edges_beside(file.path)] if table else slack_tables(file.path)
    return [file.path, *beside]


def _stamp(file: _File) -> str:
    """Return sizes and times, ns, of the files read for a file; empty if unavailable."""
    try:
        found = [path.stat() for path in _parts(file)]
    except OSError:
        return ""
    return json.dumps([[each.st_size, each.st_mtime_ns, each.st_ctime_ns] for each in found])


def _settled(stamp: str) -> str:
    """Return a stamp that the next run can trust; empty for a file written just now."""
    fresh = time.time_ns() - _FRESH
    return stamp if stamp and all(part[1] < fresh for part in json.loads(stamp)) else ""


def _digest(file: _File) -> str:
    """Return the SHA-256 of the files read for a file; empty without content.

    Raises:
        InputError: A file cannot be read.
    """
    digest, blank = hashlib.sha256(), True
    for path in _parts(file):
        digest.update(b"\0")
        for part in raw_parts(path):
            digest.update(part)
            blank = blank and says_nothing([part])
    return "" if blank else digest.hexdigest()


def _is_gone(path: Path) -> bool:
    """Return whether a file no longer exists, or is empty."""
    try:
        size = path.stat().st_size
        return path.is_file() and (size == 0 or says_nothing(raw_parts(path)))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, InputError):  # it may exist
        return False


def _is_within(path: Path, scope: Sequence[Path]) -> bool:
    return any(path == each or path.is_relative_to(each) for each in scope)


def _was_followed(path: Path, base: Path, rows: Mapping[str, SourceRow]) -> bool:
    """Return whether a missing path was a source, or a folder of sources."""
    return str(path) != "-" and not path.exists() and _holds_one(path, base, rows)


def _holds_one(path: Path, base: Path, rows: Mapping[str, SourceRow]) -> bool:
    """Return whether a path is a source, or a folder of sources."""
    return any(_is_within(base / name, [path.resolve()]) for name in rows)


def _renumbered(
    atoms: Sequence[Atom], stored: Sequence[Atom], row: SourceRow
) -> tuple[list[Atom], int]:
    """Return the chunks of a document with the ids of stored chunks of equal text.

    A new text takes the id of the stored chunk in its place, if that is free.

    Args:
        atoms: Current chunks.
        stored: Stored chunks, in order.
        row: The source; its `next` is the first free number.

    Returns:
        The chunks, and the next free number.
    """
    texts, ids = [atom.text for atom in stored], [atom.id for atom in stored]
    old = len(texts)
    head = 0
    while head < min(old, len(atoms)) and texts[head] == atoms[head].text:
        head += 1
    tail = 0
    while tail < min(old, len(atoms)) - head and texts[-1 - tail] == atoms[-1 - tail].text:
        tail += 1
    places = defaultdict[str, deque[int]](deque)
    for i in range(head, old - tail):
        places[texts[i]].append(i)
    place: list[int | None] = []
    for i, atom in enumerate(atoms):
        if i < head:
            place.append(i)
        elif i >= len(atoms) - tail:
            place.append(i - len(atoms) + old)
        else:
            place.append(places[atom.text].popleft() if places[atom.text] else None)
    free = set(range(old)).difference(each for each in place if each is not None)
    for i in range(len(place)):
        before = place[i - 1] if i else -1
        if place[i] is None and before is not None and before + 1 in free:
            place[i] = before + 1
            free.remove(before + 1)
    following, named = row.next, []
    for atom, found in zip(atoms, place, strict=True):
        if found is None:
            named.append(replace(atom, id=f"{row.label}#{following}"))
            following += 1
        else:
            named.append(replace(atom, id=ids[found]))
    return named, following


def _staying(held: Mapping[str, Held], fresh: Sequence[Atom], turned: Collection[str]) -> set[str]:
    """Return the ids of atoms that need no replacement to keep each session in file order.

    Turns of equal or unknown time are ordered by storing. Those after a new turn are therefore
    stored again after it.

    Args:
        held: Held atoms in storing order.
        fresh: Atoms in file order.
        turned: Ids of changed atoms that keep their place.
    """
    staying: set[str] = set()
    place = {name: i for i, name in enumerate(held)}
    last: dict[str, float] = {}  # place of the last staying turn of a session
    for atom in fresh:
        kept = held.get(atom.id)
        same = kept is not None and (kept.digest == atom.digest or atom.id in turned)
        same = same and atom.id not in staying
        derived = any(link.type == EdgeType.DERIVED_FROM for link in atom.edges)
        if atom.session is None or derived:
            staying |= {atom.id} if same else set()
        elif same and place[atom.id] > last.get(atom.session, -1):
            staying.add(atom.id)
            last[atom.session] = place[atom.id]
        else:
            last[atom.session] = math.inf
    return staying


def _changed(atom: Atom, old: Atom) -> Atom:
    """Return an atom with the edges of its earlier version."""
    return replace(atom, edges=old.edges)
