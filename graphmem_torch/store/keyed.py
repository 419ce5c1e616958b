"""Keys of calls that added something, so that a call can be repeated and adds nothing again.

A key is kept as its SHA-256, with one of the key and the content. The latter goes with any of the
memories (a trigger): of what is deleted or forgotten nothing is left but that the key was used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from graphmem_torch.errors import InputError
from graphmem_torch.store.database import Database

__all__ = ["KeyedRows"]


class KeyedRows:
    """The tables `keyed` and `keyed_atom` of a store; a store from before has none of them."""

    def __init__(self, database: Database) -> None:
        """Of a store: `MemoryStore.keyed`."""
        self._database = database

    def used(self, key: str, digests: Iterable[str]) -> bool:
        """Whether all of a call with this key was stored.

        Args:
            key: Key of the call.
            digests: `Atom.digest` of what it adds, in order.

        Raises:
            InputError: The key was used for another content.
        """
        if not self._database.has("keyed"):
            return False
        own = _sha256(key)
        rows = self._database.query("SELECT digest FROM keyed WHERE key = ?", (own,))
        if rows and rows[0][0] not in (None, _sha256(key, *digests)):
            raise InputError(
                f"key: expected the content that was added with {key!r:.80}, got another; use a "
                "new key for each call"
            )
        return bool(rows)

    def put(self, key: str, digests: Iterable[str], ids: Iterable[str]) -> None:
        """Notes that all of a call with this key was stored, on disk when it returns."""
        own, run = _sha256(key), self._database.execute_many
        whole = _sha256(key, *digests)
        # What was deleted meanwhile takes the digest with it, so it has to be there.
        there = "INSERT OR IGNORE INTO keyed_atom SELECT ?, id FROM atom WHERE id = ?"

        def write() -> None:
            run("INSERT OR IGNORE INTO keyed VALUES (?, ?)", [(own, whole)])
            run(there, [(own, each) for each in ids])

        self._database.write(write)


def _sha256(*parts: str) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.digest()
