"""Client of any server with OpenAI's chat completions or embeddings: OpenAI, llama.cpp, vLLM, ...

Requests go through the package `openai` (`pip install 'graphmem-torch[openai]'`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError, OracleError, optional_import
from graphmem_torch.oracle.attempts import Attempts, RetryPolicy, Usage
from graphmem_torch.oracle.chat import AnswerCache, ChatSession
from graphmem_torch.oracle.embeddings import EmbeddingSession
from graphmem_torch.oracle.prompts import (
    Question,
    as_list,
    classify_question,
    insight_question,
    judge_question,
    messages_of,
    summarise_question,
    verify_question,
)
from graphmem_torch.oracle.protocol import Verdict, check_pairs

__all__ = ["OpenAIClient", "OpenAIOracle"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_TOGETHER = 8  # maximum texts of one request

_opening = threading.RLock()  # no two threads open a client, and none closes what another opens
os.register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release
)


class OpenAIClient:
    """Client of a language model with retries, a cache and bounded concurrency.

    An attempt has a timeout as a whole; after one the next attempt gets twice the time. Attempts
    are repeated after 408, 409, 425, 429, 5xx (except 501), lost connections and useless answers.
    They respect Retry-After. A server that loses five questions in a row is asked no more in that
    batch, then gets one attempt a question until it answers again. A client is a context manager,
    and safe in threads, in notebooks, and after a fork.

    Args:
        model: Name of the model on the server.
        base_url: Address such as "http://127.0.0.1:8080/v1"; by default OPENAI_BASE_URL, else
            OpenAI.
        api_key: Key; by default OPENAI_API_KEY. A local server may need none.
        timeout, retries, backoff, max_delay: Timeouts and retries; see `RetryPolicy`.
        concurrency: Maximum simultaneous requests; time in the server's queue counts towards the
            timeout.
        max_tokens: Maximum tokens of an answer unless the question sets one; None for the server's
            limit.
        options: Further fields of each request ({"seed": 7, "temperature": 0.3}); None removes one.
            The temperature is 0 by default if the model allows it.
        cache: SQLite file for answers by the hash of model, server, messages and options. None
            caches in memory, False disables caching.

    Raises:
        InputError: Invalid argument, no key for OpenAI, or no package `openai`.
    """

    _attempts: Attempts
    _chat: ChatSession
    _embeddings: EmbeddingSession
    _end: Callable[[], object]
    _loop: _LoopThread
    _process: int

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 4,
        concurrency: int = 8,
        backoff: float = 0.5,
        max_delay: float = 60.0,
        max_tokens: int | None = 512,
        options: Mapping[str, Any] | None = None,
        cache: str | Path | bool | None = None,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise InputError(
                f"model: expected the name of a model, got {model!r}; name one, such as gpt-4o-mini"
            )
        if cache is True or not isinstance(cache, (str, Path, bool, type(None))):
            raise InputError(
                f"cache: expected the name of a file, None (in memory) or False, got {cache!r}; "
                "name a file of its own"
            )
        self.model = model
        self.base_url = _checked_url(base_url or os.environ.get("OPENAI_BASE_URL") or None)
        self.retry_policy = RetryPolicy(timeout, retries, backoff, max_delay)
        check_count("concurrency", concurrency)
        if max_tokens is not None:
            check_count("max_tokens", max_tokens)
        self.concurrency, self.max_tokens = concurrency, max_tokens
        self.options = _checked_options(options or {})
        # Resolved now, so that reopening after `close` uses the same file.
        self._cache = Path(cache).absolute() if cache and cache is not True else cache
        self._api_key = api_key
        self._start(Usage())

    def __repr__(self) -> str:
        return f"OpenAIClient({self.model!r}, base_url={self.base_url!r})"

    def __enter__(self) -> OpenAIClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, prompt: str | Sequence[Mapping[str, str]]) -> str:
        """Return the answer to a prompt; makes the client a function from text to text."""
        return self.complete(prompt)

    @property
    def usage(self) -> Usage:
        """Return calls, retries, cached answers, failures and tokens so far."""
        return self._attempts.usage

    def complete(
        self,
        prompt: str | Sequence[Mapping[str, str]],
        *,
        system: str | None = None,
        max_tokens: int | None = None,
    ) -> str:
        """Return the model's answer to a prompt, or to chat messages {role, content}.

        Args:
            prompt: Text of a user message, or messages in OpenAI's format.
            system: Text of a system message before it.
            max_tokens: Maximum tokens of the answer; by default the client's.

        Raises:
            InputError: A prompt that is empty or neither text nor messages.
            OracleError: No usable answer after all attempts; gives the reason.
        """
        (found,) = self._answers([self._question(prompt, system, max_tokens)])
        if isinstance(found, OracleError):
            raise found
        return str(found)

    def complete_all(
        self,
        prompts: Sequence[str | Sequence[Mapping[str, str]]],
        *,
        system: str | None = None,
        max_tokens: int | None = None,
    ) -> list[str | None]:
        """Answer many prompts concurrently; a lost one is None, with a warning.

        Raises:
            InputError: A single prompt, or one that is empty or neither text nor messages.
        """
        listed = as_list("prompts", prompts)
        return self.ask_all([self._question(prompt, system, max_tokens) for prompt in listed])

    def attempt_all(
        self, prompts: Sequence[str | Sequence[Mapping[str, str]]]
    ) -> list[str | OracleError]:
        """Answer many prompts like `complete_all`, with an OracleError for each lost one.

        Raises:
            InputError: A single prompt, or one that is empty or neither text nor messages.
        """
        return self._answers([self._question(prompt) for prompt in as_list("prompts", prompts)])

    def ask_all(self, questions: Sequence[Question]) -> list[Any]:
        """Return the value read from each answer; None for lost ones, with one warning."""
        found = self._answers(questions)
        lost = [answer for answer in found if isinstance(answer, OracleError)]
        if lost:
            _log.warning(
                "No usable answer to %d of %d questions, the first of them: %s",
                len(lost),
                len(found),
                lost[0],
            )
        return [None if isinstance(answer, OracleError) else answer for answer in found]

    def embed(self, texts: Sequence[str], *, batch: int = 64) -> np.ndarray:  # [n, d] float32
        """Return the vectors of texts by an embedding model, in order, as the server gives them.

        A request that the server finds too large is sent in halves. So is a text; its vector is
        then the mean of the halves' unit vectors, weighted by their lengths.

        Args:
            texts: Texts; a text without visible characters gets a vector of zeros.
            batch: Maximum number of texts of one request.

        Raises:
            InputError: `texts` is not a list of texts.
            OracleError: No usable vectors after all attempts; gives the reason.
        """
        check_count("batch", batch)
        listed = as_list("texts", texts, str)
        return self._run(lambda: self._embeddings.embed_all(listed, batch))

    def close(self) -> None:
        """Close the connections and the cache; a later question reopens them."""
        with _opening:
            if self._process == os.getpid():
                self._end()
            self._process = -1

    def _question(
        self,
        prompt: str | Sequence[Mapping[str, str]],
        system: str | None = None,
        max_tokens: int | None = None,
    ) -> Question:
        if max_tokens is not None:
            check_count("max_tokens", max_tokens)
        limit = self.max_tokens if max_tokens is None else max_tokens
        return Question(messages_of(prompt, system), lambda text: text.strip() or None, limit)

    def _answers(self, questions: Sequence[Question]) -> list[Any]:
        """Return the answers, with an OracleError for each lost one."""
        return self._run(lambda: self._chat.ask_all(questions)) if questions else []

    def _run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of a coroutine in the client's own event loop."""
        with _opening:
            if self._process != os.getpid():
                # Closed, or forked: neither thread nor connections survive a fork.
                self._start(self.usage)
            found = self._loop.submit(work())
        try:
            return found.result()
        except CancelledError:
            raise OracleError(
                f"{self.model} was closed before it had answered; ask again"
            ) from None
        except BaseException:
            found.cancel()
            raise

    def _start(self, usage: Usage) -> None:
        """Open connections, cache and their thread; `usage` is continued."""
        openai = optional_import("openai", "servers of language models", "graphmem-torch[openai]")
        key = _checked_key(self._api_key or os.environ.get("OPENAI_API_KEY") or "")
        if not key and self.base_url is None:
            raise InputError(
                "api_key: expected a key for OpenAI, got none; set OPENAI_API_KEY, or name the "
                "base_url of your own server, such as http://127.0.0.1:8080/v1"
            )
        cache = None if self._cache is False else AnswerCache(self._cache or None)
        api = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=self.base_url,
            # Attempts are timed as a whole; this timeout detects a missing server.
            timeout=openai.Timeout(None, connect=self.retry_policy.timeout / 2),
            max_retries=0,
        )
        self._attempts = attempts = Attempts(
            f"{self.model} at {api.base_url}", self.retry_policy, usage
        )
        self._chat = ChatSession(
            api,
            self.model,
            self.options,
            attempts=attempts,
            concurrency=self.concurrency,
            cache=cache,
        )
        self._embeddings = EmbeddingSession(
            api, self.model, self.options, attempts=attempts, concurrency=self.concurrency
        )
        self._loop, self._process = _LoopThread(), os.getpid()
        self._end = weakref.finalize(self, _close, self._process, self._loop, api, cache)


