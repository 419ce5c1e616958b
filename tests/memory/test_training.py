"""The tutorial of `docs/training.md` 1 and 2 as it stands, and what it says of settings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory
from graphmem_torch.rank.registry import weight_table
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import QUESTIONS, WORDS, config_of, ids, opened, turns


@pytest.fixture(scope="module")
def ran(root: Path) -> dict[str, Any]:
    """Return the variables after the blocks of the page."""
    page = (root / "docs" / "training").with_suffix(".md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"words": WORDS}
    torch.compiler.reset()  # else `forward`, compiled for others' shapes, is compiled for any
    for block in re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "tutorial", "exec"), names)
    return names


def test_the_loop_of_the_tutorial_learns(ran: dict[str, Any]) -> None:
    losses, memory, index = ran["losses"], ran["memory"], ran["index"]
    assert losses[-1] < 0.8 * losses[0]
    assert all(later < losses[0] for later in losses[-5:])
    learned = {name: value for name, value in index.named_parameters() if value.grad is not None}
    assert {"weights", "edge_gains", "constants.spread"} <= learned.keys()
    assert memory.config.rank.weights == index.settings.rank.weights
    torch.testing.assert_close(memory.index.weights, index.weights.detach())


def test_compiled_and_exported_find_the_same(ran: dict[str, Any]) -> None:
    found = ran["small"](ran["asked"], k=3)
    assert len(ran["small"].graph.source) > 200
    for run in (ran["compiled"], ran["program"].module()):
        for part, expected in zip(run(ran["asked"], k=3), found, strict=True):
            torch.testing.assert_close(part, expected)


@pytest.mark.parametrize("preset", ["default", "synapse"])
def test_settings_say_what_was_learned(preset: str) -> None:
    config = load_config(preset, {"link.concepts": "pattern", "spread.max_edges": 500})
    # PageRank is that of the graph as it was when the index was made.
    weights = {n: w for n, w in config.rank.weights.items() if n != "pagerank"}
    config = replace(config, rank=replace(config.rank, weights=weights))
    with Memory.open(config=config, embedder=HashingEmbedder(32)) as memory:
        memory.add(turns(30))
        index = memory.index
        assert weight_table(index.settings.rank.weights).allclose(index.weights.cpu())
        assert index.settings.spread.edges == pytest.approx(dict(config.spread.edges))
        with torch.no_grad():
            for value in index.parameters():
                drawn = torch.rand(value.shape, generator=torch.Generator().manual_seed(1))
                value *= 0.6 + 0.3 * drawn.to(value.device)
        with torch.inference_mode():
            query = memory.tensors.encode(QUESTIONS)
            trained = index(query, k=9)
        with Memory.open(config=index.settings, embedder=HashingEmbedder(32)) as other:
            other.add(turns(30))
            with torch.inference_mode():
                again = other.index(other.tensors.encode(QUESTIONS), k=9)
        torch.testing.assert_close(again.scores, trained.scores, rtol=1e-4, atol=1e-4)


def test_settings_of_a_memory_without_a_graph() -> None:
    with opened(config=config_of(**{"rank.cold_weights": {"semantic": 1.0}})) as memory:
        memory.add("The only note")
        with torch.no_grad():
            memory.index.weights += 1.0
        assert memory.index.settings.rank.cold_weights == {"semantic": 2.0}
        assert memory.index.settings.rank.weights == memory.config.rank.weights
        assert len(ids(memory.retrieve("note"))) == 1
