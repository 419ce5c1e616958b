"""Measure how much of the evidence the most important memories hold.

`python -m bench.quality.importance --data ROOT`

`ROOT` has the folders `locomo` and `longmemeval`, as for `graphmem eval all`. The figure is the
share of the questions' evidence among the 30, 50 and 70 % of the turns with the largest initial
importance (`docs/mathematics.md` 5.4). The baseline is the longest turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor
from tyro.conf import arg

from graphmem_torch.config import load_config
from graphmem_torch.evaluation.retrieval import text_table
from graphmem_torch.memory import Memory
from graphmem_torch.memory.importance import initial_importance
from graphmem_torch.text.embedder import HashingEmbedder
from graphmem_torch.text.words import count_words

from .common.chats import read_chats
from .common.questions import Conversation, find_evidence, read_conversations

__all__ = ["held", "main"]

_SHARES = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class Importances:
    """Measure the initial importance on evidence.

    Attributes:
        data: Folder of the data sets.
    """

    data: Annotated[Path, arg(metavar="ROOT")]


def held(conversation: Conversation) -> dict[str, list[float]]:
    """Return the share of the evidence in the best turns of a conversation, by criterion."""
    wanted = Counter(name for question in conversation.questions for name in question.gold)
    config = load_config("default", {"link.concepts": "none"})
    with Memory.open(None, config=config, embedder=HashingEmbedder(16)) as memory:
        memory.add(conversation.atoms)
        importance = initial_importance(memory.index)
    count = torch.tensor([wanted[atom.id] for atom in conversation.atoms], dtype=torch.float64)
    length = torch.tensor([count_words(atom.text) for atom in conversation.atoms])
    return {
        "importance": [_in_best(importance, count, share) for share in _SHARES],
        "longest": [_in_best(length, count, share) for share in _SHARES],
    }


def _in_best(value: Tensor, count: Tensor, share: float) -> float:
    order = value.argsort(descending=True, stable=True)
    return float(count[order[: int(len(order) * share)]].sum() / count.sum())


def _sets(root: Path) -> Iterator[tuple[str, list[Conversation]]]:
    data = root / "locomo" / "locomo5.json"
    yield "LoCoMo", read_conversations(data, evidence=find_evidence(data))
    yield "LongMemEval", list(read_chats(root / "longmemeval").conversations)


def main(arguments: list[str] | None = None) -> int:
    """Print the means of each set."""
    asked = tyro.cli(Importances, args=arguments)
    rows = []
    for name, conversations in _sets(asked.data):
        found = [held(each) for each in conversations]
        for rule in found[0]:
            mean = torch.tensor([each[rule] for each in found]).mean(0).tolist()
            rows.append([name, rule, *(f"{100 * value:.1f}" for value in mean)])
    head = ["set", "first", *(f"{round(100 * share)} %" for share in _SHARES)]
    print("\n".join(text_table([head, *rows])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
