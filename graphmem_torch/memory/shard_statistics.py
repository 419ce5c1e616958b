"""Shard statistics: the counts of all shards by which each shard weighs its terms and signals.

Terms are compared by 64-bit hashes, as each shard numbers its own. `statistics.safetensors` beside
the shards keeps the sums; it is a cache, stamped with the states of the shards.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.index.data import LENGTH_DISCOUNT, SESSION_DISCOUNT
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.memory.questions import nearest_cosines
from graphmem_torch.ops.bm25 import BM25, weights_of
from graphmem_torch.rank.part import Concepts, Part
from graphmem_torch.rank.peers import Peers
from graphmem_torch.rank.shared_hops import (
    HopInputs,
    SharedHops,
    Titles,
    mention_pairs,
    shared_hops,
    titles_of,
)
from graphmem_torch.store.failures import store_error
from graphmem_torch.store.folder import sync_folder
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.terms import Vocabulary, terms

__all__ = ["ShardStatistics", "ShardTerms", "TermHashes", "as_part", "stamp_of", "term_hash"]

_log = logging.getLogger(__name__)

_FORMAT = "2"


class TermHashes:
    """64-bit hashes of the terms of one growing vocabulary, computed once for each term."""

    def __init__(self) -> None:
        """Start without terms."""
        self._words: list[str] = []
        self._hashes = np.empty(0, dtype=np.int64)

    def of(self, vocabulary: Vocabulary) -> Tensor:  # [V] int64
        """Return the hash of each term, by number."""
        words, old = vocabulary.words, len(self._words)
        if words[:old] != self._words:  # numbered anew after a removal
            old = 0
        fresh = np.fromiter(map(term_hash, words[old:]), dtype=np.int64, count=len(words) - old)
        self._words, self._hashes = words, np.concatenate([self._hashes[:old], fresh])
        return torch.from_numpy(self._hashes)


def term_hash(term: str) -> int:
    """Return the hash of a term, in the range of int64."""
    data = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(data, "little", signed=True)


@dataclass(eq=False)
class ShardTerms:
    """A shard whose terms, titles and concepts have the hashes that all shards share.

    Attributes:
        snapshot: Snapshot of the shard.
        hashes: [V] int64, hash of each term of its vocabulary.
        inputs: Source of its hops; None if unknown.
        concepts: [K] int64, hash of the parts of each concept's name (`naming.name_parts`).
    """

    snapshot: Snapshot
    hashes: Tensor
    inputs: HopInputs | None
    concepts: Tensor

    @cached_property
    def _titled(self) -> tuple[Titles, Tensor]:
        none = torch.empty(0, dtype=torch.int64)
        if self.inputs is None:
            keys = torch.zeros(self.snapshot.index.num_atoms, dtype=torch.int64)
            return Titles(none, none, none, none), keys
        return titles_of(self.inputs, self.hashes)

    @property
    def titles(self) -> Titles:
        """The titles of its documents."""
        return self._titled[0]

    @property
    def title_keys(self) -> Tensor:  # [A] int64
        """Hash of the title of each atom, 0 = none."""
        return self._titled[1]

    @property
    def entities(self) -> Tensor:  # [E] int64
        """Hashes of the names of its concepts, ascending."""
        return self.concepts.unique()

    @property
    def bearing(self) -> Tensor:  # [E] int64
        """Number of atoms about each of the entities."""
        entities = self.entities
        if self.inputs is None:
            return torch.zeros_like(entities)
        number = torch.searchsorted(entities, self.concepts)[self.inputs.concept]
        size = max(1, len(entities))
        pair = (self.inputs.atom * size + number).unique()
        return torch.bincount(pair % size, minlength=len(entities))

    def fan(self, whole: ShardStatistics) -> Tensor:  # [N] float32
        """Return the number of edges that leave each node, with those to other shards.

        A concept is about atoms of all shards, as it is in one store.
        """
        degree = self.snapshot.index.tensors.graph.fan().to(torch.float32).cpu()
        entities = self.entities
        if len(entities):
            known = whole.bearing[torch.searchsorted(whole.entity, entities)]
            others = (known - self.bearing).float()
            place = torch.searchsorted(entities, self.concepts)
            degree[self.snapshot.concept] += others[place]
        return degree

    def lending(self, whole: ShardStatistics) -> Concepts | None:
        """Return its concepts among those of all shards; None without any."""
        if not len(self.concepts):
            return None
        number = torch.searchsorted(whole.entity, self.concepts)
        every = torch.full((self.snapshot.index.num_nodes,), -1, dtype=torch.int64)
        every[self.snapshot.concept] = number
        known, order = number.sort(stable=True)
        return Concepts(every, known, self.snapshot.concept[order])

    def mentions(self, titles: Titles) -> tuple[Tensor, Tensor]:  # [P] int64 each
        """Return which of its atoms mention which titles of all shards."""
        none = torch.empty(0, dtype=torch.int64)
        if self.inputs is None or not len(titles.key):
            return none, none
        return mention_pairs(self.inputs, self.hashes, titles)

    def hops(self, whole: ShardStatistics) -> SharedHops | None:
        """Return what leads to its documents from anywhere; None if no shard has documents."""
        if not len(whole.title):
            return None
        memory, none = self.snapshot.index.tensors, torch.empty(0, dtype=torch.int64)
        atoms, parts = memory.num_atoms, memory.hops
        inputs = self.inputs
        if inputs is None:
            ends = torch.zeros(atoms + 1, dtype=torch.int64)
            inputs = HopInputs(none, ends, torch.full((atoms,), -1), none, none)
        if parts is None:
            asked = torch.zeros(atoms, dtype=torch.int64), torch.zeros_like(self.concepts)
        else:
            asked = parts.title_key.cpu(), parts.entity_key.cpu()
        return shared_hops(
            inputs,
            self.mentions(whole.titles),
            self.title_keys,
            whole.titles,
            whole.mentioned,
            torch.searchsorted(whole.entity, self.concepts),
            whole.bearing,
            int(whole.totals[0]),
            asked,
        )


@dataclass(frozen=True, eq=False)
class ShardStatistics:
    """Counts of a shard, or sums over several.

    Attributes:
        term: [V] int64, hashes of the terms, ascending.
        df, session_df: [V] int64, number of atoms and of sessions with each term.
        piece_df: [W] int64, number of atoms with each word piece; W = 0 without token vectors.
        nearest: [U] float32, `questions.nearest_cosines`; U = 0 if no gate reads it.
        trend: [2] float64, sum of `MemoryTensors.length_trend` over atoms.
        totals: [5] int64: atoms, their terms, sessions, their terms, atoms with a trend.
        title, title_size, title_first, title_bearers: [U] int64, `shared_hops.Titles`.
        mentioned: [U] int64, number of atoms that mention each title.
        entity, bearing: [E] int64, hashes of the names of concepts, ascending, and number of atoms
            about each.
    """

    term: Tensor
    df: Tensor
    session_df: Tensor
    piece_df: Tensor
    nearest: Tensor
    trend: Tensor
    totals: Tensor
    title: Tensor
    title_size: Tensor
    title_first: Tensor
    title_bearers: Tensor
    mentioned: Tensor
    entity: Tensor
    bearing: Tensor

    @classmethod
    def of(cls, shard: ShardTerms, embedder: Embedder | None) -> ShardStatistics:
        """Return the counts of one shard, without the mentions of titles.

        Args:
            shard: Snapshot of the shard, with the hashes of its terms.
            embedder: Encoder, if the gate compares with unrelated texts.
        """
        snapshot, hashes = shard.snapshot, shard.hashes
        memory = snapshot.index.tensors
        atoms = memory.num_atoms
        order = hashes.argsort()

        def counted(bm25: BM25) -> Tensor:  # an empty index has one term, which nothing has
            return torch.nn.functional.pad(bm25.df.cpu(), (0, 1))[: len(order)][order]

        trend = memory.length_trend if atoms else None
        lengths = (
            each.counts.sum(dtype=torch.int64) for each in (memory.bm25, memory.session_bm25)
        )
        words, session_words = map(int, lengths)
        sessions = memory.session_bm25.num_docs
        known = 0 if trend is None else atoms
        return cls(
            term=hashes[order],
            df=counted(memory.bm25),
            session_df=counted(memory.session_bm25),
            piece_df=(torch.empty(0) if memory.piece_df is None else memory.piece_df.cpu()).long(),
            nearest=nearest_cosines(embedder, snapshot).cpu()
            if embedder is not None and atoms
            else torch.empty(0),
            trend=torch.zeros(2, dtype=torch.float64) if trend is None else trend.cpu() * known,
            totals=torch.tensor([atoms, words, sessions, session_words, known]),
            title=shard.titles.key,
            title_size=shard.titles.size,
            title_first=shard.titles.first,
            title_bearers=shard.titles.bearers,
            mentioned=torch.zeros_like(shard.titles.key),
            entity=shard.entities,
            bearing=shard.bearing,
        )

    @property
    def titles(self) -> Titles:
        """The titles of documents."""
        return Titles(self.title, self.title_size, self.title_first, self.title_bearers)

    @classmethod
    def joined(cls, parts: Sequence[ShardStatistics]) -> ShardStatistics:
        """Return the sums over shards, in their order."""
        term, slot = torch.cat([part.term for part in parts]).unique(return_inverse=True)

        def added(counts: Sequence[Tensor]) -> Tensor:
            return torch.zeros_like(term).index_add_(0, slot, torch.cat([*counts]))

        pieces = max(len(part.piece_df) for part in parts)
        padded = [
            torch.nn.functional.pad(part.piece_df, (0, pieces - len(part.piece_df)))
            for part in parts
        ]
        nearest = [part.nearest for part in parts if len(part.nearest)]
        titles = Titles.joined([part.titles for part in parts])
        entity, each = torch.cat([part.entity for part in parts]).unique(return_inverse=True)
        bearing = torch.cat([part.bearing for part in parts])
        return cls(
            term=term,
            df=added([part.df for part in parts]),
            session_df=added([part.session_df for part in parts]),
            piece_df=torch.stack(padded).sum(0),
            nearest=torch.stack(nearest).amax(0) if nearest else torch.empty(0),
            trend=torch.stack([part.trend.double() for part in parts]).sum(0),
            totals=torch.stack([part.totals for part in parts]).sum(0),
            title=titles.key,
            title_size=titles.size,
            title_first=titles.first,
            title_bearers=titles.bearers,
            mentioned=torch.zeros_like(titles.key),
            entity=entity,
            bearing=torch.zeros_like(entity).index_add_(0, each, bearing),
        )

    def counts_of(self, hashes: Tensor) -> tuple[Tensor, Tensor]:  # [n] -> [n], [n]
        """Return `df` and `session_df` of terms by their hashes; 0 for unknown ones."""
        if not len(self.term):
            return torch.zeros_like(hashes), torch.zeros_like(hashes)
        place = torch.searchsorted(self.term, hashes).clamp_(max=len(self.term) - 1)
        there = self.term[place] == hashes
        return self.df[place].where(there, 0), self.session_df[place].where(there, 0)

    def save(self, path: Path, stamp: str) -> None:
        """Write the sums, replacing the file atomically.

        Args:
            path: The file.
            stamp: States of the shards.

        Raises:
            StoreError: The file cannot be written.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        tensors = {field.name: getattr(self, field.name).contiguous() for field in fields(self)}
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            save_file(tensors, new, {"format": _FORMAT, "stamp": stamp})
            with open(new, "rb") as file:
                os.fsync(file.fileno())
            new.chmod(path.parent.stat().st_mode & 0o666)
            os.replace(new, path)
            sync_folder(path.parent)
        except (OSError, SafetensorError) as error:
            raise store_error(OSError(str(error)), path) from error
        finally:
            new.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path, stamp: str) -> ShardStatistics | None:
        """Read the sums; None if there are none, or of other states of the shards."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                meta = file.metadata() or {}
                if (meta.get("format"), meta.get("stamp")) != (_FORMAT, stamp):
                    return None
                return cls(**{field.name: file.get_tensor(field.name) for field in fields(cls)})
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError) as error:
            _log.warning("%s: damaged (%s); it is made anew", path, error)
            return None


def stamp_of(states: Sequence[str], reads: Sequence[str]) -> str:
    """Return the stamp of statistics: states of the shards, and what else decides them."""
    return json.dumps([[*states], [*reads]])


class _PartVocabulary(Vocabulary):
    """Vocabulary of a shard; a term that only other shards have is missing by its share."""

    def __init__(self, own: Vocabulary, whole: ShardStatistics, rarest: float) -> None:
        """Share the terms of a vocabulary, which does not grow any more."""
        self.__dict__.update(own.copy().__dict__)
        self._whole, self._rarest = whole, rarest

    def copy(self) -> Vocabulary:
        """Return this vocabulary, which does not grow."""
        return self

    def _missing(self, found: Sequence[str]) -> float:
        """Return the number of terms without any atom, and of others by idf to the rarest."""
        df, idf = self._foreign(found)
        return float(torch.where(df > 0, idf / max(self._rarest, 1e-9), 1.0).sum())

    def foreign_idf(self, texts: Sequence[str]) -> Tensor | None:
        """Return the idf of the terms that only other shards have."""
        each = [self._foreign(terms(text)) for text in texts]
        return torch.tensor([float(idf[df > 0].sum()) for df, idf in each])

    def _foreign(self, found: Sequence[str]) -> tuple[Tensor, Tensor]:  # [n] each
        """Return document frequency and idf of the terms that this shard lacks."""
        hashes = torch.tensor(
            [term_hash(t) for t in found if not self._known([t])], dtype=torch.int64
        )
        df = self._whole.counts_of(hashes)[0]
        docs = int(self._whole.totals[0])
        return df, torch.log1p((docs + 0.5 - df) / (df + 0.5))


def as_part(
    shard: ShardTerms,
    whole: ShardStatistics,
    speakers: Sequence[str],
    peers: Peers | None,
) -> Snapshot:
    """Return the snapshot of a shard, weighed by the counts of all shards.

    Args:
        shard: Snapshot of the shard, with atoms.
        whole: Sums over all shards.
        speakers: Names of the speakers of all shards.
        peers: The shards that answer together; None: this one alone.
    """
    snapshot, hashes = shard.snapshot, shard.hashes
    index = snapshot.index
    memory = index.tensors
    device = index.embeddings.device
    hops, bearers = shard.hops(whole), None
    if hops is not None:
        hops = hops.to(device)
        number = torch.searchsorted(whole.title, shard.title_keys).clamp(max=len(whole.title) - 1)
        bearers = whole.title_bearers[number].to(device)
    df, session_df = whole.counts_of(hashes)
    atoms, words, sessions, session_words, known = whole.totals.tolist()

    def weighed(bm25: BM25, df: Tensor, b: float, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        norm, idf = weights_of(df, bm25.lengths.cpu(), bm25.k1, b, whole=size)
        padded = torch.nn.functional.pad(idf, (0, len(bm25.idf) - len(idf)))
        return norm.to(device), padded.to(device)

    norm, idf = weighed(memory.bm25, df, LENGTH_DISCOUNT, (atoms, words))
    session_norm, session_idf = weighed(
        memory.session_bm25, session_df, SESSION_DISCOUNT, (sessions, session_words)
    )
    own = {*snapshot.speakers}
    foreign = [name for name in speakers if name not in own]
    lending = shard.lending(whole) if peers is not None and peers.lends else None
    if lending is not None:
        lending = Concepts(*(each.to(device) for each in lending))
    part = Part(
        atoms=atoms,
        speakers=len(snapshot.speakers) + len(foreign),
        norm=norm,
        idf=idf,
        session_norm=session_norm,
        session_idf=session_idf,
        piece_df=None if memory.piece_df is None else whole.piece_df.to(device),
        length_trend=(whole.trend / known).float().to(device) if known else None,
        title_bearers=bearers,
        fan=None if peers is None else shard.fan(whole).to(device),
        entity=lending,
        hops=hops,
        peers=peers,
    )
    weighed_index = index.as_part(part)
    return replace(
        snapshot,
        index=weighed_index,
        vocabulary=_PartVocabulary(snapshot.vocabulary, whole, weighed_index.tensors.rarest),
        speakers=[*snapshot.speakers, *foreign],
        called=[*snapshot.called, *([] for _ in foreign)],
        nearest=float(whole.nearest.mean()) if len(whole.nearest) else None,
    )
