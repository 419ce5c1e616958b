"""Numbers that lose no digit: as JSON, and as values that compare exactly.

JSON writes numbers of any size. Python reads those with a point or an exponent as floats, of which
some have other digits than what is written; these are `Decimal` here.
"""

from __future__ import annotations

import decimal
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

__all__ = ["ExactEncoder", "dump_json", "exact_value", "load_json"]

_MOST = 4300  # digits: as many as Python reads of an integer
_MOST_BITS = int(_MOST * math.log2(10))
_SHORT = 16  # characters of a numeral without exponent whose digits every float keeps
_MARK = "\ud800"  # begins a numeral among strings, in which half a surrogate pair never stands
_MARKED = re.compile(r'"(?:\ud800|\\ud800)([-+.\dE]+)"')


class ExactEncoder(json.JSONEncoder):
    """Encoder that also writes decimals, and numbers of other libraries, with all of their digits.

    Raises:
        TypeError: A value that JSON has no form for.
        ValueError: A number with too many digits, or that JSON cannot write exactly.
    """

    def default(self, o: object) -> Any:
        """A number as one that JSON knows; a decimal as a marked string."""
        if isinstance(o, Integral):
            return int(o)
        if isinstance(o, Decimal) and not o.is_finite():
            raise ValueError(f"{o} is not finite")
        if isinstance(o, Real | Decimal) and (number := float(o)) == o:
            return number  # one form of one number: what is read is written as it was
        if isinstance(o, Decimal):
            return _MARK + _numeral(o)
        return super().default(o)

    def encode(self, o: object) -> str:
        """The text of a value."""
        text = super().encode(o)
        marked = _MARK in text or "\\ud800" in text
        return _MARKED.sub(r"\1", text) if marked else text


def dump_json(value: object, **options: Any) -> str:
    """Write JSON that `load_json` reads back as equal numbers; options as of `json.dumps`."""
    return ExactEncoder(**options).encode(value)


def load_json(text: str | bytes, *, constant: Callable[[str], Any] | None = None) -> Any:
    """Read JSON: an integer as an int, another number as a float of the same digits, else exactly.

    Args:
        text: JSON.
        constant: Called with NaN, Infinity and -Infinity, which JSON does not have.

    Raises:
        ValueError: No JSON, or a number of more than 4,300 digits.
    """
    return json.loads(text, parse_float=_read, parse_constant=constant)


def exact_value(number: Real | Decimal) -> int | Fraction | float:
    """The value of a number for exact comparisons; infinite and NaN ones are floats.

    Raises:
        ValueError: A number of more than 4,300 digits.
    """
    if isinstance(number, int | Integral):  # the usual first: `Integral` is slow
        if (whole := int(number)).bit_length() > _MOST_BITS:
            raise ValueError(_many(f"an integer of {whole.bit_length():,} bits"))
        return whole
    if isinstance(number, Decimal):
        if not number.is_finite():
            return math.nan if number.is_nan() else math.copysign(math.inf, number)
        _expect_few(number)
        return Fraction(number)
    if isinstance(number, Fraction):
        return number
    value = float(number)
    if not math.isfinite(value):
        return value
    # A float of more than 64 bits says what it is itself.
    return Fraction(*getattr(number, "as_integer_ratio", value.as_integer_ratio)())


def _read(numeral: str) -> float | Decimal:
    """A number with a point or an exponent: a float if it has the digits that are written."""
    value = float(numeral)
    short = len(numeral) <= _SHORT and "e" not in numeral and "E" not in numeral
    if short or repr(value) == numeral:
        return value
    try:
        written = Decimal(numeral)
    except decimal.InvalidOperation:
        raise ValueError(_many(f"{numeral:.20}...")) from None
    _expect_few(written)
    if math.isinf(value):
        return written
    digits = decimal.Context(prec=len(written.as_tuple().digits))
    return value if digits.create_decimal_from_float(value) == written else written


def _numeral(number: Decimal) -> str:
    """A decimal that no float is, as JSON writes it so that it is read as an equal number.

    Raises:
        ValueError: It has too many digits.
    """
    _expect_few(number)
    whole, _, exponent = str(number).partition("E")
    zeros = 0
    # 0.1 is read as the float, which is another number: enough zeros say that it is not meant.
    while (text := whole + _zeros(whole, zeros) + (exponent and f"E{exponent}")) and (
        load_json(text) != number
    ):
        zeros = 2 * zeros or _SHORT
    return text


def _zeros(whole: str, count: int) -> str:
    return "" if count == 0 else "0" * count if "." in whole else "." + "0" * count


def _expect_few(number: Decimal) -> None:
    if len(number.as_tuple().digits) > _MOST or abs(number.adjusted()) > _MOST:
        raise ValueError(_many(f"{number:.10e}"))


def _many(got: str) -> str:
    return f"expected a number of at most {_MOST:,} digits, got {got}"
