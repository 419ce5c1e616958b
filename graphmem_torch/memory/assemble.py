"""From the store to an index: columns of `MemoryIndex.build`, its snapshot, modes carried along."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.config import Config, ModesConfig, config_to_dict
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.index.data import GrowingIndex, modes_by
from graphmem_torch.index.layout import check_layout
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory.columns import StoreColumns
from graphmem_torch.modes.find import MODE_PARTS, Modes, modes_from_tensors, modes_to_tensors
from graphmem_torch.modes.track import ModeTracker
from graphmem_torch.rank.routing import ROUTING_PARTS
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.question import WORD
from graphmem_torch.text.terms import Vocabulary

__all__ = ["Assembler", "ModeCache", "Snapshot", "load_snapshot", "save_snapshot", "to_rows"]

_log = logging.getLogger(__name__)

_FORMAT = 5  # of what the snapshot holds
_MODES = ("select", "count", "epsilon", "assign")  # settings by which modes are found


@dataclass(frozen=True, eq=False)
class Snapshot:
    """An index and what belongs to it outside the device.

    Attributes:
        index: The index.
        state: Which state of the store it shows.
        node: [A] int64 node number of every atom of the index; its nodes are those of the store.
        vocabulary: Terms of the lexical index.
        kinds, speakers: Names behind the codes.
        share: `ModeCache.share` of the modes of the index.
    """

    index: MemoryIndex
    state: str
    node: Tensor
    vocabulary: Vocabulary
    kinds: list[str]
    speakers: list[str]
    share: float = 0.0

    @cached_property
    def speaker_words(self) -> dict[str, list[int]]:
        """For each word of the speakers' names, the speakers; to find them in questions."""
        words: dict[str, list[int]] = {}
        for code, name in enumerate(self.speakers):
            for word in WORD.findall(name.lower()):
                words.setdefault(word, []).append(code)
        return words


class Assembler:
    """Makes the index of each state of a store, from that of the state before where there is one.

    One thread at a time. Whoever holds the index of an earlier state keeps it.
    """

    def __init__(self, modes: ModeCache | None = None) -> None:
        """Has made none yet; `modes` knows the modes of an earlier state, and takes up each."""
        self._modes = ModeCache() if modes is None else modes
        self._columns, self._growing = StoreColumns(), GrowingIndex(Config())
        self._config: Config | None = None  # what the growing index is built with

    def __call__(self, store: MemoryStore, config: Config, num_pieces: int) -> Snapshot:
        """The index of everything in the store, at one state of it.

        Args:
            store: Atoms, vectors and edges.
            config: What the index is built with.
            num_pieces: Size of the vocabulary of the token vectors.
        """
        try:
            with torch.inference_mode(False):  # what is made inside of it could not be added to
                return self._assembled(store, config, num_pieces)
        except BaseException:
            # Whatever came between, Ctrl-C included: columns of different lengths help nobody.
            self._config = None
            raise

    @property
    def follows(self) -> bool:
        """Whether the index of the next state will be made from one that is there."""
        return self._config is not None

    def _assembled(self, store: MemoryStore, config: Config, num_pieces: int) -> Snapshot:
        before, self._config = self._config, None
        same = before is config or (before is not None and _signature(before) == _signature(config))
        with store.reading():
            state = store.state
            added = self._columns.read(store, num_pieces) if same else None
            if added is None:
                self._columns, self._growing = StoreColumns(), GrowingIndex(config)
                added = self._columns.read(store, num_pieces)
                assert added is not None

        def modes(embeddings: Tensor, time: Tensor, node: Tensor) -> Modes:
            if self._modes.empty:
                _restore_modes(store, config, self._modes, embeddings, time)
            return self._modes.modes(config.modes, embeddings, time, node)

        index = MemoryIndex(self._growing.append(*added, modes=modes), config)
        self._config = config
        columns = self._columns
        return Snapshot(
            index,
            state,
            index.node.long(),
            columns.vocabulary.copy(),
            list(columns.kinds),
            list(columns.speakers),
            self._modes.share,
        )


