"""Reembedding: another encoder for a store, with new vectors and the edges made of them.

The new vectors are written to a separate file while the store stays in use. An interrupted run
continues from that file. Then one transaction replaces all old vectors.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType, text_hash
from graphmem_torch.checks import check_count
from graphmem_torch.config import Config, LinkConfig, checked_config, load_config
from graphmem_torch.coo import isin_pairs, offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.memory.compatibility import (
    deferred_meta,
    embedder_meta,
    link_settings,
    load_as,
    namer,
    usable_device,
)
from graphmem_torch.memory.index_builder import REGIME_KEY
from graphmem_torch.memory.mentions import NameCosines, name_cosines, own_mentions
from graphmem_torch.memory.namespace_folders import namespace_folders
from graphmem_torch.memory.similarity import SimilarRows
from graphmem_torch.progress import Progress
from graphmem_torch.store import MemoryStore, TokenRows
from graphmem_torch.store.batches import join_tokens, pick_tokens
from graphmem_torch.store.failures import store_error
from graphmem_torch.store.folder import store_folder
from graphmem_torch.store.lock import WriterLock
from graphmem_torch.store.replacement import EdgesAgain
from graphmem_torch.store.schema import LINKED_BY
from graphmem_torch.store.store import REEMBED_NAME
from graphmem_torch.text.embedder import Embedder, Encoded, encode_checked

__all__ = ["reembed", "reembed_store"]

_FEW = 1024  # maximum number of nodes encoded while other writers wait
_TILE = 1 << 16  # edges in a batch of cosines
_DTYPES = (torch.int64, torch.float32, torch.int64, torch.int32, torch.int8)
_SAME = 1e-4  # maximum difference of an edge's weight and the cosine of its ends
_TABLES = """
CREATE TABLE IF NOT EXISTS made (fingerprint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS part (
    start  INTEGER PRIMARY KEY,
    nodes  BLOB NOT NULL,
    hashes BLOB NOT NULL,
    pooled BLOB NOT NULL,
    counts BLOB NOT NULL,
    pieces BLOB NOT NULL,
    tokens BLOB NOT NULL
)"""

_Texts = list[tuple[int, str, bool]]  # node, rendered text, whether it is a concept


def reembed(
    path: str | os.PathLike[str],
    embedder: Any,
    *,
    preset: str = "default",
    config: Config | None = None,
    device: str = "auto",
    batch: int = 256,
    progress: bool = False,
) -> int:
    """Give the memory in a folder another encoder, and keep everything else.

    Encodes all texts again, also those of its namespaces, while the memory stays in use. A
    repeated call continues where an interrupted one stopped. Then replaces the vectors, and the
    edges that linking makes of them, in one transaction for each store. Names of concepts stay.
    Open memories must be opened again.

    Args:
        path: Folder of the store.
        embedder: Encoder, as in `Memory.open`.
        preset: Name of the preset that links it, or path of a YAML file.
        config: Settings, instead of a preset.
        device: Device to encode on.
        batch: Number of texts that are encoded before their vectors are saved.
        progress: Whether to show a bar on stderr.

    Returns:
        The number of texts that were encoded; 0 if the memory has this encoder already.

    Raises:
        ConfigError: Unusable settings; the memory is unchanged.
        EmbedderError: An encoder that cannot be loaded; the memory is unchanged.
        StoreError: No store, or a full disk; the memory is unchanged.
    """
    check_count("batch", batch)
    settings = load_config(preset) if config is None else checked_config(config)
    loaded = load_as(embedder, settings.embedder, usable_device(device))
    named = embedder_meta(embedder, settings.embedder)
    meta = {**named, **deferred_meta(loaded), REGIME_KEY: None}
    with ExitStack() as stack:
        folder = store_folder(path)
        stack.enter_context(MemoryStore.open(folder, mode="r"))  # fails if there is none
        folders = [folder, *namespace_folders(folder)]
        stores = [stack.enter_context(MemoryStore.open(each)) for each in folders]
        total = 2 * sum(len(store.rendered()) for store in stores)
        bar = stack.enter_context(
            Progress(what="reembed", unit="texts", total=total, shown=progress)
        )
        # All stores are encoded before the first is changed.
        return sum(
            reembed_store(
                store, loaded, meta, settings.link, bar.update, batch=batch, switch=switch
            )
            for switch in (False, True)
            for store in stores
        )


def reembed_store(
    store: MemoryStore,
    embedder: Embedder,
    meta: Mapping[str, str | None],
    link: LinkConfig,
    advance: Callable[[int], object],
    *,
    batch: int,
    switch: bool = True,
) -> int:
    """Give a store the vectors of another encoder; returns the number of encoded texts.

    Args:
        store: Store, open for writing, of any encoder.
        embedder: New encoder.
        meta: Strings to set in the store; a value of None deletes its key.
        link: Settings that the graph was linked with, as they are given.
        advance: Function called with numbers of finished nodes.
        batch: Number of texts that are encoded before their vectors are saved.
        switch: Whether to replace the vectors; if not, they are only computed and saved.

    Raises:
        EmbedderError, StoreError: The store is unchanged; the next call continues.
    """
    if store.fingerprint == embedder.fingerprint:
        advance(store.num_nodes)
        return 0
    with ExitStack() as stack:
        stack.enter_context(WriterLock(store.path, "reembed.lock"))
        named = namer(store, embedder)
        made = stack.enter_context(closing(_Made(store.path, embedder, named)))
        count = made.encode(store.rendered(), batch, advance)
        while len(made.missing(store.rendered())) > _FEW:
            count += made.encode(store.rendered(), batch, advance)
        if not switch:
            return count
        with store.turn():
            texts = store.rendered()
            count += made.encode(texts, batch, advance)
            pooled, tokens = made.vectors([node for node, *_ in texts], store.next_node)
            edges = _edges_again(
                store, pooled, link_settings(link, embedder), name_cosines(link, named)
            )
            names = [name for _, name, _ in store.aliases()]
            aliases = dict(zip(names, encode_checked(named, names).pooled, strict=True))
            store.put_vectors(pooled, tokens, embedder.fingerprint, edges, meta, aliases)
        made.remove()
    return count


class _Made:
    """Vectors of nodes, saved in a file until all are complete."""

    def __init__(self, folder: Path | None, embedder: Embedder, named: Embedder) -> None:
        self._path = None if folder is None else folder / REEMBED_NAME
        self._embedder, self._named = embedder, named
        place = ":memory:" if self._path is None else str(self._path)
        try:
            self._base = sqlite3.connect(place, isolation_level=None)
            self._base.execute("PRAGMA synchronous = NORMAL")
            self._base.executescript(_TABLES)
            found = self._base.execute("SELECT fingerprint FROM made").fetchall()
        except sqlite3.DatabaseError:  # truncated, or no database: start again
            self.remove()
            self._base = sqlite3.connect(place, isolation_level=None)
            self._base.executescript(_TABLES)
            found = []
        if found != [(embedder.fingerprint,)]:  # made by another encoder
            self._base.executescript("BEGIN; DELETE FROM part; DELETE FROM made; COMMIT")
            self._base.execute("INSERT INTO made VALUES (?)", (embedder.fingerprint,))
        self._known: dict[int, int] = {}
        for nodes, hashes in self._base.execute("SELECT nodes, hashes FROM part ORDER BY start"):
            self._known |= zip(_numbers(nodes), _numbers(hashes), strict=True)

    def missing(self, texts: _Texts) -> _Texts:
        """Return the nodes whose text has no vectors yet."""
        return [each for each in texts if self._known.get(each[0]) != _hash(each[1])]

    def encode(self, texts: _Texts, batch: int, advance: Callable[[int], object]) -> int:
        """Compute and save missing vectors; returns their number."""
        rest = self.missing(texts)
        advance(len(texts) - len(rest))
        for first in range(0, len(rest), batch):
            part = rest[first : first + batch]
            pooled, rows = self._encoded([text for _, text, _ in part], [c for *_, c in part])
            nodes = torch.tensor([node for node, *_ in part])
            hashes = torch.tensor([_hash(text) for _, text, _ in part])
            blobs = nodes, hashes, pooled, rows.offsets.diff(), rows.pieces, rows.tokens
            row = [each.contiguous().numpy().tobytes() for each in blobs]
            sql = "INSERT INTO part SELECT coalesce(max(start), -1) + 1, ?, ?, ?, ?, ?, ? FROM part"
            try:
                self._base.execute(sql, row)
            except sqlite3.Error as error:
                raise store_error(error, self._path or "<memory>") from error
            self._known |= zip(nodes.tolist(), hashes.tolist(), strict=True)
            advance(len(part))
        return len(rest)

    def _encoded(self, texts: Sequence[str], named: Sequence[bool]) -> tuple[Tensor, TokenRows]:
        """Return vectors [n, d] of texts, and token vectors of those that are no names."""
        concept, pairs = torch.tensor(named), [*zip(texts, named, strict=True)]
        whole = _encoded_some(self._embedder, [text for text, name in pairs if not name])
        names = _encoded_some(self._named, [text for text, name in pairs if name])
        pooled, counts = torch.empty(len(texts), self._embedder.dim), torch.zeros(len(texts)).long()
        pooled[~concept], pooled[concept] = whole.pooled, names.pooled
        tokens, pieces = torch.empty(0, 0, dtype=torch.int8), torch.empty(0).int()
        if whole.tokens is not None:
            assert whole.pieces is not None and whole.offsets is not None
            tokens, pieces, counts[~concept] = whole.tokens, whole.pieces, whole.offsets.diff()
        return pooled, TokenRows(tokens, pieces, offsets_of(counts))

    def vectors(self, present: Sequence[int], stop: int) -> tuple[Tensor, TokenRows | None]:
        """Return [stop, d] and token vectors of the nodes below `stop`; zero if not `present`."""
        dim, width = self._embedder.dim, self._embedder.token_dim
        pooled, parts = torch.zeros(stop, dim), list[TokenRows]()
        place = torch.full((stop,), -1, dtype=torch.int64)  # of a node in the order of encoding
        sql = "SELECT nodes, pooled, counts, pieces, tokens FROM part ORDER BY start"
        held = 0
        for row in self._base.execute(sql):
            nodes, rows, counts, pieces, tokens = (
                _values(data, dtype) for data, dtype in zip(row, _DTYPES, strict=True)
            )
            pooled[nodes] = rows.view(-1, dim)
            place[nodes] = torch.arange(held, held + len(nodes))
            held += len(nodes)
            parts.append(TokenRows(tokens.view(-1, max(width, 1)), pieces, offsets_of(counts)))
        there = torch.zeros(stop, dtype=torch.bool)
        there[torch.tensor(present, dtype=torch.int64)] = True
        pooled[~there] = 0.0
        if not width:
            return pooled, None
        joined = join_tokens(parts, width)
        # Nodes that are not present get an empty row of tokens.
        joined = joined._replace(offsets=torch.cat([joined.offsets, joined.offsets[-1:]]))
        return pooled, pick_tokens(joined, torch.where(there, place, held))

    def close(self) -> None:
        self._base.close()

    def remove(self) -> None:
        """Delete the file."""
        self._base.close()
        for suffix in ("", "-journal", "-wal", "-shm"):
            if self._path is not None:
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _encoded_some(embedder: Embedder, texts: list[str]) -> Encoded:
    """Return the vectors of texts; none asks nothing of the encoder, which may be a server."""
    return encode_checked(embedder, texts) if texts else Encoded(torch.empty(0, embedder.dim))


def _hash(text: str) -> int:
    return int(text_hash(text)[:15], 16)


def _values(data: bytes, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)


def _numbers(data: bytes) -> list[int]:
    return _values(data, torch.int64).tolist()


def _edges_again(
    store: MemoryStore, pooled: Tensor, link: LinkConfig, names: NameCosines
) -> EdgesAgain:
    """Return the changes of the edges that linking derives from vectors."""
    edges, columns, old = store.edges(), store.columns(), torch.zeros(len(pooled), store.dim or 0)
    none = EdgesAgain(torch.zeros(len(edges), dtype=torch.bool), EdgeBlock.empty(), torch.empty(0))
    if store.meta_get(LINKED_BY) is None:
        return none  # filled without linking: these edges may mean anything
    old[columns.node] = store.embeddings()
    gone = torch.zeros(len(edges), dtype=torch.bool)
    for kind in (EdgeType.SIMILARITY, EdgeType.ASSOCIATION):
        at = (edges.type == int(kind)).nonzero().flatten()
        part = edges.take(at)
        cosine = torch.cat(
            [
                (old[one] * old[other]).sum(1)
                for one, other in zip(
                    part.source.split(_TILE), part.target.split(_TILE), strict=True
                )
            ]
        )
        ends = torch.stack([part.source, part.target])
        gone[at] = ((part.weight - cosine).abs() <= _SAME) & ~isin_pairs(ends, store.stated(kind))
    own = columns.node[~columns.is_concept]
    cosine, neighbour = SimilarRows(link, pooled.device.type).earlier(
        pooled[own], 0, max(link.similarity_k, 1)
    )
    row, place = (cosine >= link.min_similarity).nonzero(as_tuple=True)
    if link.similarity_k < 1:
        row, place = row[:0], place[:0]
    similar = EdgeBlock.of(
        own[row], own[neighbour[row, place]], EdgeType.SIMILARITY, cosine[row, place]
    )
    mentions: dict[int, list[int]] = {}  # by atom, in the order of its text
    tied = edges.take(own_mentions(edges))
    for atom, concept in zip(tied.source.tolist(), tied.target.tolist(), strict=True):
        mentions.setdefault(atom, []).append(concept)
    pairs = [
        (atom, *ends)
        for atom in sorted(mentions)
        for ends in combinations(dict.fromkeys(mentions[atom]), 2)
    ]
    atom, one, other = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 3).T
    cosine = (pooled[one] * pooled[other]).sum(1)
    near = cosine >= names.associated
    joined = EdgeBlock.of(one[near], other[near], EdgeType.ASSOCIATION, cosine[near])
    return EdgesAgain(
        gone, EdgeBlock.cat([similar, joined]), torch.cat([similar.source, atom[near]])
    )
