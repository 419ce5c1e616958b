"""Embedders by name: the one place where a specification becomes an embedder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.errors import EmbedderError
from graphmem_torch.text.embedder import Embedder, Encoded, to_int8
from graphmem_torch.text.sentence_transformer import SentenceTransformerEmbedder
from graphmem_torch.text.terms import terms
from graphmem_torch.text.tokens import Tokenizer, WordTokenizer

__all__ = ["HashingEmbedder", "load_embedder"]
_PIECES = 1 << 16


class HashingEmbedder:
    """Every word is a fixed vector of random signs; a text is the normalised sum of its words.

    The signs are bits of SHAKE-128 of the stemmed word: the same on every machine and in every
    version. Texts that share content words are similar, others nearly orthogonal (random indexing;
    Kanerva et al. 2000).
    """

    def __init__(self, dim: int = 64, token_dim: int = 32) -> None:
        if dim < 1 or token_dim < 0:
            raise EmbedderError(
                f"dim, token_dim: expected at least 1 and 0, got {dim} and {token_dim}; 64 and 32 "
                "are the defaults"
            )
        self.dim = dim
        self.token_dim = token_dim
        self.num_pieces = _PIECES if token_dim else 0
        self.name = f"hashing:{dim}"
        self.fingerprint = f"hashing-v1:{dim}:{token_dim}"
        self.tokenizer: Tokenizer = WordTokenizer()
        self.window = 254

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`; so fast that `progress` shows nothing."""
        numbers: dict[str, int] = {}
        flat: list[int] = []
        owner: list[int] = []
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        pooled = torch.zeros(len(texts), self.dim)
        wordless: list[int] = []
        for i, text in enumerate(texts):
            words = terms(text)
            flat.extend([numbers.setdefault(word, len(numbers)) for word in words])
            owner.extend([i] * len(words))
            offsets[i + 1] = len(flat)
            if not words:
                wordless.append(i)
        distinct = list(numbers)
        number = torch.tensor(flat, dtype=torch.int64)
        if distinct:
            pooled.index_add_(0, torch.tensor(owner), _signs("pooled", distinct, self.dim)[number])
        for i in wordless:
            # Nothing but stop words or marks: still a fixed vector of its own, so that the rows
            # stay unit.
            rest = re.findall(r"\S+", texts[i].lower()) or [""]
            pooled[i] = _signs("pooled", rest, self.dim).sum(dim=0)
        # A sum of signs can cancel to zero; the bias of 1e-3 in one fixed direction keeps every row
        # a unit vector.
        pooled[:, 0] += 1e-3
        pooled = torch.nn.functional.normalize(pooled, dim=1)
        if self.token_dim == 0:
            return Encoded(pooled)
        rows = to_int8(_signs("token", distinct, self.token_dim))
        names = torch.tensor([_piece(word) for word in distinct], dtype=torch.int32)
        return Encoded(pooled, rows[number], names[number], torch.from_numpy(offsets))


def _signs(
    purpose: str,
    words: Sequence[str],
    dim: int,
) -> Tensor:  # [len(words), dim] float32, -1 or +1
    packed = b"".join(_bits(purpose, word, dim) for word in words)
    width = -(-dim // 8)
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8).reshape(len(words), width), axis=1)
    return torch.from_numpy(bits[:, :dim].astype(np.float32)) * 2 - 1


@lru_cache(maxsize=1 << 17)
def _bits(purpose: str, word: str, dim: int) -> bytes:
    return hashlib.shake_128(f"{purpose}\0{word}".encode()).digest(-(-dim // 8))


@lru_cache(maxsize=1 << 17)
def _piece(word: str) -> int:
    return (
        int.from_bytes(hashlib.shake_128(f"piece\0{word}".encode()).digest(4), "little") % _PIECES
    )


_NEEDED = ("name", "dim", "token_dim", "num_pieces", "fingerprint", "tokenizer", "window", "encode")


def load_embedder(spec: Any, device: str = "auto", *, token_dim: int = 128) -> Embedder:
    """The embedder that `spec` names.

    Args:
        spec: Name "hashing" or "hashing:DIM" (needs no model), name or folder of a
            SentenceTransformer, a SentenceTransformer object, or an embedder, which is returned as
            it is.
        device: Torch device, or "auto", for encoders that are loaded here.
        token_dim: Width of the token vectors of encoders that are loaded here; 0 for none.

    Raises:
        EmbedderError: Saying what was expected.
    """
    if isinstance(spec, str):
        kind, _, size = spec.partition(":")
        if kind == "hashing":
            if size and not (size.isdecimal() and int(size)):
                raise EmbedderError(
                    f'embedder: expected "hashing" or "hashing:DIM", got {spec!r}; DIM is a number '
                    "above 0"
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
            f"embedder: expected what Embedder lists, got {type(spec).__name__} without "
            f"{', '.join(missing)}; add them"
        )
    return SentenceTransformerEmbedder(spec, device=device, token_dim=token_dim)
