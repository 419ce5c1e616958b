"""Summaries of memories for a question: f_summ of `docs/mathematics.md` 3.

Extractive unless something else is given: a Hugging Face model, an oracle, or any function.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from graphmem_torch.errors import InputError, first_line, interruptible
from graphmem_torch.oracle.protocol import ask_checked, method_of
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import terms
from graphmem_torch.text.tokens import TokenCounter, get_counter
from graphmem_torch.text.words import word_ends

__all__ = [
    "HuggingFaceSummariser",
    "Shorten",
    "Summaries",
    "Summarise",
    "Summariser",
    "extract",
    "shortened",
]

_LEAD = 0.1  # of the first sentence, falling as 1 / place: what a text begins with says its subject
_GAP = "… "
_LEAD_WORDS = 2  # in front of the first wanted word of a window
_WINDOWS = 64  # places of a long sentence from which a window is tried
_NEXT = 0.5  # of the value of a line, for the line after it: a row has cells, a head has a body


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

    A code block, a table or a list that does not fit is taken line by line; a line is worth at
    least half of the line before it. Of a long sentence that holds more of the question's words
    than all that fits, the best run of words is written.

    Args:
        texts: n texts; their words say which are rare.
        question: Without words of its own, the first sentences.
        max_tokens: Of each text, or of every one. A text that is within it stays as it is; of one
            without a sentence that fits, its first words.
        count: Counts the tokens of a text.
    """
    limits = [max_tokens] * len(texts) if isinstance(max_tokens, int) else list(max_tokens)
    read = [_parts(text, limit, count) for text, limit in zip(texts, limits, strict=True)]
    parts, follows = [each for each, _ in read], [after for _, after in read]
    words = [[frozenset(terms(part)) for part in each] for each in parts]
    wanted = frozenset(terms(question))
    total = sum(map(len, words))
    found = Counter(word for each in words for said in each for word in said & wanted)
    idf = {w: math.log1p((total - found[w] + 0.5) / (found[w] + 0.5)) for w in sorted(wanted)}
    scale = sum(idf.values()) or 1.0
    return [
        text
        if count(text) <= limit
        else _fitting(each, own, _values(own, after, idf, scale), limit, count, idf)
        for text, each, own, after, limit in zip(texts, parts, words, follows, limits, strict=True)
    ]


def _parts(text: str, limit: int, count: Callable[[str], int]) -> tuple[list[str], list[bool]]:
    """The sentences of a text, and the lines of those that do not fit; whether each goes on."""
    parts, goes_on = list[str](), list[bool]()
    for sentence in split_sentences(text):
        lines = [line for line in sentence.splitlines(keepends=True) if line.strip()]
        whole = len(lines) < 2 or count(sentence) <= limit
        parts += [sentence] if whole else lines
        goes_on += [False] if whole else [place > 0 for place in range(len(lines))]
    return parts, goes_on


def _values(
    words: Sequence[frozenset[str]],
    follows: Sequence[bool],
    wanted: Mapping[str, float],
    scale: float,
) -> list[float]:
    """Return the value of each part of a text, by its words and its place."""
    values, before = list[float](), 0.0
    for place, (own, after) in enumerate(zip(words, follows, strict=True), 1):
        before = max(_worth(own, wanted) / scale, _NEXT * before if after else 0.0)
        values.append(before + _LEAD / place)
    return values


def _worth(words: frozenset[str], wanted: Mapping[str, float]) -> float:
    return sum(wanted[word] for word in sorted(words & wanted.keys()))


def _fitting(
    parts: Sequence[str],
    words: Sequence[frozenset[str]],
    values: Sequence[float],
    limit: int,
    count: Callable[[str], int],
    wanted: Mapping[str, float],
) -> str:
    """The best sentences that fit together, by falling value; what does not fit is passed over.

    Or words of the best sentence that does not fit, if they hold more of what is wanted.
    """
    chosen: list[int] = []
    left = limit
    for place in sorted(range(len(parts)), key=lambda i: (-values[i], i)):
        if (cost := count(parts[place])) <= left:
            chosen.append(place)
            left -= cost
    # Marks of gaps, and seams where tokens merge, are seen only in the whole.
    while chosen and count(_joined(parts, sorted(chosen))) > limit:
        chosen.pop()
    held = _worth(frozenset().union(*(words[place] for place in chosen)), wanted)
    left_out = [place for place in range(len(parts)) if place not in chosen]
    best = max(left_out, key=lambda i: (values[i], -i), default=None)
    if best is not None and (not chosen or _worth(words[best], wanted) > held):
        window = _window_of(parts[best].strip(), limit, count, wanted)
        if not chosen or _worth(frozenset(terms(window)), wanted) > held:
            return window
    return _joined(parts, sorted(chosen))


