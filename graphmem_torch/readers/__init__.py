"""Read files, folders and streams into atoms: text, JSON lines, chats, LoCoMo, proof graphs.

May import `text`, `atoms`, `errors`; knows no store and no index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
    from graphmem_torch.readers.chatgpt import read_chatgpt
    from graphmem_torch.readers.claude import read_claude
    from graphmem_torch.readers.discord import read_discord
    from graphmem_torch.readers.jsonl import atom_from_record
    from graphmem_torch.readers.locomo import LocomoSample, read_locomo
    from graphmem_torch.readers.read import document_atoms, read_atoms
    from graphmem_torch.readers.slack import read_slack
    from graphmem_torch.readers.telegram import read_telegram
    from graphmem_torch.readers.whatsapp import read_whatsapp

__all__ = [
    "LocomoSample",
    "atom_from_record",
    "document_atoms",
    "read_atoms",
    "read_chatgpt",
    "read_claude",
    "read_discord",
    "read_locomo",
    "read_slack",
    "read_telegram",
    "read_whatsapp",
]

_MODULE = {
    "LocomoSample": "readers.locomo",
    "atom_from_record": "readers.jsonl",
    "document_atoms": "readers.read",
    "read_atoms": "readers.read",
    "read_chatgpt": "readers.chatgpt",
    "read_claude": "readers.claude",
    "read_discord": "readers.discord",
    "read_locomo": "readers.locomo",
    "read_slack": "readers.slack",
    "read_telegram": "readers.telegram",
    "read_whatsapp": "readers.whatsapp",
}

__getattr__ = lazy_names(__name__, _MODULE)
