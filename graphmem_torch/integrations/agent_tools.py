"""Tools of a memory as plain functions, whose docstrings are what a model reads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory

__all__ = ["PLACEHOLDER", "AgentTools"]

PLACEHOLDER = "placeholder"
"""Kind of an atom that stands for something without text, and is not recalled."""


class AgentTools:
    """Four functions that ask and change a memory.

    Attributes:
        memory: Memory that they work on.
    """

    def __init__(self, memory: Memory) -> None:
        """Keep the memory.

        Args:
            memory: Open memory.

        Raises:
            InputError: Something else.
        """
        if not isinstance(memory, Memory):
            raise InputError(
                f"memory: expected an open `Memory`, got {type(memory).__name__}; open one"
            )
        self.memory = memory

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """The functions, by name `recall`, `remember`, `update` and `forget`."""
        return [self.recall, self.remember, self.update, self.forget]

    def recall(self, question: str, k: int = 8) -> dict[str, Any]:
        """Find what is remembered about a question, best first, over all conversations.

        Call this before answering anything that may depend on earlier conversations. `known` is
        false if the memory has no record: then say so, and do not guess.

        Args:
            question: Question in full words: names instead of pronouns.
            k: Maximum number of memories, at least 1.
        """
        found = self.memory.retrieve(question, k=k, where={"kind": {"$ne": PLACEHOLDER}})
        return {
            "known": found.known,
            "memories": [
                {"id": hit.id, "text": hit.text, "session": hit.session, "time": _shown(hit.time)}
                for hit in found.hits
            ],
        }

    def remember(self, text: str) -> str:
        """Store a fact, preference, decision or event for later conversations.

        To change a fact that is stored, use `update` instead. Returns the id of the memory.

        Args:
            text: A sentence that can be understood alone: names instead of pronouns, dates instead
                of "tomorrow".
        """
        return self.memory.add({"text": text, "time": datetime.now(UTC)}).ids[0]

    def update(self, id: str, text: str) -> str:
        """Correct a memory, keeping its id. Returns its new text.

        Args:
            id: Id of the memory, from `recall`.
            text: New text, a sentence that can be understood alone.
        """
        return self.memory.update(id, text=text).text

    def forget(self, ids: list[str]) -> int:
        """Erase memories for good, with all that was derived from them; cannot be undone.

        Returns the number of erased memories.

        Args:
            ids: Ids of the memories, from `recall`.
        """
        erased = self.memory.forget(ids, dry_run=True)
        self.memory.forget([atom.id for atom in erased])
        return len(erased)


def _shown(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
