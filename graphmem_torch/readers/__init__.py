"""Read files, folders and streams into atoms: text, JSON lines, chats, LoCoMo, proof graphs.

Also memories of other programs (`readers.moving`).

May import `text`, `atoms`, `errors`; knows no store and no index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
    from graphmem_torch.readers.chatgpt import read_chatgpt
    from graphmem_torch.readers.chroma import read_chroma_database
    from graphmem_torch.readers.claude import read_claude
    from graphmem_torch.readers.discord import read_discord
    from graphmem_torch.readers.jsonl import atom_from_record
    from graphmem_torch.readers.langgraph_store import read_langgraph_database, read_langgraph_dump
    from graphmem_torch.readers.letta import read_letta
    from graphmem_torch.readers.locomo import LocomoSample, read_locomo
    from graphmem_torch.readers.mem0 import read_mem0_database, read_mem0_json
    from graphmem_torch.readers.moving import read_moved
    from graphmem_torch.readers.read import document_atoms, read_atoms
    from graphmem_torch.readers.slack import read_slack
    from graphmem_torch.readers.telegram import read_telegram
    from graphmem_torch.readers.whatsapp import read_whatsapp
    from graphmem_torch.readers.zep import read_zep

__all__ = [
    "MOVED_FORMATS",
    "LocomoSample",
    "atom_from_record",
    "document_atoms",
    "read_atoms",
    "read_chatgpt",
    "read_chroma_database",
    "read_claude",
    "read_discord",
    "read_langgraph_database",
    "read_langgraph_dump",
    "read_letta",
    "read_locomo",
    "read_mem0_database",
    "read_mem0_json",
    "read_moved",
    "read_slack",
    "read_telegram",
    "read_whatsapp",
    "read_zep",
]

MOVED_FORMATS = ("mem0", "zep", "letta", "langgraph", "chroma", "mcp")
"""Names of the formats of other programs, which `moving` reads."""

_NAMES = {
    "readers.chatgpt": "read_chatgpt",
    "readers.chroma": "read_chroma_database",
    "readers.claude": "read_claude",
    "readers.discord": "read_discord",
    "readers.jsonl": "atom_from_record",
    "readers.langgraph_store": "read_langgraph_database read_langgraph_dump",
    "readers.letta": "read_letta",
    "readers.locomo": "LocomoSample read_locomo",
    "readers.mem0": "read_mem0_database read_mem0_json",
    "readers.moving": "read_moved",
    "readers.read": "document_atoms read_atoms",
    "readers.slack": "read_slack",
    "readers.telegram": "read_telegram",
    "readers.whatsapp": "read_whatsapp",
    "readers.zep": "read_zep",
}

__getattr__ = lazy_names(__name__, _NAMES)
