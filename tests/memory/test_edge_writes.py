"""Edges from code and from an oracle: checked, durable, seen at once, signed to the end."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmem_torch.atoms import KINDS, Atom, EdgeType, Link
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.graph import Graph
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.memory.edge_writes import similar_pairs
from graphmem_torch.oracle import Verdict
from graphmem_torch.spectral import laplacian
from tests.memories import config_of, ids, opened, turns

PLAIN = {"link.concepts": "none", "link.similarity_k": 0}


def stated(memory: Memory) -> set[tuple[str, str, str, float]]:
    """The stored edges by id, without those of linking."""
    edges, node = memory.store.edges(), memory.store.columns().node.tolist()
    name = dict(zip(node, memory.store.ids(), strict=True))
    columns = (edges.source, edges.target, edges.type, edges.weight)
    return {
        (name[s], name[t], EdgeType(k).name.lower(), round(w, 4))
        for s, t, k, w in zip(*(c.tolist() for c in columns), strict=True)
        if k not in (EdgeType.TEMPORAL, EdgeType.SIMILARITY, EdgeType.CAUSES)
    }


def claims(count: int = 6) -> list[Atom]:
    return [Atom(f"c{i}", f"Claim number {i} about boats", kind="claim") for i in range(count)]


def small(path: Path | None = None, **change: Any) -> Memory:
    memory = opened(path, config=config_of(**PLAIN), **change)
    memory.add(claims())
    return memory


def test_connect_one_edge_and_many_with_their_defaults() -> None:
    with small() as memory:
        done = memory.graph.connect("c0", "c1", "supports")
        assert (done.new, done.known) == (1, 0)
        done = memory.graph.connect(
            [
                ("c1", "c2"),
                ["c2", "c3", "Derived-From"],
                ("c3", "c4", EdgeType.CONTRADICTS),
                ("c4", "c5", "contradicts", 0.8),
                ("c5", Link("c0", EdgeType.DEPENDENCY, 0.25)),
            ]
        )
        assert (done.new, done.known) == (5, 0)
        assert stated(memory) == {
            ("c0", "c1", "supports", 0.7),
            ("c1", "c2", "related_to", 0.5),
            ("c2", "c3", "derived_from", 1.0),
            ("c3", "c4", "contradicts", -0.5),
            ("c4", "c5", "contradicts", -0.8),
            ("c5", "c0", "dependency", 0.25),
        }
        assert memory.graph.connect([]).new == 0


def test_connect_counts_the_strongest_of_equal_edges() -> None:
    with small() as memory:
        memory.graph.connect("c0", "c1", "supports", 0.4)
        before = memory.store.state
        assert memory.graph.connect("c0", "c1", "supports", 0.4).known == 1
        assert memory.graph.connect("c0", "c1", "supports", 0.1).known == 1
        assert memory.store.state == before, "nothing new: the index stays"
        many = [("c0", "c1", "supports", 0.6), ("c0", "c1", "supports", 0.9), ("c1", "c0")]
        done = memory.graph.connect(many)
        assert (done.new, done.known) == (2, 1)
        assert ("c0", "c1", "supports", 0.9) in stated(memory)
        assert ("c0", "c1", "supports", 0.6) not in stated(memory)


def test_disconnect_deletes_what_it_says() -> None:
    with small() as memory:
        memory.graph.connect(
            [("c0", "c1", "supports"), ("c0", "c1", "causes"), ("c1", "c0", "supports")]
        )
        memory.graph.connect("c0", "c1", "supports", 0.9)
        assert memory.graph.disconnect("c0", "c1", "supports") == 2
        assert stated(memory) == {("c1", "c0", "supports", 0.7)}
        state = memory.store.state
        assert memory.graph.disconnect("c0", "c1", "supports") == 0
        assert memory.store.state == state
        assert memory.graph.disconnect("c0", "c1") == 1
        memory.graph.connect("c0", "c1", "supports", 0.2)  # weaker than before: it was disconnected
        assert ("c0", "c1", "supports", 0.2) in stated(memory)
        assert memory.check() == []


def test_connect_is_durable_and_uses_no_old_snapshot(tmp_path: Path) -> None:
    memory = small(tmp_path / "m")
    memory.close()  # with a snapshot of the state without the edges
    with opened(tmp_path / "m", config=config_of(**PLAIN)) as memory:
        memory.graph.connect("c0", "c3", "supports")
        memory.graph.connect("c3", "c5", "contradicts")
        with opened(tmp_path / "m", mode="r", config=config_of(**PLAIN)) as reader:
            assert stated(reader) == stated(memory) and len(stated(reader)) == 2
            assert reader.index.graph.num_edges == 2, "supports, both ways"
            with pytest.raises(StoreError, match="mode='w'"):
                reader.graph.connect("c0", "c1")
        memory.store.close()  # as if killed: no snapshot is written
    with opened(tmp_path / "m", config=config_of(**PLAIN)) as memory:
        assert len(stated(memory)) == 2
        assert memory.check() == []
        assert memory.graph.disconnect("c0", "c3") == 1
        memory.add([Atom("late", "A later claim", edges=(Link("c0", EdgeType.SUPPORTS),))])
        assert ("late", "c0", "supports", 0.7) in stated(memory)
        assert memory.check() == []


def test_connect_is_seen_by_the_next_question() -> None:
    with opened(config=config_of(**PLAIN, **{"spread.min_nodes": 1, "anchors.k": 1})) as memory:
        memory.add(["the canoe is red", *[f"something else entirely {i}" for i in range(9)]])
        found = ids(memory.retrieve("the canoe is red"))
        canoe, hidden = found[0], found[-1]

        def steps() -> list[str]:
            hits = {hit.id: hit for hit in memory.retrieve("the canoe is red").hits}
            assert (hits[hidden].signals["activation"] > 0) == bool(hits[hidden].path)
            return [step.type for step in hits[hidden].path]

        assert steps() == []
        memory.graph.connect(canoe, hidden, "causes")
        assert steps() == ["causes"]
        memory.graph.disconnect(canoe, hidden)
        assert steps() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("c0", "nowhere"), "'nowhere', which is not in the store"),
        (("c0", "c0"), "two different atoms"),
        (("c0", "c1", "suports"), "did you mean 'supports'"),
        (("c0", "c1", "supports", math.nan), "finite"),
        (("c0", "c1", "supports", math.inf), "finite"),
        (("c0", "c1", "supports", 1e9), "at most 1000"),
        (("c0", "c1", "supports", 0), "not 0"),
        (("c0", "c1", "supports", True), "weight"),
        (("c0", "c1", "supports", -0.5), "'contradicts'"),
        (("c0",), "edge: expected"),
        (([("c0", "c1"), ("c0",)],), "edge: expected"),
        (([("c0", "c1"), 3],), "edge: expected"),
        (([("c0", "c1"), ("c2", "c9")],), "'c9'"),
        (([("c0", "c1")], "c2"), "beside many"),
    ],
)
def test_connect_of_bad_edges_changes_nothing(arguments: tuple[Any, ...], message: str) -> None:
    with small() as memory:
        state = memory.store.state
        with pytest.raises(InputError, match=message):
            memory.graph.connect(*arguments)
        assert memory.store.state == state
        assert stated(memory) == set()


def test_signs_survive_from_input_to_the_signed_laplacian() -> None:
    """c0 supports c1, both dispute c2: balanced. With c0-c1 in conflict too: frustrated."""
    text = [
        {"id": "c0", "text": "one", "kind": "claim", "edges": [["c1", "supports"]]},
        {"id": "c1", "text": "two", "kind": "claim", "edges": [["c2", "contradicts"]]},
        {"id": "c2", "text": "three", "kind": "claim", "edges": [["c0", "contradicts", 0.25]]},
    ]
    with opened(config=config_of(**PLAIN)) as memory:
        memory.add(text)
        edges = memory.store.edges()
        index = torch.stack([edges.source, edges.target])
        graph = Graph.from_edges(index, edges.weight, type=edges.type, num_nodes=3)
        w = np.zeros((3, 3))
        w[0, 1], w[1, 2], w[2, 0] = 0.7, -0.5, -0.25
        w += w.T
        root = np.diag(np.abs(w).sum(1) ** -0.5)
        truth = np.eye(3) - root @ w @ root
        dense = laplacian(graph, signed=True, dtype=torch.float64).matmul(torch.eye(3).double())
        np.testing.assert_allclose(dense.numpy(), truth, atol=1e-6)
        assert np.linalg.eigvalsh(truth)[0] == pytest.approx(0, abs=1e-6)
        conducting = memory.index.graph
        assert bool((conducting.weight > 0).all())
        ends = {frozenset(p) for p in conducting.edge_index.T.tolist()}
        assert ends == {frozenset((0, 1))}, "what conflicts does not conduct"


def test_kinds_are_words() -> None:
    with opened(config=config_of(**PLAIN)) as memory:
        memory.add(
            [Atom(f"k{i}", f"text {i}", kind=k) for i, k in enumerate(KINDS) if k != "concept"]
        )
        memory.add([Atom("own", "text", kind="Hypothesis no. 3")])
        for kind in ["", " ", "two\nlines", "x" * 65, 7]:
            with pytest.raises(InputError, match="kind"):
                memory.add([Atom("bad", "text", kind=kind)])  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"did you mean 'theorem'"):
            memory.retrieve("text", scope=Scope(kinds=["theorm"]))


def test_cooccurrence_edges_are_n_log_n(generator: torch.Generator) -> None:
    with opened(config=config_of(**PLAIN, **{"link.cooccurrence": 3})) as memory:
        atoms = [replace(a, edges=()) for a in turns(20)]
        memory.add(atoms[:9])
        memory.add(atoms[9:])
        expected = {
            (f"a{i - d}", f"a{i}", "cooccurrence", 0.3)
            for i in range(20)
            for d in (1, 2, 4)
            if i - d >= 0 and (i - d) // 6 == i // 6
        }
        assert stated(memory) == expected


def test_judged_edges_and_their_weights() -> None:
    asked: list[tuple[str, str]] = []

    def oracle(premises: Sequence[str], hypotheses: Sequence[str]) -> list[Any]:
        asked.extend(zip(premises, hypotheses, strict=True))
        answers = [Verdict("entail", 0.6), ("contradict", 0.9), "neutral", Verdict("contradict", 1)]
        return answers[: len(premises)]

    with small() as memory:
        pairs = [("c0", "c1"), ("c1", "c2"), ("c2", "c3"), ("c2", "c1"), ("c0", "c1")]
        done = memory.graph.judge(oracle, pairs)
        assert (done.entailed, done.contradicted, done.neutral, done.failed) == (1, 2, 1, 0)
        assert (done.new, done.known) == (2, 1), "a contradiction is one edge, however asked"
        assert stated(memory) == {
            ("c0", "c1", "implication", 0.8),
            ("c2", "c1", "contradicts", -1.0),
        }
        assert asked[0] == ("Claim number 0 about boats", "Claim number 1 about boats")


class Broken:
    """Fails on the first call, gives too few answers on the second, then one good in three."""

    def __init__(self) -> None:
        self.calls = 0

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Any]:
        self.calls += 1
        if self.calls == 1:
            raise TimeoutError("no answer")
        if self.calls == 2:
            return [Verdict("entail")]
        bad = [("entail", 7.0), "perhaps", None, ("entail", math.nan), ("contradict", "high")]
        return [("entail", 0.5), *bad, *["neutral"] * len(premises)][: len(premises)]


def test_judge_edges_by_a_failing_oracle_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with opened(config=config_of(**PLAIN)) as memory:
        memory.add(claims(20))
        memory.graph.connect("c0", "c1", "supports")
        pairs = [(f"c{i}", f"c{j}") for i in range(20) for j in range(20) if i != j][:200]
        oracle = Broken()
        with caplog.at_level(logging.WARNING):
            done = memory.graph.judge(oracle, pairs)
        assert oracle.calls == 4
        assert done.failed == 64 + 64 + 5 + 5 and done.judged == 200
        assert done.entailed == done.new == 2
        said = caplog.text
        assert "TimeoutError: no answer" in said and "1 verdicts for 64 pairs" in said
        assert "5 of 64 verdicts" in said and "('entail', 7.0)" in said
        assert ("c0", "c1", "supports", 0.7) in stated(memory)
        assert memory.check() == []


def test_judge_edges_of_the_nearest_by_default(generator: torch.Generator) -> None:
    x = torch.nn.functional.normalize(torch.randn(30, 6, generator=generator), dim=1)
    got = {tuple(pair) for pair in similar_pairs(x, k=2, min_cosine=0.3).T.tolist()}
    expected = set()
    for i in range(30):
        near = sorted(range(i), key=lambda j: -float(x[i] @ x[j]))[:2]
        expected |= {(i, j) for j in near if float(x[i] @ x[j]) >= 0.3}
    assert got == expected
    assert similar_pairs(x[:1], k=2, min_cosine=0.3).shape == (2, 0)
    with opened(config=config_of(**PLAIN)) as memory:
        assert memory.graph.judge().judged == 0
        memory.add(["the canoe is red", "the canoe is not red", "violins are loud at night"])
        seen: list[tuple[str, str]] = []

        def oracle(premises: Sequence[str], hypotheses: Sequence[str]) -> list[str]:
            seen.extend(zip(premises, hypotheses, strict=True))
            return ["neutral"] * len(premises)

        memory.graph.judge(oracle, k=1)
        assert set(seen) == {
            ("the canoe is red", "the canoe is not red"),
            ("the canoe is not red", "the canoe is red"),
        }


@pytest.mark.parametrize("pairs", [[("c0",)], [("c0", "c0")], ["c0"], [("c0", 3)], [("c0", "no")]])
def test_judge_edges_of_bad_pairs(pairs: Any) -> None:
    with small() as memory, pytest.raises(InputError, match="expected"):
        memory.graph.judge(lambda p, h: ["neutral"] * len(p), pairs)


def test_judge_edges_by_a_bad_oracle() -> None:
    with small() as memory:
        with pytest.raises(InputError, match="oracle: expected"):
            memory.graph.judge(3, [("c0", "c1")])  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"^k\b.* at least 1"):
            memory.graph.judge(k=0)
        with pytest.raises(InputError, match="min_cosine: expected"):
            memory.graph.judge(min_cosine=2.0)


def test_disconnect_leaves_sound_blocks() -> None:
    with small() as memory:
        memory.graph.connect([(f"c{i}", f"c{j}") for i in range(6) for j in range(6) if i != j])
        before = memory.store.edges()

        def keep(edges: EdgeBlock) -> torch.Tensor:
            return edges.source != 2

        assert memory.store.remove_edges(keep) == 5
        after = memory.store.edges()
        kept = before.source != 2
        assert torch.equal(after.target, before.target[kept])
        assert memory.check() == []
        assert memory.store.remove_edges(lambda edges: edges.source < 0) == 25
        assert len(memory.store.edges()) == 0 and memory.check() == []


def test_connect_takes_numbers_of_numpy() -> None:
    with small() as memory:
        memory.graph.connect("c0", "c1", "supports", np.float32(0.5))
        memory.graph.judge(lambda p, h: [("entail", np.float32(0.5))], [("c1", "c2")])
        weights = {("c0", "c1", "supports", 0.5), ("c1", "c2", "implication", 0.75)}
        assert stated(memory) == weights


@pytest.mark.parametrize("weight", [1e-50, -1e-50, 1e-40])
def test_connect_refuses_a_weight_that_would_be_0(weight: float) -> None:
    with small() as memory, pytest.raises(InputError, match="weight"):
        memory.graph.connect("c0", "c1", "contradicts", weight)


def test_connect_says_what_is_no_edge_and_no_id() -> None:
    with small() as memory:
        with pytest.raises(InputError, match="edges: expected"):
            memory.graph.connect(5)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="ids: expected texts"):
            memory.graph.disconnect(["c0"], "c1")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="ids: expected texts"):
            memory.graph.disconnect(None, "c1")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="pairs: expected"):
            memory.graph.judge(pairs=3)  # type: ignore[arg-type]


def test_judge_edges_ends_an_endless_answer() -> None:
    with small() as memory:
        done = memory.graph.judge(lambda p, h: itertools.repeat("entail"), [("c0", "c1")])
        assert done.failed == 1 and done.new == 0
