"""Sentences of the texts that judges make questions and haystacks of."""

from __future__ import annotations

import re

__all__ = ["sentence_spans", "split_at_marks"]
# Plain on purpose: what is measured must not change with the splitter of the library.
_BREAK = re.compile(r"(?<=[.!?])\s+")

Span = tuple[int, int]
"""Start and end, in characters."""


def sentence_spans(text: str) -> list[Span]:
    """Where the parts of a text lie that end with a mark (. ! ?) and white space behind it.

    The last part goes to the end of the text, with or without a mark; it is empty where white
    space follows the last mark.
    """
    breaks = [match.span() for match in _BREAK.finditer(text)]
    starts = [0, *(end for _, end in breaks)]
    ends = [*(start for start, _ in breaks), len(text)]
    return list(zip(starts, ends, strict=True))


def split_at_marks(text: str) -> list[str]:
    """The parts of `sentence_spans`, without the white space between them."""
    return [text[start:end] for start, end in sentence_spans(text)]
