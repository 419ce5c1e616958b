"""Find dates in an English text: in words and figures, quarters, years, decades.

In other languages only dates in figures are found. Days relative to the day of the text are read in
`text._spoken`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import NamedTuple

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text._spans import (
    DAY,
    DAY_OF_MONTH,
    FIRST_MONTH,
    MONTH,
    MONTH_NUMBER,
    MONTHS,
    SEASON,
    YEAR,
    Span,
    months,
    number_of,
    one_day,
    whole_years,
)
from graphmem_torch.text.bounds import JOINED, UNKNOWN, Named
from graphmem_torch.text.tense import tense

__all__ = ["IN", "STATED_YEAR", "Scan", "dates", "scan", "stated_years"]

_NEVER = date.min, date.max  # days of a date that cannot be read
_MARGIN = 40  # characters on both sides of a cue
_NEAR = 31 * DAY  # maximum days ahead of a date without a year

_HYPHEN = lazy_pattern(r"\b(early|mid|late)-(?=\w)", re.IGNORECASE)

_CALENDAR_CUES = (*(name[:3] for name in MONTHS), *FIRST_MONTH)
_YEAR_FIGURES = lazy_pattern(r"\d{4}")
_QUARTER_CUES = ("q1", "q2", "q3", "q4", "h1", "h2")

# A number beside a noun is no day and no year: "in March 1500 people came".
_NOT_COUNTED = (
    r"(?! (?-i:(?!(?:is|was|has|does|as|us|this|his|its|always|perhaps)\b)[a-z]{2,}s"
    r"|people|men|women|children|times|km|miles|percent)\b| ?%)"
)
_ANY_YEAR = rf"(?:{YEAR}\b|[12]\d{{3}}\b{_NOT_COUNTED})"
STATED_YEAR = lazy_pattern(r"\b[12]\d{3}\b")
"""Pattern of a year in a date."""

_CALENDAR = lazy_pattern(
    rf"\b(?:(?P<day>{DAY_OF_MONTH})(?: day)?(?: of)? (?P<month>{MONTH}),?"
    rf"(?: (?:of )?(?P<year>[12]\d{{3}})\b)?"
    rf"|(?P<day2>\d\d?)(?P<by>[-/])(?P<month2>{MONTH})(?P=by)(?P<year2>[12]\d{{3}})\b"
    rf"|(?P<month3>{MONTH}) (?:the )?(?P<day3>{DAY_OF_MONTH})\b(?:,? (?P<year3>[12]\d{{3}})\b)?"
    rf"|(?P<month4>{MONTH}),?(?: of)? (?P<year4>{_ANY_YEAR})"
    rf"|(?P<season>{SEASON})(?: of)? (?P<year5>{_ANY_YEAR})|(?P<month6>{MONTH}))(?!\w)",
    re.IGNORECASE,
)
# Figures beside a date that are no time of day: its year may belong to another calendar.
_OTHER_YEAR = lazy_pattern(r",?(?: of)? ['\u2019]?\d{2,}(?!\d|:\d| ?[ap]\.?m\b)|\d", re.IGNORECASE)
_OTHER_DAY = lazy_pattern(
    r"(?<![:.,])\b\d+(?:st|nd|rd|th)?(?: of)? $|['\u2019]\d\d $", re.IGNORECASE
)

IN = lazy_pattern(
    r"\b(?:in|since|during|until|till|by|before|after|late|early|mid|around|through(?:out)?) $",
    re.IGNORECASE,
)
"""Pattern of the text before a month or a quarter that stands alone."""

# Words that need another word of a name, or a part of one, to turn a month into a name.
_OF_PART = lazy_pattern(
    r"\b(?:beginning|start|middle|end|half|third|part|rest|whole|all|most|days?|weeks?|weekends?"
    r"|month|mornings?|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|\d(?:st|nd|rd|th)?"
    r"|first|last) of(?: the month of)? $",
    re.IGNORECASE,
)
_BETWEEN = lazy_pattern(r"\bbetween $", re.IGNORECASE)
_FROM = lazy_pattern(r"\bfrom $", re.IGNORECASE)
_ONWARDS = lazy_pattern(r" (?:onwards?|on)\b", re.IGNORECASE)
# "before April left", "until June and I met": somebody of that name.
_ACTS = lazy_pattern(
    r"(?:['\u2019]s)? (?:\w+ed|was|were|is|has|had|does|did|got|went|took|made|said|says|told|tells"
    r"|met|found|saw|bought|gave|began|ran|sent|wrote|won|lost|came|comes|left|leaves|calls|will"
    r"|and (?:i|he|she|we|they))\b",
    re.IGNORECASE,
)
_DURING = lazy_pattern(r"\b(?:in|since|during|early|mid|late) $", re.IGNORECASE)
_OWNS = lazy_pattern(r"['\u2019]s \w")
_NAMES = frozenset({4, 5, 6, 8})  # April, May, June, August

# Contexts where "may", "march" or "dec" in lower case or all capitals is a month.
_WORDS = frozenset({"march", "may"})
_ON = lazy_pattern(
    r"(?:\b(?:on|by|until|till|since|from|before|after|between|to|and)(?: the)? |[-\u2013(:,] ?)$",
    re.IGNORECASE,
)
_ALONE = lazy_pattern(r"\b(?:in|since|during|early|mid|late|until|till|by|of) $", re.IGNORECASE)
_CLOSED = lazy_pattern(
    r"\W*$|[.,;:?!)\-\u2013]|\s+(?:at|and|or|to|we|he|she|they|it|you|with|in|was|were|is|as|for"
    r"|until|till|but|there|because|when|while|last|this|next)\b|\s+[12]\d{3}\b",
    re.IGNORECASE,
)
_PLURAL = lazy_pattern(rf"{_NOT_COUNTED}(?! (?-i:[a-z]+)\b)|\s+(?:at|and|or|to|in|we|i|with|was)\b")

# Dates in figures, with or without a time of the day.
_FIGURES = lazy_pattern(
    r"(?<![\w])(?<!\d[./-])(?<![.])(?:(?P<year>\d{4})(?P<by>[-/])(?P<month>\d\d?)(?P=by)"
    rf"(?P<day>\d\d?)|(?P<year4>{YEAR})[-/](?P<month4>\d\d)"
    r"|(?P<one>\d\d?)(?P<by2>[-/.])(?P<two>\d\d?)(?P=by2)(?P<year2>\d{4})"
    rf"|(?P<month3>\d\d)/(?P<year3>{YEAR}))"
    r"(?P<time>[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:[Zz]| ?[+-]\d\d:?\d\d)?)?"
    r"(?![\w-]|[./]\d|/\w)"
)
_QUARTER = lazy_pattern(
    rf"\b(?:(?P<year>{YEAR})[ /-]?)?(?:Q(?P<quarter>[1-4])|H(?P<half>[12]))"
    rf"(?:,?(?: of| in)?[ /-]?(?P<year2>{YEAR}))?\b",
    re.IGNORECASE,
)

_BEFORE_YEAR = (
    r"\b(?:in|of|by|during|since|before|after|until|till|from|between|through(?:out)?|early|mid"
    r"|late|to|and|or|around|year|(?:earlier|later) than|prior to)[ -]"
)
_YEAR = lazy_pattern(
    rf"{_BEFORE_YEAR}(?P<year>{YEAR}|1[0-8]\d\d{_NOT_COUNTED})\b(?! ?[-/:.,]?\d)"
    r"(?! ?(?:h|hours|hrs|[ap]\.?m)\b)",
    re.IGNORECASE,
)
_TENS = {
    name: 1900 + 10 * (i + 3)
    for i, name in enumerate(("thirt", "fort", "fift", "sixt", "sevent", "eight", "ninet"))
}
_CENTURIES = (
    *("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth"),
    *("eighteenth", "nineteenth", "twentieth", "twenty-first"),
)
_DECADE_CUES = ("0s", "0's", "0\u2019s", *_TENS, " century", "-century")
_DECADE = lazy_pattern(
    r"(?:\b(?P<year>(?:1\d|20)\d)0['\u2019]?s"
    r"|(?<=\bthe )(?P<before>(?:early |mid |late |mid-)?)"
    rf"(?:['\u2019]?(?P<tens>[3-9])0s|(?P<name>{'|'.join(_TENS)})ies)"
    rf"|\b(?:(?P<nth>1\d|2[01])(?:st|th)|(?P<word>{'|'.join(_CENTURIES)}))[ -]century)\b",
    re.IGNORECASE,
)

Place = tuple[int, int, Span]
"""Place of some named days in a text, and the days."""


class Scan(NamedTuple):
    """Text that is searched for days.

    Attributes:
        text: Text whose lower-casing moves no character.
        lower: Same text in lower case.
        today: Day on which it is said or asked.
        way: Side of today of dates without a year: past (-1), future (1) or either (0). None leaves
            it to the verb beside the date.
    """

    text: str
    lower: str
    today: date
    way: int | None

    def find(
        self, pattern: re.Pattern[str], cues: Sequence[str] | re.Pattern[str]
    ) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern around its cues.

        Only the surroundings of cues are searched: patterns that ignore case are slow, and most of
        a text has no dates.

        Args:
            pattern: Pattern whose matches extend less than 40 characters to both sides of a cue.
            cues: Lower-case beginnings of words, or a quick pattern; each match holds one.
        """
        text, lower = self.text, self.lower
        places = []
        if not isinstance(cues, Sequence):
            places, cues = [match.start() for match in cues.finditer(lower)], ()
        for cue in cues:
            place = lower.find(cue)
            while place >= 0:
                if not (place and cue[0].isalpha() and lower[place - 1].isalpha()):
                    places.append(place)
                place = lower.find(cue, place + len(cue))
        begin = end = 0
        for place in sorted(places):
            if place + _MARGIN <= end:
                continue
            if place - _MARGIN > end or not end:
                if end:
                    yield from pattern.finditer(text, begin, end)
                begin = max(end, place - _MARGIN)
                while begin and not text[begin - 1].isspace():  # no word is cut in two
                    begin -= 1
            end = place + _MARGIN
            while end < len(text) and not text[end].isspace():
                end += 1
        if end:
            yield from pattern.finditer(text, begin, end)


