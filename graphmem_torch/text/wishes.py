"""Split a request into wishes, the parts that are searched for separately."""

from __future__ import annotations

import re

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.sentences import split_sentences

__all__ = ["wishes"]

_WORDS = 4  # minimum words of a separate part
# Splits after a comma with a joining word, after other marks, and at beginnings without a mark. The
# joining words are English; the marks split a sentence of any language.
_JOINED = lazy_pattern(
    r"(?<=[,;])\s+(?:and|but|or|so|also|then|plus|which|who|as)\s+"
    r"|(?<=[,;:])\s+"
    r"|\s+(?:and (?:also|then|i|we|can|find|help|how|what|is|if)|but i|so that|because)\s+",
    re.IGNORECASE,
)


def wishes(question: str) -> list[str]:
    """Return the sentences and clauses of a question if there are several; otherwise nothing.

    "How do I get to Porto, and what does a hotel cost there?" has two. A part of fewer than four
    words is joined to the part before it; the first one is joined to the next.
    """
    parts = [
        part for sentence in split_sentences(question) for part in _JOINED.split(sentence.strip())
    ]
    found: list[str] = []
    for part in parts:
        if found and (len(part.split()) < _WORDS or len(found[-1].split()) < _WORDS):
            found[-1] = f"{found[-1]} {part}"
        else:
            found.append(part)
    return found if len(found) > 1 else []
