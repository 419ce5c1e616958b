"""Count tokens as the reader of a context counts them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from graphmem_torch.errors import InputError, first_line, unknown

__all__ = [
    "EncodingTokenizer",
    "FastTokenizer",
    "TokenCounter",
    "Tokenizer",
    "WordTokenizer",
    "count_messages",
    "count_tokens",
    "get_counter",
    "get_tokenizer",
    "untruncated",
]


TokenCounter = Callable[[str], int]
"""Function from a text to its number of tokens."""


@runtime_checkable
class Tokenizer(Protocol):
    """Tokenizer that tells where its pieces lie."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return start and end (characters) of every piece, in order, without special tokens."""
        ...


class WordTokenizer:
    """Words and single marks; words longer than `longest` characters are split. Needs no model."""

    def __init__(self, longest: int = 16) -> None:
        # Words first, so that a mark is only taken where no word starts.
        self._pattern = re.compile(rf"\w{{1,{longest}}}|[^\w\s]")

    def spans(self, text: str) -> list[tuple[int, int]]:
        """See `Tokenizer.spans`."""
        return [match.span() for match in self._pattern.finditer(text)]


class FastTokenizer:
    """Tokenizer of the package `tokenizers`."""

    def __init__(self, tokenizer: Any) -> None:
        """Wrap a tokenizer without truncation and padding (`untruncated`)."""
        self._tokenizer = tokenizer

    def spans(self, text: str) -> list[tuple[int, int]]:
        """See `Tokenizer.spans`."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)


def untruncated(tokenizer: Any) -> Any:
    """Copy the `tokenizers.Tokenizer` of a fast tokenizer of transformers, without truncation.

    A copy, because transformers sets truncation and padding anew in every call.
    """
    from tokenizers import Tokenizer

    own = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    own.no_truncation()
    own.no_padding()
    return own


class EncodingTokenizer:
    """Encoding of OpenAI in `tiktoken`'s interface.

    Tokens that are bytes of one character share its span.
    """

    def __init__(self, encoding: Any, parts: Callable[[str], Iterable[str]]) -> None:
        """Wrap an encoding, with a function that splits a text into parts that it accepts."""
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


# Characters. bpe_openai refuses texts of a million, and single words of more than 200,000 tokens; a
# character is at most four.
_PART = 50_000
# Framing of a chat as OpenAI counts it (cookbook, "How to count tokens with tiktoken"): per
# message, and for the start of the reply.
_MESSAGE, _REPLY = 3, 3


def count_tokens(texts: Sequence[str], tokenizer: str = "cl100k_base") -> list[int]:
    """Count the tokens of each text, without special tokens; see `get_counter` for the names."""
    counter = get_counter(tokenizer)
    return [counter(text) for text in texts]


def count_messages(
    messages: Sequence[Mapping[str, str]], tokenizer: str | TokenCounter = "cl100k_base"
) -> int:
    """Count the tokens of a chat up to the reply, framing included.

    A Hugging Face tokenizer with a chat template counts the output of the template. Otherwise
    OpenAI's documented framing is used: 3 tokens a message besides role and content, and 3 for the
    reply. Anthropic documents no tokenizer, so both are estimates for its models.

    Args:
        messages: Mappings with `role` and `content`.
        tokenizer: Tokenizer, see `get_counter`.
    """
    counter = get_counter(tokenizer)
    plain = callable(tokenizer) or tokenizer in _encodings()
    loaded: Any = None if plain else _transformer(tokenizer)
    if getattr(loaded, "chat_template", None):
        chat = [dict(message) for message in messages]
        try:
            written = loaded.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template may raise anything
            raise InputError(
                f"tokenizer {tokenizer!r}: expected messages that its chat template takes, got "
                f"{error}; if it accepts no system message, leave it out: "
                'template={"system": ""}'
            ) from error
        return counter(written)
    return _REPLY + sum(
        _MESSAGE + counter(message["role"]) + counter(message["content"]) for message in messages
    )


def _whole_count(counter: TokenCounter, text: str) -> int:
    """Return the count of a caller's function, which must be a whole number of tokens."""
    count = counter(text)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 31:
        raise InputError(
            f"tokenizer: expected a function from a text to its number of tokens, got "
            f"{count!r:.60}; return a whole number, such as len(encode(text))"
        )
    return count


