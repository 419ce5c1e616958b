"""Replace relative days by absolute ones: "last Friday" becomes "on 5 May 2023".

Reads English only (`text.times`). A text has no absolute form if a relative time in it cannot be
placed, touches another time, is quoted or is in a title.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.tense import AHEAD, PAST
from graphmem_torch.text.times import MONTHS, DatedPlace, dated_places

__all__ = ["absolute", "absolute_sentences", "spelled_day"]

_DAY = timedelta(days=1)
_ANY = 0.0  # a moment: only the positions of relative words are needed
_UNIT = r"(?:second|minute|hour|day|night|week|weekend|month|year|decade|fortnight|century)s?"
_PART = r"(?:morning|afternoon|evening|night)"
_NUMBER = (
    r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|(?:a )?(?:couple(?: of)?|few|several))"
)
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thurs?|fri|sat(?:ur)?|sun)(?:day)?"
_SEASON = r"(?:spring|summer|fall|autumn|winter)"
_MONTHS = rf"(?:{'|'.join(MONTHS)})"
_COUNT = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_COUNT |= {"six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}

_YEARS = lazy_pattern(
    r"\b(?:(?P<which>last|this|next) year"
    rf"|(?P<number>{'|'.join(_COUNT)}|\d{{1,2}}) years? ago)\b",
    re.IGNORECASE,
)
_FEAST = (
    r"(?:christmas|xmas|easter|thanksgiving|halloween|hanukkah|ramadan|diwali"
    r"|new year(?:['\u2019]s)?(?: eve| day)?|valentine['\u2019]s(?: day)?|passover|eid|lent"
    r"|holidays?|birthday|anniversary|semester|trimester|term|season|quarter|vacation|school year)"
)
_TURN = r"(?:last|past|previous|next|coming|upcoming|following)"
# Words of relative time that are left after the places are taken out ("\0").
_LEFT = lazy_pattern(
    r"\b(?:ago|yesterday|today|tonight|tomorrow|recently|lately|of late|nowadays|currently"
    r"|presently|at present|soon|now|at the moment|so far|(?:back|by|since|until|till) then"
    r"|(?:later|earlier)(?! ?\0)|shortly(?! (?:before|after))"
    r"|in a (?:bit|while|moment)|a while back"
    rf"|{_TURN} (?:\w+ ){{0,2}}"
    rf"(?:{_UNIT}|{_PART}s?|{_SEASON}|{_WEEKDAY}s?|times?|{_FEAST}|{_MONTHS})"
    rf"|(?:this|other|that|same|these|those) (?:{_NUMBER} )?"
    rf"(?:{_UNIT}|{_PART}s?|{_SEASON}|{_WEEKDAY}|time|{_FEAST}|{_MONTHS})"
    rf"|{_TURN} (?-i:[A-Z])\w*|(?:before|after) {_TURN}(?! \w)"
    r"|(?:on|at|over|since|until|till|before|after|by|around|during)(?: the)? "
    rf"{_FEAST}(?!,? \d{{4}})"
    # Without an article these are relative to today: "last session".
    r"|(?<!the )(?<!at )(?<!my )(?<!our )(?<!his )(?<!her )(?<!its )(?<!your )(?<!their )"
    r"(?:last|next)(?! to\b| door\b|,) \w+"
    rf"|in {_NUMBER} {_UNIT}"
    rf"|{_NUMBER} {_UNIT} (?:before|after|since|from|away|left|until|till|hence)"
    rf"|{_UNIT} back"
    rf"|(?:the|an?|one) (?:{_UNIT}|one) (?:before|after)(?! [\w\0])"
    r"|(?<!every )(?<!each )(?:mon|tues|wednes|thurs|fri|satur|sun)day(?!\w)(?!,? \0)"
    r"|the weekend(?! of \0)|(?:on|by|until|since|before|after) the \d{1,2}(?:st|nd|rd|th)"
    r"|(?:on|by|until|since|before|after) \d{1,2}/\d{1,2}(?!/?\d))\b",
    re.IGNORECASE,
)
# Joins two times that are one: "10 years ago today", "in June last year".
_TOUCH = lazy_pattern(
    r"[\s,;()\u2013\u2014-]*(?:(?:in|on|of|at|the|during|around|about|early|late|mid)\b[\s,]*)*",
    re.IGNORECASE,
)
# Words that change the day of the phrase after them: "every", "a week last Tuesday".
_ALTERED = lazy_pattern(
    r"\b(?:every|each|any|some|most|no|not|another|either|neither|an?|half|mid|my|your|his|her|its"
    r"|our|their|whose|\w+(?<!\bit)(?<!\bthat)['\u2019]s|ago|"
    r"(?:like|as if|as though)(?: it (?:was|were)| just| only)*|"
    rf"(?<!all )(?<!every )(?<!each )(?<!one )(?:{_UNIT}|{_PART}s?|{_WEEKDAY}s?)) $",
    re.IGNORECASE,
)
# The rest of a number: "twenty-five days ago", "two or three weeks ago", "1.5 years ago".
_MORE = lazy_pattern(
    r"(?:[-\u2013/]|\d[.,]|\b(?:(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand"
    rf"|dozen|half|{_NUMBER})(?: (?:and|or|to))? )$",
    re.IGNORECASE,
)
_ALTERED_BEHIND = lazy_pattern(
    rf" (?:of|but one|before last|after next|last|gone|ago|{_UNIT}|{_WEEKDAY})\b"
    rf"|,? (?:on|in|at) (?:the )?(?:{_WEEKDAY}|{_MONTHS}|{_SEASON})\b|(?-i: by [A-Z])",
    re.IGNORECASE,
)
_MARKS = lazy_pattern(r"[\"\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a`]")
_OPENED = lazy_pattern(r"(?<!\w)['\u2018\u2019](?=\w)")
_CLOSED = lazy_pattern(r"(?<=[\w.,!?])['\u2019](?!\w)")
_BEGUN = lazy_pattern(r"(?:^|[.!?:;\n\u2014])[\s\"'\u201c\u2018(\[*_-]*$")
_CITED = lazy_pattern(
    r"\b(?:sa(?:id|ys?)|t(?:old|ells?)|wr(?:ote|ites?|itten)|ask(?:s|ed)?|repl(?:y|ies|ied)|reads?"
    r"|answer(?:s|ed)|text(?:s|ed)|shout(?:s|ed)|thought|quot(?:es?|ed|ing))\b[^.!?]*[:,] ",
    re.IGNORECASE,
)
# "the last week" may be the seven days before, or the last one of something.
_OF_SPAN = lazy_pattern(
    rf"\bthe (?:last|past|previous|this|next) (?:{_UNIT}|{_WEEKDAY}|{_SEASON}|{_MONTHS})$"
    r"|\bthis (?:last|past) (?:week|month|year)$",
    re.IGNORECASE,
)
_WORDS = lazy_pattern(r"[^\W\d_]+")
# Days of every year.
_YEARLY = lazy_pattern(
    r"\b(?:every|each|any|always|usually|often|sometimes|annual(?:ly)?|yearly|tradition\w*|born"
    r"|birthdays?|anniversary)\b",
    re.IGNORECASE,
)
_PROPER = lazy_pattern(rf"(?:{_WEEKDAY}|{_MONTHS})", re.IGNORECASE)
_BESIDE = lazy_pattern(
    rf"\b(?:{_UNIT}|{_PART}|{_WEEKDAY}) (?:before|after) (?:the )?$", re.IGNORECASE
)
_TURNED = lazy_pattern(r"\bthis $", re.IGNORECASE)
_BOUND = lazy_pattern(r"\b(?:over|under|(?:more|less) than|at least|at most) $", re.IGNORECASE)
_WORD_BEFORE = lazy_pattern(r"\b(\w+) $")
# A day after one of these needs no further word: "since 5 May 2023".
_GOVERNING = frozenset(
    [
        *("about", "after", "all", "as", "before", "between", "by", "during", "entire", "for"),
        *("from", "like", "of", "on", "over", "since", "than", "through", "throughout", "till"),
        *("to", "until", "whole", "within"),
    ]
)
_BARE = frozenset(("at", "in", "on"))
_ABOUT = frozenset(("about", "around", "almost", "nearly", "roughly", "approximately"))
# "The last two weeks", "from Friday to yesterday": a stretch from one day to another.
_STRETCH = lazy_pattern(rf"(?:the|these) (?:last|past|next|coming) {_NUMBER} |(?:from|between) ")
_OVER = lazy_pattern(r"\b(?:over|in|for|during|within|throughout) $", re.IGNORECASE)
# A day that is the subject is no adverb: "yesterday was great".
_DOES = lazy_pattern(
    r"['\u2019]s\b| (?:is|was|were|are|will|would|has|had|have|been|could|can|might|may|must|should"
    r"|seems?|seemed|feels?|felt|marks?|marked|went|turned)\b",
    re.IGNORECASE,
)
_OF_DAY = lazy_pattern(rf" ({_PART})\b", re.IGNORECASE)
_PARTS = {"tonight": "evening", "last night": "night"}


class _Phrase(NamedTuple):
    """Replacement of a relative phrase.

    Attributes:
        preposition: Word that joins it to a sentence; may be empty.
        words: Days.
        noun: Same days as the subject of a sentence.
    """

    preposition: str
    words: str
    noun: str = ""


def absolute(text: str, said: float | None) -> str | None:
    """Return an English text with absolute days in place of relative ones.

    "I painted it last Friday", said on 8 May 2023, becomes "I painted it on 5 May 2023". Weeks are
    named by their Monday, weekends by their Saturday. A month or a day without a year gets the year
    that `told_days` reads if the tense agrees with it.

    Args:
        text: Any text.
        said: Time of saying in seconds since the epoch, UTC; None or NaN if unknown.

    Returns:
        None if `said` is unknown, or if a relative time
        - has no day ("recently", "the next day", a weekday alone),
        - is a part of a longer phrase ("every last Friday"), is quoted, or is in a title.
    """
    said = None if said is None or math.isnan(said) else said
    places = dated_places(text, _ANY if said is None else said)
    spans = [(place.begin, place.end) for place in places]
    fixed = {(place.begin, place.end) for place in dated_places(text, None)}
    loose = [place for place in places if (place.begin, place.end) not in fixed]
    years = [match for match in _YEARS.finditer(text) if _is_free(match, spans)]
    changes: list[tuple[int, int, str]] = []
    if said is None:
        if loose or years:
            return None
    else:
        today = datetime.fromtimestamp(said, UTC).date()
        for place in loose:
            change = _spoken(text, place) if place.spoken else _with_year(text, place, today)
            if change is None:
                return None
            changes.append(change)
        changes += [_placed(text, *match.span(), _year(match, today)) for match in years]
    relative = [(place.begin, place.end) for place in loose] + [match.span() for match in years]
    spans += [match.span() for match in years]
    if any(not _is_alone(text, *span, spans) for span in relative):
        return None
    if _LEFT.search(_blanked(text, spans)):
        return None
    for begin, end, words in sorted(changes, reverse=True):
        text = text[:begin] + words + text[end:]
    return text


def absolute_sentences(text: str, said: float | None) -> Iterator[tuple[str, str | None]]:
    """Yield each sentence of a text with its absolute form.

    A quotation over several sentences counts as said on an unknown day.

    Args:
        text: Any text.
        said: Time of saying, see `absolute`.
    """
    inside = False
    for sentence in split_sentences(text):
        yield sentence, absolute(sentence, None if inside else said)
        inside ^= len(_MARKS.findall(sentence)) % 2 == 1


def spelled_day(day: date) -> str:
    """Return a day as "5 May 2023"."""
    return f"{day.day} {_month(day)}"


def _month(day: date) -> str:
    return f"{MONTHS[day.month - 1].capitalize()} {day.year}"


def _is_free(match: re.Match[str], spans: Sequence[tuple[int, int]]) -> bool:
    return all(match.end() <= begin or match.start() >= end for begin, end in spans)


def _is_alone(text: str, begin: int, end: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a relative time stands alone and is reckoned by the speaker."""
    for other_begin, other_end in spans:
        gap = text[end:other_begin] if other_begin >= end else text[other_end:begin]
        if (other_begin, other_end) != (begin, end) and _TOUCH.fullmatch(gap):
            return False
    before, said, after = text[:begin], text[begin:end], text[end:]
    if of_day := _OF_DAY.match(after):
        said, after = said + of_day[0], after[of_day.end() :]
    return not (
        _ALTERED.search(before)
        or _ALTERED_BEHIND.match(after)
        or (" ago" in said.lower() and (_MORE.search(before) or _BOUND.search(before)))
        or _OF_SPAN.search(before + said)
        or _CITED.search(before)
        or _is_quoted(text, begin, end)
        or _is_title(before, said)
    )


