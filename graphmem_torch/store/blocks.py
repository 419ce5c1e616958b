"""Writer of blocks, each of which holds the rows of one or several batches.

Small blocks at the end are merged as they accumulate; each row is rewritten a bounded number of
times. `edge_parts` records which batches the edges of a block came with, and whether linking or a
caller made them. `store.arrays` reads blocks.
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
from graphmem_torch.store.text_columns import TextColumns, put_texts

__all__ = [
    "insert_block",
    "insert_tokens",
    "keep_parts",
    "thin_edges",
    "write_blocks",
]

_FEW = 16  # edges that are searched one by one


def write_blocks(
    database: Database, start: int, batch: Batch, adjacency: Callable[[], Adjacency]
) -> CutEdges:
    """Write a valid batch; only inside `Database.write`.

    Args:
        database: Database of the store.
        start: Node number of the batch's first atom.
        batch: The batch.
        adjacency: Returns the index of stored edges.

    Returns:
        The edges that `Batch.cut` and `Batch.gone` removed.
    """
    n, cut = len(batch.atoms), _cut_edges(database, start, batch, adjacency)
    if n:
        insert_block(database, "embedding_block", start, n, [batch.embeddings])
    texts = [row.text for row in batch.rows or () if row.text is not None]
    if n and len(texts) == n:
        put_texts(database, TextColumns.of(start, texts))
    if n and batch.tokens is not None:
        tokens, pieces, offsets = batch.tokens
        insert_tokens(database, start, offsets.diff().int(), pieces, tokens)
    for edges, linked in ((batch.connected, False), (batch.edges, True)):
        if len(edges):
            marks = "NULL, ?, ?, ?" + ", ?" * len(edges.columns)
            insert_block(database, "edge_block", start, len(edges), edges.columns, marks)
            block = int(database.query("SELECT max(block) FROM edge_block")[0][0])
            _put_parts(database, block, torch.tensor([[mark_of(start, linked), len(edges)]]))
    # A merge is due only when the smallest step is crossed.
    if start // _STEPS[-1] != (start + n) // _STEPS[-1]:
        for table in _MERGED:
            _merge_small(database, table)
    return cut


_MERGED = {
    "embedding_block": (1, "start", ("data",)),
    "token_block": (1 / 32, "start", ("counts", "pieces", "data")),
    "text_block": (1, "start", ("numbers", "terms")),
    "edge_block": (16, "block", ("source", "target", "type", "weight")),
}
"""Per table: rows an atom (fewer where blocks stay small), key column and blob columns."""

_STEPS = (1024, 256, 64, 16, 4)  # numbers of atoms at which small blocks are merged
_LONGEST_RUN = 1 << 16  # small blocks of an older store that one merge looks at


def _merge_small(database: Database, table: str) -> None:
    """Merge the small blocks at the end of a table once there are enough; only inside a write.

    A row is rewritten once a step, and about three blocks of each step remain.
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
    """Merge consecutive blocks into one; does nothing if any of them is damaged."""
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
    # Deleted before the new block is written, so that it reuses their pages.
    database.execute_many(f"DELETE FROM {table} {place}", [(first, last)])
    row = *own, start, count, checksum(merged, start, count), *merged
    database.execute_many(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", [row])


def _put_parts(database: Database, block: int, parts: Tensor) -> None:
    data = parts.contiguous().numpy().tobytes()
    row = block, checksum([data], block), data
    database.execute_many("INSERT OR REPLACE INTO edge_parts VALUES (?, ?, ?)", [row])


def keep_parts(database: Database, block: int, parts: Tensor) -> None:
    """Write the parts of a block, unless its row alone implies them."""
    if len(parts) > 1 or int(parts[0, 0]) < 0:
        _put_parts(database, block, parts)


def _cut_edges(
    database: Database, stop: int, batch: Batch, adjacency: Callable[[], Adjacency]
) -> CutEdges:
    """Delete the edges, between nodes below `stop`, that a batch removes; only inside a write."""
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
    # Linking writes a temporal edge with the later of its ends: look in the block of that node.
    if len(batch.cut) <= _FEW and not batch.gone:
        sql = (
            "SELECT block FROM edge_block WHERE start = "
            "(SELECT max(start) FROM edge_block WHERE start <= ?)"
        )
        for node in torch.maximum(batch.cut.source, batch.cut.target).tolist():
            near = dict.fromkeys(row[0] for row in database.query(sql, (node,)))
            cut.append(thin_edges(database, keep, near))
    if not batch.gone and left.total() > 0:  # a caller may cut any edge
        cut.append(thin_edges(database, keep))
    if batch.gone:
        ranks = adjacency().ranks(torch.tensor(list(batch.gone), dtype=torch.int64), batch.cut)
        cut.append(thin_edges(database, keep, _within_blocks(database, ranks)))
    return CutEdges.cat(cut)


def _within_blocks(database: Database, ranks: Tensor) -> dict[int, Tensor | None]:
    """Split stored positions of edges [n], ascending, into positions within each block."""
    rows = database.query("SELECT block, count FROM edge_block ORDER BY block")
    blocks, counts = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2).T
    ends = counts.cumsum(0)
    owner, held = torch.searchsorted(ends, ranks, right=True).unique_consecutive(return_counts=True)
    parts = (ranks - (ends - counts)[owner].repeat_interleave(held)).split(held.tolist())
    return dict(zip(blocks[owner].tolist(), parts, strict=True))


