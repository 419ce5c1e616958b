from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from graphmem_torch.errors import EmbedderError
from graphmem_torch.text import Embedder, HashingEmbedder, encode_checked, load_embedder

TEXTS = ["The red canoe sank.", "canoes sinking, red!", "Taxes are due in April.", "", "the", "?!"]


def test_hashing_gives_unit_rows() -> None:
    embedder = HashingEmbedder(48, 24)
    assert isinstance(embedder, Embedder)
    encoded = encode_checked(embedder, TEXTS)
    assert encoded.pooled.shape == (6, 48)
    torch.testing.assert_close(encoded.pooled.norm(dim=1), torch.ones(6))
    assert encoded.tokens is not None and encoded.pieces is not None and encoded.offsets is not None
    assert encoded.offsets.tolist() == [0, 3, 6, 9, 9, 9, 9]
    assert encoded.tokens.shape == (9, 24)
    norms = (encoded.tokens.float() / 127).norm(dim=1)
    assert bool(((norms - 1).abs() < 0.05).all())
    assert int(encoded.pieces.max()) < embedder.num_pieces


def test_hashing_makes_texts_of_shared_words_alike() -> None:
    pooled = HashingEmbedder(256).encode(TEXTS).pooled
    similar = pooled @ pooled.T
    assert similar[0, 1] > 0.6
    assert abs(float(similar[0, 2])) < 0.3
    encoded = HashingEmbedder().encode(TEXTS)
    assert encoded.pieces is not None
    # red canoe sank / canoe sink red
    assert encoded.pieces[0] == encoded.pieces[5]
    assert encoded.pieces[1] == encoded.pieces[3]


def test_hashing_each_text_by_itself_gives_the_same() -> None:
    embedder = HashingEmbedder()
    together = embedder.encode(TEXTS)
    assert together.offsets is not None and together.tokens is not None
    for i, text in enumerate(TEXTS):
        alone = embedder.encode([text])
        torch.testing.assert_close(alone.pooled[0], together.pooled[i])
        rows = slice(int(together.offsets[i]), int(together.offsets[i + 1]))
        assert alone.tokens is not None
        assert torch.equal(alone.tokens, together.tokens[rows])


def test_hashing_is_the_same_in_another_process() -> None:
    code = (
        "from graphmem_torch.text import HashingEmbedder as H;"
        "e = H().encode(['red canoe']); print(e.pooled[0, :8].tolist(), e.pieces.tolist())"
    )
    run = [sys.executable, "-c", code]
    mine = HashingEmbedder().encode(["red canoe"])
    assert mine.pieces is not None
    expected = f"{mine.pooled[0, :8].tolist()} {mine.pieces.tolist()}"
    assert (
        subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() == expected
    )


def test_hashing_nothing() -> None:
    encoded = encode_checked(HashingEmbedder(), [])
    assert encoded.pooled.shape == (0, 64)
    assert encoded.offsets is not None and encoded.offsets.tolist() == [0]


def test_hashing_a_million_characters() -> None:
    text = "all work and no play makes jack a dull boy " * 23_256
    encoded = encode_checked(HashingEmbedder(), [text, "x" * 1_000_000])
    assert encoded.offsets is not None
    assert encoded.offsets.tolist() == [0, 6 * 23_256, 6 * 23_256 + 1]
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
