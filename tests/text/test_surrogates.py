"""Halves of surrogate pairs, against what the codec of UTF-16 makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.text.surrogates import replace_surrogates

UNITS = st.text(st.characters() | st.sampled_from("\ud83d\ude00\ud800\udfff"), max_size=12)


def by_codec(text: str) -> str:
    """Return the units decoded with errors replaced, a run of halves one by one."""
    parts, units = [], text.encode("utf-16-le", "surrogatepass")
    place = 0
    while place < len(units):
        for size in (4, 2):
            part = units[place : place + size]
            try:
                sign = part.decode("utf-16-le")
            except UnicodeDecodeError:
                continue
            if len(sign) == 1:
                parts.append(sign)
                place += size
                break
        else:
            parts.append("\ufffd")
            place += 2
    return "".join(parts)


@given(UNITS)
def test_a_text_is_what_a_decoder_gives(text: str) -> None:
    mended, count = replace_surrogates(text)
    assert mended == by_codec(text)
    mended.encode()
    assert count == mended.count("\ufffd") - text.count("\ufffd")


@given(st.recursive(UNITS | st.integers(), lambda v: st.lists(v) | st.dictionaries(UNITS, v)))
def test_texts_inside_of_values(value: Any) -> None:
    mended, count = replace_surrogates(value)
    assert (mended is value) or mended != value
    assert replace_surrogates(mended) == (mended, 0)
    if count == 0 and "\ud83d\ude00" not in repr(value):
        assert mended == value


@pytest.mark.parametrize("value", [None, 5, 2.5, b"\xff", (1, "a\ud83d")])
def test_values_of_any_kind(value: Any) -> None:
    mended, count = replace_surrogates(value)
    assert (mended, count) == (((1, "a\ufffd"), 1) if isinstance(value, tuple) else (value, 0))
