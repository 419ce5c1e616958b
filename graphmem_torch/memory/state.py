"""State of one memory: store, settings, encoder, index and what is derived from them.

All other modules of a memory build on it (`docs/architecture.md` 3): `asking` and `writing`, then
the parts and `Memory`. It imports none of them.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.errors import EmbedderError, InputError, MissingNodeError, StoreError
from graphmem_torch.memory import learned_values
from graphmem_torch.memory.archive import ERASING, finish_forgetting
from graphmem_torch.memory.compatibility import bound_concepts, bound_embedder, expect_bound
from graphmem_torch.memory.conflict_pairs import SharedKeys
from graphmem_torch.memory.context_atoms import StoredContextAtoms
from graphmem_torch.memory.contexts import ContextCompiler
from graphmem_torch.memory.decay import DecayState
from graphmem_torch.memory.duplicates import DUPLICATE_COSINE, DuplicateGroups
from graphmem_torch.memory.fields import AtomFields
from graphmem_torch.memory.importance import Importance
from graphmem_torch.memory.index_builder import (
    REGIME_KEY,
    SWITCHED_KEY,
    IndexBuilder,
    ModeCache,
    Snapshot,
    last_switch,
    reweighted,
)
from graphmem_torch.memory.index_view import IndexView, PastView
from graphmem_torch.memory.lookup import is_visible, listed_ids, named_nodes
from graphmem_torch.memory.namespace_folders import archive_of, checked_name, is_archive
from graphmem_torch.memory.namespace_stores import NamespaceStores
from graphmem_torch.memory.refining import Refining
from graphmem_torch.memory.regime_watch import RegimeWatch
from graphmem_torch.memory.structure_cache import StructureCache
from graphmem_torch.memory.validity_spans import ValiditySpans
from graphmem_torch.ops.growing import RowsOnDevice
from graphmem_torch.results import Receipt
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.concepts import ConceptExtractor
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.times import TimeLike, parse_time
from graphmem_torch.text.tokens import Tokenizer, get_tokenizer

if TYPE_CHECKING:
    from graphmem_torch.index.captured import CapturedGraphs
    from graphmem_torch.memory.writer import Writer

__all__ = ["State"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


class State:
    """State of one memory, an archive or a namespace; safe for threads.

    A namespace refers to the memory that it is in (`parent`). No other part of a memory refers
    to its owner.

    Attributes:
        store: Store on disk.
        name: Name of the namespace; None for a memory of its own.
        settings: Settings that the memory was opened with.
        config: Settings with what was learned.
        device: Device of the index.
        clock: Function that returns now, in seconds since the epoch UTC.
        concepts: Finder of concepts for a store that has none yet, or its name.
        parent: State of the memory that a namespace is in.
        spaces: Namespaces and archives of this memory; empty for a namespace.
        lock: Lock of the snapshot, the settings and the encoder.
        regimes: Watch for regime switches.
        refining: Background refinement, if any was started.
        learned: Learned values by kind, as stored.
        own: Values by kind that only this object uses: learned read-only, or given (None).
        correcting: Lock of the learning from feedback.
        tried: Amount of feedback at the last attempt to learn from it.
    """

    def __init__(
        self,
        store: MemoryStore,
        name: str | None = None,
        *,
        embedder: Embedder | None,
        config: Config,
        device: str,
        clock: Callable[[], float],
        concepts: str | ConceptExtractor | None = None,
        parent: State | None = None,
        sibling: State | None = None,
        namespaces_open: int = 0,
    ) -> None:
        """Read the learned values, and nothing else.

        Args:
            store: Open store.
            name: Name of the namespace.
            embedder: Encoder; None loads the store's own at its first use.
            config: Settings.
            device: Device of the index.
            clock: Function that returns now, in seconds since the epoch UTC.
            concepts: Finder of concepts, or its name; None takes that of the settings.
            parent: State of the memory that a namespace is in.
            sibling: State of the shard whose encoder this one shares.
            namespaces_open: Maximum number of namespaces whose files are open; a namespace has
                none.
        """
        self.store, self.name, self.parent = store, name, parent
        self._sibling = sibling
        self.settings = self.config = config
        self.device, self.clock = device, clock
        store.expiry.clock = clock
        self.concepts = config.link.concepts if concepts is None else concepts
        self._embedder = embedder
        self.lock = threading.RLock()
        self.learned: dict[str, learned_values.Applied] = {}
        self._known = ""  # `LearnedRows.version` of the learned values
        self.own: dict[str, learned_values.Applied | None] = {}
        self.correcting, self.tried = threading.Lock(), 0
        self.refining: Refining | None = None
        self.regimes = RegimeWatch(store, config.regime)
        self.spaces: NamespaceStores[State] = NamespaceStores(store, most=namespaces_open)
        self._graphs: CapturedGraphs | None = None
        self._set_up()
        self.follow()

    def _set_up(self) -> None:
        """Drop all cached data of the store; calls in progress keep theirs."""
        self._writer: Writer | None = None
        self.modes = ModeCache()
        self.modes.follow(last_switch(self.store))
        self.builder = IndexBuilder(self.modes)
        self.reset_caches()

    def reset_caches(self) -> None:
        """Drop cached contents of the store, except what the next state is updated from."""
        self.snapshot: Snapshot | None = None
        self._on_device: dict[str, RowsOnDevice] = {}  # rows of the index on an accelerator
        if self.device != "cpu":
            from graphmem_torch.index.captured import CapturedGraphs

            self._graphs = CapturedGraphs.on(self.device, self._on_device, self._graphs)
        self.modes.expire()
        self.structure = StructureCache(self.store)
        self.decay = DecayState(self.store, self.settings.decay, clock=self.clock)
        self.importance = Importance(self.store, self.settings.refine, self.decay)
        self.contexts = ContextCompiler()
        self.context_atoms = StoredContextAtoms(self.store)
        self.fields = AtomFields(self.store)
        self.spans = ValiditySpans(self.store)
        self.keys = SharedKeys()
        self.duplicates = DuplicateGroups(self.store, DUPLICATE_COSINE)
        self._past = PastView()

    # Encoder and index.

    @property
    def embedder(self) -> Embedder:
        """The encoder; a read-only memory loads it at its first use.

        Raises:
            EmbedderError: It cannot be loaded, or is not the one that the store is bound to.
        """
        with self.lock:
            if self._embedder is None and self.parent is not None:
                self._embedder = expect_bound(self.store, self.parent.embedder)
            elif self._embedder is None and self._sibling is not None:
                self._embedder = expect_bound(self.store, self._sibling.embedder)
            elif self._embedder is None:
                self._embedder = bound_embedder(self.store, self.config.embedder, self.device)
            return self._embedder

    @property
    def encoder_name(self) -> str | None:
        """Name of the encoder, or its fingerprint while it is not loaded."""
        return self.store.fingerprint if self._embedder is None else self._embedder.name

    @property
    def chunker(self) -> Tokenizer:
        """Tokenizer that measures the chunks of documents.

        Raises:
            InputError: The settings name an unknown tokenizer.
        """
        named = self.config.embedder.chunk_tokenizer
        return get_tokenizer(named) if named else self.embedder.tokenizer

    def current(self) -> Snapshot:
        """Return the index of the present state of the store, updated with its changes.

        Raises:
            EmbedderError, StoreError: The store has another encoder, or cannot be read.
        """
        with self.lock:
            self.follow()
            self.expire_switched()
            if self.snapshot is None or self.snapshot.state != self.store.state:
                fresh = None
                if self._embedder is not None:
                    expect_bound(self.store, self._embedder)  # it may have changed since
                if not self.builder.follows:
                    fresh = self.builder.load(self.store, self.config)
                if fresh is None:
                    fresh = self.builder(self.store, self.config, self._num_pieces())
                if self.device != "cpu":
                    fresh.index.follow_to(self.device, self._on_device)
                    fresh.index.capture(self._graphs)
                self.snapshot = fresh
            return self.snapshot

    def view(self, snapshot: Snapshot | None = None) -> IndexView:
        """Return the present state, or the state of an earlier snapshot."""
        own = self.current() if snapshot is None else snapshot
        return IndexView(own, self.store, self.contexts, self.context_atoms, self.fields)

    def view_at(self, when: float) -> IndexView:
        """Return the present state with the versions of its atoms that held at a moment.

        Args:
            when: Moment, seconds since the epoch UTC.
        """
        self.follow()
        with self.store.reading():
            state, replaced = self.store.state, self.store.replaced(when)
        if not replaced:
            return self.view()
        return self._past.at(
            self.store, state, replaced, self.config, self._num_pieces(), self.device
        )

    def with_retry(self, work: Callable[[IndexView], T], as_of: float | None = None) -> T:
        """Return the result of work on one state; repeats it if atoms were deleted meanwhile.

        Args:
            work: Function of a view, which does not change while it runs.
            as_of: Moment of the versions, seconds since the epoch UTC; None is the present.
        """
        while True:
            view = self.view() if as_of is None else self.view_at(as_of)
            try:
                return work(view)
            except MissingNodeError:
                if view.snapshot.state == self.store.state:
                    raise

    def expire_switched(self) -> None:
        """Expire modes and structure if a regime has switched since they were found."""
        if self.modes.follow(last_switch(self.store)):
            self.structure.expire()
            if self.config.modes.use != "none":
                self.snapshot = None  # its index holds modes

    def ended(self, snapshot: Snapshot, now: float) -> Tensor | None:  # [A] bool
        """Return which atoms are no longer true; None if all are.

        Args:
            snapshot: A atoms.
            now: Moment, seconds since the epoch UTC.
        """
        found = self.spans.ended(snapshot, self.store, [now], [None])
        return None if found is None else found[0]

    def _num_pieces(self) -> int:
        """Return the size of the vocabulary of the token vectors; 0 without token vectors."""
        return self.embedder.num_pieces if self.store.token_dim is not None else 0

    # Ids.

    def resolve_ids(
        self,
        ids: str | Iterable[str],
        argument: str = "ids",
        *,
        hidden: Collection[int] | None = None,
    ) -> tuple[list[str], list[int]]:
        """Return ids of stored atoms, each once and in the order given, and their node numbers.

        Raises:
            InputError: An id that is not stored, one of an expired atom (`hidden`, as in
                `lookup.nodes_of`), or that of a concept; names the argument.
            StoreError: The memory was closed.
        """
        self.store.expect_there()
        return named_nodes(self.store, ids, self.has_archived, argument, hidden=hidden)

    def rows_for(self, ids: str | Sequence[str]) -> tuple[Snapshot, Tensor]:  # [n] int64
        """Return the present snapshot, and its rows of stored atoms in the order given.

        Raises:
            InputError: An id that is not stored, or that of a concept.
        """
        ids = listed_ids(self.store, ids)
        node = dict(zip(*self.resolve_ids(ids), strict=True))
        snapshot = self.current()  # after the ids were found, so that it contains them
        wanted = torch.tensor([node[name] for name in ids], dtype=torch.int64)
        return snapshot, torch.searchsorted(snapshot.node, wanted)

    def as_given(self, ids: str | Sequence[str], found: Mapping[str, T]) -> dict[str, T]:
        """Return values by the ids that a caller gave, from values by stored ids."""
        given = [ids] if isinstance(ids, str) else ids
        return {
            name: found[form] for name, form in zip(given, listed_ids(self.store, ids), strict=True)
        }

    def importance_of(
        self, ids: str | Sequence[str], *, as_of: TimeLike | None = None
    ) -> dict[str, float]:
        """Return the importance of atoms, in [0, 1]; see `Upkeep.importance`."""
        named = self.resolve_ids(ids)[0]
        if not named:
            return {}
        snapshot, rows = self.rows_for(named)
        now = self.decay.now() if as_of is None else parse_time(as_of, "as_of")
        values = self.importance.at(snapshot, now, self.ended(snapshot, now))[rows]
        return self.as_given(ids, dict(zip(named, values.tolist(), strict=True)))

    # Learned values.

    def follow(self) -> None:
        """Use what was learned since the last call, by this object or another."""
        with self.lock:
            version = self.store.learned.version
            if version == self._known:
                return
            rows, encoder = self.store.learned.rows(), self.store.fingerprint
            config, self.learned = learned_values.apply_learned(self.settings, rows, encoder)
            self._known, self.own = version, {}
            if learned_values.CORRECTION not in self.learned:
                self.tried = 0
            for kind, (value, _, reason) in self.learned.items():
                if reason and value.get("counts", True):
                    _log.warning(
                        "what was learned (%s) is not applied: %s; learn it again, or reset it "
                        "(`learning.reset`)",
                        kind,
                        reason,
                    )
            self.use(config)

    def use(self, config: Config) -> None:
        """Use other weights and another threshold; with the lock held."""
        if self.snapshot is not None and self.snapshot.index.config != config:
            index = reweighted(self.snapshot.index, config)  # has the signals
            index.capture(self._graphs)
            self.snapshot = replace(self.snapshot, index=index)
        self.config = config

    def keep(self, kind: str, record: dict[str, Any], erased: str) -> None:
        """Store a learned value, and use it; a read-only memory keeps it in this object.

        Args:
            kind: Kind of the value.
            record: The value, with its figures.
            erased: State of erasures at which it was learned.

        Raises:
            StoreError: Memories were erased meanwhile, or a full disk.
        """
        digest = learned_values.settings_digest(self.settings, kind, self.store.fingerprint)
        record = {"settings": digest, "counts": True, "when": self.clock()} | record
        drop = [learned_values.CORRECTION] if kind == learned_values.WEIGHTS else []
        if self.store.readonly:
            with self.lock:
                self.use(learned_values.with_learned(self.config, kind, record["value"]))
                applied = learned_values.Applied(record, self.store.next_node, "")
                self.own |= dict.fromkeys(drop) | {kind: applied}
            return
        self.store.learned.put(kind, record, erased, drop=drop)
        self.follow()

    # Writing.

    def writer(self) -> Writer:
        """Return the writer of this object."""
        with self.lock:
            if self._writer is None:
                self._writer = self.writer_with(self.embedder)
            return self._writer

    def writer_with(
        self, embedder: Embedder, concepts: str | ConceptExtractor | None = None
    ) -> Writer:
        """Return a writer with an embedder of the same fingerprint, and a finder of equal names."""
        from graphmem_torch.memory.writer import Writer

        finder = concepts or self.concepts
        return Writer(self.store, embedder, self.config.link, finder, self.regimes, self.device)

    def warn_of_unresolved(self) -> None:
        """Warn of stated edges to atoms that are not stored, if this object has written any."""
        if self._writer is not None:
            self._writer.warn_of_unresolved()

    def turn(self) -> AbstractContextManager[None]:
        """Return the turn of the store, after loading everything that takes long.

        Raises:
            StoreError: Read-only store.
        """
        self.store.expect_writable()
        if bound_concepts(self.store) is not None:
            self.writer().load()
        return self.store.turn()

    def note_uses(self, nodes: Sequence[int]) -> None:
        """Record that memories were used now; nothing if the store is read-only."""
        if not self.store.readonly:
            self.store.uses.note(nodes, self.clock())

    def erase(
        self, nodes: Sequence[int], archived: tuple[MemoryStore, Sequence[int]] | None = None
    ) -> Receipt:
        """Erase atoms; in the turn.

        Args:
            nodes: Numbers of the atoms.
            archived: Store of the archive, and the atoms that are to be erased there.
        """
        erasing = {} if archived is None else {ERASING: json.dumps(list(archived[1]))}
        receipt = self.writer().remove(
            nodes,
            lambda batch, meta: self.store.erase(
                batch,
                when=self.clock(),
                forgotten=[REGIME_KEY, SWITCHED_KEY],
                meta=meta | erasing,
                archived=archived,
            ),
        )
        self.follow()
        with self.lock:
            self.reset_caches()
        self.regimes.read_again()
        return receipt

    # Archive and namespaces.

    @property
    def root(self) -> State:
        """State of the memory of its own that this one is in."""
        return self.parent or self

    @property
    def is_archive(self) -> bool:
        """Return whether it is the archive of a memory."""
        return self.name is not None and is_archive(self.name)

    def archive(self, *, create: bool = False) -> State | None:
        """Return the archive; None if there is none, or for an archive.

        Args:
            create: Whether to make one if there is none.

        Raises:
            InputError: An archive was to be made for an archive.
        """
        if self.is_archive:
            if create:
                raise InputError("archive: expected a memory, got an archive; use the memory")
            return None
        root, name = self.root, archive_of(self.name)
        if not create and not root.spaces.has(name):
            return None
        archive = root.open_space(name, create=create)
        finish_forgetting(self.store, archive)
        return archive

    def has_archived(self, id: str) -> bool:
        """Return whether an atom of this id is archived and has not expired."""
        archive = self.archive()
        return archive is not None and archive.has(id)

    def has(self, id: object) -> bool:
        """Return whether an atom of this id is stored and has not expired."""
        return is_visible(self.store, id)

    def space(self, name: str, *, create: bool = False) -> State:
        """Return the state of a namespace.

        Args:
            name: Name of the namespace, in any form of Unicode.
            create: Whether to make it if there is none.

        Raises:
            InputError: No such namespace, no name, or a namespace, which has none.
        """
        return self.expect_root().open_space(checked_name(name), create=create)

    def open_space(self, name: str, *, create: bool) -> State:
        """Return the state of a namespace or an archive by its checked name."""
        make = partial(
            State,
            embedder=None,
            config=self.settings,
            device=self.device,
            clock=self.clock,
            concepts=self.concepts,
            parent=self,
        )
        fingerprint = dim = None
        if not self.store.readonly:
            fingerprint, dim = self.embedder.fingerprint, self.embedder.dim
        return self.spaces.get(name, make, fingerprint, dim, create=create)

    def expect_root(self) -> State:
        """Return itself if it can have namespaces.

        Raises:
            InputError: It is a namespace.
        """
        if self.parent is not None:
            raise InputError(
                f"namespace: expected a memory of its own, got the namespace {self.name!r}, which "
                "has no namespaces; ask the memory that it is in"
            )
        return self

    # Saving and closing.

    @property
    def changed(self) -> bool:
        """Return whether it has settings of its own, which are stored nowhere else."""
        return bool(self.own)

    def release_cache(self) -> bool:
        """Drop derived data; returns False if others use it, or functions listen."""
        if self.regimes.listened_to or not self.lock.acquire(blocking=False):
            return False
        try:
            self.regimes.release()
            snapshot, store = self.snapshot, self.store
            current = snapshot is not None and snapshot.state == store.state
            if current and not store.readonly and self.builder.worth_saving(store, self.config):
                assert snapshot is not None
                self._save_snapshot(snapshot)
            self._set_up()
        finally:
            self.lock.release()
        return True

    def release_files(self) -> None:
        """Close the files of a namespace, unless they are in use."""
        assert self.parent is not None and self.name is not None
        self.parent.spaces.release(self.name)

    def save(self) -> None:
        """Write derived data, so that the next opening need not derive it again."""
        if self.store.closed or self.store.readonly or self.store.path is None or self.store.gone:
            return
        self.regimes.save()
        if self.store.num_nodes and self.builder.worth_saving(self.store, self.config):
            try:
                self._save_snapshot(self.current())
            except EmbedderError as error:  # the store has another encoder now
                _log.warning("the next opening makes its index anew: %s", error)

    def _save_snapshot(self, snapshot: Snapshot) -> None:
        try:
            self.builder.save(self.store, snapshot)
        except StoreError as error:  # nothing is lost: it is derived from the store
            _log.warning("the next opening makes its index anew: %s", error)

    def close(self, *, save: bool = True) -> None:
        """End the refinement and close the store, or release the files of a namespace.

        Args:
            save: Whether to write derived data, so that the next opening need not derive it.
        """
        if self.refining is not None:
            self.refining.stop()
        if self.parent is not None:
            if save and not self.store.closed:
                self.save()
            if not save or not self.store.closed:
                self.release_files()
            return
        try:
            self.spaces.close(save=save)
            if save:
                self.save()
        finally:
            self.store.close()