def scan(text: str, today: date, way: int | None) -> Scan:
    """Return a text to be looked through."""
    # Lower-casing must not move later characters.
    if len(lower := text.lower()) != len(text):
        text = "".join(sign if len(sign.lower()) == 1 else " " for sign in text)
        lower = text.lower()
    if "early-" in lower or "mid-" in lower or "late-" in lower:
        text = _HYPHEN.sub(r"\1 ", text)
    return Scan(text, lower, today, way)


def dates(seen: Scan) -> Iterator[Named]:
    """Yield the dates in words and in figures, and quarters, in no order.

    The way is `UNKNOWN` for days of no calendar ("31 June"), impossible years and dates of two
    readings.
    """
    yield from _in_words(seen)
    for match in seen.find(_FIGURES, _YEAR_FIGURES):
        try:
            yield Named(*match.span(), _in_figures(match))
        except (ValueError, OverflowError):
            yield Named(*match.span(), _NEVER, way=UNKNOWN)
    for match in seen.find(_QUARTER, _QUARTER_CUES):
        with suppress(ValueError, OverflowError):
            if (span := _quarter(seen, match)) is not None:
                yield Named(*match.span(), span)


def stated_years(seen: Scan) -> Iterator[Named]:
    """Yield the years, decades and centuries that a text names."""
    for match in seen.find(_YEAR, _YEAR_FIGURES):
        yield Named(match.start("year"), match.end(), whole_years(int(match["year"])))
    for match in seen.find(_DECADE, _DECADE_CUES):
        if match["nth"] or match["word"]:
            nth = int(match["nth"] or 11 + _CENTURIES.index(match["word"].lower()))
            yield Named(*match.span(), whole_years(100 * nth - 99, 100))
            continue
        first = int(match["year"] or 0) * 10 or 1900 + 10 * int(match["tens"] or 0)
        if match["name"]:
            first = _TENS[match["name"].lower()]
        begin = match.start() + len(match["before"] or "")
        # "The 1900s" may be ten years, or a hundred.
        known = first % 100 or first == 2000
        span = whole_years(first, 10) if known else _NEVER
        yield Named(begin, match.end(), span, way="" if known else UNKNOWN)


