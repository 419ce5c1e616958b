"""What a question says about itself."""

from __future__ import annotations

import calendar

import pytest

from graphmem_torch.text.question import (
    asks_when,
    is_question,
    named_dates,
    named_speakers,
    tells_time,
)


def test_asks_when() -> None:
    asking = ["When did Ada leave?", "Since WHEN?", "how long was it", "Which year was that?"]
    asking += ["What time is it?", "On what date?"]
    other = ["Whenever you like", "What did she do?", "How did the day go?", "Who?"]
    assert asks_when(asking + other).tolist() == [True] * len(asking) + [False] * len(other)
    assert asks_when([]).shape == (0,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The sun is warm", False),
        ("You may sit", False),
        ("I march on", False),
        ("May I come in?", False),
        ("We met in May", True),
        ("on 3 March we left", True),
        ("March 3 it was", True),
        ("on Sundays", True),
        ("I went there yesterday", True),
        ("last Tuesday we met", True),
        ("Two weeks ago", True),
        ("It was 2019.", True),
        ("See you on Friday!", True),
        ("in SEPTEMBER", True),
        ("I have a red canoe", False),
        ("It cost 300 dollars", False),
        ("the lasting nextness", False),
    ],
)
def test_tells_time(text: str, told: bool) -> None:
    assert tells_time(text) is told


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Where is it?", True),
        ("Where is it?  ", True),
        ("Look at this? [image: a red canoe]", True),
        ("Really? Yes.", False),
        ("[image: is it?]", False),
        ("", False),
        ("?", True),
        ("What? ]", False),
        ("Is it?" + " " * 1_000_000 + "[a]", True),
        ("Is it" + " " * 1_000_000 + "x", False),
        ("Is it?" + "[" * 1_000_000, False),
        ("Is it" + " [" * 500_000 + "]", False),
    ],
)
def test_is_question(text: str, asks: bool) -> None:
    assert is_question(text) is asks


def test_named_dates_of_every_month() -> None:
    names = list(calendar.month_name)[1:]
    months, days = named_dates([f"What happened in {name}?" for name in names])
    assert months.int().tolist() == [[int(i == j) for j in range(12)] for i in range(12)]
    assert not days.any()


@pytest.mark.parametrize(
    ("question", "months", "days"),
    [
        ("What did Ada do on 8 May, 2023?", [5], [8]),
        ("May I ask who was there?", [], []),
        ("What may have happened?", [], []),
        ("Was it in May or on the 3rd of June?", [5, 6], [3]),
        ("Between 30 and 31 january, or the 32nd?", [1], [30, 31]),
        ("What cost 8 dollars?", [], []),  # a day needs a month
        ("What was on 0 March?", [3], []),
        ("Who marched on 12 augusts?", [], []),
    ],
)
def test_named_dates(question: str, months: list[int], days: list[int]) -> None:
    found, on = named_dates([question])
    assert [m + 1 for m in found[0].nonzero().squeeze(1).tolist()] == months
    assert [d + 1 for d in on[0].nonzero().squeeze(1).tolist()] == days


def test_named_speakers() -> None:
    words = {"ada": [0], "lovelace": [0], "ben": [1, 2]}
    named = named_speakers(
        ["What did ADA say to Ben's dog?", "And Lovelace?", "Benjamin?", "adaben"], words, 3
    )
    assert named.int().tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert named_speakers([], words, 3).shape == (0, 3)
