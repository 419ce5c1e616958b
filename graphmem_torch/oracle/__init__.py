"""Oracles: what may judge, classify and summarise texts, a model or a rule, and how it is heard."""

from __future__ import annotations

from graphmem_torch.oracle.asking import Usage
from graphmem_torch.oracle.model import OpenAIOracle
from graphmem_torch.oracle.nodes import ask_classifier, memory_node
from graphmem_torch.oracle.openai import OpenAIClient
from graphmem_torch.oracle.protocol import (
    Classifier,
    Judge,
    LanguageModel,
    Oracle,
    Verdict,
    classifier_of,
    judge_of,
)
from graphmem_torch.oracle.verdicts import ask_judge

__all__ = [
    "Classifier",
    "Judge",
    "LanguageModel",
    "OpenAIClient",
    "OpenAIOracle",
    "Oracle",
    "Usage",
    "Verdict",
    "ask_classifier",
    "ask_judge",
    "classifier_of",
    "judge_of",
    "memory_node",
]
