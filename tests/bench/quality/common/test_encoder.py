"""The remembering embedder gives what the encoder gives, and asks it once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from graphmem_torch.quality.common.encoder import CachingConcepts, CachingEmbedder
from graphmem_torch.quality.common.encodings import Encodings, TextCache
from graphmem_torch.text.concepts import ConceptExtractor, PatternConcepts
from graphmem_torch.text.embedder import Embedder, Encoded, HashingEmbedder

TEXTS = ["the red boat", "a comet", "the red boat", "of the", "Pippo ran away"]


class _Counting(HashingEmbedder):
    def __init__(self, token_dim: int) -> None:
        super().__init__(16, token_dim)
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        self.seen += texts
        return super().encode(texts, progress=progress)


@pytest.mark.parametrize("token_dim", [0, 8])
def test_caching_embedder_gives_the_same_vectors_and_encodes_once(token_dim: int) -> None:
    inner = _Counting(token_dim)
    embedder = CachingEmbedder(inner)
    assert isinstance(embedder, Embedder)
    expected = HashingEmbedder(16, token_dim).encode(TEXTS)
    for _ in range(2):
        with embedder.caching():
            got = embedder.encode(TEXTS)
        assert torch.equal(got.pooled, expected.pooled)
        if token_dim:
            assert got.tokens is not None
            assert got.offsets is not None
            assert torch.equal(got.tokens, expected.tokens)
            assert torch.equal(got.pieces, expected.pieces)
            assert torch.equal(got.offsets, expected.offsets)
    assert sorted(inner.seen) == sorted(set(TEXTS))
    embedder.encode(TEXTS[:1])
    assert inner.seen[-1] == TEXTS[0]


def test_caching_embedder_of_no_texts() -> None:
    embedder = CachingEmbedder(HashingEmbedder(16, 8))
    with embedder.caching():
        assert embedder.encode([]).pooled.shape == (0, 16)


class _Finding(PatternConcepts):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        self.seen += texts
        return super().extract(texts)


def test_caching_concepts_are_those_of_the_extractor_found_once(tmp_path: Path) -> None:
    texts = ["Ada met Bob in Paris.", "", "Ada met Bob in Paris.", "half a pair \ud800 of Rome"]
    for looked in (sorted(set(texts)), []):
        inner = _Finding()
        extractor = CachingConcepts(inner, TextCache(tmp_path, inner.name, inner.name))
        assert isinstance(extractor, ConceptExtractor)
        assert extractor.extract(texts) == PatternConcepts().extract(texts)
        assert sorted(inner.seen) == looked
        assert extractor.name == inner.name and extractor.forms("boats") == inner.forms("boats")
    # What other versions found, and encodings, are other files.
    extractor = CachingConcepts(_Finding(), TextCache(tmp_path, "pattern-v1", "pattern-v2"))
    assert extractor.extract([]) == []
    encoder = CachingEmbedder(HashingEmbedder(16), Encodings(tmp_path, HashingEmbedder(16)))
    assert isinstance(encoder.extractor("pattern"), CachingConcepts)
    assert encoder.extractor("none") == "none"
    assert CachingEmbedder(HashingEmbedder(16)).extractor("auto") == "auto"
