from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.text.times import TimeLike, parse_span, parse_time

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
