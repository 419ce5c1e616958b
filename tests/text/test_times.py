from __future__ import annotations

import calendar
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.text.times import (
    FIRST_SECOND,
    LAST_SECOND,
    TimeLike,
    asked_window,
    parse_span,
    parse_time,
    told_days,
    undated,
)

MAY_8 = datetime(2023, 5, 8, 13, 56, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "value",
    [
        "1:56 pm on 8 May, 2023",
        "01:56 PM on 8 may 2023",
        " 1:56 p.m. on 8 May, 2023 ",
        "2023-05-08T13:56:00",
        "2023-05-08 13:56",
        "2023-05-08T13:56:00Z",
        "2023-05-08T15:56:00+02:00",
        "20230508T135600",
        MAY_8,
        int(MAY_8),
        np.int64(MAY_8),
        np.float64(MAY_8),
        datetime(2023, 5, 8, 13, 56),
        datetime(2023, 5, 8, 13, 56, tzinfo=UTC),
        datetime(2023, 5, 8, 15, 56, tzinfo=timezone(timedelta(hours=2))),
        datetime(2023, 5, 8, 15, 56, tzinfo=ZoneInfo("Europe/Zurich")),
    ],
)
def test_parse_time_of_one_moment_in_every_form(value: TimeLike) -> None:
    assert parse_time(value) == MAY_8


@pytest.mark.parametrize(
    ("value", "hour", "minute"),
    [
        ("12:00 am on 1 Jan, 2024", 0, 0),
        ("12:09 am on 1 January, 2024", 0, 9),
        ("12:30 pm on 1 Jan, 2024", 12, 30),
        ("11:59 pm on 1 Jan, 2024", 23, 59),
    ],
)
def test_parse_time_of_noon_and_midnight(value: str, hour: int, minute: int) -> None:
    assert parse_time(value) == datetime(2024, 1, 1, hour, minute, tzinfo=UTC).timestamp()


def test_parse_time_of_a_date_is_its_midnight() -> None:
    midnight = datetime(2023, 5, 8, tzinfo=UTC).timestamp()
    assert parse_time("2023-05-08") == parse_time("8 May, 2023") == midnight
    assert parse_time(date(2023, 5, 8)) == midnight


@pytest.mark.parametrize(("text", "month"), [("2023", 1), (" 2023-05 ", 5), ("2023-12", 12)])
def test_parse_time_of_a_year_or_a_month_is_its_first_instant(text: str, month: int) -> None:
    assert parse_time(text) == datetime(2023, month, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("text", ["2023-13", "2023-00", "0000", "99", "20235", "2023-5", "٢٠٢٣"])
def test_parse_time_refuses_other_digits(text: str) -> None:
    with pytest.raises(InputError, match="time: expected a time"):
        parse_time(text)


@given(
    st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
)
def test_parse_time_of_iso_round_trip(moment: datetime, minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert parse_time(aware.isoformat()) == pytest.approx(aware.timestamp(), abs=1e-5)
    naive = moment.replace(tzinfo=UTC).timestamp()
    assert parse_time(moment.isoformat()) == pytest.approx(naive, abs=1e-5)
    assert (parse_time(aware), parse_time(moment)) == (aware.timestamp(), naive)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yesterday",
        "13:00 pm on 8 May, 2023",
        "31 June, 2023",
        "8 Mai, 2023",
        "2023-13-01",
        "25:99 am on 8 May, 2023",
        "8 May",
        math.nan,
        math.inf,
        True,
        None,
        [1],
        1683554160000,
        10**400,
        -62_135_596_801,
        253_402_300_800,
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:59:59-05:00",
        np.bool_(True),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
        time(12, 30),
    ],
)
def test_parse_time_refuses_with_the_forms(value: object) -> None:
    with pytest.raises(InputError, match=r"expected a time") as caught:
        parse_time(value)  # type: ignore[arg-type]
    if isinstance(value, str):
        assert ("years 1 to 9999" if "T" in value else "ISO 8601") in str(caught.value)
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-05-03 10.30", "2024-05-03T10:30:00"),  # as Finns and Danes write it
        ("2024-05-03T21.15", "2024-05-03T21:15:00"),
        ("2024-05-03 10.30.15", "2024-05-03T10:30:15"),
        ("2024-05-03  10:30", "2024-05-03T10:30:00"),
        ("2024-05-01T10:00:00+0530", "2024-05-01T04:30:00"),
        ("2024-05-01T10:00:00-0530", "2024-05-01T15:30:00"),
        ("2024-05-01 10:00:00 +05:30", "2024-05-01T04:30:00"),
        ("2024-05-01T10:00+05", "2024-05-01T05:00:00"),
        ("2024-05-01T10:00:00+05:30:15", "2024-05-01T04:29:45"),
        ("2024-05-03 10:00:00 UTC", "2024-05-03T10:00:00"),
        ("2024-05-03t10:00:00z", "2024-05-03T10:00:00"),
        ("2024-05-03T10", "2024-05-03T10:00:00"),
        ("20240503T1030", "2024-05-03T10:30:00"),
        ("20240503T103015Z", "2024-05-03T10:30:15"),
        ("2024-W18-5", "2024-05-03T00:00:00"),
        ("17121014", "1712-10-14T00:00:00"),
    ],
)
def test_parse_time_of_forms_beside_iso(text: str, moment: str) -> None:
    assert parse_time(text) == datetime.fromisoformat(f"{moment}+00:00").timestamp()


@pytest.mark.parametrize(
    "text",
    [
        *("1712101412345", "1709081712030", "1767011401530"),  # milliseconds
        *(
            "1683554160",
            "1683554160123456",
            "1683554160123456789",
            "20230508135600",
            "000000000000",
        ),
        *("2024-05-03 10.3", "2024-05-03 10.60", "2024-05-03T10:30,5", "2024-05-03T1030.5"),
        *("2024-05-03_10:00", "2024-05-03T10:00:00+5:30", "2024-05-03 1030 pm", "1683554160.5"),
    ],
)
def test_parse_time_refuses_what_may_be_another_time(text: str) -> None:
    with pytest.raises(InputError, match="seconds since the epoch as a number"):
        parse_time(text)


