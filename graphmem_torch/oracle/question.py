"""One question to a language model: its messages, its key, and how its answer is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmem_torch.errors import InputError

__all__ = ["Question", "as_list", "clean", "json_objects", "messages_of"]

_ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and what counts as an answer.

    Attributes:
        messages: Chat messages {role, content} (`messages_of`).
        read: What the caller gets from the text of an answer; None where it is no use. An answer
            of no use is asked for again, and never cached.
        max_tokens: Most tokens of an answer; None leaves it to the server.
        schema: JSON schema of the answer, for servers that can hold a model to one.
        wanted: What an answer should have been, for the model that is asked again.
    """

    messages: tuple[Mapping[str, str], ...]
    read: Callable[[str], Any]
    max_tokens: int | None = None
    schema: Mapping[str, Any] | None = None
    wanted: str = "a text that is not empty"

    def key(self, asked_of: Sequence[Any]) -> str:
        """SHA-256 of the question and of who is asked, and with what options."""
        content = [list(asked_of), list(self.messages), self.max_tokens, self.schema]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def again(self, answer: str) -> tuple[Mapping[str, str], ...]:
        """The messages that ask once more after an answer of no use."""
        correction = f"That is not what was asked for. Answer with {self.wanted} and nothing else."
        return (
            *self.messages,
            {"role": "assistant", "content": clean(answer[:2000]) or "(nothing)"},
            {"role": "user", "content": correction},
        )


def messages_of(
    prompt: str | Sequence[Mapping[str, str]], system: str | None = None
) -> tuple[Mapping[str, str], ...]:
    """A prompt, or chat messages in OpenAI's shape, as messages; `system` goes before them.

    Raises:
        InputError: An empty prompt, or something that is neither.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    well = isinstance(messages, Sequence) and all(
        isinstance(message, Mapping)
        and message.get("role") in _ROLES
        and isinstance(message.get("content"), str)
        for message in messages
    )
    if not well or not any(message["content"].strip() for message in messages):
        raise InputError(
            f"prompt: expected a text, or messages {{'role': {' | '.join(_ROLES)}, "
            f"'content': text}}, got {prompt!r:.120}"
        )
    head = [] if system is None else [{"role": "system", "content": system}]
    return tuple(
        {"role": message["role"], "content": clean(message["content"])}
        for message in [*head, *messages]
    )


def clean(text: str) -> str:
    """The text without lone surrogates, which no encoding of the wire can carry."""
    return text.encode("utf-8", "replace").decode()


def json_objects(answer: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in an answer, be they fenced or talked around.

    What a model thinks aloud first (`<think> ... </think>`) is no answer.
    """
    decoder = json.JSONDecoder()
    start = answer.find("{", answer.rfind("</think>") + 1)
    while start >= 0:
        try:
            found, end = decoder.raw_decode(answer, start)
        except RecursionError:
            return  # nothing so deep is what was asked for
        except ValueError:
            end = start + 1
        else:
            yield found
        start = answer.find("{", end)


def as_list(name: str, values: Iterable[Any], kind: type = object) -> list[Any]:
    """The values; a text, which is a sequence of texts too, is not meant as one.

    Raises:
        InputError: A single text, no sequence, or a value that is not of the kind.
    """
    single = isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable)
    listed = [] if single else list(values)
    if single or not all(isinstance(value, kind) for value in listed):
        of = "texts" if kind is str else "prompts"
        raise InputError(f"{name}: expected a list of {of}, got {values!r:.80}; put one in a list")
    return listed
