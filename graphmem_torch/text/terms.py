"""Terms: the words of a text as the lexical index counts them, and their numbers."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.text.words import STOP_WORDS

__all__ = ["Vocabulary", "terms"]

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_CACHE_LIMIT = 1_000_000


class _Stems(dict[str, str]):
    """Word to stem, empty for stop words; filled on demand."""

    def __init__(self) -> None:
        super().__init__()
        self._stemmer: Any = None
        # One PyStemmer object must not be used by two threads at once.
        self._lock = threading.Lock()

    def __missing__(self, word: str) -> str:
        with self._lock:
            if self._stemmer is None:
                import Stemmer

                self._stemmer = Stemmer.Stemmer("english")
            stem = ""
            if word not in STOP_WORDS:
                bare = word.removesuffix("'s")
                stem = "" if bare in STOP_WORDS else self._stemmer.stemWord(bare)
            if len(self) >= _CACHE_LIMIT:
                self.clear()
            self[word] = stem
            return stem


_stems = _Stems()


def terms(text: str) -> list[str]:
    """The stemmed content words of a text, in order and with repetitions.

    Lower-cased words of letters and digits, without English stop words, through the Snowball
    English stemmer.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("\u2019", "'")
    return [stem for word in _WORD.findall(text.lower()) if (stem := _stems[word])]


class Vocabulary:
    """Numbers terms 0, 1, 2, ... in the order in which they are first met."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._ids = {word: i for i, word in enumerate(words)}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, term: object) -> bool:
        return term in self._ids

    def encode(self, texts: Sequence[str], *, grow: bool = True) -> tuple[Tensor, Tensor]:
        """Term ids of texts.

        Args:
            texts: n texts.
            grow: Number unknown terms; else they are left out.

        Returns:
            ids: [T] int64, the terms of all texts one after another.
            offsets: [n + 1] int64; text i has `ids[offsets[i]:offsets[i + 1]]`.
        """
        known = self._ids
        ids: list[int] = []
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        for i, text in enumerate(texts):
            found = terms(text)
            if grow:
                ids.extend([known.setdefault(term, len(known)) for term in found])
            else:
                ids.extend([known[term] for term in found if term in known])
            offsets[i + 1] = len(ids)
        return torch.tensor(ids, dtype=torch.int64), torch.from_numpy(offsets)

    def encode_padded(self, texts: Sequence[str]) -> Tensor:
        """Known term ids of questions, one row each: [B, Q] int64, -1 = padding; Q >= 1."""
        ids, offsets = self.encode(texts, grow=False)
        lengths = offsets.diff()
        width = max(int(lengths.max()) if len(texts) else 0, 1)
        padded = torch.full((len(texts), width), -1, dtype=torch.int64)
        padded[torch.arange(width) < lengths[:, None]] = ids
        return padded

    def to_bytes(self) -> bytes:
        """The terms in the order of their numbers."""
        return "\n".join(self._ids).encode("utf-8")

    @classmethod
    def from_bytes(cls, data: bytes) -> Vocabulary:
        """The inverse of `to_bytes`."""
        return cls(data.decode("utf-8").split("\n")) if data else cls()
