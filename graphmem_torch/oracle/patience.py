"""How long a server is waited for: what may be asked again, after how long, and when to stop."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from graphmem_torch.errors import InputError

__all__ = ["Patience", "Trouble", "trouble_of"]

_BUSY = frozenset({408, 409, 425, 429})  # and every status from 500 on
_CLOSED = frozenset({401, 403, 404})  # no other question will fare better


@dataclass(frozen=True, slots=True)
class Patience:
    """How a failing server is treated.

    Attributes:
        timeout: Seconds for one attempt, from the request to the last byte of its answer.
        retries: Attempts after the first.
        backoff: Seconds before the first retry; each further one waits twice as long.
        longest: Most seconds between two attempts. A server that asks for more is not waited for.
    """

    timeout: float = 60.0
    retries: int = 4
    backoff: float = 0.5
    longest: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("timeout", 1e-3), ("retries", 0), ("backoff", 0.0), ("longest", 0.0)):
            value = getattr(self, name)
            number = isinstance(value, int if name == "retries" else (int, float))
            if not number or isinstance(value, bool) or not least <= value < float("inf"):
                raise InputError(f"{name}: expected a number of at least {least}, got {value!r}")

    def pause(self, attempt: int, told: float | None) -> float:
        """Seconds to wait before attempt 1, 2, ...; what the server told (Retry-After) counts most.

        The chance in it keeps many clients that failed together from coming back together.
        """
        grown = min(self.backoff * 2.0 ** min(attempt - 1, 60), self.longest)
        jitter = random.uniform(0.5, 1.0)
        return grown * jitter if told is None else told + self.backoff * (1.0 - jitter)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an attempt failed.

    Attributes:
        why: For the message.
        again: Another attempt may fare better.
        closed: No other question will fare better either.
        told: Seconds that the server asks to wait.
        refused: The server took the question for malformed: status 400, 422 or 501.
    """

    why: str
    again: bool = True
    closed: bool = False
    told: float | None = None
    refused: bool = False


def trouble_of(error: Exception, patience: Patience) -> Trouble:
    """What an attempt's exception means; statuses as HTTP and OpenAI define them.

    Anything without a status (no connection, cut off, too slow, an answer that is no JSON) may be
    over in a moment.
    """
    if isinstance(error, TimeoutError):
        return Trouble(f"no answer within {patience.timeout:g} s")
    status = getattr(error, "status_code", None)
    said = " ".join(str(error).split())[:200]
    if not isinstance(status, int):
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        return Trouble(f"{type(error).__name__}: {said}{cause}")
    why = f"HTTP {status}: {said.removeprefix(f'Error code: {status} - ')}"
    told = _told(getattr(getattr(error, "response", None), "headers", None))
    if told is not None and told > patience.longest:
        why = f"{why}; it asks to wait {told:.0f} s, more than the {patience.longest:g} s allowed"
        return Trouble(why, again=False, closed=True)
    if getattr(error, "code", None) == "insufficient_quota":
        return Trouble(why, again=False, closed=True)
    if status == 501 or not (status in _BUSY or status >= 500):
        refused = status in (400, 422, 501)
        return Trouble(why, again=False, closed=status in _CLOSED, refused=refused)
    return Trouble(why, told=told)


def _told(headers: Any) -> float | None:
    """Seconds of a Retry-After header, given in seconds or as a date; None without a usable one."""
    value = None if headers is None else headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None
