"""Times: every form the input may give them in, and those that a text tells of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import NamedTuple

from graphmem_torch.errors import InputError
from graphmem_torch.text.bounds import (
    EXCEPT,
    JOINED,
    ONE_SIDED,
    UNKNOWN,
    Named,
    Span,
    stated_bounds,
)

__all__ = [
    "FIRST_SECOND",
    "LAST_SECOND",
    "MONTHS",
    "DatedPlace",
    "TimeLike",
    "asked_window",
    "dated_places",
    "parse_span",
    "parse_time",
    "told_days",
    "undated",
]

TimeLike = float | str | date
"""A moment in any form that `parse_time` takes; a `datetime` is a `date`."""

_NAMES = "january february march april may june july august september october november december"
MONTHS = tuple(_NAMES.split())
"""Names of the months in lower case."""

_MONTH_NUMBER = {name[:length]: i + 1 for i, name in enumerate(MONTHS) for length in (3, len(name))}
_MONTH_NUMBER["sept"] = 9

# LoCoMo writes "1:56 pm on 8 May, 2023"; the date may stand alone.
_SPOKEN = re.compile(
    r"(?:(?P<hour>\d{1,2}):(?P<minute>\d{2})\s*(?P<half>[ap])\.?m\.?\s+on\s+)?"
    r"(?P<day>\d{1,2})\s+(?P<month>[a-z]+)\.?,?\s+(?P<year>\d{4})",
    re.IGNORECASE,
)
_PART_OF_DATE = re.compile(r"\d{4}(?:-\d\d)?", re.ASCII)
FIRST_SECOND, LAST_SECOND = -62_135_596_800.0, 253_402_300_800.0
"""Years 1 to 9999, what a calendar can show; the last is excluded."""
_FORMS = (
    'seconds since the epoch, a datetime, ISO 8601 ("2023-05", "2023-05-08T13:56:00+02:00"), or '
    '"1:56 pm on 8 May, 2023"; without an offset it is UTC'
)


def parse_time(value: TimeLike, name: str = "time", *, where: str | None = None) -> float:
    """Seconds since the epoch, UTC.

    Args:
        value: Seconds since the epoch; a `datetime`; a `date`, for its midnight; an ISO 8601 date
            or date and time, a year or a month for its first instant; or the form of LoCoMo,
            "1:56 pm on 8 May, 2023". What names no offset, a naive `datetime` too, is UTC: answers
            do not depend on the machine.
        name: Name of the value, for messages.
        where: File and line it came from, for messages.

    Raises:
        InputError: For anything else, naming the accepted forms, and for a time outside the years 1
            to 9999.
    """
    if isinstance(value, Real | Decimal) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:  # Python does not write what has more than 4,300 digits
            value = seconds = math.inf
    else:
        text = value.isoformat() if isinstance(value, date) else value
        text = text.strip() if isinstance(text, str) else ""
        moment = _iso(text) or _spoken(text)
        if moment is None:
            raise InputError(
                f"{name}: expected a time, got {value!r:.60}; give {_FORMS}", where=where
            )
        # An offset can carry a moment over the edge of the calendar.
        seconds = moment.timestamp()
    if not FIRST_SECOND <= seconds < LAST_SECOND:  # NaN fails it, too
        raise InputError(
            f"{name}: expected a time in seconds since the epoch, or a date, in the years 1 to "
            f"9999 UTC, got {value!r:.60}; divide milliseconds by 1000",
            where=where,
        )
    return seconds


def parse_span(value: object, name: str = "between") -> tuple[float, float]:
    """Start and end in seconds since the epoch, UTC.

    Args:
        value: Two times as `parse_time` takes them; None or an infinite number for an open end.
        name: Name of the value, for messages.

    Raises:
        InputError: No two times, or an end before the start.
    """
    ends = value if isinstance(value, (tuple, list)) else ()
    if len(ends) != 2:
        raise InputError(
            f"{name}: expected a start and an end, got {value!r:.80}; give two times, None for an "
            "open end"
        )
    start, end = (
        bound if each is None or each == bound else parse_time(each, name)
        for each, bound in zip(ends, (-math.inf, math.inf), strict=True)
    )
    if not start <= end:
        raise InputError(
            f"{name}: expected a start before the end, got {value!r:.120}; swap the two"
        )
    return start, end


def _iso(text: str) -> datetime | None:
    part = _PART_OF_DATE.fullmatch(text)
    try:
        moment = datetime.fromisoformat(text if part is None else f"{text}-01-01"[:10])
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        return None


def _spoken(text: str) -> datetime | None:
    match = _SPOKEN.fullmatch(text)
    if match is None:
        return None
    month = _MONTH_NUMBER.get(match["month"].lower())
    hour = 0
    if match["hour"]:
        hour = int(match["hour"])
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"].lower() == "p" else 0)
    try:
        day = datetime(int(match["year"]), month or 0, int(match["day"]), tzinfo=UTC)
        return day.replace(hour=hour, minute=int(match["minute"] or 0))
    except ValueError:
        return None


# What follows reads English; of other languages it finds dates in figures alone.
_LONGEST = 100  # days of a span that still tells one thing from another
_EPOCH = date(1970, 1, 1).toordinal()
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_WEEKDAYS = {name: i for i, name in enumerate(("mon", "tue", "wed", "thu", "fri", "sat", "sun"))}
_FIRST_MONTH = {"spring": 3, "summer": 6, "fall": 9, "autumn": 9, "winter": 12}
_NUMBER = dict.fromkeys(("a", "an", "one"), 1) | dict.fromkeys(("two", "couple"), 2)
_NUMBER |= dict.fromkeys(("three", "few", "several"), 3)
_NUMBER |= {"four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_VAGUE = frozenset({"few", "several"})
_NTH = {name: i for i, name in enumerate(("first", "second", "third", "fourth", "fifth"))}
_NTH |= {name: i for i, name in enumerate(("1st", "2nd", "3rd", "4th", "5th"))}
_NTH |= {"last": -1, "final": -1}
_FRACTION = {"half": 2, "third": 3, "quarter": 4}
_THIRD = dict.fromkeys(("early", "beginning", "start"), 0) | dict.fromkeys(("mid", "middle"), 1)
_THIRD |= dict.fromkeys(("late", "end"), 2)
_EDGE = {"beginning": -1, "start": -1, "end": 1}
_LARGER = {"day": 7, "week": 31, "month": 366}  # days of the next larger unit

_M = rf"(?:{'|'.join(sorted(_MONTH_NUMBER, key=len, reverse=True))})\b\.?"
_W = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_N = rf"(?:(?:a )?(?:couple(?: of)?|few|several)|\d{{1,3}}|{'|'.join(_NUMBER)})"
_S = "|".join(_FIRST_MONTH)
_Y = r"(?:19|20)\d\d"
_D = r"\d{1,2}(?:st|nd|rd|th)?"
_CALENDAR = re.compile(
    rf"\b(?:(?P<iso>{_Y}-\d\d-\d\d)|(?P<day>{_D})(?: of)? (?P<month>{_M}),?(?: (?P<year>{_Y}))?"
    rf"|(?P<month2>{_M}) (?P<day2>{_D})\b(?:,? (?P<year2>{_Y}))?|(?P<month3>{_M}),?(?: of)?"
    rf" (?P<year3>{_Y})|(?P<season>{_S})(?: of)? (?P<year4>{_Y})|(?P<month5>{_M}))(?!\w)",
    re.IGNORECASE,
)
# "two weeks before", "the Monday after": what moves the day that is named next.
_MOVED = re.compile(
    rf"\b(?:(?P<number>{_N}) )?(?P<unit>day|week|weekend|month|{_W})s?"
    r" (?P<way>before|preceding|after|following) $",
    re.IGNORECASE,
)
_IN = re.compile(
    r"\b(?:in|of|since|during|until|till|by|before|after|late|early|mid|from|to|and|or|between"
    r"|around|through(?:out)?) $",
    re.IGNORECASE,
)
_SPOKEN_OF = re.compile(
    r"\b(?:(?P<near>today|tonight|this (?:morning|afternoon|evening)|yesterday|last night|tomorrow)"
    rf"|(?P<number>{_N}) (?P<unit>day|week|weekend|month)s? ago"
    rf"|the (?:last|past) (?P<number2>{_N}) (?P<unit2>day|week|month)s?"
    rf"|(?P<which>last|past|previous|this|next) (?P<unit3>week|weekend|month|{_S}|{_W}|{_M}))\b",
    re.IGNORECASE,
)
# Where a match may begin, but for a number before: looking for these is ten times as quick.
_CALENDAR_WORDS = (*(name[:3].capitalize() for name in MONTHS), "19", "20")
_SPOKEN_WORDS = (
    *("today", "tonight", "yesterday", "tomorrow", "this ", "next ", "previous "),
    *("last ", "past ", " ago"),
)
_BEFORE_MONTH = re.compile(r"\b\d{1,2}(?:st|nd|rd|th)?(?: of)? $", re.IGNORECASE)
_BEFORE_YEAR = re.compile(rf"\b(?:{_S})(?: of)? $", re.IGNORECASE)
_BEFORE_AGO = re.compile(rf"\b{_N} (?:day|week|weekend|month)s?$")
_BEFORE_LAST = re.compile(r"\bthe $")
_DATED = 10_000  # characters of a text in which the days that it tells of are looked for
_BEFORE = 30  # characters that any of these may take
# "the first weekend of", "late", "the week of": what of the days that are named next.
_PART = re.compile(
    rf"\b(?:the )?(?:(?:(?:very )?(?P<nth>{'|'.join(_NTH)})"
    rf" (?P<unit>{'|'.join(_FRACTION)}|week|weekend|{_W})|(?P<whole>week|weekend)) (?:of|in)"
    rf"|(?P<third>{'|'.join(_EDGE)}|middle)(?: part)? of"
    r"|(?P<about>early|mid|late)(?: part of| in)?)"
    r"(?: the)?(?: month of)?(?: the)? $",
    re.IGNORECASE,
)
# "the three weeks after", "the days before": the whole time beside the days that are named next.
_STRETCH = re.compile(
    rf"\b(?:the|within|over|during|these) (?:first |last |next |following )?(?:(?P<number>{_N}) )?"
    r"(?P<unit>day|week|month)(?P<many>s?) (?P<way>before|preceding|after|following)(?: the)? $",
    re.IGNORECASE,
)
# "3 to 10 May", "May 3-10, 2023": the other day of a span in one month.
_DAY_BEFORE = re.compile(
    rf"\b(?:between |from )?(?:the )?(?P<day>{_D})(?: ?[-\u2013\u2014] ?"
    r"| (?:and|to|until|till|through) (?:the )?)$",
    re.IGNORECASE,
)
_OF_MONTH = re.compile(rf"\b{_M} $", re.IGNORECASE)
_DAY_BEHIND = re.compile(
    rf"(?: ?[-\u2013\u2014] ?| (?:and|to|until|till|through) (?:the )?)(?P<day>{_D})\b(?!:)"
    rf"(?: of)?(?! (?:{_M}))(?:,? (?P<year>{_Y}))?",
    re.IGNORECASE,
)
_DETERMINED = re.compile(r"\b(?:the )?(?:very )?(?:last|first|next) $|\bthe $", re.IGNORECASE)
_STATED_YEAR = re.compile(rf"\b{_Y}\b")
_YEAR_LONG = timedelta(days=365)
_NESTED = 3  # "the first week of the month after May"
_LOOK = 60  # characters that what stands before a date may take
_SPOKEN_YEAR = re.compile(
    rf"\b(?:(?P<number>{_N}) years? ago|the year (?P<second>before) last"
    rf"|(?:the )?(?:last|past) (?P<number2>{_N}) years"
    r"|(?P<which>last|past|previous|this|next) year)\b"
    r"|(?<= of )(?:the(?: current)?|this) (?P<unit>week|month|year)\b"
    r"(?! (?:of|before|after|in|that))",
    re.IGNORECASE,
)
_HYPHEN = re.compile(r"\b(early|mid|late)-(?=[A-Z12])", re.IGNORECASE)
_SMALL_MONTH = re.compile(
    rf"(?<=\b)(?:{'|'.join(name for name in MONTHS if name not in ('march', 'may'))})\b"
    rf"|(?<=\d )(?:{_M})|\b(?:{_M})(?= \d)|(?<=\b(?:in|of) )(?:march|may)\b(?! i\b)"
)
_OVER = re.compile(
    r"\b(?:did|was|were|have|has|had|been|(?:last|past) (?:\w+ )?(?:day|week|month)s?)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(
    r"\b(?i:in|of|by|during|since|before|after|until|till|from|between|through(?:out)?|early|mid|late"
    rf"|to|and|or|around|year|(?:earlier|later) than|prior to)[ -](?P<year>{_Y})\b(?! ?[-/:.,]?\d)"
)
# Dates in figures, with or without a time of the day.
_FIGURES = re.compile(
    r"(?<![\w./-])(?:(?P<year>\d{4})(?P<by>[-/])(?P<month>\d\d?)(?P=by)(?P<day>\d\d?)"
    rf"|(?P<year4>{_Y})[-/](?P<month4>\d\d)"
    r"|(?P<one>\d\d?)(?P<by2>[-/.])(?P<two>\d\d?)(?P=by2)(?P<year2>\d{4})"
    rf"|(?P<month3>\d\d)/(?P<year3>{_Y}))"
    r"(?P<time>[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?![\w/-]|\.\d)"
)
_QUARTER = re.compile(
    rf"\b(?:(?P<year>{_Y})[ -]?)?(?:Q(?P<quarter>[1-4])|H(?P<half>[12]))"
    rf"(?:,?(?: of| in)?[ -]?(?P<year2>{_Y}))?\b"
)
_BARE_WEEKDAY = re.compile(
    rf"(?:(?<=\bsince )|(?<=\bafter ))(?P<day>{_W})\b(?!,? (?:the )?(?:\d|{_M}))", re.IGNORECASE
)
# "more than two weeks ago", "within 3 days of": what lies beyond a distance, or not so far.
_BEYOND = (
    r"\b(?:(?P<least>at least|a minimum of|(?:not|no) (?:less|fewer|sooner|earlier) than)"
    r"|(?P<less>(?:not|no) (?:more|longer|later|greater|further) than|less than|fewer than"
    r"|(?:not )?under|not over|at (?:the )?most|a maximum of|within)"
    r"|(?P<more>more than|longer than|greater than|further than|over|upwards of|beyond))"
    rf" (?P<number>{_N}) (?P<unit>day|week|month|year)s?"
)
_BEYOND_AGO = re.compile(rf"{_BEYOND} (?:ago|back)\b", re.IGNORECASE)
_BEYOND_DATE = re.compile(
    rf"{_BEYOND} (?:(?P<before>before|preceding|prior to|ahead of)|(?P<after>after|following|past)"
    r"|of|from|around|either side of)(?: the)? $",
    re.IGNORECASE,
)
_OR_SO_AGO = re.compile(
    rf"\b(?:{_N}(?: (?:or|to|and) | ?[-\u2013\u2014] ?)(?:{_N}|more|fewer)"
    r" (?:day|week|weekend|month|year)s?|(?:day|week|month|year)s? or (?:more|longer|less|two|so))"
    r" ago\b",
    re.IGNORECASE,
)
_LAST_FEW = re.compile(
    rf"\b(?:last|past|previous|preceding) (?P<number>(?!few|several){_N})"
    r" (?P<unit>day|week|month)s?\b",
    re.IGNORECASE,
)
# Figures beside a date that are none of a time of the day: its year may be of another kind.
_OTHER_YEAR = re.compile(r",?(?: of)? ['\u2019]?\d{2,}(?!\d|:\d| ?[ap]\.?m\b)|\d", re.IGNORECASE)
_OTHER_DAY = re.compile(r"(?<![:.,])\b\d+(?:st|nd|rd|th)?(?: of)? $|['\u2019]\d\d $", re.IGNORECASE)
_SOME_YEAR = re.compile(
    r"\b(?:the year (?:before|after)(?! last)|that year|the (?:same|following) year)\b",
    re.IGNORECASE,
)
_OF_YEAR = re.compile(r",? (?:(?:of|in|on|during|over|for|back) )*(?:the )?", re.IGNORECASE)
_NEVER = date.min, date.max  # the days of what cannot be read
_Place = tuple[int, int, Span]  # where in a text it begins and ends


def told_days(text: str, said: float | None) -> tuple[int, int]:
    """The narrowest span of days that an English text tells of: the first, and the one behind it.

    Dates ("on 8 May, 2023", "in July"), and what is told from where the text stands ("yesterday",
    "last Friday", "two weeks ago", "the Monday before July 24, 2023"). A month without a year is
    the latest that has begun. Spans beyond 100 days, as years are, tell nothing apart; nor do
    those that end outside of the years 1 to 9999.

    Args:
        text: What is said, or asked.
        said: When, seconds since the epoch, UTC; None or NaN: nobody knows.

    Returns:
        Days since the epoch; (0, 0) where there is no such span.
    """
    text = text[:_DATED]  # one that names thousands of dates tells of none of them
    today = None if said is None or math.isnan(said) else _date_of(said)
    best = (0, 0)
    for _, _, (first, behind) in _spans(text, today):
        start, end = first.toordinal() - _EPOCH, behind.toordinal() - _EPOCH
        if 0 < end - start <= _LONGEST and (best == (0, 0) or end - start < best[1] - best[0]):
            best = start, end
    return best


def asked_window(text: str, asked: float | None) -> tuple[float, float] | None:
    """The window of time that an English question is about, both ends included.

    A date or a span as in `told_days`, years too ("in 2022"), or a part of one ("the first weekend
    of August", "late 2022", "the week of 23 August"); what lies before or after one ("before May
    2023", "since Monday", "in the weeks after 3 June"), or between two; what is nearer or farther
    than a distance ("more than two weeks ago", "within 3 days of 5 May"). A month without a year is
    that of the year named beside it ("March last year"). Dates in figures count where they can be
    one day alone: 15/06/2023, 12.9.2023 (day first), 2023-09-11T10:00; Q3 2023 is a quarter. A day
    is the least: a time of the day takes in all of it. `stated_bounds` says
    what several come to, and which are beside what is asked. What is reckoned from today and is not
    over, as "next week" or "tonight", is no window unless the question tells of the past: who asks
    so asks for advice.

    Args:
        text: The question.
        asked: When, seconds since the epoch, UTC; None or NaN: nobody knows.

    Returns:
        Seconds since the epoch, UTC, infinite for an open end; None where it names no date,
        or one that cannot be read.
    """
    today = None if asked is None or math.isnan(asked) else _date_of(asked)
    text = _with_capitals(text)
    bounds = stated_bounds(text, _asked_places(text, today))
    return None if bounds is None else _seconds(*bounds)


class DatedPlace(NamedTuple):
    """Where an English text names days, and which.

    Attributes:
        begin, end: Characters `text[begin:end]`.
        first, behind: The first day, and the one after the last.
        spoken: Whether it is told from where the text stands ("last Friday"), and is no date.
    """

    begin: int
    end: int
    first: date
    behind: date
    spoken: bool


def dated_places(text: str, said: float | None) -> list[DatedPlace]:
    """Return the places that `told_days` reads, in order; of two that overlap the longer.

    Args:
        text: Text that is said.
        said: When, seconds since the epoch, UTC. None or NaN: nobody knows, and only dates with a
            year are found.
    """
    today = None if said is None or math.isnan(said) else _date_of(said)
    # Lower-casing must not move what comes after.
    text = "".join(sign if len(sign.lower()) == 1 else " " for sign in text)
    found = [DatedPlace(*place[:2], *place[2], False) for place in _calendar_spans(text, today)]
    if today is not None:
        found += [DatedPlace(*place[:2], *place[2], True) for place in _spoken_spans(text, today)]
    found.sort(key=lambda place: (place.begin, -place.end))
    kept: list[DatedPlace] = []
    for place in found:
        if not kept or place.begin >= kept[-1].end:
            kept.append(place)
    return kept


def undated(text: str) -> str:
    """An English question without the dates in it; its other words stand where they stood."""
    # Of any day: only where they stand is asked.
    for begin, end, *_ in _asked_places(_with_capitals(text), _date_of(0.0), all=True):
        text = text[:begin] + " " * (end - begin) + text[end:]
    return text


def _seconds(first: date | None, behind: date | None) -> tuple[float, float]:
    start, stop = (
        None if day is None else (day.toordinal() - _EPOCH) * 86_400.0 for day in (first, behind)
    )
    last = math.inf if stop is None else math.nextafter(stop, -math.inf)
    return -math.inf if start is None else start, last


def _asked_places(text: str, today: date | None, *, all: bool = False) -> list[Named]:
    """The days that a question names, in their order; of those that overlap the longest.

    Args:
        text: The question.
        today: The day on which it is asked; None: nobody knows.
        all: Whether days that are not over are named as well, where the question does not tell of
            the past.
    """
    dates = [Named(*each) for each in (*_dates(text, today), *_years(text))]
    calendar = _longest([*dates, *_unreadable(text, today)])
    places = [*_narrowed(text, calendar)]
    if today is not None:
        over = all or _OVER.search(text) is not None
        years = [Named(*each) for each in _spoken_years(text, today)]
        places = _of_stated_years(text, places, years)
        places += [*_distances(text, today), *_since_weekday(text, today, over)]
        for each in _narrowed(
            text, [*(Named(*each) for each in _spoken_spans(text, today)), *years]
        ):
            first, behind = each.span
            if behind <= today or all:
                places.append(each)
            elif (
                over and first <= today
            ):  # so there is a tomorrow: the calendar goes on to `behind`
                places.append(each._replace(span=(first, today + _DAY)))
    places = _longest(places)
    for i in range(len(places) - 1):
        one, two = places[i : i + 2]
        if not one.way and not two.way and JOINED.fullmatch(text[one.end : two.begin]):
            places[i : i + 2] = _of_one_year(text, *places[i : i + 2])
    return places


def _dates(text: str, today: date | None) -> Iterator[_Place]:
    """Dates in words and in figures, and quarters; those that are of no calendar are missing."""
    yield from _named_spans(text, today)
    if not any(map(str.isdigit, text)):
        return
    for match in _FIGURES.finditer(text):
        with suppress(ValueError, OverflowError, InputError):
            yield *match.span(), _in_figures(match)
    for match in _QUARTER.finditer(text):
        stated = match["year"] or match["year2"]
        half = match["half"]
        month = 6 * int(half) - 5 if half else 3 * int(match["quarter"]) - 2
        if stated:
            year = int(stated)
        elif today is not None and not half and _IN.search(text[: match.start()]):
            year = today.year - (date(today.year, month, 1) > today)
        else:
            continue
        with suppress(ValueError, OverflowError):
            yield *match.span(), _months(year, month, 6 if half else 3)


def _in_figures(match: re.Match[str]) -> Span:
    """The days of a match of `_FIGURES`.

    Raises:
        ValueError: There is no such day, or it may be either of two.
        InputError: There is no such time of the day.
    """
    parts = match.groupdict()
    year = int(next(parts[key] for key in ("year", "year2", "year3", "year4") if parts[key]))
    if parts["one"]:
        day, month = int(parts["one"]), int(parts["two"])
        # With points the day stands first; else only figures beyond 12 tell them apart.
        if parts["by2"] != "." and day <= 12:
            if month <= 12 and month != day:
                raise ValueError
            day, month = month, day
    elif month_alone := parts["month3"] or parts["month4"]:
        first = date(year, int(month_alone), 1)
        return _months(year, first.month)
    else:
        day, month = int(parts["day"]), int(parts["month"])
    if parts["time"]:
        return _days(_date_of(parse_time(f"{date(year, month, day)}T{parts['time'][1:]}")))
    return _days(date(year, month, day))


def _unreadable(text: str, today: date | None) -> Iterator[Named]:
    """Dates of no calendar, of a year that is none, and those that may be either of two days."""
    for figures in _FIGURES.finditer(text):
        try:
            _in_figures(figures)
        except (ValueError, OverflowError, InputError):
            yield Named(*figures.span(), _NEVER, way=UNKNOWN)
    end = 0
    for begin in _begins(text, _CALENDAR_WORDS):
        match = _CALENDAR.match(text, begin)
        if match is None or begin < end:
            continue
        end = match.end()
        try:
            # Where nobody knows the year, it may be a leap year.
            if _named(match, text, today or date(2000, 12, 31)) is None:
                continue
        except (ValueError, OverflowError):
            yield Named(begin, end, _NEVER, way=UNKNOWN)
            continue
        stated = _STATED_YEAR.search(match[0])
        behind = None if stated else _OTHER_YEAR.match(text, end)
        dayless = match["month3"] or match["month5"]
        before = _OTHER_DAY.search(text[:begin]) if dayless or not stated else None
        if behind or before:
            begin = begin if before is None else before.start()
            yield Named(begin, end if behind is None else behind.end(), _NEVER, way=UNKNOWN)


def _of_stated_years(text: str, places: list[Named], spoken: list[Named]) -> list[Named]:
    """Dates without a year of the one that the question names beside them: "March last year"."""
    years = [each for each in (*places, *spoken) if _is_year(each) and not each.way]
    found: list[Named] = []
    for place in places:
        if place.way or _is_year(place) or _STATED_YEAR.search(text[place.begin : place.end]):
            found.append(place)
            continue
        if _SOME_YEAR.search(text):
            found.append(place._replace(way=UNKNOWN))
            continue
        beside = [each for each in years if _is_of(text, place, each)]
        plain = [each for each in years if not _is_bound(text, each)]
        if beside or (plain and not any(_joined(text, place, each) for each in years)):
            own = (beside or plain)[0]
            again = _named_again(text, place, date(own.span[0].year, 12, 31))
            others = [each for each in years if each != own]
            several = any(not beside or _joined(text, own, each) for each in others)
            if several or again.span[0].year != own.span[0].year:
                again = again._replace(way=UNKNOWN)
            if beside:
                begin, end = min(place.begin, own.begin), max(place.end, own.end)
                again = again._replace(begin=begin, end=end)
            # Whatever is joined to it has its year, too.
            if found and again.span[0] < found[-1].span[0] and _joined(text, found[-1], again):
                again = again._replace(way=UNKNOWN)
            place = again
        found.append(place)
    return found


def _is_year(place: Named) -> bool:
    first, behind = place.span
    return first.replace(month=1, day=1) == first and (behind - first).days in (365, 366)


def _is_of(text: str, place: Named, year: Named) -> bool:
    """Whether a year stands beside a date, and is not bounded itself."""
    if place.begin < year.begin:
        return _OF_YEAR.fullmatch(text[place.end : year.begin]) is not None
    between = _OF_YEAR.fullmatch(text[year.end : place.begin])
    return between is not None and not _is_bound(text, year)


def _is_bound(text: str, place: Named) -> bool:
    before = text[: place.begin]
    return (ONE_SIDED.search(before) or EXCEPT.search(before)) is not None


def _joined(text: str, one: Named, two: Named) -> bool:
    one, two = sorted((one, two))
    return JOINED.fullmatch(text[one.end : two.begin]) is not None


def _distances(text: str, today: date) -> Iterator[Named]:
    """Read stretches that reach back from today: at most, at least, the last so many days."""
    # Looking for these words first is many times as quick.
    lower = text.lower()
    ago = text if " ago" in lower or " back" in lower else ""
    for match in _BEYOND_AGO.finditer(ago):
        with suppress(ValueError, OverflowError):
            span, way = _beyond(_days(today), match, -1)
            yield Named(*match.span(), (span[0], today + _DAY) if way == "in" else span, 0, way)
    for match in _OR_SO_AGO.finditer(ago):
        yield Named(*match.span(), _NEVER, 0, UNKNOWN)
    for match in _LAST_FEW.finditer(text):
        with suppress(ValueError, OverflowError):
            length = {"day": 1, "week": 7, "month": 31}[match["unit"].lower()]
            first = today - length * _count(match["number"]) * _DAY
            yield Named(*match.span(), (first, today + _DAY))


def _since_weekday(text: str, today: date, over: bool) -> Iterator[Named]:
    """The latest day before today of the name in "since Monday"; "after" it if that is over."""
    for match in _BARE_WEEKDAY.finditer(text) if "day" in text.lower() else ():
        if over or text[: match.start()].lower().endswith("since "):
            with suppress(ValueError, OverflowError):
                yield Named(*match.span(), _unit(today, match["day"].lower(), -1))


def _beyond(span: Span, match: re.Match[str], way: int) -> tuple[Span, str]:
    """The days that a distance before (-1) or after (1) others leads to, and how they bound."""
    number, unit = _count(match["number"]), match["unit"].lower()
    if match["less"]:
        if way < 0:
            return (_away(span[0], -number, unit), span[0]), "in"
        return (span[1], _away(span[1], number, unit)), "in"
    day = _away(span[0] if way < 0 else span[1] - _DAY, way * number, unit)
    if match["least"]:
        return _days(day), "until" if way < 0 else "since"
    return _days(day), "before" if way < 0 else "after"


def _away(day: date, number: int, unit: str) -> date:
    """The day that is so many days, weeks, months or years away, at most the last of its month."""
    if unit in ("day", "week"):
        return day + number * (_DAY if unit == "day" else _WEEK)
    months = number * (12 if unit == "year" else 1)
    first, behind = _months(day.year, day.month + months)
    return min(first + (day.day - 1) * _DAY, behind - _DAY)


def _longest(places: Iterable[Named]) -> list[Named]:
    found: list[Named] = []
    for each in sorted(places, key=lambda each: (each.begin, -each.end)):
        if not found or each.begin >= found[-1].end:
            found.append(each)
    return found


def _of_one_year(text: str, one: Named, two: Named) -> tuple[Named, Named]:
    """Two dates that are joined; the one without a year has that of the other."""
    stated = [_STATED_YEAR.search(text[each.begin : each.end]) is not None for each in (one, two)]
    if not stated[0]:
        # The latest that began before the other one.
        other = _named_again(text, one, two.span[0])
        if other.span[0] > two.span[0]:
            other = _named_again(text, one, two.span[0] - _YEAR_LONG)
        return other, two
    if not stated[1]:
        for more in (0.8, 1.1):
            other = _named_again(text, two, one.span[0] + more * _YEAR_LONG)
            if other.span[1] > one.span[0]:
                return one, other
    return one, two


def _named_again(text: str, place: Named, today: date) -> Named:
    """The same days of a text as of another day; what is reckoned from today stays."""
    again = _narrowed(text, [Named(*each) for each in _dates(text, today)])
    return next((each for each in again if each[:2] == place[:2]), place)


def _narrowed(text: str, places: Iterable[Named]) -> Iterator[Named]:
    """Days that are named, with what the words beside them take of them; without those of none."""
    for place in places:
        if place.way:
            yield place
            continue
        with suppress(ValueError, OverflowError):  # no such day
            yield _beside_words(text, _to_a_day(text, place))


def _to_a_day(text: str, place: Named) -> Named:
    """The days from the one that is named to another of its month: "May 3-10, 2023"."""
    end, (first, behind) = place.end, place.span
    match = _DAY_BEHIND.match(text, end)
    if match is None or behind - first > _DAY:
        return place
    first = first.replace(year=int(match["year"] or first.year))
    last = first.replace(day=_number_of(match["day"]))
    return place._replace(end=match.end(), span=(first, last + _DAY)) if last > first else place


def _beside_words(text: str, place: Named) -> Named:
    """The days that are named with what the words before them take of them, or lead to."""
    begin, end, span, edge, way = place
    for _ in range(_NESTED):
        before = text[max(0, begin - _LOOK) : begin]
        if match := _BEYOND_DATE.search(before):
            span, way = _beyond_date(span, match)
        elif (match := _STRETCH.search(before)) and (match["number"] or match["many"]):
            span = _beside(span, match)
        elif match := _MOVED.search(before.removesuffix("the ").rstrip() + " "):
            span = _moved(span, match)
        elif (match := _PART.search(before)) and (part := _part(span, match)) is not None:
            span, edge = part, _EDGE.get((match["third"] or "").lower(), 0)
        elif (match := _DAY_BEFORE.search(before)) and span[1] - span[0] == _DAY:
            first = span[0].replace(day=_number_of(match["day"]))
            if first >= span[0] or _OF_MONTH.search(before[: match.start("day")]):
                break
            span = first, span[1]
        else:
            break
        begin -= len(before) - match.start()
        if match := _DETERMINED.search(text[max(0, begin - _LOOK) : begin]):
            begin -= len(match[0])
        if way:
            break
    return Named(begin, end, span, edge, way)


def _beyond_date(span: Span, match: re.Match[str]) -> tuple[Span, str]:
    """Return the stretch within or beyond the distance in a match of `_BEYOND_DATE`."""
    if match["before"] or match["after"]:
        return _beyond(span, match, -1 if match["before"] else 1)
    if not match["less"]:
        return _NEVER, UNKNOWN  # on two sides
    return (_beyond(span, match, -1)[0][0], _beyond(span, match, 1)[0][1]), "in"


def _part(span: Span, match: re.Match[str]) -> Span | None:
    """Return the part of a span that a match of `_PART` names; None if there is none."""
    first, behind = span
    if match["whole"]:
        if behind - first > _DAY:
            return None
        return _unit(first, match["whole"].lower(), 0)
    if third := match["third"] or match["about"]:
        return None if behind - first <= _WEEK else _share(span, _THIRD[third.lower()], 3)
    nth, unit = _NTH[match["nth"].lower()], match["unit"].lower()
    if unit in _FRACTION:
        of = _FRACTION[unit]
        return _share(span, nth % of, of) if nth < of else None
    if unit == "week":
        start = behind - _WEEK if nth < 0 else first + nth * _WEEK
        return (start, min(start + _WEEK, behind)) if first <= start < behind else None
    weekday = 5 if unit == "weekend" else _WEEKDAYS[unit[:3]]
    if nth < 0:
        day = behind - _DAY
        day -= (day.weekday() - weekday) % 7 * _DAY
    else:
        day = first + (weekday - first.weekday()) % 7 * _DAY + nth * _WEEK
    if not first <= day < behind:
        return None
    return _unit(day, "weekend", 0) if unit == "weekend" else _days(day)


def _share(span: Span, part: int, of: int) -> Span:
    """One of several parts of a span: of whole months in months, else in days."""
    first, behind = span
    months = 12 * (behind.year - first.year) + behind.month - first.month
    if first.day == behind.day == 1 and months % of == 0:
        return _months(first.year, first.month + months * part // of, months // of)
    days = (behind - first).days
    return first + days * part // of * _DAY, first + days * (part + 1) // of * _DAY


def _beside(span: Span, match: re.Match[str]) -> Span:
    """The whole time before or after a span that a match of `_STRETCH` tells of."""
    unit, before = match["unit"].lower(), match["way"].lower() in ("before", "preceding")
    from_ = span[0] if before else span[1]
    way = -1 if before else 1
    if match["number"] is None:
        to = from_ + way * _LARGER[unit] * _DAY
    else:
        to = _away(from_, way * _count(match["number"]), unit)
    return (to, from_) if before else (from_, to)


def _with_capitals(text: str) -> str:
    """A question with capitals where months are written without, of equal length."""
    text = _SMALL_MONTH.sub(lambda match: match[0].title(), text)
    return _HYPHEN.sub(r"\1 ", text)


def _number_of(day: str) -> int:
    return int(re.sub(r"\D", "", day))


def _years(text: str) -> Iterator[_Place]:
    for match in _YEAR.finditer(text) if "20" in text or "19" in text else ():
        year = int(match["year"])
        yield match.start("year"), match.end(), (date(year, 1, 1), date(year + 1, 1, 1))


def _spoken_years(text: str, today: date) -> Iterator[_Place]:
    """Years told from that of today, and the present week, month or year where a part is named."""
    # Looking for these words first is ten times as quick.
    told = any(word in text.lower() for word in ("year", " of th"))
    for match in _SPOKEN_YEAR.finditer(text) if told else ():
        parts = match.groupdict()
        try:
            if parts["unit"]:
                unit = parts["unit"].lower()
                yield (
                    *match.span(),
                    _months(today.year, 1, 12) if unit == "year" else _unit(today, unit, 0),
                )
            elif parts["number2"]:
                years = _count(parts["number2"])
                yield *match.span(), (_months(today.year - years, today.month)[0], today + _DAY)
            else:
                back = _count(parts["number"]) if parts["number"] else 1 + bool(parts["second"])
                back = {"this": 0, "next": -1}.get((parts["which"] or "").lower(), back)
                yield *match.span(), _months(today.year - back, 1, 12)
        except (ValueError, OverflowError):
            continue


def _date_of(seconds: float) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).date()


def _spans(text: str, today: date | None) -> Iterator[_Place]:
    yield from _calendar_spans(text, today)
    if today is not None:
        yield from _spoken_spans(text, today)


def _calendar_spans(text: str, today: date | None) -> Iterator[_Place]:
    for begin, end, named in _named_spans(text, today):
        moved = _MOVED.search(text[:begin].removesuffix("the ").rstrip() + " ")
        if moved is None:
            yield begin, end, named
            continue
        with suppress(ValueError, OverflowError):  # no such day
            yield moved.start(), end, _moved(named, moved)


def _named_spans(text: str, today: date | None) -> Iterator[_Place]:
    for place in _begins(text, _CALENDAR_WORDS):
        match = _CALENDAR.match(text, place)
        with suppress(ValueError, OverflowError):  # no such day
            if match is not None and (named := _named(match, text, today)) is not None:
                yield place, match.end(), named


def _spoken_spans(text: str, today: date) -> Iterator[_Place]:
    text = text.lower()
    for place in _begins(text, _SPOKEN_WORDS):
        match = _SPOKEN_OF.match(text, place)
        try:
            if match is not None:
                yield place, match.end(), _spoken_of(match, today)
        except (ValueError, OverflowError):
            continue


def _begins(text: str, words: Sequence[str]) -> list[int]:
    """Where matches that hold one of these words may begin, ascending."""
    found = set[int]()
    for word in words:
        place = text.find(word)
        while place >= 0:
            found.add(place)
            before = text[max(0, place - _BEFORE) : place]
            if word in ("last ", "past "):
                number = _BEFORE_LAST.search(before)
            elif word == " ago":
                number = _BEFORE_AGO.search(before)
            elif word in _SPOKEN_WORDS:
                number = None
            else:
                number = (_BEFORE_YEAR if word.isdigit() else _BEFORE_MONTH).search(before)
            if number is not None:
                found.add(place - len(before) + number.start())
            place = text.find(word, place + 1)
    return sorted(found)


def _named(match: re.Match[str], text: str, today: date | None) -> Span | None:
    """What a match of `_CALENDAR` names; None where it is no date, or of an unknown year."""
    parts = match.groupdict()
    if parts["iso"]:
        return _days(date.fromisoformat(parts["iso"]))
    if parts["season"]:
        return _months(int(parts["year4"]), _FIRST_MONTH[parts["season"].lower()], 3)
    name = next(parts[key] for key in ("month", "month2", "month3", "month5") if parts[key])
    month = _MONTH_NUMBER.get(name.rstrip(".").lower())
    # "may" and "march" are words of their own, and a month alone stands behind such a word.
    if month is None or not name[0].isupper():
        return None
    year = next((int(parts[key]) for key in ("year", "year2", "year3") if parts[key]), None)
    if year is None:
        if today is None or (parts["month5"] and not _IN.search(text[: match.start()])):
            return None
        year = today.year - (date(today.year, month, 1) - today > 31 * _DAY)
    day = parts["day"] or parts["day2"]
    if day is None:
        return _months(year, month)
    return _days(date(year, month, _number_of(day)))


def _moved(named: Span, match: re.Match[str]) -> Span:
    """The span that lies before or behind another, by a match of `_MOVED`."""
    unit, way = match["unit"].lower(), -1 if match["way"].lower() in ("before", "preceding") else 1
    number = _count(match["number"])
    from_ = named[0] if way < 0 else named[1] - _DAY
    if unit == "day":
        return _days(from_ + way * number * _DAY)
    if unit == "week" and match["number"]:
        return _around(from_ + way * number * _WEEK, 2)
    return _unit(from_, unit, way * number)


def _spoken_of(match: re.Match[str], today: date) -> Span:
    """What a match of `_SPOKEN_OF` means on a day."""
    parts = match.groupdict()
    if parts["near"]:
        near = parts["near"].lower()
        back = {"yesterday": -1, "last night": -1, "tomorrow": 1}.get(near, 0)
        return _days(today + back * _DAY)
    if parts["unit"]:
        number, unit = _count(parts["number"]), parts["unit"].lower()
        if unit == "day":
            span = _around(today - number * _DAY, int(number > 3))
        elif unit == "week":
            span = _around(today - number * _WEEK, 4)
        else:
            span = _unit(today, unit, -number)
        if _VAGUE.isdisjoint(parts["number"].lower().split()):
            return span
        return span[0] - (span[1] - span[0]), span[1] + (span[1] - span[0])
    if parts["unit2"]:
        length = {"day": 1, "week": 7, "month": 31}[parts["unit2"].lower()]
        return today - length * _count(parts["number2"]) * _DAY, today + _DAY
    way = {"this": 0, "next": 1}.get(parts["which"].lower(), -1)
    unit = parts["unit3"].lower()
    month = _FIRST_MONTH.get(unit)
    if month is not None:
        year = today.year + max(way, 0)
        while way < 0 and _months(year, month, 3)[1] > today:
            year -= 1
        return _months(year, month, 3)
    number_of = _MONTH_NUMBER.get(unit.rstrip("."))
    if number_of is not None:
        year = today.year + (way > 0 and number_of <= today.month)
        return _months(year - (way < 0 and number_of >= today.month), number_of)
    return _unit(today, unit, way)


def _unit(today: date, unit: str, count: int) -> Span:
    """The week, weekend, month or weekday that is `count` of them away from that of a day."""
    monday = today - today.weekday() * _DAY
    if unit == "week":
        return monday + count * _WEEK, monday + (count + 1) * _WEEK
    if unit == "weekend":  # on Friday people say so already
        return monday + count * _WEEK + 4 * _DAY, monday + (count + 1) * _WEEK
    if unit == "month":
        return _months(today.year, today.month + count)
    ahead = _WEEKDAYS[unit[:3]] - today.weekday()
    if count < 0:
        return _days(today - (-ahead % 7 or 7) * _DAY + (count + 1) * _WEEK)
    return _days(
        today + (ahead % 7 or 7) * _DAY + (count - 1) * _WEEK if count else today + ahead * _DAY
    )


def _count(number: str | None) -> int:
    words = (number or "one").lower().removesuffix(" of").split()
    return int(words[-1]) if words[-1].isdigit() else _NUMBER[words[-1]]


def _days(first: date) -> Span:
    return _around(first, 0)


def _around(day: date, more: int) -> Span:
    return day - more * _DAY, day + (more + 1) * _DAY


def _months(year: int, month: int, count: int = 1) -> Span:
    """Some months from one on, which may lie beyond the year: 13 is the next January."""
    first, last = divmod(month - 1, 12), divmod(month - 1 + count, 12)
    return date(year + first[0], first[1] + 1, 1), date(year + last[0], last[1] + 1, 1)
