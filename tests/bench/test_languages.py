"""The script that weighs BM25 where an encoder reads nothing."""

from __future__ import annotations

from bench.languages import Case, cases, right
from tests.languages import LANGUAGES
from tests.memory.test_languages import Illiterate


def test_answers_are_where_the_cases_say() -> None:
    every = list(cases())
    texts = {
        kind: [case for case in every if case.kind == kind] for kind in (c.kind for c in every)
    }
    answers = {
        kind: [case.said[place] for case in own for _, place in case.questions]
        for kind, own in texts.items()
    }
    alone = [said[place] for said, questions in LANGUAGES.values() for _, place in questions]
    for kind in ("alone", "beside English", "in an English frame", "all languages in one"):
        assert answers[kind] == alone
    for case in texts["a name in English"]:
        name = case.said[-1]
        assert all(
            name in question and name in case.said[place] for question, place in case.questions
        )
        assert sum(name in text for text in case.said) == 5


def test_words_count_for_what_is_not_read() -> None:
    said, questions = LANGUAGES["Hindi"]
    found = right(Illiterate(32), [0.0, 20.0], [Case("alone", said, questions)])
    assert found["alone"]["n"] == found["alone"]["20"] == len(questions) > found["alone"]["0"]
