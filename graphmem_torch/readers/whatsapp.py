"""Exports of WhatsApp: `_chat.txt` (iPhone) or "WhatsApp Chat with NAME.txt" (Android).

A message is a line with date, time, speaker and text, and the lines after it up to the next one:

    [13.05.24, 21:08:09] Eva: The key is            5/13/24, 9:08 PM - Eva: The key is
    under the pot.                                   under the pot.

Date and time have the format of the phone, and are taken as UTC:

- day, month and year in any order, separated by ".", "/" or "-", or as in "2024年5月13日";
- 12 or 24 hours, with the half of the day before or after the time ("PM", "p. m.", "下午", "μ.μ.");
- a word before the time ("klo", "à"), digits of any script, and marks of direction anywhere.

The order of day and month is decided for the whole file: by a number above 12, by "." between them
(day first), or because the other order would go back in time. An undecided file is refused; the
formats "whatsapp-dmy" and "whatsapp-mdy" state the order.

Lines without a speaker (encryption, joins), omitted media and deleted messages are counted. A
message has no id of its own; it is identified by chat, time, speaker and text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from graphmem_torch.atoms import text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.readers.chats import SERVICE, Record, record

__all__ = ["WHATSAPP_ORDERS", "is_whatsapp", "read_whatsapp"]

WHATSAPP_ORDERS = {"whatsapp-dmy": "dmy", "whatsapp-mdy": "mdy"}
"""Orders of day, month and year by name of the format that states them."""

_NAME = "whatsapp"
_MEDIA = "media"
_LOOK = 20  # lines at the beginning that must contain a message
_MARKS = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
_STRAY = lazy_pattern(f"[{_MARKS}]")
_BETWEEN = r"(?:\s?[./\-\u2013年월月년]\s?)"
_DATE = rf"(?P<a>\d{{1,4}})(?P<by>{_BETWEEN})(?P<b>\d{{1,2}}){_BETWEEN}(?P<c>\d{{1,4}})"
_CLOCK = (
    r"(?:(?P<before>[^\W\d_][^\d\[\]:]{0,9}?)\s*)?"
    r"(?P<hour>\d{1,2})\s?[:.h]\s?(?P<minute>\d{2})(?:[:.](?P<second>\d{2}))?"
    r"(?:\s?(?P<after>[^\W\d_][^\d\[\]:,\-\u2013]{0,9}?))?"
)
_HEAD = lazy_pattern(
    rf"(?P<open>\[)?{_DATE}(?:[.日일]|\sг\.)?(?P<comma>[,،、]?)\s*{_CLOCK}"
    # The last of these is from old iPhones, the one before from Korea.
    r"(?:\s?\](?P<closed>\s?)|\s[-\u2013]\s|,\s|(?<=:\d\d):\s|(?<=M):\s)(?P<rest>.*)"
)
_COPIED = lazy_pattern(rf"(?P<open>\[){_CLOCK}(?P<comma>,)\s{_DATE}\](?P<closed>\s)(?P<rest>.*)")
# Halves of the day in various languages, without "." and spaces.
_MORNING = "am πμ vorm 上午 午前 오전 凌晨 早上 清晨 fm ap sa de öö ص dop rano ก่อนเที่ยง पूर्वाह्न"
_AFTERNOON = "pm μμ nachm 下午 午後 오후 晚上 中午 傍晚 em ip ch du ös م odp หลังเที่ยง अपराह्न"
_CLOCK_WORDS = ("h", "hrs", "Uhr", "ч", "น")
_AM, _PM = frozenset(_MORNING.split()), frozenset(_AFTERNOON.split())
_SPEAKER = lazy_pattern(
    r"(?P<speaker>[^:\n\"\u201c\u201d\u201e\u00ab\u00bb]{1,100}?)\s?:(?:\s(?P<text>.*)|$)"
)
_LEFT_OUT = lazy_pattern(r"<[^<>\n@/]+>|null")
# Anchored, or without a leading repetition: a line may have a million characters.
_ATTACHED = lazy_pattern(
    r"^[\w .()-]+\.\w{2,5} \([^()\n]+\)|<[^<>\n:]+:[^<>\n]+\.\w{2,5}>", re.MULTILINE
)
_NOTED = lazy_pattern(r"\u200e<[^<>\n]+>$|<(?:[^<>\s/@]+ ){2,}[^<>\s/@]+>$")  # edited
_CALLED = lazy_pattern(
    r"whatsapp.*?(?:\s(?:with|mit|con|com|avec|met|med|с|z|-)\s+)(.+)$", re.IGNORECASE
)
_COPY = lazy_pattern(r"\s?\(\d+\)$")  # suffix of a file that was downloaded again
_BUDDHIST = 543  # years by which the calendar of Thailand is ahead


@dataclass
class _Message:
    """Message in the file.

    Attributes:
        numbers: Three numbers of its date, as written.
        dotted: Whether they are separated by ".".
        clock: Hour, minute and second.
        rest: Text after the time, with the following lines.
    """

    numbers: tuple[str, str, str]
    dotted: bool
    clock: tuple[int, int, int]
    rest: str


def is_whatsapp(text: str, name: str = "") -> bool:
    """Return whether a text is a chat: it begins with a message, and others follow.

    Logs may begin with a date, too: a text with the year first, as in logs, needs further evidence.

    Args:
        text: Text, or its beginning.
        name: Name of the file.
    """
    lines = [line for line in text[: 1 << 14].splitlines() if line.strip(_MARKS + " ")][:_LOOK]
    heads = [match for line in lines if (match := _head(_STRAY.sub("", line)))]
    if not heads or not _head(_STRAY.sub("", lines[0])):
        return False
    if not any(_message(match) and _SPEAKER.match(match["rest"]) for match in heads):
        return False
    signed = "whatsapp" in name.lower() or name.lower().startswith("_chat")
    signed = signed or any(mark in text for mark in ("\u200e", "\u202f"))
    # Android chats have no seconds; iPhone chats have brackets.
    usual = all(match["second"] is None or bool(match["open"]) for match in heads)
    return signed or (usual and all(len(match["a"]) < 4 or match["comma"] for match in heads))


def read_whatsapp(
    text: str, name: str, losses: Counter[str], *, order: str | None = None
) -> Iterator[Record]:
    """Yield the messages of a chat.

    Args:
        text: Text for which `is_whatsapp` is true.
        name: Path of the file, which contains the name of the chat.
        losses: Counter of skipped content by kind; updated.
        order: "dmy" or "mdy", if known.

    Raises:
        InputError: Undecided order of day and month.
    """
    chat, seen = _chat_name(name), Counter[str]()
    messages = [*_messages(text)]
    order = order or _order(messages)
    for message in messages:
        when = _moment(message, order)
        found = _SPEAKER.match(message.rest)
        if when is None or found is None:
            losses[SERVICE if when is not None else "message with an impossible date"] += 1
            continue
        speaker = _STRAY.sub("", found["speaker"]).strip().removeprefix("~").strip()
        said = _said(message.rest[found.start("text") :] if found["text"] is not None else "")
        if not said:
            losses[_MEDIA] += 1
            continue
        known = text_hash(f"{when}\0{speaker}\0{said}")[:16]
        seen[known] += 1
        again = f"-{seen[known]}" if seen[known] > 1 else ""
        yield record(_NAME, chat, known + again, said, speaker=speaker, time=when, title=chat)


def _messages(text: str) -> Iterator[_Message]:
    """Yield the messages of a file, each with its lines."""
    current: _Message | None = None
    for line in text.replace("\r\n", "\n").split("\n"):
        # Marks of direction are removed from the head only: in the text they identify WhatsApp's
        # notices.
        head = _head(line.lstrip(_MARKS)) or _head(_STRAY.sub("", line))
        made = _message(head) if head else None
        if made is not None:
            if current is not None:
                yield current
            current = made
        elif current is not None:
            current.rest += f"\n{line}"
    if current is not None:
        yield current


def _head(line: str) -> re.Match[str] | None:
    """Match the head of a message, as exported or as copied from the browser."""
    return _HEAD.fullmatch(line) or _COPIED.fullmatch(line)


def _message(match: re.Match[str]) -> _Message | None:
    """Return a message with a parsed first line; None if its time is impossible."""
    if bool(match["open"]) != (match["closed"] is not None):
        return None
    hour, minute, second = (int(match[key] or 0) for key in ("hour", "minute", "second"))
    half = next(
        (half for key in ("before", "after") if (half := _half(match[key])) is not None), None
    )
    if (
        match["after"]
        and _half(match["after"]) is None
        and match["after"].strip(". ") not in _CLOCK_WORDS
    ):
        return None
    if half is not None and hour <= 12:
        hour = hour % 12 + 12 * half
    if hour > 23 or minute > 59 or second > 59:
        return None
    numbers = (match["a"], match["b"], match["c"])
    return _Message(numbers, "." in match["by"], (hour, minute, second), match["rest"])


def _half(word: str | None) -> int | None:
    """Return the half of the day that a word names: 0, 1, or None."""
    word = re.sub(r"[\s.\u202f\u00a0]", "", unicodedata.normalize("NFKC", word or "")).casefold()
    return 0 if word in _AM else 1 if word in _PM else None


def _order(messages: Sequence[_Message]) -> str:
    """Return the order of day and month in a file: "dmy" or "mdy".

    Raises:
        InputError: Both orders are possible.
    """
    dates = [message for message in messages if len(message.numbers[0]) < 4]
    if not dates or any(message.dotted for message in dates):
        return "dmy"
    above = [any(int(each.numbers[place]) > 12 for each in dates) for place in (0, 1)]
    if above[0] != above[1]:
        return "dmy" if above[0] else "mdy"
    back = {order: _backward(dates, order) for order in ("dmy", "mdy")}
    if all(each.numbers[0] == each.numbers[1] for each in dates):
        return "dmy"  # the same day in either order
    if (back["dmy"] == 0) != (back["mdy"] == 0):
        return "dmy" if back["dmy"] == 0 else "mdy"
    shown = "/".join(dates[0].numbers)
    raise InputError(
        f"dates: expected one that distinguishes day and month, got {shown}, which are ambiguous "
        "in the whole file; name the format: --format whatsapp-dmy (day first) or whatsapp-mdy, or "
        "text if it is no chat"
    )


def _backward(messages: Sequence[_Message], order: str) -> int:
    """Return how often a message is more than a day earlier than the one above it."""
    moments = [when for each in messages if (when := _moment(each, order)) is not None]
    day = timedelta(days=1).total_seconds()
    return sum(later < first - day for first, later in pairwise(moments))


def _moment(message: _Message, order: str) -> float | None:
    """Return the time of a message in seconds since the epoch; None if the day is impossible."""
    a, b, c = message.numbers
    if len(a) == 4:
        year, month, day = a, b, c
    else:
        day, month, year = (a, b, c) if order == "dmy" else (b, a, c)
    number = int(year) + (2000 if len(year) <= 2 else 0)
    number -= _BUDDHIST if number >= 2400 else 0
    try:
        return datetime(number, int(month), int(day), *message.clock, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _said(text: str) -> str:
    """Return the text of a message; empty for media, deleted messages and the like."""
    told = text.strip()
    if told.startswith("\u200e") and "\n" not in told:
        return ""
    told = _ATTACHED.sub("", _NOTED.sub("", told) if not _LEFT_OUT.fullmatch(told) else "")
    return _STRAY.sub("", told).strip()


def _chat_name(path: str) -> str:
    """Return the name of a chat, from its file or the folder around it."""
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    for part in reversed(parts):
        stem = _COPY.sub("", re.sub(r"\.(?:txt|zip)$", "", part, flags=re.IGNORECASE)).strip()
        if found := _CALLED.search(stem):
            return found[1].strip()
        if stem.lower().lstrip("_") not in ("chat", ""):
            return stem
    return "chat"
