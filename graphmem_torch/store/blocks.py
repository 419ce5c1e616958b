"""Embeddings, token vectors and edges as blobs of blocks: of an acknowledged batch, or of several.

Blobs are little-endian and row-major. A block is addressed by `start`, the node number of its first
atom, so that the rows from a given node on are found without reading those before it. Small blocks
at the end are merged as they accumulate, each row a bounded number of times; `edge_parts` says of a
block of edges which batches they came with, and whether linking or a caller made them.

No number of a database is trusted before its block's checksum was found right, and nothing is
allocated by one that the bytes at hand do not bear out.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_tensor
from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.ops.ragged import row_entries
from graphmem_torch.store.adjacency import Adjacency
from graphmem_torch.store.changes import CutEdges
from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged

__all__ = [
    "Batch",
    "EdgesAgain",
    "NodeVectors",
    "TokenRows",
    "is_sound",
    "join_tokens",
    "pick_tokens",
    "put_alias_vectors",
    "put_edges",
    "put_vectors",
    "read_alias_vectors",
    "read_edges",
    "read_embeddings",
    "read_last_edges",
    "read_linked_edges",
    "read_tokens",
    "read_vectors",
    "rewrite_tokens",
    "thin_edges",
    "write_blocks",
    "zero_embeddings",
]


class TokenRows(NamedTuple):
    """Packed token vectors of N atoms.

    Attributes:
        tokens: [T, m] int8, unit vectors times 127.
        pieces: [T] int32 word-piece numbers.
        offsets: [N + 1] int64; atom i owns rows offsets[i] to offsets[i + 1].
    """

    tokens: Tensor
    pieces: Tensor
    offsets: Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """One acknowledged write: n atoms with their vectors, and any edges.

    Attributes:
        atoms: The n atoms; they get the node numbers `next_node` to `next_node + n - 1`.
        embeddings: [n, d] float32, finite.
        tokens: Their token vectors; None: these atoms have none.
        edges: Edges that linking made, among all nodes up to and including these. A batch may hold
            nothing but edges.
        cut: Edges that go, such as a temporal one that a turn has come between: as many of each as
            are there, at most as many as are named. A weight of NaN stands for any.
        gone: Node numbers of stored atoms that go, with everything that is said of them. Their
            numbers are given to no other, and their vectors stay in the blocks, unread.
        connected: Edges that callers made.
        versions: Of atoms that go and of the batch's own, the pairs (old, new) of versions of one:
            the old one is kept aside, and pins and uses become those of the new one.
        unnamed: Names of concepts, `aliases` of before, that go; some may come again.
        aliases: Names of concepts other than their own, each with the node number of its concept.
        alias_embeddings: [a, d] float32, of the `aliases`; None: not known.
        rows: Rows of the atoms, as `atom_to_row` gives them, where they are made already.
    """

    atoms: Sequence[Atom]
    embeddings: Tensor
    tokens: TokenRows | None = None
    edges: EdgeBlock = field(default_factory=EdgeBlock.empty)
    cut: EdgeBlock = field(default_factory=EdgeBlock.empty)
    gone: Sequence[int] = ()
    connected: EdgeBlock = field(default_factory=EdgeBlock.empty)
    versions: Sequence[tuple[int, int]] = ()
    unnamed: Sequence[str] = ()
    aliases: Sequence[tuple[str, int]] = ()
    alias_embeddings: Tensor | None = None
    rows: Sequence[tuple[Any, ...]] | None = None

    def validate(self, *, dim: int | None, token_dim: int | None) -> None:
        """Check the vectors against the atoms and the widths of the store (None: not yet known).

        Raises:
            InputError: Shapes, types or offsets do not fit.
            EmbedderError: An embedding is not finite; the message names the atom.
        """
        n, do = len(self.atoms), "convert or reshape it: a store keeps one width for ever"
        if n or self.embeddings.numel():
            check_tensor("embeddings", self.embeddings, "float32", (n, dim or "d"), do)
        bad = (~torch.isfinite(self.embeddings)).nonzero()
        if len(bad):
            atom = self.atoms[int(bad[0, 0])]
            raise EmbedderError(
                f"embeddings: expected finite vectors, got NaN or infinity for atom {atom.id!r} "
                f"({atom.text[:40]!r}); check the embedder (half precision overflows) or its input"
            )
        if self.alias_embeddings is not None and self.aliases:
            shape = len(self.aliases), dim or "d"
            check_tensor("alias_embeddings", self.alias_embeddings, "float32", shape, do)
        if self.tokens is None:
            return
        tokens, pieces, offsets = self.tokens
        check_tensor("tokens", tokens, "int8", ("T", token_dim or "m"), do)
        check_tensor("pieces", pieces, "int32", (len(tokens),), do)
        check_tensor("offsets", offsets, "int64", (n + 1,), do)
        first, last = int(offsets[0]), int(offsets[-1])
        if first != 0 or last != len(tokens) or bool((offsets.diff() < 0).any()):
            raise InputError(
                f"offsets: expected an ascending sequence from 0 to {len(tokens)}, got {first} to "
                f"{last}; offsets[i] is where the token vectors of atom i begin"
            )


def write_blocks(
    database: Database, start: int, batch: Batch, adjacency: Callable[[], Adjacency]
) -> CutEdges:
    """Write a valid batch, whose first atom is node `start`; only inside `Database.write`.

    Args:
        database: Where to.
        start: Number of its first atom.
        batch: What is written.
        adjacency: Finds the edges that are stored.

    Returns:
        The edges that `Batch.cut` and `Batch.gone` took away.
    """
    n, cut = len(batch.atoms), _cut_edges(database, start, batch, adjacency)
    if n:
        _insert(database, "embedding_block", start, n, [batch.embeddings])
    if n and batch.tokens is not None:
        tokens, pieces, offsets = batch.tokens
        _insert_tokens(database, start, offsets.diff().int(), pieces, tokens)
    for edges, linked in ((batch.connected, False), (batch.edges, True)):
        if len(edges):
            marks = "NULL, ?, ?, ?" + ", ?" * len(edges.columns)
            _insert(database, "edge_block", start, len(edges), edges.columns, marks)
            block = int(database.query("SELECT max(block) FROM edge_block")[0][0])
            _put_parts(database, block, torch.tensor([[_mark(start, linked), len(edges)]]))
    # No more often than the smallest step can be reached.
    if start // _STEPS[-1] != (start + n) // _STEPS[-1]:
        for table in _MERGED:
            _merge_small(database, table)
    return cut


_FEW = 16  # edges that are looked for one by one
_EDGES = "SELECT block, start, count, checksum, source, target, type, weight FROM edge_block"


def _edge_block(
    database: Database, block: int, start: int, count: int, expected: int, *blobs: bytes
) -> EdgeBlock:
    """The edges of a row of `_EDGES`."""
    if start < 0:
        raise damaged(database.place, f"edges from node {start} on, which never was")
    _verify(database, "edge_block", block, expected, blobs, start, count)
    dtypes = (torch.int64, torch.int64, torch.uint8, torch.float32)
    return EdgeBlock(*(_decode(database, *each, count) for each in zip(blobs, dtypes, strict=True)))


_MERGED = {
    "embedding_block": (1, "start", ("data",)),
    "token_block": (1 / 32, "start", ("counts", "pieces", "data")),
    "edge_block": (16, "block", ("source", "target", "type", "weight")),
}
"""Of each table: rows that an atom has (fewer where blocks stay small); its key; its blobs."""

_STEPS = (1024, 256, 64, 16, 4)  # atoms from which small blocks become one
_LONGEST_RUN = 1 << 16  # small blocks of an older store that are merged at once


def _merge_small(database: Database, table: str) -> None:
    """Merges the small blocks at the end of a table where they are enough; only inside a write.

    A row is written anew once for every step, and of each step about three blocks stay.
    """
    unit, key, _ = _MERGED[table]
    run: list[tuple[int, int, int]] = []  # key, start and count, the last block first
    sql = f"SELECT {key}, start, count FROM {table} ORDER BY {key} DESC"
    with contextlib.closing(database.stream(sql)) as rows:
        for row in itertools.islice(rows, _LONGEST_RUN):
            gap = bool(run) and key == "start" and row[1] + row[2] != run[-1][1]
            if gap or row[2] >= unit * _STEPS[0]:
                break
            run.append(row)
    for step in _STEPS:
        small = list(itertools.takewhile(lambda row: row[2] < unit * step, run))  # noqa: B023
        if sum(count for *_, count in small) >= unit * step:
            group: list[tuple[int, int, int]] = []
            held = 0
            for row in reversed(small):
                group.append(row)
                held += row[2]
                if held >= unit * step:
                    _merge(database, table, group)
                    group, held = [], 0
            _merge(database, table, group)
            return


def _merge(database: Database, table: str, group: Sequence[tuple[int, int, int]]) -> None:
    """Makes one block of blocks that follow each other; damaged ones stay as they are."""
    if len(group) < 2:
        return
    _, key, names = _MERGED[table]
    (first, start, _), last = group[0], group[-1][0]
    place, found = f"WHERE {key} BETWEEN ? AND ?", ", ".join(names)
    rows = database.query(
        f"SELECT start, count, checksum, {found} FROM {table} {place} ORDER BY {key}", (first, last)
    )
    if not all(is_sound(expected, blobs, at, count) for at, count, expected, *blobs in rows):
        return
    merged = [b"".join(blobs) for blobs in zip(*(row[3:] for row in rows), strict=True)]
    count, own = sum(row[1] for row in rows), [] if key == "start" else [first]
    if own:
        parts = torch.cat([_parts(database, block, at, n) for block, at, n in group])
        database.execute_many(f"DELETE FROM edge_parts {place}", [(first, last)])
        _put_parts(database, first, parts)
    # Deleted before the new one is written, which takes their pages.
    database.execute_many(f"DELETE FROM {table} {place}", [(first, last)])
    row = *own, start, count, _checksum(merged, start, count), *merged
    database.execute_many(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", [row])


def _parts(database: Database, block: int, start: int, count: int) -> Tensor:  # [P, 2] int64
    """The batches that the edges of a block came with: mark and number of edges of each.

    See `_mark`. In older stores the mark is the number of the next node when they came, and those
    that callers connected lie before those of the atoms that were stored next.
    """
    sql = "SELECT checksum, data FROM edge_parts WHERE block = ?"
    rows = database.query(sql, (block,)) if database.has("edge_parts") else []
    if not rows:
        return torch.tensor([[start, count]])
    expected, data = rows[0]
    if not data or len(data) % 16 or _checksum([data], block) != expected:
        raise damaged(database.place, f"edge_parts: those of block {block} do not match it")
    parts = torch.frombuffer(bytearray(data), dtype=torch.int64).view(-1, 2)
    # An older release, which does not know of them, may have thinned the block.
    return parts if int(parts[:, 1].sum()) == count else torch.tensor([[start, count]])


def _mark(start: int, linked: bool) -> int:
    """Says of edges the next node when they came, and whether linking or a caller made them."""
    return -1 - 2 * start - linked


def _began(marks: Tensor) -> Tensor:
    """The next node when edges came, from their marks."""
    return torch.where(marks < 0, (-1 - marks) >> 1, marks)


def _by_callers(marks: Tensor) -> Tensor:
    """Which marks say that a caller made the edges; older ones do not tell."""
    return (marks < 0) & (marks % 2 != 0)


def _put_parts(database: Database, block: int, parts: Tensor) -> None:
    data = parts.contiguous().numpy().tobytes()
    row = block, _checksum([data], block), data
    database.execute_many("INSERT OR REPLACE INTO edge_parts VALUES (?, ?, ?)", [row])


def _keep_parts(database: Database, block: int, parts: Tensor) -> None:
    """Puts parts, if the block does not say as much."""
    if len(parts) > 1 or int(parts[0, 0]) < 0:
        _put_parts(database, block, parts)


def zero_embeddings(database: Database, start: int, rows: Tensor) -> None:
    """Overwrites rows [n] of the block that starts at a node; only inside a write."""
    sql = "SELECT count, checksum, data FROM embedding_block WHERE start = ?"
    count, expected, data = database.query(sql, (start,))[0]
    rows = rows[rows < count]
    if not len(rows):
        return
    _verify(database, "embedding_block", start, expected, [data], start, count)
    blob = bytearray(data)
    torch.frombuffer(blob, dtype=torch.float32).view(count, -1)[rows] = 0.0
    seal = _seal(database, "embedding_block", start, [blob], start, count)
    sql = "UPDATE embedding_block SET checksum = ?, data = ? WHERE start = ?"
    database.execute_many(sql, [(seal, blob, start)])


def rewrite_tokens(database: Database, start: int, rows: Tensor) -> None:
    """Takes the token vectors of rows [n] out of the block of a node; only inside a write."""
    sql = "SELECT count, checksum, counts, pieces, data FROM token_block WHERE start = ?"
    count, expected, *blobs = database.query(sql, (start,))[0]
    rows = rows[rows < count]
    if not len(rows):
        return
    _verify(database, "token_block", start, expected, blobs, start, count)
    counts = _decode(database, blobs[0], torch.int32, count)
    if not bool(counts[rows].any()):  # concepts have none
        return
    keep = torch.ones(count, dtype=torch.bool)
    keep[rows] = False
    kept = keep.repeat_interleave(counts).nonzero().squeeze(1)
    total = int(counts.sum())
    width = len(blobs[2]) // max(total, 1)
    pieces = _decode(database, blobs[1], torch.int32, total).index_select(0, kept)
    tokens = _decode(database, blobs[2], torch.int8, total, width).index_select(0, kept)
    database.execute_many("DELETE FROM token_block WHERE start = ?", [(start,)])
    _insert_tokens(database, start, counts.where(keep, 0), pieces, tokens)


def read_embeddings(
    database: Database, start: int, stop: int, dim: int
) -> Tensor:  # [stop - start, d]
    """Embeddings of the node numbers from `start` to `stop - 1`, deleted ones included.

    Raises:
        StoreDamagedError: A block is missing, has the wrong length or does not match its checksum.
    """
    _expect_held(database, stop, dim)
    out = torch.empty(max(stop - start, 0), dim, dtype=torch.float32)
    filled = 0
    for first, count, data in _blocks(database, "embedding_block", ("data",), start, stop):
        begin, end = max(start - first, 0), min(stop - first, count)
        if first + begin != start + filled:
            break
        rows = _decode(database, data, torch.float32, count, dim)[begin:end]
        out[filled : filled + len(rows)] = rows
        filled += len(rows)
    if filled != len(out):
        raise damaged(database.place, f"no embedding for node {start + filled}")
    return out


def read_tokens(database: Database, start: int, stop: int, dim: int) -> TokenRows:
    """Token vectors of the node numbers from `start` to `stop - 1`.

    Atoms that were stored without token vectors own no rows.

    Raises:
        StoreDamagedError: A block has the wrong length, does not match its checksum, or lies where
            no atom is.
    """
    end = _expect_held(database, stop, None)
    outside = "SELECT start FROM token_block WHERE start < 0 OR start > ? LIMIT 1"
    if found := database.query(outside, (end,)):
        raise damaged(database.place, f"token vectors at node {found[0][0]}, which never was")
    counts = torch.zeros(max(stop - start, 0), dtype=torch.int64)
    # Counts alone first: they give the size, so that the vectors are held in memory only once.
    sizes, reached = ("length(pieces) / 4", "length(data)"), 0
    for first, count, data, total, held in _blocks(
        database, "token_block", ("counts", *sizes), start, stop, verify=False
    ):
        begin, end = max(start - first, 0), min(stop - first, count)
        if begin < end:
            block = _decode(database, data, torch.int32, count)
            # Before anything is allocated by these numbers.
            wrong = int(block.min()) < 0 or int(block.sum()) != total or held != total * dim
            if wrong or first < reached:
                raise damaged(database.place, f"the token counts from node {first} on are wrong")
            reached = first + count
            counts[first + begin - start : first + end - start] = block[begin:end]
    offsets = offsets_of(counts)
    tokens = torch.empty(int(offsets[-1]), dim, dtype=torch.int8)
    pieces = torch.empty(int(offsets[-1]), dtype=torch.int32)
    columns = "counts", "pieces", "data"
    for first, count, *blobs in _blocks(database, "token_block", columns, start, stop):
        begin, end = max(start - first, 0), min(stop - first, count)
        if begin < end:
            before = offsets_of(_decode(database, blobs[0], torch.int32, count))
            taken = slice(int(before[begin]), int(before[end]))
            rows = slice(int(offsets[first + begin - start]), int(offsets[first + end - start]))
            total = int(before[-1])
            pieces[rows] = _decode(database, blobs[1], torch.int32, total)[taken]
            tokens[rows] = _decode(database, blobs[2], torch.int8, total, dim)[taken]
    return TokenRows(tokens, pieces, offsets)


def read_edges(database: Database, start: int) -> EdgeBlock:
    """Edges of all batches that began at node `start` or later, in the order they were written.

    Raises:
        StoreDamagedError: A block has the wrong length or does not match its checksum.
    """
    if start <= 0:
        with contextlib.closing(database.stream(f"{_EDGES} ORDER BY block")) as blocks:
            return EdgeBlock.cat([_edge_block(database, *block) for block in blocks])
    edges, parts = _batched_edges(database, start)
    return edges.take((_began(parts[:, 0]) >= start).repeat_interleave(parts[:, 1]))


def read_last_edges(database: Database, count: int) -> EdgeBlock:
    """The `count` edges that were written last, in the order they were written.

    Raises:
        StoreDamagedError: A block has the wrong length or does not match its checksum.
    """
    blocks, held = list[EdgeBlock](), 0
    with contextlib.closing(database.stream(f"{_EDGES} ORDER BY block DESC")) as rows:
        while held < count and (row := next(rows, None)) is not None:
            blocks.append(_edge_block(database, *row))
            held += len(blocks[-1])
    edges = EdgeBlock.cat(blocks[::-1])
    return edges.take(torch.arange(max(0, len(edges) - count), len(edges)))


def read_linked_edges(database: Database, *, linked: bool = True) -> EdgeBlock:
    """Edges that linking made, and atoms state; not `linked`: those that callers connected.

    Raises:
        StoreDamagedError: A block has the wrong length or does not match its checksum.
    """
    edges, parts = _batched_edges(database, 0)
    sql = "SELECT start FROM embedding_block"
    if database.has("stored_at"):
        sql += " UNION SELECT start FROM stored_at"
    begun = torch.tensor([row[0] for row in database.query(sql)], dtype=torch.int64)
    marks = parts[:, 0]
    own = ~_by_callers(marks)
    plain = (marks >= 0).nonzero().squeeze(1)
    start = marks[plain]
    last = start.diff(append=start[-1:] + 1) != 0
    own[plain] = last & torch.isin(start, begun)
    return edges.take((own == linked).repeat_interleave(parts[:, 1]))


def _batched_edges(database: Database, start: int) -> tuple[EdgeBlock, Tensor]:
    """Edges of the blocks that hold batches from node `start` on, and their `_parts` [P, 2]."""
    # What begins before all nodes was never written so.
    sql = (
        f"{_EDGES} WHERE start >= ? OR start < 0 OR block = "
        "(SELECT max(block) FROM edge_block WHERE start < ?) ORDER BY block"
    )
    blocks, parts = [EdgeBlock.empty()], [torch.empty(0, 2, dtype=torch.int64)]
    with contextlib.closing(database.stream(sql, (start, start))) as rows:
        for block, begin, count, *rest in rows:
            own = _parts(database, block, begin, count)
            if begin < 0 or int(_began(own[-1, 0])) >= start:
                blocks.append(_edge_block(database, block, begin, count, *rest))
                parts.append(own)
    return EdgeBlock.cat(blocks), torch.cat(parts)


def _cut_edges(
    database: Database, stop: int, batch: Batch, adjacency: Callable[[], Adjacency]
) -> CutEdges:
    """Deletes the edges that a batch takes away; only inside a write, of nodes below `stop`."""
    if not (batch.gone or len(batch.cut)):
        return CutEdges.cat([])
    left = Counter(_edge_keys(batch.cut))
    gone = torch.zeros(stop, dtype=torch.bool)
    gone[torch.tensor(list(batch.gone), dtype=torch.int64)] = True
    pairs = (batch.cut.source * stop + batch.cut.target).unique()  # sorted once

    def keep(edges: EdgeBlock) -> Tensor:
        source, target = edges.source, edges.target
        mask = gone.index_select(0, source).logical_or_(gone.index_select(0, target))
        mask = mask.logical_not_()
        if not len(pairs) or not left.total():
            return mask
        own = source * stop + target
        place = torch.searchsorted(pairs, own).clamp_(max=len(pairs) - 1)
        at = (pairs.index_select(0, place) == own).logical_and_(mask).nonzero().flatten()
        for i, edge in zip(at.tolist(), _edge_keys(edges.take(at)), strict=True):
            key = next((key for key in (edge, (*edge[:3], None)) if left[key] > 0), None)
            if key is not None:
                mask[i] = False
                left[key] -= 1
        return mask

    cut = list[CutEdges]()
    # A temporal edge of linking was made with the later of its ends: in the block of that node.
    if len(batch.cut) <= _FEW and not batch.gone:
        sql = (
            "SELECT block FROM edge_block WHERE start = "
            "(SELECT max(start) FROM edge_block WHERE start <= ?)"
        )
        for node in torch.maximum(batch.cut.source, batch.cut.target).tolist():
            near = dict.fromkeys(row[0] for row in database.query(sql, (node,)))
            cut.append(thin_edges(database, keep, near))
    if not batch.gone and left.total() > 0:  # a caller may name any
        cut.append(thin_edges(database, keep))
    if batch.gone:
        ranks = adjacency().ranks(torch.tensor(list(batch.gone), dtype=torch.int64), batch.cut)
        cut.append(thin_edges(database, keep, _within_blocks(database, ranks)))
    return CutEdges.cat(cut)


def _within_blocks(database: Database, ranks: Tensor) -> dict[int, Tensor | None]:
    """Edges by how many are stored in front of each [n], ascending, as places in their blocks."""
    rows = database.query("SELECT block, count FROM edge_block ORDER BY block")
    blocks, counts = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2).T
    ends = counts.cumsum(0)
    owner, held = torch.searchsorted(ends, ranks, right=True).unique_consecutive(return_counts=True)
    parts = (ranks - (ends - counts)[owner].repeat_interleave(held)).split(held.tolist())
    return dict(zip(blocks[owner].tolist(), parts, strict=True))


def _edge_keys(edges: EdgeBlock) -> list[tuple[int, int, int, float | None]]:
    """Source, target, type and weight of each; None for a weight that is NaN."""
    columns = zip(*(column.tolist() for column in edges.columns), strict=True)
    return [(s, t, kind, None if math.isnan(weight) else weight) for s, t, kind, weight in columns]


class EdgesAgain(NamedTuple):
    """Edges that come in place of others.

    Attributes:
        gone: [E] bool, which of all edges, as `read_edges` gives them, go.
        edges: Those that come.
        at: [n] int64, nodes with whose batches they come.
    """

    gone: Tensor
    edges: EdgeBlock
    at: Tensor


def put_edges(database: Database, again: EdgesAgain) -> None:
    """Writes edges in place of others, in the blocks of their batches; only inside a write."""
    blocks = database.query("SELECT block, start, count FROM edge_block ORDER BY block")
    listed = [_parts(database, *block) for block in blocks]
    mark = listed[0][0, 0] if listed else torch.tensor(_mark(0, True))
    if bool(_by_callers(mark)) or int(_began(mark)) > 0:  # the first batch had none
        listed[0] = torch.cat([torch.tensor([[_mark(0, True), 0]]), listed[0]])
    parts = torch.cat([torch.empty(0, 2, dtype=torch.int64), *listed])
    if not len(parts):
        if len(again.edges):
            marks = "NULL, ?, ?, ?, ?, ?, ?, ?"
            columns = again.edges.columns
            _insert(database, "edge_block", 0, len(again.edges), columns, marks)
        return
    owner = torch.arange(len(parts)).repeat_interleave(parts[:, 1])[~again.gone]
    # The last batch that begins at or before the node; batches are in this order.
    linked = (~_by_callers(parts[:, 0])).nonzero().squeeze(1)
    own = torch.searchsorted(_began(parts[linked, 0]), again.at, right=True) - 1
    owner = torch.cat([owner, linked[own]])
    edges = EdgeBlock.cat([read_edges(database, 0).take(~again.gone), again.edges])
    edges = edges.take(owner.argsort(stable=True))
    counts = owner.bincount(minlength=len(parts))
    database.execute_many("DELETE FROM edge_block", [()])
    database.execute_many("DELETE FROM edge_parts", [()])
    place, first = 0, 0
    for (block, start, _), old in zip(blocks, listed, strict=True):
        new = torch.stack([old[:, 0], counts[place : place + len(old)]], 1)
        place += len(old)
        total = int(new[:, 1].sum())
        if total:
            columns = edges.take(torch.arange(first, first + total)).columns
            _insert(database, "edge_block", start, total, columns, f"{block}, ?, ?, ?, ?, ?, ?, ?")
            _keep_parts(database, block, new)
        first += total


def put_vectors(database: Database, pooled: Tensor, tokens: TokenRows | None) -> None:
    """Writes vectors of all nodes in place of those that are there; only inside a write.

    The blocks stay those of the batches: [N, d], and token vectors of N nodes.
    """
    blocks = database.query("SELECT start, count FROM embedding_block ORDER BY start")
    for table in ("embedding_block", "token_block"):
        database.execute_many(f"DELETE FROM {table}", [()])
    for start, count in blocks:
        rows = slice(start, start + count)
        _insert(database, "embedding_block", start, count, [pooled[rows]])
        if tokens is not None:
            offsets = tokens.offsets[start : start + count + 1]
            own = slice(int(offsets[0]), int(offsets[-1]))
            counts = offsets.diff().int()
            _insert_tokens(database, start, counts, tokens.pieces[own], tokens.tokens[own])


def put_alias_vectors(database: Database, names: Iterable[str], vectors: Tensor) -> None:
    """Writes the vectors [n, d] of names of concepts; only inside a write."""
    place = dict(zip(names, range(len(vectors)), strict=True))
    sql = "SELECT entry, name FROM alias WHERE name IN (SELECT value FROM json_each(?))"
    rows = []
    for entry, name in database.query(sql, (json.dumps(list(place)),)):
        data = vectors[place[name]].contiguous().numpy().tobytes()
        rows.append((entry, _checksum([data], entry), data))
    database.execute_many("INSERT OR REPLACE INTO alias_vector VALUES (?, ?, ?)", rows)


def read_alias_vectors(database: Database, names: Iterable[str], dim: int) -> dict[str, Tensor]:
    """The vectors [d] of those names of concepts, other than their own, that have one.

    Raises:
        StoreDamagedError: One does not match its checksum, or has another length.
    """
    sql = (
        "SELECT name, entry, checksum, data FROM alias JOIN alias_vector USING (entry) "
        "WHERE name IN (SELECT value FROM json_each(?))"
    )
    rows = database.query(sql, (json.dumps(list(names)),))
    for name, entry, expected, data in rows:
        if len(data) != 4 * dim or _checksum([data], entry) != expected:
            raise damaged(database.place, f"the vector of the name {name!r} does not match it")
    blob = b"".join(row[-1] for row in rows)
    vectors = _decode(database, blob, torch.float32, len(rows), dim)
    return dict(zip((row[0] for row in rows), vectors, strict=True))


def thin_edges(
    database: Database,
    keep: Callable[[EdgeBlock], Tensor],
    near: Mapping[int, Tensor | None] | None = None,
) -> CutEdges:
    """Rewrite the edge blocks without the edges that `keep` [E] bool leaves out; which they are.

    Only inside `Database.write`. Blocks keep their place and, when nothing is left in them, go.
    With `near` only these blocks are looked at, and of each, where they are given, only the edges
    at some places.
    """
    run, removed = database.execute_many, list[CutEdges]()
    counts = dict(database.query("SELECT block, count FROM edge_block ORDER BY block"))
    fronts = dict(zip(counts, itertools.accumulate(counts.values(), initial=0), strict=False))
    lost = 0  # in the blocks in front
    for block in sorted(counts if near is None else near):
        row = database.query(f"{_EDGES} WHERE block = ?", (block,))[0]
        edges, (_, start, count, *_) = _edge_block(database, *row), row
        places = None if near is None else near[block]
        places = torch.arange(count) if places is None else places
        going = places[~keep(edges.take(places))]
        if not len(going):
            continue
        # In front of the i-th that goes, i others have gone.
        place = fronts[block] - lost + going - torch.arange(len(going))
        removed.append(CutEdges(edges.take(going), place))
        lost += len(going)
        if len(going) == count:
            run("DELETE FROM edge_block WHERE block = ?", [(block,)])
            run("DELETE FROM edge_parts WHERE block = ?", [(block,)])
            continue
        kept = torch.ones(count, dtype=torch.bool)
        kept[going] = False
        left = count - len(going)
        _keep_parts(database, block, _thinned(_parts(database, block, start, count), kept))
        blobs = [column.numpy().tobytes() for column in edges.take(kept).columns]
        seal = _seal(database, "edge_block", block, blobs, start, left)
        run(
            "UPDATE edge_block SET count = ?, checksum = ?, source = ?, target = ?, type = ?, "
            "weight = ? WHERE block = ?",
            [(left, seal, *blobs, block)],
        )
    return CutEdges.cat(removed)


def _thinned(parts: Tensor, kept: Tensor) -> Tensor:  # [P, 2], [E] bool -> [P, 2]
    batch = torch.arange(len(parts)).repeat_interleave(parts[:, 1])
    counts = torch.zeros(len(parts), dtype=torch.int64).index_add_(0, batch, kept.long())
    return torch.stack([parts[:, 0], counts], 1)


def is_sound(expected: int, blobs: Iterable[bytes], start: int, count: int) -> bool:
    """Whether a block matches its checksum: over its blobs, in newer blocks over its place too."""
    plain = _checksum(blobs)
    return expected in (plain, _checksum((), start, count, before=plain))


def _checksum(blobs: Iterable[bytes | bytearray], *place: int, before: int = 0) -> int:
    """CRC-32 over blobs in a row, then over the numbers of a place."""
    for blob in blobs:
        before = zlib.crc32(blob, before)
    return zlib.crc32(struct.pack(f"<{len(place)}q", *place), before)


def _verify(
    database: Database,
    table: str,
    key: int,
    expected: int,
    blobs: Sequence[bytes],
    start: int,
    count: int,
) -> None:
    """Looks at the checksum of a block, where this process has not yet done so."""
    if database.sound.get((table, key)) == expected:
        return
    if not is_sound(expected, blobs, start, count):
        what = f"{table}: the block that starts at node {start} does not match its checksum"
        raise damaged(database.place, what)
    database.sound[table, key] = expected


def _seal(
    database: Database,
    table: str,
    key: int,
    blobs: Sequence[bytes | bytearray],
    start: int,
    count: int,
) -> int:
    """The checksum of a block that is written, which needs no look when it is read again."""
    database.sound[table, key] = seal = _checksum(blobs, start, count)
    return seal


def _expect_held(database: Database, stop: int, dim: int | None) -> int:
    """Refuses a range of nodes that there are no bytes for, before anything is allocated for it.

    Returns:
        The number behind that of the last embedding.
    """
    sql, end = (
        "SELECT start, count, length(data) FROM embedding_block ORDER BY start DESC LIMIT 1",
        0,
    )
    for start, count, held in database.query(sql):
        if dim is not None and held != count * dim * 4:
            what = f"a block of {held} bytes where {count * dim * 4} were expected"
            raise damaged(database.place, what)
        end = int(start + count)
        # Each atom takes a byte at least, whatever a wrong count says.
        if start >= 0 and count <= held and end >= stop:
            return end
    if stop > 0:
        raise damaged(database.place, f"no embedding for node {end}")
    return end


def _blocks(
    database: Database,
    table: str,
    columns: Sequence[str],
    start: int,
    stop: int,
    *,
    verify: bool = True,
) -> Iterator[tuple[Any, ...]]:
    """Start, count and `columns` of the blocks that hold the nodes from `start` to `stop - 1`.

    `verify` looks at their checksums: the columns must be all that there are then.
    """
    # The block that holds a node is the last one that starts at or before it.
    sql = (
        f"SELECT start, count, checksum, {', '.join(columns)} FROM {table} WHERE start < ? AND "
        f"start >= coalesce((SELECT max(start) FROM {table} WHERE start <= ?), 0) ORDER BY start"
    )
    with contextlib.closing(database.stream(sql, (stop, start))) as rows:
        for first, count, expected, *values in rows:
            if verify:
                _verify(database, table, first, expected, values, first, count)
            yield first, count, *values


def _insert(
    database: Database,
    table: str,
    start: int,
    count: int,
    columns: Sequence[Tensor],
    marks: str | None = None,
) -> None:
    blobs = [column.detach().cpu().contiguous().numpy().tobytes() for column in columns]
    marks = marks or ", ".join("?" * (3 + len(blobs)))
    row = start, count, _checksum(blobs, start, count), *blobs
    database.execute_many(f"INSERT INTO {table} VALUES ({marks})", [row])


_TOGETHER = 32  # atoms whose token vectors are a block: it is written anew where one of them goes


def _insert_tokens(
    database: Database,
    start: int,
    counts: Tensor,  # [n] int32
    pieces: Tensor,  # [T] int32
    tokens: Tensor,  # [T, m] int8
) -> None:
    """Writes the token vectors of n nodes from `start` on, as blocks of a few atoms each."""
    begin = counts.nonzero().flatten()[_TOGETHER::_TOGETHER].tolist()
    offsets = offsets_of(counts)
    for first, last in itertools.pairwise([0, *begin, len(counts)]):
        own = slice(int(offsets[first]), int(offsets[last]))
        columns = [counts[first:last], pieces[own], tokens[own]]
        _insert(database, "token_block", start + first, last - first, columns)


def _decode(database: Database, data: bytes, dtype: torch.dtype, *shape: int) -> Tensor:
    size = dtype.itemsize
    for length in shape:
        size *= length
    if min(shape) < 0 or len(data) != size:
        raise damaged(database.place, f"a block of {len(data)} bytes where {size} were expected")
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    # A copy, because frombuffer warns of memory that may not be written.
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


_NEAR = 256  # nodes: about one block, which is read whole anyway


class NodeVectors(NamedTuple):
    """Vectors of single nodes, in the order they were asked for.

    Attributes:
        embeddings: [n, d] float32.
        tokens: Token vectors of the same nodes; None when the store holds none at all.
    """

    embeddings: Tensor
    tokens: TokenRows | None


def read_vectors(
    database: Database, nodes: Sequence[int], dim: int, token_dim: int | None
) -> NodeVectors:
    """Vectors of `nodes`, each of which was given to an atom once; inside `Database.reading`.

    Raises:
        StoreDamagedError: A block is missing or has the wrong length.
    """
    spans = _ranges(sorted(set(nodes)))
    covered = [node for first, last in spans for node in range(first, last)]
    place = {node: row for row, node in enumerate(covered)}
    pick = torch.tensor([place[node] for node in nodes], dtype=torch.int64)
    embeddings = [read_embeddings(database, *span, dim) for span in spans]
    chosen = torch.cat([torch.empty(0, dim), *embeddings])[pick]
    if token_dim is None:
        return NodeVectors(chosen, None)
    tokens = [read_tokens(database, *span, token_dim) for span in spans]
    return NodeVectors(chosen, pick_tokens(join_tokens(tokens, token_dim), pick))


def pick_tokens(rows: TokenRows, pick: Tensor) -> TokenRows:
    """The token vectors of the atoms `pick` [n], in that order."""
    counts = rows.offsets.diff()[pick]
    offsets = offsets_of(counts)
    _, index = row_entries(rows.offsets, pick)
    return TokenRows(rows.tokens[index], rows.pieces[index], offsets)


def join_tokens(parts: Sequence[TokenRows], dim: int) -> TokenRows:
    """The atoms of several parts one after the other."""
    empty = TokenRows(
        torch.empty(0, dim, dtype=torch.int8),
        torch.empty(0, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int64),
    )
    tokens, pieces, offsets = zip(empty, *parts, strict=True)
    counts = torch.cat([part.diff() for part in offsets])
    return TokenRows(torch.cat(tokens), torch.cat(pieces), offsets_of(counts))


def _ranges(nodes: Sequence[int]) -> list[tuple[int, int]]:
    """Half-open ranges that cover ascending node numbers, so that neighbours are read together."""
    found: list[tuple[int, int]] = []
    for node in nodes:
        if found and node - found[-1][1] < _NEAR:
            found[-1] = (found[-1][0], node + 1)
        else:
            found.append((node, node + 1))
    return found
