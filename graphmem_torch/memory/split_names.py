"""Split names: names of concepts that were split from the concept they shared with others."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from graphmem_torch.store.reader import StoreReader

__all__ = ["SPLIT_NAMES", "SplitNames"]

SPLIT_NAMES = "link.split"
"""Key of `SplitNames` in the strings of a store."""


@dataclass(frozen=True)
class SplitNames:
    """Names that were split from a shared concept, as a store keeps them: by their hashes.

    Attributes:
        salt: Salt of the hashes, one for each store; empty without hashes, or in an early store.
        hashes: SHA-256 of the salt and a name.
    """

    salt: str = ""
    hashes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, store: StoreReader) -> SplitNames:
        """Read the split names of a store."""
        kept = json.loads(store.meta_get(SPLIT_NAMES) or "[]")
        if isinstance(kept, list):
            return cls("", frozenset(kept))
        return cls(kept["salt"], frozenset(kept["hashes"]))

    def __contains__(self, name: str) -> bool:
        """Return whether a name was split."""
        return bool(self.hashes) and self._hash(name) in self.hashes

    def of_names(self, names: Iterable[str]) -> SplitNames:
        """Return a record of these names under the same salt; under a new one if there is none."""
        salted = SplitNames(self.salt or secrets.token_hex(16))
        return SplitNames(salted.salt, frozenset(map(salted._hash, names)))

    def meta(self) -> dict[str, str]:
        """Return the strings to keep in the store."""
        return {SPLIT_NAMES: json.dumps({"salt": self.salt, "hashes": sorted(self.hashes)})}

    def _hash(self, name: str) -> str:
        salt = f"{self.salt}\n" if self.salt else ""
        return hashlib.sha256(f"{salt}name\n{name}".encode("utf-8", "surrogatepass")).hexdigest()
