"""Build the index of a store and its snapshot, and update modes between states."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.config import Config, ModesConfig, config_to_dict, former_section
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.index.buffer_schema import check_buffers
from graphmem_torch.index.buffers import modes_by
from graphmem_torch.index.data import FOLLOWED, GrowingIndex
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory.columns import StoreColumns
from graphmem_torch.modes.find import Modes, modes_from_tensors, modes_to_tensors
from graphmem_torch.modes.track import ModeTracker
from graphmem_torch.rank.registry import signal_names
from graphmem_torch.rank.routing import relative_pagerank, routing_parts
from graphmem_torch.rank.shared_hops import HopInputs
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.snapshot_file import snapshot_stamp
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.naming import plain_name
from graphmem_torch.text.question import name_words
from graphmem_torch.text.terms import TERMS, Vocabulary
from graphmem_torch.text.times import DAYS

__all__ = [
    "NEVER",
    "REGIME_KEY",
    "SWITCHED_KEY",
    "IndexBuilder",
    "ModeCache",
    "Snapshot",
    "last_switch",
    "reweighted",
    "to_rows",
]

_log = logging.getLogger(__name__)

_FORMAT = 14  # version of the snapshot's content
_TAIL = 8  # minimum base atoms for each atom added after it
_BEHIND = 256  # maximum commits after it to read removals from
_MODES = ("select", "count", "epsilon", "assign")  # settings that the modes depend on


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Index with its host-side data.

    Attributes:
        index: The index.
        state: State of the store that it shows.
        node: [A] int64 node number of every atom of the index; its nodes are those of the store.
        vocabulary: Terms of the lexical index.
        kinds, speakers: Names of the codes.
        called: For each speaker the single words that are names of the same concept.
        concept: [K] int64 node number of every concept, in the order of `rank.hops.HopParts`.
        share: `ModeCache.share` of the modes of the index.
        nearest: `QueryBatch.nearest` of the memory that this is a shard of.
    """

    index: MemoryIndex
    state: str
    node: Tensor
    vocabulary: Vocabulary
    kinds: list[str]
    speakers: list[str]
    called: list[list[str]]
    concept: Tensor
    share: float = 0.0
    nearest: float | None = None

    def rows_of(self, nodes: Sequence[int]) -> Tensor:  # [n] int64
        """Return the rows of the nodes that are atoms of the index."""
        wanted = torch.tensor(nodes, dtype=torch.int64)
        place = torch.searchsorted(self.node, wanted).clamp(max=max(0, len(self.node) - 1))
        return place[self.node[place] == wanted]

    @cached_property
    def centrality(self) -> Tensor:  # [A]
        """PageRank of each atom, relative to the largest."""
        index = self.index
        rank = index.pagerank
        if rank is None:
            rank = relative_pagerank(index.graph, self.node.to(index.graph.device))
        return rank.cpu().float()

    @cached_property
    def speaker_words(self) -> dict[str, list[int]]:
        """Speakers by each word of their names, for finding them in questions."""
        words: dict[str, list[int]] = {}
        for code, (name, others) in enumerate(zip(self.speakers, self.called, strict=True)):
            for word in dict.fromkeys(each for own in (name, *others) for each in name_words(own)):
                words.setdefault(word, []).append(code)
        return words


