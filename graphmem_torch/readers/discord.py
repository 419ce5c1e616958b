"""Exports of Discord by DiscordChatExporter as JSON: one file for each channel.

A file has `guild` (`id`, `name`), `channel` (`id`, `name`, `category`, `type`), `dateRange`,
`exportedAt` and `messages`. A message has `id`, `type` ("Default", "Reply", or an event such as
"GuildMemberJoin"), `timestamp`, `timestampEdited` (ISO 8601), `content`, `author` (`id`, `name`,
`nickname`), `attachments`, `embeds` (`title`, `description`, `fields`), `stickers`, `mentions`, and
for a reply `reference` (`messageId`).

In texts `<@123>` becomes the person's name, `<:smile:1>` ":smile:", `<t:1714730400:f>` the time.
Embeds are part of the text. Attachments, stickers and events are counted. A reply has an edge to
the message it answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
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

__all__ = ["is_discord", "read_discord"]

_NAME = "discord"
_SAID = frozenset(
    {"Default", "Reply", "ChatInputCommand", "ContextMenuCommand", "ThreadStarterMessage"}
)
_NUMBERS = {"0": "Default", "19": "Reply", "20": "ChatInputCommand"}  # of older exporters
_MARK = lazy_pattern(
    r"<(?:(?P<kind>@[!&]?|#)(?P<id>\w+)|a?(?P<emoji>:\w+:)\d+|t:(?P<time>\d{1,11})(?::\w)?)>"
)


def is_discord(data: object) -> bool:
    """Return whether parsed JSON is an export of a channel."""
    whole = mapped(data)
    return (
        isinstance(whole.get("messages"), list)
        and isinstance(whole.get("channel"), Mapping)
        and isinstance(whole.get("guild"), Mapping)
    )


def read_discord(data: Mapping[str, Any], losses: Counter[str]) -> Iterator[Record]:
    """Yield the messages of a channel.

    Args:
        data: Parsed JSON for which `is_discord` is true.
        losses: Counter of skipped content by kind; updated.
    """
    channel, guild = data["channel"], text_of(data["guild"].get("name"))
    own, name = str(channel.get("id")), text_of(channel.get("name"))
    title = f"{guild} #{name}" if guild and guild != "Direct Messages" else name
    replies: dict[str, str] = {}

    def convert(message: Mapping[str, Any]) -> Record | None:
        kind = str(message["type"])
        if _NUMBERS.get(kind, kind) not in _SAID:
            losses[SERVICE] += 1
            return None
        text = _text(message, losses, {own: name})
        if not text:
            losses[EMPTY] += 1
            return None
        author = mapped(message.get("author"))
        found = record(
            _NAME,
            own,
            message["id"],
            text,
            speaker=text_of(author.get("nickname")) or text_of(author.get("name")),
            time=timed(message.get("timestamp")),
            title=title,
            edited=timed(message.get("timestampEdited")),
        )
        answered = mapped(message.get("reference")).get("messageId")
        if answered is not None:
            replies[found["id"]] = f"{_NAME}:{own}/{answered}"
        return found

    yield from linked([*converted(data["messages"], convert, losses)], replies)


def _text(message: Mapping[str, Any], losses: Counter[str], channels: Mapping[str, str]) -> str:
    """Return the text of a message and of its embeds."""
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        raise TypeError("content: expected a string")
    people = {
        str(each.get("id")): text_of(each.get("nickname")) or text_of(each.get("name"))
        for each in map(mapped, listed(message.get("mentions")))
    }

    def said(match: re.Match[str]) -> str:
        if match["time"]:
            return f"{datetime.fromtimestamp(int(match['time']), UTC):%Y-%m-%d %H:%M} UTC"
        if match["emoji"]:
            return match["emoji"]
        known = channels if match["kind"] == "#" else people
        return match["kind"][0] + (known.get(match["id"]) or match["id"])

    texts = [_MARK.sub(said, content or "").strip()]
    texts.append(_MARK.sub(said, text_of(mapped(message.get("forwardedMessage")).get("content"))))
    for embed in map(mapped, listed(message.get("embeds"))):
        texts += [text_of(embed.get(key)) for key in ("title", "description")]
        for each in map(mapped, listed(embed.get("fields"))):
            pair = (text_of(each.get("name")), text_of(each.get("value")))
            texts.append(": ".join(filter(None, pair)))
    count_all(losses, "attachment", message.get("attachments"))
    count_all(losses, "sticker", message.get("stickers"))
    return "\n".join(filter(None, texts))
