"""Numbers in JSON and their exact values, against `decimal` and `fractions`."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.exact import DigitsError, dump_json, exact_value, load_json

DIGITS = st.text("0123456789", min_size=1, max_size=30)
NUMERALS = st.builds(
    "{}{}.{}{}".format,
    st.sampled_from(["", "-"]),
    DIGITS.map(lambda digits: digits.lstrip("0") or "0"),
    DIGITS,
    st.integers(-400, 400).map(lambda e: f"e{e}") | st.just(""),
)


@given(NUMERALS)
def test_every_digit_that_is_written_is_read(numeral: str) -> None:
    """A float stands for a numeral if it rounds to the same digits; else it is kept as written."""
    number, written = load_json(numeral), Decimal(numeral)
    if isinstance(number, Decimal):
        assert number == written
    shown = f"{float(numeral):.{len(written.as_tuple().digits) - 1}e}"
    assert isinstance(number, float) == (
        not math.isinf(float(numeral)) and Decimal(shown) == written
    )


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_numbers_of_python_are_as_they_were(number: float) -> None:
    text = json.dumps([number])
    assert dump_json([number]) == text
    (read,) = load_json(text)
    assert type(read) is type(number) and repr(read) == repr(number)


@given(st.decimals(-(10**300), 10**300, allow_nan=False, allow_infinity=False))
def test_a_decimal_comes_back_equal(number: Decimal) -> None:
    for escaped in (True, False):
        text = dump_json({"a": [number]}, ensure_ascii=escaped)
        assert load_json(text)["a"][0] == number
        assert Decimal(json.loads(text, parse_float=str, parse_int=str)["a"][0]) in (
            number,
            Decimal(repr(float(number))),
        )
        assert dump_json(load_json(text), ensure_ascii=escaped) == text


def test_decimals_apart_from_the_floats_beside_them() -> None:
    for text in ("0.1", "1.1", "0.30000000000000004", "5e-324", "1e400"):
        read = load_json(dump_json(Decimal(text)))
        assert isinstance(read, Decimal) and read == Decimal(text)
    assert load_json(dump_json(Decimal("0.5"))) == 0.5
    assert [type(load_json(text)) for text in ("0.1", "2.10", "1e22", "-0.0", "1E5")] == [float] * 5


def test_numbers_of_numpy() -> None:
    whole, half = np.uint64(2**64 - 1), np.float32(0.1)
    assert load_json(dump_json([whole, half])) == [2**64 - 1, float(half)]
    assert exact_value(whole) == 2**64 - 1 and exact_value(half) == Fraction(float(half))


def test_exact_values() -> None:
    third = Fraction(1, 3)
    assert exact_value(Decimal("0.1")) == Fraction(1, 10) != exact_value(0.1)
    assert exact_value(10**400) == 10**400 and exact_value(third) is third
    assert exact_value(-0.0) == exact_value(0) == exact_value(Decimal("-0"))
    assert exact_value(Decimal("-Infinity")) == -math.inf and exact_value(math.inf) == math.inf
    for nan in (math.nan, Decimal("NaN"), Decimal("sNaN")):
        assert math.isnan(exact_value(nan))


@pytest.mark.parametrize(
    "number", [10**4301, Decimal("1e4301"), Decimal("1e-99999999999")], ids=type
)
def test_numbers_of_too_many_digits(number: Any) -> None:
    with pytest.raises(ValueError, match="digits"):
        exact_value(number)
    with pytest.raises(ValueError, match="digits"):
        dump_json(number)


@pytest.mark.parametrize(
    "text", ["1" * 4301, "1e4301", "1e-99999999999999999999", "0." + "1" * 4301]
)
def test_numerals_of_too_many_digits(text: str) -> None:
    with pytest.raises(ValueError, match="digits"):
        load_json(text)


def test_what_json_cannot_write() -> None:
    for value in (Decimal("NaN"), Decimal("-Infinity")):
        with pytest.raises(ValueError, match="is not finite"):
            dump_json(value)
    for other in (Fraction(1, 3), object()):
        with pytest.raises(TypeError, match="not JSON serializable"):
            dump_json(other)


STRINGS = st.text(st.characters() | st.sampled_from('\ud8000123456789.-+eE"\\'), max_size=12)


@given(
    st.recursive(
        STRINGS | st.decimals(-(10**30), 10**30) | st.integers(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=3),
        max_leaves=8,
    )
)
def test_no_string_becomes_a_number(value: Any) -> None:
    def typed(each: Any) -> Any:
        if isinstance(each, list):
            return list(map(typed, each))
        if isinstance(each, dict):
            return {name: typed(inner) for name, inner in each.items()}
        return each if isinstance(each, str) else Fraction(each)

    assert typed(load_json(dump_json(value))) == typed(value)


@pytest.mark.parametrize("escaped", [True, False])
def test_strings_that_look_like_marks(escaped: bool) -> None:
    exact = Decimal("0.1000000000000000000001")
    for text in ("\ud8001.5", "\ud80012", "0" * 32, "\\ud8001.5", '"1.5"', "\x001.5"):
        value = {text: [text, exact, text], "n": exact}
        assert load_json(dump_json(value, ensure_ascii=escaped)) == value


def test_too_many_digits_are_told_in_our_words() -> None:
    for act in (lambda: dump_json([10**5000]), lambda: load_json(f"[{'1' * 5000}]")):
        with pytest.raises(DigitsError, match="expected a number of at most 4,300 digits"):
            act()
