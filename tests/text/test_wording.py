"""Wording: what two ways to write one sentence share, and what tells two sentences apart."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.text.wording import wording

SAME = (
    ("I moved to Oslo.", "i moved  to\tOslo", "I MOVED TO OSLO!!", "(I moved to Oslo...)"),
    (
        "I moved to Oslo.",
        "Hi! I moved to Oslo.",
        "Hey there, I moved to Oslo",
        "Oh wow, I moved to Oslo.",
    ),
    ("I moved to Oslo.", "Hello Kim, I moved to Oslo.", "Good morning! I moved to Oslo."),
    ("I moved to Oslo.", "Well, hi Kim Lee \u2014 I moved to Oslo.", "I moved to Oslo, haha"),
    (
        "I don't know what he's got.",
        "I do not know what he has got",
        "I don\u2019t know what he\u2019s got.",
    ),
    ("It's late, we can't and we won't.", "It is late: we can not, and we will not."),
    ('Nora said "no".', "Nora said \u201cno\u201d.", "Nora said 'no'"),
    ("It costs 1,250 euros.", "It costs 1250 euros."),
    ("It is -5 degrees.", "It is \u22125 degrees."),
    ("Zo\u00eb's caf\u00e9 is red.", "Zoe\u0308's cafe\u0301 is red"),
    ("a well\u00ad-known co\u200bok", "A well-known cook."),
    ("We met at 5 PM.", "We met at 5 pm."),
    ("He runs, and swims.", "He runs and swims"),
    ("\u2764\ufe0f this boat", "\u2764 this boat"),
    ("We met at 5PM on the 3rd.", "we met at 5pm on the 3RD"),
    ('She said "the room is 5".', "She said 'the room is 5'", "She said the room is 5"),
    ("Yes, Tom is at Acme.", "Tom is at Acme. Yes!", "Tom is at Acme"),
    ("Oh, no more people came.", "No more people came!"),
    ("The well-known O'Neil came", "the Well-Known o'neil came"),
    ("Rain... and snow", "rain, ...and snow", "Rain (and snow)"),
    ("My Password is here", "my password is here."),
)
DIFFERENT = (
    ("The cat chased the dog.", "The dog chased the cat."),
    ("x is greater than y", "y is greater than x"),
    ("x < 5", "x > 5", "x = 5", "x 5"),
    ("5 is less than 7.", "7 is less than 5."),
    ("Delivery is on 03/04/2024.", "Delivery is on 04/03/2024."),
    ("Rate: 4/5", "Rate: 5/4", "Rate: 45", "Rate: 4 5"),
    ("The file is in /a/b.", "The file is in /b/a.", "The file is in /A/b."),
    (
        "The demo went \U0001f44d",
        "The demo went \U0001f44e",
        "The demo went",
        "The demo went\U0001f44d\U0001f44d",
    ),
    ("The log is in /var/a.", "The log is in /var/b."),
    ("My email is kim@a.example.", "My email is kim@b.example."),
    ("Nora lives in Oslo now.", "Nora used to live in Oslo.", "Nora lives in Oslo."),
    (
        "It is 5 degrees.",
        "It is -5 degrees.",
        "It is +5 degrees.",
        "It is 5.0 degrees.",
        "It is .5 degrees",
    ),
    ("Take 1,5 pills", "Take 15 pills", "Take 1.5 pills", "Take 1, 5 pills"),
    ("It draws 5 mW.", "It draws 5 MW."),
    ("Vitamin B", "Vitamin D", "Vitamin"),
    ("Her grade was A+.", "Her grade was A-.", "Her grade was A."),
    ("We write C.", "We write C++.", "We write C#."),
    ("She likes it.", "She likes IT."),
    ("You live in Oslo.", "You live in Oslo?", "You don't live in Oslo."),
    ("No, I moved to Oslo.", "I moved to Oslo."),
    ("Hi from Oslo! I moved.", "I moved."),
    ("The coat costs $40.", "The coat costs \u20ac40."),
    ("10:15", "15:10", "1015"),
    ("What a boat", "Such a boat", "A boat"),
    ("The code is hunter2", "The code is Hunter2", "The code is HUNTER2"),
    ("The door opens with aB3dE9", "The door opens with ab3De9"),
    ("The link has 10MB", "The link has 10Mb"),
    ("Call getName first", "Call getname first"),
    ("The password is Swordfish", "The password is swordfish"),
    (
        "Did Ana pass the test? Yes!",
        "Did Ana pass the test? Oh well",
        "Did Ana pass the test? No!",
        "Did Ana pass the test?",
    ),
    ("Is Tom at Acme - yes", "Is Tom at Acme"),
    ("The answer to Tom: yes", "The answer to Tom: ok"),
    ("No, more people came", "No more people came"),
    ("Don't, stop the boat", "Don't stop the boat"),
    ("Pardon, not possible to hang him", "Pardon not possible, to hang him"),
    ("The plan is here :)", "The plan is here :(", "The plan is here", "The plan is here ;)"),
    ("The plan is here:-)", "The plan is here:-(.", "The plan is here."),
    ("(: the plan", "): the plan"),
    ("Read .env first", "Read env first"),
    ("Go to ../a", "Go to ./a", "Go to /a", "Go to a"),
    ("The 5' board", "The 5 board", 'The 5" board'),
    ("Room #5", "Room 5", "Room ~5", "Room <5", "Room 5%", "Room $5"),
    ("Use f() here", "Use f here", "Use f[] here"),
    ("Type :q here", "Type q here", "Type !q here"),
)


@pytest.mark.parametrize("texts", SAME)
def test_one_sentence_written_in_several_ways(texts: tuple[str, ...]) -> None:
    assert {wording(text) for text in texts} == {wording(texts[0])}


@pytest.mark.parametrize("texts", DIFFERENT)
def test_several_sentences_in_nearly_the_same_signs(texts: tuple[str, ...]) -> None:
    for one, other in itertools.combinations(texts, 2):
        assert wording(one) != wording(other)


def test_of_what_is_nothing_but_signs() -> None:
    for text in ("", " ", "...", "\u2014", "- -", "(!)"):
        assert wording(text) == ()
    # What greets alone says so.
    assert wording("Hi!") == ("hi",) and wording("???") == ("?",)


SIGNS = ("ab", "-5", "+5", "x/y", "y/x", "\U0001f44d", "not", "3.1", "1.3", "p", "q")
WORDS = st.lists(st.from_regex(r"[b-hj-z][a-z]{3,8}[0-9]?", fullmatch=True), min_size=1, max_size=8)


@given(WORDS, st.data())
def test_plain_words_are_a_split_at_spaces(words: list[str], data: st.DataObject) -> None:
    """Against `str.split`: whatever capitals, spaces and punctuation stand around plain words."""
    words = [
        f"{word}x"
        if re.fullmatch(
            "hell?o|whoa|yeah|dear|anyways?|al.*|okay|hiya|hahah?a?|hehe|greetings|morning|well",
            word,
        )
        else word
        for word in words
    ]
    parts = []
    for word in words:
        mark = data.draw(st.sampled_from(["", "", ".", ",", "!", "...", ";", ")", "\u201d"]))
        open_ = data.draw(st.sampled_from(["", "", "(", '"', "\u2018"]))
        forms = [word] if word[-1].isdigit() else [word, word.capitalize()]  # codes keep their case
        parts.append(open_ + data.draw(st.sampled_from(forms)) + mark)
    text = data.draw(st.sampled_from([" ", "  ", "\n", "\t"])).join(parts)
    assert wording(text) == tuple(words)


@given(
    st.lists(
        st.sampled_from(SIGNS),
        min_size=1,
        max_size=6,
    )
)
def test_no_two_sequences_are_one(signs: list[str]) -> None:
    """Signs with white space between them come back as they are."""
    assert wording(" ".join(signs)) == tuple(signs)


@given(st.text(max_size=60))
def test_any_text_has_a_wording(text: str) -> None:
    found = wording(text)
    assert all(found) and wording(f"  {text}\n") == found


def test_many_faces_are_read_one_by_one() -> None:
    assert wording("tea" + ":)" * 2000) == ("tea", *[":)"] * 2000)


def test_a_word_with_letters_and_digits_keeps_its_case() -> None:
    draw = random.Random(5)
    for _ in range(2000):
        word = "".join(draw.choices("aBcXé7٣x", k=draw.randint(1, 6)))
        mixed = re.search(r"[^\W\d_].*\d|\d.*[^\W\d_]", word)
        if mixed:
            assert wording(word) == (word,)
