"""Times: all accepted input forms, and the days that a text mentions.

Days are read in English; in other languages only dates in figures.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import NamedTuple

from graphmem_torch.errors import InputError
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text._places import asked_places, told_places
from graphmem_torch.text._spans import MONTH_NUMBER, MONTHS, date_of, is_year
from graphmem_torch.text.bounds import stated_bounds

__all__ = [
    "DAYS",
    "FIRST_SECOND",
    "LAST_SECOND",
    "MONTHS",
    "DatedPlace",
    "DurationLike",
    "TimeLike",
    "asked_window",
    "dated_places",
    "parse_duration",
    "parse_span",
    "parse_time",
    "told_days",
    "undated",
]

DAYS = 2
"""Version of `told_days`; an index of days from another version is rebuilt."""

TimeLike = float | str | date
"""Time in any form that `parse_time` accepts; a `datetime` is a `date`."""

DurationLike = float | timedelta
"""Duration in seconds, or as a `timedelta`."""

# LoCoMo writes "1:56 pm on 8 May, 2023"; the date may stand alone.
_SPOKEN = lazy_pattern(
    r"(?:(?P<hour>\d{1,2}):(?P<minute>\d{2})\s*(?P<half>[ap])\.?m\.?\s+on\s+)?"
    r"(?P<day>\d{1,2})\s+(?P<month>[a-z]+)\.?,?\s+(?P<year>\d{4})",
    re.IGNORECASE,
)
_PART_OF_DATE = lazy_pattern(r"\d{4}(?:-\d\d)?", re.ASCII)
# Narrower than `datetime.fromisoformat`, which accepts any separator and so reads milliseconds as
# the year 1712. Wider, too: points as in "10.30", and a space or UTC at the end.
_ISO = lazy_pattern(
    r"(?P<date>\d{4}-\d\d-\d\d|\d{8}|\d{4}-W\d\d(?:-\d)?|\d{4}W\d\d\d?)"
    r"(?:(?:T| +)(?P<clock>\d\d(?:(?P<by>[:.]?)\d\d(?:(?P=by)\d\d)?)?)(?P<part>(?<=\d\d)[.,]\d+)?"
    r"(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d(?::?\d\d(?:\.\d+)?)?)?))?)?",
    re.ASCII | re.IGNORECASE,
)
FIRST_SECOND, LAST_SECOND = -62_135_596_800.0, 253_402_300_800.0
"""Bounds of the years 1 to 9999 of the calendar in seconds; the upper one is excluded."""
_FORMS = (
    'seconds since the epoch as a number, a datetime, ISO 8601 ("2023-05", '
    '"2023-05-08T13:56:00+02:00"), or "1:56 pm on 8 May, 2023"; without an offset it is UTC'
)
_LONGEST = 100  # longest span in days that still distinguishes
_EPOCH = date(1970, 1, 1).toordinal()


def parse_time(value: TimeLike, name: str = "time", *, where: str | None = None) -> float:
    """Convert a time to seconds since the epoch, UTC.

    Args:
        value: Seconds since the epoch; a `datetime`; a `date`, for its midnight; an ISO 8601 date
            or date and time; a year or a month, for its first instant; or LoCoMo's form, "1:56 pm
            on 8 May, 2023". A time without an offset is UTC.
        name: Name of the value, for messages.
        where: File and line of the value, for messages.

    Raises:
        InputError: Any other value, with the accepted forms, or a time outside the years 1 to 9999.
    """
    if isinstance(value, Real | Decimal) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:  # Python does not print numbers of more than 4,300 digits
            value = seconds = math.inf
    else:
        text = value.isoformat() if isinstance(value, date) else value
        text = text.strip() if isinstance(text, str) else ""
        moment = _iso(text) or _spoken(text)
        if moment is None:
            raise InputError(
                f"{name}: expected a time, got {value!r:.60}; give {_FORMS}", where=where
            )
        # An offset can move a time over the edge of the calendar.
        seconds = moment.timestamp()
    if not FIRST_SECOND <= seconds < LAST_SECOND:  # NaN fails it, too
        raise InputError(
            f"{name}: expected a time in seconds since the epoch, or a date, in the years 1 to "
            f"9999 UTC, got {value!r:.60}; divide milliseconds by 1000",
            where=where,
        )
    return seconds


def parse_duration(value: object, name: str = "ttl", *, where: str | None = None) -> float:
    """Convert a duration to seconds.

    Args:
        value: Seconds above 0, or a `timedelta`.
        name: Name of the value, for messages.
        where: File and line of the value, for messages.

    Raises:
        InputError: Any other value, or a duration that leads beyond the year 9999.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    number = isinstance(seconds, Real | Decimal) and not isinstance(seconds, bool)
    try:
        found = float(seconds) if number else math.nan  # type: ignore[arg-type]
    except OverflowError:
        found = math.inf
    if not 0 < found < LAST_SECOND:  # NaN fails it, too
        raise InputError(
            f"{name}: expected a number of seconds above 0, or a timedelta, got {value!r:.60}; "
            "give one, or leave it out",
            where=where,
        )
    return found


