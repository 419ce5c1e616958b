"""`graphmem check`: read the whole database and compare it with itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from graphmem_torch.atoms import EdgeType, text_hash
from graphmem_torch.errors import StoreDamagedError
from graphmem_torch.store.blocks import checksum
from graphmem_torch.store.database import Database
from graphmem_torch.store.records import ATOM_COLUMNS, atom_from_row

if TYPE_CHECKING:
    from graphmem_torch.store.reader import StoreReader

__all__ = ["check_database"]

_BLOCKS = {
    "embedding_block": ("data",),
    "token_block": ("counts", "pieces", "data"),
    "edge_block": ("source", "target", "type", "weight"),
}
_SHOWN = 5  # of each kind of problem; one damaged disk sector can break thousands of rows


def check_database(database: Database, store: StoreReader) -> list[str]:
    """Sentences about everything that does not fit, an empty list when all is well; reads only.

    SQLite's own integrity check, checksums and lengths of the blocks, embeddings that are not
    finite, edges to unknown nodes or of unknown types, text hashes and digests recomputed.
    """
    problems: list[str] = []
    try:
        rows = [row[0] for row in database.query("PRAGMA integrity_check")]
        if rows != ["ok"]:
            _add(problems, "database", rows)
        _add(problems, "atoms", _atom_problems(database))
        for table, columns in _BLOCKS.items():
            _add(problems, table, _checksum_problems(database, table, columns))
        _add(problems, "vectors", _vector_problems(store))
        _add(problems, "edges", _edge_problems(store))
    except StoreDamagedError as error:
        # Damage that stops the reading: what was found before it is still worth knowing.
        problems.append(str(error))
    return problems


def _atom_problems(database: Database) -> list[str]:
    found = []
    for *row, hashed, digest in database.stream(
        f"SELECT {ATOM_COLUMNS}, text_hash, digest FROM atom ORDER BY node"
    ):
        try:
            atom = atom_from_row(tuple(row))
        except (ValueError, TypeError) as error:
            found.append(f"node {row[0]} cannot be read ({error})")
            continue
        if text_hash(atom.rendered) != hashed.hex():
            found.append(f"the text hash of atom {atom.id!r} does not match its text")
        if atom.digest != digest.hex():
            found.append(f"the digest of atom {atom.id!r} does not match its content")
    return found


def _checksum_problems(database: Database, table: str, columns: tuple[str, ...]) -> list[str]:
    sql = f"SELECT start, checksum, {', '.join(columns)} FROM {table}"
    return [
        f"the block that starts at node {start} does not match its checksum"
        for start, expected, *blobs in database.stream(sql)
        if checksum(blobs) != expected
    ]


def _vector_problems(store: StoreReader) -> list[str]:
    # Reading raises StoreDamagedError where blocks are missing or have the wrong length.
    embeddings = store.embeddings()
    store.tokens()
    bad = (~torch.isfinite(embeddings).all(1)).nonzero().flatten()
    nodes = store.columns().node[bad] if len(bad) else bad
    return [f"the embedding of node {node} is not finite" for node in nodes.tolist()]


def _edge_problems(store: StoreReader) -> list[str]:
    edges = store.edges()
    nodes = store.columns().node
    found = []
    for name, column in (("source", edges.source), ("target", edges.target)):
        unknown = column[~torch.isin(column, nodes)].unique().tolist()
        found += [f"{name} {node} is not a node" for node in unknown]
    types = edges.type[~torch.isin(edges.type, torch.tensor(list(EdgeType), dtype=torch.uint8))]
    found += [f"type {number} is unknown" for number in types.unique().tolist()]
    if not bool(torch.isfinite(edges.weight).all()):
        found.append("some weights are not finite")
    return found


def _add(problems: list[str], part: str, found: list[str]) -> None:
    problems += [f"{part}: {text}" for text in found[:_SHOWN]]
    if len(found) > _SHOWN:
        problems.append(f"{part}: and {len(found) - _SHOWN} more of this kind")
