"""Terms of texts, their numbers, and the terms of a title."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.text.terms import STOP_WORDS, Vocabulary, terms, title_terms


def test_terms_are_stemmed_and_leave_out_stop_words() -> None:
    text = "I don't think Melanie\u2019s kids were RUNNING to the camp-fires in 2023, isn't it?"
    assert terms(text) == ["think", "melani", "kid", "run", "camp", "fire", "2023"]
    assert terms("running runs run") == ["run"] * 3


def test_terms_of_no_words() -> None:
    assert terms("") == []
    assert terms("... !? the it's") == []
    assert terms(" ".join(STOP_WORDS)) == []


def test_terms_of_other_alphabets() -> None:
    assert terms("Žižek trinkt Ｆｕｌｌ-width 東京") == ["žižek", "trinkt", "full", "width", "東京"]


def test_vocabulary_numbers_terms_as_they_come() -> None:
    vocabulary = Vocabulary()
    ids, offsets = vocabulary.encode(["red boats", "", "a boat, red or blue"])
    assert ids.tolist() == [0, 1, 1, 0, 2]
    assert offsets.tolist() == [0, 2, 2, 5]
    assert (ids.dtype, offsets.dtype) == (torch.int64, torch.int64)
    more, _ = vocabulary.encode(["green boat"])
    assert more.tolist() == [3, 1]
    assert len(vocabulary) == 4


def test_vocabulary_does_not_grow_by_questions() -> None:
    vocabulary = Vocabulary(["boat", "red"])
    ids, offsets = vocabulary.encode(["yellow boat", "red red boat"], grow=False)
    assert ids.tolist() == [0, 1, 1, 0]
    assert offsets.tolist() == [0, 1, 4]
    assert len(vocabulary) == 2
    padded = vocabulary.encode_padded(["yellow boat", "", "red red boat"])
    assert padded.tolist() == [[0, -1, -1], [-1, -1, -1], [1, 1, 0]]
    assert vocabulary.encode_padded([]).shape == (0, 1)


def test_vocabulary_survives_its_bytes() -> None:
    vocabulary = Vocabulary()
    vocabulary.encode(["red boats in 東京", "blue"])
    again = Vocabulary.from_bytes(vocabulary.to_bytes())
    assert again.encode(["tokyo 東京 red"], grow=False)[0].tolist() == [2, 0]
    assert len(again) == len(vocabulary)
    assert len(Vocabulary.from_bytes(Vocabulary().to_bytes())) == 0


TITLES = {
    "Marie Curie\nA physicist.": ["mari", "curi"],
    "Titanic (1997 film)\nA film.": ["titan"],
    "The Who\nA band.": [],
    "Café Müller\nA dance by Pina Bausch.": ["café", "müller"],
    "  Ada Lovelace  \n\nShe wrote programs.": ["ada", "lovelac"],
}


@pytest.mark.parametrize("text", TITLES)
def test_title_terms_are_the_first_terms_of_the_text(text: str) -> None:
    assert terms(text)[: title_terms(text)] == TITLES[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Marie Curie",
        "Marie Curie\n \n",
        "\nMarie Curie",
        "I went home.\nThen I slept.",
        "She asked me:\nwhere?",
        "one two three four five six seven eight nine ten eleven twelve thirteen\nand more",
    ],
)
def test_title_terms_of_texts_without_a_title(text: str) -> None:
    assert title_terms(text) == -1
