"""The encoder of a run: it caches what it has encoded, so that many systems are asked the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of
from graphmem_torch.text.embedder import Embedder, Encoded
from graphmem_torch.text.sentence_transformer import load_embedder

from ..request import Request
from .measure import Stopwatch

__all__ = ["CachingEmbedder", "TimedEmbedder", "load_encoder"]
_Row = tuple[Tensor, Tensor | None, Tensor | None]  # [d], [t, m], [t]


class CachingEmbedder:
    """Encodes through another embedder; inside `caching()` no text is encoded twice.

    Outside it works as if it were not there, so that latencies are those of the encoder.
    """

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._rows: dict[str, _Row] | None = None
        self._kept: dict[str, _Row] = {}
        self.name = inner.name
        self.dim = inner.dim
        self.token_dim = inner.token_dim
        self.num_pieces = inner.num_pieces
        self.fingerprint = inner.fingerprint
        self.tokenizer = inner.tokenizer
        self.window = inner.window

    @contextmanager
    def caching(self) -> Iterator[None]:
        """Within the block texts are looked up, also those of earlier blocks."""
        self._rows = self._kept
        try:
            yield
        finally:
            self._rows = None

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        if self._rows is None:
            return self._inner.encode(texts, progress=progress)
        missing = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if missing:
            self._rows.update(zip(missing, _split(self._inner.encode(missing)), strict=True))
        rows = [self._rows[text] for text in texts]
        pooled = torch.stack([row[0] for row in rows]) if rows else torch.empty(0, self.dim)
        if self.token_dim == 0:
            return Encoded(pooled)
        tokens = [row[1] for row in rows if row[1] is not None]
        pieces = [row[2] for row in rows if row[2] is not None]
        counts = torch.tensor([len(part) for part in pieces], dtype=torch.int64)
        return Encoded(
            pooled,
            torch.cat([torch.empty(0, self.token_dim, dtype=torch.int8), *tokens]),
            torch.cat([torch.empty(0, dtype=torch.int32), *pieces]),
            offsets_of(counts),
        )


class TimedEmbedder:
    """An embedder whose `encode` counts as the part "encoder" of a stopwatch."""

    def __init__(self, inner: Embedder, clock: Stopwatch) -> None:
        self._inner = inner
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        with self._clock.running("encoder"):
            return self._inner.encode(texts, progress=progress)


def load_encoder(
    request: Request, *, device: str | None = None, token_dim: int | None = None
) -> CachingEmbedder:
    """The encoder that a request names, or its preset's.

    Args:
        request: What is evaluated.
        device: Where it computes; the request's by default.
        token_dim: Width of token vectors, 0 for none; the preset's by default.
    """
    settings = request.settings.embedder
    return CachingEmbedder(
        load_embedder(
            settings.name if request.embedder is None else request.embedder,
            request.device if device is None else device,
            token_dim=settings.token_dim if token_dim is None else token_dim,
        )
    )


def _split(encoded: Encoded) -> Iterator[_Row]:
    if encoded.tokens is None or encoded.pieces is None or encoded.offsets is None:
        yield from ((row, None, None) for row in encoded.pooled)
        return
    sizes = encoded.offsets.diff().tolist()
    parts = zip(encoded.tokens.split(sizes), encoded.pieces.split(sizes), strict=True)
    for row, (tokens, pieces) in zip(encoded.pooled, parts, strict=True):
        yield row, tokens, pieces
