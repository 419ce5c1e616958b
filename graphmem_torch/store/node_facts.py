"""Records about atoms besides their content: deleted with them, or moved to the next version."""

from __future__ import annotations

import json

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.store.batches import Batch
from graphmem_torch.store.reader import StoreReader

__all__ = ["pass_on", "remove_facts", "take_away"]


def take_away(store: StoreReader, batch: Batch, now: float, *, deleted: bool) -> None:
    """Delete atoms and the records about them, except edges; only inside a write.

    An id that the batch adds again keeps its sources.
    """
    nodes, run = batch.gone, store._database.execute_many
    run("DELETE FROM alias WHERE name = ?", [(name,) for name in batch.unnamed])
    if not nodes:
        return
    listed = json.dumps(list(nodes))
    there = "SELECT node FROM atom WHERE node IN (SELECT value FROM json_each(?))"
    missing = set(nodes).difference(row[0] for row in store._database.query(there, (listed,)))
    if missing:
        raise store._unknown_node(min(missing))
    sql = f"{there} AND kind = ?"
    concepts = len(store._database.query(sql, (listed, CONCEPT)))
    run(
        "DELETE FROM source_atom WHERE id IN (SELECT id FROM atom WHERE node IN "
        "(SELECT value FROM json_each(?))) AND id NOT IN (SELECT value FROM json_each(?))",
        [(listed, json.dumps([atom.id for atom in batch.atoms]))],
    )
    for old, new in batch.versions:
        same = batch.atoms[new - store.next_node].text == store.atoms([old])[0].text
        store.life.keep_version(old, new, now)
        pass_on(store, old, new, same=same)
    remove_facts(store, listed)
    for table in ("atom", "alias"):
        one = f"DELETE FROM {table} WHERE node IN (SELECT value FROM json_each(?))"
        run(one, [(listed,)])
    # Vectors of kept versions are still read.
    kept = json.dumps([old for old, _ in batch.versions])
    run(
        "INSERT OR IGNORE INTO unwiped SELECT value FROM json_each(?) "
        "WHERE value NOT IN (SELECT value FROM json_each(?)) UNION ALL "
        "SELECT node FROM version WHERE current IN (SELECT value FROM json_each(?))",
        [(listed, kept, listed)],
    )
    run("DELETE FROM version WHERE current IN (SELECT value FROM json_each(?))", [(listed,)])
    gone = len(nodes) - len(batch.versions) - concepts
    store.life.note_removal(now, gone if deleted else 0)


def pass_on(store: StoreReader, old: int, new: int, *, same: bool) -> None:
    """Move the records about node `old` to `new`; only inside a write."""
    store.life.pass_on(old, new, same=same)
    store.uses.pass_on(old, new)
    store.validity.pass_on(old, new)
    store.insights.pass_on(old, new, same=same)
    if same:
        store.learned.pass_on(old, new)


def remove_facts(store: StoreReader, listed: str) -> None:
    """Delete the records about nodes (a JSON list); only inside a write."""
    for each in (store.learned, store.validity, store.insights, store.life):
        each.remove(listed)
