"""When and where a memory was said."""

from __future__ import annotations

import calendar
import math
from datetime import UTC, datetime

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.context.formats import day_of, instant_of, label_of


@pytest.mark.parametrize("time", [0.0, 1683554160.0, -1.0, 1.7e9 + 0.9, 951782400.0, 4e9])
def test_days_and_instants_are_those_of_the_calendar(time: float) -> None:
    known = datetime.fromtimestamp(math.floor(time), UTC)
    assert day_of(time) == f"{known.day} {calendar.month_name[known.month]} {known.year}"
    assert instant_of(time) == known.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("time", [None, math.nan, math.inf, -math.inf, 1e300])
def test_what_no_calendar_knows(time: float | None) -> None:
    assert day_of(time) is None
    assert instant_of(time) is None


def test_beyond_four_digits() -> None:
    assert day_of(1e12) == "27 September 33658"
    assert day_of(-1e11) is not None


def test_labels_say_what_tells_memories_apart() -> None:
    day = 1683554160.0
    assert label_of(Atom("a", "x")) is None
    assert label_of(Atom("a", "x", session="s1", time=day)) == "8 May 2023"
    assert label_of(Atom("a", "x", session="s1")) == "s1"
    assert label_of(Atom("a", "x", time=day)) == "8 May 2023"
    assert label_of(Atom("a", "x", kind="chunk", session="the\nbook")) == "the book"
    assert label_of(Atom("a", "x", kind="chunk", session="b", time=day)) == "b, 8 May 2023"
