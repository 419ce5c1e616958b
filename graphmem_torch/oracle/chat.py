"""Ask a chat completion server: questions, usable answers and their cache.

The requests are repeated by `Attempts`.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphmem_torch.errors import InputError, OracleError
from graphmem_torch.oracle.attempts import Attempts, RequestGroup, UselessAnswerError
from graphmem_torch.oracle.prompts import Question, clean

__all__ = ["AnswerCache", "ChatSession"]

_log = logging.getLogger(__name__)

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


class ChatSession:
    """Asker of one server, each question once; all methods run in one event loop.

    Args:
        api: `AsyncOpenAI` with its own retries disabled.
        model: Name of the model on the server.
        options: Further fields of each request; None removes one.
        attempts: Attempts at the server.
        concurrency: Maximum simultaneous requests.
        cache: Cache of usable answers, or None.
    """

    def __init__(
        self,
        api: Any,
        model: str,
        options: Mapping[str, Any],
        *,
        attempts: Attempts,
        concurrency: int,
        cache: AnswerCache | None,
    ) -> None:
        self._api, self._model, self._options = api, model, options
        self._attempts, self._cache = attempts, cache
        self._free = asyncio.Semaphore(concurrency)
        self._schemas = True  # until the server is seen to answer only without one
        # A model with a fixed temperature refuses the field; if the caller set it, the error is
        # raised.
        self._default = {} if "temperature" in options else {"temperature": 0.0}
        self._limit = "max_tokens"

    async def ask_all(self, questions: Sequence[Question]) -> list[Any]:
        """Return the value read from each answer, or an OracleError for a lost question."""
        batch = RequestGroup()
        asked_of = (self._model, str(self._api.base_url), self._options)
        keys = [question.key(asked_of) for question in questions]
        unique = dict(zip(keys, questions, strict=True))
        found = await asyncio.gather(*(self._ask(key, q, batch) for key, q in unique.items()))
        answer = dict(zip(unique, found, strict=True))
        every = [answer[key] for key in keys]
        lost = _losses(every) - _losses(found)
        self._attempts.count(cached=len(every) - len(found) - lost, failures=lost)
        return every

    async def _ask(self, key: str, question: Question, batch: RequestGroup) -> Any:
        kept = None if self._cache is None else self._cache.get(key)
        if kept is not None and (value := question.read(kept)) is not None:
            self._attempts.count(cached=1)
            return value
        async with self._free:
            try:
                answer, value = await self._answer(question, batch)
            except OracleError as error:
                self._attempts.count(failures=1)
                return error
        if self._cache is not None:
            self._cache.put(key, answer)
        return value

    async def _answer(self, question: Question, batch: RequestGroup) -> tuple[str, Any]:
        """Return the first usable answer, with the value read from it."""
        messages, schema = question.messages, question.schema if self._schemas else None

        async def send() -> tuple[str, Any]:
            nonlocal messages
            answer = await self._send(messages, question.max_tokens, schema)
            if schema is None and question.schema is not None:
                self._schemas = False
            value = question.read(answer)
            if value is None:
                messages = question.again(answer)
                raise UselessAnswerError(
                    f"an answer that is not {question.wanted}: {answer!r:.120}"
                )
            return answer, value

        def adapt(error: Exception) -> bool:
            nonlocal schema
            if self._adapt(error):
                return True
            refused, schema = schema is not None, None
            return refused  # perhaps because of the schema; if not, it refuses again

        return await self._attempts.run(send, batch, adapt)

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
            self._attempts.count(**{name: told if isinstance(told, int) else 0})
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


def _losses(answers: Sequence[Any]) -> int:
    return sum(isinstance(answer, OracleError) for answer in answers)
