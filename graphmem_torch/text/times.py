"""Times: every form the input may give them in, to seconds since the epoch, UTC."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from numbers import Real

from graphmem_torch.errors import InputError

__all__ = ["FIRST_SECOND", "LAST_SECOND", "MONTHS", "TimeLike", "parse_span", "parse_time"]

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
FIRST_SECOND, LAST_SECOND = -62_135_596_800.0, 253_402_300_800.0
"""Years 1 to 9999, what a calendar can show; the last is excluded."""
_FORMS = (
    'seconds since the epoch, a datetime, ISO 8601 ("2023-05-08", "2023-05-08T13:56:00+02:00"), or '
    '"1:56 pm on 8 May, 2023"; without an offset it is UTC'
)


def parse_time(value: TimeLike, name: str = "time", *, where: str | None = None) -> float:
    """Seconds since the epoch, UTC.

    Args:
        value: Seconds since the epoch; a `datetime`; a `date`, for its midnight; an ISO 8601 date
            or date and time; or the form of LoCoMo, "1:56 pm on 8 May, 2023". What names no
            offset, a naive `datetime` too, is UTC: answers do not depend on the machine.
        name: Name of the value, for messages.
        where: File and line it came from, for messages.

    Raises:
        InputError: For anything else, naming the accepted forms, and for a time outside the years 1
            to 9999.
    """
    if isinstance(value, Real) and not isinstance(value, bool):
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
    try:
        moment = datetime.fromisoformat(text)
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