@given(st.text("0123456789", min_size=9, max_size=20))
def test_parse_time_refuses_digits_beyond_a_date(digits: str) -> None:
    with pytest.raises(InputError, match="time: expected a time"):
        parse_time(digits)


@pytest.mark.parametrize("value", [-62_135_596_800, 253_402_300_799, "0001-01-01", "9999-12-31"])
def test_parse_time_of_the_ends_of_the_calendar(value: str | int) -> None:
    assert datetime.fromtimestamp(parse_time(value), UTC).year in (1, 9999)


moments = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1))


@given(moments, moments, st.booleans())
def test_parse_span_is_two_times_in_order(one: datetime, other: datetime, text: bool) -> None:
    start, end = sorted([one.replace(tzinfo=UTC), other.replace(tzinfo=UTC)])
    given = (start.isoformat(), end.isoformat()) if text else (start, end)
    assert parse_span(given) == (start.timestamp(), end.timestamp())
    if start < end:
        with pytest.raises(InputError, match=r"^between: expected a start before the end"):
            parse_span(given[::-1])


def test_parse_span_may_be_open() -> None:
    assert parse_span((None, "1970-01-02")) == (-math.inf, 86400.0)
    assert parse_span([5, math.inf]) == (5.0, math.inf)
    assert parse_span((-math.inf, None)) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    "value",
    [5.0, "2023-05-08", (), (1.0,), (1, 2, 3), {1: 2}, (math.inf, 5), (5, "soon"), (True, 2)],
)
def test_parse_span_refuses_what_is_none(value: object) -> None:
    with pytest.raises(InputError, match=r"^between: expected a (start|time)"):
        parse_span(value)


# A Wednesday.
SAID = datetime(2023, 7, 12, 16, 33, tzinfo=UTC).timestamp()
# Digits of several scripts, and what stands around numbers and names of months.
LETTERS = "0123456789 \n\0.,:;'’-–/%adeglmnorstuyADJMQTZéß٣९½²中日\u200b\ufeff\U0001f600"


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("Yesterday I ran.", "2023-07-11", "2023-07-11"),
        ("We met last night", "2023-07-11", "2023-07-11"),
        ("What did I do today?", "2023-07-12", "2023-07-12"),
        ("See you tomorrow!", "2023-07-13", "2023-07-13"),
        ("last Friday", "2023-07-07", "2023-07-07"),
        ("last Wednesday", "2023-07-05", "2023-07-05"),
        ("this Friday", "2023-07-14", "2023-07-14"),
        ("next Wednesday", "2023-07-19", "2023-07-19"),
        ("last week", "2023-07-03", "2023-07-09"),
        ("next week", "2023-07-17", "2023-07-23"),
        ("last weekend", "2023-07-07", "2023-07-09"),
        ("this weekend", "2023-07-14", "2023-07-16"),
        ("last month", "2023-06-01", "2023-06-30"),
        ("next month", "2023-08-01", "2023-08-31"),
        ("last summer", "2022-06-01", "2022-08-31"),
        ("last winter", "2022-12-01", "2023-02-28"),
        ("last May", "2023-05-01", "2023-05-31"),
        ("last July", "2022-07-01", "2022-07-31"),
        ("next May", "2024-05-01", "2024-05-31"),
        ("two days ago", "2023-07-10", "2023-07-10"),
        ("a day ago", "2023-07-11", "2023-07-11"),
        ("10 days ago", "2023-07-01", "2023-07-03"),
        ("two weeks ago", "2023-06-24", "2023-07-02"),
        ("a couple of months ago", "2023-05-01", "2023-05-31"),
        ("a few days ago", "2023-07-08", "2023-07-10"),
        ("in the past two weeks", "2023-06-28", "2023-07-12"),
        ("the last three months", "2023-04-10", "2023-07-12"),
        ("on 8 May, 2023", "2023-05-08", "2023-05-08"),
        ("on the 8th of May 2023", "2023-05-08", "2023-05-08"),
        ("October 13, 2022", "2022-10-13", "2022-10-13"),
        ("2024-02-29", "2024-02-29", "2024-02-29"),
        ("in July 2021", "2021-07-01", "2021-07-31"),
        ("summer of 2020", "2020-06-01", "2020-08-31"),
        ("in December 2022", "2022-12-01", "2022-12-31"),
        ("since May", "2023-05-01", "2023-05-31"),
        ("on Sept. 3rd", "2022-09-03", "2022-09-03"),
        ("the week before 9 June 2023", "2023-05-29", "2023-06-04"),
        ("two weeks before August 11, 2023", "2023-07-26", "2023-07-30"),
        ("the Monday before July 24, 2023", "2023-07-17", "2023-07-17"),
        ("the Monday after July 24, 2023", "2023-07-31", "2023-07-31"),
        ("three days before the 1 March 2024", "2024-02-27", "2024-02-27"),
        ("the month after May 2023", "2023-06-01", "2023-06-30"),
        # The narrowest, and a day that there is.
        ("in July 2023, yesterday to be exact", "2023-07-11", "2023-07-11"),
        ("on 31 February, 2023, or last Friday", "2023-07-07", "2023-07-07"),
    ],
)
def test_told_days_are_those_of_a_calendar(text: str, first: str, last: str) -> None:
    found = told_days(text, SAID)
    epoch = date(1970, 1, 1)
    assert epoch + timedelta(days=found[0]) == date.fromisoformat(first)
    assert epoch + timedelta(days=found[1] - 1) == date.fromisoformat(last)


