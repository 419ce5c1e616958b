"""Words and their opposites."""

from __future__ import annotations

import itertools

import pytest

from graphmem_torch.judge.opposites import are_opposed, is_polar, opposites, without_prefix

POLAR = [("open", "closed"), ("locked", "unlocked"), ("online", "offline"), ("on", "off")]
POLAR += [("single", "married"), ("safe", "unsafe"), ("visible", "invisible"), ("win", "lose")]
LIKE = [("open", "open"), ("big", "large"), ("red", "blue"), ("interest", "rest"), ("uncle", "cle")]
LIKE += [("", ""), ("", "un"), ("under", "der"), ("🎉", "🎈")]


@pytest.mark.parametrize(("one", "other"), POLAR)
def test_what_one_is_the_other_is_not(one: str, other: str) -> None:
    assert are_opposed(one, other) and are_opposed(other, one)


@pytest.mark.parametrize(("one", "other"), LIKE)
def test_words_that_are_no_opposites(one: str, other: str) -> None:
    assert not are_opposed(one, other) and not are_opposed(other, one)


def test_opposition_is_symmetric_and_of_no_word_with_itself() -> None:
    words = [*opposites()]
    for one, other in itertools.product(words, words):
        assert are_opposed(one, other) == are_opposed(other, one)
    assert not any(are_opposed(word, word) for word in words)
    assert all(map(is_polar, words))


def test_a_prefix_is_taken_off_where_a_word_is_left() -> None:
    assert without_prefix("unlocked") == "locked"
    assert without_prefix("non-smoker") == "smoker"
    assert without_prefix("into") == "into", "two letters are no word"
