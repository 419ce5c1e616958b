"""Split a text into sentences and chunks, by rules that need no model."""

from __future__ import annotations

import re

from graphmem_torch.errors import InputError
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.tokens import Tokenizer

__all__ = ["chunk_text", "split_at_marks", "split_sentences"]

# Full stops without a space after them: Chinese and Japanese, Hindi, Urdu, Ethiopian, Khmer and
# Burmese. Arabic differs in its question mark alone.
_STOPS = "。！？｡।॥؟۔።។။"
_MARKS = (".", "!", "?", "…", *_STOPS)
_CLOSING = "\"'”’)]}»」』）】》"

# An end mark with closing marks, white space, and a possible beginning; or a line feed, unless the
# next line starts in lower case.
_END = lazy_pattern(
    r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+\s++(?=[\"'“‘(\[]*[^\W_a-z])"
    rf"|[{_STOPS}]++[\"'”’」』）】》]*+\s*+"
    r"|(?<!\s)\s*\n(?:\s*\n\s*|\s*(?![a-z\s]))"
)
_SHORT = """
mr mrs ms dr prof rev hon st sr jr gen col capt lt sgt gov sen rep pres no vol pp p ed eds fig sec
ch vs etc al e.g i.e cf ca approx inc ltd co corp dept univ mt ft jan feb mar apr jun jul aug sep
sept oct nov dec
"""
_ABBREVIATIONS = frozenset(_SHORT.split())
_LOOK = 64  # characters back: more than a word and the white space after it
_LAST_WORD = lazy_pattern(r"([^\W\d_](?:\.?[^\W\d_])*)\.$")


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, each with the white space after it; joined they are the text.

    Full stops of any script end a sentence; Thai, which has none, is split at line feeds only. A
    full stop after an initial (G. Stanley Hall), after an English abbreviation (Dr. Who), or inside
    one (U.S. Navy) ends nothing.
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


def split_at_marks(text: str, marks: str = ".!?") -> list[str]:
    """Split a text after each of these marks that white space follows.

    Full stops of other scripts split too, without white space. Simpler than `split_sentences`: an
    abbreviation ends a part, and a part may begin in lower case. White space between the parts is
    dropped.
    """
    return re.split(
        rf"(?<=[{re.escape(marks)}])\s+|(?<=[{_STOPS}])(?![{_STOPS}」』）])\s*(?=.)", text
    )


def _goes_on(head: str) -> bool:
    """Return whether the full stop at the end belongs to the last word."""
    if head.lstrip().removesuffix(".").isdecimal():  # the number of a list item
        return True
    word = _LAST_WORD.search(head)
    if word is None:
        return False
    bare = word.group(1)
    initial = bare[0].isupper() and (len(bare) == 1 or "." in bare)
    return initial or bare.lower() in _ABBREVIATIONS


def chunk_text(text: str, tokenizer: Tokenizer, max_tokens: int = 254) -> list[tuple[int, int]]:
    """Cut a text into slices of at most `max_tokens` pieces.

    The slices joined are the text, and every piece lies in exactly one slice. A cut is at the end
    of a paragraph in the last quarter of the slice if there is one, else of a sentence, of a line,
    or between words. A word is cut only if it fills the slice.

    Args:
        text: Any text.
        tokenizer: Tokenizer of the pieces; called once, for the whole text.
        max_tokens: Maximum pieces of a slice, at least 1.

    Returns:
        Start and end (characters) of each slice, in order; empty for an empty text.

    Raises:
        InputError: `max_tokens` is below 1.
    """
    if max_tokens < 1:
        raise InputError(f"max_tokens: expected at least 1, got {max_tokens}; give more")
    spans = tokenizer.spans(text)
    slices: list[tuple[int, int]] = []
    first, start = 0, 0
    while len(spans) - first > max_tokens:
        first = _next_piece(text, spans, first, max_tokens)
        # A cut cannot separate pieces of one character, such as the bytes of an emoji.
        if spans[first][0] > start:
            slices.append((start, spans[first][0]))
            start = spans[first][0]
    if start < len(text):
        slices.append((start, len(text)))
    return slices


def _next_piece(text: str, spans: list[tuple[int, int]], first: int, max_tokens: int) -> int:
    """Return the first piece of the next slice."""
    last = first + max_tokens
    quarter = last - max(max_tokens // 4, 1)
    best, rank = 0, 0
    for i in range(last, quarter, -1):
        found = _rank(text, spans, i)
        if found > rank:
            best, rank = i, found
            if found == 4:
                break
    if rank:
        return best
    for i in range(quarter, first, -1):
        if _rank(text, spans, i):
            return i
    # One word longer than the slice: cut between two pieces that share no character.
    return next((i for i in range(last, first, -1) if spans[i][0] >= spans[i - 1][1] > 0), last)


def _rank(text: str, spans: list[tuple[int, int]], i: int) -> int:
    """Return the rank of a cut before piece i: 4 paragraph, 3 sentence, 2 line, 1 word, 0 none."""
    start, before = spans[i][0], spans[i - 1][1]
    if start < before or start == 0:
        return 0
    # Byte-level tokenizers count the white space before a word as part of it.
    at = start
    while at < spans[i][1] and text[at].isspace():
        at += 1
    back = at
    while back > 0 and text[back - 1].isspace():
        back -= 1
    gap = text[back:at]
    if not gap:
        ended = text[max(start - 4, 0) : start].rstrip(_CLOSING).endswith(tuple(_STOPS))
        if ended and text[start] not in _CLOSING + _STOPS:
            return 3
        inside = text[start - 1].isalnum() and start < len(text) and text[start].isalnum()
        return 0 if inside else 1
    if gap.count("\n") > 1:
        return 4
    # An end mark, optionally with closing marks.
    if text[max(back - 4, 0) : back].rstrip(_CLOSING).endswith(_MARKS):
        return 3
    return 2 if "\n" in gap else 1