@pytest.mark.parametrize(
    "text",
    [
        *("", "I may go, and march on", "March for it!", "May I ask?", "last year", "in 2022"),
        *(
            "my last novel",
            "next mayor",
            "the last decade",
            "this Marvel",
            "last Sundays",
            "Mayor 5",
        ),
        *("the last of us", "next to the house", "a thing of the past", "an ago", "2023-13-45"),
        *("12000 months ago", "gestern", "\u6628\u5929"),
    ],
)
def test_told_days_of_what_tells_none(text: str) -> None:
    assert told_days(text, SAID) == (0, 0)


MAY_15 = datetime(2024, 5, 15, 12, tzinfo=UTC).timestamp()  # a Wednesday
TOLD = {
    "the day before yesterday": """the day before yesterday we met: 2024-05-13
        I leave the day after tomorrow: 2024-05-17
        two days after tomorrow: 2024-05-18
        we signed three days before yesterday: 2024-05-11
        two days before last Sunday I fell ill: 2024-05-10
        I saw him the night before last: 2024-05-13
        the week before last we were away: 2024-04-29 2024-05-05
        the weekend after next we move: 2024-05-31 2024-06-02""",
    "from today": """it is a week from today: 2024-05-22
        we met 2 weeks ago today: 2024-05-01
        the exam is three days from now: 2024-05-18
        exactly a month ago today I quit: 2024-04-15
        a week ago yesterday it rained: 2024-05-07
        a year ago today we married: 2023-05-15
        two weeks from Monday: 2024-06-03
        I ran a week last Tuesday: 2024-05-07
        a fortnight ago: 2024-04-27 2024-05-05
        on the 3rd of last month: 2024-04-03
        Tuesday of last week we met: 2024-05-07""",
    "spans": """I travelled between March and May 2023: 2023-03-01 2023-05-31
        the fair runs from 12 to 14 June 2024: 2024-06-12 2024-06-14
        from June 3rd through June 9th, 2023 I was ill: 2023-06-03 2023-06-09
        she stayed from 28 February to 2 March 2024: 2024-02-28 2024-03-02
        from December 2022 until January 2023 I rested: 2022-12-01 2023-01-31
        Conference: October 10-12, 2023: 2023-10-10 2023-10-12
        March-May 2023 was hard: 2023-03-01 2023-05-31
        May 3rd to May 5th: 2024-05-03 2024-05-05
        from January to June 2023: none""",
    "small and capital letters": """we met on 3 may 2024: 2024-05-03
        we met in JUNE 2023: 2023-06-01 2023-06-30
        born MAY 5, 1999 in Rome: 1999-05-05
        DEADLINE: 1 NOVEMBER 2024: 2024-11-01
        i was there in october: 2023-10-01 2023-10-31
        on the 3rd of may 2024 i quit: 2024-05-03
        it may 3 times fail, or march 10 miles: none
        Chapter 2 may help, section 3 march on: none""",
    "in figures": """the job ran at 2024-05-03T10:00:00Z: 2024-05-03
        [2024-05-01T08:15:30.123Z] ERROR: 2024-05-01
        at 2024-05-03T23:30:00-05:00 it dropped: 2024-05-04
        log-2024-05-03.txt: 2024-05-03
        03-May-2024 10:00 boot: 2024-05-03
        we met on 03.05.2024 in Bern: 2024-05-03
        due 25/12/2023 at noon: 2023-12-25
        due 03/05/2024 at noon: none
        version 2024.05.03.1 is out: none""",
    "years": """he was born on 10 May 1850: 1850-05-10
        signed July 4, 1776: 1776-07-04
        William won on 14 October 1066: 1066-10-14
        in March 1848 the crowds rose: 1848-03-01 1848-03-31
        the comet returns on 28 July 2061: 2061-07-28
        in March 1500 people came: none
        in the 1990s we had none: none""",
    "no such day": """there was no 29 February 2023: none
        it said 31 June 2023 on the bill: none
        the form reads February 30, 2024: none
        the 31st of September is a joke: none
        2023-02-29 is no day: none
        on the 31st of last month: none
        we met on 29 February 2024: 2024-02-29""",
    "quarters": """sales fell in Q3 2023: 2023-07-01 2023-09-30
        in the third quarter of 2023 we hired: 2023-07-01 2023-09-30
        Q1/2024 was weak: 2024-01-01 2024-03-31
        2023Q4 numbers: 2023-10-01 2023-12-31
        last quarter we lost: 2024-01-01 2024-03-31
        the second quarter of last year: 2023-04-01 2023-06-30
        the last quarter of the game: none""",
    "names": """I saw June yesterday: 2024-05-14
        I told April and June about it: none
        a letter from June arrived: none
        We waited until May called us: none
        by June's house we stopped: none
        a photo of April and me: none
        I called May in April: 2024-04-01 2024-04-30
        planning a trip in June and I will go: 2024-06-01 2024-06-30
        the end of June was hot: 2023-06-21 2023-06-30""",
    "by the verb": """we met on Friday: 2024-05-10
        we will meet on Friday: 2024-05-17
        the bread I tried on Tuesday: 2024-05-14
        I am seeing her on Monday: 2024-05-20
        we sing on Fridays: none
        they close on Friday: none
        a sale on Black Friday: none
        we skied over the weekend: 2024-05-10 2024-05-12
        any plans for the weekend?: 2024-05-17 2024-05-19
        we tried it this weekend: 2024-05-10 2024-05-12
        I will finish in three weeks: 2024-06-01 2024-06-09
        I finished it in three weeks: none
        we were in Rome in June: 2023-06-01 2023-06-30
        we will be in Rome in June: 2024-06-01 2024-06-30
        I will go there in March: 2025-03-01 2025-03-31""",
}


@pytest.mark.parametrize("kind", TOLD)
def test_told_days_as_people_write_them(kind: str) -> None:
    def shown(text: str) -> str:
        first, behind = told_days(text, MAY_15)
        days = (date.fromordinal(date(1970, 1, 1).toordinal() + n) for n in (first, behind - 1))
        return "none" if first == behind else " ".join(dict.fromkeys(map(str, days)))

    lines = [line.strip().rpartition(": ") for line in TOLD[kind].splitlines()]
    assert [(text, shown(text)) for text, _, _ in lines] == [
        (text, days) for text, _, days in lines
    ]


