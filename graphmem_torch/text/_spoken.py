"""Find days relative to the day an English text is said: "last Friday", "2 weeks ago"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text._dates import Scan
from graphmem_torch.text._spans import (
    DAY,
    DAY_OF_MONTH,
    MONTH,
    MONTH_NUMBER,
    NUMBER,
    SEASON,
    WEEK,
    WEEKDAY,
    Span,
    around,
    away,
    count,
    is_vague,
    months,
    number_of,
    one_day,
    unit_away,
    whole_years,
)
from graphmem_torch.text.bounds import UNKNOWN, Named
from graphmem_torch.text.tense import tense

__all__ = ["days_by_tense", "since_weekday", "spoken_days", "spoken_years"]

_UNIT = r"day|week|fortnight|weekend|month|quarter"
_PART_OF_DAY = r"morning|afternoon|evening|night"
_WHICH = r"last|past|previous|this|next"
_LENGTH = {"day": 1, "week": 7, "fortnight": 14, "month": 31, "quarter": 92}

# No word of the phrase itself follows a phrase of time: "the week before last".
_GOES_ON = (
    r"(?=\W*$|[.,;:!?)\u2019']| ?[\u2013\u2014-]| (?:i|we|you|he|she|they|it|my|our|his|her|their"
    r"|the|a|an|was|were|is|are|will|in|on|at|to|for|from|with|and|but|or|when|while|because|as|that"
    r"|there|did|had|has|have|who|which|by|after|before|so|if|until)\b)"
)


def _near(match: re.Match[str], today: date) -> Span:
    back = {"yesterday": -1, "last night": -1, "tomorrow": 1}
    return one_day(today + back.get(match["near"].lower(), 0) * DAY)


def _ago(match: re.Match[str], today: date) -> Span:
    return _about(today, -count(match["number"]), match["unit"].lower(), match["number"])


def _from_now(match: re.Match[str], today: date) -> Span:
    return _about(today, count(match["number"]), match["unit"].lower(), match["number"])


def _about(today: date, number: int, unit: str, words: str | None) -> Span:
    """Return some units before (< 0) or after today; the span widens with the distance."""
    if unit == "fortnight":
        number, unit = 2 * number, "week"
    if unit == "day":
        span = around(today + number * DAY, int(abs(number) > 3))
    elif unit == "week":
        span = around(today + number * WEEK, 4)
    else:
        span = unit_away(today, unit, number)
    if not is_vague(words):
        return span
    more = span[1] - span[0]
    return span[0] - more, span[1] + more


def _anchored(match: re.Match[str], today: date) -> Span:
    """Return the exact day of "2 weeks ago today", or "a week from Friday"."""
    way = -1 if match["way"].lower() in ("ago", "back", "before") else 1
    anchor = match["anchor"].lower()
    if anchor.endswith("day") and anchor not in ("today", "yesterday"):
        which, _, name = anchor.rpartition(" ")
        far = {"last": -1, "past": -1, "this": 0, "next": 1}.get(which, way)
        day = unit_away(today, name, far)[0]
    else:
        day = today + {"yesterday": -1, "tomorrow": 1}.get(anchor, 0) * DAY
    return one_day(away(day, way * count(match["number"]), match["unit"].lower()))


def _beside_last(match: re.Match[str], today: date) -> Span:
    way = -2 if match["way"].lower() == "before last" else 2
    return unit_away(today, match["unit"].lower(), way)


def _last(match: re.Match[str], today: date) -> Span:
    length = _LENGTH[match["unit"].lower()] * count(match["number"]) * DAY
    if match["way"].lower() in ("next", "coming"):
        return today, today + length + DAY
    return today - length, today + DAY


def _which(match: re.Match[str], today: date) -> Span:
    which, unit = match["which"].lower(), match["unit"].lower()
    way = {"this": 0, "next": 1, "coming": 1, "upcoming": 1}.get(which, -1)
    if unit == "weekend" and which in ("coming", "upcoming"):
        way = 0
    number_of_month = MONTH_NUMBER.get(unit.rstrip("."))
    if number_of_month is None:
        return unit_away(today, unit, way)
    year = today.year + (way > 0 and number_of_month <= today.month)
    return months(year - (way < 0 and number_of_month >= today.month), number_of_month)


def _weekday_of_week(match: re.Match[str], today: date) -> Span:
    which = match["which"] or match["which2"]
    way = {"this": 0, "next": 1}.get(which.lower(), -1)
    monday = unit_away(today, "week", way)[0]
    return unit_away(monday, (match["day"] or match["day2"]).lower(), 0)


def _day_of_month(match: re.Match[str], today: date) -> Span:
    way = {"last": -1, "previous": -1, "next": 1}.get(match["which"].lower(), 0)
    first = months(today.year, today.month + way)[0]
    return one_day(first.replace(day=number_of(match["day"])))


_SPOKEN: tuple[tuple[tuple[str, ...], re.Pattern[str], Callable[[re.Match[str], date], Span]], ...]
# Triples: words that every match contains, a pattern, and the meaning of its matches on a day.
_SPOKEN = tuple(
    (cues, lazy_pattern(pattern, re.IGNORECASE), meaning)
    for cues, pattern, meaning in (
        (
            (
                *("today", "tonight", "yesterday", "tomorrow", "last night"),
                *("this morning", "this afternoon", "this evening"),
            ),
            r"\b(?P<near>today|tonight|this (?:morning|afternoon|evening)|yesterday|last night"
            r"|tomorrow)\b",
            _near,
        ),
        (
            (" ago", " back"),
            rf"\b(?P<number>{NUMBER}) (?P<unit>{_UNIT})s? (?:ago\b|back{_GOES_ON})",
            _ago,
        ),
        (
            (" from now", " hence"),
            rf"\b(?P<number>{NUMBER}) (?P<unit>{_UNIT})s? (?:from now|hence)\b",
            _from_now,
        ),
        (
            (" ago", " back", " from "),
            rf"\b(?P<number>{NUMBER}) (?P<unit>day|week|fortnight|month|quarter|year|decade)s? "
            rf"(?:(?P<way>ago|back|from)) (?:on )?(?P<anchor>today|yesterday|tomorrow"
            rf"|(?:(?:last|past|this|next) )?{WEEKDAY})\b",
            _anchored,
        ),
        (
            ("before last", "after next"),
            rf"\b(?:the )?(?P<unit>{_UNIT}|{_PART_OF_DAY}|year|{SEASON}|{WEEKDAY})"
            rf" (?P<way>before last|after next){_GOES_ON}",
            _beside_last,
        ),
        (
            ("last ", "past ", "next ", "coming "),
            rf"\b(?:the|these) (?P<way>last|past|next|coming) (?P<number>{NUMBER})"
            r" (?P<unit>day|week|fortnight|month|quarter)s?\b",
            _last,
        ),
        (
            ("last ", "past ", "previous ", "this ", "next ", "coming ", "upcoming "),
            rf"\b(?P<which>{_WHICH}|coming|upcoming) (?P<unit>week|weekend|month"
            rf"|quarter(?!s| of|[ -](?:hour|mile|century|final))|{SEASON}|{WEEKDAY}|{MONTH})\b",
            _which,
        ),
        (
            (" week",),
            rf"\b(?P<day>{WEEKDAY})(?: of| in|,)? (?P<which>{_WHICH}) week\b"
            rf"|\b(?P<which2>{_WHICH}) week,?(?: on)? (?P<day2>{WEEKDAY})\b",
            _weekday_of_week,
        ),
        (
            (" month",),
            rf"\b(?:the )?(?P<day>{DAY_OF_MONTH})(?: day)? of"
            r" (?P<which>last|previous|this|the|next) month\b",
            _day_of_month,
        ),
    )
)

_YEARS_CUES = (
    *("year", "decade", " of the week", " of the month", " of the current", " of this week"),
    " of this month",
)
_YEARS = lazy_pattern(
    rf"\b(?:(?P<ago>{NUMBER}) (?P<ago_unit>year|decade)s? ago|the year (?P<second>before) last"
    rf"|(?:the )?(?:last|past) (?P<number>{NUMBER}) (?P<many>year|decade)s"
    r"|the (?:last|past) (?P<decade>decade)|(?P<which>last|past|previous|this|next) year)\b"
    r"|(?<= of )(?:the(?: current)?|this) (?P<unit>week|month|year)\b"
    r"(?! (?:of|before|after|in|that))",
    re.IGNORECASE,
)


def spoken_days(seen: Scan) -> Iterator[Named]:
    """Yield the days relative to today, in no order; days outside the calendar are `UNKNOWN`."""
    for cues, pattern, meaning in _SPOKEN:
        for match in seen.find(pattern, cues):
            try:
                span = meaning(match, seen.today)
            except (ValueError, OverflowError):
                yield Named(*match.span(), (date.min, date.max), way=UNKNOWN, spoken=True)
                continue
            if seen.way is None and match[0].lower() == "this weekend":
                span = _weekend(seen, match) or span
            yield Named(*match.span(), span, spoken=True)


def spoken_years(seen: Scan) -> Iterator[Named]:
    """Yield years relative to today, and the present week, month or year if a part is named."""
    for match in seen.find(_YEARS, _YEARS_CUES):
        with suppress(ValueError, OverflowError):
            yield Named(*match.span(), _years(match, seen.today), spoken=True)


def _years(match: re.Match[str], today: date) -> Span:
    if match["unit"]:
        return unit_away(today, match["unit"].lower(), 0)
    if match["decade"]:
        return away(today, -1, "decade"), today + DAY
    if match["number"]:
        number = count(match["number"]) * (10 if match["many"].lower() == "decade" else 1)
        return months(today.year - number, today.month)[0], today + DAY
    if match["ago"] and match["ago_unit"].lower() == "decade":
        return whole_years(today.year - 10 * count(match["ago"]) - 1, 3)
    back = count(match["ago"]) if match["ago"] else 1 + bool(match["second"])
    return whole_years(
        today.year - {"this": 0, "next": -1}.get((match["which"] or "").lower(), back)
    )


_WEEKDAY = lazy_pattern(
    rf"(?:\b(?P<on>on|since|until|till|by|before|after) |(?P<first>^|[.!?\n] *|, (?:and )?)"
    rf"|(?P<word>\b(?-i:[a-z]\w*) ))(?P<day>{WEEKDAY})\b(?!,? (?:the )?(?:\d|{MONTH}\b)"
    r"| (?:to|through|thru|of|or)\b|[-\u2013/])",
    re.IGNORECASE,
)
_WAY = {"since": -1, "until": 1, "till": 1, "by": 1}  # of a weekday without a verb
_WEEKDAY_CUES = tuple(
    f"{name}day" for name in ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun")
)
_ENDS = lazy_pattern(rf" *(?:[.,;!?)]|$)| (?:and|but|{_PART_OF_DAY})\b(?!s)", re.IGNORECASE)
# Not: "every Friday", "the Friday of", "my Friday".
_DETERMINERS = frozenset(
    [
        *("a", "an", "and", "any", "coming", "every", "each", "her", "his", "its", "last", "most"),
        *("my", "next", "no", "of", "or", "other", "our", "past", "previous", "some", "that"),
        *("the", "their", "this", "to", "upcoming", "your", "not", "on", "like"),
    ]
)
_WEEKEND = lazy_pattern(
    r"\b(?:over|on|for|at|during|until) the weekend\b(?! (?:of|before|after|that)\b)",
    re.IGNORECASE,
)
_IN_CUES = (" day", " week", " fortnight", " month", " quarter")
_IN = lazy_pattern(
    rf"\bin (?:about |around |just |like |only )?(?P<number>{NUMBER}) (?P<unit>{_UNIT})s?"
    r"(?:['\u2019]s?)?(?P<time> time)?\b(?!-| (?:of|ago|or)\b)",
    re.IGNORECASE,
)


def days_by_tense(seen: Scan) -> Iterator[Named]:
    """Yield the days that are past or ahead by the verb beside them: "on Friday", "in 3 weeks"."""
    today, text = seen.today, seen.text
    for match in seen.find(_WEEKDAY, _WEEKDAY_CUES):
        if match["word"] and (
            match["word"].strip() in _DETERMINERS or not _ENDS.match(text, match.end())
        ):
            continue
        way = tense(text, match.start(), match.end())
        way = way or {"since": -1, "until": 1, "till": 1, "by": 1}.get(
            (match["on"] or "").lower(), 0
        )
        with suppress(ValueError, OverflowError):
            if way:
                span = unit_away(today, match["day"].lower(), way)
                yield Named(match.start("day"), match.end(), span, spoken=True)
    for match in seen.find(_WEEKEND, (" the weekend",)):
        with suppress(ValueError, OverflowError):
            if (weekend := _weekend(seen, match)) is not None:
                yield Named(*match.span(), weekend, spoken=True)
    for match in seen.find(_IN, _IN_CUES):
        with suppress(ValueError, OverflowError):
            if match["time"] or tense(text, *match.span()) > 0:
                yield Named(*match.span(), _from_now(match, today), spoken=True)


def _weekend(seen: Scan, match: re.Match[str]) -> Span | None:
    """Return the last or the next weekend by the tense; on its Sunday, the present one."""
    way = tense(seen.text, *match.span())
    if not way:
        return None
    over = way < 0 and seen.today.weekday() < 6
    if match[0].lower() == "this weekend":  # on a Friday it has begun
        over = way < 0 and seen.today.weekday() < 4
    return unit_away(seen.today, "weekend", -int(over))


_SINCE_WEEKDAY = lazy_pattern(
    rf"(?:(?<=\bsince )|(?<=\bafter ))(?P<day>{WEEKDAY})\b(?!,? (?:the )?(?:\d|{MONTH}))",
    re.IGNORECASE,
)


def since_weekday(seen: Scan, over: bool) -> Iterator[Named]:
    """Yield the latest day before today with the name in "since Monday".

    Args:
        seen: Question.
        over: Whether it is about the past; then "after Monday" counts, too.
    """
    for match in seen.find(_SINCE_WEEKDAY, _WEEKDAY_CUES):
        if over or seen.lower[: match.start()].endswith("since "):
            with suppress(ValueError, OverflowError):
                yield Named(*match.span(), unit_away(seen.today, match["day"].lower(), -1))
