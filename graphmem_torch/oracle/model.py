"""A language model as an oracle: it judges, classifies and summarises through a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.oracle.client import OpenAIClient, checked_count
from graphmem_torch.oracle.prompts import (
    as_list,
    classify_question,
    judge_question,
    summarise_question,
)
from graphmem_torch.oracle.protocol import Verdict, check_pairs

__all__ = ["OpenAIOracle"]


class OpenAIOracle:
    """An `Oracle` that asks a language model, one request a text, as many at once as allowed.

    Every answer is checked; one that is no use is asked for again and is None in the end, with a
    warning. Nothing here raises because of what a server does.

    Args:
        client: Client of the server; its `usage` tells what the questions took.
    """

    def __init__(self, client: OpenAIClient) -> None:
        if not isinstance(client, OpenAIClient):
            raise InputError(
                f"client: expected an OpenAIClient, got {client!r}; "
                'make one with OpenAIClient("gpt-4o-mini")'
            )
        self.client = client

    def __repr__(self) -> str:
        return f"OpenAIOracle({self.client!r})"

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict | None]:
        """Whether each hypothesis follows from, or contradicts, the premise of its place.

        Raises:
            InputError: Something else than two lists of as many texts.
        """
        premises = as_list("premises", premises, str)
        hypotheses = as_list("hypotheses", hypotheses, str)
        check_pairs(premises, hypotheses)
        pairs = zip(premises, hypotheses, strict=True)
        return self.client.ask_all([judge_question(*pair) for pair in pairs])

    def classify(self, texts: Sequence[str]) -> list[dict[str, Any] | None]:
        """Each text as a memory node {"content", "type", "decay_factor"}.

        The contract of ContextOS (appendix A.1); `decay_factor` is what is left after an hour.

        Raises:
            InputError: `texts` is no list of texts.
        """
        return self.client.ask_all(
            [classify_question(text) for text in as_list("texts", texts, str)]
        )

    def summarise(
        self, texts: Sequence[str], question: str | None = None, max_tokens: int = 128
    ) -> list[str | None]:
        """A summary of each text, of what helps to answer the question where there is one.

        Args:
            texts: Texts to shorten.
            question: Question that the summaries are to help with.
            max_tokens: Most tokens of each, as the server counts them.

        Raises:
            InputError: `texts` is no list of texts, or max_tokens is below 1.
        """
        checked_count("max_tokens", max_tokens)
        listed = as_list("texts", texts, str)
        return self.client.ask_all(
            [summarise_question(text, question, max_tokens) for text in listed]
        )