days_of = st.dates(date(1990, 1, 1), date(2080, 12, 31))


def _days(text: str, said: date) -> tuple[date, date] | None:
    moment = datetime.combine(said, time(12), UTC).timestamp()
    first, behind = told_days(text, moment)
    epoch = date(1970, 1, 1)
    return None if first == behind else (epoch + timedelta(first), epoch + timedelta(behind - 1))


@given(days_of, st.integers(1, 60))
def test_told_days_of_a_distance_is_that_of_a_calendar(said: date, number: int) -> None:
    day, week = timedelta(1), timedelta(7)
    near = {"yesterday": -day, "today": 0 * day, "tomorrow": day}
    wanted = {
        f"{number} days before {name}": said + off - number * day for name, off in near.items()
    }
    wanted |= {
        f"{number} days after {name}": said + off + number * day for name, off in near.items()
    }
    wanted |= {
        f"{number} weeks from {name}": said + off + number * week for name, off in near.items()
    }
    wanted |= {
        f"{number} weeks ago {name}": said + off - number * week for name, off in near.items()
    }
    wanted |= {"the day before yesterday": said - 2 * day, "the day after tomorrow": said + 2 * day}
    assert {text: _days(text, said) for text in wanted} == {
        text: (each, each) for text, each in wanted.items()
    }


@given(days_of, st.dates(date(1000, 1, 1), date(2999, 12, 31)), st.integers(-23 * 60, 23 * 60))
def test_told_days_of_a_date_in_every_form(said: date, day: date, minutes: int) -> None:
    forms = [f"{day.day} {day:%B} {day.year}", f"{day:%B} {day.day}, {day.year}"]
    forms += [f"the {day.day}th of {day:%b} {day.year}", f"{day.day}-{day:%b}-{day.year}"]
    forms += [str(day), f"{day}T10:00:00Z", f"{day.day}.{day.month}.{day.year}"]
    for form in (case(form) for form in forms for case in (str, str.lower, str.upper)):
        if form.endswith("z"):
            continue
        assert _days(f"we met on {form} at last", said) == (day, day), form
    zone = timezone(timedelta(minutes=minutes))
    moment = datetime.combine(day, time(12), zone)
    utc = moment.astimezone(UTC).date()
    assert _days(f"it ran at {moment.isoformat()}.", said) == (utc, utc)


@given(days_of, st.integers(1990, 2080), st.integers(1, 12), st.integers(27, 32))
def test_told_days_are_of_a_calendar_or_none(said: date, year: int, month: int, day: int) -> None:
    name = f"{date(2000, month, 1):%B}"
    try:
        wanted = (date(year, month, day),) * 2
    except ValueError:
        wanted = None
    for text in (f"{day} {name} {year}", f"{name} {day}, {year}", f"{year}-{month:02}-{day}"):
        assert _days(f"it was {text}.", said) == wanted, text


@given(days_of, days_of, st.integers(0, 90))
def test_told_days_of_a_span_is_that_of_a_calendar(said: date, first: date, length: int) -> None:
    last = first + timedelta(length)
    one, two = (f"{day.day} {day:%B} {day.year}" for day in (first, last))
    for text in (f"from {one} to {two}", f"between {one} and {two}", f"{one} - {two}"):
        assert _days(f"We stayed {text}.", said) == (first, last), text
    if first.month == last.month and length:
        text = f"from {first.day} to {last.day} {first:%B} {first.year}"
        assert _days(f"We stayed {text}.", said) == (first, last), text


def test_told_days_where_nobody_knows_when() -> None:
    for said in (None, math.nan):
        assert told_days("yesterday, last May, in June, on June 3rd", said) == (0, 0)
        assert told_days("8 May 2023", said) == told_days("8 May 2023", SAID)


@given(st.text(LETTERS, max_size=40), st.floats(-6e10, 2.5e11))
def test_told_days_of_anything(text: str, said: float) -> None:
    for words in (text, f"last {text}", f"{text} yesterday", "999 months ago", "next month"):
        first, behind = told_days(words, said)
        assert (first, behind) == (0, 0) or 0 < behind - first <= 100


@pytest.mark.parametrize(
    ("question", "window"),
    [
        ("What did I do in May 2023?", ("2023-05-01", "2023-06-01")),
        ("Where did I live before May 2023?", (None, "2023-05-01")),
        ("Where have I lived since 3 May, 2023?", ("2023-05-03", None)),
        ("What came after the 3 May 2023?", ("2023-05-04", None)),
        ("What came up until 3 May 2023?", (None, "2023-05-04")),
        ("What came between 3 May 2023 and June 5, 2023?", ("2023-05-03", "2023-06-06")),
        ("What came from March to May 2023?", ("2023-03-01", "2023-06-01")),
        ("What did I buy in 2022?", ("2022-01-01", "2023-01-01")),
        ("What did I buy after 2022?", ("2023-01-01", None)),
        ("What of 2022, and of 7 May 2022?", ("2022-05-07", "2022-05-08")),
        ("What did she do two weeks before 24 July, 2023?", ("2023-07-08", "2023-07-13")),
        ("What happened since last Friday?", ("2023-06-09", None)),
        ("What did I do yesterday?", ("2023-06-14", "2023-06-15")),
        ("What did I do this month?", ("2023-06-01", "2023-06-16")),
        ("What feed did I purchase in the past two months?", ("2023-04-14", "2023-06-16")),
        ("What was said today?", ("2023-06-15", "2023-06-16")),
        ("What should I watch tonight?", None),
        ("Any plans for this month?", None),
        ("What is on next week?", None),
        ("What was on next week?", None),
        ("Who may come, and when?", None),
        ("What of 31 February 2023?", None),
        ("", None),
    ],
)
def test_asked_window(question: str, window: tuple[str | None, str | None] | None) -> None:
    found = asked_window(question, parse_time("2023-06-15T12:00"))
    if window is None:
        assert found is None
        return
    assert found is not None
    start, stop = window
    assert found[0] == (-math.inf if start is None else parse_time(start))
    # The last instant before the end.
    end = math.inf if stop is None else parse_time(stop)
    assert found[1] == (end if stop is None else math.nextafter(end, -math.inf))


