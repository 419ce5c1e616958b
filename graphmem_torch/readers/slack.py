"""Exports of Slack: a folder (or zip) with a folder for each channel and a JSON file for each day.

The files `users.json` (`org_users.json`), `channels.json`, `groups.json`, `dms.json` and
`mpims.json` beside the folders name people and channels. A day is a list of messages: `type`,
`subtype`, `user`, `text`, `ts` (seconds, unique in a channel), `thread_ts` (the `ts` of the message
that a reply answers), `edited`, `files`, `attachments`, `blocks`, `bot_id`, `username`.

In texts `<@U123>` becomes the person's name, `<#C123|general>` the channel's, `<!here>` "@here",
`<https://a.b|words>` "words (https://a.b)"; `&amp;`, `&lt;` and `&gt;` are unescaped. A message
without text has that of its blocks or attachments. Joins, topics and the like, and deleted
messages, are counted. A reply has an edge to the message it answers.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.readers.chats import (
    EMPTY,
    SERVICE,
    Record,
    converted,
    count_all,
    linked,
    listed,
    mapped,
    record,
    text_of,
    timed,
)

__all__ = [
    "SLACK_TABLES",
    "SlackNames",
    "is_slack_day",
    "is_slack_table",
    "read_slack",
    "slack_names",
    "slack_tables",
]

_NAME = "slack"
_USERS = ("users.json", "org_users.json")
_CHANNELS = ("channels.json", "groups.json", "dms.json", "mpims.json")
_OTHERS = ("integration_logs.json", "canvases.json", "content_flags.json", "lists.json")
SLACK_TABLES = (*_USERS, *_CHANNELS)
"""Names of the files that name people and channels."""

_DAY = lazy_pattern(r"\d{4}-\d\d-\d\d\.json", re.ASCII)
_MARK = lazy_pattern(r"<([^<>|]+)(?:\|([^<>]*))?>")
_SAID = frozenset({"bot_message", "me_message", "thread_broadcast", "file_share", "file_comment"})
"""Subtypes of messages by people and programs; all others are Slack's own."""


@dataclass(frozen=True)
class SlackNames:
    """Names behind the ids of an export.

    Attributes:
        people: Names by user id.
        channels: Id and display name ("#general", or the names of the members) by folder name or
            id.
    """

    people: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def is_slack_day(data: object) -> bool:
    """Return whether parsed JSON is one day of a channel."""
    return isinstance(data, list) and any(
        isinstance(each, Mapping) and each.get("type") == "message" and "ts" in each
        for each in data
    )


def slack_tables(day: Path) -> list[Path]:
    """Return the tables beside the folder of a channel that name people and channels."""
    if not _DAY.fullmatch(day.name):
        return []
    return [path for name in SLACK_TABLES if (path := day.parent.parent / name).is_file()]


def is_slack_table(path: Path) -> bool:
    """Return whether a file is read together with the days of an export, or describes it."""
    if path.name not in (*SLACK_TABLES, *_OTHERS):
        return False
    beside = path.parent
    return any((beside / name).is_file() for name in _USERS) and any(
        (beside / name).is_file() for name in _CHANNELS
    )


def slack_names(tables: Mapping[str, str]) -> SlackNames:
    """Return the names of people and channels, from the texts of the tables by file name."""
    people: dict[str, str] = {}
    channels: dict[str, tuple[str, str]] = {}
    for row in _rows(tables, _USERS):
        own = text_of(row.get("id"))
        people[own] = _person(row, own)
    for row in _rows(tables, _CHANNELS):
        own, name = text_of(row.get("id")), text_of(row.get("name"))
        members = [people.get(each, each) for each in listed(row.get("members")) if each]
        called = f"#{name}" if name else ", ".join(map(str, members)) or own
        channels |= {key: (own, called) for key in (own, name) if key}
    return SlackNames(people, channels)