def _is_title(before: str, said: str) -> bool:
    """Return whether capitals make a time part of a name: "I heard Last Friday Night"."""
    words = _WORDS.findall(_PROPER.sub("", said))
    return any(word[0].isupper() for word in words[bool(_BEGUN.search(before)) :])


def _is_quoted(text: str, begin: int, end: int) -> bool:
    """Return whether a place is inside quotation marks, or one of a pair is missing."""
    if any(len(_MARKS.findall(each)) % 2 for each in (text[:begin], text[end:])):
        return True
    opened = any(match.start() < begin for match in _OPENED.finditer(text))
    return opened and _CLOSED.search(text, end) is not None


def _blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the text with a zero byte in place of each span."""
    for begin, end in sorted(spans, reverse=True):
        text = text[:begin] + "\0" + text[end:]
    return text


def _with_year(text: str, place: DatedPlace, today: date) -> tuple[int, int, str] | None:
    """Return a date with its year; None if another year is possible."""
    named, first, behind = text[place.begin : place.end], place.first, place.behind
    over, ahead = PAST.search(text), AHEAD.search(text)
    if first.year != (behind - _DAY).year:
        return None
    if _YEARLY.search(text) or (behind <= today and (ahead or not over)):
        return None
    if first > today and (over or not ahead):
        return None
    stop = "." if named.rstrip(".").lower().endswith(MONTHS) and named.endswith(".") else ""
    named = named.removesuffix(stop)
    comma = "," if named[-1].isdigit() or named[-2:] in ("st", "nd", "rd", "th") else ""
    return place.begin, place.end, f"{named}{comma} {first.year}{stop}"


def _year(match: re.Match[str], today: date) -> _Phrase:
    if match["which"]:
        return _Phrase(
            "in", str(today.year + {"last": -1, "this": 0, "next": 1}[match["which"].lower()])
        )
    number = match["number"].lower()
    back = _COUNT.get(number) or int(number)
    return _Phrase("around" if back > 1 else "in", str(today.year - back))


def _spoken(text: str, place: DatedPlace) -> tuple[int, int, str] | None:
    """Return the replacement of a phrase relative to the day it was said; None if unknown."""
    begin, end = place.begin, place.end
    said, before = text[begin:end].lower(), text[:begin]
    if _BESIDE.search(before):
        return None
    turned = _TURNED.search(before)
    if turned is not None and said.startswith(("last", "past", "next", "previous")):
        begin = turned.start()
    part = _PARTS.get(said) or (said.split()[1] if said.startswith("this ") else "")
    of_day = _OF_DAY.match(text[end:])
    if not part and of_day and place.behind - place.first == _DAY and not said.endswith(" ago"):
        part, end = of_day[1].lower(), end + of_day.end()
    if _STRETCH.match(said):
        over = _OVER.search(before)
        begin = begin if over is None else over.start()
    return _placed(text, begin, end, _phrase(said, part, place))


def _phrase(said: str, part: str, place: DatedPlace) -> _Phrase:
    """Return the days of a phrase, and the preposition that joins them to a sentence."""
    first, last = place.first, place.behind - _DAY
    middle = first + (last - first) // 2
    vague, whole_months = _is_vague(said), first.day == place.behind.day == 1
    season = re.search(_SEASON, said)
    if season and (place.behind - first).days > 80:
        return _Phrase("in", f"the {season[0]} of {first.year}")
    days = f"from {spelled_day(first)} to {spelled_day(last)}"
    if _STRETCH.match(said):
        return _Phrase("", days, f"the days {days}")
    if whole_months and not vague and _month(first) != _month(last):
        between = f"between {spelled_day(first)} and {spelled_day(last)}"
        return _Phrase("", between, f"the days {days}")
    if first.weekday() == 4 and last == first + 2 * _DAY and "weekend" in said:
        return _Phrase("on", f"the weekend of {spelled_day(first + _DAY)}")
    if whole_months and not vague:
        return _Phrase("in", _month(first))
    if first.weekday() == 0 and last == first + 6 * _DAY:
        return _Phrase("in", f"the week of {spelled_day(first)}")
    if first < last:
        long = "month" in said and last - first > 26 * _DAY
        return _Phrase("around", _month(middle) if long else spelled_day(middle))
    if re.fullmatch(_PART, part):
        return _Phrase("on", f"the {part} of {spelled_day(first)}")
    return _Phrase("on", spelled_day(first))


def _is_vague(said: str) -> bool:
    return "few" in said or "several" in said


def _placed(text: str, begin: int, end: int, phrase: _Phrase) -> tuple[int, int, str]:
    """Return a phrase as it stands in the sentence, with the preposition that it needs."""
    before = _WORD_BEFORE.search(text[:begin])
    word = "" if before is None else before[1].lower()
    preposition, words = phrase.preposition, phrase.words
    does = _DOES.match(text[end:]) is not None
    if does or word == "of":
        preposition, words = "", phrase.noun or words
    elif word in _BARE and word != preposition != "" and text[begin : begin + 4].lower() == "the ":
        begin -= len(word) + 1  # "in the first weekend of last month": on that weekend
    elif word == preposition or word in _ABOUT or word in _GOVERNING:
        preposition = preposition if preposition == "around" and word not in _ABOUT else ""
    new = f"{preposition} {words}".strip()
    opens = not text[:begin].strip("\"'\u201c\u2018([ ")
    return begin, end, new[0].upper() + new[1:] if opens else new
