"""Ask a chat completion server with bounded concurrency, retries and a circuit breaker.

The `openai` package sends each request once; its own retries are off
(`bench/results/oracle-2-epyc-cores.md`). They time single reads instead of attempts, do not repeat
useless answers or status 425, apply Retry-After to one question only, and never give up a dead
server.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from graphmem_torch.errors import InputError, OracleError
from graphmem_torch.oracle.prompts import Question, clean

__all__ = ["AnswerCache", "ChatSession", "Failure", "RetryPolicy", "Usage", "failure_of"]

_log = logging.getLogger(__name__)

_BUSY = frozenset({408, 409, 425, 429})  # and every status from 500 on, except 501
_CLOSED = frozenset({401, 403, 404})  # no other question will fare better
_MALFORMED = frozenset({400, 422, 501})

_LOST = 5  # consecutive lost questions after which a server counts as dead
_DOUBLED = 3  # maximum doublings of the seconds for an attempt
_REWORDED = 3  # maximum requests in other forms before a refused question stays refused


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Timeouts and retries for a failing server.

    Attributes:
        timeout: Seconds for one attempt, up to the last byte of its answer; doubled after each
            timeout, up to 8 times the value.
        retries: Number of attempts after the first.
        backoff: Seconds before the first retry, doubled for each further one.
        max_delay: Maximum seconds between two attempts. A Retry-After above it ends the attempts.
    """

    timeout: float = 60.0
    retries: int = 4
    backoff: float = 0.5
    max_delay: float = 60.0

    def __post_init__(self) -> None:
        bounds = {"timeout": 1e-3, "retries": 0, "backoff": 0.0, "max_delay": 0.0}
        for name, least in bounds.items():
            value = getattr(self, name)
            number = isinstance(value, int if name == "retries" else (int, float))
            if not number or isinstance(value, bool) or not least <= value < float("inf"):
                raise InputError(
                    f"{name}: expected a number of at least {least}, got {value!r}; "
                    f"leave it out for {RetryPolicy.__dataclass_fields__[name].default}"
                )

    def allowed(self, late: int) -> float:
        """Return the seconds for an attempt after `late` timeouts."""
        return self.timeout * 2.0 ** min(late, _DOUBLED)

    def delay(self, attempt: int, told: float | None) -> float:
        """Return the seconds before attempt 1, 2, ...; Retry-After (`told`) takes precedence.

        Random jitter keeps clients that failed together from returning together.
        """
        grown = min(self.backoff * 2.0 ** min(attempt - 1, 60), self.max_delay)
        jitter = random.uniform(0.5, 1.0)
        return grown * jitter if told is None else told + self.backoff * (1.0 - jitter)


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of an attempt.

    Attributes:
        why: Reason, for the message.
        again: Whether another attempt may succeed.
        closed: Whether no other question will succeed either.
        told: Seconds that the server asks to wait.
        refused: Whether the server rejected the question as malformed: status 400, 422 or 501.
        late: Whether the server accepted the question but did not answer in time.
    """

    why: str
    again: bool = True
    closed: bool = False
    told: float | None = None
    refused: bool = False
    late: bool = False


def failure_of(error: Exception, policy: RetryPolicy, late: int = 0) -> Failure:
    """Classify an attempt's exception; statuses as HTTP and OpenAI define them.

    Errors without a status (no connection, cut off, too slow, an answer that is not JSON) may be
    transient. `late` is the number of earlier attempts that timed out.
    """
    if isinstance(error, TimeoutError):
        return Failure(f"no answer within {policy.allowed(late):g} s", late=True)
    status = getattr(error, "status_code", None)
    said = " ".join(str(error).split())[:200]
    if not isinstance(status, int):
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        return Failure(f"{type(error).__name__}: {said}{cause}")
    why = f"HTTP {status}: {said.removeprefix(f'Error code: {status} - ')}"
    told = _retry_after(getattr(getattr(error, "response", None), "headers", None) or {})
    if told is not None and told > policy.max_delay:
        why = f"{why}; it asks to wait {told:.0f} s, more than the {policy.max_delay:g} s allowed"
        return Failure(why, again=False, closed=True)
    if getattr(error, "code", None) == "insufficient_quota":
        return Failure(why, again=False, closed=True)
    refused = status in _MALFORMED
    again = status in _BUSY or (status >= 500 and not refused)
    return Failure(why, again, status in _CLOSED, told if again else None, refused)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header (seconds or a date); None without a usable one."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of requests and tokens so far.

    Attributes:
        calls: Requests sent, retries included.
        retries: Requests that repeated a question.
        cached: Questions answered from the cache, or by the same question in the same batch.
        failures: Questions without a usable answer.
        prompt_tokens, completion_tokens: Tokens as the server counts them; 0 if it does not report
            them.
    """

    calls: int = 0
    retries: int = 0
    cached: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