def _edge_keys(edges: EdgeBlock) -> list[tuple[int, int, int, float | None]]:
    """Return source, target, type and weight of each edge; None for a weight of NaN."""
    columns = zip(*(column.tolist() for column in edges.columns), strict=True)
    return [(s, t, kind, None if math.isnan(weight) else weight) for s, t, kind, weight in columns]


def thin_edges(
    database: Database,
    keep: Callable[[EdgeBlock], Tensor],
    near: Mapping[int, Tensor | None] | None = None,
) -> CutEdges:
    """Delete the edges that `keep` ([E] bool) rejects, and return them; only inside a write.

    Blocks keep their place; empty blocks are deleted. `near` limits the search to some blocks, and
    to positions within each block if given.
    """
    run, removed = database.execute_many, list[CutEdges]()
    counts = dict(database.query("SELECT block, count FROM edge_block ORDER BY block"))
    fronts = dict(zip(counts, itertools.accumulate(counts.values(), initial=0), strict=False))
    lost = 0  # edges removed from earlier blocks
    for block in sorted(counts if near is None else near):
        row = database.query(f"{EDGES} WHERE block = ?", (block,))[0]
        edges, (_, start, count, *_) = edges_of(edge_block(database, *row)), row
        places = None if near is None else near[block]
        places = torch.arange(count) if places is None else places
        going = places[~keep(edges.take(places))]
        if not len(going):
            continue
        # Before the i-th removed edge, i others were removed.
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
        database: Database of the store.
        table: Table of the block.
        start: Node number of the first row.
        count: Number of rows.
        columns: Blobs, in the order of the table.
        marks: Placeholders of the INSERT, for a table with its own key; by default one a value.
    """
    blobs = [column.detach().cpu().contiguous().numpy().tobytes() for column in columns]
    marks = marks or ", ".join("?" * (3 + len(blobs)))
    row = start, count, checksum(blobs, start, count), *blobs
    database.execute_many(f"INSERT INTO {table} VALUES ({marks})", [row])


_TOGETHER = 32  # atoms a token block: removing one atom rewrites the block


def insert_tokens(
    database: Database,
    start: int,
    counts: Tensor,  # [n] int32
    pieces: Tensor,  # [T] int32
    tokens: Tensor,  # [T, m] int8
) -> None:
    """Write the token vectors of n nodes from `start` on, as blocks of a few atoms each."""
    begin = counts.nonzero().flatten()[_TOGETHER::_TOGETHER].tolist()
    offsets = offsets_of(counts)
    for first, last in itertools.pairwise([0, *begin, len(counts)]):
        own = slice(int(offsets[first]), int(offsets[last]))
        columns = [counts[first:last], pieces[own], tokens[own]]
        insert_block(database, "token_block", start + first, last - first, columns)