def _in_words(seen: Scan) -> Iterator[Named]:
    alone: list[Named] = []  # months, and whether they are no names
    dated: list[Named] = []
    for match in seen.find(_CALENDAR, _CALENDAR_CUES):
        if not _is_month(seen.text, match):
            continue
        span, way = _NEVER, UNKNOWN
        with suppress(ValueError, OverflowError):
            span, way = _named(seen, match), ""
        if match["month6"]:
            alone.append(Named(*match.span(), span, way=way))
        else:
            dated.append(_of_known_year(seen.text, match, Named(*match.span(), span, way=way)))
    yield from dated
    yield from (
        _of_known_year(seen.text, None, each) for each in _no_names(seen.text, alone, dated)
    )


def _of_known_year(text: str, match: re.Match[str] | None, place: Named) -> Named:
    """Return the date, or an unknown one if the figures beside it are no readable year."""
    begin, end, *_ = place
    stated = STATED_YEAR.search(text, begin, end)
    after = None if stated else _OTHER_YEAR.match(text, end)
    dayless = match is None or match["month4"]
    before = _OTHER_DAY.search(text[max(0, begin - 20) : begin]) if dayless or not stated else None
    if after is None and before is None:
        return place
    begin -= 0 if before is None else len(before[0])
    return Named(begin, end if after is None else after.end(), _NEVER, way=UNKNOWN)


