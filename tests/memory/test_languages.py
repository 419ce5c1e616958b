"""Memories in eight languages: a clear match is found in each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from tests.languages import LANGUAGES
from tests.memories import ids, opened


@pytest.mark.parametrize("language", LANGUAGES)
def test_bm25_alone_finds_the_memory_that_answers(language: str) -> None:
    said, questions = LANGUAGES[language]
    config = load_config("default", {"link.concepts": "pattern"})
    rank = replace(config.rank, weights={"lexical": 1.0}, cold_weights={})
    with opened(config=replace(config, rank=rank)) as memory:
        memory.add([Atom(str(i), text) for i, text in enumerate(said)])
        results = memory.retrieve([question for question, _ in questions], k=1)
    assert [ids(result) for result in results] == [[str(answer)] for _, answer in questions]
