"""Oracles judge, classify and summarise texts: local rules, or a language model on a server.

May import `atoms`, `checks` and `errors` only; the client of servers needs the extra `openai`.
"""

from __future__ import annotations

from graphmem_torch.oracle.attempts import Usage
from graphmem_torch.oracle.client import OpenAIClient, OpenAIOracle
from graphmem_torch.oracle.protocol import (
    Classifier,
    Extractor,
    Judge,
    Oracle,
    Verdict,
    Verifier,
    ask_classifier,
    ask_extractor,
    ask_judge,
    ask_verifier,
    memory_node,
    method_of,
)

__all__ = [
    "Classifier",
    "Extractor",
    "Judge",
    "OpenAIClient",
    "OpenAIOracle",
    "Oracle",
    "Usage",
    "Verdict",
    "Verifier",
    "ask_classifier",
    "ask_extractor",
    "ask_judge",
    "ask_verifier",
    "memory_node",
    "method_of",
]
