"""ConflictScreen: which of many pairs of texts the local judge may call a contradiction.

Of most pairs that share a name or a word it has nothing to say. What a verdict needs at least is
kept of each text as numbers, so that of a million pairs those few are found for which it holds;
only these are judged one by one. `docs/mathematics.md` 5.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.coo import isin
from graphmem_torch.ops.growing import GrowingLists, GrowingRows
from graphmem_torch.text.entailment import Claim, opposites, read_text

__all__ = ["ConflictScreen"]

_WIDTH = 62  # bits of a column; with 64 a shift would meet the sign
_WORDS = 3  # columns for the words that have opposites
_READ, _AFFIRMS, _DENIES, _ODD = 1, 2, 4, 8  # flags: the last, an odd number of denials
_UNITS, _SAYS, _MEETS, _SIZE, _FLAGS = range(2 * _WORDS, 2 * _WORDS + 5)  # columns behind words
_COLUMNS = _FLAGS + 1


class ConflictScreen:
    """What texts show, by numbers that are given to them; about 300 bytes a text.

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

        In a denial, in a word that has an opposite in the other, or in what they count. It is a
        contradiction only of texts that are about the same.
        """
        one, other = self._marks.view[pairs]
        odd = (one[:, _UNITS] & other[:, _UNITS]) != 0
        for a, b in ((one, other), (other, one)):
            opposed = a[:, _WORDS : 2 * _WORDS] & b[:, :_WORDS] & ~a[:, :_WORDS]
            wanted = torch.where((b[:, _FLAGS] & _ODD) != 0, _AFFIRMS, _DENIES)
            odd |= (opposed != 0).any(1) | ((a[:, _FLAGS] & wanted) != 0)
        size = torch.minimum(one[:, _SIZE], other[:, _SIZE])
        open_ = (odd & (size > 0)).nonzero().squeeze(1)
        common = _in_common(self._stems, self._stems, pairs[:, open_])
        found = torch.zeros(pairs.shape[1], dtype=torch.bool)
        found[open_[2 * common >= size[open_]]] = True
        return found


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
    sets = _hashes(claim.stems), _hashes(sides[0]), _hashes(sides[1])
    units = _hashes(unit for each in claim.sentences for unit in each.numbers)
    bits = (_bits(each % _WIDTH for each in hashes) for hashes in (units, *sets[1:]))
    denying = [each.negated for each in claim.sentences]
    flags = _READ | _AFFIRMS * (not all(denying)) | _DENIES * any(denying)
    flags |= _ODD * (sum(denying) % 2)
    return sets, [*_word_bits(claim), *bits, len(claim.stems), flags]


def _hashes(tokens: Iterable[str]) -> list[int]:
    return [hash(token) & 0x7FFFFFFF for token in tokens]


def _bits(places: Iterable[int]) -> int:
    bits = 0
    for place in places:
        bits |= 1 << place
    return bits


def _word_bits(claim: Claim) -> list[int]:
    """The words of a text that have opposites, and the opposites of its words, as bits."""
    table = opposites()
    number = {word: place for place, word in enumerate(table)}
    words = {word for each in claim.sentences for word in each.words if word in table}
    against = {other for word in words for other in table[word]}
    columns = []
    for each in (words, against):
        whole = _bits(number[word] for word in each)
        columns += [whole >> _WIDTH * i & (1 << _WIDTH) - 1 for i in range(_WORDS)]
    return columns
