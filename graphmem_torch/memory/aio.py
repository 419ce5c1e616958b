"""Async forms of the methods of a memory that may take long."""

# A `str` is a `Sequence[str]`, so the overloads for one text come first.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, overload

from graphmem_torch.memory.asking import Asking
from graphmem_torch.memory.contexts import callers_loop
from graphmem_torch.memory.request import (
    EVERYTHING,
    PRESET_LAYOUT,
    Between,
    Filters,
    Layout,
    Scope,
)
from graphmem_torch.memory.writing import Given, Writing
from graphmem_torch.rank.filters import Where
from graphmem_torch.results import Added, Answer, Context, Result
from graphmem_torch.text.times import DurationLike, TimeLike

__all__ = ["AsyncMemory"]


class AsyncMemory:
    """Async memory: runs each call in a thread, so that the event loop goes on.

    Cancelling the task of a call does not stop its thread.
    """

    def __init__(self, asking: Asking, writing: Writing) -> None:
        """Keep the parts of the memory; loads nothing.

        Args:
            asking: Asking of the memory.
            writing: Writing to the memory.
        """
        self._asking, self._writing = asking, writing

    async def add(
        self,
        atoms: Given | Iterable[Given],
        *,
        session: str | None = None,
        key: str | None = None,
        expires: TimeLike | None = None,
        ttl: DurationLike | None = None,
        replace: bool = False,
    ) -> Added:
        """Add atoms, as `Memory.add`.

        Cancelling the task leaves the store whole: the atoms are still stored, batch by batch. A
        repeated call with the same `key` skips them. Wait for the call before closing the memory.
        """
        given: Any = {"session": session, "key": key, "expires": expires, "ttl": ttl}
        return await asyncio.to_thread(self._writing.add, atoms, replace=replace, **given)

    @overload
    async def retrieve(
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
    async def retrieve(
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

    async def retrieve(
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
        """Rank memories for questions, as `Memory.retrieve`; cancelling changes nothing."""
        filters = Filters(where, between, scope)
        return await asyncio.to_thread(
            self._asking.retrieve, questions, filters, k=k, oracle=oracle, trace=trace
        )

    @overload
    async def compile(
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
    async def compile(
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
    async def compile(
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
    async def compile(
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

    async def compile(
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
        """Write contexts, as `Memory.compile`; cancelling changes nothing."""
        filters = Filters(where, between, scope)
        return await asyncio.to_thread(self._asking.compile, question, budget, filters, layout, k=k)

    @overload
    async def answer(
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
    async def answer(
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

    async def answer(
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
        """Answer questions, as `Memory.answer`; async `llm` and `oracle` run in the event loop.

        Cancelling the task cancels them, and no further question is asked.
        """
        filters = Filters(where, between, scope)
        with callers_loop() as wait:
            return await asyncio.to_thread(
                self._asking.answer,
                question,
                filters,
                layout,
                wait,
                llm=llm,
                budget=budget,
                oracle=oracle,
                k=k,
            )

    async def feedback(
        self,
        question: str,
        *,
        used: str | Sequence[str] = (),
        not_used: str | Sequence[str] = (),
    ) -> None:
        """Record which memories helped, as `Memory.feedback`; cancelling changes nothing."""
        await asyncio.to_thread(self._asking.feedback, question, used, not_used)