def parse_span(value: object, name: str = "between", *, said: object = None) -> tuple[float, float]:
    """Convert a start and an end to seconds since the epoch, UTC.

    Args:
        value: Two times (see `parse_time`); None or an infinite number for an open end.
        name: Name of the value, for messages.
        said: Original value for messages, if the times were derived from it.

    Raises:
        InputError: Not two times, or an end before the start.
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
            f"{name}: expected a start before the end, got {said or value!r:.120}; swap the two"
        )
    return start, end


def _iso(text: str) -> datetime | None:
    try:
        if _PART_OF_DATE.fullmatch(text):
            moment = datetime.fromisoformat(f"{text}-01-01"[:10])
        elif match := _ISO.fullmatch(text):
            moment = datetime.fromisoformat(_canonical(match))
        else:
            return None
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _canonical(match: re.Match[str]) -> str:
    """Convert a match of `_ISO` to the form that `datetime.fromisoformat` reads."""
    if match["clock"] is None:
        return match["date"]
    clock, by = match["clock"].replace(".", ":"), match["by"]
    seconds = len(clock.replace(":", "")) == 6
    if match["part"] and not seconds:
        raise ValueError  # a part of a minute or an hour
    zone = (match["zone"] or "").upper()
    zone = "Z" if zone in ("UTC", "GMT") else zone
    part = match["part"] if match["part"] and by is not None else ""
    return f"{match['date'].upper()}T{clock}{part}{zone}"


def _spoken(text: str) -> datetime | None:
    match = _SPOKEN.fullmatch(text)
    if match is None:
        return None
    month = MONTH_NUMBER.get(match["month"].lower())
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


_DATED = 10_000  # maximum characters of a text that are searched for days


def told_days(text: str, said: float | None) -> tuple[int, int]:
    """Return the narrowest span of days an English text mentions: the first, and the day after.

    It reads dates ("on 8 May, 2023", "in July", "2023-05-08T10:00", "from 3 to 5 May"), days
    relative to `said` ("yesterday", "last Friday") and days relative to a date ("the Monday before
    July 24, 2023").

    A date without a year is the latest that has begun, unless its verb is in the future. That verb
    also places a weekday alone, "the weekend" and "in three weeks". A month alone counts only after
    a word such as "in", because April may be a name. Left out are spans of more than 100 days, such
    as years, spans beyond the years 1 to 9999, and impossible dates.

    Args:
        text: Text that is said or asked.
        said: Time of saying in seconds since the epoch, UTC; None or NaN if unknown.

    Returns:
        Days since the epoch; (0, 0) without such a span.
    """
    text = text[:_DATED]  # a text with thousands of dates is about none of them
    best = (0, 0)
    for place in told_places(text, _day(said), by_tense=True):
        start, end = (day.toordinal() - _EPOCH for day in place.span)
        if 0 < end - start <= _LONGEST and (best == (0, 0) or end - start < best[1] - best[0]):
            best = start, end
    return best


def asked_window(text: str, asked: float | None) -> tuple[float, float] | None:
    """Return the time window that an English question is about, both ends included.

    It reads the dates and spans of `told_days`, years and decades ("in 2022"), and:

    - parts of them: "the first weekend of August", "late 2022", "the week of 23 August";
    - bounds: "before May 2023", "since Monday", "in the weeks after 3 June", between two;
    - distances: "more than two weeks ago", "within 3 days of 5 May";
    - unambiguous figures: 15/06/2023, 12.9.2023 (day first), 2023-09-11T10:00, Q3 2023.

    A month without a year gets the year named beside it ("March last year"). A time of day extends
    to its whole day. `stated_bounds` combines several dates and drops those beside the question. A
    relative time that is not over ("next week", "tonight") is a window only in a question about the
    past; others ask for advice.

    Args:
        text: Question.
        asked: Time of asking in seconds since the epoch, UTC; None or NaN if unknown.

    Returns:
        Seconds since the epoch, UTC, infinite for an open end. None if there is no date, or one
        that cannot be read.
    """
    bounds = stated_bounds(text, asked_places(text, _day(asked)))
    return None if bounds is None else _seconds(*bounds)


class DatedPlace(NamedTuple):
    """Place of a day in an English text.

    Attributes:
        begin, end: Characters `text[begin:end]`.
        first, behind: First day, and the day after the last.
        spoken: Whether it is relative to the day of the text ("last Friday"), not a date.
    """

    begin: int
    end: int
    first: date
    behind: date
    spoken: bool


def dated_places(text: str, said: float | None) -> list[DatedPlace]:
    """Return the places that `told_days` reads, in order; of two overlapping ones the longer.

    Years, and days that only the verb beside them places ("on Friday"), are left out.

    Args:
        text: Text that is said.
        said: Time of saying in seconds since the epoch, UTC. If None or NaN, only dates with a year
            are found.
    """
    return [
        DatedPlace(place.begin, place.end, *place.span, place.spoken)
        for place in told_places(text, _day(said), by_tense=False)
        if not place.way and not is_year(place.span)
    ]


def undated(text: str) -> str:
    """Return an English question without its dates; the other words keep their places."""
    # Any day will do: only the positions are used.
    for begin, end, *_ in asked_places(text, date_of(0.0), all=True):
        text = text[:begin] + " " * (end - begin) + text[end:]
    return text


def _day(moment: float | None) -> date | None:
    return None if moment is None or math.isnan(moment) else date_of(moment)


def _seconds(first: date | None, behind: date | None) -> tuple[float, float]:
    start, stop = (
        None if day is None else (day.toordinal() - _EPOCH) * 86_400.0 for day in (first, behind)
    )
    last = math.inf if stop is None else math.nextafter(stop, -math.inf)
    return -math.inf if start is None else start, last
