"""Titles: the heading line with which a document begins."""

from __future__ import annotations

import re

from graphmem_torch.text.terms import terms

__all__ = ["title_terms"]

_WORDS = 12
_CLOSED = (".", "!", "?", ",", ";", ":")  # how sentences and clauses end
# What tells namesakes apart, as encyclopaedias write it: "Titanic (1997 film)".
_DISTINCTION = re.compile(r"\s*\([^()]*\)$")


def title_terms(text: str) -> int:
    """How many terms of a text (`text.terms`) its title has, from the first one on.

    A title is a first line of at most 12 words that does not end like a sentence, with text below
    it. What stands in brackets at its end does not count.

    Returns:
        -1 where there is no title; 0 where it has stop words only.
    """
    head, _, body = text.partition("\n")
    head = head.strip()
    if not head or head.endswith(_CLOSED) or len(head.split()) > _WORDS or not body.strip():
        return -1
    return len(terms(_DISTINCTION.sub("", head)))
