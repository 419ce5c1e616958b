"""Text in, numbers out: tokens, terms, sentences, chunks, concepts, questions, times, encoders.

May import `linalg`, `oracle` (for verdicts) and what lies below them. Names are imported when they
are first used: reading a time needs none of what the encoders need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmem_torch.text.chunk import chunk_text
    from graphmem_torch.text.concepts import (
        ConceptExtractor,
        PatternConcepts,
        SpacyConcepts,
        load_concepts,
    )
    from graphmem_torch.text.embedder import Embedder, Encoded, encode_checked
    from graphmem_torch.text.embedders import HashingEmbedder, load_embedder
    from graphmem_torch.text.sentence_transformer import SentenceTransformerEmbedder
    from graphmem_torch.text.terms import STOP_WORDS, Vocabulary
    from graphmem_torch.text.times import parse_time
    from graphmem_torch.text.tokens import count_tokens, get_counter

# The function `terms` is left to its module: here it would hide the module of the same name.
__all__ = [
    "STOP_WORDS",
    "ConceptExtractor",
    "Embedder",
    "Encoded",
    "HashingEmbedder",
    "PatternConcepts",
    "SentenceTransformerEmbedder",
    "SpacyConcepts",
    "Vocabulary",
    "chunk_text",
    "count_tokens",
    "encode_checked",
    "get_counter",
    "load_concepts",
    "load_embedder",
    "parse_time",
]

_MODULE = {
    "STOP_WORDS": "terms",
    "ConceptExtractor": "concepts",
    "Embedder": "embedder",
    "Encoded": "embedder",
    "HashingEmbedder": "embedders",
    "PatternConcepts": "concepts",
    "SentenceTransformerEmbedder": "sentence_transformer",
    "SpacyConcepts": "concepts",
    "Vocabulary": "terms",
    "chunk_text": "chunk",
    "count_tokens": "tokens",
    "encode_checked": "embedder",
    "get_counter": "tokens",
    "load_concepts": "concepts",
    "load_embedder": "embedders",
    "parse_time": "times",
}
"""Where each public name lives."""


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
