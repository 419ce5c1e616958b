"""Recall against cost on texts without questions."""

from __future__ import annotations

import json

import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.quality.modes.scale import measure_scale
from graphmem_torch.quality.modes.source import Source, sentences
from graphmem_torch.text.sentence_transformer import load_embedder
from tests.bench.quality.made import novel


def test_measure_scale_on_made_up_texts() -> None:
    texts = novel(90)
    embedder = load_embedder("hashing:32", "cpu")
    source = Source(embedder.encode(texts).pooled.float(), texts, embedder)
    report = measure_scale(source, resamples=20, rounds=(2, 1))
    assert report["n"] == {"held_out": 9, "rows": [81]}
    (part,) = report["sizes"]
    assert part["rows"] == 81 and part["width"] == 32
    assert part["flat"]["agreement"] == [1.0, 1.0, 1.0]
    assert part["flat"]["read"] == 81
    assert {(m["asked"], m["assign"]) for m in part["modes"]} == {
        (9, "kmeans"),
        (9, "sign"),
        (9, "varimax"),
        (50, "kmeans"),
    }
    for index in (*part["modes"], *part["ivf"]):
        last = index["points"][-1]
        assert last["searched"] == index["count"]
        assert last["agreement"] == [1.0, 1.0, 1.0]
        assert last["known_item"] == part["flat"]["known_item"]
        assert last["read"] == index["count"] + 81
        assert all(p["ms_one"] > 0 and p["faster_batch"] > 0 for p in index["points"])
    # More modes than the vectors have dimensions are not to be had.
    assert [m["axes"] for m in part["modes"] if m["asked"] == 50] == [32]
    json.dumps(report, allow_nan=False)
    with pytest.raises(InputError, match="at least 20"):
        measure_scale(Source(source.vectors[:19], texts[:19], embedder))


def test_sentences_know_the_text_they_are_from() -> None:
    texts = [
        "One. Two is not long enough. The third one is long enough to be asked for! Four.",
        "Only a single sentence, which is therefore passed over.",
        "First here. Second here. Third here.",
    ]
    found, origin = sentences(texts, torch.tensor([2, 0, 1]))
    assert found == ["Two is not long enough."] and origin.tolist() == [0]
