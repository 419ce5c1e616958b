"""Needles: where they are placed, and how chains and arms are made."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.quality.context.facts import LITERAL, PARAPHRASED, Needle, make_chains
from graphmem_torch.quality.context.hops import ARMS, arm_weights
from graphmem_torch.quality.context.needles import (
    BUDGETS,
    Essay,
    _figures,
    _run,
    place_needles,
    read_essays,
)
from graphmem_torch.text.sentence_transformer import load_embedder


def _essay(name: str, count: int) -> Essay:
    return Essay(name, tuple(f"{name} {i}." for i in range(count)), (4,) * count)


def test_place_needles_at_their_depths() -> None:
    needles = [Needle(f"N{i}.", "?") for i in range(3)]
    placed = place_needles([_essay("a", 5), _essay("b", 5)], 1000, [0.0, 0.5, 1.0], needles)
    assert placed == [
        ("a", "N0. a 0. a 1. a 2. a 3. a 4."),
        ("b", "N1. b 0. b 1. b 2. b 3. b 4. N2."),
    ]


def test_place_needles_cuts_text_at_the_length() -> None:
    placed = place_needles([_essay("a", 5), _essay("b", 5)], 27, [1.0], [Needle("N.", "?")])
    assert placed == [("a", "a 0. a 1. a 2. a 3. a 4."), ("b", "b 0. N.")]
    shortest = place_needles([_essay("a", 5)], 1, [0.0], [Needle("N.", "?")])
    assert shortest == [("a", "N. a 0.")]


def test_place_needles_in_order_for_any_length() -> None:
    depths = [i / 10 for i in range(11)]
    needles = [Needle(f"<{i}>", "?") for i in range(11)]
    for length in (10, 50, 77, 400):
        texts = place_needles([_essay("a", 30), _essay("b", 70)], length, depths, needles)
        whole = " ".join(text for _, text in texts)
        places = [whole.index(f"<{i}>") for i in range(11)]
        assert all(before < after for before, after in pairwise(places))


def test_read_essays_by_sentences(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "b.txt").write_text("One. Two!\nThree?", encoding="utf-8")
    essays = read_essays(tmp_path)
    assert [essay.name for essay in essays] == ["b"]
    assert essays[0].sentences == ("One.", "Two!", "Three?")
    assert all(count > 0 for count in essays[0].tokens)


def test_read_essays_tells_an_empty_one_and_none_are_none(tmp_path: Path) -> None:
    assert read_essays(tmp_path) == []
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    with pytest.raises(InputError, match="empty"):
        read_essays(tmp_path)


def test_needle_that_is_not_there_is_not_found() -> None:
    config = load_config("default", {"link.concepts": "none", "embedder.max_tokens": 24})
    hidden = [Needle("The bell of Kestrel is made of tin.", "What is the bell of Kestrel made of?")]
    texts = place_needles([_essay("a", 400)], 2000, [0.5], hidden)
    found = _run(texts, hidden, config, load_embedder("hashing"), "cpu")
    assert found.tolist() == [[[True]] * len(BUDGETS)] * 2
    absent = [replace(hidden[0], text="The bell of Kestrel is made of brass.")]
    assert not bool(_run(texts, absent, config, load_embedder("hashing"), "cpu").any())


def test_needle_figures_by_hand() -> None:
    found = torch.ones(2, len(BUDGETS), 3, 2, 4).double()
    # At 200 tokens vector search misses needle 1 everywhere: at depth 1, and turned by 2 at 3.
    found[1, 0, :, 0, 1] = found[1, 0, :, 1, 3] = 0
    figures = _figures(found, [0, 2], seed=0)
    assert figures["share"] == {"200": 1.0, "512": 1.0}
    assert figures["full"]["200"] == figures["of"] == 12
    assert figures["vector"]["share"]["200"] == pytest.approx(0.75)
    assert figures["vector"]["cells"]["200"] == [[1.0, 0.5, 1.0, 0.5]] * 3
    assert figures["vector"]["full"]["200"] == 6
    mean, low, high = figures["difference"]["200"]
    # One needle of four: drawn again it may be there never or in half of the draws and more.
    assert mean == pytest.approx(0.25) and low == 0.0 and high >= 0.5
    assert figures["difference"]["512"] == [0.0, 0.0, 0.0]


def test_needles_are_enough_for_every_depth() -> None:
    assert len(LITERAL) == len(PARAPHRASED)
    assert len({needle.text for needle in LITERAL + PARAPHRASED}) == 2 * len(LITERAL)


def test_make_chains_asks_for_the_first_fact_and_not_the_second() -> None:
    chains = make_chains(50, seed=1)
    assert chains == make_chains(50, seed=1)
    assert chains != make_chains(50, seed=2)
    bridges = set()
    for chain in chains:
        first, second, asked = (
            {word.strip(".?,'s") for word in text.split() if word[0].isupper()}
            for text in (chain.first, chain.second, chain.question)
        )
        bridge = (first & second) - asked
        assert len(bridge) == 1, chain
        bridges |= bridge
        assert first & asked
    assert len(bridges) == 50


def test_arm_weights_split_the_weights() -> None:
    weights = {"semantic_positive": 50.0, "decayed_pagerank": 10.0}
    arms = {arm: arm_weights(weights, arm) for arm in ARMS}
    assert arms == {
        "vector only": {"semantic_positive": 50.0, "decayed_pagerank": 0.0},
        "graph only": {"semantic_positive": 0.0, "decayed_pagerank": 10.0},
        "unseeded graph": {"semantic_positive": 0.0, "decayed_pagerank": 0.0, "pagerank": 1.0},
        "hybrid": weights,
        "graph x 10": {"semantic_positive": 50.0, "decayed_pagerank": 100.0},
    }
    assert arm_weights({"semantic": 1.0}, "graph only") is None
