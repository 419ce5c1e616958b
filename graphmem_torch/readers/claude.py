"""Exports of Claude: `conversations.json`.

The file is a list of conversations. Each has `uuid`, `name`, `created_at` and `chat_messages`. A
message has `uuid`, `sender` ("human", read as "user", or "assistant"), `created_at`, `updated_at`
(ISO 8601), `text`, and in newer exports `content`, the blocks of the API (`text`, `thinking`,
`tool_use`, `tool_result`). Each document in `attachments` (`file_name`, `extracted_content`)
becomes an atom, cut into chunks if it is long. `files` name images and the like, which are counted.

The file has all branches of a conversation and does not mark the one that is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from graphmem_torch.readers.chats import (
    EMPTY,
    Record,
    converted,
    count_all,
    listed,
    mapped,
    record,
    text_of,
    timed,
)
from graphmem_torch.readers.messages import message_texts

__all__ = ["is_claude", "read_claude"]

_NAME = "claude"


def is_claude(data: object) -> bool:
    """Return whether parsed JSON is an export of Claude, or one conversation of it."""
    return any(
        isinstance(each, Mapping) and isinstance(each.get("chat_messages"), list)
        for each in (data if isinstance(data, list) else [data])
    )


def read_claude(data: object, losses: Counter[str]) -> Iterator[Record]:
    """Yield the messages of an export, conversation by conversation, with attached documents.

    Args:
        data: Parsed JSON for which `is_claude` is true.
        losses: Counter of skipped content by kind; updated.
    """
    for conversation in data if isinstance(data, list) else [data]:
        said = mapped(conversation).get("chat_messages")
        if isinstance(said, list):
            yield from _conversation(mapped(conversation), said, losses)
        else:
            losses["conversation that cannot be read"] += 1


def _conversation(
    conversation: Mapping[str, Any], said: list[Any], losses: Counter[str]
) -> Iterator[Record]:
    own, title = text_of(conversation.get("uuid")), text_of(conversation.get("name"))

    def convert(message: Mapping[str, Any]) -> Record | None:
        told = [*message_texts(message.get("content") or [], losses)]
        text = "\n".join(told) or text_of(message.get("text"))
        count_all(losses, "file", message.get("files"))
        if not text.strip():
            losses[EMPTY] += 1
            return None
        return _said(message, message["uuid"], text)

    def document(attached: Mapping[str, Any]) -> Record | None:
        message, place = attached["message"], attached["place"]
        text, name = attached.get("extracted_content"), text_of(attached.get("file_name"))
        if not text_of(text):
            losses["file"] += 1
            return None
        found = _said(message, f"{message['uuid']}/{place}", str(text))
        found["meta"]["file"] = name or "document"
        return {**found, "kind": "chunk"}

    def _said(message: Mapping[str, Any], name: str, text: str) -> Record:
        created, updated = timed(message.get("created_at")), timed(message.get("updated_at"))
        sender = text_of(message.get("sender"))
        return record(
            _NAME,
            own,
            name,
            text,
            speaker="user" if sender == "human" else sender,
            time=created,
            title=title,
            edited=None if updated == created else updated,
        )

    for message in said:
        yield from converted([message], convert, losses)
        attached = enumerate(listed(mapped(message).get("attachments")))
        given = [{**mapped(each), "message": message, "place": place} for place, each in attached]
        yield from converted(given, document, losses)
