"""Encoders of LangChain, which LangGraph uses too, as embedders of a memory, and the reverse."""

from __future__ import annotations

from typing import Any

import torch

from graphmem_torch.integrations.framework import importing
from graphmem_torch.text.embedder import Embedder, encode_checked
from graphmem_torch.text.probed import ProbedEmbedder

with importing("langchain_core", "langchain-core", ">=1.8,<2", "langchain"):
    from langchain_core.embeddings import Embeddings

__all__ = ["MemoryEmbeddings", "as_embedder"]

_PROBE = "Where did Nora put the key?"
_NAMES = ("model", "model_name", "model_id", "deployment")
_SAME = 0.9999
"""Minimum cosine of a text as question and as document, for an encoder that reads both alike."""


def as_embedder(encoder: Any) -> Any:
    """Return the embedder of LangChain's `Embeddings`; other encoders are returned as they are.

    Its name is that of the class, and of the model if the object says it.

    Raises:
        EmbedderError: It fails, or gives something else than vectors.
    """
    if not isinstance(encoder, Embeddings):
        return encoder
    models = (getattr(encoder, name, None) for name in _NAMES)
    model = next((each for each in models if isinstance(each, str) and each), "")
    name = ":".join(filter(None, (type(encoder).__name__, model)))

    def queries(texts: list[str]) -> list[list[float]]:
        return [encoder.embed_query(text) for text in texts]

    plain = ProbedEmbedder("langchain", name, encoder.embed_documents)
    both = ProbedEmbedder("langchain", name, encoder.embed_documents, queries=queries)
    document, question = plain.encode([_PROBE]), both.encode_query([_PROBE])
    return plain if float(document.pooled[0] @ question.pooled[0]) >= _SAME else both


class MemoryEmbeddings(Embeddings):
    """The embedder of a memory as LangChain's `Embeddings`."""

    def __init__(self, embedder: Embedder) -> None:
        """Wrap an embedder."""
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts, as memories are encoded."""
        return encode_checked(self._embedder, texts).pooled.tolist()

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        pooled: torch.Tensor = encode_checked(self._embedder, [text], query=True).pooled
        return pooled[0].tolist()
