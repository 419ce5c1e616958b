"""Receipt of an erasure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from graphmem_torch.errors import InputError

__all__ = ["Receipt"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What says that memories were erased, by `Memory.forget`.

    It names them by hashes with a salt, so that whoever knows a text can tell whether it was
    erased, and nobody can read it from here.

    Attributes:
        when: Seconds since the epoch UTC.
        atoms: How many memories.
        before, after: States of the store.
        previous: Digest of the receipt that the store gave before; empty for the first.
        salt: Of the hashes.
        erased: Hashes (`hash_of`) of their ids, texts and names of concepts, in order.
        digest: SHA-256 of all the rest; the store has noted it.
    """

    when: float
    atoms: int
    before: str
    after: str
    previous: str
    salt: str
    erased: tuple[str, ...]
    digest: str

    def hash_of(self, kind: str, value: str) -> str:
        """The hash of an `id` or a `text`: SHA-256 of salt, kind and value, a line each."""
        data = f"{self.salt}\n{kind}\n{value}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(data).hexdigest()

    def content_digest(self) -> str:
        """SHA-256 of everything but the digest, as JSON of sorted keys without spaces."""
        content = {name: value for name, value in asdict(self).items() if name != "digest"}
        data = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(data.encode()).hexdigest()

    def to_json(self) -> str:
        """As one JSON object."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Of what `to_json` gave, whether it was changed or not.

        Raises:
            InputError: No receipt.
        """
        try:
            values = json.loads(text)
            receipt = cls(**values | {"erased": tuple(values["erased"])})
            receipt.content_digest()
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise InputError(
                f"receipt: expected what `forget` gave, got something else ({error}); give its file"
            ) from error
        return receipt