def _no_names(text: str, alone: Sequence[Named], dated: Sequence[Named]) -> list[Named]:
    """Keep the months without day and year that are not names of people.

    A month stands after such a word as "in", or is joined to one that does or to a date: "in April
    and June", "May and June 2023", but not "April and June said".
    """
    every = sorted([*((each, True) for each in dated), *((each, False) for each in alone)])
    joined = [each for each, _ in every]
    certain = [is_dated or _is_told(text, each) for each, is_dated in every]
    gaps = []
    for i, (one, two) in enumerate(pairwise(joined)):
        joint = JOINED.fullmatch(text[one.end : two.begin])
        gaps.append(joint is not None)
        if joint is not None and joint["range"]:  # "from June to August", "June-August"
            dash = not joint[0].strip(" ").isascii() or "-" in joint[0]
            certain[i] |= dash or _FROM.search(text[max(0, one.begin - 6) : one.begin]) is not None
    for i, gap in enumerate(gaps):
        certain[i + 1] |= gap and certain[i]
    for i in reversed(range(len(gaps))):
        certain[i] |= gaps[i] and certain[i + 1]
    return [
        each
        for (each, is_dated), is_month in zip(every, certain, strict=True)
        if is_month and not is_dated
    ]


def _is_told(text: str, place: Named) -> bool:
    """Return whether the words around a month alone show that it is one."""
    before = text[max(0, place.begin - 40) : place.begin]
    if _BETWEEN.search(before) or _OF_PART.search(before):
        return True
    if _FROM.search(before):
        return _ONWARDS.match(text, place.end) is not None
    if IN.search(before) is None or _DURING.search(before):
        return IN.search(before) is not None
    named = MONTH_NUMBER[text[place.begin : place.end].lower().rstrip(".")] in _NAMES
    return not (named and (_OWNS.match(text, place.end) or _ACTS.match(text, place.end)))


def _is_month(text: str, match: re.Match[str]) -> bool:
    """Return whether the letters of a match of `_CALENDAR` are of a month, not of another word."""
    key = next(
        (key for key in ("month", "month2", "month3", "month4", "month6") if match[key]), None
    )
    if key is None:  # a season of a year
        return True
    name = match[key].rstrip(".")
    if name[0].isupper() and not (name.isupper() and len(name) > 1):
        return True
    if name.lower() in MONTHS and name.lower() not in _WORDS:
        return True
    before = text[max(0, match.start() - 20) : match.start()]
    if key == "month2" or match["year"] or match["year3"]:
        return True
    if key == "month4":
        return _ALONE.search(before) is not None or not before.strip() or "," in before[-2:]
    if key == "month6":
        return _ALONE.search(before) is not None and _CLOSED.match(text, match.end()) is not None
    ordinal = not match["day" if key == "month" else "day3"].isdigit()
    if key == "month3":
        return (ordinal or _ON.search(before) is not None) and _PLURAL.match(
            text, match.end()
        ) is not None
    return (ordinal or _ON.search(before) is not None or not before) and _CLOSED.match(
        text, match.end()
    ) is not None


