"""Values of `meta` as JSON has them, against the standard library."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.plain import plain_meta, plain_value


class Colour(Enum):
    RED = "red"
    DAY = date(2024, 5, 3)
    ODD = (1, 2)


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    KITE = "kite"


BERLIN = timezone(timedelta(hours=2))
NUMBER = UUID("12345678123456781234567812345678")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (datetime(2024, 5, 3, 12, tzinfo=BERLIN), "2024-05-03T10:00:00+00:00"),
        (datetime(2024, 5, 3, 10, 0, 0, 5, tzinfo=UTC), "2024-05-03T10:00:00.000005+00:00"),
        (date(2024, 5, 3), "2024-05-03"),
        (NUMBER, "12345678-1234-5678-1234-567812345678"),
        (Colour.RED, "red"),
        (Colour.DAY, "2024-05-03"),
        (Level.HIGH, 3),
        (Word.KITE, "kite"),
        (np.True_, True),
        (np.int64(2**60), 2**60),
        (np.uint8(7), 7),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float64(0.5), 0.5),
        (np.str_("x"), "x"),
        (np.datetime64("2024-05-03"), "2024-05-03"),
    ],
)
def test_a_value_has_one_form(value: Any, wanted: Any) -> None:
    found = plain_value(value, "meta.x")
    assert found == wanted and type(found) is type(wanted)
    nested = plain_meta({"a": [value, {"b": value}], "c": (value,)}, "meta")
    assert nested == {"a": [wanted, {"b": wanted}], "c": [wanted]}
    assert json.loads(json.dumps(nested)) == nested


@pytest.mark.parametrize("value", [Decimal("0.1"), Fraction(1, 3), 10**400, True, None, "é", 0.1])
def test_other_numbers_and_plain_values_stay(value: Any) -> None:
    assert plain_value(value, "meta.x") is value


@pytest.mark.parametrize(
    "value",
    [
        datetime(2024, 5, 3),
        np.datetime64("2024-05-03T10:00"),
        np.timedelta64(3, "s"),
        time(10),
        timedelta(1),
        {1},
        b"x",
        1j,
        object(),
        Colour.ODD,
        np.array([1]),
    ],
)
def test_what_has_no_single_form_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InputError, match=r"meta\.a\.b: expected .*got "):
        plain_meta({"a": {"b": [value]}}, "meta")


def test_what_is_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError, match=r"meta\.a: expected fewer levels"):
        plain_meta({"a": deep}, "meta")


aware = st.datetimes(
    min_value=datetime(1000, 1, 2), timezones=st.sampled_from([UTC, BERLIN, timezone.min])
).filter(lambda when: when.year < 9999)


@given(one=aware, other=aware)
def test_times_are_in_order_as_text(one: datetime, other: datetime) -> None:
    texts = [plain_value(each, "x") for each in (one, other)]
    assert (texts[0] < texts[1]) == (one < other) and (texts[0] == texts[1]) == (one == other)
