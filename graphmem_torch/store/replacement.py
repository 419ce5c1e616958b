"""Replacement of stored blocks: new vectors, new edges, erased rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.arrays import (
    came_from,
    decode,
    made_by_callers,
    mark_of,
    read_edges,
    read_parts,
)
from graphmem_torch.store.batches import TokenRows, edges_of
from graphmem_torch.store.blocks import insert_block, insert_tokens, keep_parts
from graphmem_torch.store.checksums import checksum, seal, verify
from graphmem_torch.store.database import Database

__all__ = [
    "EdgesAgain",
    "put_alias_vectors",
    "put_edges",
    "put_vectors",
    "rewrite_tokens",
    "zero_embeddings",
]


_REST = ", ?" * 7  # placeholders of an edge row, after its number


def zero_embeddings(database: Database, start: int, rows: Tensor) -> None:
    """Zero the rows [n] of the embedding block that starts at a node; only inside a write."""
    sql = "SELECT count, checksum, data FROM embedding_block WHERE start = ?"
    count, expected, data = database.query(sql, (start,))[0]
    rows = rows[rows < count]
    if not len(rows):
        return
    verify(database, "embedding_block", start, expected, [data], start, count)
    blob = bytearray(data)
    torch.frombuffer(blob, dtype=torch.float32).view(count, -1)[rows] = 0.0
    number = seal(database, "embedding_block", start, [blob], start, count)
    sql = "UPDATE embedding_block SET checksum = ?, data = ? WHERE start = ?"
    database.execute_many(sql, [(number, blob, start)])


def rewrite_tokens(database: Database, start: int, rows: Tensor) -> None:
    """Remove the token vectors of rows [n] from the block at a node; only inside a write."""
    sql = "SELECT count, checksum, counts, pieces, data FROM token_block WHERE start = ?"
    count, expected, *blobs = database.query(sql, (start,))[0]
    rows = rows[rows < count]
    if not len(rows):
        return
    verify(database, "token_block", start, expected, blobs, start, count)
    counts = torch.from_numpy(decode(database, blobs[0], np.int32, count))
    if not bool(counts[rows].any()):  # concepts have none
        return
    keep = torch.ones(count, dtype=torch.bool)
    keep[rows] = False
    kept = keep.repeat_interleave(counts).nonzero().squeeze(1)
    total = int(counts.sum())
    width = len(blobs[2]) // max(total, 1)
    pieces = torch.from_numpy(decode(database, blobs[1], np.int32, total)).index_select(0, kept)
    own = torch.from_numpy(decode(database, blobs[2], np.int8, total, width))
    tokens = own.index_select(0, kept)
    database.execute_many("DELETE FROM token_block WHERE start = ?", [(start,)])
    insert_tokens(database, start, counts.where(keep, 0), pieces, tokens)


class EdgesAgain(NamedTuple):
    """New edges that replace stored ones.

    Attributes:
        gone: [E] bool, mask of the edges to remove, in the order of `read_edges`.
        edges: The n new edges.
        at: [n] int64, node whose batch each new edge joins.
    """

    gone: Tensor
    edges: EdgeBlock
    at: Tensor


def put_edges(database: Database, again: EdgesAgain) -> None:
    """Replace edges, in the blocks of their batches; only inside a write."""
    blocks = database.query("SELECT block, start, count FROM edge_block ORDER BY block")
    listed = [read_parts(database, *block) for block in blocks]
    front = listed[0][:1, 0] if listed else np.array([mark_of(0, True)])
    if made_by_callers(front).any() or (came_from(front) > 0).any():  # the first batch had none
        listed[0] = np.concatenate([[[mark_of(0, True), 0]], listed[0]])
    if not listed:
        if len(again.edges):
            columns = again.edges.columns
            insert_block(database, "edge_block", 0, len(again.edges), columns, f"NULL{_REST}")
        return
    marks, sizes = map(torch.from_numpy, np.ascontiguousarray(np.concatenate(listed).T))
    owner = torch.arange(len(marks)).repeat_interleave(sizes)[~again.gone]
    # An edge joins the last batch that begins at or before its node; batches are in node order.
    linked = torch.from_numpy(~made_by_callers(marks.numpy())).nonzero().squeeze(1)
    begun = torch.from_numpy(came_from(marks[linked].numpy()))
    own = torch.searchsorted(begun, again.at, right=True) - 1
    owner = torch.cat([owner, linked[own]])
    edges = EdgeBlock.cat([edges_of(read_edges(database, 0)).take(~again.gone), again.edges])
    edges = edges.take(owner.argsort(stable=True))
    counts = owner.bincount(minlength=len(marks))
    database.execute_many("DELETE FROM edge_block", [()])
    database.execute_many("DELETE FROM edge_parts", [()])
    place, first = 0, 0
    for (block, start, _), old in zip(blocks, listed, strict=True):
        left = counts[place : place + len(old)]
        new = torch.stack([torch.from_numpy(old[:, 0].copy()), left], 1)
        place += len(old)
        total = int(new[:, 1].sum())
        if total:
            columns = edges.take(torch.arange(first, first + total)).columns
            insert_block(database, "edge_block", start, total, columns, f"{block}{_REST}")
            keep_parts(database, block, new)
        first += total


def put_vectors(database: Database, pooled: Tensor, tokens: TokenRows | None) -> None:
    """Replace the vectors of all nodes, keeping the block boundaries; only inside a write.

    Args:
        database: Database of the store.
        pooled: [N, d] float32 by node number.
        tokens: Token vectors of the N nodes; None: none.
    """
    blocks = database.query("SELECT start, count FROM embedding_block ORDER BY start")
    for table in ("embedding_block", "token_block"):
        database.execute_many(f"DELETE FROM {table}", [()])
    for start, count in blocks:
        rows = slice(start, start + count)
        insert_block(database, "embedding_block", start, count, [pooled[rows]])
        if tokens is not None:
            offsets = tokens.offsets[start : start + count + 1]
            own = slice(int(offsets[0]), int(offsets[-1]))
            counts = offsets.diff().int()
            insert_tokens(database, start, counts, tokens.pieces[own], tokens.tokens[own])


def put_alias_vectors(database: Database, names: Iterable[str], vectors: Tensor) -> None:
    """Write the vectors [n, d] of concept aliases; only inside a write."""
    place = dict(zip(names, range(len(vectors)), strict=True))
    sql = "SELECT entry, name FROM alias WHERE name IN (SELECT value FROM json_each(?))"
    rows = []
    for entry, name in database.query(sql, (json.dumps(list(place)),)):
        data = vectors[place[name]].contiguous().numpy().tobytes()
        rows.append((entry, checksum([data], entry), data))
    database.execute_many("INSERT OR REPLACE INTO alias_vector VALUES (?, ?, ?)", rows)
