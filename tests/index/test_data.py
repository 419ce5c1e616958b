"""The conducting graph, edge by edge against a loop, and the columns that are refused."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config, SpreadConfig
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.index.activation_graph import activation_graph
from graphmem_torch.index.buffers import memory_tensors
from graphmem_torch.index.data import index_tensors
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.ops import propagate

EDGES = {"temporal": 0.5, "similarity": 2.0, "causes": 0.7, "abstraction": 1.0}
REVERSE = {"temporal": 0.25, "abstraction": 1.0, "derived_from": 0.3}
NODES = 12


@pytest.mark.parametrize(("cap", "step"), [(1, 0.0), (3, 1.5), (100, 0.0)])
def test_conducting_graph_gains_reverse_decay_and_cap(
    cap: int, step: float, generator: torch.Generator
) -> None:
    count = 90
    source, target = torch.randint(0, NODES, (2, count), generator=generator)
    kinds = torch.tensor(list(EdgeType))[
        torch.randint(0, len(EdgeType), (count,), generator=generator)
    ].to(torch.uint8)
    weight = torch.randn(count, generator=generator)
    time = 1.7e9 + 3600 * 24 * torch.rand(NODES, generator=generator, dtype=torch.float64) * 5
    time[:3] = torch.nan
    time[3:5] = time[5]
    config = SpreadConfig(
        edges=EDGES,
        reverse=REVERSE,
        temporal_decay_per_hour=0.02,
        temporal_step_hours=step,
        max_edges=cap,
        capped=("similarity", "temporal"),
    )
    graph = activation_graph(EdgeBlock(source, target, kinds, weight), time, config)

    expected: dict[tuple[int, int, int], float] = defaultdict(float)
    for s, t, kind, w in zip(
        source.tolist(), target.tolist(), kinds.tolist(), weight.tolist(), strict=True
    ):
        value = max(w, 0.0)
        if kind == EdgeType.TEMPORAL:
            hours = abs(float(time[s]) - float(time[t])) / 3600
            value *= math.exp(-0.02 * (step if math.isnan(hours) or hours == 0 else hours))
        name = EdgeType(kind).name.lower()
        for a, b, gain in ((s, t, EDGES.get(name, 0.0)), (t, s, REVERSE.get(name, 0.0))):
            if gain > 0 and value > 0:
                expected[a, b, kind] = max(expected[a, b, kind], gain * value)
    leaving: dict[int, list[tuple[float, tuple[int, int, int]]]] = defaultdict(list)
    kept = {}
    for key, value in expected.items():
        if key[2] in (EdgeType.SIMILARITY, EdgeType.TEMPORAL):
            leaving[key[0]].append((value, key))
        else:
            kept[key] = value
    for edges in leaving.values():
        kept |= {key: value for value, key in sorted(edges, reverse=True)[:cap]}
    columns = (graph.source, graph.target, graph.type, graph.weight)
    got = {(s, t, k): w for s, t, k, w in zip(*(c.tolist() for c in columns), strict=True)}
    assert graph.num_nodes == NODES
    assert got.keys() == kept.keys()
    assert all(got[key] == pytest.approx(kept[key], rel=1e-5) for key in kept)


def test_conducting_graph_contradictions_conduct_only_when_asked() -> None:
    kinds = torch.tensor([int(EdgeType.CONTRADICTS)], dtype=torch.uint8)
    ends = torch.tensor([0]), torch.tensor([1])
    time = torch.zeros(2, dtype=torch.float64)
    edges = EdgeBlock(*ends, kinds, torch.tensor([-0.5]))
    assert activation_graph(edges, time, SpreadConfig(edges=EDGES, reverse=REVERSE)).num_edges == 0
    asked = activation_graph(edges, time, SpreadConfig(edges={"contradicts": 0.4}))
    assert asked.weight.tolist() == pytest.approx([0.2])


def test_conducting_graph_negative_weights_conduct_nothing() -> None:
    """An edge of any type that says "not together" must not bring its ends together."""
    kinds = torch.tensor([int(EdgeType.SUPPORTS), int(EdgeType.SUPPORTS)], dtype=torch.uint8)
    ends = torch.tensor([0, 1]), torch.tensor([1, 2])
    config = SpreadConfig(edges={"supports": 0.7}, reverse={"supports": 0.7})
    graph = activation_graph(
        EdgeBlock(*ends, kinds, torch.tensor([-0.7, 0.5])), torch.zeros(3), config
    )
    assert sorted(zip(graph.source.tolist(), graph.target.tolist(), strict=True)) == [
        (1, 2),
        (2, 1),
    ]
    assert graph.weight.tolist() == pytest.approx([0.35, 0.35])


def test_parallel_edges_add_up_to_the_strength_of_a_strand() -> None:
    """Cognitive Weave's S_ij = alpha cos + beta co-occurrence + gamma confidence, by hand."""
    gains = {"similarity": 0.5, "cooccurrence": 0.3, "implication": 0.2}
    terms = {0: (0.6, 0.3, 0.9), 1: (0.4, 0.0, 0.75)}  # of what gives to node 2
    rows = [
        (source, 2, int(EdgeType[name.upper()]), value)
        for source, values in terms.items()
        for name, value in zip(gains, values, strict=True)
        if value
    ]
    edges = EdgeBlock.of(*map(list, zip(*rows, strict=True)))
    graph = activation_graph(edges, torch.zeros(3, dtype=torch.float64), SpreadConfig(edges=gains))
    given = torch.tensor([[0.5, 2.0, 0.0]])
    flown = propagate(graph, given, retention=0.0, spread=1.0, reduce="sum", fan="none")
    first = 0.5 * 0.6 + 0.3 * 0.3 + 0.2 * 0.9
    second = 0.5 * 0.4 + 0.2 * 0.75
    assert flown[0].tolist() == pytest.approx([0.0, 0.0, first * 0.5 + second * 2.0])


def test_conducting_graph_no_edges() -> None:
    graph = activation_graph(EdgeBlock.empty(), torch.zeros(3).double(), SpreadConfig())
    assert (graph.num_nodes, graph.num_edges) == (3, 0)


@pytest.mark.parametrize(
    ("name", "length"), [("speaker", 39), ("term_offsets", 40), ("token_offsets", 42)]
)
def test_index_tensors_refuses_columns_that_do_not_fit(
    name: str, length: int, random_columns: Callable[..., IndexInput]
) -> None:
    data = random_columns(40)
    with pytest.raises(InputError, match=f"{name}: expected .* got .*{length}.; give one entry"):
        index_tensors(replace(data, **{name: torch.zeros(length).long()}), Config())


def test_memory_tensors_has_what_the_columns_say(
    random_columns: Callable[..., IndexInput],
) -> None:
    data = random_columns(40)
    memory = memory_tensors(index_tensors(data, Config()))
    assert torch.equal(memory.embeddings, data.embeddings)
    assert memory.num_atoms == 40 and memory.graph.num_nodes == data.num_nodes
    assert memory.modes is None and memory.hops is None and memory.direction is None
    assert memory.bm25.num_docs == 40
