"""Chunks: slices of a text that fit the encoder's window."""

from __future__ import annotations

from graphmem_torch.errors import InputError
from graphmem_torch.text.sentences import ends_sentence
from graphmem_torch.text.tokens import Tokenizer

__all__ = ["chunk_text"]


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
        first = _cut(text, spans, first, max_tokens)
        # Pieces of one character (bytes of an emoji, say) cannot be told apart by a cut.
        if spans[first][0] > start:
            slices.append((start, spans[first][0]))
            start = spans[first][0]
    if start < len(text):
        slices.append((start, len(text)))
    return slices


def _cut(text: str, spans: list[tuple[int, int]], first: int, max_tokens: int) -> int:
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
        inside = text[start - 1].isalnum() and start < len(text) and text[start].isalnum()
        return 0 if inside else 1
    if gap.count("\n") > 1:
        return 4
    if ends_sentence(text[max(back - 4, 0) : back]):
        return 3
    return 2 if "\n" in gap else 1
