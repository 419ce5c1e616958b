"""Tokenizers as chunking and the encoders see them: a text to the character spans of its pieces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

__all__ = ["EncodingTokenizer", "FastTokenizer", "Tokenizer", "WordTokenizer"]


@runtime_checkable
class Tokenizer(Protocol):
    """Cuts a text into pieces."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end (characters) of every piece, in order, special tokens not included."""
        ...


class WordTokenizer:
    """Words and single marks; long words in parts of `longest` characters. Needs no model."""

    def __init__(self, longest: int = 16) -> None:
        # Words first, so that a mark is only taken where no word starts.
        self._pattern = re.compile(rf"\w{{1,{longest}}}|[^\w\s]")

    def spans(self, text: str) -> list[tuple[int, int]]:
        """See `Tokenizer.spans`."""
        return [match.span() for match in self._pattern.finditer(text)]


class FastTokenizer:
    """A `transformers` fast tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def spans(self, text: str) -> list[tuple[int, int]]:
        """See `Tokenizer.spans`."""
        encoding = self._tokenizer(
            text,
            add_special_tokens=False,
            truncation=False,
            padding=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return list(encoding["offset_mapping"])


class EncodingTokenizer:
    """An encoding of OpenAI, in `tiktoken`'s interface.

    Bytes of one character that are several tokens share its span.
    """

    def __init__(self, encoding: Any, parts: Callable[[str], Iterable[str]]) -> None:
        """Args: the encoding, and what cuts a text into parts that it can take."""
        self._encoding, self._parts = encoding, parts

    def spans(self, text: str) -> list[tuple[int, int]]:
        """See `Tokenizer.spans`."""
        found: list[tuple[int, int]] = []
        base = 0
        for part in self._parts(text):
            tokens = self._encoding.encode_ordinary(part)
            _, starts = self._encoding.decode_with_offsets(tokens)
            ends = [*starts[1:], len(part)]
            found.extend(
                (base + start, base + max(end, start + 1))
                for start, end in zip(starts, ends, strict=False)
            )
            base += len(part)
        return found
