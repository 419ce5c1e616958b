"""Idempotency keys, with which a repeated call adds nothing.

Each key is stored as its SHA-256, with a digest of key and content. A trigger deletes the digest
when any of the call's memories is deleted: only the use of the key remains recorded.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from functools import partial

from graphmem_torch.atoms import Atom, text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.store.database import Database
from graphmem_torch.text.unicode_forms import composed

__all__ = ["KeyedRows"]

_decomposed = partial(unicodedata.normalize, "NFD")


class KeyedRows:
    """Tables `keyed` and `keyed_atom` of a store; older stores may lack them.

    Keys and contents are compared in NFC. Older releases stored them in the form given, and ignored
    ids; their rows are matched in the form given, in NFC and in NFD.
    """

    def __init__(self, database: Database) -> None:
        """Read and write the tables of `database`; see `MemoryStore.keyed`."""
        self._database = database

    def stored(self, key: str) -> str:
        """Return the Unicode form in which a key was used; NFC if it was not used."""
        if self._database.has("keyed"):
            for form in dict.fromkeys((composed(key), key, _decomposed(key))):
                if self._database.query("SELECT 1 FROM keyed WHERE key = ?", (_sha256(form),)):
                    return form
        return composed(key)

    def used(self, key: str, atoms: Sequence[Atom]) -> bool:
        """Return whether a call with this key was completely stored.

        Args:
            key: Key of the call, in the form of `stored`.
            atoms: Atoms that the call adds, in order.

        Raises:
            InputError: The key was used with other content.
        """
        if not self._database.has("keyed"):
            return False
        rows = self._database.query("SELECT digest FROM keyed WHERE key = ?", (_sha256(key),))
        if rows and rows[0][0] is not None and rows[0][0] not in _digests(key, atoms):
            raise InputError(
                f"key: expected the content that was added with {key!r:.80}, got another; use a "
                "new key for each call"
            )
        return bool(rows)

    def put(self, key: str, atoms: Sequence[Atom], ids: Sequence[str]) -> None:
        """Record that a call with this key was completely stored; on disk on return.

        Args:
            key: Key of the call, in the form of `stored`.
            atoms: Atoms that the call added, in order.
            ids: Ids under which they are stored.
        """
        own, run = _sha256(key), self._database.execute_many
        # Only rows of existing atoms: deleting an atom must delete the digest.
        there = "INSERT OR IGNORE INTO keyed_atom SELECT ?, id FROM atom WHERE id = ?"

        def write() -> None:
            run("INSERT OR IGNORE INTO keyed VALUES (?, ?)", [(own, _digest(key, atoms))])
            run(there, [(own, each) for each in ids])

        self._database.write(write)


def _digest(key: str, atoms: Sequence[Atom]) -> bytes:
    return _sha256(key, *(composed(part) for atom in atoms for part in (atom.id, atom.content)))


def _digests(key: str, atoms: Sequence[Atom]) -> set[bytes]:
    """Return the digests that match a content: the current one and those of older releases."""
    forms = (str, composed, _decomposed)
    former = (_sha256(key, *(text_hash(form(atom.content)) for atom in atoms)) for form in forms)
    return {_digest(key, atoms), *former}


def _sha256(*parts: str) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.digest()
