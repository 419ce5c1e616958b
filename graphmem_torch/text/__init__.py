"""Text in, numbers out: reading, chunking, terms, concepts, encoders, token counts.

Importing it loads no text model and none of the libraries that run them.
"""

from __future__ import annotations

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