def _joined(parts: Sequence[str], chosen: Sequence[int]) -> str:
    """Sentences as one text, with a mark where some are left out between them."""
    pieces = []
    for before, place in zip([None, *chosen], chosen, strict=False):
        gap = before is not None and place > before + 1
        end = parts[place][-1:]
        space = "\n" if end == "\n" else " " if end.isspace() else ""
        pieces.append((_GAP if gap else "") + parts[place].rstrip() + space)
    return "".join(pieces).rstrip()


def _window_of(
    text: str, limit: int, count: Callable[[str], int], wanted: Mapping[str, float]
) -> str:
    """Return as many words in a row as fit, those with most of the wanted words.

    From the first word on if that is as good; at least one word, be it longer.
    """
    ends = word_ends(text) or [len(text)]
    starts = [0, *ends[:-1]]
    said = [
        frozenset(terms(text[start:end])) & wanted.keys()
        for start, end in zip(starts, ends, strict=True)
    ]
    # Where a word stands that the text has often, there are too many places to try all.
    often = Counter(word for own in said for word in own)
    places = [place for place, own in enumerate(said) if own]
    places.sort(key=lambda place: min(often[word] for word in said[place]))

    def part(first: int) -> tuple[str, int]:
        mark = _GAP if first else ""
        begun = len(text[: starts[first]].rstrip()) if first else 0
        begun += len(text[begun:]) - len(text[begun:].lstrip())
        # Text between two words counts for the words on both sides: each part is counted whole.
        stop = bisect_right(
            ends, limit, lo=first + 1, key=lambda end: count(mark + text[begun:end])
        )
        return mark + text[begun : ends[stop - 1]], stop

    best, most = part(0), -1.0
    for first in dict.fromkeys([0, *(max(0, place - _LEAD_WORDS) for place in places[:_WINDOWS])]):
        found, stop = part(first)
        worth = _worth(frozenset().union(*said[first:stop]), wanted)
        if worth > most + 1e-12 and (first == 0 or count(found) <= limit):
            best, most = (found, stop), worth
    return best[0]


class HuggingFaceSummariser:
    """Summarises texts in batches with a model that writes one text from another.

    The question is not read: these models know none. What is longer than the model's window is cut.

    Args:
        model: Name or folder that transformers can load ("facebook/bart-large-cnn", "t5-base"), or
            a model that generates.
        tokenizer: Of a model that is given as an object.
        device: "auto" (CUDA where there is one), or a torch device; an object stays where it is.
        prefix: What goes before each text; None: what the model's own settings say ("summarize: "
            of T5).
        batch: Texts at once.
        beams: Beams of the search; 1 is greedy. Nothing is drawn at random.

    Raises:
        InputError: The model cannot be loaded, or is none that generates.
    """

    def __init__(
        self,
        model: Any = "facebook/bart-large-cnn",
        *,
        tokenizer: Any = None,
        device: str = "auto",
        prefix: str | None = None,
        batch: int = 8,
        beams: int = 1,
    ) -> None:
        if batch < 1 or beams < 1:
            raise InputError(f"batch and beams: expected at least 1, got {batch} and {beams}")
        if isinstance(model, str):
            model, tokenizer = _loaded(model)
            if device == "auto":
                device = "cuda" if torch.cuda.is_available() else "cpu"
            model = model.to(device)
        if tokenizer is None or not callable(getattr(model, "generate", None)):
            raise InputError(
                "model: expected the name of a sequence-to-sequence model, or one that generates "
                f"together with its tokenizer, got {type(model).__name__}"
            )
        self._model, self._tokenizer = model.eval(), tokenizer
        self._batch, self._beams = batch, beams
        self._prefix = _own_prefix(model) if prefix is None else prefix
        self._window = _window(model, tokenizer)

    def summarise(self, texts: Sequence[str], question: str, max_tokens: int) -> list[str]:
        """One summary a text, of at most `max_tokens` tokens of the model's own tokenizer."""
        found: list[str] = []
        for start in range(0, len(texts), self._batch):
            part = [self._prefix + text for text in texts[start : start + self._batch]]
            inputs = self._tokenizer(
                part,
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=self._window,
                return_token_type_ids=False,
            ).to(self._model.device)
            with torch.inference_mode():
                written = self._model.generate(
                    **inputs,
                    max_new_tokens=max_tokens,
                    min_length=0,
                    num_beams=self._beams,
                    do_sample=False,
                )
            found += self._tokenizer.batch_decode(written, skip_special_tokens=True)
        return found


