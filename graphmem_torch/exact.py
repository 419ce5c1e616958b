"""Exact numbers: JSON without lost digits, and values that compare exactly.

JSON has numbers of any size. Python reads a number with a point or an exponent as a float, which
may have other digits; this module reads such numbers as `Decimal`.
"""

from __future__ import annotations

import decimal
import json
import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from numbers import Integral, Real
from typing import Any

__all__ = ["DigitsError", "dump_json", "exact_value", "load_json"]

_MOST = 4300  # digits, the limit of Python for reading an integer
_MOST_BITS = int(_MOST * math.log2(10))
_SHORT = 16  # characters of a numeral without exponent that every float reproduces


class DigitsError(ValueError):
    """Number with more digits than can be read or written."""


class _Encoder(json.JSONEncoder):
    """Encoder of one value; writes a mark for a decimal, which `dump_json` replaces.

    Attributes:
        numerals: Numerals of the decimals, in order.
        mark: Random string, so that the value cannot contain it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.numerals: list[str] = []
        self.mark = ""

    def default(self, o: object) -> Any:
        """Return a number as one that JSON has, or a decimal as a marked string."""
        if isinstance(o, Integral):
            return int(o)
        if isinstance(o, Decimal) and not o.is_finite():
            raise ValueError(f"{o} is not finite")
        if isinstance(o, Real | Decimal) and (number := float(o)) == o:
            return number  # one form for equal numbers: a number read back is written as before
        if isinstance(o, Decimal):
            self.mark = self.mark or secrets.token_hex(16)
            self.numerals.append(_numeral(o))
            return self.mark
        return super().default(o)


def dump_json(value: object, **options: Any) -> str:
    """Write JSON that `load_json` reads back as equal numbers; takes the options of `json.dumps`.

    Decimals and numbers of other libraries keep all digits. No string becomes a number.

    Raises:
        TypeError: A value has no JSON form.
        DigitsError: A number has more than 4,300 digits.
        ValueError: JSON cannot represent a number exactly.
    """
    encoder = _Encoder(**options)
    with _few_digits():
        text = encoder.encode(value)
    if not encoder.numerals:
        return text
    first, *others = text.split(f'"{encoder.mark}"')
    pairs = zip(encoder.numerals, others, strict=True)
    return "".join([first, *chain.from_iterable(pairs)])


def load_json(text: str | bytes, *, constant: Callable[[str], Any] | None = None) -> Any:
    """Read JSON: integers as int, other numbers as float if that keeps the digits, else Decimal.

    Args:
        text: JSON.
        constant: Function called for NaN, Infinity and -Infinity, which JSON lacks.

    Raises:
        DigitsError: A number has more than 4,300 digits.
        ValueError: The text is not JSON.
    """
    with _few_digits():
        return json.loads(text, parse_float=_read, parse_constant=constant)


@contextmanager
def _few_digits() -> Iterator[None]:
    """Replace Python's error for an integer of too many digits by `DigitsError`."""
    try:
        yield
    except ValueError as error:
        if "set_int_max_str_digits" not in str(error):
            raise
        raise DigitsError(_many("an integer with more")) from None


def exact_value(number: Real | Decimal) -> int | Fraction | float:
    """Return a number for exact comparisons; infinities and NaN are floats.

    Raises:
        DigitsError: The number has more than 4,300 digits.
    """
    if isinstance(number, int | Integral):  # the most common first: `Integral` is slow
        if (whole := int(number)).bit_length() > _MOST_BITS:
            raise DigitsError(_many(f"an integer of {whole.bit_length():,} bits"))
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
    # A float of more than 64 bits has its own exact ratio.
    return Fraction(*getattr(number, "as_integer_ratio", value.as_integer_ratio)())


def _read(numeral: str) -> float | Decimal:
    """Read a number with a point or exponent: a float if it keeps the digits, else a decimal."""
    value = float(numeral)
    short = len(numeral) <= _SHORT and "e" not in numeral and "E" not in numeral
    if short or repr(value) == numeral:
        return value
    try:
        written = Decimal(numeral)
    except decimal.InvalidOperation:
        raise DigitsError(_many(f"{numeral:.20}...")) from None
    _expect_few(written)
    if math.isinf(value):
        return written
    digits = decimal.Context(prec=len(written.as_tuple().digits))
    return value if digits.create_decimal_from_float(value) == written else written


def _numeral(number: Decimal) -> str:
    """Return the JSON numeral of a decimal that no float equals, which reads back as equal.

    Raises:
        DigitsError: The decimal has too many digits.
    """
    _expect_few(number)
    whole, _, exponent = str(number).partition("E")
    zeros = 0
    # 0.1 reads as a float, which is another number; enough zeros mark the decimal.
    while (text := whole + _zeros(whole, zeros) + (exponent and f"E{exponent}")) and (
        load_json(text) != number
    ):
        zeros = 2 * zeros or _SHORT
    return text


def _zeros(whole: str, count: int) -> str:
    return "" if count == 0 else "0" * count if "." in whole else "." + "0" * count


def _expect_few(number: Decimal) -> None:
    if len(number.as_tuple().digits) > _MOST or abs(number.adjusted()) > _MOST:
        raise DigitsError(_many(f"{number:.10e}"))


def _many(got: str) -> str:
    return f"expected a number of at most {_MOST:,} digits, got {got}"
