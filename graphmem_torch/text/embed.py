"""Embedders by name: the one place where a specification becomes an embedder."""

from __future__ import annotations

from typing import Any

from graphmem_torch.errors import EmbedderError
from graphmem_torch.text.encoded import Embedder, Encoded, encode_checked
from graphmem_torch.text.hashing import HashingEmbedder
from graphmem_torch.text.sentence import SentenceTransformerEmbedder

__all__ = [
    "Embedder",
    "Encoded",
    "HashingEmbedder",
    "SentenceTransformerEmbedder",
    "encode_checked",
    "load_embedder",
]

_NEEDED = ("name", "dim", "token_dim", "num_pieces", "fingerprint", "tokenizer", "window", "encode")


def load_embedder(spec: Any, device: str = "auto", *, token_dim: int = 128) -> Embedder:
    """The embedder that `spec` names.

    Args:
        spec: "hashing" or "hashing:DIM" (needs no model), the name or folder of a
            SentenceTransformer, a SentenceTransformer object, or an embedder, which is returned as
            it is.
        device: "auto" or a torch device, for encoders that are loaded here.
        token_dim: Width of the token vectors of encoders that are loaded here; 0 for none.

    Raises:
        EmbedderError: Saying what was expected.
    """
    if isinstance(spec, str):
        kind, _, size = spec.partition(":")
        if kind == "hashing":
            if size and not (size.isdecimal() and int(size)):
                raise EmbedderError(
                    f'expected "hashing" or "hashing:DIM" with a number above 0, got {spec!r}'
                )
            dim = int(size) if size else 64
            # Half the width: 32 for the quick one of tests, MiniLM's own 128 for "hashing:384".
            return HashingEmbedder(dim, min(token_dim, dim // 2))
        return SentenceTransformerEmbedder(spec, device=device, token_dim=token_dim)
    if isinstance(spec, Embedder):
        return spec
    if hasattr(spec, "fingerprint"):
        missing = [name for name in _NEEDED if not hasattr(spec, name)]
        raise EmbedderError(
            f"the embedder {type(spec).__name__} lacks {', '.join(missing)}; see Embedder"
        )
    return SentenceTransformerEmbedder(spec, device=device, token_dim=token_dim)
