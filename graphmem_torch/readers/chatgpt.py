"""Exports of ChatGPT: `conversations.json`, also several `conversations-000.json`.

The file is a list of conversations. Each has `title`, `conversation_id` (or `id`), `create_time`
(seconds), `current_node` and `mapping`, a tree of nodes by id (`message`, `parent`, `children`). A
message has `author` (`role`, `name`), `create_time`, `recipient`, `weight`, `metadata` and
`content`. The fields of `content` depend on its `content_type`:

- `text`, `multimodal_text`: `parts`, strings and mappings (images, audio with a transcription);
- `code`, `execution_output`, `system_error`: `text`; code that goes to a tool is a call;
- `tether_quote`, `tether_browsing_display`: `title`, `text`, `result`, `summary`;
- `thoughts`: `thoughts`, each with `summary` and `content`;
- `user_editable_context`, `model_editable_context`: hidden additions of the program.

The reader takes the branch that ends in `current_node`, which is the one the program shows. Without
`current_node` it takes the branch of the latest message. Hidden messages and those of other
branches (edited questions, regenerated answers) are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from graphmem_torch.atoms import text_hash
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.readers.chats import (
    EMPTY,
    HIDDEN,
    Record,
    converted,
    count_all,
    listed,
    mapped,
    record,
    text_of,
    timed,
)

__all__ = ["is_chatgpt", "read_chatgpt"]

_NAME = "chatgpt"
_BRANCH = "message of another branch"
_ADDED = frozenset({"user_editable_context", "model_editable_context", "app_pairing_content"})
_CITED = lazy_pattern(
    "\ue200[^\ue200\ue201]*\ue201|【[^【】†]*†[^【】†]*】"
)  # marks that the program turns into links


def is_chatgpt(data: object) -> bool:
    """Return whether parsed JSON is an export of ChatGPT, or one conversation of it."""
    return any(
        "message" in mapped(node)
        for each in (data if isinstance(data, list) else [data])
        for node in mapped(mapped(each).get("mapping")).values()
    )


def read_chatgpt(data: object, losses: Counter[str]) -> Iterator[Record]:
    """Yield the messages of an export, conversation by conversation.

    Args:
        data: Parsed JSON for which `is_chatgpt` is true.
        losses: Counter of skipped content by kind; updated.
    """
    for conversation in data if isinstance(data, list) else [data]:
        nodes = mapped(conversation).get("mapping")
        if isinstance(nodes, Mapping):
            yield from _conversation(mapped(conversation), nodes, losses)
        else:
            losses["conversation that cannot be read"] += 1


def _conversation(
    conversation: Mapping[str, Any], nodes: Mapping[str, Any], losses: Counter[str]
) -> Iterator[Record]:
    branch = _branch(conversation.get("current_node"), nodes)
    others = [mapped(node).get("message") for name, node in nodes.items() if name not in branch]
    count_all(losses, _BRANCH, [each for each in others if isinstance(each, Mapping)])
    title, last = text_of(conversation.get("title")), timed(conversation.get("create_time"))
    own = text_of(conversation.get("conversation_id")) or text_of(conversation.get("id"))
    own = own or text_hash(f"{title}\0{last}")[:16]

    def convert(message: Mapping[str, Any]) -> Record | None:
        nonlocal last
        author, content = mapped(message.get("author")), mapped(message.get("content"))
        role, meta = text_of(author.get("role")), mapped(message.get("metadata"))
        if (
            meta.get("is_visually_hidden_from_conversation") is True
            or message.get("weight") == 0
            or role == "system"
            or content.get("content_type") in _ADDED
        ):
            losses[HIDDEN if _text(content, Counter()) else EMPTY] += 1
            return None
        text = _text(content, losses)
        if not text:
            losses[EMPTY] += 1
            return None
        recipient = text_of(message.get("recipient"))
        if role == "assistant" and recipient not in ("", "all"):
            text = f"{recipient}({text})"
        # A message without a time gets the time of the one before it.
        last = timed(message.get("create_time")) or last
        name = text_of(author.get("name")) if role == "tool" else ""
        return record(
            _NAME,
            own,
            message["id"],
            text,
            speaker=name or role,
            time=last,
            title=title,
            edited=timed(message.get("update_time")),
        )

    said = (mapped(nodes[name]).get("message") for name in branch)
    yield from converted((each for each in said if each is not None), convert, losses)


def _branch(current: object, nodes: Mapping[str, Any]) -> list[str]:
    """Return the ids of the nodes from the root to the current one."""
    if not isinstance(current, str) or current not in nodes:
        ends = [name for name, node in nodes.items() if not listed(mapped(node).get("children"))]
        current = max(ends, key=lambda name: _created(nodes[name]), default=None)
    branch: dict[str, None] = {}
    while isinstance(current, str) and current in nodes and current not in branch:
        branch[current] = None
        current = mapped(nodes[current]).get("parent")
    return [*branch][::-1]


def _created(node: object) -> float:
    return timed(mapped(mapped(node).get("message")).get("create_time")) or 0.0


def _text(content: Mapping[str, Any], losses: Counter[str]) -> str:
    """Return the text of a message of any content type."""
    texts = [text_of(content.get(key)) for key in ("title", "text", "result", "summary")]
    for part in listed(content.get("parts")):
        if isinstance(part, Mapping):
            text = text_of(part.get("text"))
            if not text:
                kind = text_of(part.get("content_type")) or text_of(part.get("type"))
                losses[kind.removesuffix("_asset_pointer") or "part without text"] += 1
        else:
            text = text_of(part)
        texts.append(text)
    for thought in map(mapped, listed(content.get("thoughts"))):
        texts += [text_of(thought.get("summary")), text_of(thought.get("content"))]
    return _CITED.sub("", "\n".join(text for text in texts if text)).strip()
