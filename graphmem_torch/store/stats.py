"""Statistics of a store."""

from __future__ import annotations

import json
from typing import Any

from graphmem_torch.store.folder import folder_bytes
from graphmem_torch.store.reader import StoreReader
from graphmem_torch.store.schema import SCHEMA_VERSION
from graphmem_torch.store.snapshot_file import snapshot_state

__all__ = ["store_stats"]

_OTHERS = "WHERE node NOT IN (SELECT value FROM json_each(?))"


def store_stats(store: StoreReader) -> dict[str, Any]:
    """Return counts, sizes (bytes) and bindings of a store, as plain JSON values.

    `expired` counts what has expired and is not deleted yet; the other counts leave it out.
    """
    query = store._database.query
    kept = "none" if store.path is None else snapshot_state(store.path, store.state)
    with store.reading():
        hidden = store.expiry.hidden()
        own = _OTHERS if hidden else ""
        values = [json.dumps(sorted(hidden))] if hidden else []
        kinds = f"SELECT kind, count(*) FROM atom {own} GROUP BY kind ORDER BY kind"
        return {
            "nodes": store.num_nodes - len(hidden),
            "expired": len(hidden),
            "next_node": store.next_node,
            "kinds": dict(query(kinds, values)),
            "sessions": query(f"SELECT count(DISTINCT session) FROM atom {own}", values)[0][0],
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