def _loaded(name: str) -> tuple[Any, Any]:
    try:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        with interruptible():
            return AutoModelForSeq2SeqLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(
            "model: expected the folder or hub name of a sequence-to-sequence model, got "
            f"{name!r}, which cannot be loaded: {first_line(error)}; name another"
        ) from error


def _own_prefix(model: Any) -> str:
    tasks = getattr(getattr(model, "config", None), "task_specific_params", None) or {}
    return str((tasks.get("summarization") or {}).get("prefix") or "")


def _window(model: Any, tokenizer: Any) -> int:
    """Tokens that the model reads; a tokenizer without a limit says 10^30."""
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return int(min(positions or 1024, getattr(tokenizer, "model_max_length", None) or 1024))


Summarise = Callable[[Sequence[str], str, int], Any]
"""The function behind `summarise`: texts, question, tokens of each at most -> summaries."""


class Summariser(Protocol):
    """Anything that can shorten texts; it may be slow, fail, or answer nonsense."""

    def summarise(self, texts: Sequence[str], question: str, max_tokens: int) -> Sequence[Any]:
        """One summary for each text (None: no answer), of what helps to answer the question."""


class Summaries:
    """Shortens memories for a question; `shorten` of `Memory.compile` takes one.

    A summary is never longer than its text. What is asked for it may fail: one that is missing,
    empty, or too long is replaced by an extract, with a warning, and nothing is lost.
    """

    def __init__(
        self,
        share: float = 0.5,
        *,
        by: Summariser | Summarise | None = None,
        tokenizer: str | TokenCounter = "cl100k_base",
    ) -> None:
        """How texts are shortened.

        Args:
            share: Of its tokens that a text keeps at most, in (0, 1]. Extracts keep to it, but for
                the first word; what else summarises is told the share of the longest text.
            by: What summarises; None: `extract`.
            tokenizer: What counts; see `text.tokens.get_counter`.

        Raises:
            InputError: A share outside (0, 1], an unknown tokenizer, or something that cannot
                summarise.
        """
        if not isinstance(share, (int, float)) or not 0.0 < share <= 1.0:
            raise InputError(
                f"share: expected more than 0 and at most 1, got {share!r:.60}; 0.5 is usual"
            )
        self.share = share
        self._ask: Summarise | None = None if by is None else method_of(by, "summarise")
        self._count = get_counter(tokenizer)

    def __call__(self, question: str, texts: Sequence[str]) -> list[str]:
        """A summary of each text, of what helps to answer the question."""
        texts, count = list(texts), self._count
        whole = [count(text) for text in texts]
        limits = [max(1, math.floor(self.share * cost)) for cost in whole]
        ask = self._ask
        if ask is None or not texts:
            return extract(texts, question, limits, count=count)
        given = ask_checked(
            lambda: ask(texts, question, max(limits)),
            len(texts),
            lambda answer: answer.strip() or None if isinstance(answer, str) else None,
            what=("summaries", "texts"),
            wanted="no text",
            lost="extracts stand in for them",
        )
        short = {
            i: text for i, text in enumerate(given) if text is not None and count(text) <= whole[i]
        }
        spare = [i for i in range(len(texts)) if i not in short]
        own = extract([texts[i] for i in spare], question, [limits[i] for i in spare], count=count)
        short |= zip(spare, own, strict=True)
        return [short[i] for i in range(len(texts))]


Shorten = Callable[[str, Sequence[str]], Sequence[str]]
"""From a question and the texts of memories to what is written of each."""


def shortened(shorten: Shorten, question: str, texts: Sequence[str]) -> list[str]:
    """What a function makes of texts; a text that it makes nothing of stays as it is.

    A function that fails, or gives something else than a text for each text, is told of in a
    warning, and costs nothing but brevity.
    """
    made = ask_checked(
        lambda: shorten(question, texts),
        len(texts),
        lambda answer: answer if isinstance(answer, str) and answer.strip() else None,
        what=("shortened texts", "texts"),
        wanted="no text",
        lost="they are written in full",
    )
    return [old if new is None else new for new, old in zip(made, texts, strict=True)]
