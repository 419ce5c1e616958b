"""Convert messages of chats to the fields of an atom: texts, calls and results.

Supported are messages of OpenAI (Chat Completions, and items of the Responses API), Anthropic and
Gemini, also as objects of their clients (`model_dump`, dataclasses). Text parts are the text. A
call becomes `name(argument: value, ...)`, a result its text, at any depth. Parts without text (an
image, audio, a call without arguments, encrypted reasoning) are counted by kind.

The time of a message is its `time`, or the first readable one of `created_at`, `createdAt` and
`timestamp`: seconds since the epoch, a larger number in milli-, micro- or nanoseconds, or a string
for `parse_time`. The others stay in `meta`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from graphmem_torch.errors import EmptyMessageError, InputError
from graphmem_torch.exact import dump_json
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.times import LAST_SECOND, parse_time

__all__ = ["foreign_time", "is_message", "is_object", "message_texts", "plain", "record_of_message"]

_TIMES = ("created_at", "createdAt", "timestamp")
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}  # of LangChain
_CHAT_ROLES = frozenset({*_ROLES, "user", "assistant", "developer", "function", "model"})
_CALL = lazy_pattern(r"(?:tool|function)[_-](?:use|call)$|_call$|tool_use$")
_RESULT = lazy_pattern(r"(?:result|output|response)$")
_MEDIA = lazy_pattern(r"image|audio|video|file|document|screenshot|media|inline", re.IGNORECASE)
_GIVEN = ("arguments", "input", "args", "action", "queries", "query", "code", "parameters")
_CAME_BACK = ("content", "output", "outputs", "result", "results", "response", "logs", "error")
_SAID = ("text", "thinking", "refusal", "transcript", "reasoning_content", "reasoning", "summary")
_SHOWN = ("text", "transcript", "caption", "alt", "alt_text", "title", "description", "context")
_BESIDE = ("reasoning_content", "reasoning", "thinking", "summary")  # spoken before the content
_AFTER = ("refusal", "audio", "tool_calls", "function_call", "functionCall")
_UNREADABLE = ("signature", "encrypted_content", "encrypted_index", "data", "b64_json", "file_data")
_UNTOLD = frozenset({"type", "id", "call_id", "tool_use_id", "status", "index", *_UNREADABLE})
_NUMBER = lazy_pattern(r"[+-]?\d{9,}(?:\.\d+)?", re.ASCII)


def is_object(value: object) -> bool:
    """Return whether a value is an object of a client's class that stands for a mapping."""
    return hasattr(type(value), "model_dump") or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def plain(value: Any) -> Any:
    """Convert an object of a client, with its contents, to JSON types; bytes become None."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if hasattr(type(value), "model_dump"):
        return plain(value.model_dump())
    if is_object(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    return None if isinstance(value, (bytes, bytearray, memoryview)) else value


def is_message(record: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a message of a chat, or an item of a response."""
    role = record.get("role")
    if record.get("text") is not None:
        chat = isinstance(role, str) and role.lower() in _CHAT_ROLES
        return chat and all(record.get(key) is None for key in ("content", "parts"))
    if role is not None or isinstance(record.get("parts"), list):
        return True
    kind = record.get("type")
    if not isinstance(kind, str):
        return False
    spoken = "content" in record and (kind in _ROLES or kind == "message")
    return spoken or kind == "reasoning" or bool(_CALL.search(kind) or _RESULT.search(kind))


