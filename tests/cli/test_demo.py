"""The demonstration shows what it computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.text.embedder import HashingEmbedder

DATA = Path(__file__).parents[2] / "graphmem_torch" / "demo_data"


def test_demo_compares_what_it_computed(
    reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = reply("demo", "-k", "4")
    assert shown["turns"] == 100 and shown["context"]["tokens"] <= shown["context"]["budget"]
    turns = set()
    for comparison in shown["comparisons"]:
        assert len(comparison["flat"]) == len(comparison["graph"]["hits"]) == 4
        turns |= set(comparison["flat"]) | {hit["id"] for hit in comparison["graph"]["hits"]}
    assert len(turns) > 20, "every question got the same answer"
    assert main(["demo", "-k", "4", *fast]) == 0
    out = capsys.readouterr().out
    assert "flat" in out and "graph memory" in out


def test_demo_flat_search_is_the_cosine_of_the_same_vectors(
    reply: Callable[..., Any],
) -> None:
    shown = reply("demo")
    turns = [
        json.loads(line) for line in (DATA / "conversation.jsonl").read_text("utf-8").splitlines()
    ]
    embedder = HashingEmbedder()
    texts = [f"{turn['speaker']}: {turn['text']}" for turn in turns]
    vectors = embedder.encode(texts).pooled.numpy()
    for comparison in shown["comparisons"][:4]:
        cosines = vectors @ embedder.encode([comparison["question"]]).pooled.numpy()[0]
        best = np.sort(cosines)[::-1][: shown["k"]]
        ids = [turn["id"] for turn in turns]
        mine = [cosines[ids.index(i)] for i in comparison["flat"]]
        np.testing.assert_allclose(mine, best, atol=1e-5)


def test_demo_evidence_names_turns_of_the_conversation() -> None:
    turns = [json.loads(line) for line in (DATA / "conversation.jsonl").open()]
    questions = [json.loads(line) for line in (DATA / "questions.jsonl").open()]
    ids = [turn["id"] for turn in turns]
    assert len(set(ids)) == len(ids) == 100
    assert all(set(question["evidence"]) <= set(ids) for question in questions)
