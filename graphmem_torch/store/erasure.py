"""Permanent erasure of the rows that deleted nodes left in blocks and tables.

Deleting an atom leaves its vectors in the blocks, and old pages in the files. Erasing removes the
rows, overwrites freed pages (`secure_delete`) and truncates the write-ahead log. A mark in the
database records pending work: after a kill, the next opening for writing completes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch

from graphmem_torch.store.database import Database
from graphmem_torch.store.replacement import rewrite_tokens, zero_embeddings
from graphmem_torch.store.text_columns import rewrite_texts

__all__ = ["erase_rows"]


def erase_rows(database: Database, nodes: Sequence[int]) -> None:
    """Erase the block rows and storing times of deleted nodes; only inside `Database.write`.

    Rows left by earlier deletions are erased too.
    """
    run = database.execute_many
    rows = database.query("SELECT node FROM unwiped")
    gone = sorted({*nodes, *(row[0] for row in rows)})
    for table, rewrite in (("embedding_block", zero_embeddings), ("token_block", rewrite_tokens)):
        for start, own in _parts_of(database, table, gone).items():
            rewrite(database, start, torch.tensor(own) - start)
    for start, own in _parts_of(database, "text_block", gone).items():
        rewrite_texts(database, start, [node - start for node in own])
    # A storing time is deleted with the last atom of its batch.
    there = "SELECT 1 FROM {} WHERE node >= stored_at.start AND node < stored_at.start + count"
    left = " OR ".join(f"EXISTS ({there.format(table)})" for table in ("atom", "version"))
    starts = [(start,) for start in _parts_of(database, "stored_at", gone)]
    run(f"DELETE FROM stored_at WHERE start = ? AND NOT ({left})", starts)
    run("DELETE FROM unwiped", [()])


def _parts_of(database: Database, table: str, nodes: Sequence[int]) -> dict[int, list[int]]:
    """Group nodes by the `start` of the row of `table` that covers them."""
    start = f"SELECT max(start) FROM {table} WHERE start <= value"
    within: dict[int, list[int]] = {}
    for first, node in database.query(
        f"SELECT ({start}), value FROM json_each(?)", (json.dumps(list(nodes)),)
    ):
        if first is not None:
            within.setdefault(first, []).append(node)
    return within
