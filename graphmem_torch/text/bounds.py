"""What an English question says of dates in it: up to one, from one on, between two, or nothing.

Where the dates are and which days they name is found in `text.times`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import NamedTuple

from graphmem_torch.text.sentences import split_sentences

__all__ = ["JOINED", "Named", "Span", "stated_bounds"]

Span = tuple[date, date]
"""The first day, and the one behind the last."""

_DAY = timedelta(days=1)
_AROUND = 3  # days to both sides of a single one that "around" takes in

JOINED = re.compile(
    r"(?P<list>,? (?:and|or) |, )(?:in |on )?(?:the )?"
    r"|(?P<range>,? (?:to|until|till|through|up to) | ?[-\u2013\u2014] ?)(?:the )?",
    re.IGNORECASE,
)
"""What stands between two dates that are named together."""

_BETWEEN = re.compile(r"\b(?:between|from)(?: the)? $", re.IGNORECASE)
_BOUND = re.compile(
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
_BEHIND = re.compile(
    r",? (?:or (?:any ?time )?(?P<since>later|after(?:wards)?)|or (?:any ?time )?(?P<until>earlier"
    r"|before)|(?P<on>on(?= ?\W|$)|onwards?\b|forwards?\b))",
    re.IGNORECASE,
)
# "after she moved to Oslo in May": the date is that of a clause, the bound what happened then.
_CLAUSE = re.compile(
    r"\b(?P<way>[Bb]efore|[Aa]fter|[Ss]ince|[Uu]ntil|[Tt]ill)"
    r" (?:(?:I|we|you|he|she|they|it)\b|[A-Z])"
    r"[^.,;:?!]* (?:in|on|during|at)(?: the)? $"
)
# A clause that gives a reason or a setting, and not what is asked for.
_SETTING = re.compile(
    r"(?:^|[,;:] ?|\band )(?:given|because|considering|although|(?:even )?though|now that|knowing"
    r"|as (?:i|we|you|he|she|they|it)\b|assuming|seeing that|while)\b[^,;:?!]*$",
    re.IGNORECASE,
)
# "What is the name of the dog that I found in May": it is asked what is, of what was.
_PRESENT = re.compile(
    r"^\W*(?i:(?:(?:what|which|who|whose|where|how)\b(?! (?:happened|did|was|were|had|has|have)\b)"
    r"[^?]*?\b)?(?:is|are|am|does|do|'s)\b)[^?]*?"
    r"\b(?:that|which|who|whom|where|when|I|we|you|he|she|they|[A-Z]\w+) (?:\w+ ){1,8}?$"
)
_PAST_VERB = re.compile(
    r"\b(?:was|were|had|did|got|went|took|made|said|told|met|found|saw|bought|gave|began|left|kept"
    r"|sold|won|lost|wrote|built|came|ran|heard|felt|read|\w+ed)\b",
    re.IGNORECASE,
)
_BACK = re.compile(
    r"\b(?:then|(?:that|this|the same) (?:day|time|week|weekend|month|year|period|season))\b",
    re.IGNORECASE,
)


class Named(NamedTuple):
    """Some days that a text names.

    Attributes:
        begin, end: Where in the text.
        span: The days.
        edge: -1 where they are the beginning of something, as of a month, 1 where its end, else 0.
    """

    begin: int
    end: int
    span: Span
    edge: int = 0


def stated_bounds(text: str, places: Sequence[Named]) -> tuple[date | None, date | None] | None:
    """The days that a question asks about: the first, and the one behind the last; None: open.

    Two dates that are joined are one span. Of several bounds all hold; where they exclude each
    other, the narrowest does, of equal ones the first. A date beside what is asked is no bound: one
    in another sentence, in a clause that gives a reason, or of a thing that is asked what it is.

    Args:
        text: The question.
        places: The days that it names, in their order; none overlaps another.
    """
    asked = _conditions(text, _spans_of_two(text, places))
    bounds = [_bound(text, place) for place in asked]
    if not bounds:
        return None
    start, behind = min(bounds, key=_length)
    for first, stop in bounds:
        inner = (_later(start, first), _earlier(behind, stop))
        if inner[0] is None or inner[1] is None or inner[0] < inner[1]:
            start, behind = inner
    return start, behind


def _length(bound: tuple[date | None, date | None]) -> timedelta:
    start, behind = bound
    return timedelta.max if start is None or behind is None else behind - start


def _later(one: date | None, other: date | None) -> date | None:
    return one if other is None else other if one is None else max(one, other)


def _earlier(one: date | None, other: date | None) -> date | None:
    return one if other is None else other if one is None else min(one, other)


def _spans_of_two(text: str, places: Sequence[Named]) -> list[Named]:
    """Those with each two that are joined as one."""
    found = list(places[:1])
    for one, two in pairwise(places):
        joint = JOINED.fullmatch(text[one.end : two.begin])
        last = found[-1]
        between = _BETWEEN.search(text[: last.begin])
        one_sided = between is None and _BOUND.search(text[: last.begin])
        if joint is None or (joint["list"] and one_sided):
            found.append(two)
            continue
        begin = last.begin if between is None else between.start()
        span = min(last.span[0], two.span[0]), max(last.span[1], two.span[1])
        found[-1] = Named(begin, two.end, span)
    return found


def _conditions(text: str, places: Sequence[Named]) -> list[Named]:
    """Those that say of what is asked when it was."""
    begin, asking = 0, list[tuple[int, int]]()
    for sentence in split_sentences(text):
        end = begin + len(sentence)
        if sentence.rstrip("\"'\u201d\u2019) \n").endswith("?"):
            asking.append((begin, end))
        begin = end
    kept = []
    for place in places:
        own = next(((a, b) for a, b in asking if a <= place.begin < b), None)
        # "I moved in May. What did I buy then?" asks of that time all the same.
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
    """From when on, and until before when."""
    (first, behind), before = place.span, text[: place.begin]
    match, later = _BOUND.search(before), _BEHIND.match(text[place.end :])
    way = "" if match is None else str(match.lastgroup)
    if later is not None and (later["since"] or later["until"] or way in ("", "since")):
        way = "until" if later["until"] else "since"
    if not way and (clause := _CLAUSE.search(before)) is not None:
        # It was on some day of these; what was before or after may lie there, too.
        single = behind - first == _DAY
        way = clause["way"].lower()
        way = {"till": "until"}.get(way, way)
        way = way if single else {"before": "until", "after": "since"}.get(way, way)
    if way == "around":
        more = max(_AROUND, (behind - first).days // 2) * _DAY
        return first - more, behind + more
    if way == "before":
        return None, behind if place.edge > 0 else first
    if way == "after":
        return first if place.edge < 0 else behind, None
    if way == "since":
        return first, None
    return (None, behind) if way == "until" else (first, behind)
