"""Oracles judge, classify and summarise texts: local rules, or a language model on a server.

May import `atoms`, `checks` and `errors` only; the client of servers needs the extra `openai`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
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

_NAMES = {
    "oracle.attempts": "Usage",
    "oracle.client": "OpenAIClient OpenAIOracle",
    "oracle.protocol": "Classifier Extractor Judge Oracle Verdict Verifier ask_classifier "
    "ask_extractor ask_judge ask_verifier memory_node method_of",
}

__getattr__ = lazy_names(__name__, _NAMES)
