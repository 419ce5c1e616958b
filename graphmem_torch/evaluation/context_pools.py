"""What gold evidence is looked for in: conversations and passages, each with its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.evaluation.arena import TURN, Arena
from graphmem_torch.evaluation.passages import PassageSet, read_passage_sets
from graphmem_torch.evaluation.questions import Conversation, Question, read_conversations
from graphmem_torch.memory import Memory
from graphmem_torch.text.embed import Embedder

__all__ = ["GoldSet", "passage_conversation", "read_gold_sets"]

_PASSAGE = "passage"


@dataclass(frozen=True, slots=True)
class GoldSet:
    """One data set: conversations, or passages as one conversation.

    Attributes:
        name: Of the set.
        conversations: Each is asked by itself.
        kind: Of the atoms that are candidates.
    """

    name: str
    conversations: tuple[Conversation, ...]
    kind: str = TURN

    @property
    def conversational(self) -> bool:
        """Whether the candidates are turns."""
        return self.kind == TURN

    def arenas(self, config: Config, embedder: Embedder, device: str) -> Iterator[Arena]:
        """The conversations with their memories, one at a time."""
        for conversation in self.conversations:
            with Memory.open(None, config=config, embedder=embedder, device=device) as memory:
                memory.add(conversation.atoms)
                yield Arena(conversation, memory, kind=self.kind)


def read_gold_sets(root: Path) -> list[GoldSet]:
    """Every set under a data root: LoCoMo under `locomo`, passages wherever they are.

    Questions without gold are left out, and conversations without questions.

    Raises:
        InputError: A file that cannot be used.
    """
    sets = []
    locomo = root / "locomo"
    if locomo.is_dir():
        evidence = sorted(locomo.glob("*evidence*.jsonl"))
        found = read_conversations(locomo, evidence=evidence[0] if len(evidence) == 1 else None)
        asked = [one for one in map(_answerable, found) if one.questions]
        sets += [GoldSet("locomo", tuple(asked))] if asked else []
    sets += [
        GoldSet(one.name, (passage_conversation(one),), _PASSAGE) for one in read_passage_sets(root)
    ]
    return sets


def passage_conversation(passages: PassageSet) -> Conversation:
    """Passages as atoms, one document each, and their questions."""
    atoms = tuple(
        Atom(id=f"{passages.name}:{i}", text=one.whole, kind=_PASSAGE)
        for i, one in enumerate(passages.passages)
    )
    questions = tuple(
        Question(one.text, 1 if len(one.gold) > 1 else 4, tuple(atoms[i].id for i in one.gold))
        for one in passages.questions
    )
    return Conversation(passages.name, atoms, questions)


def _answerable(one: Conversation) -> Conversation:
    return Conversation(one.name, one.atoms, tuple(q for q in one.questions if q.gold))
