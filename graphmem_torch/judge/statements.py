"""Read the statements of texts: their main clauses as propositions, by a dependency parse.

The rules are English; a missing proposition means that they cannot tell. `docs/mathematics.md` 5.2.
"""

from __future__ import annotations

import logging
import re
import threading
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.judge import _statement_words as say
from graphmem_torch.judge._clauses import reports, singular
from graphmem_torch.judge.propositions import Proposition
from graphmem_torch.judge.sketches import Sketch, SketchReader
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.pipeline import Pipeline, load_pipeline
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import STOP_WORDS
from graphmem_torch.text.words import foreign

__all__ = ["Statements", "read_statements", "split_speaker"]

_log = logging.getLogger(__name__)
_remembering = threading.Lock()
_remembered: dict[str, Statements] = {}
_REMEMBERED = 16384  # texts with cached statements, about 1 KB each

_SENTENCES = 12  # a longer text is a document, which stays true when one sentence does not
_LETTERS = 4000  # maximum sentences of a text
_SPEAKER = lazy_pattern(r"([^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2}): ")
# "Good news: I moved": with the label before it the parser reads no sentence.
_LABEL = lazy_pattern(
    r"(?:(?<=^)|(?<=[.!?\n] )|(?<=\n))([A-Za-z]+(?:[ -][A-Za-z]+){0,2}): "
    r"(?=[A-Z]|(?:my|our|the|we)\b)"
)
_OPENING = lazy_pattern(
    r"(?:(?<=^)|(?<=[.!?] ))(?:by the way|btw|fyi|oh|guess what)[,:!] (?:and )?", re.I
)
# One token each: "stand-up" holds no verb, and a quoted word is a name.
_COMPOUND = lazy_pattern(r"[^\W\d_]+(?:-[^\W\d_]+)+|(?<!\w)\"[\w./-]+\"(?!\w)")
_HEAD = 80  # characters that are searched for a speaker's name
# Numbers with signs, separators, units of money: one token each, whatever the tokenizer does.
_NUMBER = lazy_pattern(
    r"(?<![\w.])[-\u2212+]?[$\u20ac\u00a3]?\d+(?:[.,:/-]\d+)*(?:st|nd|rd|th|%|k|am|pm)?(?!\w)"
)


def split_speaker(text: str) -> tuple[str | None, str]:
    """Return the speaker before a text, or None, and the rest."""
    head = _SPEAKER.match(text[:_HEAD])
    if head is None or reports(head[1]):  # "Kim says: " is no speaker
        return None, text
    return head[1], text[head.end() :]


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements of a text.

    Attributes:
        propositions: Propositions in the order of the sentences.
        sentences: Number of sentences that may state something, whether or not a proposition was
            read from them. A text with one says nothing else.
        sketches: Content words of these sentences, for suspicions.
        speaker: Name of the speaker, if the text gives it.
    """

    propositions: tuple[Proposition, ...] = ()
    sentences: int = 0
    sketches: tuple[Sketch, ...] = ()
    speaker: str | None = None

    @property
    def single(self) -> bool:
        """Return whether the text is exactly one proposition."""
        return self.sentences == 1 == sum(not said.implied for said in self.propositions)


def read_statements(texts: Sequence[str], pipeline: Pipeline | None = None) -> list[Statements]:
    """Read the statements of texts; documents, other languages and long texts state nothing.

    Safe to call from threads. The results of the last texts are cached.

    Args:
        texts: Texts, each with its speaker before it.
        pipeline: Parser; by default the installed one.

    Returns:
        Statements of each text; empty if no pipeline is installed, with a warning.
    """
    with _remembering:
        found = {text: _remembered[text] for text in texts if text in _remembered}
    fresh = [text for text in dict.fromkeys(texts) if text not in found]
    if fresh and (pipeline := pipeline or _installed()) is not None:
        read = _read(fresh, pipeline)
        found |= read
        with _remembering:
            _remembered.update(read)
            while len(_remembered) > _REMEMBERED:
                del _remembered[next(iter(_remembered))]
    return [found.get(text, Statements()) for text in texts]


@cache
def _installed() -> Pipeline | None:
    try:
        return load_pipeline()
    except InputError as error:
        _log.warning("contradictions are not detected without a parser (%s)", error)
        return None


def _read(texts: Sequence[str], pipeline: Pipeline) -> dict[str, Statements]:
    found = dict.fromkeys(texts, Statements())
    asked = []
    for text in texts:
        speaker, body = split_speaker(text)
        short = len(body) <= _LETTERS and len(split_sentences(body)) <= _SENTENCES
        if short and not foreign(body, STOP_WORDS):
            asked.append((_tokens(body, pipeline), (text, speaker)))
    parsed = list(pipeline.parse(asked, entities=False))
    again = [(text, about) for doc, about in parsed if (text := _with_verbs(doc)) != doc.text]
    mended = {
        about: doc
        for doc, about in pipeline.parse(
            [(_tokens(text, pipeline), about) for text, about in again], entities=False
        )
    }
    for first, (text, speaker) in parsed:
        doc = mended.get((text, speaker), first)
        told = [sentence for sentence in doc.sents if _says(sentence)]
        readers = [SketchReader(sentence, speaker) for sentence in told]
        own = [said for reader in readers for said in reader.propositions()]
        sketches = [said for reader in readers if (said := reader.sketch()) is not None]
        found[text] = Statements(tuple(own), len(told), tuple(sketches), speaker)
    return found


def _tokens(text: str, pipeline: Pipeline) -> Any:
    """Return a document in which each number is one token."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    text = _LABEL.sub(lambda label: label[0] if reports(label[1]) else "", text)
    text = _OPENING.sub("", text)
    doc = pipeline.nlp.make_doc(text)
    with doc.retokenize() as merged:
        for match in (*_NUMBER.finditer(text), *_COMPOUND.finditer(text)):
            span = doc.char_span(*match.span(), alignment_mode="expand")
            if span is not None and len(span) > 1 and span.text == match[0]:
                merged.merge(span)
    return doc


def _with_verbs(doc: Any) -> str:
    """Return a text with "does" before verbs parsed as nouns: "The job emails a report"."""
    text = doc.text
    for sentence in reversed(list(doc.sents)):
        root = sentence.root
        verbs = any(word.pos_ in ("VERB", "AUX") for word in sentence)
        told = verbs and any(word.dep_ in say.SUBJECTS for word in sentence)
        if told or root.i == sentence.start:
            continue
        word, before, after = root.lower_, root.nbor(-1), sentence[root.i + 1 - sentence.start :]
        noun = before.pos_ in say.NOMINAL or before.lower_ == "longer"
        if not (root.tag_ in ("NNS", "VBZ") and word.endswith("s") and noun):
            continue
        follows = after[0].tag_ in say.FOLLOWING if len(after) else False
        if follows or (len(after) == 1 and (before.pos_ == "PROPN" or before.lower_ == "longer")):
            end = root.idx + len(root.text)
            text = f"{text[: root.idx]}does {singular(word)}{text[end:]}"
    return text


def _says(sentence: Any) -> bool:
    """Return whether a sentence may state something: has a verb or a number, and does not ask."""
    text = sentence.text.strip()
    if text.endswith("?") or not any(word.pos_ in ("VERB", "AUX") for word in sentence):
        return any(map(str.isdigit, text)) and not text.endswith("?")
    return True
