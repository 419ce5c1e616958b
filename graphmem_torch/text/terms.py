"""Terms: the words of a text as the lexical index counts them, with their numbers."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.unicode_forms import visible
from graphmem_torch.text.words import (
    PLAIN_WORD,
    STOP_WORDS_OF,
    count_words,
    language_of,
    lowered,
    pairs,
    script_language,
    shared_runs,
    words,
)

if TYPE_CHECKING:  # worker processes find terms and concepts without loading torch
    from torch import Tensor

__all__ = [
    "FRAGMENTS",
    "GENERIC",
    "STOP_WORDS",
    "TERMS",
    "Vocabulary",
    "first_terms",
    "shared_words",
    "stemmed",
    "terms",
    "title_terms",
]
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
"""Words without a topic."""

_FRAGMENTS = """
ain aren couldn d didn doesn don hadn hasn haven isn ll m mustn needn re s shan shouldn t ve
wasn weren won wouldn
"""
FRAGMENTS = frozenset(_FRAGMENTS.split())
"""Remains of contractions that a tokenizer splits at the apostrophe."""

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
"""Words too general to be a concept alone."""

TERMS = 3
"""Version of `terms`; postings of another version are rebuilt."""

_CACHE_LIMIT = 1_000_000


class _Stems(dict[str, str]):
    """Cache from the words of one language to their stems; empty for stop words."""

    def __init__(self, language: str, *, by_script: bool = True) -> None:
        super().__init__()
        self._language, self._by_script = language, by_script
        self._stop = STOP_WORDS_OF.get(language, STOP_WORDS)
        self._stemmers: dict[str, Any] = {}
        # A PyStemmer object must not be used by two threads at once.
        self._lock = threading.Lock()

    def __missing__(self, word: str) -> str:
        with self._lock:
            stem = ""
            if word not in self._stop:
                bare = word.removesuffix("'s") if self._language == "english" else word
                stem = "" if bare in self._stop else self._stemmer(bare).stemWord(bare)
            if len(self) >= _CACHE_LIMIT:
                self.clear()
            self[word] = stem
            return stem

    def _stemmer(self, word: str) -> Any:
        language = script_language(word) if self._by_script else "english"
        language = self._language if language == "english" else language
        if language not in self._stemmers:
            import Stemmer

            self._stemmers[language] = Stemmer.Stemmer(language)
        return self._stemmers[language]


_stems = {language: _Stems(language) for language in ("english", *STOP_WORDS_OF)}
_first_stems = _Stems("english", by_script=False)


def terms(text: str) -> list[str]:
    """Return the stemmed content words of a text, in order and with repetitions.

    Words (`text.words`) are stemmed by the Snowball stemmer of English, or of the likeliest
    language of their script; English stop words are dropped. If function words show another
    language in Latin letters, the stem of that language is added if it differs: a question too
    short to show its language still matches. Runs of scripts without spaces are pairs of
    characters. Stop words outside the lists are weighted down by idf.
    """
    found = words(lowered(text))
    return _stemmed(found, language_of(found, STOP_WORDS))


def stemmed(word: str) -> str:
    """Return the stem of a word by its script; empty for an English stop word."""
    return _stems["english"][word]


def first_terms(text: str) -> list[str]:
    """Return the terms of version 1, for vectors made from them: all words are English."""
    text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").lower()
    return [stem for word in PLAIN_WORD.findall(text) if (stem := _first_stems[word])]


def shared_words(text: str, weights: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the words of a text that have a weighted term, in their first spelling.

    The heaviest word comes first. The weight of a word is that of its heaviest term. In a script
    without spaces the longest parts whose pairs are all terms count as words, each with their sum.

    Args:
        text: Text.
        weights: Positive weights of terms (`terms`).
    """
    lower = lowered(text)
    found, language = words(lower), ""
    written = words(unicodedata.normalize("NFKC", visible(text)).replace("\u2019", "'"))
    if len(written) != len(found):  # a letter with two letters in lower case
        written = found
    told: dict[str, tuple[str, float]] = {}
    for word, own in zip(found, written, strict=True):
        if pairs(word):
            for part in shared_runs(word, weights):
                weight = sum(weights.get(term, 0.0) for term in pairs(part) or [part])
                told.setdefault(part, (part, weight))
            continue
        language = language or language_of(found, STOP_WORDS)
        weight, term = max(
            ((weights.get(term, 0.0), term) for term in _stemmed([word], language)),
            default=(0.0, ""),
        )
        if weight > 0:
            told.setdefault(term, (own, weight))
    return sorted(told.values(), key=lambda each: -each[1])