def record_of_message(
    message: Mapping[str, Any], losses: Counter[str], where: str | None
) -> dict[str, Any]:
    """Convert a message to the fields of an atom.

    Args:
        message: Mapping for which `is_message` is true.
        losses: Counter of dropped content by kind; updated.
        where: File and line, for messages.

    Raises:
        EmptyMessageError: Message without text.
        InputError: Missing or invalid role.
    """
    message = {key: each for key, each in plain(message).items() if each is not None}
    if "role" in message and "text" in message:
        message["content"] = message.pop("text")
    kind = message.get("type")
    spoken = {"role", "parts"} & message.keys() or kind in _ROLES or kind == "message"
    item = not spoken
    lost: Counter[str] = Counter()
    media: list[Any] = []
    if item:
        parts = [{key: each for key, each in message.items() if key != "text"}]
    else:
        keys = (*_BESIDE, "content", "parts", *_AFTER)
        parts = [_part(key, message[key]) for key in keys if key in message]
    texts = [text for part in parts for text in message_texts(part, lost, media)]
    if not texts:
        got = message.get("content", message.get("parts"))
        found, do = f"{got!r:.60}", ""
        if lost:
            found, do = ", ".join(lost), ", or say in text what it shows"
        elif got:
            found = "an empty text"
        losses.update(lost)
        raise EmptyMessageError(
            f"content: expected text, or parts with text, got {found}; leave the message out{do}",
            where=where,
        )
    losses.update(lost)
    role: Any = message.get("role")
    if role is None:
        result = isinstance(kind, str) and _RESULT.search(kind)
        written = "user" if "parts" in message else "assistant"  # Google omits the user's
        role = _ROLES.get(str(kind)) or ("tool" if item and result else written)
    if not isinstance(role, str) or not role.strip():
        raise InputError(
            f"role: expected a speaker, got {role!r:.60}; write user, assistant or system, as a "
            "string",
            where=where,
        )
    used = {"content", "parts", "type", *_UNREADABLE, *(_BESIDE if not item else _SAID)}
    used |= {"refusal", *((*_GIVEN, *_CAME_BACK) if item else ("name",))}
    if isinstance(kind, str) and kind in ("semantic", "episodic", "procedural", "working"):
        used -= {"type"}
    record = {key: _pruned(each) for key, each in message.items() if key not in used}
    name = None if item else message.get("name")
    record |= {"role": role, "text": "\n".join(texts)}
    record["speaker"] = message.get("speaker") or name or role
    if media:
        record["content"] = media
    if "time" not in record:
        record |= _time_of(record, losses)
    return {key: each for key, each in record.items() if each is not None}


def message_texts(
    value: object, losses: Counter[str], media: list[Any] | None = None
) -> Iterator[str]:
    """Yield the texts in a part of a message, or in a list of parts.

    Args:
        value: Text, part, or list of parts.
        losses: Counter of parts without text by kind; updated.
        media: List of references to images and the like; updated.
    """
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from message_texts(each, losses, media)
    elif isinstance(value, Mapping):
        yield from _texts_of_part(value, losses, media)
    elif value is not None:
        losses[f"part {value!r:.20}"] += 1


