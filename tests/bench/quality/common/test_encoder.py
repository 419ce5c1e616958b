"""The remembering embedder gives what the encoder gives, and asks it once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from graphmem_torch.quality.common.encoder import CachingEmbedder
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
