"""Readers for blocks of embeddings, token vectors and edges, as NumPy arrays.

Blobs are little-endian and row-major. A block is addressed by `start`, the node number of its first
atom, so reading from a given node on skips earlier blocks. `edge_parts` records which batches the
edges of a block came with, and whether linking or a caller made them.

Checksums are verified before any number of a block is used. Allocations are bounded by the bytes
that a block really holds. The arrays own their memory and are writable.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from graphmem_torch.store.checksums import checksum, verify
from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "EDGES",
    "Array",
    "EdgeArrays",
    "TokenArrays",
    "came_from",
    "decode",
    "edge_block",
    "made_by_callers",
    "mark_of",
    "read_alias_vectors",
    "read_edges",
    "read_edges_of_type",
    "read_embeddings",
    "read_last_edges",
    "read_linked_edges",
    "read_parts",
    "read_tokens",
]

Array: TypeAlias = "npt.NDArray[Any]"
"""An array of any shape and type."""

EDGES = "SELECT block, start, count, checksum, source, target, type, weight FROM edge_block"
"""Statement whose rows `edge_block` takes."""


class EdgeArrays(NamedTuple):
    """E edges, the NumPy form of `EdgeBlock`.

    Attributes:
        source, target: [E] int64, node numbers.
        type: [E] uint8, `EdgeType`.
        weight: [E] float32.
    """

    source: Array
    target: Array
    type: Array
    weight: Array

    @classmethod
    def cat(cls, parts: Sequence[EdgeArrays]) -> EdgeArrays:
        """Return the edges of several arrays, in order."""
        if not parts:
            return cls(*(np.empty(0, dtype) for dtype in _EDGE_TYPES))
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def take(self, which: Array | slice) -> EdgeArrays:
        """Return some of the edges, by places [n] or by a mask [E]."""
        return EdgeArrays(*(column[which] for column in self))


class TokenArrays(NamedTuple):
    """Packed token vectors of N atoms, the NumPy form of `TokenRows`.

    Attributes:
        tokens: [T, m] int8, unit vectors times 127.
        pieces: [T] int32 word-piece numbers.
        offsets: [N + 1] int64; atom i owns rows offsets[i] to offsets[i + 1].
    """

    tokens: Array
    pieces: Array
    offsets: Array


_EDGE_TYPES = (np.int64, np.int64, np.uint8, np.float32)


def read_embeddings(
    database: Database, start: int, stop: int, dim: int
) -> Array:  # [stop - start, d] float32
    """Return the embeddings of nodes `start` to `stop - 1`, deleted nodes included.

    Raises:
        StoreDamagedError: A block is missing, has the wrong length or does not match its checksum.
    """
    _expect_held(database, stop, dim)
    out = np.empty((max(stop - start, 0), dim), np.float32)
    filled = 0
    for first, count, data in _blocks(database, "embedding_block", ("data",), start, stop):
        begin, end = max(start - first, 0), min(stop - first, count)
        if first + begin != start + filled:
            break
        rows = _decoded(database, data, np.float32, count, dim)[begin:end]
        out[filled : filled + len(rows)] = rows
        filled += len(rows)
    if filled != len(out):
        raise damaged(database.place, f"no embedding for node {start + filled}")
    return out


def read_tokens(database: Database, start: int, stop: int, dim: int) -> TokenArrays:
    """Return the token vectors of nodes `start` to `stop - 1`.

    Atoms stored without token vectors own no rows.

    Raises:
        StoreDamagedError: A block has the wrong length, does not match its checksum, or starts at a
            node that does not exist.
    """
    end = _expect_held(database, stop, None)
    outside = "SELECT start FROM token_block WHERE start < 0 OR start > ? LIMIT 1"
    if found := database.query(outside, (end,)):
        raise damaged(database.place, f"token vectors at node {found[0][0]}, which never was")
    counts = np.zeros(max(stop - start, 0), np.int64)
    # Read the counts first: they give the size, so the vectors are held in memory only once.
    sizes, reached = ("length(pieces) / 4", "length(data)"), 0
    for first, count, data, total, held in _blocks(
        database, "token_block", ("counts", *sizes), start, stop, check=False
    ):
        begin, end = max(start - first, 0), min(stop - first, count)
        if begin < end:
            block = decode(database, data, np.int32, count)
            # Checked before these numbers size any allocation.
            whole = int(block.sum(dtype=np.int64))
            wrong = int(block.min()) < 0 or whole != total or held != total * dim
            if wrong or first < reached:
                raise damaged(database.place, f"the token counts from node {first} on are wrong")
            reached = first + count
            counts[first + begin - start : first + end - start] = block[begin:end]
    offsets = _offsets(counts)
    tokens = np.empty((int(offsets[-1]), dim), np.int8)
    pieces = np.empty(int(offsets[-1]), np.int32)
    columns = "counts", "pieces", "data"
    for first, count, *blobs in _blocks(database, "token_block", columns, start, stop):
        begin, end = max(start - first, 0), min(stop - first, count)
        if begin < end:
            before = _offsets(decode(database, blobs[0], np.int32, count))
            taken = slice(int(before[begin]), int(before[end]))
            rows = slice(int(offsets[first + begin - start]), int(offsets[first + end - start]))
            total = int(before[-1])
            pieces[rows] = _decoded(database, blobs[1], np.int32, total)[taken]
            tokens[rows] = _decoded(database, blobs[2], np.int8, total, dim)[taken]
    return TokenArrays(tokens, pieces, offsets)


def read_edges(database: Database, start: int) -> EdgeArrays:
    """Return the edges of all batches that began at node `start` or later, in write order.

    Raises:
        StoreDamagedError: A block has the wrong length or does not match its checksum.
    """
    if start <= 0:
        with contextlib.closing(database.stream(f"{EDGES} ORDER BY block")) as blocks:
            return EdgeArrays.cat([edge_block(database, *block) for block in blocks])
    edges, parts = _batched_edges(database, start)
    return edges.take(np.repeat(came_from(parts[:, 0]) >= start, parts[:, 1]))


def read_edges_of_type(database: Database, kind: int) -> EdgeArrays:
    """Return all edges of a type, in write order, without decoding blocks that have none.

    Raises:
        StoreDamagedError: A block has the wrong length or does not match its checksum.
    """
    sql = f"{EDGES} WHERE instr(type, ?) ORDER BY block"
    with contextlib.closing(database.stream(sql, (bytes([kind]),))) as blocks:
        edges = EdgeArrays.cat([edge_block(database, *block) for block in blocks])
    return edges.take(edges.type == kind)


def read_last_edges(database: Database, count: int) -> EdgeArrays:
    """Return the last `count` edges, in write order.

    Raises:
        StoreDamagedError: A block has the wrong length or does not match its checksum.
    """
    blocks, held = list[EdgeArrays](), 0
    with contextlib.closing(database.stream(f"{EDGES} ORDER BY block DESC")) as rows:
        while held < count and (row := next(rows, None)) is not None:
            blocks.append(edge_block(database, *row))
            held += len(blocks[-1].source)
    return EdgeArrays.cat(blocks[::-1]).take(slice(max(0, held - count), held))


def read_linked_edges(database: Database, *, linked: bool = True) -> EdgeArrays:
    """Return the edges that linking made or atoms state; with `linked=False`, those of callers.

    Raises:
        StoreDamagedError: A block has the wrong length or does not match its checksum.
    """
    edges, parts = _batched_edges(database, 0)
    sql = "SELECT start FROM embedding_block"
    if database.has("stored_at"):
        sql += " UNION SELECT start FROM stored_at"
    begun = np.array([row[0] for row in database.query(sql)], np.int64)
    marks = parts[:, 0]
    own = ~made_by_callers(marks)
    plain = np.flatnonzero(marks >= 0)
    start = marks[plain]
    last = np.diff(start, append=start[-1:] + 1) != 0
    own[plain] = last & np.isin(start, begun)
    return edges.take(np.repeat(own == linked, parts[:, 1]))


def read_alias_vectors(database: Database, names: Iterable[str], dim: int) -> dict[str, Array]:
    """Return the vectors [d] of concept aliases, by name; names without a vector are left out.

    Raises:
        StoreDamagedError: A vector does not match its checksum, or has the wrong length.
    """
    sql = (
        "SELECT name, entry, checksum, data FROM alias JOIN alias_vector USING (entry) "
        "WHERE name IN (SELECT value FROM json_each(?))"
    )
    rows = database.query(sql, (json.dumps(list(names)),))
    for name, entry, expected, data in rows:
        if len(data) != 4 * dim or checksum([data], entry) != expected:
            raise damaged(database.place, f"the vector of the name {name!r} does not match it")
    blob = b"".join(row[-1] for row in rows)
    vectors = decode(database, blob, np.float32, len(rows), dim)
    return dict(zip((row[0] for row in rows), vectors, strict=True))


def edge_block(
    database: Database, block: int, start: int, count: int, expected: int, *blobs: bytes
) -> EdgeArrays:
    """Return the edges of a row of `EDGES`."""
    if start < 0:
        raise damaged(database.place, f"edges from node {start} on, which never was")
    verify(database, "edge_block", block, expected, blobs, start, count)
    columns = zip(blobs, _EDGE_TYPES, strict=True)
    return EdgeArrays(*(decode(database, data, dtype, count) for data, dtype in columns))


def read_parts(database: Database, block: int, start: int, count: int) -> Array:  # [P, 2] int64
    """Return the mark (`mark_of`) and number of edges of each batch in an edge block.

    In older stores the mark is `next_node` at the time of the write. There, edges of callers come
    before the edges of the atoms that were stored next.
    """
    sql = "SELECT checksum, data FROM edge_parts WHERE block = ?"
    rows = database.query(sql, (block,)) if database.has("edge_parts") else []
    if not rows:
        return np.array([[start, count]], np.int64)
    expected, data = rows[0]
    if not data or len(data) % 16 or checksum([data], block) != expected:
        raise damaged(database.place, f"edge_parts: those of block {block} do not match it")
    parts = np.frombuffer(bytearray(data), np.int64).reshape(-1, 2)
    # An older release, which does not know this table, may have removed edges from the block.
    return parts if int(parts[:, 1].sum()) == count else np.array([[start, count]], np.int64)


def mark_of(start: int, linked: bool) -> int:
    """Encode `next_node` at the time of a write, and whether linking or a caller made its edges."""
    return -1 - 2 * start - linked


def came_from(marks: Array) -> Array:
    """Return the `next_node` that marks encode."""
    return np.where(marks < 0, (-1 - marks) >> 1, marks)


def made_by_callers(marks: Array) -> Array:
    """Return a mask of the marks of edges that callers made; marks of older stores give False."""
    return np.asarray((marks < 0) & (marks % 2 != 0))


def decode(database: Database, data: bytes, dtype: npt.DTypeLike, *shape: int) -> Array:
    """Decode a blob into an array with its own memory.

    Raises:
        StoreDamagedError: The blob has the wrong length.
    """
    # A copy, because memory of `bytes` is read-only.
    return _decoded(database, data, dtype, *shape).copy()


def _decoded(database: Database, data: bytes, dtype: npt.DTypeLike, *shape: int) -> Array:
    """Decode a blob into an array that shares its memory, and cannot be written."""
    size = np.dtype(dtype).itemsize
    for length in shape:
        size *= length
    if min(shape) < 0 or len(data) != size:
        raise damaged(database.place, f"a block of {len(data)} bytes where {size} were expected")
    return np.frombuffer(data, dtype).reshape(shape) if size else np.empty(shape, dtype)


def _offsets(counts: Array) -> Array:  # [n] -> [n + 1] int64
    """Return the start of each of n consecutive runs, and the end of the last."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def _batched_edges(database: Database, start: int) -> tuple[EdgeArrays, Array]:
    """Return the edges of blocks that hold batches from node `start` on, and their parts [P, 2]."""
    # Blocks with a negative start are damaged: they are read, so that `edge_block` raises.
    sql = (
        f"{EDGES} WHERE start >= ? OR start < 0 OR block = "
        "(SELECT max(block) FROM edge_block WHERE start < ?) ORDER BY block"
    )
    blocks, parts = list[EdgeArrays](), [np.empty((0, 2), np.int64)]
    with contextlib.closing(database.stream(sql, (start, start))) as rows:
        for block, begin, count, *rest in rows:
            own = read_parts(database, block, begin, count)
            if begin < 0 or int(came_from(own[-1, 0])) >= start:
                blocks.append(edge_block(database, block, begin, count, *rest))
                parts.append(own)
    return EdgeArrays.cat(blocks), np.concatenate(parts)


def _expect_held(database: Database, stop: int, dim: int | None) -> int:
    """Check that nodes below `stop` have stored bytes, before memory is allocated for them.

    Returns:
        The node number after the last embedding.
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
        # Every atom takes at least one byte, which exposes a wrong count.
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
    check: bool = True,
) -> Iterator[tuple[Any, ...]]:
    """Yield start, count and `columns` of the blocks that hold nodes `start` to `stop - 1`.

    `check` verifies the checksums, which requires all blob columns of the table.
    """
    # The block that holds a node is the last one that starts at or before it.
    sql = (
        f"SELECT start, count, checksum, {', '.join(columns)} FROM {table} WHERE start < ? AND "
        f"start >= coalesce((SELECT max(start) FROM {table} WHERE start <= ?), 0) ORDER BY start"
    )
    with contextlib.closing(database.stream(sql, (stop, start))) as rows:
        for first, count, expected, *values in rows:
            if check:
                verify(database, table, first, expected, values, first, count)
            yield first, count, *values
