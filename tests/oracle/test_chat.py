"""Classification of failures, waiting times, and a cache that never interferes."""

from __future__ import annotations

import email.utils
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.oracle.attempts import RetryPolicy, failure_of
from graphmem_torch.oracle.chat import AnswerCache


class Status(Exception):
    """An error with a status, as `openai` raises it."""

    def __init__(self, status: int, code: str | None = None, **headers: str) -> None:
        super().__init__("said")
        self.status_code, self.code = status, code
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = SimpleNamespace(headers=named)


def told(**headers: str) -> Any:
    return failure_of(Status(429, **headers), RetryPolicy())


def test_delays_double_and_end() -> None:
    policy = RetryPolicy(backoff=1.0, max_delay=10.0)
    for attempt, grown in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (5000, 10.0)):
        delays = [policy.delay(attempt, None) for _ in range(50)]
        assert 0.5 * grown <= min(delays) <= max(delays) <= grown
        assert len(set(delays)) > 1, "chance, lest all clients come back together"
    assert 7.0 <= policy.delay(1, 7.0) <= 7.5
    assert RetryPolicy(backoff=0.0).delay(9, None) == 0.0


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_failure_of_a_busy_server(status: int) -> None:
    failure = failure_of(Status(status), RetryPolicy())
    assert failure.again and not failure.closed and not failure.refused
    assert failure.why == f"HTTP {status}: said"


@pytest.mark.parametrize(
    ("status", "closed", "refused"),
    [
        (400, False, True),
        (401, True, False),
        (403, True, False),
        (404, True, False),
        (413, False, False),
        (422, False, True),
        (501, False, True),
    ],
)
def test_failure_for_good(status: int, closed: bool, refused: bool) -> None:
    failure = failure_of(Status(status), RetryPolicy())
    assert (failure.again, failure.closed, failure.refused) == (False, closed, refused)


def test_retry_after_in_seconds_as_a_date_and_as_nonsense() -> None:
    assert told(retry_after="3").retry_after == 3.0
    assert told(retry_after="0.25").retry_after == 0.25
    assert told(retry_after="-4").retry_after == 0.0
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert 25.0 < told(retry_after=date).retry_after <= 31.0
    assert told(retry_after=email.utils.formatdate(0)).retry_after == 0.0
    for nonsense in ("soon", "", "nan", "Mon, 99 Foo 2020"):
        assert told(retry_after=nonsense).retry_after is None
    for long in ("61", "1e9", "inf"):
        failure = told(retry_after=long)
        assert failure.closed and not failure.again and "more than the 60 s" in failure.why


def test_failure_without_a_status() -> None:
    assert failure_of(TimeoutError(), RetryPolicy(timeout=2.0)).why == "no answer within 2 s"
    error = ValueError("no\n  JSON")
    failure = failure_of(error, RetryPolicy())
    assert failure.again and failure.why == "ValueError: no JSON"
    error.__cause__ = OSError("no such host")
    assert failure_of(error, RetryPolicy()).why == "ValueError: no JSON (no such host)"
    assert failure_of(Status(429, code="insufficient_quota"), RetryPolicy()).closed


def test_cache_keeps_and_shares(tmp_path: Path) -> None:
    one, two = AnswerCache(tmp_path / "a"), AnswerCache(str(tmp_path / "a"))
    assert one.get("k") is None
    one.put("k", "first")
    one.put("k", "second\0 ☃")
    assert two.get("k") == "second\0 ☃"
    one.close()
    two.close()
    assert AnswerCache(tmp_path / "a").get("k") == "second\0 ☃"
    assert two.get("k") is None and two.put("k", "x") is None, "closed: no use, no error"
    memory = AnswerCache()
    memory.put("k", "here")
    assert memory.get("k") == "here" and AnswerCache().get("k") is None


def test_cache_refuses_files_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database at all, " * 100)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE atoms (id)")
    for name in ("text", "other", ".", "no/such/folder/file"):
        with pytest.raises(InputError, match="cache: "):
            AnswerCache(tmp_path / name)
    with sqlite3.connect(tmp_path / "other") as other:
        assert len(other.execute("SELECT * FROM sqlite_master").fetchall()) == 1


def test_cache_that_stops_working_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = AnswerCache(tmp_path / "a")
    with sqlite3.connect(tmp_path / "a") as other:
        other.execute("DROP TABLE answers")
    cache.put("k", "x")
    assert cache.get("k") is None
    cache.put("k", "x")
    assert len(caplog.records) == 1 and "going on without it" in caplog.text
