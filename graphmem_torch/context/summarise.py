"""Summaries of memories for a question: f_summ of `docs/mathematics.md` 3.

They are extractive by default; a Hugging Face model, an oracle or any function can replace that.
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

_LEAD = 0.1  # bonus of the first sentence, falling as 1 / place: it states the subject
_GAP = "… "
_LEAD_WORDS = 2  # words in a window before the first wanted word
_WINDOWS = 64  # starts of a window that are tried in a long sentence
_NEXT = 0.5  # share of the value of a line that the next one gets: a header has rows


def extract(
    texts: Sequence[str],
    question: str,
    max_tokens: Sequence[int] | int,
    *,
    count: Callable[[str], int],
) -> list[str]:
    """Extract the sentences that fit from each text, preferring rare words of the question.

    value_s = sum idf(w) over the question's words in the sentence / sum idf(w) over the question's
    words + 0.1 / place, idf over the sentences of all the texts. On the gold passages of MuSiQue
    and 2Wiki this keeps the answer as often as the encoder's cosine, which costs a forward pass for
    each sentence, and more often than the first sentences alone. It is deterministic and needs no
    model.

    A code block, a table or a list that does not fit is split into lines; a line is worth at least
    half of the line before it. If a long sentence holds more of the question's words than
    everything that fits, its best run of words is returned.

    Args:
        texts: n texts; idf is computed over them.
        question: Question; if it has no words, the first sentences are kept.
        max_tokens: Maximum number of tokens of each text, or of all alike. Shorter texts stay
            unchanged; if no sentence of a text fits, its first words are kept.
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
    """Split a text into sentences, too long ones into lines; return also whether each goes on."""
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
    """Join the sentences that fit together, by falling value; skip those that do not fit.

    Returns words of the best other sentence instead, if they hold more wanted words.
    """
    chosen: list[int] = []
    left = limit
    for place in sorted(range(len(parts)), key=lambda i: (-values[i], i)):
        if (cost := count(parts[place])) <= left:
            chosen.append(place)
            left -= cost
    # Gap marks and merged tokens show only in the whole.
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
    """Join sentences, with a mark for each gap between them."""
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
    """Return the run of words that fits and has the best wanted words.

    It starts at the first word if that is as good, and has at least one word even if too long.
    """
    ends = word_ends(text) or [len(text)]
    starts = [0, *ends[:-1]]
    said = [
        frozenset(terms(text[start:end])) & wanted.keys()
        for start, end in zip(starts, ends, strict=True)
    ]
    # Rare words first: frequent ones have too many places to try all.
    often = Counter(word for own in said for word in own)
    places = [place for place, own in enumerate(said) if own]
    places.sort(key=lambda place: min(often[word] for word in said[place]))

    def part(first: int) -> tuple[str, int]:
        mark = _GAP if first else ""
        begun = len(text[: starts[first]].rstrip()) if first else 0
        begun += len(text[begun:]) - len(text[begun:].lstrip())
        # Each part is counted whole, as tokens may span words.
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
    """Summariser of batches of texts with a sequence-to-sequence model.

    The question is ignored, as these models take none. Texts are cut to the model's window.

    Args:
        model: Name or folder that transformers can load ("facebook/bart-large-cnn", "t5-base"), or
            a model that generates.
        tokenizer: Tokenizer of a model that is given as an object.
        device: "auto" (CUDA if available), or a torch device; a model object is not moved.
        prefix: Prefix of each text; None: that of the model's settings ("summarize: " of T5).
        batch: Number of texts in a batch.
        beams: Number of beams; 1 is greedy. There is no random sampling.

    Raises:
        InputError: The model cannot be loaded, or does not generate.
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
        """Summarise each text in at most `max_tokens` tokens of the model's tokenizer."""
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
    """Return the maximum input tokens of the model; a tokenizer without a limit has 10^30."""
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return int(min(positions or 1024, getattr(tokenizer, "model_max_length", None) or 1024))


Summarise = Callable[[Sequence[str], str, int], Any]
"""Signature of `summarise`: texts, question, maximum tokens of each -> summaries."""


class Summariser(Protocol):
    """Interface of summarisers, which may be slow, fail, or return nonsense."""

    def summarise(self, texts: Sequence[str], question: str, max_tokens: int) -> Sequence[Any]:
        """Summarise each text for the question; None if there is no answer."""


class Summaries:
    """Shortener of memories for a question, for `shorten` of `Memory.compile`.

    A summary is never longer than its text. If the summariser fails, or a summary is missing, empty
    or too long, an extract replaces it, with a warning.
    """

    def __init__(
        self,
        share: float = 0.5,
        *,
        by: Summariser | Summarise | None = None,
        tokenizer: str | TokenCounter = "cl100k_base",
    ) -> None:
        """Choose the length and the summariser.

        Args:
            share: Maximum share of its tokens that a text keeps, in (0, 1]. Extracts respect it
                except for the first word; a summariser gets the share of the longest text.
            by: Summariser; None: `extract`.
            tokenizer: Token counter; see `text.tokens.get_counter`.

        Raises:
            InputError: The share is outside (0, 1], the tokenizer is unknown, or `by` cannot
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
        """Summarise each text for the question."""
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
            who="The summariser",
        )
        short = {
            i: text for i, text in enumerate(given) if text is not None and count(text) <= whole[i]
        }
        spare = [i for i in range(len(texts)) if i not in short]
        own = extract([texts[i] for i in spare], question, [limits[i] for i in spare], count=count)
        short |= zip(spare, own, strict=True)
        return [short[i] for i in range(len(texts))]


Shorten = Callable[[str, Sequence[str]], Sequence[str]]
"""Function from a question and the texts of memories to the text to write for each."""


def shortened(shorten: Shorten, question: str, texts: Sequence[str]) -> list[str]:
    """Shorten texts by a function; a text without a result stays unchanged.

    A function that fails, or does not return a text for each text, causes a warning only.
    """
    made = ask_checked(
        # A text is a sequence of letters, but no list of texts.
        lambda: None if isinstance(found := shorten(question, texts), str) else found,
        len(texts),
        lambda answer: answer if isinstance(answer, str) and answer.strip() else None,
        what=("shortened texts", "texts"),
        wanted="no text",
        lost="they are written in full",
        who="`shorten`",
    )
    return [old if new is None else new for new, old in zip(made, texts, strict=True)]
