"""MemoryIndex of vectors and a graph alone, against the score as a dense formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.graph import Graph
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.query import QueryBatch

ATOMS, NODES, DIM, ANCHORS = 20, 26, 8, 4


def settings(preset: str = "default", **overrides: Any) -> Config:
    """Cosine and activation, in raw units."""
    weights = {"semantic": 0.7, "activation": 0.4}
    plain = {"rank.scale": "raw", "anchors.k": ANCHORS}
    config = load_config(preset, {**plain, **overrides})
    return replace(config, rank=replace(config.rank, weights=weights, cold_weights={}))


def unit(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=generator), dim=-1)


def drawn(generator: torch.Generator) -> Graph:
    ends = torch.randint(0, NODES, (2, 4 * NODES), generator=generator)
    kinds = torch.randint(0, 4, (4 * NODES,), generator=generator)
    weight = 0.1 + torch.rand(4 * NODES, generator=generator)
    return Graph.from_edges(ends, weight, type=kinds, num_nodes=NODES)


def dense_scores(
    embeddings: Tensor,  # [A, d]
    question: Tensor,  # [B, d]
    graph: Graph,
    config: Config,
    seeds: Tensor | None = None,  # [B, S]
) -> Tensor:  # [B, A]
    """Return the settings as matrices over all pairs of nodes."""
    w, s, nodes = config.rank.weights, config.spread, graph.num_nodes
    cosine = question @ embeddings.T
    base = w["semantic"] * cosine
    best = base.topk(config.anchors.k, dim=1)
    start = torch.exp((best.values - best.values[:, :1]) / config.anchors.temperature)
    if config.anchors.source == "semantic":
        start = cosine.gather(1, best.indices).clamp(min=0)
    a = torch.zeros(len(question), nodes, dtype=cosine.dtype).scatter(1, best.indices, start)
    for row, own in enumerate([] if seeds is None else seeds.tolist()):
        for node in own:
            if node >= 0:
                a[row, node] = max(float(a[row, node]), float(start[row].max()))
    degree, atoms = torch.bincount(graph.source.long(), minlength=nodes), len(embeddings)
    degree = degree.clamp(min=1).to(cosine.dtype)
    if s.min_fan == "mean":
        leaving = torch.bincount(graph.source.long(), minlength=nodes)[:atoms].float()
        degree[:atoms] = degree[:atoms].clamp(min=float(leaving.mean()))
    fan = {"degree": degree, "sqrt": degree.sqrt(), "none": torch.ones_like(degree)}[s.fan]
    into = torch.zeros(nodes, nodes, dtype=cosine.dtype)  # [target, source]
    for source, target, weight in zip(
        graph.source.tolist(), graph.target.tolist(), graph.weight, strict=True
    ):
        known = into[target, source].clone()
        into[target, source] = torch.maximum(known, weight) if s.reduce == "max" else known + weight

    def inhibited(u: Tensor) -> Tensor:
        if not s.inhibition:
            return u
        parts = []
        for own in u.split([atoms, nodes - atoms], 1) if s.competitors == "kind" else [u]:
            top = own.topk(min(7, own.shape[1]), dim=1).values
            above = (top[:, None, :] - own[:, :, None]).clamp(min=0).sum(2)
            parts.append((own - s.inhibition * above).clamp(min=0))
        return torch.cat(parts, 1)

    def sigmoid(u: Tensor | float) -> Tensor:
        return torch.sigmoid(torch.as_tensor(s.gain * (u - s.threshold), dtype=cosine.dtype))

    touched = a != 0
    for _ in range(s.rounds):
        sent = s.spread * into * (a / fan)[:, None]  # [B, target, source]
        kept = s.retention * a
        u = torch.maximum(kept, sent.amax(2)) if s.reduce == "max" else kept + sent.sum(2)
        touched = touched | (u != 0)
        u = u if s.firing == "once" else inhibited(u)
        a = torch.where(touched, sigmoid(u) if s.firing == "sigmoid" else u, 0.0)
    if s.firing == "once":
        a = sigmoid(inhibited(a)) - sigmoid(0.0)
    return base + w["activation"] * a[:, : len(embeddings)]


@pytest.mark.parametrize(
    "config",
    [
        settings(),
        settings("synapse", **{"anchors.source": "semantic"}),
        settings("synapse-published", **{"anchors.source": "semantic"}),
    ],
    ids=["default", "synapse", "synapse-published"],
)
def test_from_tensors_ranks_by_the_dense_formula(
    config: Config, generator: torch.Generator
) -> None:
    embeddings, question, graph = (
        unit(generator, ATOMS, DIM),
        unit(generator, 3, DIM),
        drawn(generator),
    )
    index = MemoryIndex.from_tensors(embeddings, graph, config)
    expected = dense_scores(embeddings, question, graph, config)
    found = index(QueryBatch(question), k=ATOMS)
    torch.testing.assert_close(found.scores, expected.gather(1, found.rows))
    torch.testing.assert_close(found.scores, expected.sort(1, descending=True).values)
    assert torch.equal(index.graph.edge_index, graph.edge_index)
    assert torch.equal(index.graph.weight, graph.weight)
    seeds = torch.tensor([[NODES - 1, 3], [int(found.anchors[1, 1]), -1], [-1, -1]])
    expected = dense_scores(embeddings, question, graph, config, seeds)
    seeded = index(QueryBatch(question, seeds=seeds), k=ATOMS)
    torch.testing.assert_close(seeded.scores, expected.gather(1, seeded.rows))
    assert not torch.equal(seeded.scores[0], found.scores[0])
    assert torch.equal(seeded.scores[2], found.scores[2])
    again = MemoryIndex.from_state_dict(index.state_dict(), config)
    assert torch.equal(again(QueryBatch(question), k=9).rows, found.rows[:, :9])


@pytest.mark.parametrize("preset", ["default", "synapse", "spectral", "contextos", "sgrm"])
@pytest.mark.parametrize(("atoms", "nodes"), [(0, 0), (0, 2), (1, 1), (ATOMS, NODES)])
def test_from_tensors_by_every_preset(
    preset: str, atoms: int, nodes: int, generator: torch.Generator
) -> None:
    embeddings = unit(generator, atoms, DIM)
    graph = drawn(generator) if atoms > 1 else None
    if graph is None and nodes:
        graph = Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64), num_nodes=nodes)
    index = MemoryIndex.from_tensors(embeddings, graph, load_config(preset))
    found = index(QueryBatch(unit(generator, 3, DIM)), k=4, paths=True)
    assert found.rows.shape == (3, min(4, atoms))
    assert found.confidence.isfinite().all()
    assert index.num_nodes == max(atoms, nodes)


def test_from_tensors_keeps_times_and_takes_pagerank_from_the_graph(
    generator: torch.Generator,
) -> None:
    time = torch.tensor([1.7e9, torch.nan, 5.0], dtype=torch.float64)
    graph = Graph.from_edges(torch.tensor([[0, 1, 2, 3], [2, 2, 3, 2]]))
    index = MemoryIndex.from_tensors(
        *(unit(generator, 3, DIM), graph),
        load_config("synapse", {"spread.min_nodes": 0}),
        time=time,
    )
    assert torch.equal(index.time.nan_to_num(), time.nan_to_num())
    assert index.pagerank is not None
    assert index.pagerank.argmax() == 2


def test_from_tensors_refuses_what_does_not_fit(generator: torch.Generator) -> None:
    rows = unit(generator, 3, DIM)
    edge = torch.tensor([[0], [1]])
    with pytest.raises(InputError, match="embeddings: expected rows of length 1"):
        MemoryIndex.from_tensors(2 * rows)
    for none in (None, rows.tolist()):
        with pytest.raises(InputError, match="embeddings: expected floating point"):
            MemoryIndex.from_tensors(none)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="config: expected a Config"):
        MemoryIndex.from_tensors(rows, config={"name": "default"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="graph: expected at least 3 nodes"):
        MemoryIndex.from_tensors(rows, Graph.from_edges(edge))
    with pytest.raises(InputError, match="graph: expected types up to 13, got 200"):
        MemoryIndex.from_tensors(
            rows, Graph.from_edges(edge, type=torch.tensor([200]), num_nodes=3)
        )
    with pytest.raises(InputError, match="time: expected"):
        MemoryIndex.from_tensors(rows, time=torch.zeros(2, dtype=torch.float64))
