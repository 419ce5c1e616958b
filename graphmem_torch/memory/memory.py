"""Memory: the application object, a store on disk with an encoder and an index of it."""

# A text is a sequence of texts: the overloads for one come first.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO, TypeVar, Unpack, cast, overload

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, Atom, EdgeType
from graphmem_torch.checks import check_count, check_share
from graphmem_torch.config import (
    POLICIES,
    Config,
    ReconcileConfig,
    checked_config,
    load_config,
    save_preset,
)
from graphmem_torch.errors import (
    EmbedderError,
    InputError,
    MissingNodeError,
    StoreDamagedError,
    StoreError,
    located,
    unknown,
)
from graphmem_torch.index.execution_plan import CandidateRule
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Stages
from graphmem_torch.judge.entailment import LexicalJudge
from graphmem_torch.memory import contexts, edge_writes, learning
from graphmem_torch.memory.aggregates import (
    LEVELS,
    Member,
    aggregate_atoms,
    built_of_depth,
    mentions_of,
    sources_of_depth,
    unchanged,
    written,
)
from graphmem_torch.memory.archive import (
    ERASING,
    ArchiveLinks,
    apart,
    carry_insights,
    derived_of_both,
    expect_apart,
    keep_ties,
    loose_ends,
    restore_ties,
    state_validity,
    superseded_with,
    superseding_with,
    ties_of,
)
from graphmem_torch.memory.clusters import Clusters, clusters
from graphmem_torch.memory.compatibility import (
    bound_concepts,
    bound_embedder,
    embedder_meta,
    expect_bound,
    link_settings,
    load_as,
    open_bound,
    resolved_settings,
    usable_device,
)
from graphmem_torch.memory.conflict_pairs import SharedKeys
from graphmem_torch.memory.conflicts import conflicts_of, explained, outdated_statements
from graphmem_torch.memory.contexts import CompileOptions as Options
from graphmem_torch.memory.decay import (
    ORACLE,
    Classified,
    DecayState,
    classify_nodes,
    extracted_atom,
    open_nodes,
    stated_edges,
)
from graphmem_torch.memory.duplicates import DuplicateGroups
from graphmem_torch.memory.edge_writes import unlinked_edges
from graphmem_torch.memory.exchange import (
    ExportedPart,
    KnownVectors,
    check_export,
    exported_atoms,
    exported_edges,
    exported_splits,
    exported_validity,
    restore_learned,
    restore_life,
    stored_rows,
    versions_apart,
)
from graphmem_torch.memory.exporting import Exported, stored_entries, write_export
from graphmem_torch.memory.fields import AtomFields, one_warning
from graphmem_torch.memory.file_sync import FileSync, ReadSettings
from graphmem_torch.memory.history import changes_since, history_of, versions_of, with_archived
from graphmem_torch.memory.importance import Importance
from graphmem_torch.memory.index_builder import (
    SWITCHED_KEY,
    IndexBuilder,
    ModeCache,
    Snapshot,
    last_switch,
)
from graphmem_torch.memory.insight import to_particles, understand_nodes
from graphmem_torch.memory.intake import (
    FieldChanges,
    Intake,
    changed_atom,
    changes_given,
    checked,
    digest_of,
)
from graphmem_torch.memory.listing import Ordering, ids_in_order, listed_page, moment_of
from graphmem_torch.memory.lookup import (
    atoms_by_id,
    listed_ids,
    named_nodes,
    nodes_of,
    nodes_that_fit,
    with_derived,
)
from graphmem_torch.memory.mentions import concept_id
from graphmem_torch.memory.modes import (
    REGIME_KEY,
    RegimeMonitor,
    align_parts,
    mode_records,
    mode_summaries,
)
from graphmem_torch.memory.namespace_folders import (
    archive_of,
    checked_name,
    is_archive,
    namespace_folders,
    owner_of,
)
from graphmem_torch.memory.namespaces import MOST_OPEN, Namespaces
from graphmem_torch.memory.plan_choice import plans_of
from graphmem_torch.memory.plans import Chains, answered, carried_out
from graphmem_torch.memory.questions import (
    as_hit,
    checked_questions,
    encode_questions,
    pick_encoded,
    to_explanation,
    to_results,
    verdicts,
    verified,
    verified_results,
    with_duplicates,
    with_traces,
)
from graphmem_torch.memory.reconcile import DUPLICATE_COSINE, Resolver, find
from graphmem_torch.memory.reembed import reembed_store
from graphmem_torch.memory.refining import Refining
from graphmem_torch.memory.scope import (
    Filters,
    Instants,
    Names,
    PlanLike,
    Scope,
    TimelessFilters,
    atom_masks,
    concept_nodes,
    entity_seeds,
    over_moments,
)
from graphmem_torch.memory.stored import memory_stats
from graphmem_torch.memory.structure_cache import MissingLink, StructureCache, missing_links
from graphmem_torch.memory.validity import restore_statements, set_validity, supersede, validity_of
from graphmem_torch.memory.validity_spans import ValiditySpans
from graphmem_torch.memory.writer import Writer, batched
from graphmem_torch.ops.growing import RowsOnDevice
from graphmem_torch.oracle import Judge, Oracle, method_of
from graphmem_torch.progress import Progress
from graphmem_torch.rank.abstention import conformal_threshold
from graphmem_torch.rank.filters import Where, parse_where
from graphmem_torch.rank.plan import Events
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.readers.jsonl import parse_edge_type
from graphmem_torch.readers.messages import is_object
from graphmem_torch.readers.read import document_atoms
from graphmem_torch.results import (
    Added,
    Answer,
    Change,
    Conflict,
    Consolidated,
    Context,
    Explanation,
    History,
    Indexed,
    Learned,
    Mode,
    ModeAlignment,
    ModeSummary,
    Page,
    Particle,
    QueryPlan,
    Receipt,
    Reconciled,
    RegimeSwitch,
    Result,
    Understood,
    Validity,
    Version,
)
from graphmem_torch.spectral.structure import Structure
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.folder import store_folder
from graphmem_torch.store.lock import WriterLock
from graphmem_torch.store.receipts import read_receipt, receipt_problems
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.concepts import ConceptExtractor
from graphmem_torch.text.embedder import Embedder, Encoded, encode_checked, rescaled
from graphmem_torch.text.naming import plain_name
from graphmem_torch.text.question import looks_back
from graphmem_torch.text.times import TimeLike, parse_time
from graphmem_torch.text.tokens import TokenCounter, Tokenizer, get_tokenizer

if TYPE_CHECKING:
    from graphmem_torch.context.summarise import Shorten
    from graphmem_torch.report import Report

