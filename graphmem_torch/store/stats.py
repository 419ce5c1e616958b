"""Statistics of a store."""

from __future__ import annotations

from typing import Any

from graphmem_torch.store.folder import folder_bytes
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.schema import SCHEMA_VERSION
from graphmem_torch.store.snapshot_file import snapshot_state

__all__ = ["store_stats"]


def store_stats(store: StoreReader) -> dict[str, Any]:
    """Return counts, sizes (bytes) and bindings of a store, as plain JSON values."""
    query = store._database.query
    kept = "none" if store.path is None else snapshot_state(store.path, store.state)
    with store.reading():
        return {
            "nodes": store.num_nodes,
            "next_node": store.next_node,
            "kinds": dict(query("SELECT kind, count(*) FROM atom GROUP BY kind ORDER BY kind")),
            "sessions": query("SELECT count(DISTINCT session) FROM atom")[0][0],
            "edges": store.num_edges,
            "tokens": query("SELECT coalesce(sum(length(pieces)), 0) / 4 FROM token_block")[0][0],
            "uses": store.uses.total(),
            "dim": store.dim,
            "token_dim": store.token_dim,
            "fingerprint": store.fingerprint,
            "generation": store.generation,
            "schema_version": SCHEMA_VERSION,
            "bytes": folder_bytes(store.path),
            "snapshot": kept,
        }
