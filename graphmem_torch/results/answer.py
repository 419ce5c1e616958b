"""Contexts ready to send, and what a language model says to them."""

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
        question: As asked.
        text: The rendered prompt; of a chat, what its messages say.
        tokens: Tokens of the whole prompt, the framing of messages included, counted by
            `tokenizer`; never above `budget`.
        budget: Tokens allowed.
        tokenizer: Name of the tokenizer that counted.
        sources: Ids of the atoms in the context, in their order: the first is cited as 1.
        omitted: Ids of retrieved atoms that are not in it, best first.
        unrelated: Those of them that are left out because they have nothing to do with the question
            (`context.min_relevance`), whatever they take.
        confidence, known, verified: As in `Result`; the oracle was asked of the whole text.
        messages: Of a chat, mappings with `role` and `content`.
        system: Of a chat for Anthropic: what it takes beside the messages.
        value: What the chosen memories are worth together (`context.pool.values_from_scores`).
        upper_bound: No choice of `omitted` and chosen memories within the budget is worth more, by
            what each entry costs alone; text that merges across entries may be a token or so off.
        exact: Whether the choice is proven to be the best, in the same sense.
        extract: Whether a memory that is among the best does not fit the budget whole: the context
            holds those of its sentences, or words, that speak to the question.
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
        """The question, how full the budget is, of how many memories, and how sure the gate is."""
        filled = f"{self.tokens:,} of {self.budget:,} tokens ({self.tokenizer})"
        memories = f"{len(self.sources)} memories, {len(self.omitted)} omitted"
        sure = certainty(self.confidence, self.known)
        return f"Context({self.question!r:.80}, {filled}, {memories}, {sure})"

    @property
    def gap(self) -> float:
        """Value that a better choice could have more at most; 0 where exact."""
        return self.upper_bound - self.value

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the choice, a sentence each; empty: nothing."""
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
        """The id that each number in the context stands for."""
        return dict(enumerate(self.sources, start=1))

    def cited(self, answer: str) -> tuple[str, ...]:
        """Ids that an answer cites, as `[3]` or `[1, 3]`, each once, in its order.

        Numbers that the context does not have are passed over.
        """
        # Nine digits at most: Python refuses to read thousands of them.
        groups = re.findall(r"\[(\d{1,9}(?:\s*[,;]\s*\d{1,9})*)\]", answer)
        numbers = [int(n) for group in groups for n in re.findall(r"\d+", group)]
        known = self.citations
        return tuple(dict.fromkeys(known[n] for n in numbers if n in known))

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a language model says, and from what.

    Attributes:
        question: As asked.
        text: The answer; None where there is none.
        context: The prompt that was sent.
        error: Why there is no answer; None where there is one.
    """

    question: str
    text: str | None
    context: Context
    error: str | None = None

    @property
    def cited(self) -> tuple[str, ...]:
        """Ids of the memories that the answer cites by their numbers."""
        return () if self.text is None else self.context.cited(self.text)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"cited": list(self.cited)}
