"""Findings in texts that storing them needs: what the worker processes of indexing make.

Loads no torch, so that a worker starts quickly and stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphmem_torch.text.concepts import (
    ConceptExtractor,
    PatternConcepts,
    SpacyConcepts,
    load_concepts,
)

__all__ = ["Finder", "TextFindings", "finder_spec"]


@dataclass(frozen=True, slots=True)
class TextFindings:
    """Findings of one text.

    Attributes:
        names: Names of its concepts, as `ConceptExtractor.extract` returns them.
    """

    names: list[str]


class Finder:
    """Makes the findings of texts."""

    def __init__(self, spec: str) -> None:
        """Load the extractor of concepts that `finder_spec` names."""
        self._concepts = load_concepts(spec)

    def find(self, texts: Sequence[str]) -> list[TextFindings]:
        """Return the findings of each text."""
        return [TextFindings(names) for names in self._concepts.extract(texts)]


def finder_spec(extractor: ConceptExtractor | None) -> str | None:
    """Return the name by which a worker loads an extractor; None if it cannot.

    An extractor of the caller stays in the caller's process.
    """
    if type(extractor) is PatternConcepts:
        return "pattern"
    if type(extractor) is SpacyConcepts:
        return f"spacy:{extractor.pipeline}"
    return None