OCTOBER = parse_time("2023-10-20T12:00")  # a Friday


@pytest.mark.parametrize(
    ("question", "window"),
    [
        # Parts of what is named.
        ("Where were we in the first weekend of August?", ("2023-08-04", "2023-08-07")),
        ("Who came over the last weekend of April 2023?", ("2023-04-28", "2023-05-01")),
        ("What did I do in the week of 23 August?", ("2023-08-21", "2023-08-28")),
        ("What was said in the weekend of 5 August?", ("2023-08-04", "2023-08-07")),
        ("What of the second week of May?", ("2023-05-08", "2023-05-15")),
        ("What did I do in the last week of May?", ("2023-05-25", "2023-06-01")),
        ("Who came on the last Monday of March?", ("2023-03-27", "2023-03-28")),
        ("Who came on the second Tuesday in June 2023?", ("2023-06-13", "2023-06-14")),
        ("What happened at the end of July?", ("2023-07-21", "2023-08-01")),
        ("What was said in mid August?", ("2023-08-11", "2023-08-21")),
        ("What was said in mid-August 2023?", ("2023-08-11", "2023-08-21")),
        ("What happened in early 2023?", ("2023-01-01", "2023-05-01")),
        ("What did I do in late 2022?", ("2022-09-01", "2023-01-01")),
        ("What did I do in the second half of 2022?", ("2022-07-01", "2023-01-01")),
        ("What did I do in the first half of May?", ("2023-05-01", "2023-05-16")),
        ("What was it towards the end of summer 2023?", ("2023-08-01", "2023-09-01")),
        ("What happened late last month?", ("2023-09-21", "2023-10-01")),
        ("Which classes did she start in May 2023?", ("2023-05-01", "2023-06-01")),
        ("When did the course end in May 2023?", ("2023-05-01", "2023-06-01")),
        ("What did he start one year ago?", ("2022-01-01", "2023-01-01")),
        ("What happened in the fifth week of February 2023?", ("2023-02-01", "2023-03-01")),
        # Beside what is named.
        ("What did we do on the weekend before 3 June?", ("2023-05-26", "2023-05-29")),
        ("What did she join last weekend before April 10, 2023?", ("2023-04-07", "2023-04-10")),
        ("What came in the three weeks after 1 August?", ("2023-08-02", "2023-08-23")),
        ("What came within two months before 15 July?", ("2023-05-15", "2023-07-15")),
        ("What came in the weeks after 3 June?", ("2023-06-04", "2023-07-05")),
        ("What came in the days before 3 June?", ("2023-05-27", "2023-06-03")),
        ("What came two days after 3 May 2023?", ("2023-05-05", "2023-05-06")),
        ("Who called around 5 May 2023?", ("2023-05-02", "2023-05-09")),
        # Open ends.
        ("What happened after 15 September 2023?", ("2023-09-16", None)),
        ("what happened after 15 september 2023?", ("2023-09-16", None)),
        ("Which came no later than 12 March 2023?", (None, "2023-03-13")),
        ("What did I do on or after 3 May 2023?", ("2023-05-03", None)),
        ("What did I do from March 2023 onwards?", ("2023-03-01", None)),
        ("What did I do on 3 May 2023 or later?", ("2023-05-03", None)),
        ("How many had he, as of September 2023?", (None, "2023-10-01")),
        ("What happened by the end of June?", (None, "2023-07-01")),
        ("What happened before the end of May?", (None, "2023-06-01")),
        ("What happened after the beginning of May?", ("2023-05-01", None)),
        ("What happened since the start of the year?", ("2023-01-01", None)),
        ("What did she do after she moved in May 2023?", ("2023-05-01", None)),
        ("What did she do before Ada left on 3 May?", (None, "2023-05-03")),
        # Two.
        ("What happened after 10 May but before 3 June?", ("2023-05-11", "2023-06-03")),
        ("What did I buy between 20 June and 4 July 2023?", ("2023-06-20", "2023-07-05")),
        ("What did I buy between May 3 and May 10, 2023?", ("2023-05-03", "2023-05-11")),
        ("What did I buy between 3 and 10 May 2022?", ("2022-05-03", "2022-05-11")),
        ("What did I buy May 3-10, 2022?", ("2022-05-03", "2022-05-11")),
        ("What did I buy from 3 to 10 May?", ("2023-05-03", "2023-05-11")),
        ("What came between November and February?", ("2022-11-01", "2023-03-01")),
        ("What came between 2020 and 2022?", ("2020-01-01", "2023-01-01")),
        ("What came in May and in June 2022?", ("2022-05-01", "2022-07-01")),
        ("What did I do last year?", ("2022-01-01", "2023-01-01")),
        ("What did I do two years ago?", ("2021-01-01", "2022-01-01")),
        # What is beside the question.
        ("I moved in March 2023. Which instrument does she play?", None),
        ("Given that I moved in March 2023, what is my dog called?", None),
        ("What is my dog called, as I found it in May 2023?", None),
        ("What is the name of the dog that I found in May 2023?", None),
        ("I moved in March 2023. What did I buy that month?", ("2023-03-01", "2023-04-01")),
        ("What was said, as mentioned on 3 May 2023?", ("2023-05-03", "2023-05-04")),
        ("What has happened since?", None),
    ],
)
def test_asked_window_of_bounds(
    question: str, window: tuple[str | None, str | None] | None
) -> None:
    found = asked_window(question, OCTOBER)
    if window is None:
        assert found is None
        return
    start, stop = window
    end = math.inf if stop is None else math.nextafter(parse_time(stop), -math.inf)
    assert found == (-math.inf if start is None else parse_time(start), end)


