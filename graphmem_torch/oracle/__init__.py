"""Oracles: what judges, classifies and summarises texts, a rule or a language model on a server.

May import `atoms` and `errors` only; the client of servers needs the extra `openai`.
"""

from __future__ import annotations

from graphmem_torch.oracle.chat import Usage
from graphmem_torch.oracle.client import OpenAIClient, OpenAIOracle
from graphmem_torch.oracle.protocol import (
    Classifier,
    Judge,
    Oracle,
    Verdict,
    ask_classifier,
    ask_judge,
    memory_node,
    method_of,
)

__all__ = [
    "Classifier",
    "Judge",
    "OpenAIClient",
    "OpenAIOracle",
    "Oracle",
    "Usage",
    "Verdict",
    "ask_classifier",
    "ask_judge",
    "memory_node",
    "method_of",
]
