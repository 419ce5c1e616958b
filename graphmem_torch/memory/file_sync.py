"""Following files: detects changed files and applies the changes to the store.

A file with unchanged size and times is not read. A changed one is compared chunk by chunk (line by
line): equal content keeps its id and is not encoded again.
"""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from graphmem_torch.atoms import Atom, text_hash
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.memory.edge_writes import connect_all, mentioned_concepts, stated_edges
from graphmem_torch.memory.encoder_thread import Unit
from graphmem_torch.memory.file_diff import (
    StoredIds,
    holds_one,
    is_gone,
    is_within,
    renumbered,
    settled,
    staying_ids,
    was_followed,
    while_unchanged,
)
from graphmem_torch.memory.file_reading import FileReading, ReadingNotes
from graphmem_torch.memory.file_vectors import FileVectors
from graphmem_torch.memory.found_files import (
    FollowedFile,
    ReadSettings,
    content_digest,
    file_stamp,
    found_files,
    parts_of,
)
from graphmem_torch.memory.intake import batched, with_expiry, with_expiry_of
from graphmem_torch.memory.known_vectors import (
    NOTHING_KNOWN,
    KnownVectors,
    embedding_alone,
    rows_of,
    stored_rows,
)
from graphmem_torch.memory.lookup import nodes_of
from graphmem_torch.memory.stages import IndexStages
from graphmem_torch.memory.writing import Writing
from graphmem_torch.progress import Progress
from graphmem_torch.readers.chats import edited_at, is_export_atom
from graphmem_torch.readers.proofs import read_proofs
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
from graphmem_torch.readers.source import leaving_out
from graphmem_torch.readers.unit_rows import InlineVectors
from graphmem_torch.results import Added, Indexed, RegimeSwitch
from graphmem_torch.store.followed_files import NOBODY, Held, SourceRow
from graphmem_torch.text.embedder import encode_checked

__all__ = ["FileSync"]

_log = logging.getLogger(__name__)

_BASE = "sources.base"  # key of the folder that names of sources are relative to
_SINCE = "sources.since"  # key of the first node whose files are all followed
_MANY = 1024  # memories replaced per batch


