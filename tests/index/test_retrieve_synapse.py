"""The presets of SYNAPSE are section 4 of the mathematics, written once more in plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import CONCEPT, Atom, EdgeType
from graphmem_torch.config import Config, GateConfig, SpreadConfig, load_config
from graphmem_torch.index.activation import fan_of
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


PRESETS = pytest.mark.parametrize("preset", ["synapse", "synapse-published"])


def settings(preset: str, **overrides: Any) -> Config:
    return load_config(preset, {"link.concepts": "pattern", "anchors.k": 2, **overrides})


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

    def fan(self, j: int, fan: str) -> float:
        own = len(self.out.get(j, []))
        if self.c.spread.min_fan == "mean" and self.is_turn[j]:
            turns = [len(self.out.get(i, [])) for i, turn in enumerate(self.is_turn) if turn]
            own = max(own, sum(turns) / len(turns))
        return math.sqrt(own) if fan == "sqrt" else own

    def quiet(self, u: dict[int, float]) -> dict[int, float]:
        s, left = self.c.spread, dict[int, float]()
        for i, v in u.items():
            rivals = [
                t
                for j, t in u.items()
                if s.competitors == "all" or self.is_turn[j] == self.is_turn[i]
            ]
            strongest = sorted(rivals, reverse=True)[:7]
            left[i] = max(0.0, v - s.inhibition * sum(max(t - v, 0.0) for t in strongest))
        return left

    def fired(self, u: dict[int, float], *, zeroed: bool) -> dict[int, float]:
        s = self.c.spread

        def sigmoid(v: float) -> float:
            return 1 / (1 + math.exp(-s.gain * (v - s.threshold)))

        return {i: sigmoid(v) - (sigmoid(0.0) if zeroed else 0.0) for i, v in u.items()}

    def spread(self, a: dict[int, float], firing: str, fan: str) -> dict[int, float]:
        s = self.c.spread
        for _ in range(s.rounds):
            u = {i: s.retention * v for i, v in a.items()}
            for j, value in a.items():
                for i, w in self.out.get(j, []):
                    u[i] = u.get(i, 0.0) + s.spread * w * value / self.fan(j, fan)
            a = u if firing == "once" else self.fired(self.quiet(u), zeroed=firing == "zeroed")
        return self.fired(self.quiet(a), zeroed=True) if firing == "once" else a

    def answer(self, question: str, vector: list[float]) -> tuple[dict[str, float], float]:
        turns = [i for i, turn in enumerate(self.is_turn) if turn]
        cosine = {i: sum(x * y for x, y in zip(self.h[i], vector, strict=True)) for i in turns}
        documents = [terms(self.atoms[i].rendered) for i in turns]
        lexical = {i: bm25(documents, terms(question), p) for p, i in enumerate(turns)}
        k = self.c.anchors.k
        by_words = sorted((i for i in turns if lexical[i] > 0), key=lambda i: -lexical[i])[:k]
        by_cosine = sorted(turns, key=lambda i: -cosine[i])[:k]
        start = {i: max(cosine[i], 0.0) for i in {*by_words, *by_cosine}}
        begun, s, gate = {i: v for i, v in start.items() if v > 0}, self.c.spread, self.c.gate
        a = self.spread(begun, s.firing, s.fan)
        seen = self.spread(
            begun,
            s.firing if gate.firing == "score" else gate.firing,
            s.fan if gate.fan == "score" else gate.fan,
        )
        rank = self.pagerank()
        top = max(rank[i] for i in turns)
        scores = {
            self.atoms[i].id: 0.5 * max(cosine[i], 0.0) + 0.3 * a.get(i, 0.0) + 0.2 * rank[i] / top
            for i in turns
        }
        return scores, max(seen.get(i, 0.0) for i in turns)


@PRESETS
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"anchors.k": 1},
        {"spread.threshold": 0.1, "spread.rounds": 2},
        {"spread.firing": "zeroed", "gate.firing": "score"},
    ],
)
def test_retrieve_scores_and_gate(preset: str, overrides: dict[str, Any]) -> None:
    config = settings(preset, **overrides)
    with Memory.open(None, config=config, embedder="hashing:32") as memory:
        memory.add(talk())
        assert memory.index.spreads
        oracle = Synapse(memory, config)
        vectors = memory.embedder.encode(QUESTIONS).pooled.double().tolist()
        for result, vector in zip(memory.retrieve(QUESTIONS), vectors, strict=True):
            scores, activation = oracle.answer(result.question, vector)
            assert {hit.id for hit in result.hits} == scores.keys()
            for hit in result.hits:
                assert hit.raw == pytest.approx(scores[hit.id], abs=2e-5)
                assert sum(hit.signals.values()) == pytest.approx(hit.raw, abs=1e-5)
            assert result.confidence == pytest.approx(activation, abs=2e-5)
            assert result.known == (activation >= config.gate.threshold)


def test_published_has_every_printed_constant_and_form() -> None:
    config = load_config("synapse-published")
    spread, plain = config.spread, SpreadConfig()
    printed = ("rounds", "retention", "spread", "reduce", "fan", "inhibition", "firing")
    for name in (
        *printed,
        "gain",
        "threshold",
        "temporal_decay_per_hour",
        "max_edges",
        "competitors",
    ):
        assert getattr(spread, name) == getattr(plain, name), name
    assert config.gate == GateConfig()
    own = load_config("synapse")
    for name in (*printed, "gain", "threshold"):
        if name not in ("fan", "firing"):
            assert getattr(own.spread, name) == getattr(plain, name), name
    assert own.rank == config.rank and own.link == config.link


@pytest.mark.parametrize("every", [5, 9])
def test_turns_that_wait_open_the_gate_no_more_than_linked_ones(every: int) -> None:
    """The last turns wait, and each of them has an edge to the next one alone."""
    config = settings("synapse", **{"link.batch_concepts": every, "anchors.k": 4})
    turns = [*talk(), *talk(), *talk()]
    atoms = [replace(turn, id=f"{i}", time=None) for i, turn in enumerate(turns)]
    assert len(atoms) % every, "some wait"
    with Memory.open(None, config=config, embedder="hashing:32") as memory:
        memory.add(atoms)
        fans, graph = fan_of(memory.index.tensors, config.spread), memory.index.graph
        assert isinstance(fans, torch.Tensor)
        degree = graph.fan().float()
        own = degree[memory.index.node.long()]
        assert fans[memory.index.node.long()].tolist() == pytest.approx(
            own.clamp(min=float(own.mean())).sqrt().tolist()
        )
        before = [result.confidence for result in memory.retrieve(QUESTIONS)]
        memory.upkeep.consolidate()
        after = [result.confidence for result in memory.retrieve(QUESTIONS)]
    for one, other in zip(before, after, strict=True):
        assert one <= other + 0.01


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