@pytest.mark.parametrize(
    ("words", "window"),
    [
        # The year that is said beside a month.
        ("last year in March", ("2022-03-01", "2022-04-01")),
        ("in March last year", ("2022-03-01", "2022-04-01")),
        ("in March of last year", ("2022-03-01", "2022-04-01")),
        ("in August two years ago", ("2021-08-01", "2021-09-01")),
        ("on 5 May last year", ("2022-05-05", "2022-05-06")),
        ("on the first weekend of June two years ago", ("2021-06-04", "2021-06-07")),
        ("between March and May last year", ("2022-03-01", "2022-06-01")),
        ("before March last year", (None, "2022-03-01")),
        ("in March of the year before last", ("2021-03-01", "2021-04-01")),
        ("in March next year", ("2024-03-01", "2024-04-01")),
        ("in Q3 last year", ("2022-07-01", "2022-10-01")),
        ("in March the year before", None),
        ("in March, in 2021 or in 2022", None),
        ("from November to February last year", None),
        ("today a year ago", None),
        # What is left out.
        ("except in May 2023", None),
        ("outside of May 2023", None),
        ("other than on 5 May 2023", None),
        ("but not in May 2023", None),
        ("apart from May and June 2023", None),
        ("excluding May 2023", None),
        ("in any month but May 2023", None),
        ("with the exception of May 2023", None),
        ("in 2023 except in May", ("2023-01-01", "2024-01-01")),
        ("to save in May 2023", ("2023-05-01", "2023-06-01")),
        # Distances.
        ("more than two weeks ago", (None, "2023-10-06")),
        ("at least three months ago", (None, "2023-07-21")),
        ("over a year ago", (None, "2022-10-20")),
        ("less than a week ago", ("2023-10-13", "2023-10-21")),
        ("within 3 days of 5 May", ("2023-05-02", "2023-05-09")),
        ("more than two weeks after 5 May 2023", ("2023-05-20", None)),
        ("no more than 5 days before 20 May 2023", ("2023-05-15", "2023-05-20")),
        ("in the last 10 days", ("2023-10-10", "2023-10-21")),
        ("in last 10 days", ("2023-10-10", "2023-10-21")),
        ("2-3 weeks ago", None),
        ("more than 3 days from 5 May 2023", None),
        # What cannot be read.
        ("after 15 September 99999", None),
        ("on 5 May '22", None),
        ("on February 30 last year", None),
        ("on 29 February last year", None),
        ("on 2023-02-31", None),
        ("on 131 May 2023", None),
        ("between 3 May 2023 and 31 June 2023", None),
        ("on 5 May 10 am", ("2023-05-05", "2023-05-06")),
        # Other ways to write a day.
        ("since Monday", ("2023-10-16", None)),
        ("after Friday", ("2023-10-14", None)),
        ("after Friday, 5 May 2023", ("2023-05-06", None)),
        ("after 10:30 on 5 May 2023", ("2023-05-05", None)),
        ("on 15/06/2023", ("2023-06-15", "2023-06-16")),
        ("on 06/15/2023", ("2023-06-15", "2023-06-16")),
        ("on 05/06/2023", None),
        ("from 01/06/2023 to 20/06/2023", None),
        ("after 12.9.2023", ("2023-09-13", None)),
        ("in 2023-05", None),
        ("in 2023/05", ("2023-05-01", "2023-06-01")),
        ("in 06/2023", ("2023-06-01", "2023-07-01")),
        ("after 2023-09-11T10:00", ("2023-09-11", None)),
        ("before 2023-09-11 10:00", (None, "2023-09-12")),
        ("on 2023-09-11T23:00-05:00", ("2023-09-12", "2023-09-13")),
        ("on 2023-09-11T25:00", None),
        ("in Q3 2023", ("2023-07-01", "2023-10-01")),
        ("in 2023 Q2", ("2023-04-01", "2023-07-01")),
        ("in H1 of 2023", ("2023-01-01", "2023-07-01")),
        ("in Q4", ("2023-10-01", "2024-01-01")),
        # Two that exclude each other.
        ("in May 2022 before March 2022", None),
    ],
)
def test_asked_window_is_certain_or_none(
    words: str, window: tuple[str | None, str | None] | None
) -> None:
    found = (
        asked_window(f"What did Ann repair {words}?", OCTOBER),
        asked_window(f"{words[0].upper()}{words[1:]}, what did Ann repair?", OCTOBER),
    )
    if window is None:
        assert found == (None, None)
        return
    start, stop = window
    end = math.inf if stop is None else math.nextafter(parse_time(stop), -math.inf)
    assert found == ((-math.inf if start is None else parse_time(start), end),) * 2


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("What did I do the day before yesterday?", "2024-05-13", "2024-05-13"),
        ("What did I do 2 weeks ago today?", "2024-05-01", "2024-05-01"),
        ("Where was I a month ago yesterday?", "2024-04-14", "2024-04-14"),
        ("What did we do the week before last?", "2024-04-29", "2024-05-05"),
        ("What happened between March and May 2023?", "2023-03-01", "2023-05-31"),
        ("What happened between March 2023 and May 2023?", "2023-03-01", "2023-05-31"),
        ("What happened from 3 to 5 May 2024?", "2024-05-03", "2024-05-05"),
        ("What did we see between the 3rd and the 6th of April 2024?", "2024-04-03", "2024-04-06"),
        ("what did i do in march 2023?", "2023-03-01", "2023-03-31"),
        ("what did i do on 3 may 2024?", "2024-05-03", "2024-05-03"),
        ("WHAT DID I DO IN MAY 2023?", "2023-05-01", "2023-05-31"),
        ("What failed at 2024-05-03T10:00:00Z?", "2024-05-03", "2024-05-03"),
        ("What happened on 15 September 1066?", "1066-09-15", "1066-09-15"),
        ("What happened in May 1066?", "1066-05-01", "1066-05-31"),
        ("Who was born in 1850?", "1850-01-01", "1850-12-31"),
        ("What did we earn last quarter?", "2024-01-01", "2024-03-31"),
        ("What happened in the second quarter of 2023?", "2023-04-01", "2023-06-30"),
        ("How were sales in q2 2023?", "2023-04-01", "2023-06-30"),
        ("What happened this quarter?", "2024-04-01", "2024-05-15"),
        ("What happened in the 1990s?", "1990-01-01", "1999-12-31"),
        ("Where did I live in the '90s?", "1990-01-01", "1999-12-31"),
        ("What music came out in the eighties?", "1980-01-01", "1989-12-31"),
        ("What did she write in the early 1980s?", "1980-01-01", "1983-12-31"),
        ("What happened in the mid-1990s?", "1994-01-01", "1996-12-31"),
        ("What was built before the 1980s?", None, "1979-12-31"),
        ("Who reigned in the 19th century?", "1801-01-01", "1900-12-31"),
        ("What did I buy in the last decade?", "2014-05-15", "2024-05-15"),
        ("What did June do in June?", "2023-06-01", "2023-06-30"),
        ("What did I tell April and June in March 2023?", "2023-03-01", "2023-03-31"),
    ],
)
def test_asked_window_as_people_write_days(question: str, first: str | None, last: str) -> None:
    start = -math.inf if first is None else parse_time(first)
    end = parse_time(last) + 86_400.0
    assert asked_window(question, MAY_15) == (start, math.nextafter(end, -math.inf))