def save_snapshot(store: MemoryStore, snapshot: Snapshot) -> None:
    """Writes the file from which `load_snapshot` opens at once."""
    index = snapshot.index
    tensors = {k: v.contiguous() for k, v in index.state_dict().items() if k != "weights"}
    words = snapshot.vocabulary.to_bytes()
    tensors["vocabulary"] = torch.frombuffer(bytearray(words or b"\n"), dtype=torch.uint8)
    meta = {
        "built": _signature(index.config),
        "kinds": json.dumps(snapshot.kinds),
        "speakers": json.dumps(snapshot.speakers),
        "terms": str(len(snapshot.vocabulary)),
        "share": repr(snapshot.share),
    }
    store.save_snapshot(tensors, meta, state=snapshot.state)


def load_snapshot(
    store: MemoryStore, config: Config, cache: ModeCache | None = None
) -> Snapshot | None:
    """What `save_snapshot` wrote; None where it is missing, stale, damaged or set up otherwise.

    The cache takes up its modes.
    """
    with store.reading():
        state, numbers = store.state, (store.next_node, store.num_atoms)
    # Verified whole: a flipped bit would be a wrong answer or a crash. 350 MB take 0.2 s.
    kept = store.load_snapshot(verify=True)
    if kept is None or kept[1].get("built") != _signature(config):
        return None
    try:
        fresh = _unpacked(store, state, numbers, *kept, config)
    # Whatever a file says that was not written here; the database knows better.
    except (InputError, KeyError, TypeError, ValueError, RuntimeError) as error:
        _log.warning("%s: the snapshot is damaged (%s); it is made anew", store.path, error)
        return None
    if cache is not None and (modes := fresh.index.modes) is not None:
        cache.restore(modes, config.modes, fresh.node, fresh.share)
    return fresh


def _unpacked(
    store: MemoryStore,
    state: str,
    numbers: tuple[int, int],  # of nodes, deleted ones included, and atoms in this state
    tensors: Mapping[str, Tensor],
    meta: Mapping[str, str],
    config: Config,
) -> Snapshot:
    """The snapshot that a file holds; an error of any kind where it does not fit the store."""
    kinds, speakers = ([str(name) for name in json.loads(meta[k])] for k in ("kinds", "speakers"))
    parts = {name: part for name, part in tensors.items() if name != "vocabulary"}
    words = tensors["vocabulary"].numpy().tobytes()
    vocabulary = Vocabulary.from_bytes(words) if int(meta["terms"]) else Vocabulary()
    known = {"d": store.dim, "m": store.token_dim}
    check_layout(
        parts,
        N=numbers[0],
        A=numbers[1],
        V=max(1, len(vocabulary)),
        kinds=len(kinds),
        speakers=len(speakers),
        **{letter: size for letter, size in known.items() if size is not None},
    )
    index = MemoryIndex.from_state_dict(parts, config)
    node = parts["node"].long()
    deleted = store.num_nodes < numbers[0]
    if deleted and not bool(torch.isin(node, store.columns().node).all()):
        raise InputError("node: expected nodes of the store, got deleted ones; build anew")
    return Snapshot(index, state, node, vocabulary, kinds, speakers, float(meta["share"]))


def _restore_modes(
    store: MemoryStore,
    config: Config,
    cache: ModeCache,
    embeddings: Tensor,  # [A, d]
    time: Tensor,  # [A] float64
) -> None:
    """The cache takes up the modes of a stale snapshot, if it is of the first of these atoms."""
    kept = store.load_snapshot(verify=True, stale=True)
    if kept is None or kept[1].get("built") != _signature(config):
        return
    tensors, meta = kept
    try:
        check_layout(tensors)
        count = len(tensors["embeddings"])
        # A store that was put back from a backup gives the numbers of atoms to others.
        same = torch.equal(tensors["embeddings"], embeddings[:count])
        if count and same and torch.equal(tensors["time_bits"], time[:count].view(torch.int64)):
            modes = modes_from_tensors({name: tensors[f"modes_{name}"] for name in MODE_PARTS})
            cache.restore(modes, config.modes, tensors["node"].long(), float(meta["share"]))
    except (InputError, KeyError, TypeError, ValueError, RuntimeError) as error:
        _log.warning("%s: the modes of the old snapshot are damaged (%s)", store.path, error)


