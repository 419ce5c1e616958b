"""Characters that show nothing, and forms of one name, against the properties of `regex`."""

from __future__ import annotations

import sys
import unicodedata

import pytest
import regex

from graphmem_torch.text.terms import terms, title_terms
from graphmem_torch.text.unicode_forms import composed, visible

IGNORABLE = [
    chr(code) for code in range(sys.maxunicode + 1) if regex.match(r"\p{DI}", chr(code)) is not None
]


def test_every_ignorable_character_goes_and_no_other() -> None:
    everything = "".join(chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000)
    assert visible(everything) == regex.sub(r"\p{DI}", "", everything)


@pytest.mark.parametrize("word", ["passphrase", "Gesamtkonzept", "перевод", "naïvely", "λόγος"])
def test_none_splits_a_word_or_hides_it(word: str) -> None:
    for sign in [*filter("\U000e0000".__gt__, IGNORABLE), "\U000e0061", "\U000e01ef"]:
        for text in (f"{word[:4]}{sign}{word[4:]}", f"{sign}{word}", f"{word}{sign}"):
            assert terms(text) == terms(word), ascii(sign)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("Ge\u00adsamt\u00adkon\u00adzept", "Gesamtkonzept"),
        ("pass\u200bphrase", "passphrase"),
        ("blue\u2060berry", "blueberry"),
        ("in\ufeffside out", "inside out"),
        ("cafe\u0301", "café"),
        ("cafe\u00ad\u0301", "café"),
        ("Auf\u200clage", "Auflage"),
        ("क्\u200dष", "क्ष"),
        ("ന്\u200d", "ന്"),
        ("کتاب\u200cها", "کتاب ها"),  # Persian divides words so
        ("\ufee3\ufef2\u200cروم", "مي روم"),
        ("kite \U0001f469\u200d\U0001f52c wind", "kite wind"),
    ],
)
def test_terms_are_those_of_what_is_seen(written: str, plain: str) -> None:
    assert terms(written) == terms(plain)


def test_a_title_is_read_through_them() -> None:
    assert title_terms("Kite\u00ad flying\n\nIt is windy.") == title_terms("Kite flying\n\nWindy.")


def test_names_are_compared_in_nfc() -> None:
    for name in ("Jos\u00e9", "ti\u1ebfn", "\u212bngstr\u00f6m", "\uac01", "plain"):
        for form in ("NFC", "NFD"):
            assert composed(unicodedata.normalize(form, name)) == unicodedata.normalize("NFC", name)
