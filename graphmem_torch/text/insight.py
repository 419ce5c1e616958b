"""Insight: what a text is (an assertion, a question, a plan, ...) and what it speaks of, by rules.

The signifiers and resonance keys of an insight particle (Cognitive Weave, section 3.2), where the
paper asks a language model. The cues are English; of other texts (`text.words.foreign`) only their
marks are read, and what shows nothing has no signifier.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from graphmem_torch.text.question import is_question, tells_time
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import STOP_WORDS, terms
from graphmem_torch.text.words import foreign

__all__ = ["KEYS", "SIGNIFIERS", "Insight", "Signifier", "read_insight"]

Signifier = Literal[
    "assertion", "question", "hypothesis", "plan", "preference", "event", "instruction"
]

SIGNIFIERS: tuple[Signifier, ...] = get_args(Signifier)
"""What a text may be, more than one of them at once."""

KEYS = 8
"""Resonance keys of a text at most."""

_READ = 2000  # characters: a long chunk must not cost more
_PAST = (
    r"(?:was|were|had|did|went|got|took|made|said|told|came|saw|bought|met|found|left|gave|began"
    r"|ran|felt|sent|brought|wrote|won|lost|heard|broke|built|spoke|spent|taught|caught|drove|ate"
    r"|chose|sold|paid|sang|swam|led|[a-z]{2,}[^e\W]ed)"
)
_CUES: Mapping[Signifier, re.Pattern[str]] = {
    "hypothesis": re.compile(
        r"\b(?:maybe|perhaps|might|possibly|probably|presumably|i (?:think|guess|suppose|suspect)"
        r"|could be|not sure|it seems|if (?:only|it|he|she|they|i|we) )\b"
    ),
    "plan": re.compile(
        r"\b(?:going to|gonna|plan(?:s|ning|ned)? (?:to|on)|intend(?:s|ing)? to|hop(?:e|es|ing) to"
        r"|want(?:s)? to|look(?:s|ing)? forward to|scheduled|next (?:week|month|year|weekend|spring"
        r"|summer|autumn|fall|winter|\w+day)|tomorrow|(?:i|we|he|she|they)(?:'ll| will))\b"
    ),
    "preference": re.compile(
        r"\b(?:loves?|likes?|prefers?|favou?rites?|enjoys?|hates?|dislikes?|can't stand"
        r"|(?:big |huge )?fan of|rather have|allergic to)\b"
    ),
    "event": re.compile(
        r"(?:\b(?:i|we|he|she|they|it|who)|^\w+)"
        rf"(?:'ve| also| just| have| has| had| recently)* {_PAST}\b"
    ),
    "instruction": re.compile(
        r"^(?:please\b|always\b|never\b|do not\b|don't\b|make sure\b|remember to\b|(?:you )?must\b"
        r"|add|ask|avoid|call|check|choose|click|close|create|delete|ensure|follow|give|keep|list"
        r"|open|press|put|remove|run|save|select|send|set|start|stop|use|verify|write)\b"
    ),
}


@dataclass(frozen=True, slots=True)
class Insight:
    """What is said of a text.

    Attributes:
        signifiers: Of `SIGNIFIERS`, in their order.
        keys: Resonance keys, those of the most weight first.
        importance: In [0, 1]; None where nobody said.
    """

    signifiers: tuple[str, ...]
    keys: tuple[str, ...] = ()
    importance: float | None = None


def read_insight(text: str, names: Sequence[str] = ()) -> Insight:
    """What a text is, and what it speaks of.

    Args:
        text: Any.
        names: Concepts that it mentions: they are its first keys; behind them come its words that
            are none of the very common ones, in the order of the text.
    """
    text = text[:_READ]
    lowered = text.lower().replace("\u2019", "'")
    found = {"question"} if is_question(text) else set[str]()
    if not foreign(text, STOP_WORDS):
        sentences = [each.strip() for each in split_sentences(lowered)]
        told = [each for each in sentences if each and not is_question(each)]
        for name, cue in _CUES.items():
            if any(cue.search(each) for each in told):
                found.add(name)
        if "event" not in found and any(tells_time(each) for each in told) and "plan" not in found:
            found.add("event")
        # What is asked, asked for or supposed is not claimed.
        if told and not found & {"hypothesis", "instruction"}:
            found.add("assertion")
    own = {word for name in names for word in terms(name)}
    words = [word for word in dict.fromkeys(terms(text)) if word not in own]
    keys = tuple(dict.fromkeys([*names, *words]))[:KEYS]
    return Insight(tuple(name for name in SIGNIFIERS if name in found), keys)
