"""Sentences and chunks: where a text may be cut, by rules that need no model."""

from __future__ import annotations

import re

from graphmem_torch.errors import InputError
from graphmem_torch.text.tokens import Tokenizer

__all__ = ["chunk_text", "split_at_marks", "split_sentences"]

# Full stops that need no space behind them: of Chinese and Japanese, Hindi, Urdu, Ethiopian, Khmer
# and Burmese; Arabic writes its question mark alone differently.
_STOPS = "。！？｡।॥؟۔።។။"
_MARKS = (".", "!", "?", "…", *_STOPS)
_CLOSING = "\"'”’)]}»」』）】》"

# An end mark with what closes around it, then white space, then what may begin a sentence; or a
# line feed, unless the next line goes on in lower case.
_END = re.compile(
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
_LOOK = 64  # characters back: more than a word and the white space behind it
_LAST_WORD = re.compile(r"([^\W\d_](?:\.?[^\W\d_])*)\.$")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space behind it: joined they are the text.

    Full stops of any script end one; Thai, which has none, is cut at line feeds alone. A full stop
    behind an initial (G. Stanley Hall), an abbreviation of English (Dr. Who), or inside one (U.S.
    Navy) ends nothing.
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
    """The parts of a text that end with one of these marks and white space behind it.

    Full stops of other scripts end one as well, and need no white space. Plainer than
    `split_sentences`: an abbreviation ends a part, and one may begin in lower case. The white space
    between the parts is left out.
    """
    return re.split(
        rf"(?<=[{re.escape(marks)}])\s+|(?<=[{_STOPS}])(?![{_STOPS}」』）])\s*(?=.)", text
    )


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


def chunk_text(text: str, tokenizer: Tokenizer, max_tokens: int = 254) -> list[tuple[int, int]]:
    """Cuts a text into slices of at most `max_tokens` pieces.

    The slices joined are the text, and every piece lies in exactly one of them. A cut is made at
    the end of a paragraph where there is one in the last quarter of the slice, else of a sentence,
    of a line, between words; inside a word only when a single word fills the slice.

    Args:
        text: Any text.
        tokenizer: Tokenizer of the pieces; called once, for the whole text.
        max_tokens: Most pieces of a slice, at least 1.

    Returns:
        Start and end (characters) of each slice, in order; none for an empty text.

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
        # Pieces of one character (bytes of an emoji, say) cannot be told apart by a cut.
        if spans[first][0] > start:
            slices.append((start, spans[first][0]))
            start = spans[first][0]
    if start < len(text):
        slices.append((start, len(text)))
    return slices


def _next_piece(text: str, spans: list[tuple[int, int]], first: int, max_tokens: int) -> int:
    """The piece that begins the next slice."""
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
    # One word longer than the slice: between any two pieces that do not share characters.
    return next((i for i in range(last, first, -1) if spans[i][0] >= spans[i - 1][1] > 0), last)


def _rank(text: str, spans: list[tuple[int, int]], i: int) -> int:
    """How good a cut before piece i is: 4 paragraph, 3 sentence, 2 line, 1 word, 0 none."""
    start, before = spans[i][0], spans[i - 1][1]
    if start < before or start == 0:
        return 0
    # Byte-level tokenizers count the white space in front of a word as part of it.
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
    # An end mark, and perhaps what closes around it.
    if text[max(back - 4, 0) : back].rstrip(_CLOSING).endswith(_MARKS):
        return 3
    return 2 if "\n" in gap else 1
