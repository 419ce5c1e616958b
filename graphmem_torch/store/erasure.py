"""Erasing for good: rows of blocks and what else the tables hold of deleted nodes.

A deleted atom leaves its vectors in the blocks, and a database its old pages in files. What is
erased leaves neither: rows are taken out, pages that become free are overwritten (`secure_delete`),
and the write-ahead log is emptied. A mark in the database says that this is still to be done, so
that a kill in between delays it until the store is next opened to write.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch

from graphmem_torch.store.database import Database
from graphmem_torch.store.replacement import rewrite_tokens, zero_embeddings

__all__ = ["erase_rows"]


def erase_rows(database: Database, nodes: Sequence[int]) -> None:
    """Takes out what blocks and logs hold of deleted nodes; only inside `Database.write`.

    Those that were deleted before, and whose rows are there still, go too.
    """
    run = database.execute_many
    rows = database.query("SELECT node FROM unwiped")
    gone = sorted({*nodes, *(row[0] for row in rows)})
    for table, rewrite in (("embedding_block", zero_embeddings), ("token_block", rewrite_tokens)):
        for start, own in _parts_of(database, table, gone).items():
            rewrite(database, start, torch.tensor(own) - start)
    # A time of storing goes with the last atom that was stored then.
    there = "SELECT 1 FROM {} WHERE node >= stored_at.start AND node < stored_at.start + count"
    left = " OR ".join(f"EXISTS ({there.format(table)})" for table in ("atom", "version"))
    starts = [(start,) for start in _parts_of(database, "stored_at", gone)]
    run(f"DELETE FROM stored_at WHERE start = ? AND NOT ({left})", starts)
    run("DELETE FROM unwiped", [()])


def _parts_of(database: Database, table: str, nodes: Sequence[int]) -> dict[int, list[int]]:
    """The nodes of each row that has a part of all nodes, by its start."""
    start = f"SELECT max(start) FROM {table} WHERE start <= value"
    within: dict[int, list[int]] = {}
    for first, node in database.query(
        f"SELECT ({start}), value FROM json_each(?)", (json.dumps(list(nodes)),)
    ):
        if first is not None:
            within.setdefault(first, []).append(node)
    return within
