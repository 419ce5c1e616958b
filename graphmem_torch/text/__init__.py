"""Text in, numbers out: reading, chunking, terms, concepts, encoders, token counts.

The names are imported when they are first used: reading a time or a file needs none of what the
encoders need.
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
    from graphmem_torch.text.embed import (
        Embedder,
        Encoded,
        HashingEmbedder,
        SentenceTransformerEmbedder,
        encode_checked,
        load_embedder,
    )
    from graphmem_torch.text.read import LocomoSample, document_atoms, read_atoms, read_locomo
    from graphmem_torch.text.records import atom_from_record
    from graphmem_torch.text.terms import Vocabulary
    from graphmem_torch.text.times import parse_time
    from graphmem_torch.text.tokens import count_tokens, get_counter
    from graphmem_torch.text.words import STOP_WORDS

# The function `terms` is left to its module: here it would hide the module of the same name.
__all__ = [
    "STOP_WORDS",
    "ConceptExtractor",
    "Embedder",
    "Encoded",
    "HashingEmbedder",
    "LocomoSample",
    "PatternConcepts",
    "SentenceTransformerEmbedder",
    "SpacyConcepts",
    "Vocabulary",
    "atom_from_record",
    "chunk_text",
    "count_tokens",
    "document_atoms",
    "encode_checked",
    "get_counter",
    "load_concepts",
    "load_embedder",
    "parse_time",
    "read_atoms",
    "read_locomo",
]

_MODULE = {
    "STOP_WORDS": "words",
    "ConceptExtractor": "concepts",
    "Embedder": "embed",
    "Encoded": "embed",
    "HashingEmbedder": "embed",
    "LocomoSample": "read",
    "PatternConcepts": "concepts",
    "SentenceTransformerEmbedder": "embed",
    "SpacyConcepts": "concepts",
    "Vocabulary": "terms",
    "atom_from_record": "records",
    "chunk_text": "chunk",
    "count_tokens": "tokens",
    "document_atoms": "read",
    "encode_checked": "embed",
    "get_counter": "tokens",
    "load_concepts": "concepts",
    "load_embedder": "embed",
    "parse_time": "times",
    "read_atoms": "read",
    "read_locomo": "read",
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
