"""Questions to a memory: of the present, and as it was known or true at a moment."""

# A `str` is a `Sequence[str]`, so the overloads for one text come first.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from graphmem_torch.memory.request import (
    EVERYTHING,
    PRESET_LAYOUT,
    Between,
    Filters,
    Instants,
    Layout,
    Scope,
)
from graphmem_torch.rank.filters import Where
from graphmem_torch.results import Answer, Context, Explanation, Result
from graphmem_torch.text.times import TimeLike

if TYPE_CHECKING:
    from graphmem_torch.memory.asking import Asking

__all__ = ["MemoryAt", "MemoryAtEach", "MemoryQuestions"]


class MemoryQuestions:
    """Methods that ask a memory: `Memory` has them for the present, `MemoryAt` for a moment."""

    _asking: Asking
    _as_of: TimeLike | None = None
    _valid_at: TimeLike | None = None

    def _filters(self, where: Where, between: Between | None, scope: Scope) -> Filters:
        return Filters(where, between, scope, self._as_of, self._valid_at)

    @overload
    def retrieve(
        self,
        questions: str,
        *,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        oracle: Any = None,
        trace: bool = False,
    ) -> Result: ...

    @overload
    def retrieve(
        self,
        questions: Sequence[str],
        *,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        oracle: Any = None,
        trace: bool = False,
    ) -> list[Result]: ...

    def retrieve(
        self,
        questions: str | Sequence[str],
        *,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        oracle: Any = None,
        trace: bool = False,
    ) -> Any:
        """Rank memories for questions, each with reasons and a confidence.

        Args:
            questions: One question for one result, or a list of B for a list of B.
            k: Number of hits of a question; by default that of the preset.
            where: Conditions on fields of the hits, such as `{"meta.page": {"$gte": 3}}`, with the
                operators of MongoDB (`rank.filters`). Other memories are still traversed.
            between: Span for the time of a memory, both ends included; None is an open end. A time
                is seconds since the epoch UTC, a `datetime` (UTC if naive) or ISO 8601.
            scope: Rarely used conditions: kinds, exclusions, seeds, namespaces, a plan.
            oracle: Function `verify(questions, texts)` that checks what the gate lets through.
            trace: Whether `Result.trace` records stages, times and counts.
        """
        filters = self._filters(where, between, scope)
        return self._asking.retrieve(questions, filters, k=k, oracle=oracle, trace=trace)

    @overload
    def compile(
        self,
        question: str,
        *,
        budget: int,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        layout: Layout = PRESET_LAYOUT,
    ) -> Context: ...

    @overload
    def compile(
        self,
        question: str,
        *,
        budget: Sequence[int],
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        layout: Layout = PRESET_LAYOUT,
    ) -> list[Context]: ...

    @overload
    def compile(
        self,
        question: Sequence[str],
        *,
        budget: int,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        layout: Layout = PRESET_LAYOUT,
    ) -> list[Context]: ...

    @overload
    def compile(
        self,
        question: Sequence[str],
        *,
        budget: Sequence[int],
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        layout: Layout = PRESET_LAYOUT,
    ) -> list[list[Context]]: ...

    def compile(
        self,
        question: str | Sequence[str],
        *,
        budget: int | Sequence[int],
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        layout: Layout = PRESET_LAYOUT,
    ) -> Any:
        """Write the most useful memories within a token budget as a prompt.

        `budget` counts the tokens of the whole prompt: one number, or W for W contexts a question.
        Every context has the pinned memories; a memory brings what it needs (`context.requires`).
        By default `k`, the number of memories to choose from, is as many as could fit. `where`,
        `between` and `scope` are those of `retrieve`; what `layout` leaves out is that of the
        settings.
        """
        filters = self._filters(where, between, scope)
        return self._asking.compile(question, budget, filters, layout, k=k)

    @overload
    def answer(
        self,
        question: str,
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        layout: Layout = PRESET_LAYOUT,
    ) -> Answer: ...

    @overload
    def answer(
        self,
        question: Sequence[str],
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        layout: Layout = PRESET_LAYOUT,
    ) -> list[Answer]: ...

    def answer(
        self,
        question: str | Sequence[str],
        *,
        llm: Any,
        budget: int = 2048,
        oracle: Any = None,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        layout: Layout = PRESET_LAYOUT,
    ) -> Any:
        """Compile a context for each question and ask a language model.

        `llm` is a function from a prompt to a text, or a client such as `oracle.OpenAIClient`. The
        answer comes on top of the `budget`. With an `oracle`, as in `retrieve`, refused questions
        are not asked; without one all are. A template needs `{question}`. Other arguments are those
        of `compile`. If the model fails, `Answer.error` has the reason. Cited memories count as
        used.
        """
        from graphmem_torch.memory.contexts import own_loop

        filters = self._filters(where, between, scope)
        with own_loop() as wait:
            return self._asking.answer(
                question, filters, layout, wait, llm=llm, budget=budget, oracle=oracle, k=k
            )

    def explain(
        self,
        question: str,
        id: str | None = None,
        *,
        limit: int = 20,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
    ) -> Explanation:
        """Explain the score of a memory: signals, paths, gradients and influences.

        By default the memory is the best hit; `id` names another, a hit or not. `limit` is the
        maximum number of edges and of gradients. Other arguments are those of `retrieve`, without
        namespaces. The influence of a memory is the part of the score that is lost without it.
        """
        filters = self._filters(where, between, scope)
        return self._asking.explain(question, id, filters, limit=limit, k=k)


