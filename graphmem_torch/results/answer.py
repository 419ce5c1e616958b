"""Contexts ready to send, and the answers of a language model to them."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from graphmem_torch.results.hits import certainty

__all__ = ["Answer", "Context"]


@dataclass(frozen=True, slots=True)
class Context:
    """A ready-to-send context.

    Attributes:
        question: The question.
        text: The rendered prompt; for a chat, the text of its messages.
        tokens: Tokens of the whole prompt, message framing included, counted by `tokenizer`;
            at most `budget`.
        budget: Maximum number of tokens.
        tokenizer: Name of the tokenizer.
        sources: Ids of the atoms in the context, in order: the first is cited as 1.
        omitted: Ids of retrieved atoms that are not in the context, best first.
        unrelated: Subset of `omitted` that is below `context.min_relevance`, left out even if
            it would fit.
        confidence, known, verified: See `Result`; the oracle judged the text of the whole context.
        messages: Messages of a chat: mappings with `role` and `content`.
        system: System prompt of a chat for Anthropic, which takes it beside the messages.
        value: Total value of the chosen memories (`context.pool.values_from_scores`).
        upper_bound: Upper bound of the value of any choice of retrieved memories within the budget.
            It adds the tokens of single entries: where tokens merge across entries it may be off.
        exact: Whether the choice is proven optimal, in the same sense.
        extract: Whether one of the best memories did not fit whole and is represented by its most
            relevant sentences or words.
    """

    question: str
    text: str
    tokens: int
    budget: int
    tokenizer: str
    sources: tuple[str, ...]
    omitted: tuple[str, ...]
    confidence: float
    known: bool | None
    messages: tuple[dict[str, str], ...] = ()
    system: str | None = None
    value: float = 0.0
    upper_bound: float = 0.0
    exact: bool = True
    extract: bool = False
    verified: bool | None = None
    unrelated: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the question, the tokens used, the number of memories and the confidence."""
        filled = f"{self.tokens:,} of {self.budget:,} tokens ({self.tokenizer})"
        memories = f"{len(self.sources)} memories, {len(self.omitted)} omitted"
        sure = certainty(self.confidence, self.known)
        return f"Context({self.question!r:.80}, {filled}, {memories}, {sure})"

    @property
    def gap(self) -> float:
        """Maximum value that a better choice could add; 0 if exact."""
        return self.upper_bound - self.value

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the choice, one sentence each; empty if there are none."""
        notes = []
        if self.extract:
            notes.append("an extract stands for a memory that does not fit whole")
        if not self.exact:
            short = self.gap / self.upper_bound if self.upper_bound else 1.0
            notes.append(f"the choice is within {short:.1%} of the best; no better one was found")
        if self.unrelated:
            count = len(self.unrelated)
            one = count == 1
            who, stay = ("1 memory has", "stays") if one else (f"{count} memories have", "stay")
            notes.append(f"{who} nothing to do with the question and {stay} out")
        return tuple(notes)

    @property
    def citations(self) -> dict[int, str]:
        """Ids of the atoms by their numbers in the context."""
        return dict(enumerate(self.sources, start=1))

    def cited(self, answer: str) -> tuple[str, ...]:
        """Return the ids that an answer cites, as `[3]` or `[1, 3]`, each once, in its order.

        Numbers that the context does not have are ignored.
        """
        # At most nine digits: Python refuses to parse thousands.
        groups = re.findall(r"\[(\d{1,9}(?:\s*[,;]\s*\d{1,9})*)\]", answer)
        numbers = [int(n) for group in groups for n in re.findall(r"\d+", group)]
        known = self.citations
        return tuple(dict.fromkeys(known[n] for n in numbers if n in known))

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a language model, with its context.

    Attributes:
        question: The question.
        text: The answer; None if there is none.
        context: The prompt that was sent.
        error: Reason why there is no answer; None if there is one.
    """

    question: str
    text: str | None
    context: Context
    error: str | None = None

    @property
    def cited(self) -> tuple[str, ...]:
        """Ids of the memories that the answer cites by number."""
        return () if self.text is None else self.context.cited(self.text)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"cited": list(self.cited)}
