"""Terms of texts, their numbers, and the terms of a title."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from graphmem_torch.text.terms import (
    STOP_WORDS,
    Vocabulary,
    first_terms,
    shared_words,
    terms,
    title_terms,
)
from tests.languages import LANGUAGES


def test_terms_are_stemmed_and_leave_out_stop_words() -> None:
    text = "I don't think Melanie\u2019s kids were RUNNING to the camp-fires in 2023, isn't it?"
    assert terms(text) == ["think", "melani", "kid", "run", "camp", "fire", "2023"]
    assert terms("running runs run") == ["run"] * 3


def test_terms_of_no_words() -> None:
    assert terms("") == []
    assert terms("... !? the it's") == []
    assert terms(" ".join(STOP_WORDS)) == []


def test_terms_of_other_alphabets() -> None:
    found = ["žižek", "trinkt", "full", "width", "東", "京", "東京"]
    assert terms("Žižek trinkt Ｆｕｌｌ-width 東京") == found
    assert terms("running in 上海, slowly") == ["run", "上", "海", "上海", "slowli"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("кошки", "кошка"),
        ("الميزانية", "ميزانية"),
        ("كِتَاب", "كتـــاب"),
        ("किताबें", "किताब"),
        ("γάτες", "γάτα"),
        ("Die Katzen sind bei ihr", "die Katze ist nicht da"),
        ("STRASSE, und er ist hier mit mir", "Straße und ich bin es nicht"),
        ("Les chats sont avec nous", "où est le chat, et pourquoi"),
    ],
)
def test_forms_of_a_word_share_a_term(one: str, other: str) -> None:
    assert set(terms(one)) & set(terms(other))


def test_another_language_adds_its_stem_to_that_of_english() -> None:
    assert terms("Thomas wohnt jetzt nicht mehr bei den Katzen") == [
        *["thoma", "thomas", "wohnt", "katzen", "katz"]
    ]
    assert terms("Thomas") == ["thoma"]


def test_first_terms_take_everything_for_english() -> None:
    assert first_terms("The runs of кошки in 東京 don\u2019t hide") == [
        "run",
        "кошки",
        "東京",
        "hide",
    ]
    assert first_terms("running it's") == terms("running it's") == ["run"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_bm25_of_terms_finds_the_memory_that_answers(language: str) -> None:
    memories, questions = LANGUAGES[language]
    documents = [Counter(terms(text)) for text in memories]
    mean = sum(map(Counter.total, documents)) / len(documents)

    def score(question: str, document: Counter[str]) -> float:
        found = 0.0
        for term in terms(question):
            df = sum(term in each for each in documents)
            idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
            norm = document[term] + 1.2 * (0.7 + 0.3 * document.total() / mean)
            found += idf * document[term] * 2.2 / norm
        return found

    for question, answer in questions:
        scores = [score(question, document) for document in documents]
        others = scores[:answer] + scores[answer + 1 :]
        assert scores[answer] > max(others), question


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
    padded, missing = vocabulary.encode_padded(["yellow boat", "", "red red boat"])
    assert padded.tolist() == [[0, -1, -1], [-1, -1, -1], [1, 1, 0]]
    assert missing.tolist() == [1.0, 0.0, 0.0]
    assert vocabulary.encode_padded([])[0].shape == (0, 1)


def test_vocabulary_survives_its_bytes() -> None:
    vocabulary = Vocabulary()
    vocabulary.encode(["red boats in 東京", "blue"])  # red boat 東 京 東京 blue
    again = Vocabulary.from_bytes(vocabulary.to_bytes())
    assert again.encode(["tokyo 東京 red"], grow=False)[0].tolist() == [2, 3, 4, 0]
    assert len(again) == len(vocabulary)
    assert len(Vocabulary.from_bytes(Vocabulary().to_bytes())) == 0


TITLES = {
    "Marie Curie\nA physicist.": ["mari", "curi"],
    "Titanic (1997 film)\nA film.": ["titan"],
    "The Who\nA band.": [],
    "Café Müller\nA dance by Pina Bausch.": ["café", "müller"],
    "Die Brüder Katzen\nSie sind nicht von hier und haben kein Haus.": [
        *["brüder", "brud", "katzen", "katz"]
    ],
    "北京\n北京是中国的首都。": ["北", "京", "北京"],
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


@pytest.mark.parametrize(
    ("text", "question", "expected"),
    [
        (
            "Nora restored the OLD oven; restoring is fun.",
            "Who restored ovens?",
            ["restored", "oven"],
        ),
        ("Nora’s kiln", "the kiln of Nora", ["Nora's", "kiln"]),
        ("我在北京大学读书", "北京大学", ["北京大学"]),
        ("Die Brüder Katzen sind nicht von hier.", "Bruder Katze Katzen", ["Katzen"]),
        ("nothing at all", "kiln", []),
        ("", "kiln", []),
    ],
)
def test_shared_words_are_as_the_text_writes_them(
    text: str, question: str, expected: list[str]
) -> None:
    weights = dict.fromkeys(terms(question), 1.0)
    assert [word for word, _ in shared_words(text, weights)] == expected
    assert bool(expected) == bool({*terms(text)} & {*weights})


def test_shared_words_come_by_weight() -> None:
    weights = {"comet": 1.0, "kite": 3.0, "saddl": 2.0}
    found = shared_words("a comet, a saddle, a kite, saddles", weights)
    assert found == [("kite", 3.0), ("saddle", 2.0), ("comet", 1.0)]
