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
from graphmem_torch.memory import Scope
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from graphmem_torch.text.models import reference_texts
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


ENGLISH = [
    "The boiler was repaired by Mr Hoffman on Tuesday.",
    "My brother keeps two goats called Pip and Moss.",
    "Anna is allergic to peanuts.",
    "The meeting about the budget is next Wednesday.",
]


@pytest.mark.parametrize("language", LANGUAGES)
def test_nobody_can_tell_what_a_question_in_another_language_asks_of_english(language: str) -> None:
    questions = [question for question, _ in LANGUAGES[language][1]]
    with opened(config=config_of()) as memory:
        memory.add([Atom(str(i), text) for i, text in enumerate(ENGLISH)])
        found = memory.retrieve(questions)
        assert all(result.known is None and result.hits for result in found)
        assert all("cannot tell" in repr(result) for result in found)
        assert {result.as_dict()["known"] for result in found} == {None}
        written = memory.compile(questions, budget=200)
        assert all(context.known is None for context in written)
        assert memory.retrieve("Who is allergic to peanuts?").known is True


def test_the_gate_judges_what_may_be_a_hit() -> None:
    others = ["The tide turns at six.", "It thundered all night.", "The bread is baked at noon."]
    with opened(config=config_of()) as memory:
        memory.add([Atom("a", "Bertrand owns the red car in Porto.", speaker="Nora")])
        memory.add([Atom(f"t{i}", text, speaker="Theo") for i, text in enumerate(others)])
        asked = "Who owns the red car in Porto?"
        assert memory.retrieve(asked).known is True
        for narrow in (
            {"where": {"speaker": "Theo"}},
            {"scope": Scope(exclude=["a"])},
            {"scope": Scope(kinds=["observation"])},
        ):
            found = memory.retrieve(asked, **narrow)
            alone = [hit.id for hit in found.hits]
            assert "a" not in alone and found.known is False and found.confidence < 0.2
            assert memory.compile(asked, budget=200, **narrow).known is False


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_tell_where_question_and_memory_are_of_one_language(language: str) -> None:
    said, questions = LANGUAGES[language]
    with opened(config=config_of()) as memory:
        memory.add([Atom(str(i), text) for i, text in enumerate(said)])
        found = memory.retrieve([question for question, _ in questions])
    for result in found:
        # Never a refusal, and a record only where a hit has many of the words.
        assert result.known is (True if result.confidence >= 0.35 else None)
    assert sum(result.known is True for result in found) >= len(found) // 2


def test_a_second_check_decides_what_the_gate_cannot_tell() -> None:
    question = LANGUAGES["Chinese"][1][0][0]
    with opened(config=config_of()) as memory:
        memory.add([Atom(str(i), text) for i, text in enumerate(ENGLISH)])

        def known(said: bool | None) -> tuple[bool | None, bool | None]:
            result = memory.retrieve(question, oracle=lambda asked, texts: [said] * len(asked))
            return result.known, result.verified

        assert known(True) == (True, True)
        assert known(False) == (False, False)
        assert known(None) == (None, None)
        answer = memory.answer(
            question, llm=lambda prompt: "Pip", oracle=lambda asked, texts: [None] * len(asked)
        )
        assert answer.text == "Pip" and answer.context.known is None


def test_a_gate_that_never_closes_is_never_in_doubt() -> None:
    config = replace(config_of(), gate=replace(config_of().gate, threshold=0.0))
    with opened(config=config) as memory:
        memory.add([Atom("a", ENGLISH[0])])
        assert memory.retrieve(LANGUAGES["Chinese"][1][0][0]).known is True
    with opened(config=config_of()) as memory:  # nothing is stored: there is no record
        assert memory.retrieve(LANGUAGES["Chinese"][1][0][0]).known is False


class Leaning(HashingEmbedder):
    """Every text leans the same way, as of encoders whose vectors lie in a narrow cone."""

    lean = 0.0

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        plain = super().encode(texts)
        cone = torch.zeros(self.dim)
        cone[0] = self.lean
        pooled = torch.nn.functional.normalize(plain.pooled + cone, dim=1)
        return Encoded(pooled, plain.tokens, plain.pieces, plain.offsets)


def test_what_unrelated_texts_reach_is_read_with_the_encoder_of_the_memory() -> None:
    found = {}
    for lean in (0.0, 2.0):
        embedder = Leaning(64)
        embedder.lean, embedder.fingerprint = lean, f"leaning:{lean}"
        with opened(config=config_of(), embedder=embedder) as memory:
            memory.add([Atom(str(i), text) for i, text in enumerate(ENGLISH)])
            asked = ["Who in it is allergic,", "when is the budget meeting held?"]
            query = memory.tensors.encode(" and ".join(asked))
            vectors = embedder.encode(reference_texts()[::6]).pooled
            best = [max(float(v @ a) for a in memory.index.embeddings) for v in vectors]
            assert query.nearest is not None and query.wishes is not None
            assert float(query.nearest) == pytest.approx(sum(best) / len(best), abs=1e-5)
            wishes = embedder.encode(asked)
            torch.testing.assert_close(query.wishes, wishes.pooled[None])
            found[lean] = float(query.nearest)
            memory.add([Atom("reference", reference_texts()[0])])  # one of the texts itself
            assert float(memory.tensors.encode("Who?").nearest) > float(query.nearest)
    assert found[2.0] > 0.7 > 0.5 > found[0.0]
