"""Writing of blocks: of an acknowledged batch, or of several.

Small blocks at the end are merged as they accumulate, each row a bounded number of times;
`edge_parts` says of a block of edges which batches they came with, and whether linking or a caller
made them. How blocks are read: `store.arrays`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.adjacency import Adjacency
from graphmem_torch.store.arrays import EDGES, edge_block, mark_of, read_parts
from graphmem_torch.store.batches import Batch, edges_of
from graphmem_torch.store.changes import CutEdges
from graphmem_torch.store.checksums import checksum, is_sound, seal
from graphmem_torch.store.database import Database

__all__ = [
    "insert_block",
    "insert_tokens",
    "keep_parts",
    "thin_edges",
    "write_blocks",
]

_FEW = 16  # edges that are looked for one by one


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
        insert_block(database, "embedding_block", start, n, [batch.embeddings])
    if n and batch.tokens is not None:
        tokens, pieces, offsets = batch.tokens
        insert_tokens(database, start, offsets.diff().int(), pieces, tokens)
    for edges, linked in ((batch.connected, False), (batch.edges, True)):
        if len(edges):
            marks = "NULL, ?, ?, ?" + ", ?" * len(edges.columns)
            insert_block(database, "edge_block", start, len(edges), edges.columns, marks)
            block = int(database.query("SELECT max(block) FROM edge_block")[0][0])
            _put_parts(database, block, torch.tensor([[mark_of(start, linked), len(edges)]]))
    # No more often than the smallest step can be reached.
    if start // _STEPS[-1] != (start + n) // _STEPS[-1]:
        for table in _MERGED:
            _merge_small(database, table)
    return cut


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
        parts = np.concatenate([read_parts(database, block, at, n) for block, at, n in group])
        database.execute_many(f"DELETE FROM edge_parts {place}", [(first, last)])
        _put_parts(database, first, torch.from_numpy(parts))
    # Deleted before the new one is written, which takes their pages.
    database.execute_many(f"DELETE FROM {table} {place}", [(first, last)])
    row = *own, start, count, checksum(merged, start, count), *merged
    database.execute_many(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", [row])


def _put_parts(database: Database, block: int, parts: Tensor) -> None:
    data = parts.contiguous().numpy().tobytes()
    row = block, checksum([data], block), data
    database.execute_many("INSERT OR REPLACE INTO edge_parts VALUES (?, ?, ?)", [row])


def keep_parts(database: Database, block: int, parts: Tensor) -> None:
    """Puts parts, if the block does not say as much."""
    if len(parts) > 1 or int(parts[0, 0]) < 0:
        _put_parts(database, block, parts)


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
        row = database.query(f"{EDGES} WHERE block = ?", (block,))[0]
        edges, (_, start, count, *_) = edges_of(edge_block(database, *row)), row
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
        parts = torch.from_numpy(read_parts(database, block, start, count))
        keep_parts(database, block, _thinned(parts, kept))
        blobs = [column.numpy().tobytes() for column in edges.take(kept).columns]
        number = seal(database, "edge_block", block, blobs, start, left)
        run(
            "UPDATE edge_block SET count = ?, checksum = ?, source = ?, target = ?, type = ?, "
            "weight = ? WHERE block = ?",
            [(left, number, *blobs, block)],
        )
    return CutEdges.cat(removed)


def _thinned(parts: Tensor, kept: Tensor) -> Tensor:  # [P, 2], [E] bool -> [P, 2]
    batch = torch.arange(len(parts)).repeat_interleave(parts[:, 1])
    counts = torch.zeros(len(parts), dtype=torch.int64).index_add_(0, batch, kept.long())
    return torch.stack([parts[:, 0], counts], 1)


def insert_block(
    database: Database,
    table: str,
    start: int,
    count: int,
    columns: Sequence[Tensor],
    marks: str | None = None,
) -> None:
    """Write a block; only inside a write.

    Args:
        database: Where to.
        table: Its table.
        start: Node number of its first row.
        count: Number of its rows.
        columns: Its blobs, in the order of the table.
        marks: Values of a statement for a table with a key of its own; by default one for each.
    """
    blobs = [column.detach().cpu().contiguous().numpy().tobytes() for column in columns]
    marks = marks or ", ".join("?" * (3 + len(blobs)))
    row = start, count, checksum(blobs, start, count), *blobs
    database.execute_many(f"INSERT INTO {table} VALUES ({marks})", [row])


_TOGETHER = 32  # atoms whose token vectors are a block: it is written anew where one of them goes


def insert_tokens(
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
        insert_block(database, "token_block", start + first, last - first, columns)
