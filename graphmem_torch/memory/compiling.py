"""Compiling contexts: from a question and a budget to the best prompt that fits."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from graphmem_torch.config import ContextConfig
from graphmem_torch.context.compile import Compiled
from graphmem_torch.context.costs import Shorten, values_from_scores
from graphmem_torch.context.formats import Format, load_format
from graphmem_torch.context.order import check_order
from graphmem_torch.context.summarise import Summaries
from graphmem_torch.errors import InputError
from graphmem_torch.memory.ask import checked_questions
from graphmem_torch.memory.assemble import Assembled
from graphmem_torch.memory.core import MemoryCore
from graphmem_torch.memory.desk import Desk
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.results import Context
from graphmem_torch.text.tokens import get_counter

__all__ = ["CompileOptions", "CompilingMemory"]

FormatName = Literal["text", "markdown", "openai", "anthropic", "json"]
OrderName = Literal["relevance", "time", "topological"]

_GRAIN = 8  # tokens of a short entry: no more memories than budget / 8 are looked at


class CompileOptions(TypedDict, total=False):
    """What `CompilingMemory.compile` takes beside a question and a budget."""

    k: int | None
    tokenizer: str | None
    order: OrderName | None
    format: FormatName | None
    template: str | Mapping[str, str] | None
    kinds: Sequence[str] | None
    between: tuple[float, float] | None
    as_of: float | None
    shorten: Shorten | None


class CompilingMemory(MemoryCore):
    """What turns questions into contexts (`docs/mathematics.md` 6)."""

    @overload
    def compile(  # type: ignore[overload-overlap]  # a str is a sequence of str
        self, question: str, *, budget: int, **options: Unpack[CompileOptions]
    ) -> Context: ...

    @overload
    def compile(  # type: ignore[overload-overlap]
        self, question: str, *, budget: Sequence[int], **options: Unpack[CompileOptions]
    ) -> list[Context]: ...

    @overload
    def compile(
        self, question: Sequence[str], *, budget: int, **options: Unpack[CompileOptions]
    ) -> list[Context]: ...

    @overload
    def compile(
        self, question: Sequence[str], *, budget: Sequence[int], **options: Unpack[CompileOptions]
    ) -> list[list[Context]]: ...

    def compile(
        self,
        question: str | Sequence[str],
        *,
        budget: int | Sequence[int],
        k: int | None = None,
        tokenizer: str | None = None,
        order: OrderName | None = None,
        format: FormatName | None = None,
        template: str | Mapping[str, str] | None = None,
        kinds: Sequence[str] | None = None,
        between: tuple[float, float] | None = None,
        as_of: float | None = None,
        shorten: Shorten | None = None,
    ) -> Context | list[Context] | list[list[Context]]:
        """The memories that are worth most within a token budget, as a prompt.

        Pinned memories are in every context, and with a memory comes what it needs along the edges
        that `context.requires` names. What is left out here is as in the section `context` of the
        settings.

        Args:
            question: One question, or B of them.
            budget: Tokens of the whole prompt, or W of them: a curve, chosen in one go.
            k: Memories to choose from; by default as many as could fit.
            tokenizer: Name of the tokenizer that counts; see `text.tokens.get_counter`.
            order: `relevance`, `time` or `topological`; see `context.order.arrange`.
            format: `text`, `markdown`, `openai`, `anthropic` or `json`.
            template: A prompt with the fields `{context}` and `{question}`; for a chat the message
                of the user, or a mapping with `system` and `user`.
            kinds: Only memories of these kinds; others still come where they are needed.
            between: Only memories whose time is in this span, seconds since the epoch UTC.
            as_of: Only memories whose time is known and not later.
            shorten: A function (question, texts) -> texts that says what is written of memories.

        Returns:
            One context; for several questions or several budgets a list; for both a list for each
            question with one for each budget.

        Raises:
            InputError: An empty question, a budget that is negative or below what the pinned
                memories and the template take, an unknown tokenizer, order, format, field or kind.
        """
        asked, budgets = checked_questions(question), _checked_budgets(budget)
        if k is not None and (not isinstance(k, int) or isinstance(k, bool) or k < 1):
            raise InputError(f"k must be a whole number of at least 1, got {k!r}")
        own = self.config.context
        settings = replace(
            own,
            tokenizer=own.tokenizer if tokenizer is None else tokenizer,
            order=own.order if order is None else order,
        )
        check_order(settings.order)
        get_counter(settings.tokenizer)
        layout = load_format(
            own.format if format is None else format,
            own.template if template is None else template,
        )
        if shorten is None and settings.summary < 1:
            shorten = Summaries(settings.summary, tokenizer=settings.tokenizer)
        contexts: list[list[Context]] = [[] for _ in asked]
        if asked and budgets:
            current = self._current()  # one state throughout, whatever a writer adds meanwhile
            query = self._asked(current, asked, kinds=kinds, between=between, as_of=as_of)
            fits = min(max(self.config.rank.k, max(budgets) // _GRAIN), own.pool)
            count = fits if k is None else k
            contexts = self._contexts(
                current, asked, query, budgets, layout, settings, count, shorten
            )
        if isinstance(budget, int):
            only = [curve[0] for curve in contexts]
            return only[0] if isinstance(question, str) else only
        return contexts[0] if isinstance(question, str) else contexts

    def _contexts(
        self,
        current: Assembled,
        questions: Sequence[str],
        query: QueryBatch,
        budgets: Sequence[int],
        layout: Format,
        settings: ContextConfig,
        k: int,
        shorten: Shorten | None,
    ) -> list[list[Context]]:
        """A context for each question and budget."""
        with torch.inference_mode():
            found = current.index(query, k=k)
        rows, scores = found.rows.cpu().clone(), found.scores.cpu().clone()
        values = values_from_scores(scores, kind=settings.value, temperature=settings.temperature)
        allowed = None if query.allowed is None else query.allowed.cpu()
        pool = self._desk.pool(current, rows, values, allowed, settings)
        curves = self._desk.compile(current, pool, layout, settings, questions, budgets, shorten)
        names = self._desk.names(current, layout, settings)
        used = sorted({row for curve in curves for made in curve for row in made.chosen})
        if used and not self.store.readonly:
            self.store.log_access(current.node[used].tolist(), clock.time())
        gate = self.config.gate.threshold
        return [
            [
                _context(question, made, budget, settings.tokenizer, listed, names, sure, gate)
                for made, budget in zip(curve, budgets, strict=True)
            ]
            for question, curve, listed, sure in zip(
                questions, curves, rows, found.confidence.tolist(), strict=True
            )
        ]

    @cached_property
    def _desk(self) -> Desk:
        return Desk(self.store)


def _context(
    question: str,
    made: Compiled,
    budget: int,
    tokenizer: str,
    listed: Tensor,  # [k] int64, -1 = none
    names: Callable[[Tensor], tuple[str, ...]],
    confidence: float,
    threshold: float,
) -> Context:
    """What was compiled, with ids instead of rows."""
    chosen, listed = torch.tensor(made.chosen, dtype=torch.int64), listed[listed >= 0]
    return Context(
        question=question,
        text=made.prompt.text,
        tokens=made.tokens,
        budget=budget,
        tokenizer=tokenizer,
        sources=names(chosen),
        omitted=names(_left(listed, chosen)),
        confidence=confidence,
        known=len(listed) > 0 and confidence >= threshold,
        messages=made.prompt.messages,
        system=made.prompt.system,
        value=made.value,
        upper_bound=made.upper_bound,
        exact=made.exact,
    )


def _left(listed: Tensor, chosen: Tensor) -> Tensor:  # [k], [n] -> [k - n or more]
    """The rows that are not among the chosen ones."""
    if not len(chosen):
        return listed
    ordered = chosen.sort().values
    at = torch.searchsorted(ordered, listed).clamp(max=len(ordered) - 1)
    return listed[ordered[at] != listed]


def _checked_budgets(budget: int | Sequence[int]) -> list[int]:
    """One or several budgets as a list.

    Raises:
        InputError: Something that is no whole number, or a negative one.
    """
    budgets = [budget] if isinstance(budget, int) else budget
    for each in budgets if isinstance(budgets, (list, tuple)) else [budget]:
        if not isinstance(each, int) or isinstance(each, bool) or each < 0:
            raise InputError(f"budget must be a whole number of tokens, at least 0, got {each!r}")
    return list(budgets)