def _stemmed(found: Sequence[str], language: str) -> list[str]:
    english = _stems["english"]
    if language != "english":
        own = _stems[language]
        stems = (pairs(word) or _both(english[word], own[word]) for word in found)
        return [stem for each in stems for stem in each]
    if all(map(str.isascii, found)):
        return [stem for word in found if (stem := english[word])]
    return [stem for word in found for stem in pairs(word) or (english[word],) if stem]


def _both(english: str, own: str) -> Sequence[str]:
    if not english or not own:
        return ()
    return (own,) if english == own else (english, own)


class Vocabulary:
    """Map from terms to numbers 0, 1, 2, ... in order of first occurrence."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._ids = {word: i for i, word in enumerate(words)}
        self._words = list(self._ids)
        self._size = len(self._words)

    def __len__(self) -> int:
        return self._size

    @property
    def words(self) -> list[str]:
        """Return the terms by number."""
        return self._words[: self._size]

    def copy(self) -> Vocabulary:
        """Return a frozen view that shares the terms and ignores later ones.

        Only the original may grow. Takes constant time.
        """
        other = Vocabulary()
        other._ids, other._words, other._size = self._ids, self._words, self._size
        return other

    def encode(self, texts: Sequence[str], *, grow: bool = True) -> tuple[Tensor, Tensor]:
        """Return the term ids of texts.

        Args:
            texts: n texts.
            grow: Whether unknown terms are numbered; otherwise they are dropped.

        Returns:
            ids: [T] int64, the terms of all texts, concatenated. offsets: [n + 1] int64; text i has
            `ids[offsets[i]:offsets[i + 1]]`.
        """
        return self.encode_terms(map(terms, texts), grow=grow)

    def encode_terms(
        self, texts: Iterable[Sequence[str]], *, grow: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the term ids of texts given as lists of terms."""
        import torch

        ids: list[int] = []
        ends = [0]
        for found in texts:
            if grow:
                ids.extend([self._number(term) for term in found])
            else:
                ids.extend(self._known(found))
            ends.append(len(ids))
        return torch.tensor(ids, dtype=torch.int64), torch.tensor(ends, dtype=torch.int64)

    def _known(self, found: Sequence[str]) -> list[int]:
        """Return the numbers of the known terms."""
        known, size = self._ids, self._size
        return [n for term in found if (n := known.get(term, size)) < size]

    def _number(self, term: str) -> int:
        number = self._ids.get(term)
        if number is None:
            number = self._ids[term] = self._size
            self._words.append(term)
            self._size += 1
        return number

    def encode_padded(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the term ids of questions, one row each, and the number of their unknown terms.

        Returns:
            [B, Q] int64, padded with -1, Q >= 1; and [B] float32.
        """
        import torch

        found = [terms(text) for text in texts]
        rows = [self._known(own) for own in found]
        missing = [len(own) - len(row) for own, row in zip(found, rows, strict=True)]
        width = max([1, *map(len, rows)])
        padded = [row + [-1] * (width - len(row)) for row in rows]
        ids = torch.tensor(padded, dtype=torch.int64).view(len(rows), width)
        return ids, torch.tensor(missing, dtype=torch.float32)

    def foreign_idf(self, texts: Sequence[str]) -> Tensor | None:  # [B] float32
        """Return the idf of the terms that only other shards have; None in a memory of one store.

        Args:
            texts: B questions.
        """
        return None

    def spell(self, numbers: Iterable[int]) -> list[str]:
        """Return the terms of known numbers."""
        return [self._words[number] for number in numbers]

    def to_bytes(self) -> bytes:
        """Serialise the terms in the order of their numbers."""
        return "\n".join(self.words).encode("utf-8")

    @classmethod
    def from_bytes(cls, data: bytes) -> Vocabulary:
        """Read a vocabulary from `to_bytes`."""
        return cls(data.decode("utf-8").split("\n")) if data else cls()


_WORDS = 12
_CLOSED = (*".!?,;:。！？，；：、।؟۔",)  # how sentences and clauses end
# Disambiguation in brackets, as in encyclopaedias: "Titanic (1997 film)".
_DISTINCTION = lazy_pattern(r"\s*\([^()]*\)$")


def title_terms(text: str) -> int:
    """Return the number of leading terms of a text (`text.terms`) that are its title's.

    A title is a first line of at most 12 words that does not end like a sentence, with text below
    it. Brackets at its end do not count.

    Returns:
        -1 without a title; 0 if it has stop words only.
    """
    head, _, body = text.partition("\n")
    head = head.strip()
    if not head or head.endswith(_CLOSED) or count_words(head) > _WORDS or not body.strip():
        return -1
    language = language_of(words(lowered(text)), STOP_WORDS)
    return len(_stemmed(words(lowered(_DISTINCTION.sub("", head))), language))
