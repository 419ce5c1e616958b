"""Receipt of an erasure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from graphmem_torch.errors import InputError

__all__ = ["Receipt"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Receipt of an erasure, from `Memory.forget`.

    It identifies the memories by salted hashes: a reader who knows a text can check that it was
    erased, but the receipt does not reveal any text.

    Attributes:
        when: Time of the erasure, in seconds since the epoch UTC.
        atoms: Number of erased memories.
        before, after: State of the store before and after.
        previous: Digest of the previous receipt of the store; empty for the first.
        salt: Salt of the hashes.
        erased: Hashes (`hash_of`) of their ids, texts and names of concepts, in order.
        digest: SHA-256 of all other fields; the store keeps it.
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
        """Return the hash of an `id` or a `text`: SHA-256 of salt, kind and value, one a line."""
        data = f"{self.salt}\n{kind}\n{value}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(data).hexdigest()

    def content_digest(self) -> str:
        """Return the SHA-256 of the other fields, as JSON with sorted keys and no spaces."""
        content = {name: value for name, value in asdict(self).items() if name != "digest"}
        data = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(data.encode()).hexdigest()

    def to_json(self) -> str:
        """Return one JSON object."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Read the JSON of a receipt, without verifying it.

        Raises:
            InputError: The text is no receipt.
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
