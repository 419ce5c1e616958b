"""Encoders from outside, known by their vectors of three short texts; functions as encoders."""

from __future__ import annotations

import base64
import copy
import hashlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.errors import EmbedderError
from graphmem_torch.text.embedder import PooledEmbedder, checked_rows, require_finite
from graphmem_torch.text.models import AUTO

__all__ = ["ProbedEmbedder", "function_embedder"]

_PROBES = (
    "The train to the coast leaves at nine.",
    "Nora has been allergic to peanuts since she was a child.",
    "How much does the blue bicycle cost?",
)
_SKETCH = 64  # numbers of a sketch
_SAME = 0.99
"""Minimum cosine of two sketches of one model: rounding and other machines keep above 0.999."""


class ProbedEmbedder(PooledEmbedder):
    """Embedder whose fingerprint is its name, width and prompts, and a sketch of probe vectors.

    The sketch is a random-sign projection of the vectors of three texts to 64 bytes. The same model
    computes slightly different vectors on another machine, so `like` compares sketches by cosine.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        encode: Callable[[list[str]], Any],
        *,
        label: str = "",
        query_prompt: str = "",
        document_prompt: str = "",
        queries: Callable[[list[str]], Any] | None = None,
        batch: int = 256,
    ) -> None:
        """Encode the probe texts.

        Args:
            kind: First word of the fingerprint.
            name: Name of the model or function in the fingerprint.
            encode: Function from texts to vectors [n, d].
            label: Display name; `name` by default.
            query_prompt: Text before a question.
            document_prompt: Text before a document.
            queries: Function for questions that need more than a prompt.
            batch: Number of texts a call.

        Raises:
            EmbedderError: The function fails, or gives something else than vectors.
        """
        shown = label or name
        probe = checked_rows(_prompted(encode, document_prompt), [*_PROBES], shown)
        require_finite(probe, _PROBES, shown)
        dim, said = probe.shape[1], f"{len(query_prompt)}:{query_prompt}{document_prompt}"
        prompts = hashlib.sha256(said.encode()).hexdigest()[:16] if len(said) > 2 else ""
        super().__init__(
            shown,
            f"{kind}:{name}:{dim}:{prompts}:{_sketch(probe)}",
            dim,
            _prompted(encode, document_prompt),
            _prompted(encode, query_prompt) if query_prompt != document_prompt else queries,
            batch=batch,
        )

    def like(self, fingerprint: str | None) -> ProbedEmbedder:
        """Return this embedder, with the given fingerprint if that is of the same model."""
        own, _, sketch = self.fingerprint.rpartition(":")
        other, _, kept = (fingerprint or "").rpartition(":")
        if own != other or _cosine(sketch, kept) < _SAME:
            return self
        found = copy.copy(self)
        found.fingerprint = f"{other}:{kept}"
        return found


def function_embedder(
    function: Callable[[list[str]], Any], query_prompt: str = AUTO, document_prompt: str = AUTO
) -> ProbedEmbedder:
    """Return the embedder of a function from a list of texts to an array of vectors [n, d].

    Args:
        function: Function, or callable object; known by its attribute `name`, else `__name__`.
        query_prompt: Text before a question; `auto` is none.
        document_prompt: Text before a document; `auto` is none.

    Raises:
        EmbedderError: A function without a name, that gives something else than vectors, or other
            vectors at a second call.
    """
    name = getattr(function, "name", None) or getattr(function, "__name__", None)
    if not isinstance(name, str) or not name or name == "<lambda>":
        raise EmbedderError(
            f"embedder: expected a function with a name, got {function!r:.80}; use `def`, or set "
            "its attribute `name`"
        )
    called = getattr(function, "__call__", None)  # noqa: B004 - may itself be async
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        raise EmbedderError(
            f"embedder {name!r}: expected a function that returns an array, got an async one; wrap "
            "it in one that waits for the result"
        )
    question, document = (
        "" if given == AUTO else given for given in (query_prompt, document_prompt)
    )
    make = partial(
        ProbedEmbedder,
        "function",
        name,
        function,
        query_prompt=question,
        document_prompt=document,
    )
    made = make()
    # A store that one with dropout fills could never be opened again.
    if make().like(made.fingerprint).fingerprint != made.fingerprint:
        raise EmbedderError(
            f"embedder {name!r}: expected the same vectors for the same texts, got others at a "
            "second call; switch off dropout (`model.eval()`) and sampling"
        )
    return made


def _prompted(encode: Callable[[list[str]], Any], prompt: str) -> Callable[[list[str]], Any]:
    return (lambda texts: encode([prompt + text for text in texts])) if prompt else encode


def _sketch(vectors: Tensor) -> str:  # [3, d]
    """Return a projection of vectors to 64 bytes, in base64."""
    flat = torch.nn.functional.normalize(vectors, dim=1).flatten().numpy()
    bits = np.frombuffer(
        hashlib.shake_128(b"probe").digest(len(flat) * _SKETCH // 8), dtype=np.uint8
    )
    signs = np.unpackbits(bits).reshape(len(flat), _SKETCH).astype(np.float32) * 2 - 1
    found = flat @ signs
    whole = np.round(127 * found / max(float(np.abs(found).max()), 1e-12)).astype(np.int8)
    return base64.urlsafe_b64encode(whole.tobytes()).decode()


def _cosine(one: str, other: str) -> float:
    """Return the cosine of two sketches; 0 if one is none."""
    try:
        rows = [
            np.frombuffer(base64.urlsafe_b64decode(each), dtype=np.int8).astype(np.float64)
            for each in (one, other)
        ]
    except ValueError:
        return 0.0
    length = float(np.linalg.norm(rows[0]) * np.linalg.norm(rows[1]))
    return float(rows[0] @ rows[1]) / length if length and len(rows[0]) == len(rows[1]) else 0.0
