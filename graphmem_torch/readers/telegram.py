"""Exports of Telegram Desktop as JSON: `result.json`, of one chat or of all.

A chat has `name`, `type`, `id` and `messages`; an export of all has `chats` and `left_chats`, each
with a `list` of these. A message has `id` (unique in its chat), `type` ("message" or "service"),
`date` (local time), `date_unixtime` (seconds, in newer exports), `edited`, `edited_unixtime`,
`from`, `from_id`, `reply_to_message_id`, `forwarded_from` and `text`. The text is a string, or a
list of strings and entities (`type`, `text`, and `href` of a link). Without `date_unixtime` the
date is taken as UTC.

A message may also have a `poll`, a `photo`, a `file` with `media_type`, a place or a contact.
Questions of polls, names of places and contacts become text; the rest is counted, and so are
service messages (calls, joins, pins). A reply has an edge to the message it answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from graphmem_torch.readers.chats import (
    EMPTY,
    ODD,
    SERVICE,
    Record,
    converted,
    linked,
    listed,
    mapped,
    record,
    text_of,
    timed,
)

__all__ = ["is_telegram", "read_telegram"]

_NAME = "telegram"
_WITH = "id", "type", "date"  # keys of every message


def is_telegram(data: object) -> bool:
    """Return whether parsed JSON is an export of Telegram."""
    return any(
        any({*_WITH} <= mapped(message).keys() for message in listed(chat.get("messages")))
        for chat in _chats(data)
    )


def read_telegram(data: object, losses: Counter[str]) -> Iterator[Record]:
    """Yield the messages of an export, chat by chat.

    Args:
        data: Parsed JSON for which `is_telegram` is true.
        losses: Counter of skipped content by kind; updated.
    """
    for chat in _chats(data):
        yield from _chat(chat, losses)


def _chats(data: object) -> list[Mapping[str, Any]]:
    """Return the chats of an export of one chat, or of all."""
    whole = mapped(data)
    if isinstance(whole.get("messages"), list):
        return [whole] if "type" in whole else []
    lists = [mapped(whole.get(key)).get("list") for key in ("chats", "left_chats")]
    return [mapped(chat) for each in lists for chat in listed(each)]


def _chat(chat: Mapping[str, Any], losses: Counter[str]) -> Iterator[Record]:
    title = text_of(chat.get("name"))
    own = str(chat.get("id") or title or chat.get("type"))
    replies: dict[str, str] = {}

    def convert(message: Mapping[str, Any]) -> Record | None:
        if message.get("type") != "message":
            losses[SERVICE if message.get("type") == "service" else ODD] += 1
            return None
        text = _text(message, losses)
        if not text:
            losses[EMPTY] += 1
            return None
        found = record(
            _NAME,
            own,
            message["id"],
            text,
            speaker=text_of(message.get("from")) or text_of(message.get("from_id")),
            time=_moment(message, "date"),
            title=title,
            edited=_moment(message, "edited"),
            forwarded_from=text_of(message.get("forwarded_from")),
        )
        if message.get("reply_to_message_id") is not None:
            replies[found["id"]] = f"{_NAME}:{own}/{message['reply_to_message_id']}"
        return found

    yield from linked([*converted(listed(chat.get("messages")), convert, losses)], replies)


def _moment(message: Mapping[str, Any], key: str) -> float | None:
    exact = timed(message.get(f"{key}_unixtime"))
    return timed(message.get(key)) if exact is None else exact


def _text(message: Mapping[str, Any], losses: Counter[str]) -> str:
    """Return the text of a message, with its poll, place or contact in words."""
    given = message.get("text")
    if not isinstance(given, (str, list)) and given is not None:
        raise TypeError("text: expected a string or a list")
    parts = [given] if isinstance(given, str) else listed(given)
    texts = ["".join(map(_entity, parts)).strip()]
    poll, place = mapped(message.get("poll")), mapped(message.get("location_information"))
    if poll:
        answers = [text_of(mapped(each).get("text")) for each in listed(poll.get("answers"))]
        texts.append(
            f"{_entities(poll.get('question'))} {' / '.join(filter(None, answers))}".strip()
        )
    texts += [text_of(message.get("place_name")), text_of(message.get("address"))]
    person = mapped(message.get("contact_information"))
    names = (person.get(key) for key in ("first_name", "last_name", "phone_number"))
    texts.append(" ".join(filter(None, map(text_of, names))))
    if place and not texts[2]:
        losses["place without a name"] += 1
    if message.get("photo") is not None or message.get("file") is not None:
        losses[
            text_of(message.get("media_type")) or ("photo" if "photo" in message else "file")
        ] += 1
    elif message.get("media_type") is not None:
        losses[text_of(message.get("media_type"))] += 1
    return "\n".join(filter(None, texts))


def _entities(value: object) -> str:
    return value if isinstance(value, str) else "".join(map(_entity, listed(value)))


def _entity(part: object) -> str:
    """Return a piece of a text, with the address of a link that does not show it."""
    if isinstance(part, str):
        return part
    text, link = mapped(part).get("text"), text_of(mapped(part).get("href"))
    said = text if isinstance(text, str) else ""
    return f"{said} ({link})" if link and link != said else said
