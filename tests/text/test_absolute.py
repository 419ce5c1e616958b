"""Relative days become the days that were meant, by the calendar, or nothing is said."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from graphmem_torch.text.absolute import absolute, absolute_sentences, spelled_day
from graphmem_torch.text.times import told_days

SAID = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)  # a Monday
EPOCH = date(1970, 1, 1)
DAY = timedelta(days=1)

PLACED = {
    "I painted it last Friday.": "I painted it on 5 May 2023.",
    "We went last month.": "We went in April 2023.",
    "We met last week.": "We met in the week of 1 May 2023.",
    "Yesterday was great!": "7 May 2023 was great!",
    "Yesterday I went home.": "On 7 May 2023 I went home.",
    "I moved two weeks ago.": "I moved around 24 April 2023.",
    "A few weeks ago we met.": "Around 17 April 2023 we met.",
    "Three months ago I began.": "In February 2023 I began.",
    "I'll run next month.": "I'll run in June 2023.",
    "This morning we ran.": "On the morning of 8 May 2023 we ran.",
    "We sing tonight.": "We sing on the evening of 8 May 2023.",
    "We got in last night.": "We got in on the night of 7 May 2023.",
    "We ate out last Friday night.": "We ate out on the night of 5 May 2023.",
    "I have been ill since last Friday.": "I have been ill since 5 May 2023.",
    "It stays until next week.": "It stays until the week of 15 May 2023.",
    "I loved yesterday's class.": "I loved 7 May 2023's class.",
    "Over the last two weeks I wrote.": "From 24 April 2023 to 8 May 2023 I wrote.",
    "The past two weeks were hard.": "The days from 24 April 2023 to 8 May 2023 were hard.",
    "We hiked this past weekend.": "We hiked on the weekend of 6 May 2023.",
    "Last summer we swam.": "In the summer of 2022 we swam.",
    "I won last year.": "I won in 2022.",
    "I began five years ago.": "I began around 2018.",
    "The show is next month.": "The show is in June 2023.",
    "It was in July.": "It was in July 2022.",
    "It was on April 5th.": "It was on April 5th, 2023.",
    "I bought it in October.": "I bought it in October 2022.",
    "I'll run in June.": "I'll run in June 2023.",
    "I ran all day yesterday.": "I ran all day on 7 May 2023.",
    "I had a party two weeks ago.": "I had a party around 24 April 2023.",
    "Yesterday I fed the cats' kittens.": "On 7 May 2023 I fed the cats' kittens.",
    'I read "Dune" last week.': 'I read "Dune" in the week of 1 May 2023.',
    "The day before yesterday we met.": "On 6 May 2023 we met.",
    "I leave the day after tomorrow.": "I leave on 10 May 2023.",
    "A week from Friday I fly.": "On 19 May 2023 I fly.",
    "I will go in March.": "I will go in March 2024.",
    "We met a fortnight ago.": "We met around 24 April 2023.",
    "Last Friday in April we met.": "Last Friday in April 2023 we met.",
    "I ran a week last Tuesday.": "I ran on 25 April 2023.",
    "I ran a week ago today.": "I ran on 1 May 2023.",
    "It was 10 years ago today.": "It was on 8 May 2013.",
    "I ran three months ago yesterday.": "I ran on 7 February 2023.",
    "We met in June last year.": "We met in June 2022.",
    "We met last week on Tuesday.": "We met on 2 May 2023.",
    "I ran the week before last.": "I ran in the week of 24 April 2023.",
    "We met the night before last.": "We met on 6 May 2023.",
    "The week after next I run.": "In the week of 22 May 2023 I run.",
    "The summer before last we swam.": "In the summer of 2021 we swam.",
    "I visited Rome in June.": "I visited Rome in June 2022.",
    "It was in June that we left.": "It was in June 2022 that we left.",
    "We lost it last quarter.": "We lost it between 1 January 2023 and 31 March 2023.",
    "I saw it the 15th of last month.": "I saw it on 15 April 2023.",
    "I went in the first weekend of last month.": "I went on the weekend of 1 April 2023.",
    "I met him on the Monday before last weekend.": "I met him on 1 May 2023.",
    "We travelled from last Friday to yesterday.": "We travelled from 5 May 2023 to 7 May 2023.",
    "We went from 3 to 5 May.": "We went from 3 to 5 May 2023.",
    "I ran on May 3, 2023 and last Monday.": "I ran on May 3, 2023 and on 1 May 2023.",
}
KEPT = [
    "I have known him for four years.",
    "I was ill between March and May 2022.",
    "He was born on 10 May 1850.",
    "We sing every Friday.",
    "The Monday before July 24, 2023 was hot.",
    "The market is open on Sundays.",
]
UNKNOWN = [
    "We spoke recently.",
    "We meet on Friday.",
    "I finish in two days.",
    "The next day it rained.",
    "It began more than two weeks ago.",
    "Two days later it rained.",
    "It happened a while ago.",
    "The next week it rained.",
    "The other day we met.",
    "The following week we met.",
    "We met two Fridays ago.",
    "We met years back.",
]
NOT_ALONE = {
    "of": """The last week of school was hard.
        It was the last night of the trip.
        The last year of school was hard.
        The past two weeks of school were hard.
        Last week of May we met.""",
    "another one of several": """Every last Friday of the month we meet.
        Each last Friday we meet.
        Any last week we sang.
        My last week in Lisbon was sunny.
        The last Friday was hot.
        In the last month I ran.
        I won last week but one.""",
    "stacked": """This time last year we met.
        I run tomorrow week.
        Next Friday week I run.
        We met yesterday, on Tuesday.
        It has been a year since last Tuesday.""",
    "before last": """Not last week, but the week before, we met.""",
    "part of a number": """It happened twenty-five days ago.
        It was a hundred and two days ago.
        She moved two or three weeks ago.
        We met 1.5 years ago.
        We met half a year ago.
        We met over five years ago.""",
    "quoted": """Tom told me "I saw her yesterday" last week.
        Yesterday I said "I will do it tomorrow".
        She told me, \u201cI leave tomorrow,\u201d and left.
        He said \u2018yesterday\u2019 is his word.
        I wrote 'We met yesterday' there.
        He wrote \u00abyesterday\u00bb there.
        I read "I saw it yesterday.
        He told me: I leave tomorrow.
        It feels like just yesterday.""",
    "a title": """I saw "Last Friday Night" by Katy Perry.
        I saw Last Friday Night by Katy Perry.
        I love the song Yesterday by the Beatles.
        Yesterday by The Beatles is good.
        I read the magazine This Week.""",
    "a feast or a term": """We met last Easter.
        Last Christmas I left.
        Last Diwali we met.
        last semester I ran.
        Last season we won.
        Next term I run.
        I ran in the week before Easter.
        This Christmas we sing.""",
    "of an unknown year": """I was born on 5 April.
        We meet on 5 April every year.
        It rains in April.
        The tour ends in August.""",
}


@pytest.mark.parametrize(("text", "wanted"), PLACED.items())
def test_relative_days_are_written_out(text: str, wanted: str) -> None:
    assert absolute(text, SAID.timestamp()) == wanted
    assert absolute(wanted, None) == wanted, "it is absolute"


@pytest.mark.parametrize("text", KEPT)
def test_other_times_stay(text: str) -> None:
    assert absolute(text, SAID.timestamp()) == text == absolute(text, None)


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_cannot_be_placed_is_not_guessed(text: str) -> None:
    assert absolute(text, SAID.timestamp()) is None


@pytest.mark.parametrize("kind", NOT_ALONE)
def test_a_time_that_is_part_of_another_is_not_stated(kind: str) -> None:
    texts = [text.strip() for text in NOT_ALONE[kind].splitlines()]
    assert [text for text in texts if absolute(text, SAID.timestamp()) is not None] == []


def test_a_quotation_over_several_sentences_is_reckoned_from_another_day() -> None:
    text = 'Tom said "It is cold here. I saw her yesterday. It rained." I met him yesterday.'
    assert dict(absolute_sentences(text, SAID.timestamp())) == {
        'Tom said "It is cold here. ': 'Tom said "It is cold here. ',
        "I saw her yesterday. ": None,
        'It rained." ': 'It rained." ',
        "I met him yesterday.": "I met him on 7 May 2023.",
    }


@pytest.mark.parametrize("text", PLACED)
def test_nothing_relative_is_placed_where_nobody_knows_when_it_was_said(text: str) -> None:
    assert absolute(text, None) is None and absolute(text, float("nan")) is None


@pytest.mark.parametrize("start", [date(2023, 12, 25), date(2024, 2, 26), date(1999, 12, 30)])
def test_days_are_those_of_the_calendar(start: date) -> None:
    """Against datetime, over ends of months and years and a leap day."""
    for said in (start + i * DAY for i in range(10)):
        moment = datetime(said.year, said.month, said.day, 23, 59, tzinfo=UTC).timestamp()
        monday = said - said.weekday() * DAY
        friday = said - ((said.weekday() - 4) % 7 or 7) * DAY
        first = (said.replace(day=1) - DAY).replace(day=1)
        wanted = {
            "yesterday": f"on {spelled_day(said - DAY)}",
            "tomorrow": f"on {spelled_day(said + DAY)}",
            "three days ago": f"on {spelled_day(said - 3 * DAY)}",
            "last Friday": f"on {spelled_day(friday)}",
            "this week": f"in the week of {spelled_day(monday)}",
            "next week": f"in the week of {spelled_day(monday + 7 * DAY)}",
            "last month": f"in {first:%B} {first.year}",
        }
        for phrase, days in wanted.items():
            assert absolute(f"I saw it {phrase}.", moment) == f"I saw it {days}."


@pytest.mark.parametrize("text", PLACED)
def test_the_days_written_are_days_that_were_told(text: str) -> None:
    """Read again long after, by the reader of days alone."""
    for said in (SAID + i * 9 * DAY for i in range(45)):
        written = absolute(text, said.timestamp())
        if written is None:
            continue
        first, behind = told_days(text, said.timestamp())
        again = told_days(written, (said + 777 * DAY).timestamp())
        assert first <= again[0] <= again[1] <= behind, (said, written)