@lru_cache(maxsize=8)
def get_counter(name: str | TokenCounter = "cl100k_base") -> TokenCounter:
    """Return a function that counts the tokens of a text.

    A text of more than 50,000 characters is counted by an encoding in parts, cut between words,
    which does not change the count. Inside a longer word the sum is an upper bound, about one token
    a cut above the exact count.

    Args:
        name: Name of an encoding of OpenAI ("cl100k_base", "o200k_base", ...), folder or hub name
            of a tokenizer that transformers can load, or a function that counts.

    Raises:
        InputError: Unknown name; lists the encodings.
    """
    if callable(name):
        return partial(_whole_count, name)
    if name in _encodings():
        encoding = _encoding(name)
        # "Ordinary": text that looks like a special token is counted as text.
        return lambda text: sum(len(encoding.encode_ordinary(part)) for part in _parts(text))
    tokenizer = _transformer(name)
    return lambda text: len(
        tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
    )


@lru_cache(maxsize=8)
def get_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of a name of `get_counter`, for chunking.

    Raises:
        InputError: Unknown name, or a tokenizer that does not report where its tokens lie.
    """
    if name in _encodings():
        return EncodingTokenizer(_encoding(name), _parts)
    loaded = _transformer(name)
    if not getattr(loaded, "is_fast", False):
        raise InputError(
            "tokenizer: expected a fast one (tokenizer.json), which reports where in a text its "
            f"tokens lie, got {name!r}, a {type(loaded).__name__}; choose another to chunk by"
        )
    return FastTokenizer(untruncated(loaded))


@lru_cache(maxsize=1)
def _encodings() -> tuple[str, ...]:
    """Return the names of the installed encodings."""
    try:
        import bpe_openai
    except ImportError:  # the tokenizers of transformers do without it
        return ()
    return tuple(bpe_openai.list_encoding_names())


def _encoding(name: str) -> Any:
    """Load an encoding; the oldest ones come with `tiktoken` and need the network."""
    import bpe_openai

    try:
        return bpe_openai.get_encoding(name)
    except (RuntimeError, OSError) as error:
        raise InputError(
            f"tokenizer: expected an encoding that can be loaded, got {name!r} ({error}); choose "
            "cl100k_base or o200k_base"
        ) from error


def _parts(text: str) -> Iterator[str]:
    """Yield the text in parts of at most `_PART` characters."""
    start = 0
    while len(text) - start > _PART:
        cut = _cut(text, start + 1, start + _PART)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _cut(text: str, start: int, end: int) -> int:
    """Return the last place before a single blank, else before other white space, else `end`.

    Encodings count a blank as part of the next word, whatever the previous word is.
    """
    space = text.rfind(" ", start, end)
    while space > 0:
        if not text[space - 1].isspace() and not text[space + 1].isspace():
            return space
        space = text.rfind(" ", start, space)
    space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
    return space if space > 0 else end


@lru_cache(maxsize=8)
def _transformer(name: str) -> Any:
    """Load a tokenizer by transformers."""
    reason = ""
    # A bare word is a misspelt encoding far more often than one of the few hub names without an
    # owner.
    if isinstance(name, str) and (Path(name).exists() or "/" in name):
        try:
            from transformers import AutoTokenizer

            return AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = f" ({first_line(error)})"
    what = "a tokenizer, the folder or owner/name of one of Hugging Face, or one of"
    known = _encodings() or ["the encodings of bpe-openai, which is not installed"]
    raise InputError(unknown("tokenizer", name, known, what=what) + reason)
