"""Names for groups of texts: the words that set each group apart from the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from graphmem_torch.text.words import GENERIC

__all__ = ["characteristic_words"]

_WORD = re.compile(r"[^\W\d_]{3,}")
_READ = 600  # characters of a text that are looked at
_COMMON = 20_000  # words that are counted


def characteristic_words(
    texts: Sequence[str],  # [N]
    label: Tensor,  # [N] integers in 0..K-1
    *,
    count: int = 4,
    ignore: Collection[str] = (),
) -> list[str]:  # [K]
    """Up to `count` words of each group, joined by commas; empty where there are none.

    Class-based TF-IDF (Grootendorst 2022, arXiv 2203.05794, eq. 2) against the other groups: the
    share of a group's texts that have the word, by the logarithm of how many times that is the
    share of the others' texts (of how rare it is, where there are no others). So a word that all
    use names none, and neither does a word of one text a group of several.

    Args:
        texts: Read up to their 600th character.
        label: Group of each text.
        count: Words of a name.
        ignore: Lower-cased words that name nothing, such as those of speakers.
    """
    found = [set(_words(text[:_READ])).difference(ignore) for text in texts]
    total = Counter(word for words in found for word in words)
    column = {word: i for i, (word, _) in enumerate(total.most_common(_COMMON))}
    pairs = [
        (g, column[w])
        for g, words in zip(label.tolist(), found, strict=True)
        for w in words
        if w in column
    ]
    groups = int(label.max()) + 1 if len(label) else 0
    names = list(column)
    if not names:
        return [""] * groups
    group, word = torch.tensor(pairs).T
    key, seen = torch.unique(group * len(names) + word, return_counts=True)
    size = torch.bincount(label, minlength=groups).double()
    owner, column_of = key // len(names), key % len(names)
    everywhere = torch.tensor([total[name] for name in names], dtype=torch.float64)
    share, everywhere, own = seen / size[owner], everywhere[column_of], size[owner]
    # Smoothed by one text that has the word as often as any.
    elsewhere = (everywhere - seen + everywhere / len(texts)) / (len(texts) - own + 1)
    alone = own == len(texts)
    telling = torch.where(alone, torch.log1p(own / everywhere), (share / elsewhere).log())
    score = torch.where((seen < 2) & (own > 3), -1.0, share * telling)
    order = torch.argsort(score, descending=True, stable=True)
    order = order[torch.argsort(owner[order], stable=True)]
    order = order[score[order] > 0]
    chosen: list[list[str]] = [[] for _ in range(groups)]
    first = torch.nn.functional.pad(
        torch.bincount(owner[order], minlength=groups).cumsum(0), (1, 0)
    )
    rank = torch.arange(len(order)) - first[owner[order]]
    best = order[rank < count]
    for g, w in zip(owner[best].tolist(), column_of[best].tolist(), strict=True):
        chosen[g].append(names[w])
    return [", ".join(words) for words in chosen]


def _words(text: str) -> list[str]:
    """Lower-cased words that may carry a topic."""
    return [word for word in _WORD.findall(text.lower()) if word not in GENERIC]
