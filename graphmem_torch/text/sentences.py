"""Sentences: where one ends and the next begins, by rules that need no model."""

from __future__ import annotations

import re

__all__ = ["ends_sentence", "split_at_marks", "split_sentences"]

_MARKS = (".", "!", "?", "…", "。", "！", "？")
_CLOSING = "\"'”’)]}»"

# An end mark with what closes around it, then white space, then what may begin a sentence; or a
# line feed, unless the next line goes on in lower case.
_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+\s++(?=[\"'“‘(\[]*[^\W_a-z])|[。！？]+"
    r"|(?<!\s)\s*\n(?:\s*\n\s*|\s*(?![a-z\s]))"
)
_SHORT = """
mr mrs ms dr prof rev hon st sr jr gen col capt lt sgt gov sen rep pres no vol pp p ed eds fig sec
ch vs etc al e.g i.e cf ca approx inc ltd co corp dept univ mt ft jan feb mar apr jun jul aug sep
sept oct nov dec
"""
_ABBREVIATIONS = frozenset(_SHORT.split())
_LOOK = 64  # characters back: more than a word and the white space behind it
_LAST_WORD = re.compile(r"([^\W\d_](?:\.?[^\W\d_])*)\.$")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space behind it: joined they are the text.

    A full stop behind an initial (G. Stanley Hall), an abbreviation (Dr. Who), or inside one
    (U.S. Navy) ends nothing.
    """
    found, start = [], 0
    for match in _END.finditer(text):
        head = text[max(start, match.end() - _LOOK) : match.end()].rstrip().rstrip("\"'”’)]")
        if not head or ("\n" not in match.group() and _goes_on(head)):
            continue
        found.append(text[start : match.end()])
        start = match.end()
    if text[start:].strip() or not found:
        found.append(text[start:])
    else:
        found[-1] += text[start:]
    return [part for part in found if part]


def ends_sentence(text: str) -> bool:
    """Whether a text ends as a sentence does: with its mark, and perhaps what closes around it."""
    return text.rstrip(_CLOSING).endswith(_MARKS)


def split_at_marks(text: str, marks: str = ".!?") -> list[str]:
    """The parts of a text that end with one of these marks and white space behind it.

    Plainer than `split_sentences`: an abbreviation ends a part, and one may begin in lower case.
    The white space between the parts is left out.
    """
    return re.split(rf"(?<=[{re.escape(marks)}])\s+", text)


def _goes_on(head: str) -> bool:
    """Whether the full stop at the end belongs to the last word."""
    if head.lstrip().removesuffix(".").isdecimal():  # the number of a list's item
        return True
    word = _LAST_WORD.search(head)
    if word is None:
        return False
    bare = word.group(1)
    initial = bare[0].isupper() and (len(bare) == 1 or "." in bare)
    return initial or bare.lower() in _ABBREVIATIONS
