"""The memory nodes of ContextOS as an oracle gives them: {content, type, decay_factor}.

The contract is the one its paper publishes for the ingestor (appendix A.1), with the two types that
its section 4.3 and CoALA add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphmem_torch.atoms import MEMORY_TYPES
from graphmem_torch.oracle.protocol import Classifier
from graphmem_torch.oracle.verdicts import asked, fraction

__all__ = ["ask_classifier", "memory_node"]


def ask_classifier(classify: Classifier, texts: Sequence[str]) -> list[dict[str, Any] | None]:
    """Asks once; a node that breaks the contract is None, with a warning, and never an exception.

    Returns:
        For each text {"content": str, "type": one of `MEMORY_TYPES`, "decay_factor": in (0, 1]}.
    """
    return asked(
        lambda: classify(texts),
        len(texts),
        memory_node,
        what=("memory nodes", "texts"),
        wanted=f"no {{content, type: {' | '.join(MEMORY_TYPES)}, decay_factor in (0, 1]}}",
        lost="the local rules classify them",
    )


def memory_node(answer: object) -> dict[str, Any] | None:
    """The answer as a memory node; None where a field is missing or out of range.

    Fields beyond the contract are dropped; a type may be written in capitals.
    """
    if not isinstance(answer, Mapping):
        return None
    content, type = answer.get("content"), answer.get("type")
    decay = fraction(answer.get("decay_factor"))
    if not isinstance(content, str) or not content.strip() or not isinstance(type, str):
        return None
    if type.strip().lower() not in MEMORY_TYPES or not decay:
        return None
    return {"content": content, "type": type.strip().lower(), "decay_factor": decay}
