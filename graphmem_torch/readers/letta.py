"""Core memory, archival passages and messages of a Letta agent file (`.af`).

Layouts of letta 0.16: `letta/schemas/agent_file.py` (agents beside their blocks), and
`letta/serialize_schemas/pydantic_agent_schema.py` (one agent with its `core_memory`). Ids in a file
name places in it, so atoms get ids of their content.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphmem_torch.readers.jsonl import content_id
from graphmem_torch.readers.moved import EMBEDDING, MovedMemories

__all__ = ["is_letta", "read_letta"]

_AGENT = {"agent_type", "llm_config", "messages", "system"}
_PASSAGES = ("archival_memory", "archival_passages", "passages")
_COUNTED = {
    "tools": "tool",
    "mcp_servers": "MCP server",
    "files": "file",
    "sources": "source",
    "groups": "group",
    "skills": "skill",
    "tool_exec_environment_variables": "environment variable",
}
_SPOKEN = ("user", "assistant")
_SAYS = "send_message"  # tool by which older agents speak


def is_letta(data: object) -> bool:
    """Return whether parsed JSON is an agent file of either layout."""
    if not isinstance(data, Mapping):
        return False
    agents = data.get("agents")
    if isinstance(agents, list) and isinstance(data.get("blocks"), list):
        return all(isinstance(each, Mapping) and "messages" in each for each in agents)
    return _AGENT | {"core_memory"} <= data.keys()


def read_letta(data: Mapping[str, Any], found: MovedMemories) -> None:
    """Read what the agents of a file know and have said.

    A block becomes a memory of the kind `block` under its label, a passage a chunk, a message of
    the user or the agent a turn of a session with the agent's name.

    Args:
        data: Parsed JSON for which `is_letta` is true.
        found: Collection that receives the memories.
    """
    agents = data.get("agents", [data])
    blocks = {str(each.get("id")): each for each in data.get("blocks") or ()}
    owners: dict[str, list[str]] = {name: [] for name in blocks}
    seen: Counter[str] = Counter()
    for agent in agents:
        name = str(agent.get("name") or "agent")
        for label in agent.get("block_ids") or ():
            owners.setdefault(str(label), []).append(name)
        for block in agent.get("core_memory") or ():
            _read_block(block, [name], found)
        for passage in _of(agent, _PASSAGES):
            _read_passage(passage, name, found)
        for message in agent.get("messages") or ():
            _read_message(message, name, found)
        if str(agent.get("system") or "").strip():
            found.losses["system prompt"] += 1
        if agent is not data:
            _count(agent, found.losses, ("tool_exec_environment_variables",))
    for label, block in blocks.items():
        _read_block(block, owners[label], found)
    for passage in _of(data, _PASSAGES) if "agents" in data else ():
        _read_passage(passage, None, found)
    _count(data, found.losses, tuple(_COUNTED))
    found.spaces = {
        space: [replace(atom, id=content_id(atom.kind, atom.former_digest, seen)) for atom in atoms]
        for space, atoms in found.spaces.items()
    }


def _of(data: Mapping[str, Any], names: Sequence[str]) -> Iterator[Any]:
    for name in names:
        yield from data.get(name) or ()


def _count(data: Mapping[str, Any], losses: Counter[str], names: Sequence[str]) -> None:
    for name in names:
        if held := data.get(name):
            losses[_COUNTED[name]] += len(held)


def _read_block(block: Mapping[str, Any], agents: Sequence[str], found: MovedMemories) -> None:
    found.add(
        "",
        block.get("value"),
        kind="block",
        title=block.get("label"),
        time=block.get("updated_at") or block.get("created_at"),
        meta={
            "agents": [*agents] or None,
            "description": block.get("description"),
            "read_only": block.get("read_only") or None,
            **(block.get("metadata") or block.get("metadata_") or {}),
        },
    )


def _read_passage(passage: Any, agent: str | None, found: MovedMemories) -> None:
    own = passage if isinstance(passage, Mapping) else {"text": passage}
    found.losses += Counter({EMBEDDING: 1 if own.get("embedding") is not None else 0})
    found.add(
        "",
        own.get("text"),
        kind="chunk",
        time=own.get("created_at"),
        meta={
            "agent": agent,
            "tags": own.get("tags") or None,
            **(own.get("metadata") or own.get("metadata_") or {}),
        },
    )


def _read_message(message: Mapping[str, Any], agent: str, found: MovedMemories) -> None:
    role, texts = message.get("role"), list[str]()
    content = message.get("content", message.get("text"))
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind not in (None, "text"):
            found.losses[_named(str(kind))] += 1
    for call in message.get("tool_calls") or ():
        said = _said(call)
        if said is None:
            found.losses["tool call"] += 1
        else:
            texts.append(said)
    found.losses += Counter({"tool result": len(message.get("tool_returns") or ())})
    if role not in _SPOKEN:
        found.losses[f"{_named(str(role))} message"] += 1
        return
    text = "\n".join(each for each in texts if each.strip())
    if role == "user" and (packed := _packed(text)) is not None:
        kind, text = packed
        if kind != "user_message":
            found.losses[f"{_named(kind)} message"] += 1
            return
    if not text.strip():
        found.losses["message without text"] += 1
        return
    found.add(
        "",
        text,
        kind="turn",
        speaker=message.get("name") or role,
        session=agent,
        time=message.get("created_at"),
    )


def _said(call: Any) -> str | None:
    """Return what an agent says by calling its tool for it; None for other calls."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or function.get("name") != _SAYS:
        return None
    given = function.get("arguments")
    try:
        said = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return None
    text = said.get("message") if isinstance(said, Mapping) else None
    return text if isinstance(text, str) else None


def _packed(text: str) -> tuple[str, str] | None:
    """Return type and text of a message that older agents get packed in JSON."""
    try:
        said = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("type"), str):
        return None
    return said["type"], str(said.get("message") or "")


def _named(kind: str) -> str:
    return kind.replace("_", " ")
