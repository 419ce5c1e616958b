"""Wishes of a request: the parts that are asked of a memory each by itself."""

from __future__ import annotations

import re

from graphmem_torch.text.sentences import split_sentences

__all__ = ["wishes"]

_WORDS = 4  # of a part that stands by itself
# Behind a comma and what joins the next part to it, behind other marks, or where a part begins
# without a mark. The joining words are English; marks part a sentence of any language.
_JOINED = re.compile(
    r"(?<=[,;])\s+(?:and|but|or|so|also|then|plus|which|who|as)\s+"
    r"|(?<=[,;:])\s+"
    r"|\s+(?:and (?:also|then|i|we|can|find|help|how|what|is|if)|but i|so that|because)\s+",
    re.IGNORECASE,
)


def wishes(question: str) -> list[str]:
    """The sentences and clauses of a question, where there are several; else nothing.

    "How do I get to Porto, and what does a hotel cost there?" has two. What has fewer than four
    words stays with the part before it, or with the next one where it is the first.
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
