"""Summaries of memories for a question: f_summ of `mathematics.md` section 3.

Extractive unless something else is given: a Hugging Face model, an oracle, or any function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from graphmem_torch.context.extract import extract
from graphmem_torch.errors import InputError
from graphmem_torch.oracle.protocol import ask_checked
from graphmem_torch.text.tokens import get_counter

__all__ = ["Summaries", "Summarise", "Summariser", "summariser_of"]

Summarise = Callable[[Sequence[str], str, int], Any]
"""The function behind `summarise`: texts, question, tokens of each at most -> summaries."""


class Summariser(Protocol):
    """Anything that can shorten texts; it may be slow, fail, or answer nonsense."""

    def summarise(self, texts: Sequence[str], question: str, max_tokens: int) -> Sequence[Any]:
        """One summary for each text (None: no answer), of what helps to answer the question."""


def summariser_of(by: Summariser | Summarise) -> Summarise:
    """The function that summarises: an object's `summarise`, or the callable itself.

    Raises:
        InputError: It is neither.
    """
    method = getattr(by, "summarise", by)
    if not callable(method):
        raise InputError(
            "summariser: expected summarise(texts, question, max_tokens) or an object with it, "
            f"got {by!r}; leave it out for extracts"
        )
    return cast(Summarise, method)


class Summaries:
    """Shortens memories for a question; `shorten` of `Memory.compile` takes one.

    A summary is never longer than its text. What is asked for it may fail: one that is missing,
    empty, or too long is replaced by an extract, with a warning, and nothing is lost.
    """

    def __init__(
        self,
        share: float = 0.5,
        *,
        by: Summariser | Summarise | None = None,
        tokenizer: str = "cl100k_base",
    ) -> None:
        """How texts are shortened.

        Args:
            share: Of its tokens that a text keeps at most, in (0, 1]. Extracts keep to it, but for
                the first word; what else summarises is told the share of the longest text.
            by: What summarises; None: `extract`.
            tokenizer: Name of the tokenizer that counts; see `text.tokens.get_counter`.

        Raises:
            InputError: A share outside (0, 1], an unknown tokenizer, or something that cannot
                summarise.
        """
        if not 0.0 < share <= 1.0:
            raise InputError(
                f"share: expected more than 0 and at most 1, got {share}; 0.5 is usual"
            )
        self.share = share
        self._ask = None if by is None else summariser_of(by)
        self._count = get_counter(tokenizer)

    def __call__(self, question: str, texts: Sequence[str]) -> list[str]:
        """A summary of each text, of what helps to answer the question."""
        texts, count = list(texts), self._count
        whole = [count(text) for text in texts]
        limits = [max(1, math.floor(self.share * cost)) for cost in whole]
        ask = self._ask
        if ask is None or not texts:
            return extract(texts, question, limits, count=count)
        given = ask_checked(
            lambda: ask(texts, question, max(limits)),
            len(texts),
            _said,
            what=("summaries", "texts"),
            wanted="no text",
            lost="extracts stand in for them",
        )
        short = {
            i: text for i, text in enumerate(given) if text is not None and count(text) <= whole[i]
        }
        spare = [i for i in range(len(texts)) if i not in short]
        own = extract([texts[i] for i in spare], question, [limits[i] for i in spare], count=count)
        short |= zip(spare, own, strict=True)
        return [short[i] for i in range(len(texts))]


def _said(answer: object) -> str | None:
    """A summary as it is used; None where nothing is said."""
    return answer.strip() or None if isinstance(answer, str) else None