__all__ = ["Memory"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PAGE = 256  # memories that are read at once when all are asked for
_EDGES = 1 << 17  # that are imported in one transaction
_ASIDE = 256  # memories that are archived in one turn
_TOGETHER = 32  # aggregates that are encoded and stored in one
_UNSEEN = 4096  # memories that the detector of switches reads before those that are added
_REREAD = 256  # memories that it reads again, rather than that its state is written
_REPORTED = 5  # hits of a question in a report
_PASSES = 16  # of a consolidation; more than 3 are rare
_AGGREGATED = "aggregate.done"  # the state that a consolidation found nothing to aggregate in
_EVERYTHING = Scope()


@dataclass(frozen=True)
class _Scope:
    """Scope of a consolidation, with the steps that it must not try or undo twice.

    Attributes:
        stop: First node of the memories that were added after it began: the next call takes them.
        stuck: Nodes that cannot be archived.
        made: Ids of the aggregates that it made.
    """

    stop: int
    stuck: set[int] = field(default_factory=set)
    made: set[str] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class _View:
    """What a question is asked of: an index, and what belongs to it.

    Attributes:
        snapshot: The index.
        store: What the texts of its atoms are read from.
        contexts: Of this store.
        fields: Likewise.
    """

    snapshot: Snapshot
    store: TensorReader
    contexts: contexts.ContextCompiler
    fields: AtomFields


class Memory:
    """Long-term memory: `add` atoms, `retrieve` for questions, `compile` a context.

    What `add` has returned for is on disk for good, and the next question sees it. One object may
    be used by many threads, where its encoder may: questions are answered side by side, and what
    several threads add at once is encoded side by side and stored in one commit. Several processes
    may add to one folder, too; they take turns.

    `len(memory)` counts its atoms, `id in memory` asks for one; concepts, which linking makes, are
    neither counted nor found. Ids that are not stored are an `InputError` wherever they are given.

    Attributes:
        store: The truth on disk.
        config: The settings.
        device: Where the index lives.
        name: Of the namespace that it is; None for a memory of its own.
    """

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder | None,
        config: Config,
        device: str,
        clock: Callable[[], float] = time.time,
        *,
        concepts: str | ConceptExtractor | None = None,
        name: str | None = None,
        parent: Memory | None = None,
        namespaces_open: int = MOST_OPEN,
    ) -> None:
        """Use `Memory.open`, and `namespace` of what it gives."""
        self.store = store
        self.config = config
        self.device = device
        self.name = name
        self._embedder = embedder
        self._concepts = config.link.concepts if concepts is None else concepts
        self._clock = clock
        self._parent, self._settings = parent, config
        self._lock = threading.RLock()  # of the snapshot, the settings and the encoder
        self._past_lock = threading.Lock()
        self._learned: dict[str, learning.Applied] = {}
        self._known = ""  # `LearnedRows.version` of what was learned
        # By kind, what only this object uses: learned while reading only, or given (None).
        self._own: dict[str, learning.Applied | None] = {}
        self._refining: Refining | None = None
        self._correcting, self._tried = threading.Lock(), 0  # feedback that was there then
        self._regimes: RegimeMonitor | None = None
        self._listeners: list[Callable[[RegimeSwitch], object]] = []
        self._spaces: Namespaces[Memory] = Namespaces(
            store, self._namespace, Memory._put_down, Memory._changed, most=namespaces_open
        )
        self._set_up()
        self._follow()

    def _set_up(self) -> None:
        """Knows nothing of the store yet; whoever is at work goes on with what was known."""
        self._writer: Writer | None = None
        self._modes = ModeCache()
        self._modes.follow(last_switch(self.store))
        self._assemble = IndexBuilder(self._modes)
        self._let_go()

    def _let_go(self) -> None:
        """Knows no content of the store but that from which its next state can be followed."""
        self._snapshot: Snapshot | None = None
        self._on_device: dict[str, RowsOnDevice] = {}  # of the index, where that is no CPU
        self._modes.expire()
        self._structure = StructureCache(self.store)
        self._decay = DecayState(self.store, self._settings.decay, clock=self._clock)
        self._importance = Importance(self.store, self._settings.refine, self._decay)
        self._contexts = contexts.ContextCompiler(self.store)
        self._fields = AtomFields(self.store)
        self._spans = ValiditySpans(self.store)
        self._keys = SharedKeys()
        self._duplicates = DuplicateGroups(self.store, DUPLICATE_COSINE, self._cosines)
        self._past: tuple[object, _View] | None = None  # what it shows, and it

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
        namespaces_open: int = MOST_OPEN,
    ) -> Self:
        """Opens the memory in a folder.

        Args:
            path: The folder of the store, relative to the current folder of now, whatever that is
                later; None keeps it in the process.
            preset: Name of a preset, or path of a YAML file.
            config: Settings, instead of a preset.
            embedder: A SentenceTransformer, its name, or an embedder; by default the store's own,
                and for a new store what the settings name.
            concepts: What finds the concepts of texts, or its name; by default `link.concepts` of
                the settings. One of your own is given again whenever atoms are added.
            device: Where the index lives: `auto` (CUDA where there is one), `cpu`, `cuda`, ...
            mode: `w` to add, `r` to read.
            create: Whether a store that is missing is made, with mode `w`.
            clock: Now, seconds since the epoch UTC.
            namespaces_open: Namespaces whose files stay open, three each, beside those in use.

        Raises:
            ConfigError, EmbedderError, StoreError: As they say; nothing is changed.
        """
        check_count("namespaces_open", namespaces_open)
        given = load_config(preset) if config is None else checked_config(config)
        settings = resolved_settings(given)
        place = usable_device(device)
        store, loaded = open_bound(
            path, mode, embedder, settings.embedder, place, create=create or path is None
        )
        return cls(
            store,
            loaded,
            settings,
            place,
            clock,
            concepts=concepts,
            namespaces_open=namespaces_open,
        )

    @classmethod
    def reembed(
        cls,
        path: str | os.PathLike[str],
        embedder: Any,
        *,
        preset: str = "default",
        config: Config | None = None,
        device: str = "auto",
        batch: int = 256,
        progress: bool = False,
    ) -> int:
        """Gives the memory in a folder another encoder, and keeps everything else.

        All texts are encoded anew, those of its namespaces too, while the memory is read and
        written as ever; one that is interrupted goes on from there when it is called again. Then
        the vectors are put in place of the old in one transaction for each store, with the edges
        that linking makes of them. Names of concepts stay as they are. Whoever has the memory open
        must open it again.

        Args:
            path: The folder of the store.
            embedder: As in `open`.
            preset: Name of the preset that it is linked by, or path of a YAML file.
            config: Settings, instead of a preset.
            device: Where to encode.
            batch: Texts that are encoded before their vectors are kept.
            progress: Shows a bar on stderr.

        Returns:
            How many texts were encoded; 0 where the memory has this encoder already.

        Raises:
            ConfigError, EmbedderError, StoreError: As they say; the memory is as it was.
        """
        check_count("batch", batch)
        settings = load_config(preset) if config is None else checked_config(config)
        loaded = load_as(embedder, settings.embedder, usable_device(device))
        meta = {**embedder_meta(embedder, settings.embedder), REGIME_KEY: None}
        link = link_settings(settings.link, loaded)
        with ExitStack() as stack:
            folder = store_folder(path)
            stack.enter_context(MemoryStore.open(folder, mode="r"))  # there is one
            folders = [folder, *namespace_folders(folder)]
            stores = [stack.enter_context(MemoryStore.open(each)) for each in folders]
            total = 2 * sum(len(store.rendered()) for store in stores)
            bar = stack.enter_context(
                Progress(what="reembed", unit="texts", total=total, shown=progress)
            )
            # All of them are encoded before the first is changed.
            return sum(
                reembed_store(store, loaded, meta, link, bar.update, batch=batch, switch=switch)
                for switch in (False, True)
                for store in stores
            )

    @property
    def embedder(self) -> Embedder:
        """The encoder; of a memory that is only read it is loaded when it is first needed."""
        with self._lock:
            if self._embedder is None and self._parent is not None:
                self._embedder = expect_bound(self.store, self._parent.embedder)
            elif self._embedder is None:
                self._embedder = bound_embedder(self.store, self.config.embedder, self.device)
            return self._embedder

    @property
    def chunker(self) -> Tokenizer:
        """What counts the tokens of a chunk of a document.

        Raises:
            InputError: The settings name an unknown tokenizer.
        """
        named = self.config.embedder.chunk_tokenizer
        return get_tokenizer(named) if named else self.embedder.tokenizer

    @property
    def index(self) -> MemoryIndex:
        """The index of everything that is stored now; rebuilt where the store has changed."""
        return self._current().index

    def __len__(self) -> int:
        """Number of atoms; concepts do not count."""
        return self.store.num_atoms

    def __bool__(self) -> bool:
        """True, also without atoms."""
        return True

    def __contains__(self, id: object) -> bool:
        """Whether an atom of this id is stored."""
        concept = concept_id("")
        if not isinstance(id, str) or id.startswith(concept):
            return False
        return bool(self.store.known(self.store.forms.ids([id])))

    def __iter__(self) -> Iterator[Atom]:
        """The atoms in the order in which they were added, each as it is when its turn comes.

        Others may write meanwhile: what they delete is left out, what they add is not seen.
        """
        with self.store.reading():
            ids = ids_in_order(self.store)
        at, size = 0, _PAGE
        while at < len(ids):
            part, size = ids[at : at + size], min(2 * size, _PAGE)
            with self.store.reading():
                state = self.store.state
                node = {name: number for name, (number, _) in self.store.known(part).items()}
                there = [name for name in part if name in node]
                atoms = self.store.atoms([node[name] for name in there])
            found = dict(zip(there, atoms, strict=True))
            for place, name in enumerate(part):
                if place and self.store.state != state:
                    size = 1  # whoever asks may write after every one
                    break
                at += 1
                if name in found:
                    yield found[name]

    def __repr__(self) -> str:
        """Where it is, what it holds, by which settings and encoder, and whether it is open."""
        path = (self._parent or self).store.path
        place = "in the process" if path is None else repr(str(path))
        if self.name is not None:
            place += f", namespace {self.name!r}"
        if self.store.closed:
            return f"Memory({place}, closed)"
        encoder = self.store.fingerprint if self._embedder is None else self._embedder.name
        mode = "read" if self.store.readonly else "write"
        return (
            f"Memory({place}, {len(self):,} atoms, preset {self.config.name!r}, "
            f"embedder {encoder!r}, open to {mode})"
        )

    # Adding and looking up.

    def add(
        self,
        atoms: Atom | str | Mapping[str, Any] | Iterable[Atom | str | Mapping[str, Any]],
        *,
        session: str | None = None,
        key: str | None = None,
        progress: bool = False,
        origins: Mapping[str, str] | None = None,
    ) -> Added:
        """Stores and links atoms, a batch a transaction; after an error the ones before stay.

        Args:
            atoms: Atoms, texts, mappings with the fields of a line of JSON lines, messages of a
                chat, `{"role": "user", "content": "..."}` (`readers.atom_from_record`), also as
                objects of a client, or sessions with `turns` (`readers.sessions.turn_records`);
                times as in `retrieve`. A message that says nothing or cannot be used is left out,
                the others are stored; `Added.skipped` and `Added.losses` say what was lost. What is
                stored already is passed over: by its id; without one, if it has a time, by its
                content. What has neither is another memory each time.
            session: The session of what names none.
            key: Name of this call, such as the id of a request, that makes it safe to repeat: a
                call with a key that was used adds nothing, in any process, also when what it added
                was deleted since. Keys, and what is added, are the same in all forms of Unicode.
            progress: Shows a bar on stderr.
            origins: For ids of atoms, where they came from, for messages; may be filled while the
                atoms are read.

        Raises:
            InputError: Empty text, an id that is stored with other content, an unusable field, a
                key that was used for another content.
            ConfigError, EmbedderError, StoreError: As they say.
        """
        if isinstance(atoms, (Atom, str, Mapping)) or is_object(atoms):
            atoms = [cast("Mapping[str, Any]", atoms)]
        if not isinstance(atoms, Iterable):
            raise InputError(f"atoms: expected atoms, texts or mappings, got {atoms!r:.80}")
        places = {} if origins is None else origins  # it may be filled as the atoms are read
        if session is not None and not (isinstance(session, str) and session.strip()):
            raise InputError(f"session: expected a name, got {session!r:.80}; leave it out")
        if key is not None:
            if not (isinstance(key, str) and key.strip()):
                said = f"key: expected a name of this call, got {key!r:.80}; leave it out"
                raise InputError(said)
            key = self.store.keyed.stored(key)
        intake = Intake(session, key)
        made = intake.atoms(atoms)
        whole: list[Atom] = []
        if key is not None:
            whole = list(made)
            for atom in whole:
                digest_of(atom)  # an error that names what JSON cannot hold
            if self.store.keyed.used(key, whole):
                ids = self.store.forms.ids([atom.id for atom in whole])
                return Added(0, len(whole), tuple(ids)) + intake.report()
            made = iter(whole)
        done = Added(0, 0)

        def add(part: Sequence[Atom]) -> Added:
            added, switches = self._add(self.store.forms.adopt(part), places)
            self._tell(switches)
            return added

        with Progress(what="index", unit="atoms", shown=progress) as bar:
            for batch in batched(made, self.config.link.batch_atoms):
                done += intake.store(batch, add)
                bar.update(len(batch))
        if key is not None:
            self.store.keyed.put(key, whole, done.ids)
        if self._writer is not None:
            self._writer.warn_of_unresolved()
        return done + intake.report()

    def add_document(
        self, text: str, *, name: str, time: TimeLike | None = None, title: str | None = None
    ) -> Added:
        """Cuts a document into chunks and stores them in the session `name`, ids `name#0`, ...

        Args:
            text: The document; the chunks joined are this text.
            name: What it is called.
            time: When it was written, a time as in `retrieve`.
            title: Title of its chunks; if `name` ends with `.md`, the headings
                above them come first.

        Raises:
            InputError: No text, no name, a time that is none, or a name that is stored with another
                text.
            EmbedderError, StoreError: As `add`.
        """
        size = self.config.embedder.max_tokens
        when = None if time is None else parse_time(time)
        cut = document_atoms(
            text, name=name, tokenizer=self.chunker, max_tokens=size, time=when, title=title
        )
        losses: Counter[str] = Counter()
        chunks = [checked(chunk, losses) for chunk in cut]
        known = self.store.known([chunk.id for chunk in chunks])
        bare = [replace(chunk, title=None) for chunk in chunks]  # as releases before stored them
        added = self.add(
            old if known.get(old.id, (0, ""))[1] == old.digest else new
            for old, new in zip(bare, chunks, strict=True)
        )
        return added + Added(0, 0, losses=losses)

    def add_files(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        format: Literal["text", "jsonl", "locomo", "whatsapp-dmy", "whatsapp-mdy"] | None = None,
        input: Literal["raw", "observations"] = "raw",
        prune: bool = False,
        dry_run: bool = False,
        skip_bad: bool = False,
        progress: bool = False,
    ) -> Indexed:
        """Follows files and folders: brings the memory to what they say now.

        As often as wanted, and from anywhere: a file is known by its place, however its path is
        given. A new file is known by its content if that is what a file that is gone said: it has
        moved. A file that is still there keeps its ids, also after it was copied, or its content
        and another's were exchanged. What has the size and times it had is not
        read. Of a file that has changed, chunks (lines) of the same text keep their ids and are not
        encoded again, others are new versions of those that stood there, and what it says no longer
        is deleted, unless another file says it too. What callers added is never touched.

        Messages of exports of chat programs have the ids that the programs gave them: a later
        export adds what is new, and gives a new version to what was edited.

        Chunks have the ids `<name>#<number>` and the session `<name>`: the path of the file from a
        folder that the store keeps (the one around what came first), else the absolute path. After
        a move the session is the new name, and the ids stay.

        Args:
            paths: Files, folders, or "-" for standard input, which is only added.
            format: Name of the format of every file given, whatever its suffix; as in `read_atoms`.
            input: What is read of LoCoMo: the turns, or also the facts of the data set.
            prune: Delete what only files say that are in these places no longer (gone, or empty);
                otherwise they are listed, and kept.
            dry_run: Say what would be done, and change nothing.
            skip_bad: Leave out files and lines that cannot be used, and list them.
            progress: Shows a bar on stderr.

        Raises:
            InputError: A path that is not there. A file or line that cannot be used: the error
                comes last, after all else is stored; what such a file said before is kept.
            ConfigError, EmbedderError, StoreError: As they say.
        """
        several = list(paths) if isinstance(paths, Iterable) else []
        listed = [paths] if isinstance(paths, (str, os.PathLike)) else several
        own, batch = self.config.embedder, self.config.link.batch_atoms
        reading = ReadSettings(
            self.chunker, own.chunk_tokenizer, own.max_tokens, format, input, batch
        )
        known = None if dry_run else KnownVectors(self.embedder)
        writer = None if known is None else self._writer_with(known)

        switches: list[RegimeSwitch] = []

        def add(atoms: list[Atom], origins: Mapping[str, str]) -> Added:
            added, found = self._add(atoms, origins, writer)
            switches.extend(found)
            return added

        def advance(count: int) -> None:
            bar.update(count)
            self._tell(switches)  # not in a transaction, for which whoever is told may wait
            switches.clear()

        def prepare(atoms: Sequence[Atom]) -> None:
            if writer is not None:
                writer.prepare(atoms)

        def update(atom: Atom) -> None:
            if writer is not None:
                writer.update(atom.id, lambda old: replace(atom, edges=old.edges), self._clock())

        deleted: set[str] = set()

        def delete(ids: Sequence[str]) -> int:
            with self.store.turn():
                nodes = list(nodes_of(self.store, ids).values())
                if writer is not None:
                    writer.remove(nodes, self._without)
            deleted.update(ids)
            return len(nodes)

        if writer is not None:
            writer.load()  # before anybody waits for this run
        follower = FileSync(self.store, reading, known, prepare, add, update, delete)
        with (
            nullcontext() if dry_run else self.store.following(),
            Progress(what="index", unit="atoms", shown=progress) as bar,
        ):
            try:
                done = follower.run(listed, prune=prune, skip_bad=skip_bad, advance=advance)
            except BaseException:
                self._read_again()  # what the detector has read may be undone
                raise
            advance(0)
        if writer is not None:
            self._untie(deleted.difference(self.store.known(sorted(deleted))))
            writer.warn_of_unresolved()
        return done

    @overload
    def get(self, ids: str) -> Atom: ...

    @overload
    def get(self, ids: Sequence[str]) -> list[Atom]: ...

    def get(self, ids: str | Sequence[str]) -> Atom | list[Atom]:
        """Atoms by id, in the order asked for; ids may repeat.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        atoms = atoms_by_id(self.store, ids, self._is_archived)
        return atoms[0] if isinstance(ids, str) else atoms

    def update(
        self,
        id: str | Mapping[str, Any],
        given: Mapping[str, Any] | None = None,
        /,
        **changes: Unpack[FieldChanges],
    ) -> Atom:
        """Gives an atom another content under the same id; the new atom, on disk when it returns.

        What is not named stays: place in the session, edges that were stated or connected, pin,
        uses. The edges that follow from its content are made anew. The version before is kept for
        questions `as_of` a moment before the change, and is in no other answer. Of a chunk of a
        document that gets another text `start` and `end` go from its `meta`: it lies there no more.

        Args:
            id: Id of a stored atom; or a mapping as `given` is, with the `id` in it.
            given: New values by field, as a mapping that `add` takes: `{"text": "..."}`, or a
                message, `{"role": ..., "content": ...}`, of which `meta` is replaced if it says
                more than a text.
            changes: New values of `text`, `title`, `kind`, `speaker`, `session`, `time`,
                `event_time`, `event_end`, `type` and `meta`, as in `Atom`; None takes one away.
                `meta` is replaced whole.

        Raises:
            InputError: An id that is not stored, an unknown field, an unusable value; nothing has
                changed then.
            StoreError: Read-only store or full disk; likewise.
        """
        self.store.expect_writable()
        wanted, values = changes_given(id, given, changes)
        name = self._named(wanted)[0][0]
        writer = self._written_by()
        return writer.update(name, lambda atom: changed_atom(atom, values), self._clock())

    def versions(self, id: str) -> list[Version]:
        """What an atom said over time, the first version first and that of today last.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        with self.store.reading():
            return versions_of(self.store, self._named(id)[1][0])

    def delete(self, ids: str | Iterable[str]) -> int:
        """Deletes atoms, all or none; how many. On disk for good when it returns.

        With them go their versions, pins, types, uses and edges, and concepts that no other atom
        mentions; edges that linking made of others become those of a memory that never held them.
        Edges that others state to them wait for atoms of these ids. What is deleted is not found
        any more; `forget` also wipes its bytes from the disk.

        Args:
            ids: Of stored atoms; may repeat.

        Raises:
            InputError: An id that is not stored, or that of a concept; nothing is deleted then.
            StoreError: Read-only store or full disk; likewise.
        """
        with self._turn():
            named, nodes = self._named(ids)
            self._written_by().remove(nodes, self._without)
            self._untie(named)
        return len(nodes)

    def _without(self, batch: Batch, meta: Mapping[str, str], *, deleted: bool = True) -> None:
        """Stores a batch that takes atoms away."""
        self.store.append(batch, when=self._clock(), meta=meta, deleted=deleted)

    def _untie(self, gone: Collection[str]) -> None:
        """Has the archive keep nothing of what holds with atoms that are gone; in the turn."""
        archive = self if self.name is not None and is_archive(self.name) else self._archive()
        if archive is not None and gone:
            keep_ties(archive.store, gone=gone)

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
    ) -> Receipt:
        """Erases atoms for good: no byte of what they said, nor of what was made of it, is left.

        As `delete`, in one transaction, with earlier versions, what was deleted before, and what is
        derived from them (`derived_from`) as well. Their vectors are overwritten, free pages, logs
        and the snapshot wiped; feedback on them goes with its question; weights and thresholds that
        were learned while they were there are those of the settings again, and a detector of
        regimes starts anew. Answers are those of a memory
        that never held them. What is archived is erased likewise, unless a `question` is given. No
        language model is called. Exports, backups and files that were
        indexed are not touched: `graphmem index` reads a file again once it changes, and one of
        which nothing is left, which is followed no longer, as a new one.

        Conditions beside each other must all hold.

        Args:
            ids: Of stored atoms.
            session: Only atoms of this session.
            speaker: Only atoms of this speaker.
            before: Only atoms whose time is earlier; a time as in `retrieve`.
            where: Only atoms for which these conditions hold, as in `retrieve`. A condition that
                all atoms meet because none has its field is refused, `$exists` apart.
            question: Only the `k` best hits for it, of what the rest leaves.
            k: How many hits, at least 1.

        Returns:
            What says so; `check_receipt` holds it against the store.

        Raises:
            InputError: No condition, an id, session or speaker that is not stored; nothing is
                erased then.
            StoreError: Read-only store or full disk; likewise.
        """
        self.store.expect_writable()
        with self._forgetting(ids, session, speaker, before, where, question, k) as chosen:
            archive, nodes, away = chosen
            if archive is None:
                self._untie(self.store.contents(nodes)[0])
                return self._erase(nodes)
            receipt = self._erase(nodes, (archive.store, away))
            self._finish_forgetting(archive)
        return receipt

    def forgettable(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        session: str | None = None,
        speaker: str | None = None,
        before: TimeLike | None = None,
        where: Mapping[str, Any] | None = None,
        question: str | None = None,
        k: int | None = None,
    ) -> list[Atom]:
        """What `forget` would erase, given the same: atoms, what is derived from them among them.

        Nothing is changed; archived atoms come behind the others.

        Raises:
            InputError: As `forget`.
        """
        with self._forgetting(ids, session, speaker, before, where, question, k) as chosen:
            archive, nodes, away = chosen
            atoms = self.store.atoms(nodes)
            if archive is not None:
                atoms += archive.store.atoms(away)
        # An interrupt may have left one in both.
        return list({atom.id: atom for atom in reversed(atoms)}.values())[::-1]

    @contextmanager
    def _forgetting(
        self,
        ids: str | Iterable[str] | None,
        session: str | None,
        speaker: str | None,
        before: TimeLike | None,
        where: Where,
        question: str | None,
        k: int | None,
    ) -> Iterator[tuple[Memory | None, list[int], list[int]]]:
        """The archive, and nodes here and there for which all conditions of `forget` hold.

        Nobody else writes inside, or, where the store is only read, is seen to.
        """
        # No condition at all is no condition to erase by.
        where = parse_where(where) if where else None
        given = ids, session, speaker, before, where, question
        if all(each is None for each in given) or (k is None) != (question is None):
            raise InputError(
                "forget: expected ids, session, speaker, before, where, or question with k, got "
                f"{'none of them' if k is None and question is None else 'one without the other'}; "
                "say what to erase"
            )
        archive = self._archive()
        with ExitStack() as stack:
            for each in [self] if archive is None else [self, archive]:
                own = each.store
                stack.enter_context(own.reading() if own.readonly else each._turn())
            conditions = session, speaker, before, where
            if archive is None:
                with one_warning():
                    chosen = self._chosen(ids, *conditions, question, k)
                yield None, with_derived(self.store, chosen), []
                return
            named = [ids] if isinstance(ids, str) else None if ids is None else list(ids)
            with one_warning():
                if question is None:
                    nodes, away = self._chosen_of_both(archive, named, *conditions)
                else:
                    nodes, away = self._chosen(named, *conditions, question, k), []
            yield archive, *derived_of_both(self.store, archive.store, nodes, away)

    def _finish_forgetting(self, archive: Memory) -> None:
        """Erases from the archive what was forgotten, where that is still to be done."""
        if self.store.readonly or self.store.meta_get(ERASING) is None:
            return
        try:
            with self.store.turn(), archive.store.turn():
                kept = json.loads(self.store.meta_get(ERASING) or "[]")
                nodes = archive.store.present(kept)
                ends = loose_ends(self.store, archive.store, nodes)
                # What was restored has left bytes there.
                if keep_ties(archive.store, gone=ends) or nodes or archive.store.unwiped:
                    archive._erase(nodes)
                self.store.meta_set(ERASING, None)
        except StoreDamagedError:
            raise
        except StoreError as error:
            _log.warning(
                "%s: what was forgotten is still in the archive (%s); it is erased when that "
                "is next used",
                archive.store.path,
                error,
            )

    def _erase(
        self, nodes: Sequence[int], archived: tuple[MemoryStore, Sequence[int]] | None = None
    ) -> Receipt:
        """Erases atoms; in the turn. `archived`: the archive, and those that go there with them."""
        erasing = {} if archived is None else {ERASING: json.dumps(list(archived[1]))}
        receipt = self._written_by().remove(
            nodes,
            lambda batch, meta: self.store.erase(
                batch,
                when=self._clock(),
                forgotten=[REGIME_KEY, SWITCHED_KEY],
                meta=meta | erasing,
                archived=archived,
            ),
        )
        self._follow()
        with self._lock:
            self._let_go()
        self._read_again()
        return receipt

    def compact(self) -> int:
        """Gives back to the disk what was freed by forgetting and deleting; how many bytes.

        What is freed is written to again, but the file stays as long as it was: after much was
        forgotten this writes it anew, in time and room that go with what is left. Others can read
        meanwhile; while they do, the file may stay long. The archive comes with it.

        Raises:
            StoreError: Read-only store or full disk; nothing has changed.
        """
        self.store.expect_writable()
        archive = self._archive()
        return self.store.compact() + (0 if archive is None else archive.store.compact())

    def check_receipt(self, receipt: Receipt | str | os.PathLike[str]) -> list[str]:
        """Why a receipt does not prove that its memories are erased; empty where it does.

        Args:
            receipt: What `forget` gave, or a file with its `to_json`.

        Raises:
            InputError: No receipt.
        """
        receipt = read_receipt(receipt)
        archive = self._archive()
        with self.store.reading():
            others = [] if archive is None else [archive.store]
            return receipt_problems([self.store, *others], receipt)

    def _chosen(
        self,
        ids: str | Iterable[str] | None,
        session: str | None,
        speaker: str | None,
        before: TimeLike | None,
        where: Where,
        question: str | None = None,
        k: int | None = None,
    ) -> list[int]:
        """Node numbers of the atoms for which all conditions hold."""
        named = None if ids is None else self._named(ids)[1]
        if named is not None and session is speaker is before is where is question is None:
            return named
        moment = None if before is None else parse_time(before, "before")
        fit = nodes_that_fit(self.store, named, session=session, speaker=speaker, before=moment)
        nodes = torch.tensor(fit, dtype=torch.int64)
        if where is not None:
            view = self._view()
            fits = view.fields.where(view.snapshot, where, removing=True).cpu()
            nodes = nodes[torch.isin(nodes, view.snapshot.node[fits])]
        if question is not None:
            check_count("k", cast(int, k))
            view, asked = self._view(), checked_questions(question)
            listed = torch.isin(view.snapshot.node, nodes)
            query = self._query(view, asked, Scope(where=where))
            if named is None and query.listed is not None:
                listed &= query.listed[0].cpu()
            query = replace(query, listed=listed[None].to(query.embedding.device))
            with torch.inference_mode():
                rows = view.snapshot.index(query, k=k).rows[0].cpu()
            nodes = view.snapshot.node[rows[rows >= 0]]
        return nodes.tolist()

    def _chosen_of_both(
        self, archive: Memory, ids: Sequence[str] | None, *conditions: Any
    ) -> tuple[list[int], list[int]]:
        """Node numbers of what fits here and in the archive; conditions are those of `_chosen`.

        Raises:
            InputError: A condition that can be decided in neither.
        """
        mine, theirs = (None, None) if ids is None else apart(ids, self.store, archive.store)
        found, errors = list[list[int]](), list[InputError]()
        for memory, own in ((self, mine), (archive, theirs)):
            try:
                found.append(memory._chosen(own, *conditions))
            except InputError as error:  # a name that only the other knows
                found.append([])
                errors.append(error)
        if len(errors) == len(found):
            raise errors[0]
        return found[0], found[1]

    def rows_of(self, ids: Sequence[str]) -> Tensor:  # [n] int64
        """Rows of the index that stand for stored atoms, on its device; of one id a single row.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        snapshot, rows = self._placed([ids] if isinstance(ids, str) else ids)
        return rows.to(snapshot.index.embeddings.device)

    # Questions.

    @overload
    def retrieve(
        self,
        questions: str,
        *,
        oracle: Any = None,
        trace: bool = False,
        **options: Unpack[Filters],
    ) -> Result: ...

    @overload
    def retrieve(
        self,
        questions: Sequence[str],
        *,
        oracle: Any = None,
        trace: bool = False,
        **options: Unpack[Filters],
    ) -> list[Result]: ...

    @overload
    def retrieve(
        self,
        questions: str,
        *,
        as_of: Instants,
        oracle: Any = None,
        trace: bool = False,
        **options: Unpack[TimelessFilters],
    ) -> list[Result]: ...

    @overload
    def retrieve(
        self,
        questions: Sequence[str],
        *,
        as_of: Instants,
        oracle: Any = None,
        trace: bool = False,
        **options: Unpack[TimelessFilters],
    ) -> list[list[Result]]: ...

    def retrieve(
        self,
        questions: str | Sequence[str],
        *,
        k: int | None = None,
        kinds: Sequence[str] | None = None,
        between: tuple[TimeLike | None, TimeLike | None] | None = None,
        as_of: TimeLike | Instants | None = None,
        valid_at: TimeLike | None = None,
        asked: TimeLike | None = None,
        where: Mapping[str, Any] | None = None,
        exclude: Names = (),
        seed_entities: Names = (),
        namespaces: Sequence[str] | None = None,
        plan: PlanLike | Sequence[PlanLike] = None,
        oracle: Any = None,
        trace: bool = False,
    ) -> Result | list[Result] | list[list[Result]]:
        """Ranked memories with reasons and a confidence: a result, or a list for several questions.

        Args:
            questions: One question, or B of them, answered as one batch.
            k: Hits a question; the preset's number by default.
            kinds: Only hits of these kinds; other atoms still lead to them. Aggregates lead to the
                memories that they are of, and are hits only if `kinds` names "aggregate", or
                `where` speaks of `kind` or `id`.
            between: Only atoms whose time is in this span, both ends included, None for an open
                one. Times are as `text.times.parse_time` takes them: seconds since the epoch UTC,
                a `datetime` (UTC where it is naive), ISO 8601.
            as_of: Only atoms whose time is known and not later, in the version of then (`update`),
                and what was known then of their validity: nothing that came later is returned.
                Decay is reckoned from then. Edges, counts of words, PageRank and modes are those of
                today, and what is deleted or archived is missing in the past as well. The first
                question of a moment before an update makes an index of that version, as opening
                does. Of a list of moments the same questions are asked, in one batch for all
                moments between which no atom was updated: a result for each moment, or for several
                questions a list of them for each.
            valid_at: Only atoms whose content was true at this moment, as `validity` says, as far
                as that is known (`as_of`). What was archived, which are values that have ended
                before others, is not here: ask `archived()` the same.
            asked: When the questions are asked, which "last week" in them is reckoned from; `as_of`
                by default, else now.
            where: Only hits for which these conditions hold, such as `{"speaker": "Nora",
                "meta.page": {"$gte": 3}}`, decided before ranking: k hits are k hits. The others
                still lead to them, as with `kinds`, so that an answer is found by the question
                before it, whoever asked it. Fields are `kind`, `speaker`, `session`, `time`,
                `type` (as stated), `id` and those in `meta`, nested ones with dots; a key may have
                dots itself. Operators: `$eq` (or the bare value), `$ne`, `$gt`, `$gte`, `$lt`,
                `$lte`, `$in`, `$nin`, `$not`, `$exists`; of lists `$contains`, `$containsAny`,
                `$containsAll`; `$and` and `$or` join lists of conditions. As in MongoDB, a
                condition on a list holds if one element meets it, `$ne`, `$nin` and `$not` where
                their opposite does not, and None is also what is missing (`$exists` tells them
                apart). Numbers compare by their exact values, as Python's do (integers of any
                size, floats, `Decimal`, `Fraction`: 0.1 is not `Decimal("0.1")`, 1 is 1.0),
                strings by code points, in NFC; numbers, strings and truth values are never each
                other. A `date`, a `datetime` with a time zone, a `UUID`, an `Enum` and scalars of
                numpy stand for what `meta` keeps of them (`atoms.Atom`). A field of `meta` that no
                memory has, and a value that compares with none of a field's, give no hits and a
                warning.
            exclude: Ids of atoms that may not be hits, such as those that an agent has read; or a
                list of them for each question. They still lead to others, as with `kinds`.
            seed_entities: Names of concepts from which the question sets out too, each as strong
                as its best anchor; or a list of them for each question. Where the preset spreads,
                walks or hops; at a cold start, and for signals that read no graph, they change
                nothing.
            namespaces: For each question the name of the namespace that is asked in place of this
                memory; all are encoded in one go.
            plan: How the questions are narrowed down before they are ranked (`QueryPlan`), or such
                a plan for each: hits are what it leaves, in addition to all of the above. True
                chooses one from the words of each question, False none; by default `plan` in the
                settings says. `Result.plan` tells what it came to.
            oracle: A second check of the gate: an object with `verify(questions, texts)`, such as
                `oracle.OpenAIOracle`, or such a function, which says whether the hits explicitly
                mention an answer. It is asked once, of all questions that the gate has not refused;
                those that it refuses are not `known` either. `Result.verified` has what it said.
            trace: Whether each result says what answering took (`Result.trace`).

        Raises:
            InputError: An empty question, a namespace that does not exist, an unknown kind, k below
                1, a time that is none, a span that ends before it begins; an unknown operator or
                built-in field, a value that the operator or the field cannot have; an id that is
                not stored, a name that no concept has, with the nearest.
        """
        listed = checked_questions(questions)
        if k is not None:
            check_count("k", k)
        verify = None if oracle is None else method_of(oracle, "verify")
        scope = Scope(kinds, between, as_of, where, asked, exclude, seed_entities, valid_at, plan)
        with one_warning():
            if namespaces is None:
                results = self._retrieve(listed, k, scope, trace=trace)
            else:
                results = self._spread(
                    *(listed, namespaces, scope),
                    lambda each, part, own, known: each._retrieve(part, k, own, known, trace=trace),
                )
        if verify is not None:
            results = verified_results(verify, results)
        if not isinstance(as_of, list | tuple):
            only = [result for (result,) in results]
            return only[0] if isinstance(questions, str) else only
        return results[0] if isinstance(questions, str) else results

    def _retrieve(
        self,
        asked: Sequence[str],
        k: int | None,
        scope: Scope,
        encoded: Encoded | None = None,
        *,
        trace: bool = False,
    ) -> list[list[Result]]:
        """For each question the results of each moment; the vectors of questions may be known."""
        instants = scope.instants
        ends = self.store.version_ends() if len(instants) > 1 else []
        shared: dict[int, list[int]] = {}  # places of moments between which no atom was updated
        for place, moment in enumerate(instants):
            shared.setdefault(0 if moment is None else bisect_right(ends, moment), []).append(place)
        if len(shared) > 1 and encoded is None and asked:
            encoded = encode_checked(self.embedder, list(asked), query=True)
        found: dict[int, list[Result]] = {}
        for places in shared.values():
            part = [instants[place] for place in places]
            rows = self._retrieve_at(asked, part, k, scope, encoded, trace=trace)
            found |= {place: rows[i :: len(part)] for i, place in enumerate(places)}
        return [[found[place][i] for place in range(len(instants))] for i in range(len(asked))]

    def _retrieve_at(
        self,
        asked: Sequence[str],
        instants: Sequence[float | None],
        k: int | None,
        scope: Scope,
        encoded: Encoded | None,
        *,
        trace: bool,
    ) -> list[Result]:
        """The results of each question at each of the moments, in one batch."""
        rows = [question for question in asked for _ in instants]

        def answers(view: _View) -> list[Result]:
            snapshot = view.snapshot
            if not rows or not snapshot.index.num_atoms:
                if scope.where is not None:
                    view.fields.where(snapshot, scope.where)  # warns of fields that none has
                return [Result(question, (), 0.0, False) for question in rows]
            stages = Stages() if trace else None
            query = self._query(view, asked, scope, encoded=encoded, instants=instants)
            if stages is not None:
                stages.done("encode")
            planned = self._plans(view, asked, scope, instants)
            found, plans = answered(
                *(snapshot, view.store, rows, query, *planned, k), paths=True, stages=stages
            )
            judged = verdicts(snapshot, found, query, self.config.gate.threshold)
            results = to_results(
                *(rows, snapshot, query, found, view.store, self.config, self.embedder.name),
                judged,
            )
            if query.group is not None:
                results = with_duplicates(results, snapshot, found.rows, query, view.store)
            pairs = zip(results, plans, strict=True)
            results = [each if own is None else replace(each, plan=own) for each, own in pairs]
            if stages is None:
                return results
            return with_traces(results, snapshot, found, view.store, stages)

        return self._asked(answers, instants[0])

    @overload
    def plan(self, questions: str, **options: Unpack[Filters]) -> QueryPlan: ...

    @overload
    def plan(self, questions: Sequence[str], **options: Unpack[Filters]) -> list[QueryPlan]: ...

    def plan(
        self, questions: str | Sequence[str], **options: Unpack[Filters]
    ) -> QueryPlan | list[QueryPlan]:
        """How questions are narrowed down, and what each step leaves; nothing is ranked.

        Chosen from the words of each question: a window of time where it names a date, the concepts
        that it names, and the order where it asks for the first or the latest. `print` shows it,
        `retrieve(..., plan=...)` takes it.

        Args:
            questions: One question, or several.
            options: Filters of `retrieve`, where `k` changes nothing; a `plan` is carried out in
                place of one that is chosen.

        Raises:
            InputError: As `retrieve`; a namespace, which plans for itself.
        """
        listed = checked_questions(questions)
        if options.get("namespaces") is not None:
            raise InputError(
                "namespaces: expected none for a plan, got some; use `memory.namespace(name).plan`"
            )
        plan = options.get("plan")
        options = cast(Filters, {**options, "plan": True if plan is None else plan})
        names = {field.name for field in fields(Scope)}
        scope = Scope(**cast(Any, {name: own for name, own in options.items() if name in names}))

        def planned(view: _View) -> list[QueryPlan]:
            if not listed:
                return []
            plans, chains, events = self._plans(view, listed, scope)
            plans = [own or QueryPlan(hops=0) for own in plans]
            query = self._query(view, listed, scope)
            groups = carried_out(view.snapshot, view.store, listed, query, plans, chains, events)
            done = {p: own for group in groups for p, own in zip(*group[::2], strict=True)}
            return [cast(QueryPlan, done[place]) for place in range(len(listed))]

        moment = None if scope.as_of is None else parse_time(cast(TimeLike, scope.as_of), "as_of")
        plans = self._asked(planned, moment)
        return plans[0] if isinstance(questions, str) else plans

    def explain(
        self,
        question: str,
        id: str | None = None,
        *,
        most: int = 20,
        k: int | None = None,
        kinds: Sequence[str] | None = None,
        between: tuple[TimeLike | None, TimeLike | None] | None = None,
        as_of: TimeLike | None = None,
        valid_at: TimeLike | None = None,
        asked: TimeLike | None = None,
        where: Mapping[str, Any] | None = None,
        exclude: Names = (),
        seed_entities: Names = (),
        plan: PlanLike = None,
    ) -> Explanation:
        """Why a memory has its score for a question: signals, paths, gradients, influences.

        The influence of a memory is what the score would lose without it: were it no candidate and
        no anchor, conducted nothing, stood beside no turn, and nothing were derived from it; what
        is counted over all memories stays (`index.explain`). All of them are found in one batch.

        Args:
            question: The question.
            id: Of the memory; by default the best hit. Any may be asked for, also one that is no
                hit.
            most: Edges and gradients that are listed.
            k: As in `retrieve`.
            kinds: As in `retrieve`.
            between: As in `retrieve`.
            as_of: As in `retrieve`.
            valid_at: As in `retrieve`.
            asked: As in `retrieve`.
            where: As in `retrieve`.
            exclude: As in `retrieve`.
            seed_entities: As in `retrieve`.
            plan: As in `retrieve`, but for the order of hits by time.

        Raises:
            InputError: As `retrieve`; an id that is not stored; no hit to explain.
        """
        (text,) = checked_questions([question])
        if k is not None:
            check_count("k", k)
        check_count("most", most)
        scope = Scope(kinds, between, as_of, where, asked, exclude, seed_entities, valid_at, plan)
        nodes = [] if id is None else self._named([id])[1]

        def explained(view: _View) -> Explanation:
            snapshot = view.snapshot
            query = self._query(view, [text], scope)
            planned = self._plans(view, [text], scope)
            ((_, query, _),) = carried_out(snapshot, view.store, [text], query, *planned)
            rows = snapshot.rows_of(nodes)
            if id is None:
                with torch.inference_mode():
                    best = snapshot.index(query, k=1).rows.flatten().cpu()
                rows = best[best >= 0]
            if not len(rows):
                raise InputError(
                    "id: expected a memory to explain, got none, and nothing is found; name one"
                )
            row = int(rows[0])
            found = snapshot.index.explain(query, row, k=k)
            own = self.config, self.embedder.name
            hit = as_hit(text, snapshot, query, row, found, view.store, *own)
            return to_explanation(text, snapshot, row, found, hit, view.store, most)

        return self._asked(explained, None if as_of is None else parse_time(as_of, "as_of"))

    def encode_questions(
        self, questions: str | Sequence[str], *, asked: Sequence[TimeLike | None] | None = None
    ) -> QueryBatch:
        """Questions as the tensors that the index reads, on its device.

        Args:
            questions: B questions; one alone is a batch of one.
            asked: When each is asked; now by default, and where it is None.

        Raises:
            InputError: A question without text, not one time for each question, or a time that is
                none.
        """
        return self._query(self._view(), checked_questions(questions), asked=asked)

    @overload
    def compile(self, question: str, *, budget: int, **options: Unpack[Options]) -> Context: ...

    @overload
    def compile(
        self, question: str, *, budget: Sequence[int], **options: Unpack[Options]
    ) -> list[Context]: ...

    @overload
    def compile(
        self, question: Sequence[str], *, budget: int, **options: Unpack[Options]
    ) -> list[Context]: ...

    @overload
    def compile(
        self, question: Sequence[str], *, budget: Sequence[int], **options: Unpack[Options]
    ) -> list[list[Context]]: ...

    def compile(
        self,
        question: str | Sequence[str],
        *,
        budget: int | Sequence[int],
        k: int | None = None,
        tokenizer: str | TokenCounter | None = None,
        order: contexts.OrderName | None = None,
        format: contexts.FormatName | None = None,
        template: str | Mapping[str, str] | None = None,
        kinds: Sequence[str] | None = None,
        between: tuple[TimeLike | None, TimeLike | None] | None = None,
        as_of: TimeLike | None = None,
        valid_at: TimeLike | None = None,
        asked: TimeLike | None = None,
        where: Mapping[str, Any] | None = None,
        exclude: Names = (),
        seed_entities: Names = (),
        namespaces: Sequence[str] | None = None,
        plan: PlanLike | Sequence[PlanLike] = None,
        shorten: Shorten | None = None,
    ) -> Context | list[Context] | list[list[Context]]:
        """The memories that are worth most within a token budget, as a prompt.

        Pinned memories are in every context, and with a memory comes what it needs along the edges
        that `context.requires` names. What is left out here is as `context` in the settings.

        Args:
            question: One question, or B of them.
            budget: Tokens of the whole prompt, or W of them, chosen in one go.
            k: Memories to choose from; by default as many as could fit.
            tokenizer: Name of the tokenizer that counts (`text.tokens.get_counter`), or a function
                from a text to how many tokens it has.
            order: `relevance`, `time` or `topological`; see `context.order.arrange`.
            format: `text`, `markdown`, `openai`, `anthropic` or `json`.
            template: A prompt with the fields `{context}` and `{question}`; for a chat the message
                of the user, or a mapping with `system` and `user`.
            kinds: As in `retrieve`; others still come where they are needed.
            between: As in `retrieve`.
            as_of: As in `retrieve`.
            valid_at: As in `retrieve`.
            asked: As in `retrieve`.
            where: As in `retrieve`; others still come where they are needed or pinned.
            exclude: As in `retrieve`; they still come where they are needed or pinned.
            seed_entities: As in `retrieve`.
            namespaces: As in `retrieve`.
            plan: As in `retrieve`; others still come where they are needed or pinned.
            shorten: A function (question, texts) -> texts that says what is written of memories.

        Returns:
            One context; for several questions or several budgets a list; for both a list for each
            question with one for each budget.

        Raises:
            InputError: An empty question, a budget that is negative or below what the pinned
                memories and the template take, an unknown tokenizer, order, format, field or kind.
        """
        listed, budgets = checked_questions(question), contexts.checked_budgets(budget)
        if k is not None:
            check_count("k", k)
        settings = contexts.context_settings(
            self.config.context,
            tokenizer=tokenizer,
            order=order,
            format=format,
            template=template,
            shorten=shorten,
            redundancy=rescaled(contexts.REDUNDANCY, self.embedder),
        )
        scope = Scope(kinds, between, as_of, where, asked, exclude, seed_entities, valid_at, plan)
        with one_warning():
            if namespaces is None:
                made = self._compile(listed, budgets, k, settings, scope)
            else:
                made = self._spread(
                    *(listed, namespaces, scope),
                    lambda each, part, own, known: each._compile(
                        part, budgets, k, settings, own, known
                    ),
                )
        if isinstance(budget, int):
            only = [curve[0] for curve in made]
            return only[0] if isinstance(question, str) else only
        return made[0] if isinstance(question, str) else made

    def _compile(
        self,
        asked: Sequence[str],
        budgets: Sequence[int],
        k: int | None,
        settings: contexts.ContextSettings,
        scope: Scope,
        encoded: Encoded | None = None,
    ) -> list[list[Context]]:
        """For each question a context of each budget; the vectors of the questions may be known."""
        if not asked or not budgets:
            return [[] for _ in asked]
        as_of = cast("TimeLike | None", scope.as_of)  # of a list it says what was expected
        instant = None if as_of is None else parse_time(as_of, "as_of")

        def compiled(view: _View) -> tuple[list[list[Context]], Tensor]:
            snapshot = view.snapshot
            query = self._query(view, asked, scope, encoded=encoded)
            count = settings.candidates(budgets, self.config.rank.k) if k is None else k
            planned = self._plans(view, asked, scope)
            found, plans = answered(snapshot, view.store, asked, query, *planned, count)
            # Scores never increase down the list, so that a context keeps the order of the plan.
            found = found._replace(scores=found.scores.cummin(dim=1).values)
            judged = verdicts(snapshot, found, query, self.config.gate.threshold)
            return view.contexts.compile(
                snapshot, asked, found, query, plans, budgets, settings, judged
            )

        made, used = self._asked(compiled, instant)
        self._note_uses(used.tolist())
        return made

    @overload
    def answer(
        self,
        question: str,
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        **options: Unpack[Options],
    ) -> Answer: ...

    @overload
    def answer(
        self,
        question: Sequence[str],
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        **options: Unpack[Options],
    ) -> list[Answer]: ...

    def answer(
        self,
        question: str | Sequence[str],
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        format: contexts.FormatName | None = None,
        template: str | Mapping[str, str] | None = None,
        **options: Any,
    ) -> Answer | list[Answer]:
        """Compiles the memories for a question and asks a language model.

        A model that fails or answers something that is no text costs the answer and nothing else:
        `Answer.error` says why, with a warning, and the context is there all the same.

        Args:
            question: One question, or several.
            llm: A function from a prompt to a text, or a client with `complete` or `complete_all`,
                such as `oracle.OpenAIClient`; async ones are awaited. In the formats of chats it
                gets messages.
            budget: Tokens of the whole prompt; the answer comes on top.
            oracle: A second check of the gate: an object with `verify(questions, texts)`, such as
                `oracle.OpenAIOracle`, or such a function, which says whether a context explicitly
                mentions an answer. Then what the gate or the oracle refuses is not asked:
                `Answer.context.known` is False, and `Answer.error` says so. An oracle that fails
                leaves it to the gate. By default the model is asked every question.
            format: As in `compile`; by default `openai` for a client, else that of the settings.
            template: As in `compile`; it must ask the `{question}`.
            namespaces: As in `retrieve`.
            options: Further arguments of `compile`.

        Raises:
            InputError: As `compile`; something that cannot be asked.
        """
        with contexts.own_loop() as wait:
            return self._answer(question, llm, budget, oracle, wait, format, template, **options)

    def _answer(
        self,
        question: str | Sequence[str],
        llm: Any,
        budget: int,
        oracle: Any,
        wait: contexts.Wait,
        format: contexts.FormatName | None = None,
        template: str | Mapping[str, str] | None = None,
        namespaces: Sequence[str] | None = None,
        **options: Any,
    ) -> Answer | list[Answer]:
        """`answer`; `wait` gives the result of what is awaitable."""
        format, template = contexts.answer_settings(llm, self.config.context, format, template)
        if not isinstance(budget, int):
            raise InputError(
                f"budget: expected one whole number of tokens, got {budget!r:.60}; ask for one"
            )
        verify = None if oracle is None else contexts.waiting(method_of(oracle, "verify"), wait)
        asked = checked_questions(question)
        options |= {"format": format, "template": template, "namespaces": namespaces}
        prompts = self.compile(asked, budget=budget, **options)
        answers = (
            contexts.ask_model(llm, prompts, wait)
            if verify is None
            else contexts.ask_known(llm, verified(verify, prompts), wait)
        )
        cited: dict[str, list[Answer]] = {}
        for name, answer in zip(namespaces or [""] * len(asked), answers, strict=True):
            if answer.cited:
                cited.setdefault(name, []).append(answer)
        for name, own in cited.items():
            each = self.namespace(name) if name else self
            each._note_cited(own)
        return answers[0] if isinstance(question, str) else answers

    # The same for callers that must not wait: each runs in a thread of its own. Where its task is
    # cancelled, the thread ends its work all the same.

    async def aadd(
        self,
        atoms: Atom | str | Mapping[str, Any] | Iterable[Atom | str | Mapping[str, Any]],
        *,
        session: str | None = None,
        key: str | None = None,
    ) -> Added:
        """`add` in a thread, while the event loop goes on.

        Cancelling the task leaves the store whole: what has begun is stored batch by batch to the
        end, and a repeated call with the same `key` passes over it. Wait for it before the memory
        is closed.
        """
        return await asyncio.to_thread(self.add, atoms, session=session, key=key)

    @overload
    async def aretrieve(self, questions: str, **options: Unpack[Filters]) -> Result: ...

    @overload
    async def aretrieve(
        self, questions: Sequence[str], **options: Unpack[Filters]
    ) -> list[Result]: ...

    @overload
    async def aretrieve(
        self, questions: str, *, as_of: Instants, **options: Unpack[TimelessFilters]
    ) -> list[Result]: ...

    @overload
    async def aretrieve(
        self, questions: Sequence[str], *, as_of: Instants, **options: Unpack[TimelessFilters]
    ) -> list[list[Result]]: ...

    async def aretrieve(self, questions: Any, **options: Any) -> Any:
        """`retrieve` in a thread, while the event loop goes on; cancelling changes nothing."""
        return await asyncio.to_thread(lambda: self.retrieve(questions, **options))

    @overload
    async def acompile(
        self, question: str, *, budget: int, **options: Unpack[Options]
    ) -> Context: ...

    @overload
    async def acompile(
        self, question: str, *, budget: Sequence[int], **options: Unpack[Options]
    ) -> list[Context]: ...

    @overload
    async def acompile(
        self, question: Sequence[str], *, budget: int, **options: Unpack[Options]
    ) -> list[Context]: ...

    @overload
    async def acompile(
        self, question: Sequence[str], *, budget: Sequence[int], **options: Unpack[Options]
    ) -> list[list[Context]]: ...

    async def acompile(self, question: Any, *, budget: Any, **options: Unpack[Options]) -> Any:
        """`compile` in a thread, while the event loop goes on; cancelling changes nothing."""
        return await asyncio.to_thread(lambda: self.compile(question, budget=budget, **options))

    @overload
    async def aanswer(
        self,
        question: str,
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        **options: Unpack[Options],
    ) -> Answer: ...

    @overload
    async def aanswer(
        self,
        question: Sequence[str],
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        **options: Unpack[Options],
    ) -> list[Answer]: ...

    async def aanswer(
        self,
        question: Any,
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        **options: Unpack[Options],
    ) -> Any:
        """`answer` in a thread; what is async of `llm` and `oracle` runs in the event loop.

        Cancelled, it cancels them, and asks no further question.
        """
        with contexts.callers_loop() as wait:
            return await asyncio.to_thread(
                lambda: self._answer(question, llm, budget, oracle, wait, **options)
            )

    # Namespaces: memories of their own in the folder of this one.

    def namespace(self, name: str, *, create: bool = False) -> Memory:
        """The memory of a name, such as a user's: nothing of it is seen by any other, or this one.

        It has the whole interface, and shares the encoder, the device, the clock and the settings
        that this memory was opened with; what it learns is its own. Closing it gives its files
        back until it is used again; it ends with this memory, or when it is dropped.

        Args:
            name: 1 to 200 printable characters; names that differ in case are different ones, the
                forms of Unicode of one name are the same.
            create: Makes an empty one where there is none.

        Raises:
            InputError: No such namespace, with the nearest name; no name; a namespace has none.
            EmbedderError, StoreError: As `open`.
        """
        return self._space(self._spaces_of_own(), checked_name(name), create)

    def namespaces(self) -> list[str]:
        """Names of the namespaces, sorted."""
        names = [] if self._parent is not None else self._spaces.names()
        return [name for name in names if not is_archive(name)]

    def drop_namespace(self, name: str) -> None:
        """Deletes a namespace and all that is in it, for good.

        Whoever still has it open, here or in another process, gets a `StoreError` from then on.

        Raises:
            InputError: There is none of this name.
            StoreError: A memory that is only read, or files that cannot be deleted; a second call
                goes on.
        """
        spaces = self._spaces_of_own()
        name = spaces.stored(checked_name(name))
        if spaces.has(archive := archive_of(name)):  # first: it is never there without the other
            spaces.drop(archive)
        spaces.drop(name)

    def _space(self, spaces: Namespaces[Memory], name: str, create: bool) -> Memory:
        fingerprint = dim = None
        if not self.store.readonly:
            fingerprint, dim = self.embedder.fingerprint, self.embedder.dim
        return spaces.get(name, fingerprint, dim, create=create)

    def _spaces_of_own(self) -> Namespaces[Memory]:
        if self._parent is not None:
            raise InputError(
                f"namespace: expected a memory of its own, got the namespace {self.name!r}, which "
                "has no namespaces; ask the memory that it is in"
            )
        return self._spaces

    def archive(self, ids: str | Iterable[str]) -> int:
        """Puts atoms aside, all or none, where no question finds them; how many.

        They go into the archive of this memory, with their versions, pins and types, the edges that
        linking did not make, what is stated of their validity, and what they superseded, which
        would be valid again without them. They are deleted here (`delete`) once they are there for
        good: who is killed in between has them twice, and calls again. `archived` searches them,
        `restore` brings them back, `forget` erases them.

        Args:
            ids: Of stored atoms; may repeat.

        Raises:
            InputError: An id that is not stored, or under which something else was archived; an
                archive has no archive.
            StoreError: Read-only store or full disk; nothing has left the memory then.
        """
        with self._turn():
            return self._archive_nodes(self._named(ids)[1])

    def _archive_nodes(self, chosen: Sequence[int]) -> int:
        nodes = superseded_with(self.store, chosen)
        if nodes:
            archive = cast(Memory, self._archive(create=True))
            moving = expect_apart(self.store, nodes, archive.store)
            keep_ties(archive.store, ties_of(self.store, nodes))
            self._copy(moving, archive)
            carry_insights(self.store, nodes, archive.store)
            state_validity(archive.store)
            self._leave(nodes)
        return len(nodes)

    def restore(self, ids: str | Iterable[str]) -> int:
        """Brings archived atoms back, all or none; how many.

        Linking makes their edges anew; the others come back with them, as soon as both of their
        ends are here, and so does what superseded them. It counts as a use.

        Args:
            ids: Of archived atoms; may repeat.

        Raises:
            InputError: An id that is not in the archive, such as one that was forgotten, or under
                which something else was added since.
            StoreError: Read-only store or full disk; nothing has left the archive then.
        """
        self.store.expect_writable()
        archive = self._archive()
        if archive is None:
            raise InputError(
                f"ids: expected ids of archived atoms, got {ids!r:.80}, and nothing is archived; "
                "what was forgotten cannot come back"
            )
        with self._turn(), archive.store.turn():
            listed = archive._listed(ids)
            missing = next((name for name in listed if name not in archive), None)
            if missing is not None:
                raise InputError(
                    f"ids: expected ids of archived atoms, got {missing!r:.80}, which is not in "
                    "the archive; what was forgotten cannot come back"
                )
            named, nodes = archive._named(superseding_with(archive.store, listed))
            archive._copy(expect_apart(archive.store, nodes, self.store), self)
            # As long as they are there, too: who is killed in between calls again.
            carry_insights(archive.store, nodes, self.store)
            restore_ties(self.store, archive.store)
            archive._leave(nodes)
            self._note_uses([node for node, _ in self.store.known(named).values()])
        return len(nodes)

    def archived(self) -> Memory | None:
        """What was put aside, as a memory to search; None where nothing ever was.

        It shares what a namespace shares, and ends with this memory.
        """
        return self._archive()

    def _archive(self, *, create: bool = False) -> Memory | None:
        if self.name is not None and is_archive(self.name):
            if create:
                raise InputError("archive: expected a memory, got an archive; use the memory")
            return None
        root, name = self._parent or self, archive_of(self.name)
        if not create and not root._spaces.has(name):
            return None
        archive = root._space(root._spaces, name, create)
        self._finish_forgetting(archive)
        return archive

    def _is_archived(self, id: str) -> bool:
        archive = self._archive()
        return archive is not None and id in archive

    def _copy(self, nodes: Sequence[int], to: Memory) -> None:
        """Has atoms with all versions in another memory as well; in the turn."""
        earlier = self.store.earlier_nodes(nodes)
        entries = stored_entries(self.store, sorted([*nodes, *earlier]), stored_rows)
        known = KnownVectors(self.embedder)
        writer = to._writer_with(known)
        pinned = {node for node, _ in to.store.life.pins()}
        for batch in batched(versions_apart(entries), self.config.link.batch_atoms):
            to._import_batch(batch, known, writer, pinned)

    def _leave(self, nodes: Sequence[int]) -> None:
        """Takes atoms away that another memory has from now on; in the turn."""
        self._written_by().remove(nodes, partial(self._without, deleted=False))

    def _namespace(self, store: MemoryStore, name: str) -> Memory:
        return type(self)(
            *(store, None, self._settings, self.device, self._clock),
            concepts=self._concepts,
            name=name,
            parent=self,
        )

    def _spread(
        self,
        asked: Sequence[str],
        namespaces: Sequence[str],
        scope: Scope,
        ask: Callable[[Memory, list[str], Scope, Encoded], list[T]],
    ) -> list[T]:
        """What each question's namespace says, in the order of the questions."""
        spaces = self._spaces_of_own()
        if isinstance(namespaces, str) or not isinstance(namespaces, Sequence):
            raise InputError(
                f"namespaces: expected a list of names, got {namespaces!r:.80}; name one for each "
                "question"
            )
        if len(namespaces) != len(asked):
            raise InputError(
                f"namespaces: expected one for each of {len(asked)} questions, got "
                f"{len(namespaces)}; name one for each"
            )
        places: dict[str, list[int]] = {}
        for place, name in enumerate(namespaces):
            places.setdefault(spaces.expect(name), []).append(place)
        found: list[T | None] = [None] * len(asked)
        encoded = encode_checked(self.embedder, list(asked), query=True) if asked else None
        for name, group in places.items():
            assert encoded is not None
            part = ask(
                self.namespace(name),
                [asked[i] for i in group],
                scope.take(group, len(asked)),
                pick_encoded(encoded, group),
            )
            for place, each in zip(group, part, strict=True):
                found[place] = each
        return cast("list[T]", found)

    def _changed(self) -> bool:
        """Whether it has settings of its own."""
        return bool(self._own)

    def _put_down(self) -> bool:
        """Forgets what can be derived again; False where others are at it, or listen."""
        if self._listeners or not self._lock.acquire(blocking=False):
            return False
        try:
            self._save_regimes()
            self._regimes = None
            snapshot, store = self._snapshot, self.store
            current = snapshot is not None and snapshot.state == store.state
            if current and not store.readonly and self._assemble.worth_saving(store):
                self._save_snapshot(cast(Snapshot, snapshot))
            self._set_up()
        finally:
            self._lock.release()
        return True

    # Edges and what they make of the memory.

    def connect(
        self,
        source: str | Iterable[Any],
        target: str | None = None,
        type: str | EdgeType = EdgeType.RELATED_TO,
        weight: float | None = None,
    ) -> Added:
        """Connects stored atoms: `connect("a", "b", "supports")`, or many edges at once.

        On disk for good when it returns. Of the edges of one (source, target, type) the strongest
        counts; one that is not stronger than what is stored is passed over.

        Args:
            source: Id of an atom; or an iterable of (source, target), (source, target, type),
                (source, target, type, weight) or (source, Link), stored in one transaction.
            target: Id of another atom.
            type: Name of an `EdgeType`.
            weight: Its strength, by default that of the type. Contradictions are stored negative
                whatever its sign, for other types it must be positive.

        Raises:
            InputError, StoreError: As they say; nothing is stored then.
        """
        if isinstance(source, str):
            return edge_writes.connect_all(self.store, [(source, target, type, weight)])
        if target is not None or weight is not None or type != EdgeType.RELATED_TO:
            raise InputError(
                "target, type, weight: expected none beside many edges; write them into each edge"
            )
        return edge_writes.connect_all(self.store, source)

    def disconnect(self, source: str, target: str, type: str | EdgeType | None = None) -> int:
        """Deletes the edges from one atom to another, of one type or all; their number.

        Raises:
            InputError: An id that is not stored, or an unknown type.
            StoreError: Read-only store or full disk.
        """
        return edge_writes.disconnect(self.store, source, target, type)

    def split_name(self, name: str) -> bool:
        """Splits a name from the concept that it shares with others, for good.

        The name is a concept of its own from then on: memories that are added later do not join it
        with another, and neither does a copy of the store or an import. What is kept of it is a
        SHA-256 with the store's own salt. When the last memory that says the name is forgotten,
        that goes too.

        Args:
            name: A name of a concept, in any case.

        Returns:
            Whether it was not split before.

        Raises:
            InputError: No text, or no concept has this name.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        return self._written_by().split(self._said_name(name), alone=True)

    def join_name(self, name: str) -> bool:
        """Undoes `split_name`: the name joins others again where the memories show that it should.

        Args:
            name: A name that was split, in any case.

        Returns:
            Whether it was split before.

        Raises:
            InputError: No text, or no concept has this name.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        return self._written_by().split(self._said_name(name), alone=False)

    def _said_name(self, name: str) -> str:
        """A name of a concept as the store has it."""
        if not isinstance(name, str):
            raise InputError(
                f"name: expected a name of a concept, got {type(name).__name__}; give its text"
            )
        concept_nodes(self.store, [name], "name", do="name one that a memory says")
        return plain_name(name)

    def judge_edges(
        self,
        oracle: Oracle | Judge | None = None,
        pairs: Iterable[tuple[str, str]] | None = None,
        *,
        k: int = 4,
        least: float = 0.6,
        progress: bool = False,
    ) -> edge_writes.JudgedEdges:
        """Adds implications and contradictions between atoms, as an oracle judges them.

        An implication weighs 0.5 to 1 by the verdict's confidence, a contradiction minus it
        (`docs/mathematics.md` 2.1). An oracle that fails costs its pairs their edges, no more.

        Args:
            oracle: An object with `judge(premises, hypotheses)`, or that function; by default the
                local rule (`judge.entailment.LexicalJudge`).
            pairs: (premise, hypothesis) ids; by default each atom with its most similar earlier
                ones, both ways round.
            k: How many these are at most.
            least: Their least cosine.
            progress: Shows a bar on stderr.

        Raises:
            InputError: An id that is not stored, or something that is no pair or no oracle.
        """
        judge = method_of(LexicalJudge(self.embedder) if oracle is None else oracle, "judge")
        if pairs is None:
            asked = self._asked(
                lambda view: edge_writes.similar_ids(self.store, view.snapshot, k=k, least=least)
            )
        else:
            asked = edge_writes.checked_pairs(pairs)
        done = edge_writes.JudgedEdges()
        with Progress(what="judge", unit="pairs", total=len(asked), shown=progress) as bar:
            for done in edge_writes.judge_pairs(self.store, judge, asked):
                bar.update(done.judged - bar.done)
        return done

    def reconcile(
        self,
        *,
        oracle: Oracle | Judge | None = None,
        policy: Literal["recency", "importance", "both"] | None = None,
        block: int = 1024,
        progress: bool = False,
    ) -> Reconciled:
        """Find memories that contradict or repeat each other.

        Compares each memory that is new since the last call with those that share a key with it
        (`docs/mathematics.md` 5.8). A contradiction is an open conflict: `conflicts` lists it with
        its reason, and it changes no ranking and no validity. Without an oracle a memory ends in
        one case: a later memory of the same speaker or source states the change in so many words
        ("moved to", "no longer", "changed from A to B", "renamed"). A memory that says again what
        an earlier one says supports it, and counts as a use of it. Nothing is deleted. Each block
        of memories commits before the next starts, so an interrupted run can be repeated; a second
        call finds nothing to do. Readers and writers are not blocked.

        Args:
            oracle: Judge as in `judge_edges`, asked both ways round about each pair that is similar
                or shares a key. What it calls a contradiction is resolved by the policy. If it says
                that one contradicts the other, and the other follows from the one, the pair is
                neutral, with a warning. By default the local rules, which know English.
            policy: Policy in place of that of the settings. `recency`: the later one supersedes the
                earlier; `importance`: the more important one (`importance`) the other, if an oracle
                judges; `both`: both stay, and an aggregate derived from both states the conflict.
            block: Memories whose pairs are judged before what was found is stored.
            progress: Whether to show a bar on stderr.

        Raises:
            InputError: No oracle, or an unknown policy.
            StoreError: Read-only store or full disk; what was done stays.
        """
        check_count("block", block)
        settings = self.config.reconcile
        if policy is not None:
            if policy not in POLICIES:
                raise InputError(
                    f"policy: expected one of {', '.join(POLICIES)}, got {policy!r:.60}; leave it "
                    "out for that of the settings"
                )
            settings = replace(settings, policy=policy)
        asked = None if oracle is None else method_of(oracle, "judge")
        return self._reconcile(settings, asked, block=block, progress=progress)

    def _reconcile(
        self,
        settings: ReconcileConfig,
        judge: Judge | None,
        *,
        stop: int | None = None,
        block: int = 1024,
        progress: bool = False,
    ) -> Reconciled:
        """See `reconcile`; of the memories before node `stop`."""
        self.store.expect_writable()
        now = self._clock()
        by = Resolver(self.importance, lambda atoms: self.add(atoms).new, self._named, now)
        done = Reconciled()
        with self._turn():
            self.delete(outdated_statements(self.store))
        with Progress(what="reconcile", unit="pairs", shown=progress) as bar:
            for part in find(
                self.store,
                settings,
                self._keys,
                local=LexicalJudge(self.embedder),
                judge=judge,
                by=by,
                block=block,
                stop=stop,
            ):
                done += part
                bar.update(part.compared)
        return done

    def conflicts(self) -> list[Conflict]:
        """Memories that contradict each other, as `reconcile` and `judge_edges` found or you said.

        Open are those that are held to be true at one time, and of which no aggregate states it.
        Each has its reason, read from both texts again.
        """
        return explained(conflicts_of(self.store), LexicalJudge(self.embedder))

    def duplicates(self) -> list[tuple[str, ...]]:
        """Ids of memories that say the same, as `reconcile` found them, the first one in front.

        They are of one speaker, of equal text or of a cosine of at least 0.75, and have
        the same words and signs in the same order, whatever their case, punctuation and greetings;
        "today" is the same day in all of them. With `rank.unique` only the best of them is a hit.
        """
        with self.store.reading():
            groups = self._duplicates.groups()
            nodes = [node for group in groups for node in group]
            names = dict(zip(nodes, (atom.id for atom in self.store.atoms(nodes)), strict=True))
        return [tuple(names[node] for node in group) for group in groups]

    def _cosines(self, pairs: Tensor) -> Tensor:  # [2, P] -> [P]
        """Of memories by node; -1 where one of them is gone."""
        snapshot = self._snapshot
        # The vector of a node never changes: any state that knows them all will do.
        if snapshot is None or not len(snapshot.node) or snapshot.node[-1] < pairs.max():
            snapshot = self._current()
        rows = torch.searchsorted(snapshot.node, pairs.contiguous())
        rows.clamp_(max=len(snapshot.node) - 1)
        there = (snapshot.node[rows] == pairs).all(0)
        vectors = snapshot.index.embeddings
        one, other = vectors[rows.to(vectors.device)].float()
        return torch.where(there, (one * other).sum(1).cpu(), -1.0)

    def structure(self, *, refresh: bool = False) -> Structure:
        """Spectrum, communities, bridges, frontiers and frustration of the graph of memories.

        `docs/mathematics.md` 2. Kept until the store changes, and then found anew.

        Args:
            refresh: Analyses everything anew, as after a regime switch.

        Raises:
            InputError: If the library for communities is not installed.
        """
        with self._lock:
            self._expire_switched()
        if refresh:
            self._structure.expire()
        return self._structure.get(self.config.structure, self.device)

    def missing_links(
        self, k: int = 10, *, type: str | EdgeType = EdgeType.DEPENDENCY
    ) -> list[MissingLink]:
        """The k likeliest absent edges of a type, the likeliest first.

        Raises:
            InputError: An unknown type, fewer than 2 edges of it to learn from, or more than 20,000
                memories.
        """
        kind = parse_edge_type(type) if isinstance(type, str) else type
        return missing_links(self.store, k, type=kind)

    # Themes.

    def modes(self) -> list[Mode]:
        """The themes that the memories gather around, the largest first.

        `docs/mathematics.md` 1.3. They are updated with what is added, and found anew where they
        have drifted by `modes.drift` or a regime has switched (1.8).
        """

        def records(view: _View) -> list[Mode]:
            modes = self._modes.of(view.snapshot)
            return [] if modes is None else mode_records(modes, view.snapshot, self.store)

        return self._asked(records)

    def summary(
        self, question: str | None = None, *, modes: int | None = None
    ) -> list[ModeSummary]:
        """A claim, a piece of evidence and a question of each mode, one sentence each.

        `docs/mathematics.md` 1.6: the least that tells a model what is remembered.

        Args:
            question: Only the modes that matter to it, the best first; by default all modes.
            modes: Maximum number of modes; for a question by default `modes.modes_searched`.

        Raises:
            InputError: A question without text, or fewer than one mode.
        """
        if modes is not None:
            check_count("modes", modes)
        asked = [] if question is None else checked_questions([question])

        def summaries(view: _View) -> list[ModeSummary]:
            found = self._modes.of(view.snapshot)
            if found is None:
                return []
            query = self._query(view, asked).embedding.float() if asked else None
            return mode_summaries(found, view.snapshot, self.store, query, modes)

        return self._asked(summaries)

    def align_modes(
        self, first: str = "episodic", second: str = "semantic", *, by: str = "type"
    ) -> ModeAlignment:
        """Which modes of one part of the memory are those of another.

        See `modes.align_modes` for what it is good for.

        Args:
            first: A value of `by`: the atoms that have it are the first part.
            second: Another.
            by: `type`, `kind`, `speaker` or `session`.

        Raises:
            InputError: A value that no atom has.
        """
        return align_parts(self._current(), self.store, first, second, by)

    def on_regime_switch(
        self, function: Callable[[RegimeSwitch], object]
    ) -> Callable[[RegimeSwitch], object]:
        """Calls a function whenever what is added turns to something else; also as a decorator.

        `add` calls it once the atoms are stored for good; where it raises, that is logged and the
        adding goes on. What the detector has learned stays in the store; the first call after
        opening catches up with the atoms that came since.

        Raises:
            InputError: A memory that is only read, or a preset whose `regime.detector` is `none`.
        """
        if self.store.readonly:
            raise InputError(
                "on_regime_switch: expected a memory that can be added to, got one opened with "
                "mode='r'; open it with mode='w'"
            )
        if not callable(function):
            raise InputError(
                f"function: expected a function of one RegimeSwitch, got {function!r:.80}; give "
                "one that can be called"
            )
        with (
            self.store.turn()
        ):  # no atom is stored unseen between the catching up and the first call
            self._caught_up()
            self._listeners.append(function)
        return function

    def switches(self) -> list[RegimeSwitch]:
        """The regime switches among all atoms that are there, in the order of adding.

        The detector reads what is added as it comes, or all that it has not read yet where that is
        much; nothing that comes later than a switch is looked at to tell it. What it has seen stays
        in the store, where that can be written; after `forget` it reads what is left from the
        beginning. On a switch `modes` and `structure` find everything anew, once.

        Raises:
            InputError: A preset whose `regime.detector` is `none`.
        """
        if self.store.readonly:
            monitor = self._monitor()
            monitor.catch_up()
            return monitor.switches()
        with self.store.turn():
            monitor = self._caught_up()
            monitor.save()
            return monitor.switches()

    def _monitor(self) -> RegimeMonitor:
        return RegimeMonitor(self.store, self.config.regime, self.embedder.dim)

    def _caught_up(self) -> RegimeMonitor:
        """The detector, which has read all that is stored; in the store's turn."""
        if self._regimes is None:
            self._regimes = self._monitor()
        self._regimes.catch_up()
        return self._regimes

    def _read_again(self) -> None:
        """Has the detector go on from what the store keeps; listeners are told of what comes."""
        self._regimes = None
        if self._listeners:
            with self.store.turn():
                self._caught_up()

    def _expire_switched(self) -> None:
        """Has modes and structure found anew where a regime has switched since they were."""
        if self._modes.follow(last_switch(self.store)):
            self._structure.expire()
            if self.config.modes.build:
                self._snapshot = None  # its index has modes of its own

    # Learning.

    def fit(
        self,
        questions: Sequence[str],
        evidence: Sequence[Sequence[str]],
        *,
        penalty: float = 1e-2,
        held_out: float = 0.0,
        seed: int = 0,
    ) -> learning.FitReport:
        """Learns the weights of the signals, which it uses from then on (`learning.fit_weights`).

        They are kept in the store (`learned`), and taken up by whoever has it open; of a memory
        that is only read, they are this object's. A correction by feedback is made anew.

        Args:
            questions: Never those on which figures will be reported: keep a test half back.
            evidence: Ids of the atoms that answer each question.
            penalty: Of the squared weights of signals of unit variance.
            held_out: Share of the questions that is not learned from but tells what was gained.
            seed: Of the choice of these questions and of the interval.

        Returns:
            The weight of each signal, as a mapping; its `held_out` says what was gained.

        Raises:
            InputError: No evidence at all, or too few questions to hold some back.
            StoreError: Memories were erased meanwhile, or a full disk; nothing was learned.
        """
        learning.check_evidence(questions, evidence)
        erased = self.store.learned.erased
        wanted = [list(dict.fromkeys(ids)) for ids in evidence]
        named = [name for ids in wanted for name in ids]
        snapshot, rows = self._placed(named)
        gold = rows.split([len(ids) for ids in wanted])
        query = self._query(self._view(snapshot), questions)
        labelled = learning.LabelledQuestions(snapshot.index, query, gold, questions)
        report = learning.fit_and_report(labelled, penalty=penalty, held_out=held_out, seed=seed)
        judged = report.held_out
        figures = {} if judged is None else asdict(judged)
        self._keep(
            learning.WEIGHTS,
            {
                "value": dict(report),
                "questions": report.questions,
                "evidence": sorted({*snapshot.node[rows].tolist()}),
                "atoms": snapshot.index.num_atoms,
                "measure": "recall@10",
                "held_out": figures.pop("questions", 0),
                **figures,
            },
            erased,
        )
        return report

    def calibrate(self, questions: Sequence[str], *, refused: float = 0.05) -> float:
        """Sets the gate so that it refuses at most this share of answerable questions.

        `docs/mathematics.md` 7: a conformal threshold, valid for questions exchangeable with these,
        which must be answerable and none of those that the weights were fitted to. Kept as what
        `fit` learns.

        Args:
            questions: Answerable questions, at least 1 / refused of them or the gate never closes.
            refused: Share of answerable questions that may be refused, in [0, 1).

        Returns:
            The threshold, which the memory uses from then on.

        Raises:
            InputError: A share outside of its range, or no question.
            StoreError: As `fit`.
        """
        check_share("refused", refused, usual=0.05)
        asked, erased = checked_questions(questions), self.store.learned.erased
        if not asked:
            raise InputError(
                "questions: expected answerable questions, got none; give at least one"
            )
        results = self.retrieve(asked, k=1)
        # Of a language that the encoder does not read, the confidence is on another scale.
        sure = torch.tensor([result.confidence for result in results if result.known is not None])
        if not len(sure):
            raise InputError(
                "questions: expected some in a language that the encoder reads, got none; give some"
            )
        # No confidence is below 0: a gate that never closes.
        threshold = max(conformal_threshold(sure, refused), 0.0)
        before = self.config.gate.threshold
        best = self.store.known([hit.id for result in results for hit in result.hits])
        shares = [float((sure < each).float().mean()) for each in (before, threshold)]
        self._keep(
            learning.THRESHOLD,
            {
                "value": threshold,
                "questions": len(sure),
                "evidence": sorted({node for node, _ in best.values()}),
                "atoms": len(self),
                "measure": "refused",
                "before": shares[0],
                "after": shares[1],
            },
            erased,
        )
        return threshold

    def use_weights(self, weights: Mapping[str, float]) -> None:
        """Replaces the weights of the signals, for this object, until something is learned.

        Raises:
            ConfigError: A signal or form that there is not, or a weight that is no finite number.
        """
        config = checked_config(learning.with_weights(self.config, weights))
        with self._lock:
            self._use(config)
            self._own |= {learning.WEIGHTS: None, learning.CORRECTION: None}

    def feedback(
        self,
        question: str,
        *,
        used: str | Sequence[str] = (),
        not_used: str | Sequence[str] = (),
    ) -> None:
        """Records which memories helped with a question, and which it got in vain.

        The store keeps the last 1,024 questions. It also records what `answer` cites, beside what
        its context held; if another program asks the model, give `used=context.cited(text)`.
        Nothing is learned here: `consolidate` and `refining` learn from 40 questions on, whenever
        there are half as many again (`learn_from_feedback`).

        Args:
            question: As it was asked.
            used: Ids of the memories that helped.
            not_used: Ids of those that did not; by default the best others.

        Raises:
            InputError: No question, no id at all, one in both, one that is not stored.
            StoreError: Read-only store or full disk; nothing is kept then.
        """
        (asked,) = checked_questions([question])
        with self.store.turn():
            (yes, ours), (no, theirs) = self._named(used), self._named(not_used)
            learning.check_feedback(yes, no)
            self.store.learned.give(asked, ours, theirs, self._clock())

    def learn_from_feedback(self) -> Learned | None:
        """Learns a correction of the weights from `feedback`; what was found, applied or not.

        `learning.fit_correction`: from half of the questions, those of answers that cite included,
        near the weights that are corrected. It is applied only if on the other half it ranks what
        was used above what was not more often than they do: if the lower end of the 95 % bootstrap
        interval of the difference in AUC is above 0. Takes as long as asking all of the questions.

        Returns:
            As in `learned`; None where there are not 20 questions in either half that tell what
            was used from what was not, or another thread is at it.

        Raises:
            StoreError: Read-only store or full disk, or memories were erased meanwhile.
        """
        self.store.expect_writable()
        if not self._correcting.acquire(blocking=False):
            return None
        try:
            self.store.uses.flush()
            rows = self.store.learned
            erased, given, known = rows.erased, rows.given(), rows.rows()
            known.pop(learning.CORRECTION, None)
            encoder = self.store.fingerprint
            base, _ = learning.apply_learned(self._settings, known, encoder)
            said = [each for each in rows.feedback() if each.used]
            self._tried = given
            snapshot = self._current()
            if not said or not snapshot.index.num_atoms:
                return None
            asked = [each.question for each in said]
            found = learning.fit_correction(
                learning.LabelledQuestions(
                    learning.reweighted(snapshot.index, base),
                    self._query(self._view(snapshot), asked),
                    [snapshot.rows_of(each.used) for each in said],
                    asked,
                    against=[snapshot.rows_of(each.not_used) for each in said],
                )
            )
            if found is None:
                return None
            record = {
                "value": found.weights,
                "questions": found.learned,
                "evidence": sorted({node for each in said for node in each.used}),
                "atoms": snapshot.index.num_atoms,
                "settings": learning.settings_digest(base, learning.CORRECTION, encoder),
                "measure": "auc",
                "held_out": found.held_out,
                "before": found.before,
                "after": found.after,
                "difference": found.difference,
                "counts": found.counts,
                "given": given,
            }
            self._keep(learning.CORRECTION, record, erased)
        finally:
            self._correcting.release()
        return next(each for each in self.learned() if each.kind == learning.CORRECTION)

    def _learn_if_due(self) -> bool:
        """Learns from feedback if there is enough that is new; whether something was found."""
        self.store.uses.flush()
        self._follow()
        last = self._learned.get(learning.CORRECTION)
        tried = max(self._tried, 0 if last is None else last.value.get("given", 0))
        if not learning.is_due(self.store.learned.given(), tried):
            return False
        try:
            return self.learn_from_feedback() is not None
        except StoreError as error:
            _log.warning("feedback is kept, but nothing was learned from it: %s", error)
            return False

    async def afeedback(
        self,
        question: str,
        *,
        used: str | Sequence[str] = (),
        not_used: str | Sequence[str] = (),
    ) -> None:
        """`feedback` in a thread, while the event loop goes on; cancelling changes nothing."""
        await asyncio.to_thread(self.feedback, question, used=used, not_used=not_used)

    def learned(self) -> list[Learned]:
        """What `fit`, `calibrate` and feedback have taught this memory, and whether it is applied.

        It is kept in the store: whoever opens it with the settings and the encoder that it was
        learned with is answered by it, and whoever has it open takes it up with the next question.
        What a memory learns that is open for reading only is its own, and ends with it.
        """
        self._follow()
        with self._lock:
            found, own = dict(self._learned), dict(self._own)
        found |= {kind: each for kind, each in own.items() if each is not None}
        shown = []
        for kind in (kind for kind in learning.KINDS if kind in found):
            value, _, reason = found[kind]
            ids = self.store.learned.ids(value.get("evidence", ()))
            if kind in own and own[kind] is None:
                other = (
                    "another threshold was" if kind == learning.THRESHOLD else "other weights were"
                )
                reason = f"{other} given to this object"
            shown.append(learning.shown(kind, value, reason, ids))
        return shown

    def reset_learned(self, *kinds: str) -> int:
        """Drops what was learned; how much. The memory is that of its settings again.

        Args:
            kinds: `weights`, `correction`, `threshold`, by default all of them; `feedback`, with
                the correction that was learned from it.

        Raises:
            InputError: An unknown kind.
            StoreError: Read-only store or full disk.
        """
        for kind in kinds:
            if kind not in (*learning.KINDS, "feedback"):
                raise InputError(unknown("kinds", kind, (*learning.KINDS, "feedback")))
        self.store.expect_writable()
        wanted, count = {*(kinds or learning.KINDS)}, 0
        if "feedback" in wanted:
            self.store.uses.flush()
            count += self.store.learned.drop_feedback()
            wanted.add(learning.CORRECTION)
        count += self.store.learned.reset(wanted)
        self._follow()
        return count

    def export_preset(self, path: str | os.PathLike[str]) -> None:
        """Writes the settings with what was learned as a preset, which `preset=` reads.

        It extends the shipped preset of the settings' name, or `default`.

        Raises:
            ConfigError: The path does not end in .yaml or .yml.
        """
        self._follow()
        save_preset(self.config, path)

    def _keep(self, kind: str, record: dict[str, Any], erased: str) -> None:
        """Keeps what was learned in the store, or in this object if it only reads, and uses it."""
        digest = learning.settings_digest(self._settings, kind, self.store.fingerprint)
        record = {"settings": digest, "counts": True, "when": self._clock()} | record
        drop = [learning.CORRECTION] if kind == learning.WEIGHTS else []
        if self.store.readonly:
            with self._lock:
                self._use(learning.with_learned(self.config, kind, record["value"]))
                applied = learning.Applied(record, self.store.next_node, "")
                self._own |= dict.fromkeys(drop) | {kind: applied}
            return
        self.store.learned.put(kind, record, erased, drop=drop)
        self._follow()

    def _follow(self) -> None:
        """Takes up what was learned since, here or elsewhere."""
        with self._lock:
            version = self.store.learned.version
            if version == self._known:
                return
            rows, encoder = self.store.learned.rows(), self.store.fingerprint
            config, self._learned = learning.apply_learned(self._settings, rows, encoder)
            self._known, self._own = version, {}
            if learning.CORRECTION not in self._learned:
                self._tried = 0
            for kind, (value, _, reason) in self._learned.items():
                if reason and value.get("counts", True):
                    _log.warning(
                        "what was learned (%s) is not applied: %s; learn it again, or reset it "
                        "(`reset_learned`)",
                        *(kind, reason),
                    )
            self._use(config)

    def _use(self, config: Config) -> None:
        """Goes on with other weights and another gate."""
        if self._snapshot is not None and self._snapshot.index.config != config:
            index = learning.reweighted(self._snapshot.index, config)  # knows the signals
            self._snapshot = replace(self._snapshot, index=index)
        self.config = config

    # Validity: from when to when what an atom says was true (`docs/mathematics.md` 5.1).

    def supersede(
        self,
        old: str,
        new: str,
        *,
        when: TimeLike | None = None,
        known: TimeLike | None = None,
    ) -> Validity:
        """Says that an atom took the place of another, which was true until then and stays stored.

        The old one is valid until `when`, not included; from then on the signal `ended` speaks
        against it, and `valid_at` leaves it out. No index is made anew. Saying the same again
        changes nothing; another atom in its place is a later statement. What is said goes when
        either atom is deleted or forgotten, so that the old one is valid as before.

        Args:
            old: Id of the atom whose content is true no longer.
            new: Id of the one that is true in its place.
            when: The moment, a time as in `retrieve`, from which the new one is valid then. By
                default when the new one begins to be true, but not before the old one began: where
                clocks went backwards, or both began at once, the old one never was true. Nor does
                it prolong an end that was stated, or is the old atom's own.
            known: When this came to be known, which `as_of` goes by; now by default, and not before
                what is known of both already. For a history that is told later.

        Returns:
            The validity of the old one.

        Raises:
            InputError: An id that is not stored, an atom that would supersede itself, at once or by
                way of others, an end before the beginning.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        (found,) = supersede(self.store, [(old, new, when, known)], self._named, self._clock())
        return found

    def set_validity(
        self,
        ids: str | Sequence[str],
        *,
        start: TimeLike | EllipsisType | None = ...,
        stop: TimeLike | EllipsisType | None = ...,
        known: TimeLike | None = None,
    ) -> dict[str, Validity]:
        """Says from when to when what atoms say was true; what is left out stays as it is.

        Args:
            ids: Of stored atoms, all or none.
            start: From when on, a time as in `retrieve`; `-math.inf` always; None as the atom says.
            stop: Until when, not included; `math.inf` open; None as the atom says, also where
                another one superseded it.
            known: As in `supersede`.

        Raises:
            InputError: An id that is not stored, no end given, an end before the beginning.
            StoreError: Read-only store or full disk; nothing has changed then.
        """
        return set_validity(self.store, ids, start, stop, known, self._named, self._clock())

    def validity(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, Validity]:
        """From when to when what atoms say was true, as far as it was known at a moment.

        An atom of which nothing was stated is valid from its `event_time`, else its `time`, to its
        `event_end`; what ended before it was said began nobody knows when.

        Args:
            ids: Of stored atoms.
            as_of: The moment, a time as in `retrieve`; now by default. Atoms are as they are today.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        moment = None if as_of is None else parse_time(as_of, "as_of")
        with self.store.reading():
            nodes = dict(zip(*self._named(ids), strict=True))
            return self._as_given(ids, validity_of(self.store, nodes, moment))

    def changes(self, since: TimeLike) -> list[Change]:
        """What has changed from a moment on, that included, in the order in which it was known.

        Atoms that were added (or restored), updated, superseded and archived, whose validity was
        stated, and how many were deleted, for nothing else is kept of these. Of an atom that was
        deleted since there is no other trace. What a release before this one stored or deleted
        without noting when is missing.

        Args:
            since: The moment by the clock of the memory, a time as in `retrieve`.

        Raises:
            InputError: A time that is none.
        """
        moment, archive = parse_time(since, "since"), self._archive()
        with self.store.reading():
            found = changes_since(self.store, moment)
        return found if archive is None else with_archived(found, archive.store, moment)

    def history(self, id: str) -> History:
        """What became of an atom: its versions, what was stated of its validity, and its chain.

        The chain holds what it superseded and what superseded it, at once or by way of others, each
        with its times.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        with self.store.reading():
            return history_of(self.store, self._named(id)[1][0])

    # Memory types: what is used stays strong, what is not decays (`docs/mathematics.md` 6).

    def pin(self, ids: str | Sequence[str]) -> None:
        """Pins atoms, all or none: `compile` puts them into every context, they do not decay.

        Raises:
            InputError: An id that is not stored, or that of a concept.
            StoreError: Read-only store or full disk.
        """
        self.store.life.set_pins(self._named(ids)[1], True)

    def unpin(self, ids: str | Sequence[str]) -> None:
        """Takes pins back, also of procedural memories, which are pinned from the start.

        Raises:
            InputError, StoreError: As `pin`.
        """
        self.store.life.set_pins(self._named(ids)[1], False)

    def pinned(self) -> list[str]:
        """Ids of the pinned atoms, in the order of storing.

        Those that were pinned, and those whose stated type is `procedural`, but for those that were
        unpinned. A type that was only found pins nothing: a wrong guess would fill every context.
        """
        return self.store.life.pinned()

    def touch(self, ids: str | Sequence[str], *, when: TimeLike | None = None) -> None:
        """Notes that atoms were used, now or at a time as in `retrieve`: decay starts anew.

        Raises:
            InputError: An id that is not stored, that of a concept, or a time that is none.
            StoreError: Read-only store or full disk.
        """
        now = self._clock() if when is None else parse_time(when, "when")
        nodes = self._named(ids)[1]
        if nodes:
            self.store.expect_writable()
            self.store.uses.note(nodes, now)
            self.store.uses.flush()

    def types(self, ids: str | Sequence[str]) -> dict[str, str | None]:
        """The memory type of each atom: its own, else the one that was found.

        None where none is known: `decay.classify` says whether the local rules look at new text.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        named, nodes = self._named(ids)
        found = self._decay.types(torch.tensor(nodes, dtype=torch.int64))
        return self._as_given(ids, dict(zip(named, found, strict=True)))

    def strength(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, float]:
        """S(t) = e^{-lambda t} + beta C(n) of each atom (`docs/mathematics.md` 6).

        t is the time since its last use, C(n) its PageRank relative to the largest of any atom;
        the constants are those of the settings under `decay`.

        Args:
            ids: Of stored atoms.
            as_of: The moment that counts as now, a time as in `retrieve`.

        Raises:
            InputError: An id that is not stored, that of a concept, or a time that is none.
        """
        now = None if as_of is None else parse_time(as_of, "as_of")
        named, nodes = self._named(ids)
        if not named:
            return {}
        own, (snapshot, rows) = self.config.decay, self._placed(named)
        left = self._decay.retention(torch.tensor(nodes), now)
        central = snapshot.centrality[rows]
        values = left + own.centrality * central
        return self._as_given(ids, dict(zip(named, values.tolist(), strict=True)))

    def classify(
        self,
        oracle: Any = None,
        ids: str | Sequence[str] | None = None,
        *,
        extract: bool = False,
        progress: bool = False,
    ) -> Classified:
        """Finds the memory types of atoms that state none.

        An oracle answers in the form of ContextOS, {content, type, decay_factor per hour,
        relations}; where it does not, the local rules do. What is found changes how an atom decays,
        never its text.

        Args:
            oracle: An object with `classify(texts)`, or such a function; by default the rules of
                `text.memory_type`.
            ids: Atoms to look at; by default all that neither state a type nor have one from an
                oracle. A type that an atom states is never looked at.
            extract: Whether to keep what the oracle extracts, too: content that is not the atom's
                text as an observation derived from it (`<id>#content`), relations with stored atoms
                as edges. Relations with others are dropped, with a warning.
            progress: Shows a bar on stderr.

        Raises:
            StoreError: Read-only store or full disk; what earlier calls gave is kept.
        """
        asked = None if oracle is None else method_of(oracle, "classify")
        if ids is None:
            nodes = open_nodes(self.store)
        else:
            wanted = self._named(ids)[1]
            atoms = self.store.atoms(wanted)
            nodes = [node for node, atom in zip(wanted, atoms, strict=True) if atom.type is None]
        done = Classified()
        with Progress(what="classify", unit="atoms", total=len(nodes), shown=progress) as bar:
            keep = self._extracted if extract else None
            for part in classify_nodes(self.store, asked, nodes, keep):
                done += part
                bar.update(sum(part.types.values()))
        return done

    def _extracted(self, found: Sequence[tuple[Atom, Mapping[str, Any]]]) -> Classified:
        """Keeps what an oracle extracted from atoms, in place of what it did before."""
        pairs = [(a, node) for atom, node in found if (a := extracted_atom(atom, node))]
        said = {atom.id: node for atom, node in pairs}
        with self._turn():
            made = {a.id: a for a in edge_writes.dated(self.store, [atom for atom, _ in pairs])}
            known = self.store.known([*made])
            fresh = {n: a for n, a in made.items() if n not in known or known[n][1] != a.digest}
            self.add([atom for name, atom in fresh.items() if name not in known])
            for name in fresh.keys() & known.keys():
                self.update(name, text=fresh[name].text, time=fresh[name].time)
        types = {
            number: (str(said[name]["type"]), float(said[name]["decay_factor"]))
            for name, (number, _) in self.store.known([*fresh]).items()
        }
        self.store.life.set_found_types(types, ORACLE)
        targets = {target for _, node in found for target, _ in node.get("relations", ())}
        there = self.store.known([*targets, *(atom.id for atom, _ in found)])
        missing = sorted(targets - there.keys())
        if missing:
            _log.warning(
                "The oracle related memories to %d that are not stored, such as %.80r; these "
                "relations are dropped",
                *(len(missing), missing[0]),
            )
        related = stated_edges(found, there)
        return Classified(
            contents=len(fresh), relations=self.connect(related).new if related else 0
        )

    # Insight: what a memory is, and what it speaks of (`docs/mathematics.md` 5.3).

    def particles(self, ids: str | Sequence[str]) -> list[Particle]:
        """Atoms as insight particles: signifiers, keys, imprint, times, strands and importance.

        What an oracle said of them by `understand`, else what the local rules read
        (`memory.insight.read_insight`), which cost nothing and are asked each time.

        Args:
            ids: Of stored atoms.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        with self.store.reading():
            named, nodes = self._named(ids)
            importance = self.importance(named)
            values = {node: importance[name] for name, node in zip(named, nodes, strict=True)}
            return to_particles(self.store, nodes, values, self.validity(named)) if nodes else []

    def understand(
        self, oracle: Any, ids: str | Sequence[str] | None = None, *, progress: bool = False
    ) -> Understood:
        """Asks an oracle what atoms are and speak of; it is kept, and `particles` tells it.

        Args:
            oracle: An object with `extract(texts)`, or such a function, that gives objects
                {signifiers, keys, importance}.
            ids: Atoms to ask about; by default all of which none has said anything.
            progress: Shows a bar on stderr.

        Raises:
            InputError: No oracle, or an id that is not stored.
            StoreError: Read-only store or full disk; what earlier calls gave is kept.
        """
        extract = method_of(oracle, "extract")
        nodes = self.store.insights.unsaid() if ids is None else self._named(ids)[1]
        done = Understood()
        with Progress(what="understand", unit="atoms", total=len(nodes), shown=progress) as bar:
            for part in understand_nodes(self.store, extract, nodes):
                done += part
                bar.update(part.said + part.failed)
        return done

    # Refinement: what is important stays at hand, the rest is put aside (`docs/mathematics.md` 5).

    def importance(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, float]:
        """How important atoms are by themselves, in [0, 1], by the settings under `refine`.

        What is new in them, raised by the uses that `consolidate` has taken in, faded since.

        Args:
            ids: Of stored atoms.
            as_of: The moment that counts as now, a time as in `retrieve`.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        named = self._named(ids)[0]
        if not named:
            return {}
        snapshot, rows = self._placed(named)
        now = self._decay.now() if as_of is None else parse_time(as_of, "as_of")
        values = self._importance.at(snapshot, now, self._ended(snapshot, now))[rows]
        return self._as_given(ids, dict(zip(named, values.tolist(), strict=True)))

    def consolidate(self, *, oracle: Any = None) -> Consolidated:
        """Refines the memory, as the settings say; what there was to do.

        Each step commits before the next starts, so an interrupted run loses nothing and can be
        repeated; readers are not blocked. The steps go on until none finds anything, so a second
        call finds nothing to do. Memories that are added during the call are left to the next one:

        * the detector of regime switches reads what it has not read yet (`switches`);
        * memories that wait for it are linked (`link.batch_concepts`);
        * what was used gains importance;
        * contradictions and repetitions are found (`reconcile.automatic`);
        * what is not important enough is archived (`refine`);
        * what belongs together becomes aggregates (`aggregate`);
        * `feedback` changes the weights, once there is enough that is new.

        Args:
            oracle: An object that judges pairs (`judge`, as in `reconcile`), writes aggregates
                (`summarise(texts, question, max_tokens)`), or both; by default the local rule
                judges, and aggregates are sentences of their members.

        Raises:
            InputError: Something that can do neither.
            StoreError: Read-only store or full disk; what was done stays.
        """
        judge = method_of(oracle, "judge") if hasattr(oracle, "judge") else None
        writes = oracle is not None and (judge is None or hasattr(oracle, "summarise"))
        return self._consolidate(method_of(oracle, "summarise") if writes else None, judge)

    def refining(self, *, every: float = 60.0) -> Refining:
        """Consolidates in the background whenever something has changed, in a thread of its own.

        It ends with the memory, with `stop`, or as a context manager with its block. An error is
        logged, and tried again. Of several threads and processes one refines at a time.

        Args:
            every: Seconds from one look for changes to the next.

        Raises:
            InputError: It is refined so already, or `every` is no such time.
            StoreError: Read-only store.
        """
        self.store.expect_writable()
        with self._lock:
            if self._refining is not None and self._refining.running:
                raise InputError(
                    "refining: expected a memory that nothing refines in the background, got one "
                    "that is refined; stop that first"
                )
            lock = WriterLock(self.store.path, "refining.lock")
            refine = partial(self._consolidate, None, None)
            self._refining = Refining(refine, self._unrefined, lock, every)
            return self._refining

    def _unrefined(self) -> object:
        """Names what a consolidation looks at; None where it has to look at the time as well."""
        if self.config.refine.prune_below and self.config.refine.half_life_days:
            return None
        given = self.store.learned.given()
        return self.store.state, self.store.uses.total(), self.store.validity.version, given

    def _consolidate(
        self,
        summarise: Callable[..., Any] | None,
        judge: Judge | None,
        going: Callable[[], bool] = lambda: True,
    ) -> Consolidated:
        """See `consolidate`; as long as it is told to go on.

        Steps feed each other: what is repeated is used, what is used is kept, and what is put aside
        leaves its aggregates. So all are taken until none finds anything. Linking and uses come
        first in a pass, so what they find needs no other one.
        """
        if self.config.regime.detector != "none":
            with self.store.turn():
                self._caught_up()
        scope, done = _Scope(self.store.next_node), Consolidated()
        reconciles = self.config.reconcile.automatic
        for _ in range(_PASSES):
            part = self._refine(summarise, judge, going, reconciles, scope)
            done += part
            reconciles &= not part.reconciled.failed  # whom the next call asks again
            found = replace(part, linked=0, reinforced=0, learned=0)
            if not going() or found == Consolidated():
                return done
        _log.warning("consolidate: %d passes, and the last one found more; call it again", _PASSES)
        return done

    def _refine(
        self,
        summarise: Callable[..., Any] | None,
        judge: Judge | None,
        going: Callable[[], bool],
        reconciles: bool,
        scope: _Scope,
    ) -> Consolidated:
        """Takes every step of a consolidation once; what there was to do."""
        linked = self._written_by().consolidate(self._clock())
        now = self._decay.now()
        reinforced = self._importance.reinforce(self._current(), now)
        made, gone, reconciled = 0, 0, Reconciled()
        if reconciles and going():
            reconciled = self._reconcile(self.config.reconcile, judge, stop=scope.stop)
        snapshot = self._current()
        ended = self._ended(snapshot, now)
        least = self._importance.least(snapshot, now, ended, stop=scope.stop)
        left = [node for node in least if node not in scope.stuck]
        aside = self._put_aside(left, going, scope.stuck)
        if self.config.aggregate.build and going():
            made, gone = self._aggregate(summarise, going, scope)
        learned = int(going() and self._learn_if_due())
        return Consolidated(linked, reinforced, reconciled, made, gone, aside, learned)

    def _aggregate(
        self, summarise: Callable[..., Any] | None, going: Callable[[], bool], scope: _Scope
    ) -> tuple[int, int]:
        """Makes the aggregates of the memories in scope, and takes away those that are of no more.

        A memory that did not change since a call that found nothing to do is not looked at.
        Aggregates that another call has made meanwhile stay, or two calls would undo each other.
        """
        config, made, gone, begun = self.config.aggregate, 0, 0, self.store.state
        done = f"{begun} {config}"
        if self.store.meta_get(_AGGREGATED) == done:
            return 0, 0
        for depth in range(1, LEVELS + 1):

            def found_in(view: _View, depth: int = depth) -> tuple[Clusters, dict[int, Member]]:
                sources = sources_of_depth(self.store, view.snapshot, depth, stop=scope.stop)
                beside = torch.tensor(list(sources), dtype=torch.int64)
                telling = [bool(source.said) for source in sources.values()]
                rows = beside[torch.tensor(telling, dtype=torch.bool)]
                mentions = mentions_of(self.store, view.snapshot, rows)
                return clusters(view.snapshot, rows, beside, mentions, config), sources

            found, sources = self._asked(found_in)
            built = built_of_depth(self.store, depth, and_more=depth == LEVELS)
            wanted, fresh = aggregate_atoms(found, sources, built, depth)
            with self._turn():  # with those that are made of them
                old = self.store.known(sorted(built.difference(wanted)))
                own = [n for name, (n, _) in old.items() if n < scope.stop or name in scope.made]
                nodes = with_derived(self.store, own)
                gone += self.delete([atom.id for atom in self.store.atoms(nodes)])
            atoms = {source.atom.id: source.atom for source in sources.values()}
            if summarise is not None and fresh:
                fresh = written(fresh, atoms, summarise)
            digests = {name: atom.digest for name, atom in atoms.items()}
            for part in batched(iter(fresh), _TOGETHER):
                if not going():
                    return made, gone
                with self.store.turn():
                    kept = unchanged(self.store, part, digests)
                    scope.made.update(atom.id for atom in kept)
                    made += self.add(kept).new
        later = self.store.columns(scope.stop)
        whole = bool((later.is_concept | later.kind.equals(AGGREGATE)).all())
        if whole and self.store.state == begun:
            self.store.meta_set(_AGGREGATED, done)
        return made, gone

    def _put_aside(self, nodes: Sequence[int], going: Callable[[], bool], stuck: set[int]) -> int:
        """Archives atoms, a batch at a time, lest others wait; how many. See `_refine`."""
        done = 0
        for start in range(0, len(nodes), _ASIDE):
            if not going():
                break
            part = nodes[start : start + _ASIDE]
            try:
                with self.store.turn():
                    done += self._archive_nodes(self.store.present(part))
            except InputError as error:
                if len(part) == 1:
                    _log.warning("not archived: %s", error)
                    stuck.update(part)
                else:
                    done += sum(self._put_aside([node], going, stuck) for node in part)
        return done

    def _ended(self, snapshot: Snapshot, now: float) -> Tensor | None:  # [A] bool
        """Which atoms are true no longer; None: all are."""
        found = self._spans.ended(snapshot, self.store, [now], [None])
        return None if found is None else found[0]

    # The store.

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        questions: Sequence[str] = (),
        limit: int = 50_000,
        most_edges: int = 150_000,
        iterations: int = 100,
    ) -> Report:
        """Writes one self-contained HTML page about the memory.

        Args:
            path: The file, which is replaced.
            questions: Questions whose hits, with scores and reasons, the page shows.
            limit: Nodes that are drawn at most; of more, the best linked are, and the page says so.
            most_edges: Edges on the page at most; of more, each node's strongest.
            iterations: Steps in which the nodes are placed, as of `layout`.

        Raises:
            InputError: A folder, a path in a folder that is not there, a limit out of range, or
                an empty question.
            OSError: The file cannot be written.
        """
        from graphmem_torch.report import ReportInput, checked_target, write_report

        checked_target(path, limit)
        check_count("iterations", iterations)
        asked = checked_questions(questions if not isinstance(questions, str) else [questions])
        results = tuple(self.retrieve(asked, k=_REPORTED)) if asked else ()
        structure, stats, folder = self.structure(), self.stats(), self.store.path
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
        """Writes what was put into the memory as JSON lines, for `import_`; how many memories.

        Every field of every memory and of its earlier versions, pins, types that were found, edges
        between memories, what was stated of their validity, what was learned and feedback. Not
        concepts and temporal edges, which linking makes again, nor uses. The file is there whole or
        not at all; what is added meanwhile waits and is not in it.

        Args:
            path: The file, which is replaced; or an open stream of text, in UTF-8.
            vectors: Also embeddings and token vectors, which are larger than the rest; a store of
                the same encoder need not encode the texts again.
            namespaces: Also what is in its namespaces, and in the archives of all these; of a
                namespace what is in its archive.

        Raises:
            InputError: No file, one in the folder of the store, or in a folder that is not there.
            StoreError: The file cannot be written; one of before is as it was.
        """
        return write_export(
            path,
            self.store,
            self._store_within,
            self._names_within() if namespaces else [],
            own=(self._parent or self).store.path,
            vectors=stored_rows if vectors else None,
        )

    @contextmanager
    def _store_within(self, name: str) -> Iterator[TensorReader]:
        """The store of a name of `_names_within`, which stays open."""
        yield self._within(name).store

    def _names_within(self) -> list[str]:
        """Names of what an export holds beside the memory; its archive is one as that of any."""
        if self._parent is None:
            return self._spaces.names()
        return [] if self._archive() is None else [archive_of(None)]

    def _within(self, name: str, *, create: bool = False) -> Memory:
        """The namespace or archive of a name of `_names_within`."""
        if not is_archive(name):
            return self._space(self._spaces_of_own(), name, create)
        owner = owner_of(name)
        memory = self if owner is None else self.namespace(owner, create=create)
        return cast(Memory, memory._archive(create=create))

    def import_(self, path: str | os.PathLike[str], *, progress: bool = False) -> Added:
        """Adds what `export` wrote, also to namespaces; what is stored already is passed over.

        What was learned is taken over by a memory that holds nothing else and has learned nothing.
        The whole file is looked at first, so that of one that was cut or changed nothing is stored.
        An import that was interrupted can be repeated. Vectors of another encoder are passed over.

        Args:
            path: The file.
            progress: Shows a bar on stderr.

        Raises:
            InputError: No such file, no export, a cut one, or an id that is stored with other
                content; with file and line.
            StoreError: As `add`.
        """
        self.store.expect_writable()
        parts, done = check_export(Path(path)), Added(0, 0)
        within = [part.namespace for part in parts[1:] if part.namespace is not None]
        if self._parent is not None and within:  # before anything is stored
            if within != [archive_of(None)]:
                self._spaces_of_own()
            self._archive(create=True)
        for part in parts:
            name = part.namespace
            memory = self if name is None else self._within(name, create=True)
            done += memory._import_part(part, progress)
        return done

    def _import_part(self, part: ExportedPart, progress: bool) -> Added:
        """Adds what a part of an export holds."""
        file, header = part.path, part.header
        known = KnownVectors(self.embedder)
        brought = bool(header["vectors"])
        if brought and header["fingerprint"] != known.fingerprint:
            _log.warning(
                "%s: its vectors are of the encoder %s and not of %s: the texts are encoded anew",
                *(file, header["fingerprint"], known.fingerprint),
            )
            brought = False
        writer = self._writer_with(known)
        writer.split_all(exported_splits(part))
        entries = exported_atoms(part, known if brought else None)
        pinned = {node for node, _ in self.store.life.pins()}
        stated = {row.node for row in self.store.validity.stated()}
        done = Added(0, 0)
        with Progress(what="import", unit="atoms", total=header["atoms"], shown=progress) as bar:
            for batch in batched(versions_apart(entries), self.config.link.batch_atoms):
                done += self._import_batch(batch, known, writer, pinned)
                bar.update(sum(entry.until is None for entry, _ in batch))
        for edges_of in batched(exported_edges(part), _EDGES):
            with located(str(file)):
                edge_writes.connect_all(self.store, unlinked_edges(self.store, edges_of))
        restore_statements(self.store, list(exported_validity(part)), stated)
        ties = ArchiveLinks(
            tuple(exported_edges(part, "tied_edge")),
            tuple(exported_validity(part, "tied_validity")),
        )
        if ties.ids and self.name is not None and is_archive(self.name):
            keep_ties(self.store, ties)
            state_validity(self.store)
        writer.warn_of_unresolved()
        # Among other memories it may not hold.
        if len(self) == header["atoms"] and not self.store.learned.rows():
            restore_learned(self.store, part)
            self._follow()
        return done

    def _import_batch(
        self,
        batch: Sequence[tuple[Exported, Exported | None]],
        known: KnownVectors,
        writer: Writer,
        pinned: Container[int],
    ) -> Added:
        """Adds memories of `versions_apart`; the pins of `pinned` nodes stay."""
        done = Added(0, 0)
        known.learn([entry for entry, _ in batch])
        for kept, run in groupby(batch, key=lambda pair: pair[1]):
            done += self._import_run([entry for entry, _ in run], kept, writer)
        restore_life(self.store, [e for e, _ in batch if e.until is None], pinned)
        return done

    def _import_run(
        self, entries: Sequence[Exported], before: Exported | None, writer: Writer
    ) -> Added:
        """Adds memories of an export; or one of them in place of the version before."""
        known = self.store.known([entry.atom.id for entry in entries])
        if before is None:
            # What an import that was interrupted has got further with.
            entries = [e for e in entries if e.until is None or e.atom.id not in known]
            atoms = [_read(entry) for entry in entries]
            added, switches = self._add(atoms, {e.atom.id: e.where for e in entries}, writer)
            self._tell(switches)
            return replace(added, new=added.new - sum(e.until is not None for e in entries))
        (entry,) = entries
        atom, last = _read(entry), int(entry.until is None)
        stored = known[atom.id][1] if atom.id in known else None
        if stored == _read(before).digest:
            writer.update(atom.id, lambda _: atom, cast(float, before.until))
            return Added(last, 0)
        if last and stored != atom.digest:
            raise InputError(
                f"atom {atom.id!r} is stored already with other content; import into a new memory",
                where=entry.where,
            )
        return Added(0, last)

    def stats(self) -> dict[str, Any]:
        """Counts, sizes and bindings of the store, without what is in its namespaces.

        `concepts` names what finds its concepts, `waiting` counts the memories whose concepts are
        still to be found (`link.batch_concepts`), `archived` those that were put aside.
        `modes_found` and `modes_updated` say how often this object has found modes in full, and
        how often it only counted new atoms in; `learned` what was learned, a sentence each,
        and `feedback` how much there is; `namespaces` their number and the bytes of their
        files, archives included.
        """
        archive = self._archive()
        return memory_stats(
            self.store,
            modes=(self._modes.found, self._modes.updated),
            learned={each.kind: str(each) for each in self.learned()},
            archived=0 if archive is None else len(archive),
            namespaces={"number": len(self.namespaces()), "bytes": self._spaces.bytes()},
        )

    def check(self) -> list[str]:
        """Problems of the store and of its namespaces; empty where all are sound."""
        return self.store.check() + self._spaces.problems()

    def close(self) -> None:
        """Writes a snapshot anew that is far behind, and gives the store back; once is enough.

        Its namespaces are closed with it. One that is closed itself can be used again.
        """
        self._end_refining()
        if self._parent is not None:
            if not self.store.closed:
                self._save()
                self._give_back()
            return
        try:
            self._spaces.close(Memory._save)
            self._save()
        finally:
            self.store.close()

    def _end_refining(self) -> None:
        if self._refining is not None:
            self._refining.stop()

    def _give_back(self) -> None:
        """Has a namespace give its files back, if nobody else is using it."""
        assert self._parent is not None and self.name is not None
        self._parent._spaces.put_down(self.name)

    def _save(self) -> None:
        """Writes what the next opening need not make anew."""
        if self.store.closed or self.store.readonly or self.store.path is None or self.store.gone:
            return
        self._save_regimes()
        if self.store.num_nodes and self._assemble.worth_saving(self.store):
            try:
                self._save_snapshot(self._current())
            except EmbedderError as error:  # the store was given another one
                _log.warning("the next opening makes its index anew: %s", error)

    def _save_regimes(self) -> None:
        """Keeps what the detector has learned, unless it is read again as soon."""
        if self._regimes is not None:
            self._regimes.save(least=1 if self._listeners else _REREAD)

    def _save_snapshot(self, snapshot: Snapshot) -> None:
        try:
            self._assemble.save(self.store, snapshot)
        except StoreError as error:  # nothing is lost: it is made of the store
            _log.warning("the next opening makes its index anew: %s", error)

    def __enter__(self) -> Self:
        """The memory itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes it; after an error without taking the time for a snapshot."""
        if kind is None:
            self.close()
            return
        self._end_refining()
        if self._parent is not None:
            self._give_back()
        else:
            self._spaces.close()
            self.store.close()

    def _current(self) -> Snapshot:
        """The index of the store's present state."""
        with self._lock:
            self._follow()
            self._expire_switched()
            if self._snapshot is None or self._snapshot.state != self.store.state:
                fresh = None
                if self._embedder is not None:
                    expect_bound(self.store, self._embedder)  # it may have another one since
                if not self._assemble.follows:
                    fresh = self._assemble.load(self.store, self.config)
                if fresh is None:
                    fresh = self._assemble(self.store, self.config, self._num_pieces())
                if self.device != "cpu":
                    fresh.index.follow_to(self.device, self._on_device)
                self._snapshot = fresh
            return self._snapshot

    def _asked(self, work: Callable[[_View], T], as_of: float | None = None) -> T:
        """What the present state gives; asked again where atoms in it were deleted meanwhile."""
        while True:
            # One state throughout, whatever a writer adds meanwhile.
            view = self._view() if as_of is None else self._view_of(as_of)
            try:
                return work(view)
            except MissingNodeError:
                if view.snapshot.state == self.store.state:
                    raise

    def _view(self, snapshot: Snapshot | None = None) -> _View:
        """The present state, or the state of a snapshot that was there."""
        own = self._current() if snapshot is None else snapshot
        return _View(own, self.store, self._contexts, self._fields)

    def _view_of(self, when: float) -> _View:
        """The present state, with the versions of its atoms that were there at a moment."""
        self._follow()
        with self.store.reading():
            state, replaced = self.store.state, self.store.replaced(when)
        if not replaced:
            return self._view()
        shown = state, tuple(sorted(replaced.items())), self.config
        with self._past_lock:
            if self._past is None or self._past[0] != shown:
                self._past = None  # one is enough memory
                store = self.store.with_versions(replaced)
                snapshot = IndexBuilder()(store, self.config, self._num_pieces())
                snapshot.index.to(self.device)
                parts = contexts.ContextCompiler(store), AtomFields(store)
                view = _View(snapshot, store, *parts)
                if snapshot.state != state:
                    return view  # of a later state, which the next question finds by itself
                self._past = shown, view
            return self._past[1]

    def _num_pieces(self) -> int:
        """Size of the vocabulary of the token vectors."""
        return self.embedder.num_pieces if self.store.token_dim is not None else 0

    def _query(
        self,
        view: _View,
        questions: Sequence[str],
        scope: Scope = _EVERYTHING,
        *,
        asked: Sequence[TimeLike | None] | None = None,
        encoded: Encoded | None = None,
        instants: Sequence[float | None] | None = None,
    ) -> QueryBatch:
        """Questions, what they may see, and how strong it is for them, as tensors.

        Of several moments (`instants`, by default those of `scope`) each question has a row for
        each, one behind the other.
        """
        snapshot, count = view.snapshot, len(questions)
        moments = scope.instants if instants is None else instants
        excluded = [self._named(ids)[1] if ids else [] for ids in scope.names("exclude", count)]
        valid, valid_at = None, None
        if scope.valid_at is not None:
            valid_at = parse_time(scope.valid_at, "valid_at")
            at = [valid_at] * len(moments)
            valid = self._spans.valid(snapshot, view.store, at, moments)
        masks = atom_masks(snapshot, view.fields, scope, moments, excluded, valid)
        masks |= entity_seeds(snapshot, view.store, scope.names("seed_entities", count), count)
        each = [scope.asked] * count if asked is None else asked
        if len(each) != count:
            raise InputError(
                f"asked: expected a time for each of {count} questions, got {len(each)}; "
                "give None where nobody knows"
            )
        given = [None if one is None else parse_time(one, "asked") for one in each]
        rows = [question for question in questions for _ in moments]
        if len(moments) > 1:
            if encoded is None:
                encoded = encode_checked(self.embedder, list(questions), query=True)
            encoded = pick_encoded(encoded, [i for i in range(count) for _ in moments])
        reads, times = snapshot.index.reads, None
        present = math.nan if reads.isdisjoint(("span", "ended")) else self._clock()
        if "span" in reads:
            then = [present if t is None else t for t in moments]
            times = [t if one is None else one for one in given for t in then]
        query = encode_questions(rows, self.embedder, snapshot, encoded, asked=times)
        device = query.embedding.device
        if "retention" in reads:
            left = [self._decay.retention(snapshot.node, t) for t in moments]
            masks["retention"] = torch.stack(left).to(device)
        if "ended" in reads:
            asked_at = present if scope.asked is None else parse_time(scope.asked, "asked")
            at = [asked_at if t is None else t for t in moments]
            at = at if valid_at is None else [valid_at] * len(moments)
            ended = self._spans.ended(snapshot, view.store, at, moments)
            if ended is not None:
                masks["ended"] = ended.to(device)
        masks = over_moments(masks, count, len(moments))
        if self.config.rank.unique and (group := self._duplicates.column(snapshot)) is not None:
            masks["group"] = group[None].to(device)
        if "ended" in masks and bool((back := looks_back(rows)).any()):
            masks["ended"] = masks["ended"] & ~back[:, None].to(device)
        return replace(query, **masks) if masks else query

    def _plans(
        self,
        view: _View,
        questions: Sequence[str],
        scope: Scope,
        instants: Sequence[float | None] | None = None,
    ) -> tuple[list[QueryPlan | None], Chains, Events | None]:
        """How each question is narrowed down, or not, at each moment; in the order of `_query`.

        And what was superseded as it was known then, where a plan asks for it; and when what atoms
        tell of happened, where a plan reads times.
        """
        moments, own = scope.instants if instants is None else instants, self.config.plan
        weighed = "followed" in view.snapshot.index.reads
        superseded = weighed and scope.plan is not False and self._spans.superseded()
        if scope.plan is False or (scope.plan is None and not (own.use or superseded)):
            return [None] * (len(questions) * len(moments)), (), None
        now = self._decay.now() if scope.asked is None else parse_time(scope.asked, "asked")
        asked = [now if moment is None or scope.asked is not None else moment for moment in moments]
        index, store = view.snapshot.index, view.store
        scored = index.num_atoms if index.plan.rule == CandidateRule.EVERY else 0
        each = [
            plans_of(
                *(scope.plan, questions, [at] * len(questions), own, store),
                scored=scored,
                superseded=superseded,
            )
            for at in asked
        ]
        listed = [plans[place] for place in range(len(questions)) for plans in each]
        timed = any(plan and (plan.between or plan.order != "relevance") for plan in listed)
        events = self._spans.events(view.snapshot, store) if timed else None
        if not any(plan is not None and plan.succession for plan in listed):
            return listed, (), events
        chains = self._spans.successions(view.snapshot, store, moments) * len(questions)
        return listed, chains, events

    def _add(
        self, atoms: list[Atom], places: Mapping[str, str], writer: Writer | None = None
    ) -> tuple[Added, list[RegimeSwitch]]:
        """Stores one batch; what it did, and the regime switches in it."""
        fresh, switches = (writer or self._written_by()).add(atoms, places, self._clock())
        self.store.uses.settle()
        done = Added(len(fresh), len(atoms) - len(fresh), tuple(atom.id for atom in atoms))
        return done, switches

    def _turn(self) -> AbstractContextManager[None]:
        """The turn of the store, for which others wait, once all that takes long is loaded."""
        self.store.expect_writable()
        if bound_concepts(self.store) is not None:
            self._written_by().load()
        return self.store.turn()

    def _written_by(self) -> Writer:
        """What writes the changes of this object."""
        with self._lock:
            if self._writer is None:
                self._writer = self._writer_with(self.embedder)
            return self._writer

    def _writer_with(self, embedder: Embedder) -> Writer:
        link = link_settings(self.config.link, embedder)
        return Writer(self.store, embedder, link, self._concepts, self._observe, self.device)

    def _observe(
        self,
        atoms: Sequence[Atom],
        embeddings: Tensor,  # [n, d]
        first: int,
    ) -> list[RegimeSwitch]:
        """The regime switches in a batch whose first atom is node `first`; in the store's turn.

        Where much was added unseen, as to an older store, `consolidate` and `switches` read it:
        who adds does not wait for that.
        """
        if self.config.regime.detector == "none":
            return []
        if self._regimes is None:
            self._regimes = self._monitor()
        if not self._listeners and self._regimes.behind(first) > _UNSEEN:
            return []
        return self._regimes.observe(atoms, embeddings, first)

    def _tell(self, switches: Sequence[RegimeSwitch]) -> None:
        """Tells the listeners, who find modes and structure fresh; logs what they raise."""
        for switch in switches:
            for function in tuple(self._listeners):
                try:
                    function(switch)
                except Exception:
                    _log.exception("a callback of on_regime_switch failed at %r", switch.atom)

    def _note_uses(self, nodes: Sequence[int]) -> None:
        """Notes that memories were used now, where the store can be written."""
        if not self.store.readonly:
            self.store.uses.note(nodes, self._clock())

    def _note_cited(self, answers: Sequence[Answer]) -> None:
        """Notes what answers cite as used, and as feedback beside what else they were given."""
        if self.store.readonly:
            return
        # What an answer names may have been deleted while the model thought.
        given = {name for answer in answers for name in answer.context.sources}
        node = {name: number for name, (number, _) in self.store.known([*given]).items()}
        self._note_uses([node[n] for answer in answers for n in answer.cited if n in node])
        pinned, learned, now = {*self.pinned()}, self.store.learned, self._clock()
        for answer in answers:
            used = [node[name] for name in answer.cited if name in node]
            left = {*answer.context.sources} - {*answer.cited} - pinned
            # A pinned memory is given whether it has to do with the question or not.
            not_used = [node[name] for name in left if name in node]
            if used and not_used:
                question = answer.question
                self.store.uses.write_behind(
                    partial(learned.add_feedback, question, used, not_used, now)
                )

    def _placed(self, ids: Sequence[str]) -> tuple[Snapshot, Tensor]:  # [n] int64
        """The present snapshot, and its rows that stand for stored atoms."""
        ids = self._listed(ids)
        node = dict(zip(*self._named(ids), strict=True))
        snapshot = self._current()  # not before, lest an id that was added meanwhile is not in it
        wanted = torch.tensor([node[name] for name in ids], dtype=torch.int64)
        return snapshot, torch.searchsorted(snapshot.node, wanted)

    def _listed(self, ids: str | Iterable[str]) -> list[str]:
        """One id or several as a list, in the form of Unicode in which they are stored."""
        return listed_ids(self.store, ids)

    def _as_given(self, ids: str | Sequence[str], found: Mapping[str, T]) -> dict[str, T]:
        """Return what was found by stored ids, by the ids that a caller gave."""
        given = [ids] if isinstance(ids, str) else ids
        return {name: found[form] for name, form in zip(given, self._listed(ids), strict=True)}

    def _named(self, ids: str | Iterable[str]) -> tuple[list[str], list[int]]:
        """Ids of stored atoms, each once, in the order given, and their node numbers."""
        return named_nodes(self.store, ids, self._is_archived)

    # The last method: below it `list` would mean this one in annotations.

    def list(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order: str = "added",
        limit: int | None = None,
        after: str | None = None,
    ) -> Page:
        """Atoms in an order, page by page; archived ones are in `archived().list()`.

        A page is of one moment. The next one goes on behind the last place of this one, whatever
        was added or deleted meanwhile; an atom that was updated keeps its place by `added`.

        Args:
            where: Only atoms for which these conditions hold, as in `retrieve`.
            order: `added`, `time` (those without one last), `id` or `importance`, ascending;
                `-time` and so on descending.
            limit: Atoms of a page, at most; all by default.
            after: `next` of the page before (its last place, also if the atom there was deleted
                since), or the id of a memory that is listed.

        Raises:
            InputError: An unknown order or condition, no number, an `after` of another order.
        """
        ordering = Ordering.named(order)
        among = {*self._chosen(None, None, None, None, where)} if where else None
        now, worth = moment_of(after), dict[int, float]()
        now = self._decay.now() if now is None else now
        if ordering.name == "importance":
            snapshot = self._current()
            values = self._importance.at(snapshot, now, self._ended(snapshot, now))
            worth = dict(zip(snapshot.node.tolist(), values.tolist(), strict=False))
        return listed_page(
            self.store,
            ordering,
            among=among,
            limit=limit,
            after=after,
            moment=now,
            importance=worth,
        )


def _read(entry: Exported) -> Atom:
    """The atom of an export, checked."""
    with located(entry.where or None):
        return checked(entry.atom)