class MemoryAt(MemoryQuestions):
    """Read-only view of a memory at a moment, as `Memory.at` returns it."""

    def __init__(
        self, asking: Asking, as_of: TimeLike | None, valid_at: TimeLike | None = None
    ) -> None:
        """Read the times.

        Args:
            asking: Asking of the memory.
            as_of: Moment whose state is asked; None is the present.
            valid_at: Moment at which the content of atoms must be true; None is any.

        Raises:
            InputError: Invalid time.
        """
        self._asking, self._as_of, self._valid_at = asking, as_of, valid_at
        _ = Filters(as_of=as_of, valid_at=valid_at).instant  # fail early

    def __repr__(self) -> str:
        """Return both moments."""
        return f"MemoryAt(as_of={self._as_of!r}, valid_at={self._valid_at!r})"


class MemoryAtEach:
    """Read-only view of a memory at several moments, as `Memory.at` returns it.

    Moments without an update between them are asked in one batch.
    """

    def __init__(self, asking: Asking, as_of: Instants, valid_at: TimeLike | None = None) -> None:
        """Read the times.

        Args:
            asking: Asking of the memory.
            as_of: T moments whose states are asked.
            valid_at: Moment at which the content of atoms must be true; None is any.

        Raises:
            InputError: Invalid time.
        """
        self._asking, self._as_of, self._valid_at = asking, as_of, valid_at
        _ = Filters(as_of=as_of, valid_at=valid_at).instants  # fail early

    @overload
    def retrieve(
        self,
        questions: str,
        *,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        oracle: Any = None,
        trace: bool = False,
    ) -> list[Result]: ...

    @overload
    def retrieve(
        self,
        questions: Sequence[str],
        *,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        oracle: Any = None,
        trace: bool = False,
    ) -> list[list[Result]]: ...

    def retrieve(
        self,
        questions: str | Sequence[str],
        *,
        k: int | None = None,
        where: Where = None,
        between: Between | None = None,
        scope: Scope = EVERYTHING,
        oracle: Any = None,
        trace: bool = False,
    ) -> Any:
        """Rank memories for questions at each moment; arguments as in `Memory.retrieve`.

        Returns:
            A result for each of the T moments; for B questions B lists of these.
        """
        filters = Filters(where, between, scope, self._as_of, self._valid_at)
        return self._asking.retrieve(questions, filters, k=k, oracle=oracle, trace=trace)
