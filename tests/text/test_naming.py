"""Parts of names, and what texts show of names of persons."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.text.naming import (
    Naming,
    are_alike,
    articled,
    may_be_short_for,
    name_parts,
    namings,
    persons,
    word_uses,
)

TWO = [
    ("asr1603 chip", "asr1605 chip"),
    ("chapter 3", "chapter 4"),
    ("formula 1", "formula 2"),
    ("nora berg", "nora bergh"),
    ("michael jordan", "michael b. jordan"),
    ("gpt-3", "gpt-4"),
    ("section 230", "section 240"),
    ("boeing 737", "boeing 747"),
    ("python 3.1", "python 3.10"),
    ("python 3.10", "python 310"),
    ("world war i", "world war ii"),
    ("first draft", "second draft"),
    ("plan a", "plan b"),
    ("vitamin a", "vitamin"),
    ("an nguyen", "nguyen"),
    ("a smith", "smith"),
    ("the edge", "edge"),
    ("an alpha romero", "alpha romero"),
    ("maria", "mario"),
    ("adams", "adam"),
    ("mr. smith", "mrs. smith"),
    ("north korea", "south korea"),
    ("iphone pro", "iphone pro max"),
    ("may 2023", "may 2024"),
    ("march 1", "may 1"),
    ("c++", "c"),
    ("disney+", "disney"),
    ("иван", "иванов"),
    ("東京", "京都"),
    ("が", "か"),
    ("й", "и"),
]
ONE = [
    ("ice cream", "ice-cream"),
    ("ICE Cream", "ice cream"),
    ("the rolling stones", "rolling stones"),
    ("josé martínez", "jose martinez"),
    ("jose\u0301", "josé"),
    ("anna's bakery", "anna bakery"),
    ("artist 's cut", "artist\u2019s cut"),
    ("covid-19", "covid 19"),
    ("gpt3", "gpt-3"),
    ("ckhl - fm", "ckhl fm"),
    ("u.s. navy", "us navy"),
    ("st. louis", "st louis"),
    ("johnson & johnson", "johnson and johnson"),
]
WORDS = st.sampled_from(["berg", "room", "101", "3.12", "ii", "b", "иван", "東京", "jordan"])
NAMES = st.lists(WORDS, min_size=1, max_size=3)


@pytest.mark.parametrize(("one", "other"), TWO)
def test_names_of_two_things(one: str, other: str) -> None:
    assert name_parts(one) != name_parts(other)


@pytest.mark.parametrize(("one", "other"), ONE)
def test_spellings_of_one_name(one: str, other: str) -> None:
    assert name_parts(one) == name_parts(other)


@given(NAMES, st.data())
def test_any_other_letter_or_digit_is_another_name(words: list[str], data: st.DataObject) -> None:
    name = " ".join(words)
    place = data.draw(st.integers(0, len(name)))
    sign = data.draw(st.sampled_from("xq7"))
    assert name_parts(name.upper()) == name_parts(name)
    assert name_parts(f"the {name}") == name_parts(name) or len(words) == 1
    assert name_parts("-".join(words)) == name_parts(name) or any(w[0].isdigit() for w in words)
    assert name_parts(name[:place] + sign + name[place:]) != name_parts(name)
    if place < len(name) and name[place].isalnum() and name[place] != sign:
        assert name_parts(name[:place] + sign + name[place + 1 :]) != name_parts(name)
    assert name_parts(unicodedata.normalize("NFD", name)) == name_parts(name)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Hey Mel! Good to see you!", ["mel"]),
        ("Hi Mel how are you", ["mel"]),
        ("Thanks so much, Mel. It was fun.", ["mel"]),
        ("Wow, Mel, that's great", ["mel"]),
        ("Mel, you rock", ["mel"]),
        ("That was so strong, Mel!", ["mel"]),
        ("Good morning Isa! What now?", ["isa"]),
        ("Hey Mel, hey Caro!", ["mel", "caro"]),
        ("I met Tom, Mel, and Sam.", []),
        ("Mel, Tom and I went home.", []),
        ("I went with my friend, Mel.", []),
        ("So, how are you?", []),
        ("Monday, maybe.", []),
        ("We saw Mel.", []),
        ("hey mel!", []),
        ("It was late. You won, Mel!", ["mel"]),
        ("It was late. Thanks a lot, Mel!", ["mel"]),
        ("It was late. Great game, Mel!", []),
        ("I told my brother, great job Dan!", []),
        ("She said: hey Dan!", []),
        ('The note read "Hey Dan! How are you?"', []),
        ("They were singing \u201cHey Jude!\u201d to you.", []),
    ],
)
def test_addresses(text: str, names: list[str]) -> None:
    assert [each.name for each in namings(text) if each.way == "address"] == names


@pytest.mark.parametrize(
    ("text", "direct"),
    [
        ("Hey Mel! How is your class?", True),
        ("Mel, did you win?", True),
        ("Hey Mel! Sit! Good dog.", False),
        ("Hello Paris! We landed.", False),
        ("Thank you Mel! We start.", False),
    ],
)
def test_an_address_directed_at_you(text: str, direct: bool) -> None:
    assert [each.direct for each in namings(text)] == [direct]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Everyone calls me Bob.", Naming("claim", "bob")),
        ("You can call me Mel.", Naming("claim", "mel")),
        ("My name is Theodore but please call me Theo.", Naming("claim", "theo", "theodore")),
        ("My grandmother Josephine (Jo) baked.", Naming("stated", "jo", "josephine")),
        ('Melanie "Mel" Brooks came.', Naming("stated", "mel brooks", "melanie brooks")),
        ("Then Melanie (Mel) came.", Naming("stated", "mel", "melanie")),
        ("We met Melanie Brooks (Mel).", Naming("stated", "mel brooks", "melanie brooks")),
        ("Rex is short for Reginald.", Naming("stated", "rex", "reginald")),
        ("We saw Elizabeth, Liz for short.", Naming("stated", "liz", "elizabeth")),
        ("Melanie, known as Mel, sang.", Naming("stated", "mel", "melanie")),
        ("Call me Monday.", None),
        ("I am Melanie and nobody may call me Ellie", None),
        ("Please do not let people call me Ellie.", None),
        ("They call me Ellie? No.", None),
        ("If people call me Queen, I laugh.", None),
        ("I wish friends call me Queen.", None),
        ("My aunt said people call me Ellie.", None),
        ("They call me Trouble Maker. I'm Tom", None),
        ("I'm German but friends call me Gerd", Naming("claim", "gerd")),
        ("I'm Gerdine but friends call me Gerd", Naming("claim", "gerd", "gerdine")),
        ("Bob is not short for Robert.", None),
        ("Is Bob short for Robert?", None),
        ("Tom thinks Lee is short for Leeland. He is wrong.", None),
        ("Lee is short for Leeland. Just kidding!", None),
        ("If Lee is short for Leeland, he hides it.", None),
        ("Tom Jones is short for Thomas Jones", None),
        ("I doubt it, but Melanie is never known as Mel.", None),
        ("We went to Paris (France).", None),
        ("It was Caroline (the painter).", None),
    ],
)
def test_what_a_text_says_of_names(text: str, expected: Naming | None) -> None:
    found = [each for each in namings(text) if each.way != "address"]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("short", "full", "fits"),
    [
        ("mel", "melanie", True),
        ("mel", "melvin", True),
        ("ev", "evan", True),
        ("andy", "andrew", True),
        ("sammy", "samuel", True),
        ("bobby", "bob", True),
        ("melanie", "melanie smith", True),
        ("mel", "melanie smith", True),
        ("mel", "mel", False),
        ("m", "melanie", False),
        ("bob", "robert", False),
        ("smith", "melanie smith", False),
        ("melanie", "mel", False),
    ],
)
def test_what_may_be_short_for_what(short: str, full: str, fits: bool) -> None:
    assert may_be_short_for(short, full) == fits


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("bob", "robert", True),
        ("liz", "elizabeth", True),
        ("melanie", "mel", True),
        ("max", "basketball", False),
        ("kim", "cash", False),
    ],
)
def test_names_that_are_alike(one: str, other: str, alike: bool) -> None:
    assert are_alike(one, other) == are_alike(other, one) == alike


def test_small_articles_and_persons() -> None:
    assert articled("The Edge met the Who, and the Rolling Stones.") == {"who"}
    assert persons("My friend Kim met Tom. Cash is short.") == {"kim", "tom"}


def test_uses_of_words() -> None:
    text = "My brother Melvin came. Melons in Melbourne are fine, man. Near Mel's house"
    uses = dict(word_uses(text))
    assert uses["melvin"] == "name" and uses["melbourne"] == "place"
    assert uses["melons"] == uses["my"] == "first" and uses["man"] == "lower"
