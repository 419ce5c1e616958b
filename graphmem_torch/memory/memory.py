"""Memory: the application object, a store on disk with an encoder and an index of it."""

# A text is a sequence of texts: the overloads for one come first.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO, Unpack, overload

from graphmem_torch.checks import check_count, check_flag
from graphmem_torch.config import Config, checked_config, load_config
from graphmem_torch.memory.at import MemoryAt, MemoryAtEach, MemoryQuestions
from graphmem_torch.text.times import DurationLike, TimeLike, parse_time

# Methods import the modules that they need of a store.
if TYPE_CHECKING:
    from graphmem_torch.atoms import Atom
    from graphmem_torch.index.module import MemoryIndex
    from graphmem_torch.memory.aio import AsyncMemory
    from graphmem_torch.memory.asking import Asking
    from graphmem_torch.memory.facts import Facts
    from graphmem_torch.memory.graph_edits import GraphEdits
    from graphmem_torch.memory.intake import FieldChanges
    from graphmem_torch.memory.learning import Learning
    from graphmem_torch.memory.namespaces import Namespaces
    from graphmem_torch.memory.request import Instants
    from graphmem_torch.memory.state import State
    from graphmem_torch.memory.tensors import Tensors
    from graphmem_torch.memory.themes import Themes
    from graphmem_torch.memory.upkeep import Upkeep
    from graphmem_torch.memory.writing import Given, Writing
    from graphmem_torch.report import Report
    from graphmem_torch.results import Added, Indexed, Page, Receipt
    from graphmem_torch.text.concepts import ConceptExtractor
    from graphmem_torch.text.embedder import Embedder

__all__ = ["Memory"]

_REPORTED = 5  # hits of a question in a report