_TABLE = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)"


class AnswerCache:
    """Cache of answers by key, in memory or in an SQLite file that several processes may share.

    If the file fails (full disk, damage), the cache warns and stops working; questions go on.

    Args:
        path: Path of the file, created if missing; None keeps the answers in memory.

    Raises:
        InputError: The file is another database, or cannot be opened.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path).absolute()
        try:
            # The thread that opens it need not be the one that uses it; only one uses it at a time.
            self._file = sqlite3.connect(
                self.path or ":memory:", isolation_level=None, check_same_thread=False
            )
            tables = self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = {name for (name,) in tables}
            if names - {"answers"}:
                raise InputError(
                    f"cache: expected a file of its own, got {self.path}, another kind of "
                    "database; name another"
                )
            if self.path is not None:
                self._file.execute("PRAGMA journal_mode = WAL")
                self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_TABLE)
        except sqlite3.Error as error:
            raise InputError(
                f"cache: expected an SQLite file or the name of a new one, got {self.path} "
                f"({error}); name another, or None to keep the answers in memory"
            ) from error
        self._works = True

    def get(self, key: str) -> str | None:
        """Return the stored answer, or None."""
        rows = self._run("SELECT answer FROM answers WHERE key = ?", key)
        return str(rows[0][0]) if rows else None

    def put(self, key: str, answer: str) -> None:
        """Store an answer; the last one of a key wins."""
        self._run("INSERT OR REPLACE INTO answers VALUES (?, ?)", key, answer)

    def close(self) -> None:
        """Commit the answers and close the file."""
        self._works = False
        self._file.close()

    def _run(self, statement: str, *values: str) -> list[tuple[str]]:
        if not self._works:
            return []
        try:
            return self._file.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self._works = False
            _log.warning(
                "The cache of answers %s failed (%s: %s); going on without it",
                self.path or "in memory",
                type(error).__name__,
                error,
            )
            return []


class _Batch:
    """Questions asked together; `closed` is the reason to stop asking."""

    closed: str | None = None


class ChatSession:
    """Asker of one server, each question once; all methods run in one event loop.

    Args:
        api: `AsyncOpenAI` with its own retries disabled.
        model: Name of the model on the server.
        options: Further fields of each request; None removes one.
        policy: Timeouts and retries.
        concurrency: Maximum simultaneous requests.
        cache: Cache of usable answers, or None.
        usage: Counts to continue.
    """

    def __init__(
        self,
        api: Any,
        model: str,
        options: Mapping[str, Any],
        *,
        policy: RetryPolicy,
        concurrency: int,
        cache: AnswerCache | None,
        usage: Usage,
    ) -> None:
        self.usage = usage
        self._api, self._model, self._options = api, model, options
        self._policy, self._cache = policy, cache
        self._free = asyncio.Semaphore(concurrency)
        self._lost = 0
        self._late = 0  # too short attempts of a question that was answered in the end
        self._until = 0.0  # time of the loop before which the server wants no request
        self._schemas = True  # until the server is seen to answer only without one
        # A model with a fixed temperature refuses the field; if the caller set it, the error is
        # raised.
        self._default = {} if "temperature" in options else {"temperature": 0.0}
        self._limit = "max_tokens"

    async def ask_all(self, questions: Sequence[Question]) -> list[Any]:
        """Return the value read from each answer, or an OracleError for a lost question."""
        batch = _Batch()
        asked_of = (self._model, str(self._api.base_url), self._options)
        keys = [question.key(asked_of) for question in questions]
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
        """Return the first usable answer, with the value read from it."""
        messages, schema = question.messages, question.schema if self._schemas else None
        failure, attempt, reworded = Failure("it was not asked"), 0, 0
        late = self._late
        while attempt <= (self._policy.retries if self._lost < _LOST else 0):
            await self._wait(attempt, failure)
            if batch.closed is not None:
                raise OracleError(batch.closed)
            self._count(calls=1, retries=int(attempt > 0))
            try:
                sent = self._send(messages, question.max_tokens, schema)
                answer = await asyncio.wait_for(sent, self._policy.allowed(late))
            except Exception as error:
                failure = failure_of(error, self._policy, late)
                late += failure.late
                if failure.refused and reworded < _REWORDED:
                    reworded += 1
                    if self._adapt(error):
                        continue
                    if schema is not None:
                        schema = None  # perhaps because of the schema; if not, it refuses again
                        continue
                if not failure.again:
                    break
            else:
                self._lost, self._late = 0, max(self._late, min(late, _DOUBLED))
                if schema is None and question.schema is not None:
                    self._schemas = False
                value = question.read(answer)
                if value is not None:
                    return answer, value
                failure = Failure(f"an answer that is not {question.wanted}: {answer!r:.120}")
                messages = question.again(answer)
            attempt += 1
        message = f"{self._model} at {self._api.base_url} gave no usable answer: {failure.why}"
        # A server that refuses a question is alive.
        self._lost = self._lost + 1 if failure.again else 0
        if failure.closed or self._lost >= _LOST:
            batch.closed = f"{message}; so it was asked no more"
        raise OracleError(message)

    async def _wait(self, attempt: int, failure: Failure) -> None:
        """Wait before an attempt; a Retry-After for one question holds for all."""
        now = asyncio.get_running_loop().time()
        pause = self._policy.delay(attempt, failure.told) if attempt > 0 else 0.0
        if failure.told is not None:
            self._until = max(self._until, now + pause)
        await asyncio.sleep(max(pause, self._until - now, 0.0))

    async def _send(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
    ) -> str:
        """Return the answer, "" if it has no text; raise errors, ValueError if it is no reply."""
        fields = {self._limit: max_tokens, **self._default, **self._options}
        if schema is not None:
            held = {"name": "answer", "strict": True, "schema": schema}
            fields["response_format"] = {"type": "json_schema", "json_schema": held}
        # In extra_body the installed package need not know a field.
        body = {name: value for name, value in fields.items() if value is not None}
        response = await self._api.chat.completions.create(
            model=self._model, messages=list(messages), extra_body=body
        )
        try:
            text = response.choices[0].message.content
        except (AttributeError, IndexError, TypeError, KeyError) as error:
            raise ValueError(f"no chat completion: {response!r:.120}") from error
        usage = getattr(response, "usage", None)
        for name in ("prompt_tokens", "completion_tokens"):
            told = getattr(usage, name, None)
            self._count(**{name: told if isinstance(told, int) else 0})
        return clean(text) if isinstance(text, str) else ""

    def _adapt(self, error: Exception) -> bool:
        """Drop the temperature, or rename the token limit, as OpenAI's newer models demand."""
        refused = getattr(error, "param", None)
        if refused == "temperature" and "temperature" not in self._options:
            self._default = {}
        elif refused == "max_tokens":
            self._limit = "max_completion_tokens"
        else:
            return False
        return True

    def _count(self, **more: int) -> None:
        known = {name: getattr(self.usage, name) + count for name, count in more.items()}
        self.usage = replace(self.usage, **known)


def _losses(answers: Sequence[Any]) -> int:
    return sum(isinstance(answer, OracleError) for answer in answers)
