"""Client of any server that speaks OpenAI's chat completions: OpenAI, llama.cpp, vLLM, Ollama, ...

The `openai` package does the talking (`pip install 'graphmem-torch[openai]'`).
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

from graphmem_torch.checks import check_count
from graphmem_torch.errors import InputError, OracleError, optional_import
from graphmem_torch.oracle.chat import AnswerCache, ChatSession, RetryPolicy, Usage
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

_TOGETHER = 8  # texts that one request asks about

_opening = threading.RLock()  # no two threads open a client, and none closes what another opens
os.register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release
)


class OpenAIClient:
    """Asks a language model, no question more often than it takes.

    Attempts time out as a whole, and the next one then has twice the time. They are repeated after
    408, 409, 425, 429, 5xx (not 501: the server cannot do it), lost connections and useless
    answers, wait as long as Retry-After says, and never run more than `concurrency` at once. A
    server that has lost five questions in a row is asked no more in that batch, and gets one
    attempt a question until it answers again. Usable in a `with`; safe to call from threads, from
    notebooks, and after a fork.

    Args:
        model: Name of the model, as the server knows it.
        base_url: Address such as "http://127.0.0.1:8080/v1"; by default OPENAI_BASE_URL, else
            OpenAI.
        api_key: Key; by default OPENAI_API_KEY; a server of your own may need none.
        timeout, retries, backoff, max_delay: Treatment of failures; see `RetryPolicy`.
        concurrency: Most requests at once. What a slow server queues waits on its timeout: give it
            fewer at once, or more time.
        max_tokens: Most tokens of an answer where the question names no number; None: the server's.
        options: Further fields of each request ({"seed": 7, "temperature": 0.3}); None leaves one
            out. The temperature is 0 by default, where the model allows it.
        cache: SQLite file that keeps answers by the hash of model, server, messages and options;
            None keeps them in memory, False keeps none.

    Raises:
        InputError: An argument that does not fit, no key for OpenAI, or no package `openai`.
    """

    _chat: ChatSession
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
                f"model: expected the name of a model, got {model!r}; such as gpt-4o-mini"
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
        # Opened again after `close`: the file stays the one that was named.
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
        """The answer to a prompt: a client is a function from text to text."""
        return self.complete(prompt)

    @property
    def usage(self) -> Usage:
        """Calls, retries, cached answers, failures and tokens so far."""
        return self._chat.usage

    def complete(
        self,
        prompt: str | Sequence[Mapping[str, str]],
        *,
        system: str | None = None,
        max_tokens: int | None = None,
    ) -> str:
        """The model's answer to a prompt, or to chat messages {role, content}.

        Args:
            prompt: Text of a user's message, or messages in OpenAI's shape.
            system: Text of the system's message that goes before it.
            max_tokens: Most tokens of the answer; by default the client's.

        Raises:
            InputError: A prompt that is empty or neither text nor messages.
            OracleError: No usable answer after every attempt; the message says why.
        """
        (found,) = self._run([self._question(prompt, system, max_tokens)])
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
        """The answers to many prompts, as many at once as allowed; None, with a warning, if lost.

        Raises:
            InputError: A single prompt, or one that is empty or neither text nor messages.
        """
        listed = as_list("prompts", prompts)
        return self.ask_all([self._question(prompt, system, max_tokens) for prompt in listed])

    def attempt_all(
        self, prompts: Sequence[str | Sequence[Mapping[str, str]]]
    ) -> list[str | OracleError]:
        """As `complete_all`, without a warning: the error that says why in the place of a lost one.

        Raises:
            InputError: A single prompt, or one that is empty or neither text nor messages.
        """
        return self._run([self._question(prompt) for prompt in as_list("prompts", prompts)])

    def ask_all(self, questions: Sequence[Question]) -> list[Any]:
        """What each question read from its answer; None, with one warning, where it was lost."""
        found = self._run(questions)
        lost = [answer for answer in found if isinstance(answer, OracleError)]
        if lost:
            _log.warning(
                "No usable answer to %d of %d questions, the first of them: %s",
                len(lost),
                len(found),
                lost[0],
            )
        return [None if isinstance(answer, OracleError) else answer for answer in found]

    def close(self) -> None:
        """Ends the connections and closes the cache; a later question opens them again."""
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

    def _run(self, questions: Sequence[Question]) -> list[Any]:
        """Answers, and an OracleError in the place of each that did not come."""
        if not questions:
            return []
        with _opening:
            if self._process != os.getpid():
                # Closed, or a fork, to which neither thread nor connections have come along.
                self._start(self.usage)
            found = self._loop.submit(self._chat.ask_all(questions))
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
        """Connections, cache and the thread that uses them; `usage` counts on."""
        openai = optional_import("openai", "servers of chat completions", "graphmem-torch[openai]")
        key = _checked_key(self._api_key or os.environ.get("OPENAI_API_KEY") or "")
        if not key and self.base_url is None:
            raise InputError(
                "api_key: expected a key for OpenAI, got none; set OPENAI_API_KEY, or name the "
                "base_url of a server of your own, such as http://127.0.0.1:8080/v1"
            )
        cache = None if self._cache is False else AnswerCache(self._cache or None)
        api = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=self.base_url,
            # An attempt as a whole is timed; here, whether there is a server at all.
            timeout=openai.Timeout(None, connect=self.retry_policy.timeout / 2),
            max_retries=0,
        )
        self._chat = ChatSession(
            api,
            self.model,
            self.options,
            policy=self.retry_policy,
            concurrency=self.concurrency,
            cache=cache,
            usage=usage,
        )
        self._loop, self._process = _LoopThread(), os.getpid()
        self._end = weakref.finalize(self, _close, self._process, self._loop, api, cache)


class OpenAIOracle:
    """An `Oracle` that asks a language model, one request a text, as many at once as allowed.

    Every answer is checked; one that is no use is asked for again and is None in the end, with a
    warning. Nothing here raises because of what a server does.

    Args:
        client: Client of the server; its `usage` tells what the questions took.
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
        """Whether each hypothesis follows from, or contradicts, the premise of its place.

        Raises:
            InputError: Something else than two lists of as many texts.
        """
        premises = as_list("premises", premises, str)
        hypotheses = as_list("hypotheses", hypotheses, str)
        check_pairs(premises, hypotheses)
        pairs = zip(premises, hypotheses, strict=True)
        return self.client.ask_all([judge_question(*pair) for pair in pairs])

    def classify(self, texts: Sequence[str]) -> list[dict[str, Any] | None]:
        """Each text as a memory node {"content", "type", "decay_factor"}.

        The contract of ContextOS (appendix A.1); `decay_factor` is what is left after an hour.

        Raises:
            InputError: `texts` is no list of texts.
        """
        return self.client.ask_all(
            [classify_question(text) for text in as_list("texts", texts, str)]
        )

    def extract(self, texts: Sequence[str]) -> list[dict[str, Any] | None]:
        """What each text is and speaks of: {"signifiers", "keys", "importance"}.

        Several texts are asked about in one request (Cognitive Weave asks for each by itself).

        Raises:
            InputError: `texts` is no list of texts.
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
        """Whether each text explicitly mentions what answers the question of its place.

        Raises:
            InputError: Something else than two lists of as many texts.
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
        """A summary of each text, of what helps to answer the question where there is one.

        Args:
            texts: Texts to shorten.
            question: Question that the summaries are to help with.
            max_tokens: Most tokens of each, as the server counts them.

        Raises:
            InputError: `texts` is no list of texts, or max_tokens is below 1.
        """
        check_count("max_tokens", max_tokens)
        listed = as_list("texts", texts, str)
        return self.client.ask_all(
            [summarise_question(text, question, max_tokens) for text in listed]
        )


class _LoopThread(threading.Thread):
    """An event loop in a thread of its own, for callers in other threads.

    With it a call can be given up for good when its time is over, whatever the server does, and the
    caller may be a notebook, which has a running loop already.
    """

    def __init__(self) -> None:
        super().__init__(name="oracle", daemon=True)
        self._loop = asyncio.new_event_loop()
        self.start()

    def run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Starts a coroutine; whoever gives its result up cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self, last: Coroutine[Any, Any, object]) -> None:
        """Ends what is still running, runs `last`, and ends the thread."""
        self.submit(self._end(last))
        # The garbage collector may call from the thread itself, which cannot wait for itself.
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
            f"base_url: expected an address, got {url!r:.120}; such as http://127.0.0.1:8080/v1"
        )
    return url


def _checked_key(key: str) -> str:
    """The key without the line end of the file it was read from; no message ever shows it."""
    if not isinstance(key, str) or not (key.isascii() and key.strip().isprintable()):
        raise InputError("api_key: expected ASCII text, got something else; copy it anew")
    return key.strip()


def _checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(options, allow_nan=False)
        return dict(options)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"options: expected fields of a request, got {options!r:.120} ({error}); "
            "give a dict that JSON can hold"
        ) from error
