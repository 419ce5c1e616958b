"""Dates in texts: the share read correctly, compared with three libraries.

`python -m bench.dates [--readers NAME ...] [--wrong] [--json OUT]`

`dated_phrases.jsonl` contains statements and questions with the day on which each is said, and the
days they mean: 21 difficult ones ("spoken"), and 100 each after turns of LoCoMo and of LongMemEval.
These were drawn at random from turns with a word of time, at most seven with the same words,
reduced to a phrase, and annotated by hand before any reader saw them. A reading must cover `first`
to `last` and stay within `low` to `high`. If a line has no days, nothing may be read: it names a
habit ("every Friday"), or is vague ("the other day").

Readers are `package`, and `dateparser`, `parsedatetime` and `recognizers`, which are installed
separately: `pip install dateparser parsedatetime recognizers-text-suite "emoji<2"`. Of several
dates in a text, the narrowest counts; of equal ones, the first. If a library returns a moment and
its unit, the day of the moment and the unit around it are both tried.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from tyro.conf import arg

from bench.command import command
from graphmem_torch.errors import InputError
from graphmem_torch.quality.common.measure import code_version
from graphmem_torch.text.times import asked_window, told_days

__all__ = ["READERS", "Dates", "Phrase", "is_right", "main", "phrases", "run"]

_DATA = Path(__file__).with_name("dated_phrases.jsonl")
_DAY = timedelta(days=1)
_EPOCH = date(1970, 1, 1)

Days = tuple[date, date]
"""First day and last day."""


@dataclass(frozen=True)
class Dates:
    """Settings of a measurement.

    Attributes:
        readers: Names of readers, of `READERS`.
        wrong: Whether to list the phrases that are read wrong.
        json: File to write the report to; standard output by default.
    """

    readers: Annotated[tuple[str, ...], arg(metavar="NAME")] = ("package",)
    wrong: bool = False
    json: Path | None = None


class Phrase(NamedTuple):
    """A phrase and the days it means.

    Attributes:
        source: Data set of the phrase.
        said: Day on which it is said, at noon UTC.
        text: The phrase.
        asked: Whether it is a question, for `asked_window`.
        least: Days that must be read; None: nothing may be read.
        most: Days that may be read.
    """

    source: str
    said: date
    text: str
    asked: bool
    least: Days | None
    most: Days | None


def phrases(path: Path = _DATA) -> Iterator[Phrase]:
    """Yield the annotated phrases of a file."""
    with path.open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            least = most = None
            if line["first"] is not None:
                least = date.fromisoformat(line["first"]), date.fromisoformat(line["last"])
                most = (
                    date.fromisoformat(line.get("low", line["first"])),
                    date.fromisoformat(line.get("high", line["last"])),
                )
            said = date.fromisoformat(line["said"])
            asked = line.get("asked", False)
            yield Phrase(line["from"], said, line["text"], asked, least, most)


def is_right(phrase: Phrase, read: Sequence[Days]) -> bool:
    """Return whether a reading of a phrase is right; an empty reading says that it has no day."""
    if phrase.least is None or phrase.most is None:
        return not read
    (least_first, least_last), (most_first, most_last) = phrase.least, phrase.most
    return any(
        most_first <= first <= least_first and least_last <= last <= most_last
        for first, last in read
    )


def _package(phrase: Phrase) -> list[Days]:
    said = datetime.combine(phrase.said, time(12), UTC).timestamp()
    if phrase.asked:
        window = asked_window(phrase.text, said)
        if window is None:
            return []
        start, end = (min(max(each, -6e10), 2.5e11) // 86_400 for each in window)
        return [(_EPOCH + start * _DAY, _EPOCH + end * _DAY)]
    first, behind = told_days(phrase.text, said)
    return [] if first == behind else [(_EPOCH + first * _DAY, _EPOCH + (behind - 1) * _DAY)]


def _unit_around(day: date, unit: str) -> Days:
    if unit == "week":
        monday = day - day.weekday() * _DAY
        return monday, monday + 6 * _DAY
    if unit == "month":
        first = day.replace(day=1)
        return first, (first + 31 * _DAY).replace(day=1) - _DAY
    if unit == "year":
        return date(day.year, 1, 1), date(day.year, 12, 31)
    return day, day


def _narrowest(found: Iterable[tuple[date, str]]) -> list[Days]:
    """Return readings of the moment in the narrowest unit."""
    order = ("day", "week", "month", "year")
    day, unit = min(found, key=lambda each: order.index(each[1]), default=(None, ""))
    return [] if day is None else [(day, day), _unit_around(day, unit)]


def _dateparser(phrase: Phrase) -> list[Days]:
    search = importlib.import_module("dateparser.search").search_dates
    parser = importlib.import_module("dateparser.date").DateDataParser
    base = datetime.combine(phrase.said, time(12))
    settings = {"RELATIVE_BASE": base, "PREFER_DATES_FROM": "past"}
    dates = search(phrase.text, languages=["en"], settings=settings) or []
    data = parser(languages=["en"], settings=settings)
    found = []
    for words, moment in dates:
        unit = data.get_date_data(words).period
        found.append((moment.date(), unit if unit in ("week", "month", "year") else "day"))
    return _narrowest(found)


def _parsedatetime(phrase: Phrase) -> list[Days]:
    module = importlib.import_module("parsedatetime")
    calendar = module.Calendar(version=module.VERSION_CONTEXT_STYLE)
    found = []
    base = datetime.combine(phrase.said, time(12))
    for moment, context, *_ in calendar.nlp(phrase.text, base) or ():
        accuracy = context.accuracy
        units = {
            "day": module.pdtContext.ACU_DAY | module.pdtContext.ACU_NOW,
            "week": module.pdtContext.ACU_WEEK,
            "month": module.pdtContext.ACU_MONTH,
            "year": module.pdtContext.ACU_YEAR,
        }
        unit = next((name for name, mask in units.items() if accuracy & mask), "day")
        found.append((moment.date(), unit))
    return _narrowest(found)


def _recognizers(phrase: Phrase) -> list[Days]:
    module = importlib.import_module("recognizers_date_time")
    base = datetime.combine(phrase.said, time(12))
    found: list[list[Days]] = []
    for each in module.recognize_datetime(phrase.text, module.Culture.English, reference=base):
        values = []
        for value in (each.resolution or {}).get("values", ()):
            try:
                if value["type"] in ("date", "datetime"):
                    day = date.fromisoformat(value["value"][:10])
                    values.append((day, day))
                elif value["type"] in ("daterange", "datetimerange"):
                    first, last = (date.fromisoformat(value[key][:10]) for key in ("start", "end"))
                    # It returns the day after the last or, after "to", the last day.
                    values += [(first, max(first, last - _DAY)), (first, last)]
            except (KeyError, ValueError):
                continue
        begun = [days for days in values if days[0] <= phrase.said]
        if values:  # for one date in two years, the latest that has begun
            chosen = max(begun)[0] if begun else values[0][0]
            found.append([days for days in values if days[0] == chosen])
    return min(found, key=lambda days: days[0][1] - days[0][0], default=[])


READERS: Mapping[str, Callable[[Phrase], list[Days]]] = {
    "package": _package,
    "dateparser": _dateparser,
    "parsedatetime": _parsedatetime,
    "recognizers": _recognizers,
}
"""Readers by name; each returns the readings of a phrase, none if it has no day."""


def run(options: Dates) -> Mapping[str, Any]:
    """Return the number of phrases that each reader reads right, by data set."""
    unknown = set(options.readers) - READERS.keys()
    if unknown:
        raise InputError(
            f"--readers: expected names of {', '.join(READERS)}, got {', '.join(sorted(unknown))}"
            "; give known ones"
        )
    report: dict[str, Any] = {"commit": code_version(), "readers": {}}
    every = list(phrases())
    report["n"] = Counter(phrase.source for phrase in every)
    for name in options.readers:
        wrong: list[dict[str, Any]] = []
        right = Counter(dict.fromkeys(report["n"], 0))
        for phrase in every:
            read = READERS[name](phrase)
            if is_right(phrase, read):
                right[phrase.source] += 1
            else:
                wrong.append({"text": phrase.text, "said": str(phrase.said), "read": _shown(read)})
        report["readers"][name] = {"right": right, **({"wrong": wrong} if options.wrong else {})}
    return report


def _shown(read: Sequence[Days]) -> list[str]:
    return [f"{first} to {last}" for first, last in read]


def main(arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Read the options, read the phrases, and report how many are right."""
    return command(Dates, run, arguments, __doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
