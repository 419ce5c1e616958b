"""Find the places where an English text names days, modified by the words beside them.

"The first weekend of August", "two weeks before 24 July", "from 3 to 5 May", "March last year".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from itertools import pairwise

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text._dates import STATED_YEAR, dates, scan, stated_years
from graphmem_torch.text._spans import (
    DAY,
    DAY_OF_MONTH,
    MONTH,
    NUMBER,
    WEEK,
    WEEKDAY,
    YEAR,
    Span,
    around,
    away,
    count,
    is_year,
    number_of,
    one_day,
    share,
    unit_away,
)
from graphmem_torch.text._spoken import (
    days_by_tense,
    since_weekday,
    spoken_days,
    spoken_years,
)
from graphmem_torch.text.bounds import BETWEEN, EXCEPT, JOINED, ONE_SIDED, UNKNOWN, Named

__all__ = ["asked_places", "told_places"]

_NEVER = date.min, date.max  # days of a date that cannot be read
_SOME_DAY = date(2000, 12, 31)  # in place of an unknown day: at the end of a leap year
_KNOWN = lazy_pattern(r"\d{4}|\d0['\u2019]?s\b|ties\b|century", re.IGNORECASE)
_YEAR_LONG = timedelta(days=365)
_NESTED = 3  # "the first week of the month after May"
_LOOK = 60  # maximum characters of the words before a date

_NTH = {name: i for i, name in enumerate(("first", "second", "third", "fourth", "fifth"))}
_NTH |= {name: i for i, name in enumerate(("1st", "2nd", "3rd", "4th", "5th"))}
_NTH |= {"last": -1, "final": -1}
_FRACTION = {"half": 2, "third": 3, "quarter": 4}
_THIRD = dict.fromkeys(("early", "beginning", "start"), 0) | dict.fromkeys(("mid", "middle"), 1)
_THIRD |= dict.fromkeys(("late", "end"), 2)
_EDGE = {"beginning": -1, "start": -1, "end": 1}
_LARGER = {"day": 7, "week": 31, "month": 366}  # days of the next larger unit

# Words that move the day named after them: "two weeks before", "the Monday after".
_MOVED = lazy_pattern(
    rf"\b(?:(?P<number>{NUMBER}) )?(?P<unit>day|week|fortnight|weekend|month|quarter|year|night"
    rf"|morning|afternoon|evening|{WEEKDAY})s? (?P<way>before|preceding|after|following|from)"
    r" (?:the )?$",
    re.IGNORECASE,
)
# "a week last Tuesday" is the Tuesday of the week before.
_WEEKS = lazy_pattern(rf"\b(?P<number>{NUMBER}) weeks? $", re.IGNORECASE)
_LAST_WEEKDAY = lazy_pattern(rf"last {WEEKDAY}\b", re.IGNORECASE)
# Words that take a part of the days named after them: "the first weekend of", "late", "the week
# of".
_PART = lazy_pattern(
    rf"\b(?:the )?(?:(?:(?:very )?(?P<nth>{'|'.join(_NTH)})"
    rf" (?P<unit>{'|'.join(_FRACTION)}|day|week|weekend|{WEEKDAY})"
    r"|(?P<whole>week|weekend)) (?:of|in)"
    rf"|(?P<third>{'|'.join(_EDGE)}|middle)(?: part)? of"
    r"|(?P<about>early|mid|late)(?: part of| in)?)"
    r"(?: the)?(?: month of)?(?: the)? $",
    re.IGNORECASE,
)
# Words for the whole time beside the days named after them: "the three weeks after", "the days
# before".
_STRETCH = lazy_pattern(
    rf"\b(?:the|within|over|during|these) (?:first |last |next |following )?(?:(?P<number>{NUMBER})"
    r" )?(?P<unit>day|week|month)(?P<many>s?) (?P<way>before|preceding|after|following)(?: the)? $",
    re.IGNORECASE,
)
# "3 to 10 May", "May 3-10, 2023": the other day of a span in one month.
_DAY_BEFORE = lazy_pattern(
    rf"\b(?:between |from )?(?:the )?(?P<day>{DAY_OF_MONTH})(?: ?[-\u2013\u2014] ?"
    r"| (?:and|to|until|till|through) (?:the )?)$",
    re.IGNORECASE,
)
_OF_MONTH = lazy_pattern(rf"\b{MONTH} $", re.IGNORECASE)
_DAY_AFTER = lazy_pattern(
    rf"(?: ?[-\u2013\u2014] ?| (?:and|to|until|till|through) (?:the )?)(?P<day>{DAY_OF_MONTH})"
    rf"\b(?!:)(?: of)?(?! (?:{MONTH}))(?:,? (?P<year>{YEAR}))?"
    # "On May 3 and 4 friends came."
    r"(?! (?-i:(?!(?:is|was|has|as)\b)[a-z]{2,}s|people|men|women|children)\b)",
    re.IGNORECASE,
)
_DETERMINED = lazy_pattern(r"\b(?:the )?(?:very )?(?:last|first|next) $|\bthe $", re.IGNORECASE)

_OVER = lazy_pattern(
    r"\b(?:did|was|were|have|has|had|been|happened|occurred|took|went|came"
    r"|(?:last|past) (?:\w+ )?(?:day|week|month)s?)\b",
    re.IGNORECASE,
)
# Bounds beyond or within a distance: "more than two weeks ago", "within 3 days of".
_BEYOND = (
    r"\b(?:(?P<least>at least|a minimum of|(?:not|no) (?:less|fewer|sooner|earlier) than)"
    r"|(?P<less>(?:not|no) (?:more|longer|later|greater|further) than|less than|fewer than"
    r"|(?:not )?under|not over|at (?:the )?most|a maximum of|within)"
    r"|(?P<more>more than|longer than|greater than|further than|over|upwards of|beyond))"
    rf" (?P<number>{NUMBER}) (?P<unit>day|week|month|year)s?"
)
_BEYOND_AGO = lazy_pattern(rf"{_BEYOND} (?:ago|back)\b", re.IGNORECASE)
_BEYOND_DATE = lazy_pattern(
    rf"{_BEYOND} (?:(?P<before>before|preceding|prior to|ahead of)|(?P<after>after|following|past)"
    r"|of|from|around|either side of)(?: the)? $",
    re.IGNORECASE,
)
_OR_SO_AGO = lazy_pattern(
    rf"\b(?:{NUMBER}(?: (?:or|to|and) | ?[-\u2013\u2014] ?)(?:{NUMBER}|more|fewer)"
    r" (?:day|week|weekend|month|year)s?|(?:day|week|month|year)s? or (?:more|longer|less|two|so))"
    r" ago\b",
    re.IGNORECASE,
)
_LAST_FEW = lazy_pattern(
    rf"\b(?:last|past|previous|preceding) (?P<number>(?!few|several){NUMBER})"
    r" (?P<unit>day|week|month)s?\b",
    re.IGNORECASE,
)
_SOME_YEAR = lazy_pattern(
    r"\b(?:the year (?:before|after)(?! last)|that year|the (?:same|following) year)\b",
    re.IGNORECASE,
)
_OF_YEAR = lazy_pattern(r",? (?:(?:of|in|on|during|over|for|back) )*(?:the )?", re.IGNORECASE)


def told_places(text: str, today: date | None, *, by_tense: bool) -> list[Named]:
    """Return the days that a text mentions, in order; of overlapping ones the longest.

    Two dates that are joined to a span ("from 3 to 5 May") are one place. Distances, open ends and
    unreadable days are left out.

    Args:
        text: Text that is said.
        today: Day on which it is said; None if unknown.
        by_tense: Whether days count that only the verb beside them places in the past or future.
    """
    seen = scan(text, today or _SOME_DAY, None)
    text = seen.text
    places = [*_narrowed(text, _longest([*dates(seen), *stated_years(seen)]))]
    if today is not None:
        years = list(spoken_years(seen))
        places = _of_stated_years(text, places, years, beside_alone=True)
        places = _longest([*places, *_narrowed(text, [*spoken_days(seen), *years])])
        if by_tense:
            places = _with_guesses(places, _longest(days_by_tense(seen)))
    places = _joined_to_spans(text, _of_one_year(text, places))
    if today is None:
        places = _of_known_years(text, places)
    return [place for place in places if place.way in ("", "in")]


def asked_places(text: str, today: date | None, *, all: bool = False) -> list[Named]:
    """Return the days that a question names, in order; of overlapping ones the longest.

    Args:
        text: Question.
        today: Day on which it is asked; None if unknown.
        all: Whether days that are not over are included where the question is not about the past.
    """
    over = _OVER.search(text) is not None
    seen = scan(text, today or _SOME_DAY, -int(over))
    text = seen.text
    places = [*_narrowed(text, _longest([*dates(seen), *stated_years(seen)]))]
    if today is not None:
        over |= all
        years = list(spoken_years(seen))
        places = _of_stated_years(text, places, years)
        places += [*_distances(text, today), *since_weekday(seen, over)]
        for each in _narrowed(text, [*spoken_days(seen), *years]):
            first, stop = each.span
            if stop <= today or all or each.way:
                places.append(each)
            elif over and first <= today:  # so there is a tomorrow: the calendar ends at `stop`
                places.append(each._replace(span=(first, today + DAY)))
    places = _of_one_year(text, _longest(places))
    return _of_known_years(text, places) if today is None else places


def _of_known_years(text: str, places: Sequence[Named]) -> list[Named]:
    """Keep the dates that state their year or are joined to one that does, and unreadable ones."""
    stated = [
        place.way == UNKNOWN or _KNOWN.search(text, *place[:2]) is not None for place in places
    ]
    for i, (one, two) in enumerate(pairwise(places)):
        if _joined(text, one, two):
            stated[i : i + 2] = [any(stated[i : i + 2])] * 2
    return [place for place, known in zip(places, stated, strict=True) if known]


def _longest(places: Iterable[Named]) -> list[Named]:
    found: list[Named] = []
    for each in sorted(places, key=lambda each: (each.begin, -each.end)):
        if not found or each.begin >= found[-1].end:
            found.append(each)
    return found


def _with_guesses(places: list[Named], guesses: Iterable[Named]) -> list[Named]:
    """Add days that are placed by a verb, unless they overlap explicit ones."""
    begins, found = [place.begin for place in places], list(places)
    for each in guesses:
        after = bisect_left(begins, each.end)
        if not after or places[after - 1].end <= each.begin:
            found.append(each)
    return sorted(found)


def _joined_to_spans(text: str, places: list[Named]) -> list[Named]:
    """Join two dates that are the ends of one span: "from 3 May to 5 June"."""
    found: list[Named] = []
    for place in places:
        last = found[-1] if found else None
        joint = None if last is None else JOINED.fullmatch(text[last.end : place.begin])
        if last is None or joint is None or last.way or place.way:
            found.append(place)
            continue
        between = BETWEEN.search(text[max(0, last.begin - _LOOK) : last.begin])
        if (joint["list"] and between is None) or place.span[1] <= last.span[0]:
            found.append(place)
            continue
        begin = last.begin - (0 if between is None else len(between[0]))
        spoken = last.spoken or place.spoken
        span = last.span[0], max(last.span[1], place.span[1])
        found[-1] = Named(begin, place.end, span, spoken=spoken)
    return found


def _of_one_year(text: str, places: list[Named]) -> list[Named]:
    """Give two joined dates the same year if only one states it."""
    for i in range(len(places) - 1):
        one, two = places[i : i + 2]
        if not one.way and not two.way and JOINED.fullmatch(text[one.end : two.begin]):
            places[i : i + 2] = _with_year_of_other(text, one, two)
    return places


def _with_year_of_other(text: str, one: Named, two: Named) -> tuple[Named, Named]:
    stated = [STATED_YEAR.search(text, each.begin, each.end) is not None for each in (one, two)]
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
    """Return the same days relative to another day; days relative to today stay."""
    # Read only the surroundings, so that a long text costs no more than a short one.
    start = max(0, place.begin - 2 * _LOOK)
    around_it = text[start : place.end + 2 * _LOOK]
    for each in _narrowed(around_it, dates(scan(around_it, today, 0))):
        if (each.begin + start, each.end + start) == (place.begin, place.end):
            return each._replace(begin=place.begin, end=place.end)
    return place


def _of_stated_years(
    text: str, places: list[Named], spoken: list[Named], *, beside_alone: bool = False
) -> list[Named]:
    """Give dates without a year the one that the text names beside them: "March last year".

    Args:
        text: Text.
        places: Dates and years.
        spoken: Years relative to today.
        beside_alone: Whether a year must touch the date; otherwise the only year of the text
            counts.
    """
    years = sorted(each for each in (*places, *spoken) if is_year(each.span) and not each.way)
    begins = [year.begin for year in years]
    found: list[Named] = []
    for place in places:
        if (
            place.way
            or is_year(place.span)
            or STATED_YEAR.search(text, place.begin, place.end)
            or not (years or _SOME_YEAR.search(text))
        ):
            found.append(place)
            continue
        # A long text names many years; only those near a date can stand beside it.
        near = years
        if beside_alone:
            low, high = place.begin - _LOOK, place.end + _LOOK
            near = years[bisect_left(begins, low) : bisect_left(begins, high)]
        beside = [each for each in near if _is_of(text, place, each)]
        if not beside_alone and _SOME_YEAR.search(text):
            found.append(place._replace(way=UNKNOWN))
            continue
        plain = [] if beside_alone else [each for each in years if not _is_bound(text, each)]
        if beside or (plain and not any(_joined(text, place, each) for each in years)):
            own = (beside or plain)[0]
            again = _named_again(text, place, date(own.span[0].year, 12, 31))
            others = [each for each in near if each != own]
            several = any(not beside or _joined(text, own, each) for each in others)
            if several or again.span[0].year != own.span[0].year:
                again = again._replace(way=UNKNOWN)
            if beside:
                begin, end = min(place.begin, own.begin), max(place.end, own.end)
                again = again._replace(begin=begin, end=end, spoken=own.spoken)
            # Dates joined to it get the same year.
            if found and again.span[0] < found[-1].span[0] and _joined(text, found[-1], again):
                again = again._replace(way=UNKNOWN)
            place = again
        found.append(place)
    return found


def _is_of(text: str, place: Named, year: Named) -> bool:
    """Return whether a year stands beside a date and is not bounded itself."""
    if place.begin < year.begin:
        return _OF_YEAR.fullmatch(text[place.end : year.begin]) is not None
    between = _OF_YEAR.fullmatch(text[year.end : place.begin])
    return between is not None and not _is_bound(text, year)


def _is_bound(text: str, place: Named) -> bool:
    before = text[max(0, place.begin - _LOOK) : place.begin]
    return (ONE_SIDED.search(before) or EXCEPT.search(before)) is not None


def _joined(text: str, one: Named, two: Named) -> bool:
    one, two = sorted((one, two))
    return JOINED.fullmatch(text[one.end : two.begin]) is not None


def _narrowed(text: str, places: Iterable[Named]) -> Iterator[Named]:
    """Yield the named days narrowed by the words beside them, without days that do not exist."""
    for place in places:
        if place.way:
            yield place
            continue
        with suppress(ValueError, OverflowError):  # no such day
            yield _beside_words(text, _to_a_day(text, place))


def _to_a_day(text: str, place: Named) -> Named:
    """Return the span from a named day to another of its month: "May 3-10, 2023"."""
    end, (first, stop) = place.end, place.span
    match = _DAY_AFTER.match(text, end)
    if match is None or place.spoken or stop - first > DAY:
        return place
    first = first.replace(year=int(match["year"] or first.year))
    last = first.replace(day=number_of(match["day"]))
    return place._replace(end=match.end(), span=(first, last + DAY)) if last > first else place


def _beside_words(text: str, place: Named) -> Named:
    """Return the named days as the words before them narrow, move or bound them."""
    begin, end, span, edge, way, spoken = place
    for _ in range(_NESTED):
        before = text[max(0, begin - _LOOK) : begin]
        if match := _BEYOND_DATE.search(before):
            span, way = _beyond_date(span, match)
        elif (match := _STRETCH.search(before)) and (match["number"] or match["many"]):
            span = _beside(span, match)
        elif (match := _MOVED.search(before)) and (moved := _moved(span, match)) is not None:
            span = moved
        elif (match := _WEEKS.search(before)) and _LAST_WEEKDAY.match(text, begin):
            span = one_day(span[0] - count(match["number"]) * WEEK)
        elif (match := _PART.search(before)) and (part := _part(span, match)) is not None:
            span, edge = part, _EDGE.get((match["third"] or "").lower(), 0)
        elif (match := _DAY_BEFORE.search(before)) and not spoken and span[1] - span[0] == DAY:
            first = span[0].replace(day=number_of(match["day"]))
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
    return Named(begin, end, span, edge, way, spoken)


def _moved(span: Span, match: re.Match[str]) -> Span | None:
    """Return the span before or after another, by a match of `_MOVED`; None if there is none."""
    unit, number = match["unit"].lower(), count(match["number"])
    if match["way"].lower() == "from":  # "two weeks from": exact
        if match["number"] is None or span[1] - span[0] > DAY:
            return None
        with suppress(KeyError):
            return one_day(away(span[0], number, unit))
        return None
    way = -1 if match["way"].lower() in ("before", "preceding") else 1
    from_ = span[0] if way < 0 else span[1] - DAY
    if unit == "fortnight":
        unit, number = "week", 2 * number
    elif unit == "week" and match["number"] is None:
        return unit_away(from_, unit, way)
    if unit == "week":
        return around(from_ + way * number * WEEK, 2)
    return unit_away(from_, unit, way * number)


def _beyond_date(span: Span, match: re.Match[str]) -> tuple[Span, str]:
    """Return the stretch within or beyond the distance in a match of `_BEYOND_DATE`."""
    if match["before"] or match["after"]:
        return _beyond(span, match, -1 if match["before"] else 1)
    if not match["less"]:
        return _NEVER, UNKNOWN  # on two sides
    return (_beyond(span, match, -1)[0][0], _beyond(span, match, 1)[0][1]), "in"


def _beyond(span: Span, match: re.Match[str], way: int) -> tuple[Span, str]:
    """Return the days a distance before (-1) or after (1) others, and how they bound."""
    number, unit = count(match["number"]), match["unit"].lower()
    if match["less"]:
        if way < 0:
            return (away(span[0], -number, unit), span[0]), "in"
        return (span[1], away(span[1], number, unit)), "in"
    day = away(span[0] if way < 0 else span[1] - DAY, way * number, unit)
    if match["least"]:
        return one_day(day), "until" if way < 0 else "since"
    return one_day(day), "before" if way < 0 else "after"


def _part(span: Span, match: re.Match[str]) -> Span | None:
    """Return the part of a span that a match of `_PART` names; None if there is none."""
    first, stop = span
    if match["whole"]:
        if stop - first > DAY:
            return None
        return unit_away(first, match["whole"].lower(), 0)
    if third := match["third"] or match["about"]:
        return None if stop - first <= WEEK else share(span, _THIRD[third.lower()], 3)
    nth, unit = _NTH[match["nth"].lower()], match["unit"].lower()
    if unit in _FRACTION:
        of = _FRACTION[unit]
        return share(span, nth % of, of) if nth < of else None
    if unit == "day":
        day = stop - DAY if nth < 0 else first + nth * DAY
        return one_day(day) if first <= day < stop else None
    if unit == "week":
        start = stop - WEEK if nth < 0 else first + nth * WEEK
        return (start, min(start + WEEK, stop)) if first <= start < stop else None
    weekday = "saturday" if unit == "weekend" else unit
    if nth < 0:
        day = unit_away(stop, weekday, -1)[0]
    else:
        day = unit_away(first - DAY, weekday, 1 + nth)[0]
    if not first <= day < stop:
        return None
    return unit_away(day, "weekend", 0) if unit == "weekend" else one_day(day)


def _beside(span: Span, match: re.Match[str]) -> Span:
    """Return the whole time before or after a span, by a match of `_STRETCH`."""
    unit, before = match["unit"].lower(), match["way"].lower() in ("before", "preceding")
    from_ = span[0] if before else span[1]
    way = -1 if before else 1
    if match["number"] is None:
        to = from_ + way * _LARGER[unit] * DAY
    else:
        to = away(from_, way * count(match["number"]), unit)
    return (to, from_) if before else (from_, to)


def _distances(text: str, today: date) -> Iterator[Named]:
    """Read stretches that reach back from today: at most, at least, the last so many days."""
    # Searching for these words first is many times as quick.
    lower = text.lower()
    ago = text if " ago" in lower or " back" in lower else ""
    for match in _BEYOND_AGO.finditer(ago):
        with suppress(ValueError, OverflowError):
            span, way = _beyond(one_day(today), match, -1)
            yield Named(*match.span(), (span[0], today + DAY) if way == "in" else span, 0, way)
    for match in _OR_SO_AGO.finditer(ago):
        yield Named(*match.span(), _NEVER, 0, UNKNOWN)
    for match in _LAST_FEW.finditer(text):
        with suppress(ValueError, OverflowError):
            length = {"day": 1, "week": 7, "month": 31}[match["unit"].lower()]
            first = today - length * count(match["number"]) * DAY
            yield Named(*match.span(), (first, today + DAY))
