"""Shortening: what is written of memories, where a function says it shorter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

__all__ = ["Shorten", "shortened"]

_log = logging.getLogger(__name__)

Shorten = Callable[[str, Sequence[str]], Sequence[str]]
"""From a question and the texts of memories to what is written of each."""


def shortened(shorten: Shorten, question: str, texts: Sequence[str]) -> list[str]:
    """What a function makes of texts; a text that it makes nothing of stays as it is.

    A function that fails, or gives something else than a text for each text, is told of in a
    warning, and costs nothing but brevity.
    """
    try:
        made = list(shorten(question, texts))
    except Exception as error:  # whatever a caller's function raises
        _log.warning("shortening failed (%r); the memories are written in full", error)
        return list(texts)
    if len(made) != len(texts):
        _log.warning(
            "shortening gave %d texts for %d; the memories are written in full",
            len(made),
            len(texts),
        )
        return list(texts)
    usable = [isinstance(text, str) and bool(text.strip()) for text in made]
    if not all(usable):
        _log.warning("shortening gave no text for %d of %d", usable.count(False), len(usable))
    return [new if good else old for new, old, good in zip(made, texts, usable, strict=True)]