class IndexBuilder:
    """Builds the index of each state of a store, from that of the previous state if possible.

    For one thread at a time. Indexes of earlier states remain valid.
    """

    def __init__(self, modes: ModeCache | None = None) -> None:
        """Start without an index; `modes` has the modes of an earlier state, and is updated."""
        self._modes = ModeCache() if modes is None else modes
        self._columns, self._growing = StoreColumns(), GrowingIndex(Config())
        self._config: Config | None = None  # settings of the growing index
        # State of the snapshot on disk; "" if it cannot be extended, None if it was not looked at.
        self._kept: str | None = None
        self._atoms = 0  # number of its atoms

    def __call__(self, store: TensorReader, config: Config, num_pieces: int) -> Snapshot:
        """Return the index of everything in one state of the store.

        Args:
            store: Atoms, vectors and edges.
            config: Settings of the index.
            num_pieces: Size of the vocabulary of the token vectors.
        """
        try:
            with torch.inference_mode(False):  # inference tensors could not be extended
                return self._assembled(store, config, num_pieces)
        except BaseException:
            # After any interrupt, Ctrl-C included, columns may have different lengths.
            self._config = None
            raise

    @property
    def follows(self) -> bool:
        """Return whether the next index will extend the current one."""
        return self._config is not None

    @property
    def rank_error(self) -> float:
        """Upper bound of the last index's PageRank error, relative L1."""
        return self._growing.rank_error

    def _assembled(self, store: TensorReader, config: Config, num_pieces: int) -> Snapshot:
        before, self._config = self._config, None
        same = before is config or (before is not None and _signature(before) == _signature(config))
        with store.reading():
            changes = self._columns.changes(store) if same else None
            if changes is None:
                self._columns, self._growing = StoreColumns(), GrowingIndex(config)
            elif len(changes.gone):
                concepts = [code for kind, code in self._columns.kinds.items() if kind == CONCEPT]
                self._columns.rename(self._growing.remove(changes.gone, concepts))
            modes = config.modes.use != "none"  # only modes need atoms of equal content
            added = self._columns.read(store, num_pieces, changes, duplicates=modes)
            called = _called(store, self._columns.speakers)
        cut = None if changes is None else changes.cut

        def found(embeddings: Tensor, time: Tensor, node: Tensor) -> Modes:
            return self._modes.modes(config.modes, embeddings, time, node)

        tensors = self._growing.append(added, cut, found)
        index = MemoryIndex(tensors, config, self._growing.listed)
        self._config = config
        return self._snapshot(index, self._columns, called)

    def _snapshot(
        self, index: MemoryIndex, columns: StoreColumns, called: list[list[str]]
    ) -> Snapshot:
        assert columns.state is not None
        names = list(columns.kinds), list(columns.speakers), called
        node = index.node.long()
        words = columns.vocabulary.copy()
        parts = self._growing.concepts, self._modes.share
        return Snapshot(index, columns.state, node, words, *names, *parts)

    def hop_inputs(self, snapshot: Snapshot) -> HopInputs | None:
        """Return what the hops of the last index are made from; None for another snapshot."""
        if self._config is None or self._columns.state != snapshot.state:
            return None
        hops = snapshot.index.tensors.hops
        return self._growing.hop_inputs(None if hops is None else hops.document.cpu())

    def load(self, store: MemoryStore, config: Config) -> Snapshot | None:
        """Return the saved index (`save`) if it is of the store's present state.

        An older one is extended when an index is next built, if the store knows what was removed
        since. Ignores a damaged one or one with other settings.
        """
        # Verify all of it: a flipped bit would cause wrong answers or a crash.
        kept = store.load_snapshot(verify=True, stale=True)
        if kept is None or kept[1].get("built") != _signature(config):
            return None
        try:
            with torch.inference_mode(False), store.reading():
                return self._take_up(store, *kept, config)
        # A foreign file may raise any of these; the database is authoritative.
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            _log.warning("%s: the snapshot is damaged (%s); it is made anew", store.path, error)
            return None

    def _take_up(
        self,
        store: MemoryStore,
        tensors: Mapping[str, Tensor],
        meta: Mapping[str, str],
        config: Config,
    ) -> Snapshot | None:
        """Restore a snapshot; raises an error of any kind if it does not fit the store."""
        words = tensors["vocabulary"].numpy().tobytes()
        vocabulary = Vocabulary.from_bytes(words) if int(meta["terms"]) else Vocabulary()
        columns = StoreColumns.from_dict(json.loads(meta["columns"]), vocabulary)
        state, current = str(columns.state), columns.state == store.state
        if not current and columns.changes(store) is None:
            return None
        parts = {name: part for name, part in tensors.items() if name != "vocabulary"}
        known = {"d": store.dim, "m": store.token_dim, "A": store.num_atoms if current else None}
        check_buffers(
            parts,
            N=columns.stop,
            V=max(1, len(vocabulary)),
            kinds=len(columns.kinds),
            speakers=len(columns.speakers),
            **{letter: size for letter, size in known.items() if size is not None},
        )
        node, deleted = parts["node"].long(), store.num_nodes < store.next_node
        if columns.stop > store.next_node or (current and columns.stop < store.next_node):
            raise InputError("node: expected the nodes of the store, got others; build anew")
        if current and deleted and not bool(torch.isin(node, store.columns().node).all()):
            raise InputError("node: expected nodes of the store, got deleted ones; build anew")
        index = MemoryIndex.from_state_dict(
            {name: part for name, part in parts.items() if name not in FOLLOWED}, config
        )
        if index.modes is not None:
            self._modes.follow(last_switch(store))
            if self._modes.switched == int(meta.get("switched", NEVER)):
                self._modes.restore(index.modes, config.modes, node, float(meta["share"]))
            else:  # a regime switched after the modes were found
                state, current = "", False
        self._columns, self._growing = columns, GrowingIndex.from_tensors(config, parts)
        self._config, self._kept, self._atoms = config, state, len(node)
        return self._snapshot(index, columns, _called(store, columns.speakers)) if current else None

    def save(self, store: MemoryStore, snapshot: Snapshot) -> None:
        """Write the last index to the file that `load` reads.

        Does nothing for another snapshot, or one that was not built here.
        """
        if self._config is None or self._columns.state != snapshot.state:
            return
        index = snapshot.index
        tensors = {name: part.contiguous() for name, part in index.all_tensors().items()}
        tensors |= self._growing.to_tensors()
        words = snapshot.vocabulary.to_bytes()
        tensors["vocabulary"] = torch.frombuffer(bytearray(words or b"\n"), dtype=torch.uint8)
        meta = {
            "built": _signature(index.config),
            "columns": json.dumps(self._columns.to_dict()),
            "terms": str(len(snapshot.vocabulary)),
            "share": repr(snapshot.share),
            "switched": str(self._modes.switched),
        }
        self._columns.keep_texts(store)
        store.save_snapshot(tensors, meta, state=snapshot.state)
        self._kept, self._atoms = snapshot.state, index.num_atoms

    def worth_saving(self, store: MemoryStore, config: Config) -> bool:
        """Return whether updating the snapshot on disk would cost a notable part of a new build."""
        with store.reading():
            if self._kept is None and store.path is not None:
                stamp = snapshot_stamp(store.path)
                if stamp is not None and stamp.meta.get("built") == _signature(config):
                    self._kept, self._atoms = stamp.state, stamp.rows.get("node", 0)
            if self._kept == store.state:
                return False
            behind = store.commits_since(self._kept or "")
            grown = store.num_atoms - self._atoms
        return behind is None or behind > _BEHIND or not 0 <= _TAIL * grown < self._atoms


