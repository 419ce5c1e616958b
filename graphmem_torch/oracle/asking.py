"""Asking a server many questions: how many at once, how often again, and when to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from graphmem_torch.errors import OracleError
from graphmem_torch.oracle.cache import AnswerCache
from graphmem_torch.oracle.patience import Patience, Trouble, trouble_of
from graphmem_torch.oracle.question import Question

__all__ = ["Asker", "Reply", "Usage"]

_LOST = 5  # questions lost in a row after which a server is taken for gone
_REFUSED = 3  # requests in other words, after which a refused question stays refused


@dataclass(frozen=True, slots=True)
class Usage:
    """What has been asked so far.

    Attributes:
        calls: Requests sent, those that ask again included.
        retries: Requests that asked again.
        cached: Questions answered from the cache, or by the same question of the same batch.
        failures: Questions without a usable answer.
        prompt_tokens, completion_tokens: As the server counted them, 0 where it does not tell.
    """

    calls: int = 0
    retries: int = 0
    cached: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """The text that a server answered, "" where there was none in it, and its count of tokens."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Send(Protocol):
    """What sends one request."""

    async def __call__(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
    ) -> Reply:
        """The reply; raises whatever goes wrong."""

    def adapt(self, error: Exception) -> bool:
        """Leaves out of later requests what the server refused by name; False if it cannot."""


class _Batch:
    """Questions asked together; `closed` says why no more of them are to be asked."""

    closed: str | None = None


class Asker:
    """Asks through `send`, patiently and no more than once; its methods run in one event loop.

    A server that has lost five questions in a row is asked no more in that batch, and gets one
    attempt a question until it answers again.

    Args:
        send: Sends one request.
        name: Who is asked, for messages.
        asked_of: What an answer depends on beside the question: model, server, options.
        patience: How failures are treated.
        concurrency: Most requests at once.
        cache: Keeps usable answers; None for none.
        usage: What was asked before; the counts go on from it.
    """

    def __init__(
        self,
        send: Send,
        *,
        name: str,
        asked_of: Sequence[Any],
        patience: Patience,
        concurrency: int,
        cache: AnswerCache | None,
        usage: Usage,
    ) -> None:
        self.usage = usage
        self._send, self._name, self._asked_of = send, name, asked_of
        self._patience, self._cache = patience, cache
        self._free = asyncio.Semaphore(concurrency)
        self._lost = 0
        self._until = 0.0  # the loop's time before which the server wants no request
        self._schemas = True  # until the server is seen to answer only without one

    async def ask_all(self, questions: Sequence[Question]) -> list[Any]:
        """What each question read from its answer; an OracleError in the place of a lost one."""
        batch = _Batch()
        keys = [question.key(self._asked_of) for question in questions]
        unique = dict(zip(keys, questions, strict=True))
        found = await asyncio.gather(*(self._ask(key, q, batch) for key, q in unique.items()))
        answer = dict(zip(unique, found, strict=True))
        every = [answer[key] for key in keys]
        lost = _losses(every) - _losses(found)
        self._count(cached=len(every) - len(found) - lost, failures=lost)
        return every

    async def _ask(self, key: str, question: Question, batch: _Batch) -> Any:
        kept = None if self._cache is None else self._cache.get(key)
        if kept is not None and (value := question.read(kept)) is not None:
            self._count(cached=1)
            return value
        async with self._free:
            try:
                answer, value = await self._attempts(question, batch)
            except OracleError as error:
                self._count(failures=1)
                return error
        if self._cache is not None:
            self._cache.put(key, answer)
        return value

    async def _attempts(self, question: Question, batch: _Batch) -> tuple[str, Any]:
        """The first usable answer, and what was read from it."""
        messages, schema = question.messages, question.schema if self._schemas else None
        trouble, attempt, refused = Trouble("it was not asked"), 0, 0
        while attempt <= (self._patience.retries if self._lost < _LOST else 0):
            await self._wait(attempt, trouble)
            if batch.closed is not None:
                raise OracleError(batch.closed)
            self._count(calls=1, retries=int(attempt > 0))
            try:
                reply = await self._reply(messages, question.max_tokens, schema)
            except Exception as error:
                trouble = trouble_of(error, self._patience)
                if trouble.refused and refused < _REFUSED:
                    refused += 1
                    if self._send.adapt(error):
                        continue
                    if schema is not None:
                        schema = None  # perhaps it was the schema; if not, it refuses again
                        continue
                if not trouble.again:
                    break
            else:
                self._lost = 0
                if schema is None and question.schema is not None:
                    self._schemas = False
                value = question.read(reply.text)
                if value is not None:
                    return reply.text, value
                trouble = Trouble(f"an answer that is not {question.wanted}: {reply.text!r:.120}")
                messages = question.again(reply.text)
            attempt += 1
        raise self._given_up(trouble, batch)

    async def _wait(self, attempt: int, trouble: Trouble) -> None:
        """The pause before an attempt; what a server told one question holds for all of them."""
        now = asyncio.get_running_loop().time()
        pause = self._patience.pause(attempt, trouble.told) if attempt > 0 else 0.0
        if trouble.told is not None:
            self._until = max(self._until, now + pause)
        await asyncio.sleep(max(pause, self._until - now, 0.0))

    async def _reply(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
    ) -> Reply:
        sent = self._send(messages, max_tokens, schema)
        reply = await asyncio.wait_for(sent, self._patience.timeout)
        self._count(prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens)
        return reply

    def _given_up(self, trouble: Trouble, batch: _Batch) -> OracleError:
        message = f"{self._name} gave no usable answer: {trouble.why}"
        # A server that refuses a question is there.
        self._lost = self._lost + 1 if trouble.again else 0
        if trouble.closed or self._lost >= _LOST:
            batch.closed = f"{message}; so it was asked no more"
        return OracleError(message)

    def _count(self, **more: int) -> None:
        known = {name: getattr(self.usage, name) + count for name, count in more.items()}
        self.usage = replace(self.usage, **known)


def _losses(answers: Sequence[Any]) -> int:
    return sum(isinstance(answer, OracleError) for answer in answers)
