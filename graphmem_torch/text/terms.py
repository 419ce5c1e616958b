"""Terms: the words of a text as the lexical index counts them, and their numbers."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["FRAGMENTS", "GENERIC", "STOP_WORDS", "Vocabulary", "terms", "title_terms"]
_STOP = """
a about above after again against ah all also am an and any are aren't as at be because been
before being below between both but by can can't cannot could couldn't did didn't do does
doesn't doing don't down during each etc few for from further had hadn't has hasn't have haven't
having he he'd he'll he's her here here's hers herself hey him himself his how how's i i'd i'll
i'm i've if in into is isn't it it'd it'll it's its itself just let let's me more most mustn't
my myself no nor not now of off oh ok okay on once only or other ought our ours ourselves out
over own same shan't she she'd she'll she's should shouldn't so some such than that that'd
that'll that's the their theirs them themselves then there there's these they they'd they'll
they're they've this those through to too under until up upon us very was wasn't we we'd we'll
we're we've were weren't what what's when when's where where's which while who who's whom whose
why why's will with won't would wouldn't yeah yes you you'd you'll you're you've your yours
yourself yourselves
"""
STOP_WORDS = frozenset(_STOP.split())
"""Words that no index of topics needs."""

_FRAGMENTS = """
ain aren couldn d didn doesn don hadn hasn haven isn ll m mustn needn re s shan shouldn t ve
wasn weren won wouldn
"""
FRAGMENTS = frozenset(_FRAGMENTS.split())
"""What is left of contractions where a tokenizer splits at the apostrophe."""

_VAGUE = """
absolutely always amazing anybody anyone anything awesome bit blast bunch bye case chance
congrats cool couple day difference even everybody everyone everything example fact far feel
folk fun glad good got great guy haha hello hi idea image job kind life like little look lot
luck make man matter minute moment month much never nice nobody nothing number one pair part
people person photo photograph photography pic picture place plenty point pretty problem
question really reason rest side somebody someone something sort sound sounds still stuff super
sure take thank thanks thing time today tomorrow tonight two type way week woman wonderful word
world worry wow yeah year yep yesterday yup
"""
GENERIC = STOP_WORDS | FRAGMENTS | frozenset(_VAGUE.split())
"""Words too general to be a concept by themselves."""

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
        self._words = list(self._ids)

    def __len__(self) -> int:
        return len(self._words)

    @property
    def words(self) -> list[str]:
        """The terms by their numbers."""
        return list(self._words)

    def copy(self) -> Vocabulary:
        """The vocabulary as it is: it shares the terms, but does not know those that are to come.

        Only the original may grow.
        """
        other = Vocabulary()
        other._ids, other._words = self._ids, self._words[:]
        return other

    def encode(self, texts: Sequence[str], *, grow: bool = True) -> tuple[Tensor, Tensor]:
        """Term ids of texts.

        Args:
            texts: n texts.
            grow: Whether unknown terms are numbered; else they are left out.

        Returns:
            ids: [T] int64, the terms of all texts one after another.
            offsets: [n + 1] int64; text i has `ids[offsets[i]:offsets[i + 1]]`.
        """
        return self.encode_terms(map(terms, texts), grow=grow)

    def encode_terms(
        self, texts: Iterable[Sequence[str]], *, grow: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The same of texts that are lists of terms already."""
        known, size = self._ids, len(self)
        ids: list[int] = []
        ends = [0]
        for found in texts:
            if grow:
                ids.extend([self._number(term) for term in found])
            else:
                ids.extend([n for term in found if (n := known.get(term, size)) < size])
            ends.append(len(ids))
        return torch.tensor(ids, dtype=torch.int64), torch.tensor(ends, dtype=torch.int64)

    def _number(self, term: str) -> int:
        number = self._ids.get(term)
        if number is None:
            number = self._ids[term] = len(self._words)
            self._words.append(term)
        return number

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
        return "\n".join(self._words).encode("utf-8")

    @classmethod
    def from_bytes(cls, data: bytes) -> Vocabulary:
        """The inverse of `to_bytes`."""
        return cls(data.decode("utf-8").split("\n")) if data else cls()


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