def _named(seen: Scan, match: re.Match[str]) -> Span:
    """Return the days of a match of `_CALENDAR`.

    Raises:
        ValueError: No such day exists.
    """
    parts = match.groupdict()
    if parts["season"]:
        return months(int(parts["year5"]), FIRST_MONTH[parts["season"].lower()], 3)
    name = next(parts[key] for key in parts if key.startswith("month") and parts[key])
    month = MONTH_NUMBER[name.rstrip(".").lower()]
    day = next((number_of(parts[key]) for key in ("day", "day2", "day3") if parts[key]), None)
    year = next((int(parts[key]) for key in parts if key.startswith("year") and parts[key]), None)
    if year is None:
        way = seen.way
        if way is None:
            way = tense(seen.text, *match.span(), participles=False)
        year = _year_of(seen.today, month, day, way)
    return months(year, month) if day is None else one_day(date(year, month, day))


def _year_of(today: date, month: int, day: int | None, way: int) -> int:
    """Return the year of a date that is named without one: the latest begun, or one about to begin.

    Args:
        today: Day on which it is named.
        month: Month, from 1.
        day: Day; None for the whole month.
        way: Side of today: -1 past, 1 future, 0 unknown.
    """
    year = today.year
    if (month, day) == (2, 29):
        leap = [each for each in range(year - 8, year + 9) if _is_leap(each)]
        ahead = [each for each in leap if date(each, 2, 29) > today]
        over = [each for each in leap if date(each, 2, 29) <= today]
        soon = ahead and (way > 0 or (way == 0 and date(ahead[0], 2, 29) - today <= _NEAR))
        return ahead[0] if soon else over[-1]
    first, stop = months(year, month) if day is None else one_day(date(year, month, day))
    if way > 0:
        return year + (stop <= today)
    return year - (first - today > (DAY * 0 if way < 0 else _NEAR))


def _is_leap(year: int) -> bool:
    with suppress(ValueError):
        return date(year, 2, 29).day == 29
    return False


def _quarter(seen: Scan, match: re.Match[str]) -> Span | None:
    """Return the days of a match of `_QUARTER`; None if it is no quarter."""
    half, stated = match["half"], match["year"] or match["year2"]
    month = 6 * int(half) - 5 if half else 3 * int(match["quarter"]) - 2
    if stated:
        return months(int(stated), month, 6 if half else 3)
    before = seen.text[max(0, match.start() - 20) : match.start()]
    if half or not IN.search(before) or match[0][0] != "Q":
        return None
    year = seen.today.year
    return months(year - (date(year, month, 1) > seen.today), month, 3)


def _in_figures(match: re.Match[str]) -> Span:
    """Return the days of a match of `_FIGURES`.

    Raises:
        ValueError: No such day or time exists, or two readings are possible.
    """
    parts = match.groupdict()
    year = int(next(parts[key] for key in ("year", "year2", "year3", "year4") if parts[key]))
    if parts["year4"] and "-" in match[0]:
        raise ValueError  # "2023-04": April, or two years
    if month_alone := parts["month3"] or parts["month4"]:
        return months(year, date(year, int(month_alone), 1).month)
    if parts["one"]:
        day, month = int(parts["one"]), int(parts["two"])
        # With points the day comes first; otherwise only figures above 12 decide.
        if parts["by2"] != "." and day <= 12:
            if month <= 12 and month != day:
                raise ValueError
            day, month = month, day
    else:
        day, month = int(parts["day"]), int(parts["month"])
    if parts["time"]:
        # The day in UTC, like all times.
        clock = parts["time"][1:].upper().replace(" ", "")
        moment = datetime.fromisoformat(f"{date(year, month, day)}T{clock}")
        return one_day((moment.astimezone(UTC) if moment.tzinfo else moment).date())
    return one_day(date(year, month, day))