class FileSync:
    """One run over files; call `run` once."""

    def __init__(
        self,
        writing: Writing,
        reading: ReadSettings,
        *,
        dry_run: bool,
        vectors: FileVectors | None = None,
    ) -> None:
        """Prepare a run; reads nothing.

        Args:
            writing: Writing to the memory that the files go to.
            reading: Settings for reading.
            dry_run: Whether to count only and change nothing.
            vectors: Vectors of the memories, which are not encoded.
        """
        self._writing, self._state = writing, writing.state
        self._store, self._reading = writing.state.store, reading
        workers = 0 if dry_run else reading.workers
        self._stages = IndexStages(
            self._state, workers=workers, batch=reading.batch, pays=reading.pays
        )
        # None in a dry run.
        self._writer = None if dry_run else self._stages.writer()
        self._vectors, self._known = vectors, NOTHING_KNOWN
        # What is read, until its batch is due; and what was read before.
        self._fresh, self._notes = (
            ReadingNotes(InlineVectors(self._store.dim, normalise=reading.normalise))
            for _ in range(2)
        )
        self._inline, self._losses = self._notes.inline, self._notes.losses
        self._origins = self._notes.origins
        self._readings: dict[str, FileReading] = {}  # of files that are read before their turn
        self._coming: deque[FollowedFile] = deque()
        self._starts: dict[str, int] = {}  # by file, the row of its first memory
        self._switches: list[RegimeSwitch] = []  # not notified yet
        self._deleted, self._planned = set[str](), set[str]()  # ids; planned in a dry run
        self._bar: Progress | None = None
        self._done = Indexed()
        # Queue to store: source, ids that become its own, atoms, and those of them it held before.
        # `_ended`: sources that are complete once the queue is stored.
        self._queue: list[tuple[int, list[str], list[Atom], dict[str, Held]]] = []
        self._ended: list[SourceRow] = []
        self._given: dict[str, int] = {}  # by label, the next free number of this run
        self._since, self._skip_bad = 0, False  # nodes before may be of an older release
        self._skipped: list[str] | None = None

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
            Progress(
                what="index", unit="atoms", shown=progress, note=self._stages.waits
            ) as self._bar,
            closing(self._stages),
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
        lost = [p for p in paths if prune and base and was_followed(Path(p), base, rows)]
        given = [path for path in paths if path not in lost]

        def emptied(folder: Path) -> bool:
            return base is not None and holds_one(folder, base, rows)

        found: list[Source] = []
        if given or not lost:
            if not skip_bad:
                check_paths(given, self._reading.format)
            found = list(find_sources(given, self._reading.format, self._skipped, emptied))
        if self._skipped is None:
            self._skipped = []  # a bad file or line stops no other; its error is raised last
        self._notes.skipped = self._skipped
        if base is None:
            base = self._new_base(given, found)
        self._begin(kept)
        files = found_files(found, base, rows)
        changed = self._changed(files)
        there = {file.name for file in files}
        absent = [row for name, row in rows.items() if name not in there and is_gone(base / name)]
        # An empty file still exists, and may get content again.
        moved = self._match(changed, [row for row in absent if not (base / row.name).exists()])
        self._count_unchanged([file for file in files if file not in changed])
        self._expect_lines(changed)
        self._stages.expect(sum(file.size for file in changed))
        if files and self._vectors is not None and not self._vectors.by_id:
            self._place_rows(self._vectors, files, {file.name for file in changed})
        # Followed files first, so that content moved from one to another is known.
        try:
            self._coming = deque(sorted(changed, key=lambda file: file.row is None))
            while self._coming:
                with leaving_out(self._skipped):
                    self._follow(self._coming.popleft(), moved)
        finally:  # store what was read before an error
            self._flush()
        for source in found:
            if source.path is None:
                with leaving_out(self._skipped):
                    try:
                        self._pour(source)
                    finally:
                        self._fresh.move_into(self._notes)
        scope = [Path(path).resolve() for path in paths if str(path) != "-"]
        for row in absent:
            if row.name not in moved.values() and is_within(base / row.name, scope):
                self._part_from(row, prune)
        self._delete_released()
        if self._vectors is not None:
            whole = len(changed) == len(files) and not self._skipped
            self._note(kept_vectors=self._vectors.finished(self._store, whole=whole))
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
        if self._writer is not None:
            self._store.meta_set(_BASE, str(base))
        return base

    def _begin(self, kept: str | None) -> None:
        """Set the node before which atoms may be of files read by an older release."""
        since = self._store.meta_get(_SINCE)
        if since is None:
            since = "0" if kept is None else str(self._store.next_node)
            if self._writer is not None:
                self._store.meta_set(_SINCE, since)
        self._since = int(since)

    def _changed(self, files: list[FollowedFile]) -> list[FollowedFile]:
        """Return the files with changed content or settings.

        Removes empty files from `files`.
        """
        suspects = []
        for file in files:
            old = {} if file.row is None else json.loads(file.row.reading)
            file.reading = self._settings(file.source, old)
            with leaving_out(self._skipped):
                row, stamp = file.row, file_stamp(file)
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
                file.stamp = file_stamp(file)
                file.digest = content_digest(file)
                if not file.digest and not file.source.named:
                    _log.warning("%s: left out, the file is empty", file.path)
                    files.remove(file)
                elif not file.row or (file.row.digest, file.row.reading) != (
                    file.digest,
                    file.settings,
                ):
                    changed.append(file)
                elif self._writer is not None:
                    self._store.sources.put(replace(file.row, stamp=settled(file.stamp)))
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

    def _match(self, changed: Sequence[FollowedFile], gone: Sequence[SourceRow]) -> dict[str, str]:
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
        if moved and self._writer is not None:
            rows = {
                file.row.number: file.name for file in changed if file.row and file.name in moved
            }
            self._store.sources.move(rows)
        return moved

    def _count_unchanged(self, files: Sequence[FollowedFile]) -> None:
        counts = self._store.sources.counts()
        known = sum(counts.get(file.row.number, 0) for file in files if file.row is not None)
        self._note(unchanged=len(files), known=known)
        self._advance(known)

    # Apply the changes.

    def _follow(self, file: FollowedFile, moved: Mapping[str, str]) -> None:
        """Update the store to the content of a file, which may be read already."""
        label = file.name if file.row is None else file.row.label
        reading = self._readings.pop(file.name, None) or self._reading_of(file, label)
        try:
            self._update_to(file, reading, moved)
        finally:
            self._stages.end(reading.units)
            self._fresh.move_into(self._notes)

    def _reading_of(self, file: FollowedFile, label: str) -> FileReading:
        notes = ReadingNotes(self._inline.empty())
        atoms = filter(self._reading.takes, self._atoms(file, label, notes))
        return FileReading(atoms, notes, self._reading.batch)

    def _read_ahead(self) -> None:
        """Begin to read the next files while the stages have room."""
        for file in self._coming:
            if self._stages.full or file.row is not None or self._vectors is not None:
                return
            if file.name not in self._readings:
                reading = self._readings[file.name] = self._reading_of(file, file.name)
                while not self._stages.full and (read := reading.read_ahead())[0]:
                    reading.units.append(self._stages.submit(*read))

    def _over(
        self, batches: Iterator[list[Atom]], begun: Sequence[Unit] = ()
    ) -> Iterator[list[Atom]]:
        """Yield batches whose concepts and vectors are made ahead."""
        return self._stages.over(
            batches,
            self._fresh,
            self._notes,
            encode=self._vectors is None,
            begun=begun,
            busy=lambda: bool(self._queue),
            more=self._read_ahead,
        )

    def _update_to(
        self, file: FollowedFile, reading: FileReading, moved: Mapping[str, str]
    ) -> None:
        sources, before = self._store.sources, len(self._skipped or ())
        text = file.reading["as"] == "text"
        row, held, atoms = file.row, dict[str, Held](), reading.atoms(self._fresh)
        if row is None:
            row, held = self._first(file, text)
        else:
            held = sources.held(row.number)
        # Atoms deleted or forgotten from a file come back only if its content changes.
        same = file.name in moved and row.reading == file.settings
        # Not current until all of it is stored.
        row = replace(row, digest=None, stamp="", reading=file.settings)
        if text:
            stored = self._store.atoms([each.node for each in held.values()])
            if held:  # another document with the same label may have used numbers since
                given = self._store.numbered(row.label)
                row = replace(row, next=max([row.next, *(number + 1 for _, number in given)]))
            row = replace(row, next=max(row.next, self._given.get(row.label, 0)))
            fresh, following = renumbered(list(atoms), stored, row)
            self._fresh.move_into(self._notes)
            self._given[row.label] = following
            fresh = list(self._matched(file, fresh, fresh))
            if same:
                fresh = [atom for atom in fresh if atom.id in held]
            atoms, row = iter(fresh), replace(row, next=following)
        else:
            atoms = self._matched(file, self._again(file, row.label), atoms)
        first = next(atoms, None)
        if first is None and self._reading.takes is None:  # of another kind; the reader has warned
            return
        atoms = chain([] if first is None else [first], atoms)
        if self._writer is not None:
            row = sources.put(row)
        differs = False
        if held:
            said = list(atoms)
            self._fresh.move_into(self._notes)
            broken = not self._skip_bad and len(self._skipped or ()) > before
            differs = self._compare(row, held, said, broken)
        else:
            for batch in self._over(batched(atoms, self._reading.batch), reading.units):
                self._store_all(row, batch, {})
                if not self._queue:
                    self._origins.clear()
        if file.name in moved:
            self._note(moved=((moved[file.name], file.name),))
        elif file.row is None:
            self._note(added=(file.name,))
        elif differs:
            self._note(changed=(file.name,))
        else:
            self._note(unchanged=1)
        whole = len(self._skipped or ()) == before and file_stamp(file) == file.stamp
        if whole:
            self._ended.append(replace(row, digest=file.digest, stamp=settled(file.stamp)))

    def _first(self, file: FollowedFile, text: bool) -> tuple[SourceRow, dict[str, Held]]:
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
        if self._writer is not None:
            row = self._store.sources.put(row)
            self._store.sources.hold(row.number, ids)
        return row, {name: known[name] for name in ids}

    def _expect_lines(self, changed: Sequence[FollowedFile]) -> None:
        """Tell the progress how many memories come, if each line is one."""
        if self._bar is not None and all(file.reading["as"] == "jsonl" for file in changed):
            self._bar.expect(self._done.known + sum(file.lines for file in changed))

    def _place_rows(
        self, vectors: FileVectors, files: Sequence[FollowedFile], changed: Collection[str]
    ) -> None:
        """Set the row of the first memory of each file, and check rows that are in order."""
        count = 0
        for file in files:
            row = file.row or SourceRow(NOBODY, file.name, file.name, None, "", file.settings, 0)
            self._starts[file.name] = count
            atoms = self._again(file, row.label)
            new, text = file.name in changed, file.reading["as"] == "text"
            count += self._expect_rows(file, atoms) if new else vectors.place(atoms, count, text)
        vectors.expect_count(count)

    def _matched(
        self, file: FollowedFile, first: Iterable[Atom], atoms: Iterable[Atom]
    ) -> Iterator[Atom]:
        """Return atoms matched to their vectors, which are checked by reading them `first`."""
        if self._vectors is None:
            return iter(atoms)
        if self._vectors.by_id:
            self._expect_rows(file, first)
            return self._vectors.matched(atoms, 0)
        matched = self._vectors.matched(atoms, self._starts[file.name])
        return while_unchanged(matched, parts_of(file), file.stamp)

    def _expect_rows(self, file: FollowedFile, atoms: Iterable[Atom]) -> int:
        """Check the vectors of the atoms of a file, and return the number of these."""
        assert self._vectors is not None
        start, embedder = self._starts.get(file.name, 0), self._state.embedder
        return self._vectors.expect_all(atoms, start, self._origins, embedder)

    def _again(self, file: FollowedFile, label: str) -> Iterator[Atom]:
        """Yield the atoms of a file that is also read another time, which keeps the notes.

        Raises:
            InputError: A line that would be left out, if rows are in order.
        """
        notes = ReadingNotes(self._inline.empty(), origins=self._origins)
        in_order = self._vectors is not None and not self._vectors.by_id
        return self._atoms(file, label, notes, strict=in_order)

    def _atoms(
        self, file: FollowedFile, label: str, notes: ReadingNotes, *, strict: bool = False
    ) -> Iterator[Atom]:
        """Yield the atoms of a file in its order; `strict` raises the error of a line."""
        own = self._reading
        if file.proofs:
            prefix = str(file.reading["prefix"])
            return read_proofs(file.path, prefix=prefix, origins=notes.origins)
        return read_source(
            file.source,
            tokenizer=own.tokenizer,
            name=file.name,
            salt=label,
            max_tokens=own.max_tokens,
            locomo_input=own.input,
            origins=notes.origins,
            known=StoredIds(self._store),
            skipped=None if strict else notes.skipped,
            losses=notes.losses,
            vectors=notes.inline,
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
        staying = staying_ids(held, list(said.values()), turned)
        away = [] if broken else [name for name in held if name not in said]
        if self._writer is not None:
            self._store.sources.release(row.number, away)
        else:
            self._note(deleted=len(away))
        turned &= staying
        self._turn([said[name] for name in said if name in turned])
        self._release([said[name] for name in said if name in staying])
        self._note(known=len(staying) - len(turned) + twice)
        self._advance(len(staying))
        rest = [atom for name, atom in said.items() if name not in staying]
        for batch in self._over(batched(iter(rest), _MANY)):
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
        queued = {atom.id for atom in (*taken, *edited)}
        self._release([atom for atom in atoms if atom.id not in queued])
        edited = self._later(edited, known)
        if self._writer is None:
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
        if self._writer is None:
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
        assert self._writer is not None
        store, ids = self._store, list(again)
        old = store.present([each.node for each in again.values()])
        self._known = self._known_of(atoms, old)
        if ids:  # find and encode before taking the lock
            self._writer.prepare(atoms, self._names_of(old))
        # One transaction, so that statements about replaced atoms are never lost.
        with store.gathering() if ids else nullcontext():
            nodes = [node for node, _ in store.known(ids).values()]
            before = {atom.id: (n, atom) for n, atom in zip(nodes, store.atoms(nodes), strict=True)}
            edges = stated_edges(store, nodes)
            if before:
                store.lay_aside(nodes)
                self._delete(list(before))
            for number, names in mine:
                store.sources.hold(number, names)
            added = Added(0, 0)
            lasting = (with_expiry_of(a, before.get(a.id, (0, None))[1]) for a in atoms)
            for batch in batched(lasting, self._reading.batch):
                added += self._sound(batch)
            known = store.known([*ids, *(end for edge in edges for end in edge[:2])])
            text = {atom.id: atom.text for atom in atoms}
            same = {n for name, (n, atom) in before.items() if atom.text == text.get(name)}
            if before:
                heirs = {n: known[name][0] for name, (n, _) in before.items() if name in known}
                store.take_up(nodes, heirs, same)
            connect_all(store, [edge for edge in edges if edge[0] in known and edge[1] in known])
        self._release(atoms)
        self._note(
            new=added.new - len(before),
            known=added.known + len(same),
            replaced=len(before) - len(same),
        )

    def _release(self, atoms: Sequence[Atom]) -> None:
        """Forget the vectors and the lines of atoms that are stored."""
        for name in (ids := [atom.id for atom in atoms]):
            self._inline.pop(name, None)
            self._origins.pop(name, None)
        if self._vectors is not None:
            self._vectors.release(ids)

    def _known_of(self, atoms: Sequence[Atom], old: Sequence[int]) -> KnownVectors:
        """Return the vectors of atoms: given ones, else those of `old` nodes of equal texts.

        Beside `old` nodes, texts that neither these nor the store has are encoded.
        """
        ids = [atom.id for atom in atoms]
        given = NOTHING_KNOWN if self._vectors is None else self._vectors.known()
        inline = {n: embedding_alone(self._inline[n]) for n in ids if n in self._inline}
        given = given.beside(inline, ids)
        if not old:
            return given  # the writer encodes the others
        rest = {atom.id: atom.rendered for atom in atoms if atom.id not in given}
        if not rest:
            return given
        before = zip(self._store.atoms(old), stored_rows(self._store, old), strict=True)
        known = {atom.rendered: vectors for atom, vectors in before}
        hashes = {text: text_hash(text) for text in rest.values() if text not in known}
        stored = self._store.cached(list(hashes.values()))
        fresh = [text for text, own in hashes.items() if own not in stored]
        if fresh:
            encoded = encode_checked(self._stages.encoder, fresh)
            known |= zip(fresh, rows_of(encoded), strict=True)
        own = {name: known[text] for name, text in rest.items() if text in known}
        return given.beside(own, ids)

    def _names_of(self, old: Sequence[int]) -> dict[str, Tensor]:
        """Return the vectors of the names of concepts that replaced atoms mention."""
        nodes = mentioned_concepts(self._store, old)
        rows = self._store.vectors(nodes, tokens=False).embeddings
        return {a.text: row for a, row in zip(self._store.atoms(nodes), rows, strict=True)}

    def _add(self, atoms: list[Atom]) -> Added:
        added, found = self._writing.add_batch(atoms, self._origins, self._writer, self._known)
        self._switches += found
        return added

    def _update(self, atom: Atom) -> None:
        if self._writer is not None:
            new, known = with_expiry(atom, now := self._state.clock()), self._known_of([atom], [])
            self._writer.update(atom.id, lambda old: replace(new, edges=old.edges), now, known)

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
            origins=self._fresh.origins,
            skipped=self._fresh.skipped,
            losses=self._fresh.losses,
            vectors=self._fresh.inline,
        )
        if self._starts:
            raise InputError(
                "expected vectors by id, as standard input beside files has no place in an order, "
                "got rows in order; index it apart",
                where=source.where,
            )
        if self._vectors is not None:
            said = list(atoms)
            self._fresh.move_into(self._notes)
            count = self._vectors.expect_all(said, 0, self._origins, self._state.embedder)
            if not self._vectors.by_id:
                self._vectors.expect_count(count)
            atoms = self._vectors.matched(said, 0)
        for batch in self._over(batched(iter(atoms), own.batch)):
            if self._writer is None:
                stored = self._store.known([atom.id for atom in batch])
                added = Added(len(batch) - len(stored), len(stored))
            else:
                self._known = self._known_of(batch, [])
                added = self._sound(batch)
            self._release(batch)
            self._note(new=added.new, known=added.known)
            self._advance(len(batch))

    def _part_from(self, row: SourceRow, prune: bool) -> None:
        """List a source whose file is gone, or release its atoms with `prune`."""
        if not prune:
            self._note(gone=(row.name,))
            return
        self._note(pruned=(row.name,))
        if self._writer is not None:
            self._store.sources.drop(row.number)
        else:
            self._note(deleted=self._store.sources.counts().get(row.number, 0))

    def _delete_released(self) -> None:
        """Delete atoms without a source, also those an earlier run left."""
        if self._writer is None:
            return
        ids = list(self._store.sources.held(NOBODY))
        if ids:
            self._note(deleted=self._delete(ids))

    def _note(self, **counts: Any) -> None:
        """Add to the counts and lists of the result."""
        now = {name: getattr(self._done, name) + more for name, more in counts.items()}
        self._done = replace(self._done, **now)
