"""Embedders may be anybody's: what they give is looked at. The hashing one is ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from graphmem_torch.errors import EmbedderError
from graphmem_torch.text.embedder import (
    Embedder,
    Encoded,
    HashingEmbedder,
    PooledEmbedder,
    background_cosine,
    encode_checked,
    rescaled,
    to_int8,
    usual_cosine,
)
from graphmem_torch.text.sentence_transformer import load_embedder

TEXTS = ["first text", "second text", "third text"]
SAID = ["The red canoe sank.", "canoes sinking, red!", "Taxes are due in April.", "", "the", "?!"]


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


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda e: None, "NoneType for all of it"),
        (lambda e: e.pooled, "Tensor for all of it"),
        (lambda e: (e.pooled, e.tokens), "tuple for all of it"),
        (lambda e: Encoded(e.pooled.numpy(), e.tokens, e.pieces, e.offsets), "ndarray for pooled"),
        (lambda e: Encoded(e.pooled, e.tokens.numpy(), e.pieces, e.offsets), "ndarray for tokens"),
        (lambda e: Encoded(e.pooled, e.tokens, e.pieces, [0, 1]), "list for offsets"),
        (lambda e: Encoded(None, e.tokens, e.pieces, e.offsets), "NoneType for pooled"),
        (
            lambda e: Encoded(e.pooled.requires_grad_(), e.tokens, e.pieces, e.offsets),
            "pooled without a gradient",
        ),
    ],
)
def test_encode_checked_says_what_came_in_place_of_tensors(
    change: Callable[[Encoded], Any], got: str
) -> None:
    assert got in refuse(change)


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


def test_hashing_gives_unit_rows() -> None:
    embedder = HashingEmbedder(48, 24)
    assert isinstance(embedder, Embedder)
    encoded = encode_checked(embedder, SAID)
    assert encoded.pooled.shape == (6, 48)
    torch.testing.assert_close(encoded.pooled.norm(dim=1), torch.ones(6))
    assert encoded.tokens is not None and encoded.pieces is not None and encoded.offsets is not None
    assert encoded.offsets.tolist() == [0, 3, 6, 9, 9, 9, 9]
    assert encoded.tokens.shape == (9, 24)
    norms = (encoded.tokens.float() / 127).norm(dim=1)
    assert bool(((norms - 1).abs() < 0.05).all())
    assert int(encoded.pieces.max()) < embedder.num_pieces


def test_hashing_makes_texts_of_shared_words_alike() -> None:
    pooled = HashingEmbedder(256).encode(SAID).pooled
    similar = pooled @ pooled.T
    assert similar[0, 1] > 0.6
    assert abs(float(similar[0, 2])) < 0.3
    encoded = HashingEmbedder().encode(SAID)
    assert encoded.pieces is not None
    # red canoe sank / canoe sink red
    assert encoded.pieces[0] == encoded.pieces[5]
    assert encoded.pieces[1] == encoded.pieces[3]


def test_hashing_each_text_by_itself_gives_the_same() -> None:
    embedder = HashingEmbedder()
    together = embedder.encode(SAID)
    assert together.offsets is not None and together.tokens is not None
    for i, text in enumerate(SAID):
        alone = embedder.encode([text])
        torch.testing.assert_close(alone.pooled[0], together.pooled[i])
        rows = slice(int(together.offsets[i]), int(together.offsets[i + 1]))
        assert alone.tokens is not None
        assert torch.equal(alone.tokens, together.tokens[rows])


def test_hashing_is_the_same_in_every_process() -> None:
    """Values of another process, whose hashes had another seed, are written down here."""
    mine = HashingEmbedder().encode(["red canoe"])
    assert mine.pieces is not None and mine.pieces.tolist() == [25512, 12669]
    written = torch.tensor([0.182662, 0, -0.182571, 0, 0.182571, 0.182571, 0.182571, 0])
    torch.testing.assert_close(mine.pooled[0, :8], written, rtol=0, atol=1e-6)


def test_hashing_nothing() -> None:
    encoded = encode_checked(HashingEmbedder(), [])
    assert encoded.pooled.shape == (0, 64)
    assert encoded.offsets is not None and encoded.offsets.tolist() == [0]


def test_hashing_many_characters() -> None:
    text = "all work and no play makes jack a dull boy " * 5_000
    encoded = encode_checked(HashingEmbedder(), [text, "x" * 200_000])
    assert encoded.offsets is not None
    assert encoded.offsets.tolist() == [0, 6 * 5_000, 6 * 5_000 + 1]
    short = HashingEmbedder().encode(["work play makes jack dull boy"]).pooled[0]
    torch.testing.assert_close(encoded.pooled[0] @ short, torch.tensor(1.0), atol=1e-3, rtol=0)


def test_load_embedder_by_name() -> None:
    assert load_embedder("hashing").dim == 64
    wide = load_embedder("hashing:96")
    assert (wide.dim, wide.name) == (96, "hashing:96")
    assert wide.fingerprint != load_embedder("hashing").fingerprint
    assert load_embedder("hashing", token_dim=0).encode(["a b c"]).tokens is None
    for bad in ("hashing:x", "hashing:0", "hashing:-3"):
        with pytest.raises(EmbedderError, match="expected"):
            load_embedder(bad)
    with pytest.raises(EmbedderError, match="got 0 and 1"):
        HashingEmbedder(0, 1)


def test_hashing_keeps_the_vectors_of_its_first_version() -> None:
    now = HashingEmbedder(256, 16)
    first = now.like("hashing-v1:256:16")
    assert (now.fingerprint, first.fingerprint) == ("hashing-v2:256:16", "hashing-v1:256:16")
    for other in (None, now.fingerprint, "hashing-v1:256:8", "st:1"):
        assert now.like(other) is now
    assert torch.equal(now.encode(SAID).pooled, first.encode(SAID).pooled)
    thai = ["ฉันชอบแมว", "แมวของฉัน"]
    new, old = (each.encode(thai).pooled for each in (now, first))
    assert float(new[0] @ new[1]) > float(old[0] @ old[1]) + 0.2


def test_thresholds_of_cosines_follow_the_background_of_the_encoder() -> None:
    generator = torch.Generator().manual_seed(0)

    def narrow(texts: list[str]) -> torch.Tensor:  # a cone around one axis
        rows = torch.randn(len(texts), 24, generator=generator)
        rows[:, 0] += 10.0
        return rows

    cone = PooledEmbedder("cone", "cone", 24, narrow)
    rows = torch.nn.functional.normalize(narrow(["text"] * 40), dim=1)
    cosines = (rows @ rows.T)[~torch.eye(40, dtype=torch.bool)]
    assert background_cosine(rows) == pytest.approx(float(cosines.mean()), abs=1e-6)
    assert 0.7 < cone.background < 0.9
    found = [rescaled(t, cone) for t in (0.1, 0.3, 0.92, 1.0, 1.5)]
    assert found[0] == pytest.approx(cone.background)
    assert found[0] < found[1] < found[2] < found[3] == 1.0
    assert found[4] == 1.5
    back = usual_cosine(torch.tensor(found[:4]), torch.full((4,), cone.background))
    assert back.tolist() == pytest.approx([0.1, 0.3, 0.92, 1.0], abs=1e-6)
    passed = [float((cosines >= t).float().mean()) for t in (0.3, found[1])]
    assert passed[0] == 1.0 and passed[1] < 0.5
    for plain in (HashingEmbedder(), Changed(lambda encoded: encoded)):
        assert rescaled(0.3, plain) == 0.3