@pytest.mark.parametrize(
    "question",
    [
        *("What did April and June say?", "What did August and May tell me?", "Who is May's boss?"),
        *(
            "What happened after April left?",
            "What did I give to June?",
            "What did I get from April?",
        ),
        *("What happened in 2023-04?", "What happened on 29 February 2023?", "What may happen?"),
        *("What did I do on 32 May 2024?", "Who is in her 80s?", "Is it in the 1000s of files?"),
        *("What did I do on 3/5/2024?", "What happened in 1500 places?"),
    ],
)
def test_asked_window_of_names_and_of_no_such_days(question: str) -> None:
    assert asked_window(question, MAY_15) is None


@given(
    st.integers(1, 60),
    st.sampled_from(["day", "week"]),
    st.dates(date(1990, 1, 1), date(2080, 12, 31)),
)
def test_asked_window_of_a_distance_is_that_of_a_calendar(
    number: int, unit: str, today: date
) -> None:
    asked = parse_time(today)
    length = number * (86_400.0 if unit == "day" else 604_800.0)
    bounds = {
        f"more than {number} {unit}s ago": (-math.inf, asked - length),
        f"at least {number} {unit}s ago": (-math.inf, asked - length + 86_400.0),
        f"less than {number} {unit}s ago": (asked - length, asked + 86_400.0),
        f"within {number} {unit}s of {today}": (asked - length, asked + length + 86_400.0),
    }
    for words, (start, stop) in bounds.items():
        window = asked_window(f"What happened {words}?", asked)
        assert window == (start, math.nextafter(stop, -math.inf))


@given(st.dates(date(1990, 1, 1), date(2080, 12, 31)))
def test_asked_window_of_figures_is_one_day_or_none(day: date) -> None:
    window = asked_window(f"What happened on {day}?", OCTOBER)
    assert window is not None
    for form in ("%d.%m.%Y", "%Y/%m/%d", "%Y-%m-%dT12:00"):
        assert asked_window(f"What happened on {day:{form}}?", OCTOBER) == window
    certain = day.day > 12 or day.day == day.month
    for form in ("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"):
        found = asked_window(f"What happened on {day:{form}}?", OCTOBER)
        assert found == (window if certain else None)


