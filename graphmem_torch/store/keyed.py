"""Keys of calls that added something, so that a call can be repeated and adds nothing again.

A key is kept as its SHA-256, with one of the key and the content. The latter goes with any of the
memories (a trigger): of what is deleted or forgotten nothing is left but that the key was used.
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
    """The tables `keyed` and `keyed_atom` of a store; a store from before has none of them.

    Keys and contents compare in NFC. Older releases kept them as they were given, and nothing of
    the ids in them: what they kept is known in the form that is given, in NFC and in NFD.
    """

    def __init__(self, database: Database) -> None:
        """Of a store: `MemoryStore.keyed`."""
        self._database = database

    def stored(self, key: str) -> str:
        """The form of Unicode in which a key was used; one that was not, in NFC."""
        if self._database.has("keyed"):
            for form in dict.fromkeys((composed(key), key, _decomposed(key))):
                if self._database.query("SELECT 1 FROM keyed WHERE key = ?", (_sha256(form),)):
                    return form
        return composed(key)

    def used(self, key: str, atoms: Sequence[Atom]) -> bool:
        """Whether all of a call with this key was stored.

        Args:
            key: Key of the call, in the form of `stored`.
            atoms: What it adds, in order.

        Raises:
            InputError: The key was used for another content.
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
        """Notes that all of a call with this key was stored, on disk when it returns.

        Args:
            key: Key of the call, in the form of `stored`.
            atoms: What it added, in order.
            ids: Ids that they are stored under.
        """
        own, run = _sha256(key), self._database.execute_many
        # What was deleted meanwhile takes the digest with it, so it has to be there.
        there = "INSERT OR IGNORE INTO keyed_atom SELECT ?, id FROM atom WHERE id = ?"

        def write() -> None:
            run("INSERT OR IGNORE INTO keyed VALUES (?, ?)", [(own, _digest(key, atoms))])
            run(there, [(own, each) for each in ids])

        self._database.write(write)


def _digest(key: str, atoms: Sequence[Atom]) -> bytes:
    return _sha256(key, *(composed(part) for atom in atoms for part in (atom.id, atom.content)))


def _digests(key: str, atoms: Sequence[Atom]) -> set[bytes]:
    """The digests by which a content is known: that of now, and those of older releases."""
    forms = (str, composed, _decomposed)
    former = (_sha256(key, *(text_hash(form(atom.content)) for atom in atoms)) for form in forms)
    return {_digest(key, atoms), *former}


def _sha256(*parts: str) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.digest()
