"""The synapse preset is section 4 of the mathematics, written once more in plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType
from graphmem_torch.config import Config, load_config
from graphmem_torch.memory import Memory
from graphmem_torch.text.terms import terms

HOUR = 3600.0
TALK = [
    ("Ada", "I bought a red canoe in Vienna", 0.0),
    ("Ben", "Was the red canoe expensive", 0.5),
    ("Ada", "The canoe sank near Vienna on Sunday", 30.0),
    ("Ben", "My telescope shows the moon", 31.0),
    ("Ada", "Vienna Opera plays tonight", 31.5),
    ("Ben", "A telescope is better than an opera", 90.0),
    ("Ada", "Red paint covers the old telescope", 90.2),
    ("Ben", "Nothing else happened", None),
]
QUESTIONS = ["Who owns the red canoe?", "What does the telescope show?", "quantum chromodynamics"]


def settings(**overrides: Any) -> Config:
    return load_config("synapse", {"link.concepts": "pattern", "anchors.k": 2, **overrides})


def talk() -> list[Atom]:
    return [
        Atom(f"t{i}", text, speaker=who, session="s", time=None if h is None else h * HOUR)
        for i, (who, text, h) in enumerate(TALK)
    ]


def bm25(documents: list[list[str]], question: list[str], which: int) -> float:
    mean = sum(map(len, documents)) / len(documents)
    score = 0.0
    for word in question:
        tf = documents[which].count(word)
        df = sum(word in document for document in documents)
        idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
        score += idf * tf * 2.2 / (tf + 1.2 * (1 - 0.3 + 0.3 * len(documents[which]) / mean))
    return score


class Synapse:
    """Scores of one question, over the nodes and edges that the store holds."""

    def __init__(self, memory: Memory, config: Config) -> None:
        store = memory.store
        nodes = store.columns().node.tolist()
        self.atoms, self.c = store.atoms(nodes), config
        self.h = store.embeddings().double().tolist()
        self.is_turn = [atom.kind != CONCEPT for atom in self.atoms]
        block = store.edges()
        columns = (block.source, block.target, block.type, block.weight)
        edges: dict[tuple[int, int, int], float] = {}
        for s, t, kind, weight in zip(*(column.tolist() for column in columns), strict=True):
            pairs = [(s, t)]
            if kind == EdgeType.TEMPORAL:
                one, other = self.atoms[s].time, self.atoms[t].time
                apart = 0.0 if one is None or other is None else abs(one - other) / HOUR
                weight *= math.exp(-0.01 * (apart or 1.0))
            else:
                assert kind in (EdgeType.ABSTRACTION, EdgeType.ASSOCIATION)
                pairs.append((t, s))
            for a, b in pairs:
                edges[a, b, kind] = max(weight, edges.get((a, b, kind), 0.0))
        leaving, self.out = defaultdict(list), defaultdict(list)
        for (a, b, kind), weight in edges.items():
            if kind == EdgeType.ASSOCIATION:
                leaving[a].append((-weight, b))
            else:
                self.out[a].append((b, weight))
        for a, drawn in leaving.items():
            self.out[a] += [(b, -w) for w, b in sorted(drawn)[:15]]

    def pagerank(self) -> list[float]:
        n = len(self.atoms)
        x = [1 / n] * n
        for _ in range(300):
            lost = sum(x[j] for j in range(n) if j not in self.out)
            y = [0.15 / n + 0.85 * lost / n] * n
            for j, edges in self.out.items():
                total = sum(w for _, w in edges)
                for i, w in edges:
                    y[i] += 0.85 * x[j] * w / total
            x = y
        return x

    def spread(self, a: dict[int, float]) -> dict[int, float]:
        s = self.c.spread
        for _ in range(s.rounds):
            u = {i: s.retention * v for i, v in a.items()}
            for j, value in a.items():
                edges = self.out.get(j, [])
                for i, w in edges:
                    u[i] = u.get(i, 0.0) + s.spread * w * value / len(edges)
            strongest = sorted(u.values(), reverse=True)[: s.top]
            quiet = {
                i: max(0.0, v - s.inhibition * sum(max(t - v, 0.0) for t in strongest))
                for i, v in u.items()
            }
            a = {i: 1 / (1 + math.exp(-s.gain * (v - s.threshold))) for i, v in quiet.items()}
        return a

    def answer(self, question: str, vector: list[float]) -> tuple[dict[str, float], float]:
        turns = [i for i, turn in enumerate(self.is_turn) if turn]
        cosine = {i: sum(x * y for x, y in zip(self.h[i], vector, strict=True)) for i in turns}
        documents = [terms(self.atoms[i].rendered) for i in turns]
        lexical = {i: bm25(documents, terms(question), p) for p, i in enumerate(turns)}
        k = self.c.anchors.k
        by_words = sorted((i for i in turns if lexical[i] > 0), key=lambda i: -lexical[i])[:k]
        by_cosine = sorted(turns, key=lambda i: -cosine[i])[:k]
        start = {i: max(cosine[i], 0.0) for i in {*by_words, *by_cosine}}
        a = self.spread({i: v for i, v in start.items() if v > 0})
        rank = self.pagerank()
        top = max(rank[i] for i in turns)
        scores = {
            self.atoms[i].id: 0.5 * max(cosine[i], 0.0) + 0.3 * a.get(i, 0.0) + 0.2 * rank[i] / top
            for i in turns
        }
        return scores, max(a.get(i, 0.0) for i in turns)


@pytest.mark.parametrize(
    "overrides",
    [{}, {"anchors.k": 1}, {"spread.threshold": 0.1, "spread.rounds": 2}, {"link.window": 2}],
)
def test_retrieve_scores_and_gate(overrides: dict[str, Any]) -> None:
    config = settings(**overrides)
    with Memory.open(None, config=config, embedder="hashing:32") as memory:
        memory.add(talk())
        assert memory.index.spreads
        oracle = Synapse(memory, config)
        vectors = memory.embedder.encode(QUESTIONS).pooled.double().tolist()
        for result, vector in zip(memory.retrieve(QUESTIONS), vectors, strict=True):
            scores, activation = oracle.answer(result.question, vector)
            assert {hit.id for hit in result.hits} == scores.keys()
            for hit in result.hits:
                assert hit.score == pytest.approx(scores[hit.id], abs=2e-5)
                assert sum(hit.signals.values()) == pytest.approx(hit.score, abs=1e-5)
            assert result.confidence == pytest.approx(activation, abs=2e-5)
            assert result.known == (activation >= 0.12)


def test_retrieve_cold_start_falls_back_to_fusion() -> None:
    """Too few nodes to spread over: cosine and BM25 decide, and the gate looks at the cosine."""
    with Memory.open(preset="synapse", embedder="hashing") as memory:
        memory.add(["red kites fly over the hill", "the ferry leaves at noon"])
        assert not memory.index.spreads
        result = memory.retrieve("when does the ferry leave?")
    assert set(result.hits[0].signals) == {"semantic_positive", "lexical"}
    assert result.hits[0].text == "the ferry leaves at noon"
    best = max(hit.signals["semantic_positive"] for hit in result.hits)
    assert result.confidence == pytest.approx(best, abs=1e-5)
