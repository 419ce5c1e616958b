"""Ask an embeddings server: requests of many texts, and vectors in the order of the texts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphmem_torch.errors import OracleError, first_line
from graphmem_torch.oracle.attempts import Attempts, RequestGroup, UselessAnswerError

__all__ = ["EmbeddingSession"]

_SHORTEST = 64  # characters of a text that is not cut any more


class _TooLargeError(OracleError):
    """Request that the server refuses, perhaps as too large."""


class EmbeddingSession:
    """Asker of one embeddings server; all methods run in one event loop.

    Vectors are asked for in base64, a quarter of the size of numbers in JSON, from a server that
    does not refuse it.

    Args:
        api: `AsyncOpenAI` with its own retries disabled.
        model: Name of the model on the server.
        options: Further fields of each request; None removes one.
        attempts: Attempts at the server.
        concurrency: Maximum simultaneous requests.
    """

    def __init__(
        self,
        api: Any,
        model: str,
        options: Mapping[str, Any],
        *,
        attempts: Attempts,
        concurrency: int,
    ) -> None:
        self._api, self._model, self._options = api, model, options
        self._attempts = attempts
        self._free = asyncio.Semaphore(concurrency)
        self._format = "base64"
        self._answered = False  # whether the format is known to be accepted

    async def embed_all(self, texts: Sequence[str], size: int) -> np.ndarray:  # [n, d] float32
        """Return the vectors of texts; see `OpenAIClient.embed`.

        Args:
            texts: Texts.
            size: Maximum number of texts of a request.

        Raises:
            OracleError: No usable vectors after all attempts.
        """
        # Servers refuse an empty text, and no encoding has lone surrogates.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        asked = [i for i, text in enumerate(clean) if text.strip()]
        parts = [asked[start : start + size] for start in range(0, len(asked), size)]
        batch = RequestGroup()
        found = await asyncio.gather(
            *(self._embed([clean[i] for i in part], batch) for part in parts),
            return_exceptions=True,
        )
        lost = [each for each in found if isinstance(each, BaseException)]
        if lost:
            raise lost[0]
        rows = self._joined([each for each in found if isinstance(each, np.ndarray)])
        vectors = np.zeros((len(texts), rows.shape[1]), dtype=np.float32)
        vectors[asked] = rows
        return vectors

    async def _embed(self, texts: Sequence[str], batch: RequestGroup) -> np.ndarray:
        """Return the vectors of the texts of one request, in parts if it is too large."""
        try:
            async with self._free:
                return await self._attempts.run(lambda: self._send(texts), batch, self._adapt)
        except _TooLargeError as error:
            halves = _halves(texts)
            if halves is None:
                self._attempts.count(failures=1)
                raise OracleError(str(error)) from error
        except OracleError:
            self._attempts.count(failures=len(texts))
            raise
        # One after the other, so that a server that refuses everything is asked few times.
        rows = self._joined([await self._embed(half, batch) for half in halves])
        if len(texts) > 1:
            return rows
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        weight = np.array([[len(half)] for (half,) in halves], dtype=np.float32)
        return (weight * rows / np.maximum(length, 1e-12)).sum(0, keepdims=True)

    def _joined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise OracleError(
                f"{self._model} at {self._api.base_url} gave vectors of {widths} values; the model "
                "of the server has changed: ask again"
            )
        return np.concatenate(parts) if parts else np.zeros((0, 0), dtype=np.float32)

    async def _send(self, texts: Sequence[str]) -> np.ndarray:
        options = {name: value for name, value in self._options.items() if value is not None}
        form = self._format
        try:
            response = await self._api.embeddings.create(
                model=self._model, input=list(texts), encoding_format=form, extra_body=options
            )
        except Exception as error:
            if _is_too_large(error, self._answered or form == "float"):
                raise _TooLargeError(
                    f"{self._model} at {self._api.base_url} refused a text of "
                    f"{max(map(len, texts))} characters: {first_line(error)}"
                ) from error
            raise
        vectors = _vectors(getattr(response, "data", None), len(texts))
        self._answered = True
        told = getattr(getattr(response, "usage", None), "prompt_tokens", None)
        self._attempts.count(prompt_tokens=told if isinstance(told, int) else 0)
        return vectors

    def _adapt(self, _: Exception) -> bool:
        """Ask for plain numbers, because some servers refuse base64."""
        if self._answered or self._format == "float":
            return False
        self._format = "float"
        return True


def _is_too_large(error: Exception, plain: bool) -> bool:
    """Return whether a smaller request may fare better; `plain`: its form is not the reason."""
    status = getattr(error, "status_code", None)
    if status == 500:
        return "too large" in str(error)  # llama.cpp
    return status == 413 or (plain and status in (400, 422))


def _halves(texts: Sequence[str]) -> list[list[str]] | None:
    """Return the two halves of a list of texts, or of its only text; None if it is too short."""
    if len(texts) > 1:
        middle = len(texts) // 2
        return [[*texts[:middle]], [*texts[middle:]]]
    (text,) = texts
    if len(text) < 2 * _SHORTEST:
        return None
    middle = text.rfind(" ", len(text) // 4, len(text) // 2) + 1 or len(text) // 2
    return [[half] for half in (text[:middle], text[middle:]) if half.strip()]


def _vectors(data: Any, count: int) -> np.ndarray:  # [count, d]
    """Return the vectors of a response in the order of `index`.

    Raises:
        ValueError: No response of an embeddings server.
        UselessAnswerError: Vectors that are missing, or not one for each text.
    """
    if not isinstance(data, list):
        raise ValueError("no embeddings")
    if len(data) != count:
        raise UselessAnswerError(f"{len(data)} vectors for {count} texts")
    places: list[Any] = [getattr(each, "index", None) for each in data]
    if places == [None] * count:
        places = [*range(count)]
    if sorted(places, key=str) != sorted(range(count), key=str):
        raise UselessAnswerError(f"vectors whose `index` is not each of 0 to {count - 1} once")
    try:
        rows = [_decoded(getattr(each, "embedding", None)) for each in data]
        given = np.stack(rows)
    except (TypeError, ValueError) as error:
        raise UselessAnswerError(f"no list of vectors of one width ({first_line(error)})") from None
    if given.ndim != 2 or not given.shape[1]:
        raise UselessAnswerError(f"vectors of the shape {list(given.shape[1:])}")
    ordered = np.empty_like(given)
    ordered[[int(place) for place in places]] = given
    return ordered


def _decoded(value: Any) -> np.ndarray:
    if isinstance(value, str):
        return np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
    return np.asarray(value, dtype=np.float32)