def _signature(config: Config) -> str:
    """The settings that are baked into the tensors of an index."""
    settings = config_to_dict(config)
    own = settings["modes"]
    # Presets without modes share a snapshot; how a question uses modes is not baked in.
    modes = {name: own[name] for name in _MODES} if own["build"] else None
    # So that what routing reads is kept beside them and not derived at each opening.
    routing = sorted(ROUTING_PARTS.keys() & settings["rank"]["weights"].keys())
    return json.dumps([_FORMAT, settings["spread"], modes, routing], sort_keys=True)


def to_rows(edges: EdgeBlock, node: Tensor) -> EdgeBlock:  # node [N]: number of every row
    """Edges between rows instead of node numbers; edges of deleted nodes are dropped."""
    if not len(edges):
        return edges
    size = max(int(edges.source.max()), int(edges.target.max()), int(node.max())) + 1
    row = torch.full((size,), -1, dtype=torch.int64)
    row[node] = torch.arange(len(node))
    source, target = row[edges.source], row[edges.target]
    keep = (source >= 0) & (target >= 0)
    return EdgeBlock(source[keep], target[keep], edges.type[keep], edges.weight[keep])


class ModeCache:
    """The modes of a memory, updated from state to state (`docs/mathematics.md` 1.8).

    Where atoms were only added since the last state, a `ModeTracker` counts the new ones in; the
    old ones are read once a process, for its sums. All modes are found anew at first, where the
    drift exceeds `modes.drift`, after `expire`, and where the settings changed or anything else
    became of the old atoms. What is kept is derived: sums of size d², and a few numbers an atom.
    Safe to share between threads.

    Attributes:
        found: How often all modes were found anew.
        updated: How often new atoms were counted in instead.
        share: `Modes.centroid_error` when they were last found, as a share of the energy: what
            drift is measured from.
    """

    def __init__(self) -> None:
        self.found, self.updated, self.share = 0, 0, 0.0
        self._lock = threading.RLock()
        self._modes: Modes | None = None
        self._settings: tuple[object, ...] = ()
        self._node = torch.empty(0, dtype=torch.int64)
        self._tracker: ModeTracker | None = None
        self._due = False

    @property
    def empty(self) -> bool:
        """Whether modes that were kept elsewhere would be of use."""
        return self._modes is None and not self._due

    def expire(self) -> None:
        """Has the modes found anew when they are next asked for: a regime has switched."""
        with self._lock:
            self._modes, self._tracker, self._due = None, None, True

    def restore(self, modes: Modes, settings: ModesConfig, node: Tensor, share: float) -> None:
        """Goes on from modes of the atoms `node` [A], found by these settings at `share`."""
        shape = (len(node), modes.centroid.shape[1])
        with self._lock:
            self._modes, self._tracker, self._due = modes, None, False
            self._settings, self._node, self.share = _found_by(settings, shape), node, share

    def of(self, snapshot: Snapshot) -> Modes | None:
        """The modes of a snapshot, found where its index keeps none; None without atoms."""
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
        """The modes of the atoms, on their device; a node's number is given to no other atom."""
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
        """Counts the new atoms in; leaves no modes where they drifted too far."""
        assert self._modes is not None
        old, device = len(self._node), embeddings.device
        if self._tracker is None:
            self._tracker = ModeTracker(
                _moved(self._modes, "cpu"),
                embeddings[:old].cpu(),
                time=time[:old].cpu(),
                tol=min(settings.drift, 1.0),
                share=self.share,
            )
        self._tracker.add(embeddings[old:].cpu(), time[old:].cpu())
        if self._tracker.stale or settings.drift == 0:
            self._modes = self._tracker = None
            return
        self._modes, self._node = _moved(self._tracker.modes(), device), node
        self.updated += 1


def _found_by(settings: ModesConfig, shape: tuple[int, int]) -> tuple[object, ...]:
    """What modes are found by: other values make other modes."""
    count = min(settings.count, *shape)
    return settings.select, count, settings.epsilon, settings.assign, settings.drift


def _moved(modes: Modes, device: torch.device | str) -> Modes:
    return modes_from_tensors(
        {name: part.to(device) for name, part in modes_to_tensors(modes).items()}
    )
