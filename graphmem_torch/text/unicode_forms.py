"""Normalise Unicode: equal forms for names, and text without invisible characters."""

from __future__ import annotations

import unicodedata

from graphmem_torch.lazy import lazy_pattern

__all__ = ["composed", "visible"]

# Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt): soft hyphens, zero-width spaces
# and joiners, byte order marks, marks of direction, variation selectors, tags, fillers. A
# zero-width non-joiner after a letter of the Arabic script stays: Persian divides words by it.
_INVISIBLE = lazy_pattern(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200d-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|(?<![\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefe])\u200c"
)


def composed(name: str) -> str:
    """Return a name in NFC, the form in which names are compared."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def visible(text: str) -> str:
    """Return a text without invisible characters, so that its words are whole.

    Emoji lose their joiners as well; the result is for reading words, not for display.
    """
    return text if text.isascii() else _INVISIBLE.sub("", text)
