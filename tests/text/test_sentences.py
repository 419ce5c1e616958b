"""Sentences against what a reader sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.text.sentences import ends_sentence, split_at_marks, split_sentences

CASES = [
    ["The canoe sank. ", "Ada swam ashore! ", "Who saw it?"],
    ["It was founded by G. Stanley Hall in 1892. ", "He led it."],
    ["The U.S. Navy came, e.g. from Maine. ", "Dr. Ray waved."],
    ['"Go." ', "He went (at last). ", "[2] says so."],
    ["At 3 p.m. he left.\n\n", "A new paragraph"],
    ["A heading\n", "Its text begins here and\nruns on over the line. ", "Done."],
    ["1. One item.\n", "2. Another: 3.5 kg of it.\n", "- A third"],
    ["It cost 3.50 in all. ", "2019 was better."],
    ["彼は来た。", "そして去った！", "誰？"],
    ["no capital. no end"],
    ["Wait… ", "What?! ", "Nothing."],
]


@pytest.mark.parametrize("parts", CASES, ids=lambda parts: parts[0][:16])
def test_split_sentences(parts: list[str]) -> None:
    assert split_sentences("".join(parts)) == parts


@given(st.text(alphabet="aB1. \n!?)\"'é。", max_size=80))
def test_split_sentences_join_to_the_text(text: str) -> None:
    parts = split_sentences(text)
    assert "".join(parts) == text
    assert all(parts)


def test_split_sentences_of_nearly_nothing() -> None:
    assert split_sentences("") == []
    assert split_sentences(" \n ") == [" \n "]
    assert split_sentences("...") == ["..."]


@pytest.mark.parametrize("unit", [" ", "\n", ".", ". ", "a.", "\n ", '"', "A. ", "1. ", "。"])
def test_split_sentences_of_a_long_run_takes_no_long_time(unit: str) -> None:
    text = "x" + unit * 50_000 + "y"
    assert "".join(split_sentences(text)) == text


def test_split_at_marks_is_plain() -> None:
    assert split_at_marks("See Dr. Who? no.  Yes; 3.5 kg") == [
        "See Dr.",
        "Who?",
        "no.",
        "Yes; 3.5 kg",
    ]
    assert split_at_marks("Yes; 3.5 kg", ".;") == ["Yes;", "3.5 kg"]
    assert split_at_marks("") == [""]


def test_ends_sentence_looks_through_what_closes() -> None:
    assert all(map(ends_sentence, ("So.", 'She said "no!"', "(Really?)", "誰？", "Wait…")))
    assert not any(map(ends_sentence, ("", "so", "3.5", '"', "a, ")))