class OpenAIOracle:
    """`Oracle` that asks a language model, one request a text, concurrently.

    A useless answer is asked for again; the final result is None, with a warning. Server errors
    never raise.

    Args:
        client: Client of the server; its `usage` counts the questions.
    """

    def __init__(self, client: OpenAIClient) -> None:
        if not isinstance(client, OpenAIClient):
            raise InputError(
                f"client: expected an OpenAIClient, got {client!r}; "
                'make one with OpenAIClient("gpt-4o-mini")'
            )
        self.client = client

    def __repr__(self) -> str:
        return f"OpenAIOracle({self.client!r})"

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict | None]:
        """Return whether each premise entails or contradicts the hypothesis at its index.

        Raises:
            InputError: Not two lists of texts of equal length.
        """
        premises = as_list("premises", premises, str)
        hypotheses = as_list("hypotheses", hypotheses, str)
        check_pairs(premises, hypotheses)
        pairs = zip(premises, hypotheses, strict=True)
        return self.client.ask_all([judge_question(*pair) for pair in pairs])

    def classify(self, texts: Sequence[str]) -> list[dict[str, Any] | None]:
        """Return each text as a memory node {"content", "type", "decay_factor"}.

        Follows the contract of ContextOS (appendix A.1); `decay_factor` is the share left after an
        hour.

        Raises:
            InputError: `texts` is not a list of texts.
        """
        return self.client.ask_all(
            [classify_question(text) for text in as_list("texts", texts, str)]
        )

    def extract(self, texts: Sequence[str]) -> list[dict[str, Any] | None]:
        """Return the kind and topics of each text: {"signifiers", "keys", "importance"}.

        Several texts share one request (Cognitive Weave asks for each separately).

        Raises:
            InputError: `texts` is not a list of texts.
        """
        listed = as_list("texts", texts, str)
        parts = [listed[i : i + _TOGETHER] for i in range(0, len(listed), _TOGETHER)]
        answers = self.client.ask_all([insight_question(part) for part in parts])
        nothing: list[None] = [None]
        return [
            each
            for part, answer in zip(parts, answers, strict=True)
            for each in (answer or nothing * len(part))
        ]

    def verify(self, questions: Sequence[str], texts: Sequence[str]) -> list[bool | None]:
        """Return whether each text explicitly answers the question at its index.

        Raises:
            InputError: Not two lists of texts of equal length.
        """
        questions = as_list("questions", questions, str)
        texts = as_list("texts", texts, str)
        if len(questions) != len(texts):
            raise InputError(
                f"texts: expected one for each of {len(questions)} questions, got {len(texts)}; "
                "give a text for each place"
            )
        pairs = zip(questions, texts, strict=True)
        return self.client.ask_all([verify_question(*pair) for pair in pairs])

    def summarise(
        self, texts: Sequence[str], question: str | None = None, max_tokens: int = 128
    ) -> list[str | None]:
        """Return a summary of each text, focused on a question if there is one.

        Args:
            texts: Texts to shorten.
            question: Question that the summaries should help to answer.
            max_tokens: Maximum tokens of each summary, as the server counts them.

        Raises:
            InputError: `texts` is not a list of texts, or max_tokens is below 1.
        """
        check_count("max_tokens", max_tokens)
        listed = as_list("texts", texts, str)
        return self.client.ask_all(
            [summarise_question(text, question, max_tokens) for text in listed]
        )


