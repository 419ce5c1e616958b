"""Embedders may be anybody's: what they give is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from graphmem_torch.errors import EmbedderError
from graphmem_torch.text import Embedder, Encoded, HashingEmbedder, encode_checked, load_embedder
from graphmem_torch.text.embedder import to_int8

TEXTS = ["first text", "second text", "third text"]


class Changed(HashingEmbedder):
    """A hashing embedder whose result goes through a function."""

    def __init__(self, change: Callable[[Encoded], Encoded]) -> None:
        super().__init__(8, 4)
        self._change = change

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        return self._change(super().encode(texts, progress=progress))


def refuse(change: Callable[[Encoded], Encoded]) -> str:
    with pytest.raises(EmbedderError) as caught:
        encode_checked(Changed(change), TEXTS)
    return str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_encode_checked_names_the_text_of_vectors_that_are_not_finite(value: float) -> None:
    def spoil(encoded: Encoded) -> Encoded:
        encoded.pooled[1, 3] = value
        return encoded

    message = refuse(spoil)
    assert "expected finite vectors, got NaN or infinity" in message
    assert "1 of 3 texts" in message
    assert "'second text'" in message


@pytest.mark.parametrize(
    "change",
    [
        lambda e: Encoded(e.pooled[:2], e.tokens, e.pieces, e.offsets),
        lambda e: Encoded(e.pooled.double(), e.tokens, e.pieces, e.offsets),
        lambda e: Encoded(e.pooled),
        lambda e: Encoded(e.pooled, e.tokens[:-1], e.pieces, e.offsets),
        lambda e: Encoded(e.pooled, e.tokens.float(), e.pieces, e.offsets),
        lambda e: Encoded(e.pooled, e.tokens, e.pieces.long(), e.offsets),
        lambda e: Encoded(e.pooled, e.tokens, e.pieces, e.offsets[:-1]),
    ],
)
def test_encode_checked_refuses_wrong_shapes_and_types(
    change: Callable[[Encoded], Encoded],
) -> None:
    assert "expected" in refuse(change)


def test_load_embedder_takes_one_as_it_is() -> None:
    mine = Changed(lambda encoded: encoded)
    assert isinstance(mine, Embedder)
    assert load_embedder(mine) is mine
    assert encode_checked(mine, TEXTS).pooled.shape == (3, 8)


def test_load_embedder_says_what_one_lacks() -> None:
    class Half:
        name = "half"
        fingerprint = "half"
        dim = 3

    with pytest.raises(
        EmbedderError, match="without token_dim, num_pieces, tokenizer, window, encode"
    ):
        load_embedder(Half())
    with pytest.raises(EmbedderError, match="got int"):
        load_embedder(3)


def test_to_int8_keeps_directions() -> None:
    vectors = torch.randn(50, 32, generator=torch.Generator().manual_seed(0))
    stored = to_int8(vectors)
    assert stored.dtype == torch.int8
    cosine = torch.cosine_similarity(stored.float(), vectors)
    assert bool((cosine > 0.999).all())
    assert to_int8(torch.zeros(1, 4)).tolist() == [[0] * 4]


@pytest.mark.parametrize("factor", [1.05, 0.9, 1e-4])
def test_encode_checked_wants_unit_length(factor: float) -> None:
    def scale(encoded: Encoded) -> Encoded:
        encoded.pooled[1] *= factor
        return encoded

    message = refuse(scale)
    assert "length 1" in message
    assert "'second text'" in message


def test_encode_checked_takes_a_row_of_zeros_and_a_rounded_one() -> None:
    def change(encoded: Encoded) -> Encoded:
        encoded.pooled[0] = 0
        encoded.pooled[1] *= 1.005
        return encoded

    assert not encode_checked(Changed(change), TEXTS).pooled[0].any()