def _signature(config: Config) -> str:
    """Return the settings that the tensors of an index depend on, and the version of its terms."""
    settings = config_to_dict(config)
    own, spread = (former_section(name, settings[name]) for name in ("modes", "spread"))
    # Presets without modes share a snapshot; the use of modes in questions is left out.
    modes = {name: own[name] for name in _MODES} if own["build"] else None
    # Included so that a snapshot has the buffers for routing and opening need not derive them.
    routing = sorted(routing_parts(signal_names((*config.rank.weights, *config.rank.cold_weights))))
    return json.dumps([_FORMAT, TERMS, DAYS, spread, modes, routing], sort_keys=True)


NEVER = -1
"""Last switch of a store whose regime never switched."""
REGIME_KEY = "regime"  # key of the state of the detector of switches in the store
SWITCHED_KEY = "regime.switched"  # key of the node of the last switch


def last_switch(store: TensorReader) -> int:
    """Return the node of the last known regime switch; else `NEVER`."""
    return int(store.meta_get(SWITCHED_KEY) or NEVER)


def to_rows(edges: EdgeBlock, node: Tensor) -> EdgeBlock:  # node [N]: number of every row
    """Return edges between rows instead of node numbers, without those of deleted nodes."""
    if not len(edges):
        return edges
    size = max(int(edges.source.max()), int(edges.target.max()), int(node.max())) + 1
    row = torch.full((size,), -1, dtype=torch.int64)
    row[node] = torch.arange(len(node))
    source, target = row[edges.source], row[edges.target]
    keep = (source >= 0) & (target >= 0)
    return EdgeBlock(source[keep], target[keep], edges.type[keep], edges.weight[keep])


def _called(store: TensorReader, speakers: Iterable[str]) -> list[list[str]]:
    """Return for each speaker the words that memories use as names of the same person."""
    plain = [plain_name(name) for name in speakers]
    known = store.namesakes(list(dict.fromkeys(plain)))
    return [[each for each in known.get(name, ()) if " " not in each] for name in plain]