@given(days_of, days_of, st.integers(0, 6))
def test_asked_window_of_days_is_that_of_a_calendar(one: date, two: date, weekday: int) -> None:
    def shown(day: date) -> str:
        return f"{day.day} {day:%B %Y}"

    def window(words: str) -> tuple[date | None, date | None]:
        found = asked_window(f"What happened {words}?", OCTOBER)
        assert found is not None
        epoch = date(1970, 1, 1)
        start, stop = (
            None if math.isinf(t) else epoch + timedelta(days=t // 86_400) for t in found
        )
        return start, stop

    one, two = sorted([one, two])
    day = timedelta(days=1)
    assert window(f"after {shown(one)}") == (one + day, None)
    assert window(f"since {shown(one)}") == (one, None)
    assert window(f"before {shown(one)}") == (None, one - day)
    assert window(f"until {shown(one)}") == (None, one)
    assert window(f"between {shown(one)} and {shown(two)}") == (one, two)
    assert window(f"from {shown(one)} to {shown(two)}") == (one, two)
    if two - one > 2 * day:
        between = f"after {shown(one)} and before {shown(two)}"
        assert window(between) == (one + day, two - day)
    monday = one - one.weekday() * day
    assert window(f"in the week of {shown(one)}") == (monday, monday + 6 * day)
    name = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"][weekday]
    month = [one.replace(day=1) + n * day for n in range(31)]
    own = [d for d in month if d.month == one.month and d.weekday() == weekday]
    assert window(f"on the second {name} of {one:%B %Y}") == (own[1], own[1])
    assert window(f"on the last {name} of {one:%B %Y}") == (own[-1], own[-1])
    saturdays = [d for d in month if d.month == one.month and d.weekday() == 5]
    weekend = window(f"in the first weekend of {one:%B %Y}")
    assert weekend == (saturdays[0] - day, saturdays[0] + day)


@pytest.mark.parametrize(
    ("question", "asked", "window"),
    [
        ("What happened last week?", "9999-12-31", ("9999-12-20", "9999-12-27")),
        ("What happened yesterday?", "9999-12-31", ("9999-12-30", "9999-12-31")),
        ("What was said in March?", "9999-12-31", ("9999-03-01", "9999-04-01")),
        ("What was said since March?", "9999-12-31", ("9999-03-01", None)),
        ("What was on today?", "9999-12-30", ("9999-12-30", "9999-12-31")),
        ("What was on this month?", "9999-11-30", ("9999-11-01", "9999-12-01")),
        ("What was on today?", "9999-12-31", None),
        ("What was on in December?", "9999-12-31", None),
        ("What is on next year, and next month?", "9999-12-31", None),
        ("What happened two weeks ago?", "0001-01-01", None),
        ("What was said in March?", "0001-01-01", None),
        ("What happened yesterday?", "0001-01-02", ("0001-01-01", "0001-01-02")),
    ],
)
def test_asked_window_at_the_ends_of_the_calendar(
    question: str, asked: str, window: tuple[str, str | None] | None
) -> None:
    found = asked_window(question, parse_time(asked))
    if window is None:
        assert found is None
        return
    start, stop = window
    end = math.inf if stop is None else math.nextafter(parse_time(stop), -math.inf)
    assert found == (parse_time(start), end)


@pytest.mark.parametrize("days", [0, 1, 6, 30, 31, 364, 366])
def test_relative_words_at_the_ends_of_the_calendar(days: int) -> None:
    parts = ["today", "yesterday", "tomorrow", "two weeks ago", "999 months ago", "in March"]
    parts += ["the past 999 weeks", "the week before 1 January", "the Monday after 31 December"]
    units = ("week", "weekend", "month", "winter", "Friday", "May")
    parts += [f"{which} {unit}" for which in ("last", "this", "next") for unit in units]
    early = FIRST_SECOND // 86_400
    late = LAST_SECOND // 86_400
    for said in (FIRST_SECOND + days * 86_400, math.nextafter(LAST_SECOND, 0) - days * 86_400):
        for part in parts:
            first, behind = told_days(part, said)
            assert (first, behind) == (0, 0) or early <= first < behind <= late
            window = asked_window(f"What was there {part}?", said)
            assert window is None or FIRST_SECOND <= window[0] <= window[1] <= LAST_SECOND


def test_asked_window_of_an_unknown_moment() -> None:
    assert asked_window("What did I do yesterday?", None) is None
    assert asked_window("What did I do in May?", math.nan) is None
    known = asked_window("What did I do in May 2023?", None)
    assert known == asked_window("What did I do in May 2023?", 0.0)


@given(st.text(LETTERS, max_size=40), st.floats(allow_nan=True) | st.none())
def test_asked_window_of_anything(text: str, asked: float | None) -> None:
    asked = None if asked is None or not -6e10 < asked < 2.5e11 else asked
    found = asked_window(text, asked)
    assert found is None or found[0] <= found[1]


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("What did Ada buy in May 2023?", "What did Ada buy in ?"),
        ("Who came on 8 May, 2023, and in 2021?", "Who came on , and in ?"),
        ("What did I do two weeks before 24 July, 2023?", "What did I do ?"),
        ("What did we eat last Friday?", "What did we eat ?"),
        ("Who came in the first weekend of August?", "Who came in ?"),
        ("Who came between 3 and 10 May 2023?", "Who came ?"),
        ("Who is it?", "Who is it?"),
    ],
)
def test_undated(question: str, left: str) -> None:
    found = undated(question)
    assert len(found) == len(question)
    assert " ".join(found.split()).replace(" ,", ",") == left.replace(" ,", ",")


@given(st.text(LETTERS, max_size=40))
def test_undated_of_anything(text: str) -> None:
    assert len(undated(text)) <= len(text) + 1


def test_a_text_of_a_megabyte_tells_of_the_days_at_its_beginning() -> None:
    day = told_days("It was on 8 May 2023.", None)
    dates = "".join(f"On {1 + i % 28} June {1900 + i % 100} it rained. " for i in range(40_000))
    assert told_days("It was on 8 May 2023." + "x" * 1_000_000, None) == day
    assert told_days("x " * 5_000 + "It was on 8 May 2023.", None) == (0, 0)
    assert told_days(dates, None)[1] - told_days(dates, None)[0] == 1


_DAYS_IN_WORDS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth"),
    *("seventeenth", "eighteenth", "nineteenth", "twentieth", "twenty-first", "twenty second"),
    *("twenty-third", "twenty-fourth", "Twenty-fifth", "twenty-sixth", "twenty seventh"),
    *("twenty-eighth", "twenty-ninth", "thirtieth", "thirty-first"),
)


@pytest.mark.parametrize("month", range(1, 13))
def test_days_of_a_month_in_words(month: int) -> None:
    name = date(2023, month, 1).strftime("%B")
    for day, words in enumerate(_DAYS_IN_WORDS, 1):
        try:
            wanted = (date(2023, month, day) - date(1970, 1, 1)).days
        except ValueError:
            assert told_days(f"It was on the {words} of {name} 2023.", None) == (0, 0)
            continue
        for of in ("of", "day of"):
            told = told_days(f"It was on the {words} {of} {name} 2023.", None)
            assert told == (wanted, wanted + 1)


@pytest.mark.parametrize("month", range(1, 13))
def test_the_last_day_of_a_month(month: int) -> None:
    last = calendar.monthrange(2024, month)[1]
    day = (date(2024, month, last) - date(1970, 1, 1)).days
    name = date(2024, month, 1).strftime("%B")
    assert told_days(f"The last day of {name} 2024 was warm.", None) == (day, day + 1)


@pytest.mark.parametrize(
    "text", ["We may second that.", "The first of many.", "On the first day of school we met."]
)
def test_ordinals_that_are_no_days(text: str) -> None:
    assert told_days(text, MAY_8) == (0, 0)
