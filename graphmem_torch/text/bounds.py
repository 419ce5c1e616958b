"""Read the bounds that an English question states by its dates: until, since, between, or none.

`text._places` finds the dates and the days they name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from typing import NamedTuple

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text._spans import DAY, Span
from graphmem_torch.text.sentences import split_sentences

__all__ = ["BETWEEN", "EXCEPT", "JOINED", "ONE_SIDED", "UNKNOWN", "Named", "stated_bounds"]

_AROUND = 3  # days that "around" adds to both sides of a single one

JOINED = lazy_pattern(
    r"(?P<list>,? (?:and|or) |, )(?:in |on )?(?:the )?"
    r"|(?P<range>,? (?:to|until|till|through|up to) | ?[-\u2013\u2014] ?)(?:the )?",
    re.IGNORECASE,
)
"""Pattern of the text between two dates that are named together."""

UNKNOWN = "unknown"
"""Value of `Named.way` for an impossible or ambiguous date."""

EXCEPT = lazy_pattern(
    r"(?:(?:\b(?:except(?:ing|ed)?|other than|rather than|apart|besides?|not|neither|nor|never"
    r"|without|barring|exception|(?:any|all|every)\w*(?: \w+){0,2} but)|n['\u2019]t)"
    r"(?: (?:of|for|from))?(?: (?:in|on|at|during|between|within|around|counting|including))?"
    # After these, "in" is no bound of a state: "What did she save in May?"
    r"|\b(?:exclud\w+|outside|aside|instead|save|minus|ignor\w+|omit\w*|skip\w*|disregard\w*"
    r"|leav\w+ (?:out|aside)))"
    r"(?: (?:of|for|from))?(?: the)?(?: (?:period|year|month|week|day|date))?(?: of)? $",
    re.IGNORECASE,
)
"""Pattern of the text before a date that is left out."""

_EXCEPTED = lazy_pattern(
    r",? (?:excluded|excepted|aside|(?:left )?out(?= ?\W)|not included)\b", re.IGNORECASE
)
BETWEEN = lazy_pattern(r"\b(?:between|from)(?: the)? $", re.IGNORECASE)
"""Pattern of the text before the first of two dates that are one span."""


ONE_SIDED = lazy_pattern(
    r"\b(?:(?P<until>on or before|(?:no|not) later than|not after|as of|as at|up (?:to|until|till)"
    r"|until|till|by)"
    r"|(?P<since>on or after|(?:no|not) (?:earlier|sooner) than|not before|as from|since|from"
    r"|(?:starting|beginning)(?: from| on| in| with)?)"
    r"|(?P<before>before|prior to|(?:earlier|sooner) than|ahead of|preceding)"
    r"|(?P<after>after|later than|following|past)"
    r"|(?P<around>around|about|near|circa|close to|roughly|approximately))"
    r"(?: the)?(?: year)? $",
    re.IGNORECASE,
)
# "after 10:30 on Friday, 5 May": a bound of the day named last.
_OF_DAY = lazy_pattern(
    r"(?P<hour>\b\d{1,2}(?::\d\d(?::\d\d)?(?: ?[ap]\.?m\.?)?| ?[ap]\.?m\.?) on )?(?:the )?"
    r"(?:\b(?:mon|tues|wednes|thurs|fri|satur|sun)day,? (?:the )?)?$",
    re.IGNORECASE,
)
_HOUR = lazy_pattern(r"(?:,? (?:at )?|T)\d{1,2}(?::\d\d| ?[ap]\.?m\b)", re.IGNORECASE)
_BEHIND = lazy_pattern(
    r",? (?:or (?:any ?time )?(?P<since>later|after(?:wards)?)|or (?:any ?time )?(?P<until>earlier"
    r"|before)|(?P<on>on(?= ?\W|$)|onwards?\b|forwards?\b))",
    re.IGNORECASE,
)
# "after she moved to Oslo in May": the date belongs to a clause; the bound is an event.
_CLAUSE = lazy_pattern(
    r"\b(?P<way>[Bb]efore|[Aa]fter|[Ss]ince|[Uu]ntil|[Tt]ill)"
    r" (?:(?:I|we|you|he|she|they|it)\b|[A-Z])"
    r"[^.,;:?!]* (?:in|on|during|at)(?: the)? $"
)
# A clause that gives a reason or a setting, not what is asked for.
_SETTING = lazy_pattern(
    r"(?:^|[,;:] ?|\band )(?:given|because|considering|although|(?:even )?though|now that|knowing"
    r"|as (?:i|we|you|he|she|they|it)\b|assuming|seeing that|while)\b[^,;:?!]*$",
    re.IGNORECASE,
)
# "What is the name of the dog that I found in May" asks about the present of a past thing.
_PRESENT = lazy_pattern(
    r"^\W*(?i:(?:(?:what|which|who|whose|where|how)\b(?! (?:happened|did|was|were|had|has|have)\b)"
    r"[^?]*?\b)?(?:is|are|am|does|do|'s)\b)[^?]*?"
    r"\b(?:that|which|who|whom|where|when|I|we|you|he|she|they|[A-Z]\w+) (?:\w+ ){1,8}?$"
)
_PAST_VERB = lazy_pattern(
    r"\b(?:was|were|had|did|got|went|took|made|said|told|met|found|saw|bought|gave|began|left|kept"
    r"|sold|won|lost|wrote|built|came|ran|heard|felt|read|\w+ed)\b",
    re.IGNORECASE,
)
_BACK = lazy_pattern(
    r"\b(?:then|(?:that|this|the same) (?:day|time|week|weekend|month|year|period|season))\b",
    re.IGNORECASE,
)


class Named(NamedTuple):
    """Days that a text names at one place.

    Attributes:
        begin, end: Character positions in the text.
        span: Days.
        edge: -1 if they are the beginning of something, such as a month, 1 if its end, else 0.
        way: Bound that is read with them ("after"). "in": within the days; `UNKNOWN`: unreadable;
            "": the words beside them decide.
        spoken: Whether they are relative to the day on which the text is said.
    """

    begin: int
    end: int
    span: Span
    edge: int = 0
    way: str = ""
    spoken: bool = False


def stated_bounds(text: str, places: Sequence[Named]) -> tuple[date | None, date | None] | None:
    """Return the first day a question asks about, and the day after the last; None is open.

    Two joined dates are one span. Several bounds hold together. None holds if they exclude each
    other or one cannot be read, because a wrong bound puts wrong memories first. Dates are no
    bounds in another sentence, in a clause that gives a reason, beside a thing whose present is
    asked for, or after "except".

    Args:
        text: Question.
        places: Days that it names, in order and without overlap.
    """
    if any(place.way == UNKNOWN for place in _conditions(text, places)):
        return None
    start = behind = None
    for place in _conditions(text, _spans_of_two(text, places)):
        if EXCEPT.search(text[: place.begin]) or _EXCEPTED.match(text, place.end):
            continue
        first, stop = _bound(text, place)
        start, behind = _later(start, first), _earlier(behind, stop)
    if start is None and behind is None:
        return None
    return None if start is not None and behind is not None and start >= behind else (start, behind)


def _later(one: date | None, other: date | None) -> date | None:
    return one if other is None else other if one is None else max(one, other)


def _earlier(one: date | None, other: date | None) -> date | None:
    return one if other is None else other if one is None else min(one, other)


def _spans_of_two(text: str, places: Sequence[Named]) -> list[Named]:
    """Join dates that are named together."""
    found = list(places[:1])
    for one, two in pairwise(places):
        joint = JOINED.fullmatch(text[one.end : two.begin])
        last = found[-1]
        between = BETWEEN.search(text[: last.begin])
        one_sided = between is None and (last.way or ONE_SIDED.search(text[: last.begin]))
        if joint is None or (joint["list"] and one_sided):
            found.append(two)
            continue
        begin = last.begin if between is None else between.start()
        span = min(last.span[0], two.span[0]), max(last.span[1], two.span[1])
        found[-1] = Named(begin, two.end, span)
    return found


def _conditions(text: str, places: Sequence[Named]) -> list[Named]:
    """Keep the dates that bound what is asked."""
    begin, asking = 0, list[tuple[int, int]]()
    for sentence in split_sentences(text):
        end = begin + len(sentence)
        if sentence.rstrip("\"'\u201d\u2019) \n").endswith("?"):
            asking.append((begin, end))
        begin = end
    kept = []
    for place in places:
        own = next(((a, b) for a, b in asking if a <= place.begin < b), None)
        # "I moved in May. What did I buy then?" still asks about that time.
        if asking and own is None and not any(_BACK.search(text[a:b]) for a, b in asking):
            continue
        before = text[own[0] if own else 0 : place.begin]
        if _SETTING.search(before):
            continue
        present = _PRESENT.search(before)
        if present and _PAST_VERB.search(before):
            continue
        kept.append(place)
    return kept


def _bound(text: str, place: Named) -> tuple[date | None, date | None]:
    """Return the first day, and the day after the last; None is open."""
    (first, behind), before = place.span, text[: place.begin]
    clock = _OF_DAY.search(before) if behind - first == DAY else None
    before = before if clock is None else before[: clock.start()]
    match, later = ONE_SIDED.search(before), _BEHIND.match(text[place.end :])
    way = place.way or ("" if match is None else str(match.lastgroup))
    named = text[place.begin : place.end]
    if (clock and clock["hour"]) or _HOUR.search(named) or _HOUR.match(text, place.end):
        # A moment of that day: earlier or later ones may be on the same day.
        way = {"before": "until", "after": "since"}.get(way, way)
    if later is not None and (later["since"] or later["until"] or way in ("", "since")):
        way = "until" if later["until"] else "since"
    if not way and (clause := _CLAUSE.search(before)) is not None:
        # It was on one of these days; earlier or later ones may be among them.
        single = behind - first == DAY
        way = clause["way"].lower()
        way = {"till": "until"}.get(way, way)
        way = way if single else {"before": "until", "after": "since"}.get(way, way)
    if way == "around":
        more = max(_AROUND, (behind - first).days // 2) * DAY
        return first - more, behind + more
    if way == "before":
        return None, behind if place.edge > 0 else first
    if way == "after":
        return first if place.edge < 0 else behind, None
    if way == "since":
        return first, None
    return (None, behind) if way == "until" else (first, behind)
