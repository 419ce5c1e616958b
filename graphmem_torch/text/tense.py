"""Tense of an English sentence around a place: past or future."""

from __future__ import annotations

import re

from graphmem_torch.lazy import lazy_pattern

__all__ = ["AHEAD", "PAST", "PAST_VERBS", "tense"]

PAST_VERBS = (
    "was|were|had|did|didn't|wasn't|went|got|took|made|said|told|came|saw|bought|met|found|left"
    "|gave|began|ran|felt|thought|knew|sent|brought|wrote|won|lost|heard|broke|fell|grew|kept|built"
    "|spoke|spent|taught|caught|drove|ate|chose|wore|sold|paid|drew|flew|sang|swam|held|led"
)
"""Irregular past forms, as alternatives of a regular expression."""

_PAST = rf"(?<!-)\b(?:been|{PAST_VERBS}|\w{{2,}}[^e\W]ed)\b"
_AHEAD = (
    r"\b(?:will|going to|gonna|plan(?:s|ning|ned)?|hop(?:e|es|ing) to|upcoming|coming up"
    r"|look(?:s|ing)? forward|can't wait|excited (?:for|to))\b|'ll\b"
)
PAST = lazy_pattern(_PAST, re.IGNORECASE)
"""Pattern of a verb in the past."""
AHEAD = lazy_pattern(_AHEAD, re.IGNORECASE)
"""Pattern of words for the future."""

_CUE = lazy_pattern(
    rf"(?P<ahead>{_AHEAD}|\u2019ll\b|\b(?:won['\u2019]t|shall|let['\u2019]s|need(?:s|ing)? to"
    r"|have to|has to|want(?:s|ing)? to|wanna|gotta|should|must|can(?:not)?|(?-i:may)|might"
    r"|deadline|due|appointment|remind|thinking of|can\u2019t wait"
    r"|(?:am|is|are|i['\u2019]m|(?:we|you|they)['\u2019]re|(?:he|she|it)['\u2019]s)"
    r" (?:(?!been)\w+ )?(?!being|feeling|having)\w+ing)\b)"
    rf"|(?P<past>{_PAST}|\b(?:rode|slept|read|set|woke|drank|hit|hurt|put|quit|cut|ended|used"
    r"|started|tried|cried|died|needed|created|dated|arrived|moved|lived|liked|loved|signed)\b)",
    re.IGNORECASE,
)
_DOING = lazy_pattern(r"\b\w{2,}ing\b(?! of\b)")
_ENDS = lazy_pattern(r"[.!?;\n]")
_NO_VERB = frozenset({"anything", "everything", "during", "evening", "morning", "nothing"})
_NO_VERB |= {"something", "spring", "thing", "wedding", "meeting", "king", "building", "ceiling"}
_LOOK = 200  # characters of a sentence to both sides


def tense(text: str, begin: int, end: int, *, participles: bool = True) -> int:
    """Return -1 if the text around a place is past, 1 if it is future, 0 if unknown.

    The verb before the place in its sentence decides, otherwise the one after it.

    Args:
        text: The text.
        begin: First character of the place.
        end: Character after its last one.
        participles: Whether a participle without a verb is future ("thinking of Friday").
    """
    before, after = text[max(0, begin - _LOOK) : begin], text[end : end + _LOOK]
    *_, before = _ENDS.split(before)
    after = _ENDS.split(after, maxsplit=1)[0]
    *_, last = None, *_CUE.finditer(before)
    cue = last or _CUE.search(after)
    if cue is not None:
        return 1 if cue["ahead"] else -1
    return int(participles and any(word.lower() not in _NO_VERB for word in _DOING.findall(before)))