def foreign_time(value: object) -> float | None:
    """Return a time of another program in seconds since the epoch, UTC; None if it is no time.

    A number too large for seconds is in milli-, micro- or nanoseconds.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    try:
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            value = float(value)
            for _ in range(3):
                value /= 1000 if abs(value) >= LAST_SECOND else 1
        return parse_time(value)  # type: ignore[arg-type]
    except (InputError, OverflowError):
        return None


def _part(key: str, value: Any) -> Any:
    """Return a field of a message as a part."""
    if key in ("function_call", "functionCall"):
        return {"type": "function_call", **value} if isinstance(value, Mapping) else None
    if key == "tool_calls" and isinstance(value, (list, tuple)):
        return [
            {"type": "tool_call", **each} if isinstance(each, Mapping) else each for each in value
        ]
    if key == "audio":
        return {"type": "audio", **value} if isinstance(value, Mapping) else None
    if key == "summary":
        return value
    if key == "content" and isinstance(value, Mapping) and not _is_part(value):
        return {"type": "content"}
    return value


def _is_part(value: Mapping[str, Any]) -> bool:
    return bool({"type", *_SAID, "parts"} & value.keys())


def _texts_of_part(
    part: Mapping[str, Any], losses: Counter[str], media: list[Any] | None
) -> Iterator[str]:
    part = {key: each for key, each in part.items() if each is not None}
    kind = str(part.get("type", ""))
    for key in ("functionCall", "function_call", "executableCode", "executable_code"):
        if isinstance(part.get(key), Mapping):
            part, kind = {"name": "code", **part[key]}, "function_call"
    for key in ("functionResponse", "function_response", "codeExecutionResult"):
        if isinstance(part.get(key), Mapping):
            part, kind = part[key], "function_response"
    for key in ("function", "custom"):
        if isinstance(part.get(key), Mapping):
            part, kind = part[key], "function_call"
    if _CALL.search(kind):
        yield from _call(part, kind, losses)
        yield from _results(part, losses, media, bare=False)
    elif _RESULT.search(kind):
        found = [*_results(part, losses, media, bare=True)]
        if not found:
            losses["result without text"] += 1
        yield from found
    elif _MEDIA.search(kind) or any(_MEDIA.search(str(key)) for key in part if key != "text"):
        yield from _medium(part, kind, losses, media)
    else:
        texts = [text for text in _spoken(part, losses, media) if text.strip()]
        # An empty text says nothing, and nothing is lost.
        if not texts and not any(isinstance(part.get(key), str) for key in _SAID):
            losses[kind or "part without text"] += 1
        yield from texts


def _spoken(
    part: Mapping[str, Any], losses: Counter[str], media: list[Any] | None
) -> Iterator[str]:
    for key in (*_SAID, "content", "parts"):
        value = part.get(key)
        if isinstance(value, Mapping) and isinstance(value.get("value"), str):
            value = value["value"]  # of the Assistants API
        if isinstance(value, (str, list)):
            yield from message_texts(value, losses, media)


def _call(part: Mapping[str, Any], kind: str, losses: Counter[str]) -> Iterator[str]:
    name = part.get("name") or part.get("toolName") or kind.removesuffix("_call")
    given = [
        value for key in _GIVEN if (value := _decoded(part.get(key))) not in (None, "", {}, [])
    ]
    spelled = ", ".join(text for value in given if (text := _spelled(value)))
    if spelled:
        yield f"{name}({spelled})"
    else:
        losses["call without arguments"] += 1


def _results(
    part: Mapping[str, Any], losses: Counter[str], media: list[Any] | None, *, bare: bool
) -> Iterator[str]:
    """Yield the text of a result; of a call itself without pictures."""
    for key in _CAME_BACK:
        value = part.get(key)
        if not bare and (key == "result" or value is None):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Mapping) and not _is_known(each):
                yield from filter(None, [_spelled(each)])
            else:
                yield from message_texts(each, losses, media)
    if bare and isinstance(part.get("text"), str):
        yield from message_texts(part["text"], losses, media)
    if bare and not any(key in part for key in (*_CAME_BACK, "text")):
        yield from filter(None, [_spelled(part)])


def _is_known(part: Mapping[str, Any]) -> bool:
    """Return whether a mapping in a result is a part, not the tool's own data."""
    kind = part.get("type")
    if not isinstance(kind, str):
        return False
    return bool(
        {"text", "content"} & part.keys()
        or (_MEDIA.search(kind) and not {"title", "url"} <= part.keys())
    )


def _medium(
    part: Mapping[str, Any], kind: str, losses: Counter[str], media: list[Any] | None
) -> Iterator[str]:
    """Yield the text beside an image, audio or a file."""
    source = part.get("source")
    texts = [str(part[key]) for key in _SHOWN if isinstance(part.get(key), str)]
    if isinstance(source, Mapping) and source.get("type") in ("text", "content"):
        texts += message_texts(source.get("data", source.get("content")), losses, media)
    texts = [text for text in texts if text.strip()]
    if not texts:
        named = [str(key) for key in part if _MEDIA.search(str(key))]
        losses[kind or (named[0] if named else "file")] += 1
    if media is not None:
        media.append(_pruned(part))
    yield from texts


def _decoded(value: Any) -> Any:
    """Return arguments, parsed if they are JSON in a string."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _spelled(value: Any) -> str:
    """Return a value as text: `name: value, ...`."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        told = {key: each for key, each in _pruned(value).items() if key not in _UNTOLD}
        pairs = [(key, _spelled(each)) for key, each in told.items()]
        return ", ".join(f"{key}: {text}" for key, text in pairs if text)
    if isinstance(value, (list, tuple)):
        return ", ".join(text for each in value if (text := _spelled(each)))
    return "" if value is None else dump_json(value, ensure_ascii=False, default=str)


def _pruned(value: Any) -> Any:
    """Return a value without base64 bytes, signatures and encrypted content."""
    if isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if key not in _UNREADABLE}
        return {key: _pruned(each) for key, each in kept.items() if not _is_data(each)}
    if isinstance(value, list):
        return [_pruned(each) for each in value if not _is_data(each)]
    return value


def _is_data(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.startswith("data:"))


def _time_of(record: dict[str, Any], losses: Counter[str]) -> dict[str, Any]:
    """Return the time of a message and its remaining `meta`."""
    for key in _TIMES:
        if key in record:
            if (moment := foreign_time(record[key])) is not None:
                return {"time": moment, key: None}
            losses["unreadable time"] += 1
    return {}