class _LoopThread(threading.Thread):
    """Event loop in a thread, for callers in other threads.

    The caller can abandon a call at its timeout whatever the server does, and may be a notebook,
    which already runs a loop.
    """

    def __init__(self) -> None:
        super().__init__(name="oracle", daemon=True)
        self._loop = asyncio.new_event_loop()
        self.start()

    def run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self, last: Coroutine[Any, Any, object]) -> None:
        """Cancel running coroutines, run `last`, and end the thread."""
        self.submit(self._end(last))
        # The garbage collector may call from the thread itself, which cannot join itself.
        if threading.current_thread() is not self:
            self.join()

    async def _end(self, last: Coroutine[Any, Any, object]) -> None:
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        try:
            await last
        finally:
            self._loop.stop()


def _close(process: int, loop: _LoopThread, api: Any, cache: AnswerCache | None) -> None:
    if process != os.getpid():
        return  # a fork has the objects, but not the thread that would close them
    loop.end(api.close())
    if cache is not None:
        cache.close()


def _checked_url(url: str | None) -> str | None:
    if url is not None and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise InputError(
            f"base_url: expected an address, got {url!r:.120}; give one, such as "
            "http://127.0.0.1:8080/v1"
        )
    return url


def _checked_key(key: str) -> str:
    """Return the key without the line end of its file; errors never show it."""
    if not isinstance(key, str) or not (key.isascii() and key.strip().isprintable()):
        raise InputError("api_key: expected ASCII text, got something else; copy it again")
    return key.strip()


def _checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(options, allow_nan=False)
        return dict(options)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"options: expected fields of a request, got {options!r:.120} ({error}); "
            "give a dict of JSON values"
        ) from error
