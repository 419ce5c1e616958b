"""The demonstration: one conversation, the same questions to a flat search and to graph memory.

Both search the same vectors of the same encoder. The evidence of each question was marked by hand
beside the conversation (`demo_data/`); everything shown is computed when the demo runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

from graphmem_torch.config import Config
from graphmem_torch.results import Context, Result

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory

__all__ = ["Comparison", "Demonstration", "demonstrate"]

CONTEXT_QUESTION = "Where did Theo meet the young baker he hired?"
CONTEXT_BUDGET = 160


@dataclass(frozen=True)
class Comparison:
    """One question, asked both ways.

    Attributes:
        question: As asked.
        evidence: Ids of the turns that answer it, marked by hand; empty where nothing does.
        flat: Ids that the flat cosine search ranks first, best first.
        flat_texts: Their texts.
        graph: What graph memory returns.
    """

    question: str
    evidence: tuple[str, ...]
    flat: tuple[str, ...]
    flat_texts: tuple[str, ...]
    graph: Result

    @property
    def flat_found(self) -> int:
        """How many evidence turns the flat search returned."""
        return len(set(self.evidence) & set(self.flat))

    @property
    def graph_found(self) -> int:
        """How many evidence turns graph memory returned."""
        return len(set(self.evidence) & {hit.id for hit in self.graph.hits})


@dataclass(frozen=True)
class Demonstration:
    """Everything the demo shows.

    Attributes:
        turns: Number of turns of the conversation.
        sessions: Number of its sessions.
        seconds: What indexing took, the encoder's work included.
        k: How many memories each search may return.
        stats: `Memory.stats()` after indexing.
        comparisons: One for each question.
        context: A context within a budget for one of the questions.
    """

    turns: int
    sessions: int
    seconds: float
    k: int
    stats: dict[str, Any]
    comparisons: tuple[Comparison, ...]
    context: Context

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def demonstrate(
    *,
    preset: str = "default",
    config: Config | None = None,
    embedder: str | None = None,
    device: str = "auto",
    k: int = 5,
) -> Demonstration:
    """Indexes the conversation in memory and asks every question both ways."""
    from graphmem_torch.memory import Memory
    from graphmem_torch.text.read import read_atoms

    start = time.perf_counter()
    with Memory.open(
        None, preset=preset, config=config, embedder=embedder, device=device
    ) as memory:
        with as_file(files("graphmem_torch") / "demo_data" / "conversation.jsonl") as path:
            atoms = list(read_atoms([path], tokenizer=memory.chunker))
        memory.add(atoms)
        seconds = time.perf_counter() - start

        asked = _questions()
        questions = [question for question, _ in asked]
        flat = _flat_search(memory, questions, [atom.id for atom in atoms], k)
        text = {atom.id: atom.rendered for atom in atoms}
        comparisons = tuple(
            Comparison(question, evidence, ids, tuple(text[i] for i in ids), result)
            for (question, evidence), ids, result in zip(
                asked, flat, memory.retrieve(questions, k=k), strict=True
            )
        )
        return Demonstration(
            turns=len(atoms),
            sessions=len({atom.session for atom in atoms}),
            seconds=seconds,
            k=k,
            stats=memory.stats(),
            comparisons=comparisons,
            context=memory.compile(CONTEXT_QUESTION, budget=CONTEXT_BUDGET),
        )


def _questions() -> list[tuple[str, tuple[str, ...]]]:
    lines = (files("graphmem_torch") / "demo_data" / "questions.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    return [(row["question"], tuple(row["evidence"])) for row in rows]


def _flat_search(
    memory: Memory, questions: Sequence[str], turns: Sequence[str], k: int
) -> list[tuple[str, ...]]:
    """Ids of the k turns whose vectors are nearest to each question's: what a vector store does."""
    from graphmem_torch.ops import topk_cosine

    known = memory.store.known(turns)
    vectors = memory.store.rows([known[turn][0] for turn in turns]).embeddings
    _, rows = topk_cosine(memory.embedder.encode(questions).pooled, vectors, k)
    return [tuple(turns[row] for row in found) for found in rows.tolist()]
