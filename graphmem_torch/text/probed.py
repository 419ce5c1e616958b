"""Encoders outside this package: a function, or a server of OpenAI's embeddings.

Their vectors are known by those of three short texts, which are part of the fingerprint.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import inspect
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.errors import EmbedderError
from graphmem_torch.oracle import OpenAIClient
from graphmem_torch.text.embedder import PooledEmbedder, checked_rows, require_finite
from graphmem_torch.text.models import AUTO, family_prompts

__all__ = ["ProbedEmbedder", "ServerEmbedder", "function_embedder", "server_embedder"]

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


class ServerEmbedder(ProbedEmbedder):
    """Embedder of a server with OpenAI's embeddings; `load_embedder` makes one of ADDRESS#MODEL."""

    def __init__(
        self,
        client: OpenAIClient,
        *,
        query_prompt: str = AUTO,
        document_prompt: str = AUTO,
        batch: int = 64,
    ) -> None:
        """Encode the probe texts.

        Args:
            client: Client of the server, with the name of the model; its `options` are fields of
                each request, such as {"dimensions": 256}.
            query_prompt: Text before a question; `auto` is that of the model's family (E5, BGE,
                Nomic) by its name, else none.
            document_prompt: Text before a document; `auto` as above.
            batch: Maximum number of texts of one request.

        Raises:
            EmbedderError: The server is down, or gives no vectors.
        """
        own = family_prompts(client.model)
        question, document = (
            mine if given == AUTO else given
            for given, mine in zip((query_prompt, document_prompt), own, strict=True)
        )
        super().__init__(
            "server",
            client.model,
            lambda texts: client.embed(texts, batch=batch),
            label=f"{client.base_url or 'OpenAI'}#{client.model}",
            query_prompt=question,
            document_prompt=document,
            batch=batch * client.concurrency,
        )
        self.client = client


def server_embedder(
    spec: str, query_prompt: str = AUTO, document_prompt: str = AUTO, *, from_store: bool = False
) -> ServerEmbedder:
    """Return the embedder of a server, "http://localhost:8000/v1#MODEL".

    The key is OPENAI_API_KEY. An address that only a store names may be anybody's; the key is sent
    to it only if it is OpenAI's own or that of OPENAI_BASE_URL.

    Args:
        spec: Address and name of the model.
        query_prompt: Text before a question, see `ServerEmbedder`.
        document_prompt: Text before a document, see `ServerEmbedder`.
        from_store: Whether only a store names the server.

    Raises:
        EmbedderError: Not such an address; the server is down, or gives no vectors.
    """
    address, _, model = spec.partition("#")
    try:
        parts = urlsplit(address)
        usable = bool(parts.hostname and model and parts.port != 0)
    except ValueError:
        parts, usable = None, False
    if parts is not None and (parts.username or parts.password or parts.query):
        raise EmbedderError(
            "embedder: expected an address without a key, as the store keeps it, got one with a "
            "user or a query; set OPENAI_API_KEY"
        )
    if not usable or parts is None:
        raise EmbedderError(
            f"embedder: expected the address of a server and a model, got {spec!r:.120}; write "
            '"http://localhost:8000/v1#MODEL"'
        )
    base = os.environ.get("OPENAI_BASE_URL", "").rstrip("/")
    own = (parts.scheme, parts.netloc) == ("https", "api.openai.com")
    withheld = from_store and not own and address.rstrip("/") != base
    try:
        # "none" is also what a client without a key sends.
        client = OpenAIClient(
            model, base_url=address, api_key="none" if withheld else None, cache=False
        )
        return ServerEmbedder(client, query_prompt=query_prompt, document_prompt=document_prompt)
    except EmbedderError as error:
        unsent = withheld and os.environ.get("OPENAI_API_KEY") and "HTTP 401" in str(error)
        if not unsent:
            raise
        raise EmbedderError(
            f"{error}; OPENAI_API_KEY is not sent to an address that only the store names: give "
            "the embedder by name, or set OPENAI_BASE_URL to its address"
        ) from error


def function_embedder(
    function: Callable[[list[str]], Any], query_prompt: str = AUTO, document_prompt: str = AUTO
) -> ProbedEmbedder:
    """Return the embedder of a function from a list of texts to an array of vectors [n, d].

    Args:
        function: Function, or callable object; known by its attribute `name`, else `__name__`.
        query_prompt: Text before a question; `auto` is none.
        document_prompt: Text before a document; `auto` is none.

    Raises:
        EmbedderError: A function without a name, or that gives something else than vectors.
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
    return ProbedEmbedder(
        "function", name, function, query_prompt=question, document_prompt=document
    )


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
