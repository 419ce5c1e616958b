"""Counting tokens as the reader of a context counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from graphmem_torch.errors import InputError

__all__ = ["count_tokens", "get_counter"]

# Characters. bpe_openai refuses texts of a million, and single words of more than 200,000 tokens; a
# character is at most four.
_PART = 50_000


def count_tokens(texts: Sequence[str], tokenizer: str = "cl100k_base") -> list[int]:
    """Tokens of each text, special tokens not included; see `get_counter` for the names."""
    counter = get_counter(tokenizer)
    return [counter(text) for text in texts]


@lru_cache(maxsize=8)
def get_counter(name: str = "cl100k_base") -> Callable[[str], int]:
    """A function that counts the tokens of a text.

    An encoding counts a text of more than 50,000 characters in parts, cut at white space where
    there is some: the sum is then an upper bound, a token or so a cut above the count of the whole.

    Args:
        name: An encoding of OpenAI ("cl100k_base", "o200k_base", ...), or the folder or hub name of
            a tokenizer that transformers can load.

    Raises:
        InputError: Neither; lists the encodings.
    """
    try:
        import bpe_openai
    except ImportError:
        encodings: list[str] = []
    else:
        encodings = list(bpe_openai.list_encoding_names())
        if name in encodings:
            encoding = bpe_openai.get_encoding(name)
            # "Ordinary": what looks like a special token is counted as the text it is.
            return lambda text: sum(len(encoding.encode_ordinary(part)) for part in _parts(text))
    return _hugging_face(name, encodings)


def _parts(text: str) -> Iterator[str]:
    """The text in parts of at most `_PART` characters."""
    start = 0
    while len(text) - start > _PART:
        end = start + _PART
        # In front of the white space: encodings count it as part of the word behind it.
        space = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
        cut = space if space > 0 else end
        yield text[start:cut]
        start = cut
    yield text[start:]


def _hugging_face(name: str, encodings: Sequence[str]) -> Callable[[str], int]:
    reason = ""
    # A bare word is a misspelt encoding far more often than one of the few hub names without an
    # owner.
    if Path(name).exists() or "/" in name:
        try:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = f" ({(str(error).strip() or type(error).__name__).splitlines()[0][:160]})"
        else:
            return lambda text: len(
                tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)[
                    "input_ids"
                ]
            )
    close = get_close_matches(name, encodings, n=1, cutoff=0.5)
    meant = f"; did you mean {close[0]!r}?" if close else ";"
    known = ", ".join(encodings) or "none, pip install bpe-openai"
    raise InputError(
        f"expected a tokenizer, got {name!r}{reason}{meant} encodings: {known}; or the folder or "
        "owner/name of a "
        "Hugging Face tokenizer"
    )
