"""A retrieval task as a view of a memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphmem_torch import Memory
from graphmem_torch.atoms import Atom
from graphmem_torch.config import GateConfig
from graphmem_torch.graph import Graph
from graphmem_torch.quality.common.questions import Conversation, Question
from graphmem_torch.quality.common.task import RetrievalTask, lift_facts, memory_of, undirected
from graphmem_torch.text.embedder import HashingEmbedder
from tests.bench.quality.made import PATTERN


def test_undirected_goes_both_ways_by_absolute_weight() -> None:
    graph = undirected(
        Graph.from_edges(
            torch.tensor([[0, 1, 2], [1, 0, 1]]), torch.tensor([0.2, -0.9, 0.5]), num_nodes=3
        )
    )
    edges = dict(zip(map(tuple, graph.edge_index.T.tolist()), graph.weight.tolist(), strict=True))
    assert edges == pytest.approx({(0, 1): 0.9, (1, 0): 0.9, (2, 1): 0.5, (1, 2): 0.5})


def test_lift_facts_gives_a_turn_the_best_of_its_facts() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.2, 0.8, 0.5]])  # turns 0 and 2; facts 1, 3, 4
    turns = torch.tensor([0, 2])
    fact, source = torch.tensor([1, 3, 4, 4]), torch.tensor([0, 0, 0, 1])
    assert lift_facts(scores, turns, fact, source).tolist() == [[pytest.approx(0.9), 0.5]]
    assert lift_facts(scores, turns, fact[:0], source[:0]).tolist() == [
        [pytest.approx(0.1), pytest.approx(0.2)]
    ]


ATOMS = [
    Atom(f"t{i}", f"I saw {thing} yesterday.", kind="turn", session="s", time=1.69e9 + 6e5 * i)
    for i, thing in enumerate(["a comet", "the red boat", "Pippo", "the sea", "a red comet"])
]


def test_task_goes_on_with_other_weights_and_another_gate() -> None:
    """The task equals that of a memory made with them."""
    rank = replace(PATTERN.rank, weights={"lexical": -1.0, "length": 0.5})
    gate = GateConfig({"best_semantic": 0.3}, bias=0.1, link="sigmoid", threshold=0.9)
    both, other = replace(PATTERN, rank=rank, gate=gate), replace(PATTERN, gate=gate)
    conversation = Conversation("c", tuple(ATOMS), (Question("A red comet?", 1, ("t4",)),))
    embedder = HashingEmbedder(16, 8)
    with memory_of(ATOMS, PATTERN, embedder, "cpu") as memory:
        task, found = RetrievalTask(conversation, memory), []
        for config in (PATTERN, other, both, PATTERN):
            task.adopt(config)
            (result,) = task.retrieve(["A red comet?"], 5)
            with memory_of(ATOMS, config, embedder, "cpu") as fresh:
                (expected,) = fresh.retrieve(["A red comet?"], k=5)
            assert [(hit.id, hit.score) for hit in result.hits] == [
                (hit.id, pytest.approx(hit.score, abs=1e-5)) for hit in expected.hits
            ]
            assert result.confidence == pytest.approx(expected.confidence, abs=1e-6)
            assert result.known is expected.known
            found.append((result.hits[0].id, round(result.confidence, 5)))
        assert found[0] == found[3] and len(set(found)) == 3


def test_task_asks_each_question_at_its_time() -> None:
    """The meaning of "yesterday" depends on when it is asked."""
    questions = [
        Question(f"What did I see {words}?", 1, (f"t{i}",), time=1.69e9 + 6e5 * i + 86_400)
        for i, words in enumerate(["yesterday", "the day before", "one day ago"])
    ]
    with Memory.open(None, config=PATTERN, embedder="hashing") as memory:
        memory.add(ATOMS)
        task = RetrievalTask(Conversation("c", tuple(ATOMS), tuple(questions)), memory)
        span = task.encode([question.text for question in questions]).span
        assert span is not None
        day = int((1.69e9) // 86_400)
        assert span[0].tolist() == [day, day + 1] and span[1].tolist() == [0, 0]
        late = int((1.69e9 + 2 * 6e5) // 86_400)
        assert span[2].tolist() == [late, late + 1]
        texts = [question.text for question in questions]
        assert [r.question for r in task.retrieve(texts[::-1], 3)] == texts[::-1]
