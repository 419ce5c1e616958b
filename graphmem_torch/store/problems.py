"""Consistency check of a whole store."""

from __future__ import annotations

import numpy as np

from graphmem_torch.atoms import CONCEPT, EdgeType, text_hash
from graphmem_torch.errors import StoreDamagedError
from graphmem_torch.store.arrays import (
    Array,
    read_alias_vectors,
    read_edges,
    read_embeddings,
    read_linked_edges,
    read_tokens,
)
from graphmem_torch.store.checksums import is_sound
from graphmem_torch.store.database import Database
from graphmem_torch.store.failures import damaged
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.records import atom_from_row
from graphmem_torch.store.schema import ATOM_COLUMNS, LINKED_BY, ORDERED_BY
from graphmem_torch.store.snapshot_file import SNAPSHOT_NAME, snapshot_state
from graphmem_torch.store.turn_order import misplaced_edges

__all__ = ["check_store"]

_BLOCKS = {
    "embedding_block": ("data",),
    "token_block": ("counts", "pieces", "data"),
    "text_block": ("numbers", "terms"),
    "edge_block": ("source", "target", "type", "weight"),
}
_SHOWN = 5  # of each kind of problem; one damaged disk sector can break thousands of rows
_NODES = "SELECT node FROM atom WHERE node >= 0 ORDER BY node"
_CONCEPTS = "SELECT node FROM atom WHERE kind = ?"


def check_store(store: StoreReader) -> list[str]:
    """Read the whole store and check its consistency.

    Runs SQLite's integrity check, and recomputes checksums, text hashes and digests. Reports wrong
    block lengths, embeddings that are not finite, and damaged learned values. Reports edges with
    unknown nodes or types, and temporal edges of linking between turns that are not neighbours.
    Reports aliases without a concept, and versions and validity without an atom.

    Returns:
        Sentences about what is wrong; empty if nothing is. A missing or stale snapshot is no
        problem: it is rebuilt when the store is next opened.
    """
    with store.reading():
        problems = _problems(store)
        if store.path is not None:
            found = snapshot_state(store.path, store.state, verify=True)
            if found.startswith("damaged"):
                problems.append(
                    f"snapshot: {found}; nothing is lost: delete {SNAPSHOT_NAME}, it is rebuilt "
                    "from the database"
                )
    return problems


def _problems(store: StoreReader) -> list[str]:
    database, found = store._database, list[str]()
    try:
        rows = [row[0] for row in database.query("PRAGMA integrity_check")]
        if rows != ["ok"]:
            _add(found, "database", rows)
        nodes = np.array([row[0] for row in database.query(_NODES)], np.int64)
        _add(found, "atoms", _atom_problems(database))
        _add(found, "versions", _version_problems(store, nodes))
        for table, columns in _BLOCKS.items():
            if not database.has(table):  # a reader of an older store
                continue
            _add(found, table, _checksum_problems(database, table, columns))
        _add(found, "vectors", _vector_problems(store, nodes))
        _add(found, "edges", _edge_problems(store, nodes))
        _add(found, "aliases", _alias_problems(store))
        _add(found, "temporal edges", _temporal_problems(store))
        _add(found, "validity", store.validity.problems())
        _add(found, "expiry", store.expiry.problems())
        found += store.learned.problems()
    except StoreDamagedError as error:
        # Damage that stops reading: the earlier findings are still reported.
        found.append(str(error))
    return found


def _atom_problems(database: Database) -> list[str]:
    found = []
    for *row, hashed, digest in database.stream(
        f"SELECT {ATOM_COLUMNS}, text_hash, digest FROM atom WHERE node >= 0 ORDER BY node"
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


def _version_problems(store: StoreReader, nodes: Array) -> list[str]:
    store.earlier()  # raises if a digest does not match
    there = {*nodes.tolist()}
    return [
        f"{node} is no atom, but has earlier versions"
        for node in store.first_versions()
        if node not in there
    ]


def _checksum_problems(database: Database, table: str, columns: tuple[str, ...]) -> list[str]:
    sql = f"SELECT start, count, checksum, {', '.join(columns)} FROM {table}"
    return [
        f"the block that starts at node {start} does not match its checksum"
        for start, count, expected, *blobs in database.stream(sql)
        if not is_sound(expected, blobs, start, count)
    ]


def _vector_problems(store: StoreReader, nodes: Array) -> list[str]:
    # Reading raises StoreDamagedError if blocks are missing or have the wrong length.
    database, stop = store._database, store.next_node
    if len(nodes) and nodes[-1] >= stop:
        raise damaged(database.place, f"atoms after number {stop - 1}, the last given")
    embeddings = read_embeddings(database, 0, stop, store.dim or 0)
    if store.token_dim is not None:
        read_tokens(database, 0, stop, store.token_dim)
    elif database.query("SELECT 1 FROM token_block LIMIT 1"):
        raise damaged(database.place, "the width of its token vectors is gone")
    bad = nodes[~np.isfinite(embeddings[nodes]).all(axis=1)]
    return [f"the embedding of node {node} is not finite" for node in bad.tolist()]


def _edge_problems(store: StoreReader, nodes: Array) -> list[str]:
    edges = read_edges(store._database, 0)
    read_linked_edges(store._database)  # raises if the parts of a block are damaged
    found = []
    for name, column in (("source", edges.source), ("target", edges.target)):
        unknown = np.unique(column[~np.isin(column, nodes)])
        found += [f"{name} {node} is not a node" for node in unknown.tolist()]
    types = np.unique(edges.type[~np.isin(edges.type, [int(kind) for kind in EdgeType])])
    found += [f"type {number} is unknown" for number in types.tolist()]
    if not np.isfinite(edges.weight).all():
        found.append("some weights are not finite")
    return found


def _alias_problems(store: StoreReader) -> list[str]:
    aliases, database = store.aliases(), store._database
    if database.has("alias_vector"):  # raises if one does not match its checksum
        read_alias_vectors(database, (name for _, name, _ in aliases), store.dim or 0)
    concepts = {row[0] for row in database.query(_CONCEPTS, (CONCEPT,))}
    return [
        f"{name!r} leads to node {node}, which is no concept"
        for _, name, node in aliases
        if node not in concepts
    ]


def _temporal_problems(store: StoreReader) -> list[str]:
    if store.meta_get(LINKED_BY) is None:
        return []  # without linking, callers may use these edges for anything
    wrong, _ = misplaced_edges(store, by_time=store.meta_get(ORDERED_BY) == "time")
    if not wrong.shape[1]:
        return []
    source, target = wrong[:, 0].tolist()
    return [
        f"{wrong.shape[1]} join others than neighbours of one session, the first of them node "
        f"{source} with node {target}"
    ]


def _add(problems: list[str], part: str, found: list[str]) -> None:
    problems += [f"{part}: {text}" for text in found[:_SHOWN]]
    if len(found) > _SHOWN:
        problems.append(f"{part}: and {len(found) - _SHOWN} more of this kind")