class ModeCache:
    """Modes of a memory, updated from state to state (`docs/mathematics.md` 1.8).

    If atoms were only added since the last state, a `ModeTracker` adds the new ones to its sums,
    reading the old ones once per process. All modes are computed anew:

    - at first and after `expire`
    - if they lost more of the energy than `modes.ModeTracker` allows
    - if the settings or old atoms changed

    Only derived values are kept: sums of size d², and a few numbers per atom. Safe to share between
    threads.

    Attributes:
        found: Number of times that all modes were computed anew.
        updated: Number of times that new atoms were added instead.
        share: `Modes.centroid_error` at the last computation, as a share of the energy; the
            reference for drift.
        switched: Last regime switch (`last_switch`) that is taken into account.
    """

    def __init__(self) -> None:
        self.found, self.updated, self.share, self.switched = 0, 0, 0.0, NEVER
        self._lock = threading.RLock()
        self._modes: Modes | None = None
        self._settings: tuple[object, ...] = ()
        self._node = torch.empty(0, dtype=torch.int64)
        self._tracker: ModeTracker | None = None
        self._due = False

    @property
    def empty(self) -> bool:
        """Return whether restoring saved modes would help."""
        return self._modes is None and not self._due

    def expire(self) -> None:
        """Compute the modes anew when they are next needed."""
        with self._lock:
            self._modes, self._tracker, self._due = None, None, True

    def follow(self, switched: int) -> bool:
        """Expire the modes if a regime switched since, by `last_switch`; returns whether so."""
        with self._lock:
            if switched == self.switched:
                return False
            self.switched = switched
            self.expire()
        return True

    def restore(self, modes: Modes, settings: ModesConfig, node: Tensor, share: float) -> None:
        """Continue with modes of the atoms `node` [A], found with these settings at `share`."""
        shape = (len(node), modes.centroid.shape[1])
        with self._lock:
            self._modes, self._tracker, self._due = modes, None, False
            self._settings, self._node, self.share = _found_by(settings, shape), node, share

    def of(self, snapshot: Snapshot) -> Modes | None:
        """Return the modes of a snapshot, computed if its index has none; None without atoms."""
        index = snapshot.index
        if index.num_atoms == 0 or index.modes is not None:
            return index.modes
        node = snapshot.node
        return self.modes(index.config.modes, index.embeddings, index.time, node)

    def modes(
        self,
        settings: ModesConfig,
        embeddings: Tensor,  # [A, d]
        time: Tensor,  # [A] float64 seconds since the epoch, NaN = unknown
        node: Tensor,  # [A] int64, ascending
    ) -> Modes:
        """Return the modes of the atoms, on their device; node numbers are never reused."""
        shape = (embeddings.shape[0], embeddings.shape[1])
        with self._lock:
            old = len(self._node)
            same = self._settings == _found_by(settings, shape)
            if self._modes is not None and same and torch.equal(self._node, node[:old]):
                if old < len(node):
                    self._update(settings, embeddings, time, node)
                if self._modes is not None:
                    return self._modes
            found = modes_by(settings, embeddings, time)
            share = found.centroid_error / (found.spectrum.total_energy or 1.0)
            self.restore(found, settings, node, share)
            self.found += 1
        return found

    def _update(
        self, settings: ModesConfig, embeddings: Tensor, time: Tensor, node: Tensor
    ) -> None:
        """Add the new atoms to the modes; drops the modes if they drifted too far."""
        assert self._modes is not None
        old, device = len(self._node), embeddings.device
        if self._tracker is None:
            self._tracker = ModeTracker(
                _moved(self._modes, "cpu"),
                embeddings[:old].cpu(),
                time=time[:old].cpu(),
                share=self.share,
            )
        self._tracker.add(embeddings[old:].cpu(), time[old:].cpu())
        if self._tracker.stale:
            self._modes = self._tracker = None
            return
        self._modes, self._node = _moved(self._tracker.modes(), device), node
        self.updated += 1


def _found_by(settings: ModesConfig, shape: tuple[int, int]) -> tuple[object, ...]:
    """Return the values that determine the modes."""
    count = min(settings.count, *shape)
    return settings.select, count


def _moved(modes: Modes, device: torch.device | str) -> Modes:
    return modes_from_tensors(
        {name: part.to(device) for name, part in modes_to_tensors(modes).items()}
    )


def reweighted(index: MemoryIndex, config: Config) -> MemoryIndex:
    """Return the index with the weights of other settings; the tensors are shared."""
    return MemoryIndex(index.all_tensors(), config).to(index.embeddings.device)
