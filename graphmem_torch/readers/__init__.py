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

_MODULE = {
    "LocomoSample": "readers.locomo",
    "atom_from_record": "readers.jsonl",
    "document_atoms": "readers.read",
    "read_atoms": "readers.read",
    "read_chatgpt": "readers.chatgpt",
    "read_chroma_database": "readers.chroma",
    "read_claude": "readers.claude",
    "read_discord": "readers.discord",
    "read_langgraph_database": "readers.langgraph_store",
    "read_langgraph_dump": "readers.langgraph_store",
    "read_letta": "readers.letta",
    "read_locomo": "readers.locomo",
    "read_mem0_database": "readers.mem0",
    "read_mem0_json": "readers.mem0",
    "read_moved": "readers.moving",
    "read_slack": "readers.slack",
    "read_telegram": "readers.telegram",
    "read_whatsapp": "readers.whatsapp",
    "read_zep": "readers.zep",
}

__getattr__ = lazy_names(__name__, _MODULE)
