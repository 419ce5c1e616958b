"""Memories in eight languages: a clear match is found in each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from graphmem_torch.text.words import unread_share
from tests.languages import LANGUAGES
from tests.memories import config_of, ids, opened


@pytest.mark.parametrize("language", LANGUAGES)
def test_bm25_alone_finds_the_memory_that_answers(language: str) -> None:
    said, questions = LANGUAGES[language]
    config = load_config("default", {"link.concepts": "pattern"})
    rank = replace(config.rank, weights={"lexical": 1.0}, cold_weights={})
    with opened(config=replace(config, rank=rank)) as memory:
        memory.add([Atom(str(i), text) for i, text in enumerate(said)])
        results = memory.retrieve([question for question, _ in questions], k=1)
    assert [ids(result) for result in results] == [[str(answer)] for _, answer in questions]


class Illiterate(HashingEmbedder):
    """Reads nothing but ASCII: everything else is the same to it."""

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        return super().encode([re.sub(r"[^\x00-\x7f]+", "", text) for text in texts])

    def unread(self, texts: Sequence[str]) -> Tensor:
        return torch.tensor([unread_share(text, frozenset({"Latin"})) for text in texts])


@pytest.mark.parametrize("language", ["Chinese", "Thai", "Arabic"])
def test_words_decide_where_the_encoder_cannot_read(language: str) -> None:
    said, questions = LANGUAGES[language]
    with opened(config=config_of(), embedder=Illiterate(32)) as memory:
        memory.add([Atom(str(i), text) for i, text in enumerate(said)])
        results = memory.retrieve([question for question, _ in questions], k=1)
        assert [ids(result) for result in results] == [[str(answer)] for _, answer in questions]
        hit = memory.retrieve("A canoe?", k=1).hits[0]
        assert hit.signals["lexical_unread"] == 0.0
