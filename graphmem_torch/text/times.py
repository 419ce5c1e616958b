"""Times: every form the input may give them in, and those that a text tells of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from numbers import Real

from graphmem_torch.errors import InputError

__all__ = [
    "FIRST_SECOND",
    "LAST_SECOND",
    "MONTHS",
    "TimeLike",
    "asked_window",
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
        except OverflowError:
            seconds = math.inf
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
    rf"\b(?:(?P<number>{_N}) )?(?P<unit>day|week|weekend|month|{_W})s? (?P<way>before|after) $",
    re.IGNORECASE,
)
_IN = re.compile(
    r"\b(?:in|of|since|during|until|till|by|before|after|late|early|mid|from|to|and|or) $",
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
_BEFORE = 30  # characters that any of these may take
# What a question says of a date: everything up to it, or from it on.
_WAY = re.compile(r"\b(before|until|till|by|after|since|between|from) (?:the )?$", re.IGNORECASE)
_JOINED = re.compile(r",? (?:and|to|until|till|through) (?:the )?", re.IGNORECASE)
_OVER = re.compile(
    r"\b(?:did|was|were|have|has|had|been|(?:last|past) (?:\w+ )?(?:day|week|month)s?)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(
    rf"(?<=\b(?:in|of|by) )(?P<year>{_Y})\b|\b(?:during|since|before|after|until) (?P<year2>{_Y})\b"
)
_Span = tuple[date, date]  # the first day, and the one behind the last
_Place = tuple[int, int, _Span]  # where in a text it begins and ends


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
    today = None if said is None or math.isnan(said) else _date_of(said)
    best = (0, 0)
    for _, _, (first, behind) in _spans(text, today):
        start, end = first.toordinal() - _EPOCH, behind.toordinal() - _EPOCH
        if 0 < end - start <= _LONGEST and (best == (0, 0) or end - start < best[1] - best[0]):
            best = start, end
    return best


def asked_window(text: str, asked: float | None) -> tuple[float, float] | None:
    """The window of time that an English question is about, both ends included.

    A date or a span as in `told_days`, years too ("in 2022"); what lies before or after one
    ("before May 2023", "since last Friday"), or between two. The narrowest date counts, of equal
    ones the first. What is reckoned from today and is not over, as "next week" or "tonight", is no
    window unless the question tells of the past: who asks so asks for advice.

    Args:
        text: The question.
        asked: When, seconds since the epoch, UTC; None or NaN: nobody knows.

    Returns:
        Seconds since the epoch, UTC, infinite for an open end; None where it names no date.
    """
    today = None if asked is None or math.isnan(asked) else _date_of(asked)
    found = [*_calendar_spans(text, today), *_years(text)]
    if today is not None:
        found += _past_spans(text, today)
    if not found:
        return None
    found.sort(key=lambda each: (each[0], -each[1]))
    whole = [each for i, each in enumerate(found) if all(each[0] >= b[1] for b in found[:i])]
    for one, two in pairwise(whole):
        way = _WAY.search(text[: one[0]])
        joined = _JOINED.fullmatch(text[one[1] : two[0]])
        if way and way[1].lower() in ("between", "from") and joined:
            return _seconds(one[2][0], max(one[2][1], two[2][1]))
    begin, _, (first, behind) = min(whole, key=lambda each: each[2][1] - each[2][0])
    match = _WAY.search(text[:begin])
    way_of = "" if match is None else match[1].lower()
    if way_of == "before":
        return _seconds(None, first)
    if way_of in ("until", "till", "by"):
        return _seconds(None, behind)
    if way_of in ("since", "from"):
        return _seconds(first, None)
    return _seconds(behind, None) if way_of == "after" else _seconds(first, behind)


def undated(text: str) -> str:
    """An English question without the dates in it; its other words stand where they stood."""
    today = _date_of(0.0)  # any day: only where they stand is asked
    found = [*_calendar_spans(text, today), *_years(text), *_spoken_spans(text, today)]
    for begin, end, _ in sorted(found, reverse=True):
        text = text[:begin] + " " * (end - begin) + text[end:]
    return text


def _seconds(first: date | None, behind: date | None) -> tuple[float, float]:
    start, stop = (
        None if day is None else (day.toordinal() - _EPOCH) * 86_400.0 for day in (first, behind)
    )
    last = math.inf if stop is None else math.nextafter(stop, -math.inf)
    return -math.inf if start is None else start, last


def _years(text: str) -> Iterator[_Place]:
    for match in _YEAR.finditer(text):
        name = "year" if match["year"] else "year2"
        year = int(match[name])
        yield match.start(name), match.end(name), (date(year, 1, 1), date(year + 1, 1, 1))


def _past_spans(text: str, today: date) -> Iterator[_Place]:
    """Of what is told from today on the part that is over, or told of as if it were."""
    over = _OVER.search(text)
    for begin, end, (first, behind) in _spoken_spans(text, today):
        if behind <= today:
            yield begin, end, (first, behind)
        elif over and first <= today:  # so there is a tomorrow: the calendar goes on to `behind`
            yield begin, end, (first, today + _DAY)


def _date_of(seconds: float) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).date()


def _spans(text: str, today: date | None) -> Iterator[_Place]:
    yield from _calendar_spans(text, today)
    if today is not None:
        yield from _spoken_spans(text, today)


def _calendar_spans(text: str, today: date | None) -> Iterator[_Place]:
    for place in _begins(text, _CALENDAR_WORDS):
        match = _CALENDAR.match(text, place)
        try:
            named = None if match is None else _named(match, text, today)
            if match is not None and named is not None:
                moved = _MOVED.search(text[:place].removesuffix("the ").rstrip() + " ")
                begin = place if moved is None else moved.start()
                yield begin, match.end(), named if moved is None else _moved(named, moved)
        except (ValueError, OverflowError):  # no such day
            continue


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


def _named(match: re.Match[str], text: str, today: date | None) -> _Span | None:
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
    return _days(date(year, month, int(re.sub(r"\D", "", day))))


def _moved(named: _Span, match: re.Match[str]) -> _Span:
    """The span that lies before or behind another, by a match of `_MOVED`."""
    unit, way = match["unit"].lower(), 1 if match["way"].lower() == "after" else -1
    number = _count(match["number"])
    from_ = named[0] if way < 0 else named[1] - _DAY
    if unit == "day":
        return _days(from_ + way * number * _DAY)
    if unit == "week" and match["number"]:
        return _around(from_ + way * number * _WEEK, 2)
    return _unit(from_, unit, way * number)


def _spoken_of(match: re.Match[str], today: date) -> _Span:
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


def _unit(today: date, unit: str, count: int) -> _Span:
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


def _days(first: date) -> _Span:
    return _around(first, 0)


def _around(day: date, more: int) -> _Span:
    return day - more * _DAY, day + (more + 1) * _DAY


def _months(year: int, month: int, count: int = 1) -> _Span:
    """Some months from one on, which may lie beyond the year: 13 is the next January."""
    first, last = divmod(month - 1, 12), divmod(month - 1 + count, 12)
    return date(year + first[0], first[1] + 1, 1), date(year + last[0], last[1] + 1, 1)
