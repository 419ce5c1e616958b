"""Exports of chat programs in their published shapes, small."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

WHEN = datetime(2024, 5, 3, 10, tzinfo=UTC).timestamp()
ISO = "2024-05-03T10:00:00.000000Z"


def zipped(path: Path, entries: Mapping[str, Any]) -> Path:
    """A zip of files; what is no text or bytes is written as JSON."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in entries.items():
            archive.writestr(name, value if isinstance(value, str | bytes) else json.dumps(value))
    return path


def unzipped(folder: Path, entries: Mapping[str, Any]) -> Path:
    """A folder of the same."""
    for name, value in entries.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def written(path: Path, value: Any) -> Path:
    """A file of JSON."""
    path.write_text(json.dumps(value))
    return path


# ChatGPT


def node(name: str, role: str, content: Any, parent: str, /, **more: Any) -> dict[str, Any]:
    """A node of a conversation; its children are found by `conversation`."""
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    message = {
        "id": name,
        "author": {"role": role, "name": more.pop("name", None), "metadata": {}},
        "create_time": more.pop("time", WHEN),
        "update_time": None,
        "content": content,
        "status": "finished_successfully",
        "weight": 1.0,
        "metadata": more.pop("metadata", {}),
        "recipient": "all",
        **more,
    }
    return {"id": name, "message": message, "parent": parent}


def conversation(
    nodes: list[dict[str, Any]], current: str | None, title: str = "Trip", name: str = "conv-1"
) -> dict[str, Any]:
    root = {"id": "root", "message": None, "parent": None}
    every = [root, *nodes]
    mapping = {
        each["id"]: {**each, "children": [n["id"] for n in nodes if n["parent"] == each["id"]]}
        for each in every
    }
    made = {"title": title, "create_time": WHEN - 60, "mapping": mapping, "conversation_id": name}
    return made if current is None else {**made, "current_node": current}


def chatgpt(conversations: list[Any]) -> dict[str, Any]:
    """The files of an export as downloaded."""
    return {
        "conversations.json": conversations,
        "user.json": {"id": "user-1", "email": "a@b.org"},
        "chat.html": "<html>",
        "message_feedback.json": [],
    }


# Claude


def said(name: str, sender: str, text: str, **more: Any) -> dict[str, Any]:
    """A message of Claude."""
    return {
        "uuid": name,
        "text": text,
        "content": [{"type": "text", "text": text, "citations": []}],
        "sender": sender,
        "created_at": ISO,
        "updated_at": ISO,
        "attachments": [],
        "files": [],
        **more,
    }


def claude(messages: list[Any], name: str = "k1", title: str = "Garden") -> dict[str, Any]:
    """A conversation of Claude."""
    own = {"uuid": name, "name": title, "created_at": ISO, "updated_at": ISO}
    return {**own, "account": {"uuid": "acc"}, "chat_messages": messages}


# Slack

USERS = [
    {"id": "U1", "name": "ada", "profile": {"real_name": "Ada King", "display_name": "ada"}},
    {"id": "U2", "name": "ben", "real_name": "Ben Oh", "profile": {"display_name": ""}},
]


def post(user: str, text: str, stamp: str = "1714730400.000100", **more: Any) -> dict[str, Any]:
    """A message of Slack."""
    return {"type": "message", "user": user, "text": text, "ts": stamp, **more}


def slack(days: Mapping[str, Any]) -> dict[str, Any]:
    """The files of an export."""
    channels = [{"id": "C1", "name": "general", "members": ["U1", "U2"]}]
    dms = [{"id": "D1", "members": ["U1", "U2"]}]
    tables = {"users.json": USERS, "channels.json": channels, "dms.json": dms}
    return {**tables, "integration_logs.json": [], **days}


# Telegram


def sent(number: int, person: str | None, text: Any, **more: Any) -> dict[str, Any]:
    """A message of Telegram."""
    return {
        "id": number,
        "type": "message",
        "date": "2024-05-03T12:00:00",
        "date_unixtime": str(int(WHEN)),
        "from": person,
        "from_id": "user7",
        "text": text,
        "text_entities": [],
        **more,
    }


def telegram(messages: list[Any], name: str = "Mia", number: int = 42) -> dict[str, Any]:
    """A chat of Telegram."""
    return {"name": name, "type": "personal_chat", "id": number, "messages": messages}


# Discord


def typed(name: str, person: str, content: Any, **more: Any) -> dict[str, Any]:
    """A message of Discord."""
    return {
        "id": name,
        "type": "Default",
        "timestamp": "2024-05-03T10:00:00+00:00",
        "timestampEdited": None,
        "content": content,
        "author": {"id": f"9{person}", "name": person, "nickname": person.title()},
        "attachments": [],
        "embeds": [],
        "stickers": [],
        "mentions": [],
        **more,
    }


def discord(messages: list[Any], name: str = "100") -> dict[str, Any]:
    """A channel of Discord."""
    return {
        "guild": {"id": "7", "name": "Makers"},
        "channel": {"id": name, "type": "GuildTextChat", "category": "Text", "name": "general"},
        "dateRange": {"after": None, "before": None},
        "exportedAt": "2024-05-04T00:00:00+00:00",
        "messages": messages,
        "messageCount": len(messages),
    }
