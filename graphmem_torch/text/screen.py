"""ConflictScreen: which of many pairs of texts the local judge may call a contradiction.

Of most pairs that share a name or a word it has nothing to say. What a verdict needs at least is
kept of each text as numbers, so that of a million pairs those few are found for which it holds;
only these are judged one by one. `docs/mathematics.md` 5.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.coo import isin
from graphmem_torch.ops.growing import GrowingLists, GrowingRows
from graphmem_torch.text.entailment import opposites, read_text

__all__ = ["ConflictScreen"]

_WIDTH = 62  # bits of a column; with 64 a shift would meet the sign
_WIDE = 3  # columns of a wide set of bits
# Columns of a text: words that have opposites, the opposites of its words, names and content words.
_POLAR, _AGAINST, _NAMES, _WORDS = (slice(_WIDE * i, _WIDE * (i + 1)) for i in range(4))
_UNITS, _SUBJECTS, _SAYS, _MEETS, _SIZE, _FLAGS = range(4 * _WIDE, 4 * _WIDE + 6)
_COLUMNS = _FLAGS + 1
_READ, _AFFIRMS, _DENIES, _ODD, _NAMED, _STATES = (1 << i for i in range(6))  # flags


class ConflictScreen:
    """What texts show, by numbers that are given to them; about 400 bytes a text.

    What is passed over is no contradiction to `LexicalJudge`; what is not may still be none. Sets
    of words are kept as hashes: two words with one hash pass a pair more, never one less.
    """

    def __init__(self) -> None:
        """Knows no text."""
        self._marks = GrowingRows(torch.empty(0, _COLUMNS, dtype=torch.int64))
        self._stems, self._says, self._meets = (
            GrowingLists({"hash": torch.int32}) for _ in range(3)
        )

    def add(self, numbers: Sequence[int], texts: Sequence[str], *, stop: int) -> None:
        """Takes in texts.

        Args:
            numbers: Of the texts, ascending.
            texts: As they are judged.
            stop: Number below which all are known; one without a text is passed over.
        """
        old = len(self._marks)
        marks = self._marks.extend(stop - old)
        marks[old:] = 0
        rows: tuple[list[list[int]], ...] = [], [], []
        for number, text in zip(numbers, texts, strict=True):
            sets, marks[number] = _shown(text)
            for kept, hashes in zip(rows, sets, strict=True):
                kept.append(hashes)
        for lists, kept in zip((self._stems, self._says, self._meets), rows, strict=True):
            lists.resize(stop)
            of = np.repeat(np.asarray(numbers, np.int64), [len(hashes) for hashes in kept])
            every = [each for hashes in kept for each in hashes]
            lists.append(of, {"hash": np.asarray(every, np.int32)})

    def known(self, numbers: Tensor) -> Tensor:  # [n] -> [n] bool
        """Whether these have texts."""
        return (self._marks.view[numbers, _FLAGS] & _READ) != 0

    def by_state(self, pairs: Tensor) -> Tensor:  # [2, P] -> [P] bool
        """Pairs whose states (`text.slots`) may be at odds."""
        one, other = self._marks.view[pairs]
        found = torch.zeros(pairs.shape[1], dtype=torch.bool)
        for a, b, way in ((one, other, pairs), (other, one, pairs.flip(0))):
            open_ = (((a[:, _SAYS] & b[:, _MEETS]) != 0) & ~found).nonzero().squeeze(1)
            common = _in_common(self._says, self._meets, way[:, open_])
            found[open_[common > 0]] = True
        return found

    def by_words(self, pairs: Tensor) -> Tensor:  # [2, P] -> [P] bool
        """Pairs whose words may be at odds: half of those of one are in both, and they differ.

        In a denial, in a word that has an opposite in the other, or in what they count; and neither
        is about somebody of whom the other does not speak. It is a contradiction only of texts
        whose vectors are near, too.
        """
        one, other = self._marks.view[pairs]
        odd = (one[:, _UNITS] & other[:, _UNITS]) != 0
        for a, b in ((one, other), (other, one)):
            opposed = a[:, _AGAINST] & b[:, _POLAR] & ~a[:, _POLAR]
            wanted = torch.where((b[:, _FLAGS] & _ODD) != 0, _AFFIRMS, _DENIES)
            odd |= (opposed != 0).any(1) | ((a[:, _FLAGS] & wanted) != 0)
        size = torch.minimum(one[:, _SIZE], other[:, _SIZE])
        open_ = (odd & (size > 0) & _acquainted(one, other)).nonzero().squeeze(1)
        common = _in_common(self._stems, self._stems, pairs[:, open_])
        found = torch.zeros(pairs.shape[1], dtype=torch.bool)
        found[open_[2 * common >= size[open_]]] = True
        return found


def _acquainted(one: Tensor, other: Tensor) -> Tensor:  # [P, C], [P, C] -> [P] bool
    """Pairs of columns that may not be of strangers (`slots.at_odds`)."""
    flags = one[:, _FLAGS] & other[:, _FLAGS]
    ways = ((one, other), (other, one))
    within = [(a[:, _NAMES] & ~b[:, _WORDS] == 0).all(1) for a, b in ways]
    by_name = ((flags & _NAMED) == 0) | within[0] | within[1]
    by_subject = (one[:, _SUBJECTS] & other[:, _SUBJECTS]) != 0
    return torch.where((flags & _STATES) != 0, by_subject, by_name)


def _in_common(one: GrowingLists, other: GrowingLists, pairs: Tensor) -> Tensor:  # [2, P] -> [P]
    """How many entries of a list of `one` are in the list of `other` that it is paired with."""
    keys = []
    for lists, rows in ((one, pairs[0]), (other, pairs[1])):
        place, entry = lists.entries(rows.numpy())
        keys.append(torch.from_numpy((place << 32) + lists.columns["hash"][entry]))
    kept = keys[0][isin(*keys)] >> 32
    return torch.bincount(kept, minlength=pairs.shape[1])


def _shown(text: str) -> tuple[tuple[list[int], ...], list[int]]:
    """The hashes of the three lists of a text, and its columns."""
    read = read_text(text)
    if read is None:
        return ([], [], []), [0] * _FLAGS + [_READ]
    claim, reading = read
    sides = reading.sides()
    sets = _hashes(claim.stems), _hashes(sides.says), _hashes(sides.meets)
    units = _hashes(unit for each in claim.sentences for unit in each.numbers)
    table = _numbered_opposites()
    words = {word for each in claim.sentences for word in each.words if word in table}
    wide = (
        [table[word][0] for word in words],
        [place for word in words for place in table[word][1]],
        _hashes(reading.names),
        _hashes(reading.words),
    )
    narrow = units, _hashes(sides.subjects), *sets[1:]
    denying = [each.negated for each in claim.sentences]
    flags = (
        _READ
        | _AFFIRMS * (not all(denying))
        | _DENIES * any(denying)
        | _ODD * (sum(denying) % 2)
        | _NAMED * bool(reading.names)
        | _STATES * bool(reading.states)
    )
    columns = [column for places in wide for column in _bits(places, _WIDE)]
    columns += [column for places in narrow for column in _bits(places, 1)]
    return sets, [*columns, len(claim.stems), flags]


def _hashes(tokens: Iterable[str]) -> list[int]:
    return [hash(token) & 0x7FFFFFFF for token in tokens]


def _bits(places: Iterable[int], width: int) -> list[int]:
    """Places, modulo what there is room for, as bits of so many columns."""
    columns = [0] * width
    for place in places:
        column, bit = divmod(place % (width * _WIDTH), _WIDTH)
        columns[column] |= 1 << bit
    return columns


@cache  # on first use: the stemmer is not loaded at import
def _numbered_opposites() -> Mapping[str, tuple[int, tuple[int, ...]]]:
    """The number of each word that has opposites, and the numbers of these."""
    table = opposites()
    number = {word: place for place, word in enumerate(table)}
    return {word: (number[word], tuple(number[o] for o in table[word])) for word in table}
