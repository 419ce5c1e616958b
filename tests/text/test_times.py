from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.text.times import parse_time

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
    ],
)
def test_parse_time_of_one_moment_in_every_form(value: str | int | float) -> None:
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


@given(
    st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
)
def test_parse_time_of_iso_round_trip(moment: datetime, minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert parse_time(aware.isoformat()) == pytest.approx(aware.timestamp(), abs=1e-5)
    naive = moment.replace(tzinfo=UTC).timestamp()
    assert parse_time(moment.isoformat()) == pytest.approx(naive, abs=1e-5)


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
