"""Spans of days: words for months, weekdays and numbers, and calendar arithmetic."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

__all__ = [
    "DAY",
    "DAY_OF_MONTH",
    "FIRST_MONTH",
    "MONTH",
    "MONTHS",
    "MONTH_NUMBER",
    "NUMBER",
    "SEASON",
    "WEEK",
    "WEEKDAY",
    "YEAR",
    "Span",
    "around",
    "away",
    "count",
    "date_of",
    "is_vague",
    "is_year",
    "months",
    "number_of",
    "one_day",
    "share",
    "unit_away",
    "whole_years",
]

Span = tuple[date, date]
"""The first day, and the day after the last."""

DAY, WEEK = timedelta(days=1), timedelta(days=7)
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
"""Names of the months in lower case."""

MONTH_NUMBER = {name[:length]: i + 1 for i, name in enumerate(MONTHS) for length in (3, len(name))}
MONTH_NUMBER["sept"] = 9
FIRST_MONTH = {"spring": 3, "summer": 6, "fall": 9, "autumn": 9, "winter": 12}

_WEEKDAYS = {name: i for i, name in enumerate(("mon", "tue", "wed", "thu", "fri", "sat", "sun"))}
_NUMBERS = dict.fromkeys(("a", "an", "one"), 1) | dict.fromkeys(("two", "couple"), 2)
_NUMBERS |= dict.fromkeys(("three", "few", "several"), 3)
_NUMBERS |= {"four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_NUMBERS |= {"eleven": 11, "twelve": 12}
_VAGUE = frozenset({"few", "several"})

# Alternatives of regular expressions, in lower case.
MONTH = rf"(?:{'|'.join(sorted(MONTH_NUMBER, key=len, reverse=True))})\b\.?"
WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
NUMBER = rf"(?:(?:a )?(?:couple(?: of)?|few|several)|\d{{1,3}}|{'|'.join(_NUMBERS)})"
SEASON = "|".join(FIRST_MONTH)
YEAR = r"(?:19|20)\d\d"
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth"),
    *("seventeenth", "eighteenth", "nineteenth", "twentieth"),
)
_ORDINAL = {name: i for i, name in enumerate(_ORDINALS, 1)} | {"thirtieth": 30}
_ORDINAL |= {
    f"{tens}-{name}": start + _ORDINAL[name]
    for tens, start, last in (("twenty", 20, 9), ("thirty", 30, 1))
    for name in _ORDINALS[:last]
}
# In words only before "of": "the first of May".
_IN_WORDS = "|".join(sorted(_ORDINAL, key=len, reverse=True)).replace("-", "[- ]")
DAY_OF_MONTH = rf"(?:\d{{1,2}}(?:st|nd|rd|th)?|(?:{_IN_WORDS})(?=(?: day)? of\b))"


def count(number: str | None) -> int:
    """Return the value of a match of `NUMBER`; 1 for None."""
    words = (number or "one").lower().removesuffix(" of").split()
    return int(words[-1]) if words[-1].isdigit() else _NUMBERS[words[-1]]


def is_vague(number: str | None) -> bool:
    """Return whether a match of `NUMBER` is no certain number ("a few")."""
    return number is not None and not _VAGUE.isdisjoint(number.lower().split())


def number_of(day: str) -> int:
    """Return the value of a match of `DAY_OF_MONTH`."""
    named = _ORDINAL.get(day.lower().replace(" ", "-"))
    return int("".join(filter(str.isdigit, day))) if named is None else named


def date_of(seconds: float) -> date:
    """Return the day of a moment in seconds since the epoch, UTC."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).date()


def one_day(day: date) -> Span:
    """Return the span of a single day."""
    return around(day, 0)


def around(day: date, more: int) -> Span:
    """Return a day with `more` days on both sides."""
    return day - more * DAY, day + (more + 1) * DAY


def months(year: int, month: int, number: int = 1) -> Span:
    """Return some months from one on; a month beyond 12 is in the next year."""
    first, last = divmod(month - 1, 12), divmod(month - 1 + number, 12)
    return date(year + first[0], first[1] + 1, 1), date(year + last[0], last[1] + 1, 1)


def whole_years(year: int, number: int = 1) -> Span:
    """Return some calendar years from one on."""
    return months(year, 1, 12 * number)


def is_year(span: Span) -> bool:
    """Return whether a span is one calendar year."""
    first, stop = span
    return first.replace(month=1, day=1) == first and (stop - first).days in (365, 366)


def unit_away(today: date, unit: str, number: int) -> Span:
    """Return the week, weekend, month, ... or weekday `number` units away from a day's.

    Raises:
        ValueError, OverflowError: Result outside of the years 1 to 9999.
    """
    monday = today - today.weekday() * DAY
    if unit in ("day", "night", "morning", "afternoon", "evening"):
        return one_day(today + number * DAY)
    if unit == "week":
        return monday + number * WEEK, monday + (number + 1) * WEEK
    if unit == "weekend":  # on Friday people say so already
        return monday + number * WEEK + 4 * DAY, monday + (number + 1) * WEEK
    if unit == "month":
        return months(today.year, today.month + number)
    if unit == "quarter":
        return months(today.year, (today.month - 1) // 3 * 3 + 1 + 3 * number, 3)
    if unit == "year":
        return whole_years(today.year + number)
    if unit in FIRST_MONTH:
        return _season_away(today, unit, number)
    ahead = _WEEKDAYS[unit[:3]] - today.weekday()
    if number < 0:
        return one_day(today - (-ahead % 7 or 7) * DAY + (number + 1) * WEEK)
    return one_day(
        today + (ahead % 7 or 7) * DAY + (number - 1) * WEEK if number else today + ahead * DAY
    )


def _season_away(today: date, name: str, number: int) -> Span:
    """Return the last season before today (-1), this year's (0), or a later one."""
    month, year = FIRST_MONTH[name], today.year + number
    if number < 0:
        year = today.year
        while months(year, month, 3)[1] > today:
            year -= 1
        year += number + 1
    elif number == 0 and today < months(year - 1, month, 3)[1]:
        year -= 1  # in January, winter is the one that has begun
    return months(year, month, 3)


def away(day: date, number: int, unit: str) -> date:
    """Return the day so many days, weeks, ... or years away, at most the last of its month."""
    if unit in ("day", "week", "fortnight"):
        return day + number * {"day": DAY, "week": WEEK, "fortnight": 2 * WEEK}[unit]
    per = {"month": 1, "quarter": 3, "year": 12, "decade": 120}[unit]
    first, stop = months(day.year, day.month + number * per)
    return min(first + (day.day - 1) * DAY, stop - DAY)


def share(span: Span, part: int, of: int) -> Span:
    """Return one of several parts of a span.

    Decades and longer spans are divided by years. Whole months are divided by months if the parts
    are equal, other spans by days.
    """
    first, stop = span
    whole = 12 * (stop.year - first.year) + stop.month - first.month
    if first.day == stop.day == 1 and whole >= 120 and whole % 12 == 0:
        begin, end = (-(-(whole // 12) * each // of) for each in (part, part + 1))
        return whole_years(first.year + begin, end - begin)
    if first.day == stop.day == 1 and whole % of == 0:
        return months(first.year, first.month + whole * part // of, whole // of)
    days = (stop - first).days
    return first + days * part // of * DAY, first + days * (part + 1) // of * DAY