def _rows(tables: Mapping[str, str], names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for name in names:
        with suppress(ValueError, RecursionError):  # names then stay ids
            yield from map(mapped, listed(json.loads(tables.get(name, "[]"))))


def read_slack(
    data: Sequence[object], channel: str, names: SlackNames, losses: Counter[str]
) -> Iterator[Record]:
    """Yield the messages of one day of a channel.

    Args:
        data: Parsed JSON of one day, or of several.
        channel: Name of the folder.
        names: Names behind the ids.
        losses: Counter of skipped content by kind; updated.
    """
    own, called = names.channels.get(channel, (channel, f"#{channel}"))
    replies: dict[str, str] = {}

    def convert(message: Mapping[str, Any]) -> Record | None:
        subtype = text_of(message.get("subtype"))
        if subtype and subtype not in _SAID:
            losses[SERVICE] += 1
            return None
        count_all(losses, "file", message.get("files"))
        text = _readable(message.get("text"), names) or _text_beside(message, names)
        when, stamp = timed(message["ts"]), str(message["ts"])
        if not text:
            losses[EMPTY] += 1
            return None
        found = record(
            _NAME,
            own,
            stamp,
            text,
            speaker=_speaker(message, names),
            time=when,
            title=called,
            edited=timed(mapped(message.get("edited")).get("ts")),
        )
        answered = message.get("thread_ts")
        if answered is not None and str(answered) != stamp:
            replies[found["id"]] = f"{_NAME}:{own}/{answered}"
        return found

    yield from linked([*converted(data, convert, losses)], replies)


def _speaker(message: Mapping[str, Any], names: SlackNames) -> str:
    own = text_of(message.get("user")) or text_of(message.get("bot_id"))
    profile = mapped(message.get("user_profile"))
    bot = text_of(message.get("username")) or text_of(
        mapped(message.get("bot_profile")).get("name")
    )
    return names.people.get(own) or bot or (_person(profile, own) if profile else own)


def _person(row: Mapping[str, Any], own: str) -> str:
    """Return a person's display name, else Slack's own."""
    profile = mapped(row.get("profile"))
    given = (row.get("real_name"), profile.get("real_name"), profile.get("display_name"))
    return next(filter(None, map(text_of, (*given, row.get("display_name"), row.get("name")))), own)


def _readable(text: object, names: SlackNames) -> str:
    """Return a text without Slack's markup."""

    def said(match: re.Match[str]) -> str:
        target, label = match[1], (match[2] or "").strip()
        if target.startswith("@"):
            return "@" + names.people.get(target[1:], label or target[1:]).removeprefix("@")
        if target.startswith("#"):
            return f"#{label}" if label else names.channels.get(target[1:], ("", target))[1]
        if target.startswith("!"):
            return label or "@" + target[1:].partition("^")[0]
        address = target.removeprefix("mailto:")
        return address if label in ("", address, target) else f"{label} ({address})"

    return html.unescape(_MARK.sub(said, text_of(text))).strip()


def _text_beside(message: Mapping[str, Any], names: SlackNames) -> str:
    """Return the text of blocks, attachments and files, for a message without one."""
    blocks = " ".join(_texts_of_blocks(message.get("blocks"), names))
    if blocks.strip():
        return " ".join(blocks.split())
    found = []
    for each in map(mapped, listed(message.get("attachments"))):
        texts = [_readable(each.get(key), names) for key in ("pretext", "title", "text")]
        found += [*filter(None, texts)] or [_readable(each.get("fallback"), names)]
    for each in map(mapped, listed(message.get("files"))):
        found += [text_of(each.get("plain_text")) or text_of(each.get("preview"))]
    return "\n".join(filter(None, found))


def _texts_of_blocks(value: object, names: SlackNames) -> Iterator[str]:
    """Yield the texts of Block Kit in reading order."""
    for each in listed(value):
        block = mapped(each)
        kind, text = block.get("type"), block.get("text")
        if kind == "user":
            own = text_of(block.get("user_id"))
            yield f"@{names.people.get(own, own)}"
        elif kind == "link":
            yield text_of(text) or text_of(block.get("url"))
        elif kind == "emoji":
            yield f":{text_of(block.get('name'))}:"
        elif isinstance(text, Mapping):
            yield _readable(text.get("text"), names)
        elif text is not None:
            yield _readable(text, names)
        yield from _texts_of_blocks(block.get("elements"), names)
        yield from _texts_of_blocks(block.get("fields"), names)
