"""Encoders and concept extractors that cache, because many systems are asked the same questions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from graphmem_torch.coo import offsets_of
from graphmem_torch.progress import Progress
from graphmem_torch.text.concepts import ConceptExtractor, load_concepts
from graphmem_torch.text.embedder import Embedder, Encoded, HashingEmbedder
from graphmem_torch.text.models import cache_folder
from graphmem_torch.text.sentence_transformer import load_embedder

from ..request import Request
from .encodings import Encodings, Row, TextCache
from .measure import Stopwatch

__all__ = [
    "CachingConcepts",
    "CachingEmbedder",
    "TimedEmbedder",
    "caching",
    "load_encoder",
    "load_encoders",
]
_BLOCK = 512  # texts encoded between two writes to the disk: the loss of a stopped run


class CachingEmbedder:
    """Encoder that, inside `caching()`, encodes no text twice.

    Outside of it nothing is cached, so that latencies are those of the encoder.

    Attributes:
        seconds: Time spent on encodings inside `caching()`, computed or looked up.
    """

    def __init__(self, inner: Embedder, kept: Encodings | None = None) -> None:
        """Wrap an encoder.

        Args:
            inner: Wrapped encoder.
            kept: Encodings of earlier runs on disk; updated.
        """
        self._inner = inner
        self._kept = kept
        self._caching = False
        self._rows: dict[str, Row] = {}
        self.seconds = 0.0
        self.name = inner.name
        self.dim = inner.dim
        self.token_dim = inner.token_dim
        self.num_pieces = inner.num_pieces
        self.fingerprint = inner.fingerprint
        self.tokenizer = inner.tokenizer
        self.window = inner.window
        self.unread = getattr(inner, "unread", lambda _: None)
        self.readable = getattr(inner, "readable", lambda _: None)
        self._questions: CachingEmbedder | None = None
        if getattr(inner, "asymmetric", False):
            asked = _Questions(inner)
            folder = None if kept is None else Encodings(kept.folder, asked)
            self._questions = CachingEmbedder(asked, folder)

    @property
    def background(self) -> float:
        """Background cosine, see `Embedder`."""
        return getattr(self._inner, "background", 0.0)

    @contextmanager
    def caching(self) -> Iterator[None]:
        """Look up texts within the block, including those of earlier blocks."""
        before, self._caching = self._caching, True
        try:
            yield
        finally:
            self._caching = before

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        if not self._caching:
            return self._inner.encode(texts, progress=progress)
        start = time.perf_counter()
        self._learn(list(dict.fromkeys(texts)), progress)
        encoded = self._joined([self._rows[text] for text in texts])
        self.seconds += time.perf_counter() - start
        return encoded

    def encode_query(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """Encode questions, if the encoder reads them differently."""
        if self._questions is None:
            return self.encode(texts, progress=progress)
        if not self._caching:
            return self._questions.encode(texts, progress=progress)
        with self._questions.caching():
            before = self._questions.seconds
            encoded = self._questions.encode(texts, progress=progress)
            self.seconds += self._questions.seconds - before
        return encoded

    def extractor(self, spec: str) -> str | ConceptExtractor:
        """Return a concept extractor by name, with the concepts of earlier runs cached."""
        if self._kept is None or spec == "none":
            return spec
        inner = load_concepts(spec)
        return CachingConcepts(inner, TextCache(self._kept.folder, inner.name, inner.name))

    def _learn(self, texts: list[str], progress: bool) -> None:
        """Look up missing texts, and encode those found nowhere."""
        missing = [text for text in texts if text not in self._rows]
        if missing and self._kept is not None:
            self._rows |= self._kept.get(missing)
            missing = [text for text in missing if text not in self._rows]
        blocks = range(0, len(missing), _BLOCK)
        # Sorted by length: hardly any padding.
        missing.sort(key=len)
        for at in Progress(blocks, "encoding", shown=progress and len(blocks) > 1):
            block = missing[at : at + _BLOCK]
            rows = dict(zip(block, _split(self._inner.encode(block)), strict=True))
            self._rows |= rows
            if self._kept is not None:
                self._kept.put(rows)

    def _joined(self, rows: Sequence[Row]) -> Encoded:
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


class _Questions:
    """Encoder that reads every text as a question."""

    asymmetric = False

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.fingerprint = f"{inner.fingerprint}:questions"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        encoded: Encoded = self._inner.encode_query(texts, progress=progress)  # type: ignore[attr-defined]
        return encoded


class CachingConcepts:
    """Concept extractor that reads each text once."""

    def __init__(self, inner: ConceptExtractor, kept: TextCache) -> None:
        """Wrap an extractor.

        Args:
            inner: Wrapped extractor.
            kept: Concepts of earlier runs on disk; updated.
        """
        self._inner, self._kept = inner, kept
        self.name, self.forms = inner.name, inner.forms

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        """See `ConceptExtractor.extract`."""
        found = {text: json.loads(row) for text, row in self._kept.get(texts).items()}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        for at in range(0, len(missing), _BLOCK):
            block = missing[at : at + _BLOCK]
            fresh = dict(zip(block, self._inner.extract(block), strict=True))
            self._kept.put({text: json.dumps(names).encode() for text, names in fresh.items()})
            found |= fresh
        return [found[text] for text in texts]


class TimedEmbedder:
    """Embedder whose `encode` counts as the part "encoder" of a stopwatch."""

    def __init__(self, inner: Embedder, clock: Stopwatch) -> None:
        self._inner = inner
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        with self._clock.running("encoder"):
            return self._inner.encode(texts, progress=progress)

    def encode_query(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """Encode questions."""
        with self._clock.running("encoder"):
            return getattr(self._inner, "encode_query", self._inner.encode)(
                texts, progress=progress
            )


def load_encoder(
    request: Request, *, device: str | None = None, token_dim: int | None = None
) -> CachingEmbedder:
    """Return the encoder that a request names, or its preset's.

    Args:
        request: Evaluation request.
        device: Device of the encoder; the request's by default.
        token_dim: Width of token vectors, 0 for none; the preset's by default.
    """
    settings = request.settings.embedder
    inner = load_embedder(
        settings.name if request.embedder is None else request.embedder,
        request.device if device is None else device,
        token_dim=settings.token_dim if token_dim is None else token_dim,
    )
    # Hashing is quicker than the disk.
    quick = isinstance(inner, HashingEmbedder)
    folder = cache_folder() if request.cache is None else request.cache
    return CachingEmbedder(inner, None if quick else Encodings(folder, inner))


def load_encoders(request: Request) -> list[CachingEmbedder]:
    """Return the encoder of each preset of a request; presets that name the same one share it."""
    found: dict[tuple[str, int], CachingEmbedder] = {}
    encoders = []
    for config in request.presets:
        key = config.embedder.name, config.embedder.token_dim
        if key not in found:
            found[key] = load_encoder(replace(request, config=config))
        encoders.append(found[key])
    return encoders


@contextmanager
def caching(encoders: Iterable[CachingEmbedder]) -> Iterator[None]:
    """Encode no text twice by any of the encoders within the block."""
    with ExitStack() as stack:
        for encoder in dict.fromkeys(encoders):
            stack.enter_context(encoder.caching())
        yield


def _split(encoded: Encoded) -> Iterator[Row]:
    if encoded.tokens is None or encoded.pieces is None or encoded.offsets is None:
        yield from ((row, None, None) for row in encoded.pooled)
        return
    sizes = encoded.offsets.diff().tolist()
    parts = zip(encoded.tokens.split(sizes), encoded.pieces.split(sizes), strict=True)
    for row, (tokens, pieces) in zip(encoded.pooled, parts, strict=True):
        yield row, tokens, pieces
