"""The share of the evidence in the most important turns is counted as by hand."""

from __future__ import annotations

from bench.quality.common.questions import Conversation, Question
from bench.quality.importance import held
from graphmem_torch.atoms import Atom


def test_evidence_in_the_most_important_turns_is_counted() -> None:
    texts = ["Wow!", "Is it?", "The red quartet plays Ravel in Vienna, says Ada.", "Wow, wow, wow!"]
    atoms = tuple(Atom(f"a{i}", text, speaker="Ben") for i, text in enumerate(texts))
    asked = (Question("Who plays?", 1, ("a2", "a3")), Question("And where?", 1, ("a2",)))
    found = held(Conversation("one", atoms, asked))
    assert found["importance"] == [2 / 3, 2 / 3, 2 / 3]  # 1, 2 and 2 turns; a2, then a0
    assert found["longest"] == [2 / 3, 1.0, 1.0]