class Memory(MemoryQuestions):
    """Long-term memory: `add` atoms, `retrieve` for questions, `compile` a context.

    Atoms are on disk when `add` returns, and the next question sees them. Threads may share one
    object if its encoder allows it; several processes may add to one folder.

    Methods raise `InputError` for an unusable argument, such as an id that is not stored,
    `StoreError` if the memory is closed or read-only, or the disk is full, and `EmbedderError` if
    the encoder fails.

    Attributes:
        store: Store on disk.
        device: Device of the index.
        name: Name of a namespace; None for a memory of its own.
    """

    def __init__(self, state: State) -> None:
        """Take the state; callers use `Memory.open`, or `namespaces` of what it returns."""
        self._state = state
        self.store, self.device, self.name = state.store, state.device, state.name

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        preset: str = "default",
        config: Config | None = None,
        embedder: Any = None,
        concepts: str | ConceptExtractor | None = None,
        device: str = "auto",
        mode: Literal["w", "r"] = "w",
        create: bool = True,
        clock: Callable[[], float] = time.time,
        namespaces_open: int = 64,
    ) -> Self:
        """Open the memory in a folder.

        Args:
            path: Folder of the store or of its shards; None keeps the memory in the process.
            preset: Name of a preset, or path of a YAML file.
            config: Settings, instead of a preset.
            embedder: Encoder, see `load_embedder`; by default the store's, then the settings'.
            concepts: Finder of concepts, or its name; by default `link.concepts` of the settings.
            device: Device of the index: `auto` (CUDA if there is one), `cpu`, `cuda`, ...
            mode: `w` to add, `r` to read.
            create: Whether to make a store that is missing, with mode `w`.
            clock: Function that returns now, in seconds since the epoch UTC.
            namespaces_open: Maximum number of namespaces whose files stay open.

        Raises:
            ConfigError, EmbedderError, StoreError: Unusable settings, encoder or folder.
        """
        from graphmem_torch.memory.compatibility import open_bound, resolved_settings, usable_device
        from graphmem_torch.memory.state import State
        from graphmem_torch.store.shard_folder import ShardFolder

        check_count("namespaces_open", namespaces_open)
        given = load_config(preset) if config is None else checked_config(config)
        settings, place = resolved_settings(given), usable_device(device)
        if ShardFolder.is_one(path):
            shared: Any = {"config": settings, "device": place, "clock": clock}
            shared |= {"concepts": concepts, "namespaces_open": namespaces_open}
            package: Any = sys.modules[__name__.rpartition(".")[0]]  # whose names are lazy
            return package.open_shards(path, mode, embedder, create, shared)
        store, loaded = open_bound(
            path, mode, embedder, settings.embedder, place, create=create or path is None
        )
        state = State(
            store,
            embedder=loaded,
            config=settings,
            device=place,
            clock=clock,
            concepts=concepts,
            namespaces_open=namespaces_open,
        )
        return cls(state)

    # Parts, made at their first use.

    @cached_property
    def _asking(self) -> Asking:  # type: ignore[override]
        from graphmem_torch.memory.asking import Asking

        return Asking(self._state)

    @cached_property
    def _writing(self) -> Writing:
        from graphmem_torch.memory.writing import Writing

        return Writing(self._state)

    @cached_property
    def facts(self) -> Facts:
        """Validity, versions and contradictions."""
        from graphmem_torch.memory.facts import Facts

        return Facts(self._writing)

    @cached_property
    def graph(self) -> GraphEdits:
        """Edges between memories, and the structure of the graph."""
        from graphmem_torch.memory.graph_edits import GraphEdits

        return GraphEdits(self._state)

    @cached_property
    def themes(self) -> Themes:
        """Themes of the memories, and regime switches."""
        from graphmem_torch.memory.themes import Themes

        return Themes(self._asking)

    @cached_property
    def learning(self) -> Learning:
        """Learned weights, threshold and correction."""
        from graphmem_torch.memory.learning import Learning

        return Learning(self._asking)

    @cached_property
    def upkeep(self) -> Upkeep[Self]:
        """Refinement, the archive, memory types and importance."""
        from graphmem_torch.memory.consolidation import Consolidation
        from graphmem_torch.memory.upkeep import Upkeep

        return Upkeep(self._writing, Consolidation(self._writing, self.learning), type(self))

    @cached_property
    def namespaces(self) -> Namespaces[Self]:
        """Memories inside this one by name."""
        from graphmem_torch.memory.namespaces import Namespaces

        return Namespaces(self._state, type(self))

    @cached_property
    def aio(self) -> AsyncMemory:
        """Async forms: `add`, `retrieve`, `compile`, `answer` and `feedback`."""
        from graphmem_torch.memory.aio import AsyncMemory

        return AsyncMemory(self._asking, self._writing)

    @cached_property
    def tensors(self) -> Tensors:
        """Rows of the index, and questions as tensors."""
        from graphmem_torch.memory.tensors import Tensors

        return Tensors(self._asking)

    @property
    def config(self) -> Config:
        """Settings, with learned weights and threshold."""
        return self._state.config

    @property
    def embedder(self) -> Embedder:
        """The encoder; a memory opened to read loads it at its first use."""
        return self._state.embedder

    @property
    def index(self) -> MemoryIndex:
        """The index of everything stored now; it follows each change of the store."""
        return self._state.current().index

    def __len__(self) -> int:
        """Return the number of atoms; concepts and what has expired do not count."""
        from graphmem_torch.memory.lookup import num_visible

        return num_visible(self.store)

    def __bool__(self) -> bool:
        """Return True, also without atoms."""
        return True

    def __contains__(self, id: object) -> bool:
        """Return whether an atom of this id is stored and has not expired."""
        return self._state.has(id)

    def __iter__(self) -> Iterator[Atom]:
        """Iterate over the atoms in the order of adding; skips those that go meanwhile."""
        from graphmem_torch.memory.listing import atoms_in_order

        return atoms_in_order(self.store)

    def __repr__(self) -> str:
        """Return its place, number of atoms, preset and encoder, and whether it is open."""
        path = self._state.root.store.path
        place = "in the process" if path is None else repr(str(path))
        if self.name is not None:
            place += f", namespace {self.name!r}"
        if self.store.closed:
            return f"Memory({place}, closed)"
        mode = "read" if self.store.readonly else "write"
        return (
            f"Memory({place}, {len(self):,} atoms, preset {self.config.name!r}, "
            f"embedder {self._state.encoder_name!r}, open to {mode})"
        )

    # Adding, looking up, changing.

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
        """Store and link atoms, one transaction a batch; after an error earlier batches stay.

        Skips atoms that are stored and have not expired, by their id, else by content and time.

        Args:
            atoms: Atoms, texts, mappings with the fields of `Atom`, chat messages, or sessions with
                `turns`.
            session: Session of the atoms that name none.
            key: Name of this call: a repeated call with it adds nothing, in any process.
            embeddings: Unit vectors instead of encoding: [n, d], an `Encoded`, or a mapping by id.
            progress: Whether to show a bar on stderr.
            origins: Origin of atoms by id, for messages; may be filled while the atoms are read.
            expires: Moment from which reads skip atoms that name neither `expires` nor `ttl`.
            ttl: Seconds from now until the same atoms expire, or a `timedelta`; reads with
                `refresh` start them again.
            replace: Whether an atom whose id is stored becomes its new version, as by `update`.

        Raises:
            InputError: Empty text, an unusable field, an id or key stored with other content.
        """
        own: Any = {"session": session, "key": key, "embeddings": embeddings, "replace": replace}
        own |= {"progress": progress, "origins": origins, "expires": expires, "ttl": ttl}
        return self._writing.add(atoms, **own)

    def add_document(
        self, text: str, *, name: str, time: TimeLike | None = None, title: str | None = None
    ) -> Added:
        """Cut a document into chunks and store them in the session `name`, ids `name#0`, ...

        The chunks have the `time` and the `title`; with a name that ends in `.md` the title begins
        with their headings.
        """
        return self._writing.add_document(text, name=name, time=time, title=title)

    def add_files(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        format: Literal["text", "jsonl", "locomo", "whatsapp-dmy", "whatsapp-mdy"] | None = None,
        input: Literal["raw", "observations"] = "raw",
        prune: bool = False,
        dry_run: bool = False,
        skip_bad: bool = False,
        embeddings: Any = None,
        normalise: bool = False,
        progress: bool = False,
        workers: int | None = None,
    ) -> Indexed:
        """Synchronize the memory with files and folders; can be repeated at any time.

        Chunks of the same text keep their ids; text that is gone from its file is deleted.

        Args:
            paths: Files, folders, or "-" for standard input, which is only added.
            format: Format of every file given; by default that of its suffix.
            input: Part of a LoCoMo file to read: the turns, or also the data set's observations.
            prune: Whether to delete the content of files that are gone from these places.
            dry_run: Whether to return the planned changes without making them.
            skip_bad: Whether to leave out files and lines that cannot be used, and list them.
            embeddings: Files of vectors (`.npy`, safetensors, Parquet), instead of encoding.
            normalise: Whether to divide these vectors, and those in lines, by their lengths.
            progress: Whether to show a bar on stderr.
            workers: Maximum number of processes beside this one; by default the cores less one.

        Raises:
            InputError, WorkerError: A bad path, file or line; a process that ended.
        """
        from graphmem_torch.memory.file_sync import FileSync
        from graphmem_torch.memory.file_vectors import opened_vectors
        from graphmem_torch.memory.found_files import ReadSettings

        given: Any = {"format": format, "input": input, "workers": workers, "normalise": normalise}
        reading = ReadSettings.of(self._state, **given)
        with opened_vectors(embeddings, normalise=normalise) as vectors:
            follower = FileSync(self._writing, reading, dry_run=dry_run, vectors=vectors)
            return follower.run(paths, prune=prune, skip_bad=skip_bad, progress=progress)

    @overload
    def get(self, ids: str, *, refresh: bool = False) -> Atom: ...

    @overload
    def get(self, ids: Sequence[str], *, refresh: bool = False) -> list[Atom]: ...

    def get(self, ids: str | Sequence[str], *, refresh: bool = False) -> Atom | list[Atom]:
        """Return atoms by id, in the order given; ids may repeat. One id gives one atom.

        With `refresh`, atoms with a `ttl` expire that many seconds from now, not earlier.
        """
        from graphmem_torch.memory.lookup import atoms_by_id, refresh_expiry

        check_flag("refresh", refresh)
        if refresh:
            refresh_expiry(self.store, self._state.resolve_ids(ids)[1])
        atoms = atoms_by_id(self.store, ids, self._state.has_archived)
        return atoms[0] if isinstance(ids, str) else atoms

    def update(
        self,
        id: str | Mapping[str, Any],
        given: Mapping[str, Any] | None = None,
        /,
        **changes: Unpack[FieldChanges],
    ) -> Atom:
        """Store a new version of an atom under the same id, and return it.

        `given`, a mapping or a chat message, and `changes` hold new values by field; None removes
        one. Other fields stay, and so do stated edges, pins and uses. A mapping with the `id` in it
        may be the only argument.
        """
        return self._writing.update(id, given, changes)

    def delete(self, ids: str | Iterable[str]) -> int:
        """Delete atoms with their versions, edges and uses, all or none; returns their number.

        `forget` also wipes their bytes from the disk.
        """
        return self._writing.delete(ids)

    @overload
    def forget(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        session: str | None = None,
        speaker: str | None = None,
        before: TimeLike | None = None,
        where: Mapping[str, Any] | None = None,
        question: str | None = None,
        k: int | None = None,
        dry_run: Literal[False] = False,
    ) -> Receipt: ...

    @overload
    def forget(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        session: str | None = None,
        speaker: str | None = None,
        before: TimeLike | None = None,
        where: Mapping[str, Any] | None = None,
        question: str | None = None,
        k: int | None = None,
        dry_run: Literal[True],
    ) -> list[Atom]: ...

    def forget(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        session: str | None = None,
        speaker: str | None = None,
        before: TimeLike | None = None,
        where: Mapping[str, Any] | None = None,
        question: str | None = None,
        k: int | None = None,
        dry_run: bool = False,
    ) -> Receipt | list[Atom]:
        """Erase atoms for good: no byte of them, or of data computed from them, is left.

        Erases the atoms that meet all conditions given: their `ids`, `session`, `speaker`, a time
        earlier than `before`, conditions `where` as in `retrieve`, or the `k` best hits for a
        `question`. Also erases their versions, atoms derived from them, and archived copies, and
        resets what was learned. Exports, backups and source files are not touched. Returns a
        receipt, which `upkeep.check_receipt` verifies; with `dry_run` nothing is erased, and the
        atoms are returned.
        """
        from graphmem_torch.memory.forgetting import Conditions, Forgetting

        conditions = Conditions(session, speaker, before, where, question, k)
        forgetting = Forgetting(self._asking, self._writing)
        check_flag("dry_run", dry_run)
        if dry_run:
            return forgetting.forgettable(ids, conditions)
        return forgetting.forget(ids, conditions)

    # Questions: `MemoryQuestions`, and at other moments.

    @overload
    def at(
        self, as_of: TimeLike | None = None, *, valid_at: TimeLike | None = None
    ) -> MemoryAt: ...

    @overload
    def at(self, as_of: Instants, *, valid_at: TimeLike | None = None) -> MemoryAtEach: ...

    def at(
        self, as_of: TimeLike | Instants | None = None, *, valid_at: TimeLike | None = None
    ) -> MemoryAt | MemoryAtEach:
        """Return a read-only view of the memory at a moment, to retrieve, compile and explain.

        `as_of` asks the state of then: versions, and validity known then, but edges and word counts
        of today, without deleted and archived atoms. A list of moments asks at each. `valid_at`
        keeps atoms whose content was true then, as `facts.validity` says.
        """
        if isinstance(as_of, list | tuple):
            return MemoryAtEach(self._asking, as_of, valid_at)
        return MemoryAt(self._asking, as_of, valid_at)

    def feedback(
        self,
        question: str,
        *,
        used: str | Sequence[str] = (),
        not_used: str | Sequence[str] = (),
    ) -> None:
        """Record which memories helped with a question, and which did not.

        By default its best other hits did not. `answer` records what it cites. `upkeep.consolidate`
        learns from it.
        """
        self._asking.feedback(question, used, not_used)

    # Pins and uses.

    def pin(self, ids: str | Sequence[str]) -> None:
        """Pin atoms, all or none: every context has them, and they do not decay."""
        self.store.life.set_pins(self._state.resolve_ids(ids)[1], True)

    def unpin(self, ids: str | Sequence[str]) -> None:
        """Remove pins, also from atoms of the stated type `procedural`."""
        self.store.life.set_pins(self._state.resolve_ids(ids)[1], False)

    def pinned(self) -> list[str]:
        """Return the ids of the pinned atoms in their order; type `procedural` starts pinned."""
        return self.store.life.pinned(self.store.expiry.hidden())

    def touch(self, ids: str | Sequence[str], *, when: TimeLike | None = None) -> None:
        """Record that atoms were used, now or at a time as in `retrieve`: decay starts again."""
        now = self._state.clock() if when is None else parse_time(when, "when")
        nodes = self._state.resolve_ids(ids)[1]
        if nodes:
            self.store.expect_writable()
            self.store.uses.note(nodes, now)
            self.store.uses.flush()

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        questions: Sequence[str] = (),
        concepts: bool = False,
        limit: int = 50_000,
        most_edges: int = 150_000,
        iterations: int = 100,
    ) -> Report:
        """Write one self-contained HTML page about the memory.

        It shows the hits of the `questions`, with scores and reasons, and a graph of at most
        `limit` nodes and `most_edges` edges, placed in that many `iterations`. With `concepts`
        these are nodes.
        """
        from graphmem_torch.report import ReportInput, checked_target, write_report

        checked_target(path, limit)
        check_count("iterations", iterations)
        asked = [questions] if isinstance(questions, str) else questions
        results = tuple(self.retrieve(asked, k=_REPORTED)) if asked else ()
        structure = self.graph.structure(concepts=concepts)
        stats, folder = self.stats(), self.store.path
        with self.store.reading():
            data = ReportInput(
                name="a memory without a folder" if folder is None else folder.name,
                config=self.config,
                stats=stats,
                structure=structure,
                columns=self.store.columns(),
                ids=self.store.ids(),
                texts=list(self.store.texts()),
                embeddings=self.store.embeddings(),
                results=results,
            )
        return write_report(data, path, limit=limit, most_edges=most_edges, iterations=iterations)

    def export(
        self,
        path: str | os.PathLike[str] | TextIO,
        *,
        vectors: bool = False,
        namespaces: bool = True,
    ) -> int:
        """Write the contents of the memory as JSON lines, and return its number of memories.

        The file, or open text stream, is complete or absent. `vectors`, larger than all else, are
        left out by default. It holds neither uses nor what linking makes again.
        """
        from graphmem_torch.memory.transfer import export

        return export(self._asking.states, path, vectors=vectors, namespaces=namespaces)

    def import_(
        self, path: str | os.PathLike[str], *, format: str | None = None, progress: bool = False
    ) -> Added:
        """Add the memories of an export, also to namespaces; skips those that are stored already.

        A file of another program (`readers.moving`) is detected by content, unless `format` names
        it. A truncated or changed file stores nothing; an interrupted import can be repeated.
        """
        from graphmem_torch.memory.transfer import import_file

        return import_file(self._asking.states, path, format=format, progress=progress)

    def stats(self) -> dict[str, Any]:
        """Return counts, sizes and bindings of the store, without its namespaces."""
        from graphmem_torch.memory.lookup import num_visible
        from graphmem_torch.memory.stored import memory_stats

        archive, modes = self._state.archive(), self._state.modes
        return memory_stats(
            self.store,
            modes=(modes.found, modes.updated),
            learned={each.kind: str(each) for each in self.learning.records()},
            archived=0 if archive is None else num_visible(archive.store),
            namespaces={"number": len(self.namespaces), "bytes": self._state.spaces.bytes()},
        )

    def check(self) -> list[str]:
        """Return the problems of the store and of its namespaces; none if all are sound."""
        return self.store.check() + self._state.spaces.problems()

    def close(self) -> None:
        """Save a snapshot if the saved one is outdated, and close the store and its namespaces."""
        self._state.close()

    def __enter__(self) -> Self:
        """Return the memory."""
        self.store.expect_there()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the memory; after an error without saving a snapshot."""
        self._state.close(save=kind is None)

    # The last method: below it `list` would mean this one in annotations.

    def list(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order: str = "added",
        limit: int | None = None,
        after: str | None = None,
        expired: bool = False,
    ) -> Page:
        """Return atoms in an order, page by page; archived ones are in `upkeep.archived()`.

        `order` is `added`, `time`, `id` or `importance`; `-time` and so on descending. A page has
        at most `limit` atoms; the next one begins `after` the `next` of this one, or after any id.
        `where` has conditions as in `retrieve`. `expired` lists what has expired and is not deleted
        yet instead.
        """
        from graphmem_torch.memory.paging import page_of

        given: Any = {"order": order, "limit": limit, "after": after, "expired": expired}
        return page_of(self._asking, where=where, **given)
