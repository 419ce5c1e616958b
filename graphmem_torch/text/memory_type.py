"""Classify the memory type of new text by rules.

Cues at the beginning of a text are counted and weighted; the type with the largest sum is taken.
The weights are rounded from a logistic regression on hand-labelled sentences: turns, facts
extracted from them, essays, instructions and notes. On the held-out half, 153 sentences, 82 % are
right; the kind of atom alone reaches 50 % (`bench.quality.memory_types`). ContextOS (section 4.2)
asks a language model instead, as `Upkeep.classify` does with an oracle. The cues are English; for
other texts (`text.words.foreign`) only kind, speaker and length are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from graphmem_torch.atoms import MEMORY_TYPES, Atom
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.tense import PAST_VERBS
from graphmem_torch.text.terms import STOP_WORDS
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.words import foreign

__all__ = ["RULES", "memory_types"]

RULES = "rules 1"
"""Version of these rules, stored with their answers; answers of other versions are replaced."""

_READ = 300  # characters: the type shows early, and a long chunk must not cost more
_MOST = 2  # maximum count of one cue

_VERBS = (
    "add|allow|always|answer|apply|ask|avoid|back up|be (?:sure|polite|brief|careful|concise)|begin"
    "|call|change|check|choose|cite|clean|click|close|configure|confirm|connect|contact|cook|copy"
    "|create|cut|delete|disable|discuss|do not|don't|download|drain|drop|enable|end|ensure|enter"
    "|escalate|explain|export|fill|find|finish|follow|format|give|go to|hold|ignore|import|include"
    "|inform|insert|install|keep|leave|limit|list|load|log|make sure|mark|measure|mention|mix|move"
    "|never|note that|notify|offer|only|open|pass|pay|place|plug|pour|prefer|press|prioriti[sz]e"
    "|provide|pull|push|put|quote|raise|read|reboot|record|redirect|refer|refuse|reject|remember to"
    "|remove|rename|repeat|replace|reply|report|reset|respond|restart|return|review|rewrite|rinse"
    "|rotate|run|save|select|send|serve|set|share|show|sign|speak|specify|split|start|stay|stir"
    "|stop|store|submit|summari[sz]e|switch|take|tell|test|tighten|translate|treat|try|turn|type"
    "|unplug|update|upload|use|validate|verify|wait|warn|wash|wipe|wrap|write"
)
_CLAUSE = r"(?:^|[.;:!?]\s+|,\s+(?:and |then |please )?|\bthen |\bplease )"
_DAY = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_MONTH = "|".join(MONTHS)

_CUES: Mapping[str, re.Pattern[str]] = {
    name: lazy_pattern(pattern)
    for name, pattern in {
        "imperative": rf"{_CLAUSE}(?:{_VERBS})\b(?!')",
        "opening": rf"^\W*(?:step \d+\W+|first,? |\d+[.)] )?(?:please )?(?:{_VERBS})\b(?!')",
        "duty": r"\b(?:must(?: not| never)?|should (?:always|never|not|be)|shall|you are an?\b"
        r"|is required to|are required to|not allowed|how to|in case of|make sure|needs? to be)\b",
        "condition": r"^(?:if|when|whenever|before|after|unless|once|to \w+|for|in case)\b[^.]*, ",
        "at_hand": r"\b(?:to-?do\b|to do:|currently|right now|at the moment|in progress|next step"
        r"|pending|so far|remind me|i'm about to|still (?:need|missing|have to)|open question"
        r"|waiting for|working on|in the middle of|draft|now \w+ing|is now)\b",
        "label": r"^(?:to-?do|to do|task|goal|current \w+|plan[^:]{0,20}|next|next step|pending"
        r"|open question|in progress|note to self|draft[^:]{0,20}|intermediate \w+"
        r"|selected \w+)\s*:",
        "errand": r"\b(?:need|have|forget|remember|remind|going|want|plan|must)\b"
        rf"[^.]*\b(?:today|tomorrow|tonight|this afternoon|by (?:{_DAY})|on the way)\b",
        "past": rf"\b(?:{PAST_VERBS}|[a-z]{{2,}}[^e\W]ed)\b",
        "person_past": r"(?:\b(?:i|we|he|she|they|user|agent|customer)|^\w+)"
        rf"(?:'ve| also| just| have| has| had| recently)* (?:{PAST_VERBS}|[a-z]{{2,}}ed)\b",
        "state": r"\b(?:is|are|am|i'm|feels?|feeling) (?:currently |really |so )?"
        r"(?:excited|considering|looking|planning|trying|feeling|hoping|happy|proud|sad|low"
        r"|about to)\b"
        r"|\b(?:expresses|congratulates|thanks|offers)\b",
        "moment": r"\b(?:yesterday|today|tonight|tomorrow|this (?:morning|afternoon|evening|week)"
        r"|last (?:\w+ )?(?:week|weekend|night|month|year|summer|winter|\w+day)|\w+ ago|recently"
        r"|lately|just now|the other day|at \d+(?::\d\d| ?[ap]m)"
        rf"|(?:on|until|since) (?:{_DAY}))\b",
        "date": rf"\b(?:(?:{_MONTH}) \d+|\d+ (?:{_MONTH})|in (?:1\d|20)\d\d)\b",
        "exclamation": r"!",
        "asking": r"\b(?:you|your|u)\b[^.!?]*\?|^(?:what|how|who|where|when|why|do|did|have|are)\b"
        r"[^.!]*\?",
        "doing": r"\b(?:i'm|we're|i am|we are|is|are) (?:really |so |also |still )?\w+ing\b",
        "habit": r"\b(?:always|usually|often|never|generally|every|typically|tend to|favou?rite"
        r"|prefers?|loves?|likes?|enjoys?|hates?|believes?|values?|names?|called|known as"
        r"|defined|important|importance|best)\b",
    }.items()
}

# In the order of MEMORY_TYPES.
_WEIGHTS: Mapping[str, tuple[float, float, float, float]] = {
    "imperative": (-1.5, -0.5, 2.0, 0.0),
    "opening": (-1.0, -1.0, 2.0, 0.0),
    "duty": (-2.0, -0.5, 3.0, -0.5),
    "condition": (-1.0, -0.5, 2.0, -0.5),
    "at_hand": (-2.0, -1.0, -0.5, 3.0),
    "label": (-1.5, -0.5, -0.5, 3.0),
    "errand": (-1.5, -0.5, -1.0, 2.5),
    "past": (0.5, 1.0, -0.5, -1.0),
    "person_past": (-1.5, 1.0, 0.0, 0.0),
    "state": (-1.5, 2.0, 0.0, 0.0),
    "moment": (-1.0, 1.5, -1.0, 0.5),
    "date": (0.5, 0.0, 0.0, 0.0),
    "exclamation": (0.0, 1.0, -0.5, -0.5),
    "asking": (0.0, 0.5, 0.0, -0.5),
    "doing": (-1.0, 1.5, 0.0, 0.0),
    "habit": (0.5, 0.5, 0.0, -1.0),
}
_TURN = (-1.0, 3.0, -1.0, -0.5)
_LONG, _LONG_FROM = (1.0, -0.5, 0.0, 0.0), 250  # characters
_BIAS = (2.5, -0.5, -1.0, -1.0)

_BY_KIND = {
    "definition": "semantic",
    "theorem": "semantic",
    "claim": "semantic",
    "evidence": "semantic",
    "task": "working",
    "output": "episodic",
}
"""Kinds of atoms that imply a memory type."""


def memory_types(atoms: Iterable[Atom]) -> list[str]:
    """Return the memory type of each atom by text, kind and speaker (`docs/mathematics.md` 6)."""
    return [_BY_KIND.get(atom.kind) or _by_cues(atom) for atom in atoms]


def _by_cues(atom: Atom) -> str:
    text = atom.text[:_READ].lower().replace("\u2019", "'")
    sums = list(_BIAS)
    cues = {} if foreign(text, STOP_WORDS) else _CUES
    parts = [(min(len(cue.findall(text)), _MOST), _WEIGHTS[name]) for name, cue in cues.items()]
    parts.append((int(bool(atom.speaker) or atom.kind == "turn"), _TURN))
    parts.append((int(len(text) > _LONG_FROM), _LONG))
    for count, weights in parts:
        if count:
            sums = [total + count * weight for total, weight in zip(sums, weights, strict=True)]
    return MEMORY_TYPES[sums.index(max(sums))]
