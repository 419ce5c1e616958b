"""Extractive summaries: the sentences of a text that speak to a question, in their order."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import terms

__all__ = ["extract"]

_LEAD = 0.1  # of the first sentence, falling as 1 / place: what a text begins with says its subject
_GAP = "… "
_WORD = re.compile(r"\S+")


def extract(
    texts: Sequence[str],
    question: str,
    max_tokens: Sequence[int] | int,
    *,
    count: Callable[[str], int],
) -> list[str]:
    """The sentences of each text that fit, those first that share rare words with the question.

    value_s = sum idf(w) over the question's words in the sentence / sum idf(w) over the question's
    words + 0.1 / place, idf over the sentences of all the texts. On the gold passages of MuSiQue
    and 2Wiki this keeps the answer as often as the encoder's cosine does, which costs a forward
    pass a sentence, and more often than the first sentences alone. Always the same for the same
    texts; needs no model.

    Args:
        texts: n texts; their words say which are rare.
        question: Without words of its own, the first sentences.
        max_tokens: Of each text, or of every one. A text that is within it stays as it is; of one
            without a sentence that fits, its first words.
        count: Counts the tokens of a text.
    """
    limits = [max_tokens] * len(texts) if isinstance(max_tokens, int) else list(max_tokens)
    parts = [split_sentences(text) for text in texts]
    words = [[frozenset(terms(part)) for part in each] for each in parts]
    wanted = frozenset(terms(question))
    total = sum(map(len, words))
    found = Counter(word for each in words for said in each for word in said & wanted)
    idf = {w: math.log1p((total - found[w] + 0.5) / (found[w] + 0.5)) for w in sorted(wanted)}
    scale = sum(idf.values()) or 1.0
    return [
        text
        if count(text) <= limit
        else _fitting(
            each,
            [
                sum(idf[w] for w in sorted(said & wanted)) / scale + _LEAD / place
                for place, said in enumerate(own, 1)
            ],
            limit,
            count,
        )
        for text, each, own, limit in zip(texts, parts, words, limits, strict=True)
    ]


def _fitting(
    parts: Sequence[str], values: Sequence[float], limit: int, count: Callable[[str], int]
) -> str:
    """The best sentences that fit together, by falling value; what does not fit is passed over."""
    chosen: list[int] = []
    left = limit
    for place in sorted(range(len(parts)), key=lambda i: (-values[i], i)):
        if (cost := count(parts[place])) <= left:
            chosen.append(place)
            left -= cost
    # Marks of gaps, and seams where tokens merge, are seen only in the whole.
    while chosen and count(_joined(parts, sorted(chosen))) > limit:
        chosen.pop()
    if chosen:
        return _joined(parts, sorted(chosen))
    best = parts[max(range(len(parts)), key=lambda i: (values[i], -i))]
    return _head(best.strip(), limit, count)


def _joined(parts: Sequence[str], chosen: Sequence[int]) -> str:
    """Sentences as one text, with a mark where some are left out between them."""
    pieces = []
    for before, place in zip([None, *chosen], chosen, strict=False):
        gap = before is not None and place > before + 1
        pieces.append((_GAP if gap else "") + parts[place].rstrip() + " ")
    return "".join(pieces).rstrip()


def _head(text: str, limit: int, count: Callable[[str], int]) -> str:
    """As many of the first words as fit; at least one, be it longer."""
    ends = [match.end() for match in _WORD.finditer(text)] or [len(text)]
    fitting = bisect_right(ends, limit, lo=1, key=lambda end: count(text[:end]))
    return text[: ends[fitting - 1]]
