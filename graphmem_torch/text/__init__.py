"""Text in, numbers out: tokens, terms, sentences, chunks, concepts, questions, times, encoders.

May import `linalg`, `oracle` (for verdicts) and what lies below them. Names are imported when they
are first used: reading a time needs none of what the encoders need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmem_torch.text.concepts import (
        ConceptExtractor,
        PatternConcepts,
        SpacyConcepts,
        load_concepts,
    )
    from graphmem_torch.text.embedder import Embedder, Encoded, HashingEmbedder, encode_checked
    from graphmem_torch.text.sentence_transformer import SentenceTransformerEmbedder, load_embedder
    from graphmem_torch.text.sentences import chunk_text
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

# A name is looked for in these, the lightest to import first.
_MODULES = (
    "times",
    "tokens",
    "sentences",
    "terms",
    "concepts",
    "embedder",
    "sentence_transformer",
)


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        found = import_module(f"{__name__}.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
