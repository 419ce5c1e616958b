"""Attempts at a server of language models: retries, pauses and a circuit breaker.

The `openai` package sends each request once; its own retries are off
(`bench/results/oracle-2-epyc-cores.md`). They time single reads instead of attempts, do not repeat
useless answers or status 425, apply Retry-After to one question only, and never give up a dead
server.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import TypeVar

from graphmem_torch.errors import InputError, OracleError

__all__ = [
    "Attempts",
    "Failure",
    "RequestGroup",
    "RetryPolicy",
    "Usage",
    "UselessAnswerError",
    "failure_of",
]

_T = TypeVar("_T")

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

    def delay(self, attempt: int, retry_after: float | None) -> float:
        """Return the seconds before attempt 1, 2, ...; Retry-After takes precedence.

        Random jitter keeps clients that failed together from returning together.
        """
        grown = min(self.backoff * 2.0 ** min(attempt - 1, 60), self.max_delay)
        jitter = random.uniform(0.5, 1.0)
        if retry_after is None:
            return grown * jitter
        return retry_after + self.backoff * (1.0 - jitter)


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of an attempt.

    Attributes:
        why: Reason, for the message.
        again: Whether another attempt may succeed.
        closed: Whether no other question will succeed either.
        retry_after: Seconds that the server asks to wait.
        refused: Whether the server rejected the question as malformed: status 400, 422 or 501.
        late: Whether the server accepted the question but did not answer in time.
    """

    why: str
    again: bool = True
    closed: bool = False
    retry_after: float | None = None
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
    wait = _retry_after(getattr(getattr(error, "response", None), "headers", None) or {})
    if wait is not None and wait > policy.max_delay:
        why = f"{why}; it asks to wait {wait:.0f} s, more than the {policy.max_delay:g} s allowed"
        return Failure(why, again=False, closed=True)
    if getattr(error, "code", None) == "insufficient_quota":
        return Failure(why, again=False, closed=True)
    refused = status in _MALFORMED
    again = status in _BUSY or (status >= 500 and not refused)
    return Failure(why, again, status in _CLOSED, wait if again else None, refused)


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


class UselessAnswerError(Exception):
    """Answer that cannot be used, of a server that is alive; the message describes it."""


class RequestGroup:
    """Requests sent together; `closed` is the reason to send no more."""

    closed: str | None = None


class Attempts:
    """Attempts at one server; all methods run in one event loop.

    Args:
        server: Name of the server, for messages.
        policy: Timeouts and retries.
        usage: Counts to continue.
    """

    def __init__(self, server: str, policy: RetryPolicy, usage: Usage) -> None:
        self.usage = usage
        self._server, self._policy = server, policy
        self._lost = 0
        self._late = 0  # too short attempts of a request that was answered in the end
        self._until = 0.0  # time of the loop before which the server wants no request

    async def run(
        self,
        send: Callable[[], Awaitable[_T]],
        batch: RequestGroup,
        adapt: Callable[[Exception], bool],
    ) -> _T:
        """Return the first usable answer.

        Args:
            send: Function that sends the request once.
            batch: Requests that end together if the server is lost.
            adapt: Function that changes the form of a request after the given error, and returns
                whether it did.

        Raises:
            OracleError: No usable answer after all attempts, or raised by `send`.
        """
        failure, attempt, reworded = Failure("it was not asked"), 0, 0
        late = self._late
        while attempt <= (self._policy.retries if self._lost < _LOST else 0):
            await self._wait(attempt, failure)
            if batch.closed is not None:
                raise OracleError(batch.closed)
            self.count(calls=1, retries=int(attempt > 0))
            try:
                found = await asyncio.wait_for(send(), self._policy.allowed(late))
            except OracleError:
                self._lost = 0
                raise
            except UselessAnswerError as error:
                self._answered(late)
                failure = Failure(str(error))
            except Exception as error:
                failure = failure_of(error, self._policy, late)
                late += failure.late
                if failure.refused and reworded < _REWORDED:
                    reworded += 1
                    if adapt(error):
                        continue
                if not failure.again:
                    break
            else:
                self._answered(late)
                return found
            attempt += 1
        message = f"{self._server} gave no usable answer: {failure.why}"
        # A server that refuses a question is alive.
        self._lost = self._lost + 1 if failure.again else 0
        if failure.closed or self._lost >= _LOST:
            batch.closed = f"{message}; so it was asked no more"
        raise OracleError(message)

    def count(self, **more: int) -> None:
        """Add to the counts of `usage`."""
        known = {name: getattr(self.usage, name) + count for name, count in more.items()}
        self.usage = replace(self.usage, **known)

    def _answered(self, late: int) -> None:
        self._lost, self._late = 0, max(self._late, min(late, _DOUBLED))

    async def _wait(self, attempt: int, failure: Failure) -> None:
        """Wait before an attempt; a Retry-After for one request holds for all."""
        now = asyncio.get_running_loop().time()
        pause = self._policy.delay(attempt, failure.retry_after) if attempt > 0 else 0.0
        if failure.retry_after is not None:
            self._until = max(self._until, now + pause)
        await asyncio.sleep(max(pause, self._until - now, 0.0))
