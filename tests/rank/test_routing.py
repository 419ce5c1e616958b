"""Routing: the two signals against dense pseudo-inverses, and weights judged on held-out data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config, load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.routing import (
    bridge_bonus,
    published_resistance,
    resistance_directions,
    routing_tensors,
    sign_changes,
)
from graphmem_torch.rank.signals import published_resistances
from tests.memories import opened, planted

ATOMS, COUNT = 40, 5
WEIGHTS = {"semantic": 0.5, "proximity": 0.3, "bridge": 0.2}


def config_with(weights: dict[str, float], **overrides: Any) -> Config:
    config = load_config("default", {"link.concepts": "none", **overrides})
    return replace(config, rank=replace(config.rank, weights=weights))


def adjacency(graph: Graph) -> np.ndarray:
    w = np.zeros((graph.num_nodes, graph.num_nodes))
    for s, t, v in zip(
        graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True
    ):
        w[s, t] = w[t, s] = max(w[s, t], abs(v))
    np.fill_diagonal(w, 0)
    return w


def kernel(graph: Graph, atoms: int) -> np.ndarray:
    """Cosines of the points that remain of the resistances when the local part is taken away."""
    w = adjacency(graph)
    d = w.sum(1)
    inverse = np.linalg.pinv(np.diag(d) - w, hermitian=True)
    own = np.diag(inverse)
    near = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    total = own[:, None] + own[None] - 2 * inverse
    far = total - near[:, None] - near[None] + 2 * w * np.outer(near, near)
    far = far[:atoms, :atoms]
    np.fill_diagonal(far, 0)
    centred = np.eye(atoms) - 1 / atoms
    gram = -0.5 * centred @ far @ centred
    size = np.sqrt(np.diag(gram))
    return gram / np.outer(size, size)


def random_graph(generator: torch.Generator, nodes: int = 30, edges: int = 90) -> Graph:
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    ring = torch.stack([torch.arange(nodes), torch.arange(1, nodes + 1) % nodes])
    weight = torch.rand(edges + nodes, generator=generator) + 0.1
    weight[::7] *= -1
    return Graph.from_edges(torch.cat([ends, ring], dim=1), weight, num_nodes=nodes)


def test_resistance_directions_are_the_cosines_of_the_far_part(generator: torch.Generator) -> None:
    graph = random_graph(generator)
    direction, component = resistance_directions(graph, torch.arange(24), columns=8192)
    assert direction.shape == (24, 8192) and component.tolist() == [0] * 24
    got = (direction @ direction.T).numpy()
    np.testing.assert_allclose(got, kernel(graph, 24), atol=0.06)


def printed_resistance(graph: Graph) -> np.ndarray:
    """Sum over k >= 2 of (phi_k(i) - phi_k(j))^2 / mu_k of the normalised Laplacian, by numpy."""
    w = adjacency(graph)
    d = w.sum(1)
    root = np.divide(1, np.sqrt(d), out=np.zeros_like(d), where=d > 0)
    values, vectors = np.linalg.eigh(np.diag((d > 0).astype(float)) - root[:, None] * w * root)
    kept = values > 1e-9
    scaled = vectors[:, kept] / np.sqrt(values[kept])
    found = ((scaled[:, None] - scaled[None]) ** 2).sum(2)
    label = np.zeros(len(w), dtype=int)
    for place, part in enumerate(networkx.connected_components(networkx.from_numpy_array(w))):
        label[list(part)] = place
    return np.where(label[:, None] == label[None], found, np.inf)


def test_resistances_as_printed(generator: torch.Generator) -> None:
    """Sums over all eigenpairs, of two components and a node without edges."""
    one, other = random_graph(generator, 14, 20), random_graph(generator, 9, 12)
    ends = torch.cat([one.edge_index, other.edge_index + 14], dim=1)
    graph = Graph.from_edges(ends, torch.cat([one.weight, other.weight]), num_nodes=24)
    atoms = torch.nn.functional.normalize(torch.randn(24, 8, generator=generator), dim=1)
    index = MemoryIndex.from_tensors(atoms, graph, load_config("spectral-published"))
    parts = published_resistance(graph, torch.arange(24), columns=8192)
    memory = replace(index.tensors, **parts)
    anchors = torch.tensor([[0, 5, -1], [20, 23, 3]])
    expected = printed_resistance(graph)
    for rows in (None, torch.tensor([[0, 5, 21, 23], [-1, 3, 4, 20]])):
        found = published_resistances(memory, anchors, rows).numpy()
        for b in range(2):
            for k, anchor in enumerate(anchors[b].tolist()):
                where = np.arange(24) if rows is None else rows[b].clamp(min=0).numpy()
                wanted = expected[anchor, where] if anchor >= 0 else np.full(len(where), np.inf)
                np.testing.assert_allclose(found[b, k], wanted, atol=0.12)


def test_sign_changes_are_the_ends_of_what_the_fiedler_vector_cuts() -> None:
    """Two cliques, one joint; a pair apart, which no sign of it tells."""
    graph = networkx.disjoint_union_all([networkx.complete_graph(6)] * 2)
    graph.add_edge(5, 6)
    graph.add_edge(12, 13)
    graph.add_node(14)
    found = sign_changes(Graph.from_networkx(graph.to_directed()))
    assert found.nonzero().flatten().tolist() == [5, 6]
    assert not sign_changes(
        Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    ).any()


def test_printed_route_is_the_weighted_sum(generator: torch.Generator) -> None:
    """0.5 cosine + 0.3 / R to the nearest anchor + 0.2 for a sign change."""
    graph = random_graph(generator, 20, 40)
    atoms = torch.nn.functional.normalize(torch.randn(20, 8, generator=generator), dim=1)
    config = load_config("spectral-published", {"modes.use": "kept", "anchors.k": 3})
    index = MemoryIndex.from_tensors(atoms, graph, config)
    found = index(QueryBatch(atoms[:4]), k=20)
    changes, expected = sign_changes(graph), printed_resistance(graph)
    for b in range(4):
        anchors = [a for a in found.anchors[b].tolist() if a >= 0]
        for a, shares in zip(found.rows[b].tolist(), found.shares[b].tolist(), strict=True):
            near = min(1.0, 1 / max(1e-9, min(expected[anchor, a] for anchor in anchors)))
            own = dict(zip(index.signal_names, shares, strict=True))
            assert own["semantic"] == pytest.approx(0.5 * float(atoms[b] @ atoms[a]), abs=1e-5)
            assert own["sign_change"] == pytest.approx(0.2 * float(changes[a]))
            assert own["inverse_resistance"] == pytest.approx(0.3 * near, abs=0.3 * 0.15)


def test_routing_in_another_order_of_rows_changes_only_what_is_drawn(
    generator: torch.Generator,
) -> None:
    """Cosines agree within the errors of two sketches, and bonuses where communities are plain."""
    graph = random_graph(generator)
    cliques = networkx.disjoint_union_all([networkx.complete_graph(6)] * 3)
    cliques.add_edges_from([(5, 6), (11, 12), (10, 13)])
    for one in (graph, Graph.from_networkx(cliques.to_directed())):
        row = torch.randperm(one.num_nodes, generator=generator)  # old row -> new row
        ends = torch.stack([row[one.source.long()], row[one.target.long()]])
        other = Graph.from_edges(ends, one.weight, num_nodes=one.num_nodes)
        if one is graph:
            first, second = (
                resistance_directions(g, torch.arange(30), columns=8192)[0] for g in (one, other)
            )
            torch.testing.assert_close(
                (second @ second.T)[row][:, row], first @ first.T, atol=0.09, rtol=0
            )
        else:
            assert torch.equal(bridge_bonus(other)[row], bridge_bonus(one))


def test_resistance_directions_of_odd_graphs() -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    for nodes in (0, 1, 3):
        graph = Graph.from_edges(none, num_nodes=nodes)
        direction, component = resistance_directions(graph, torch.arange(nodes))
        assert not direction.any() and component.tolist() == list(range(nodes))
        assert bridge_bonus(graph).tolist() == [0.0] * nodes
    pair = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=3)
    direction, component = resistance_directions(pair, torch.arange(3))
    assert torch.isfinite(direction).all() and component.tolist() == [0, 0, 1]
    assert routing_tensors(pair, torch.arange(3), ["semantic"]) == {}
    assert routing_tensors(pair, torch.arange(3), ["proximity"]).keys() == {
        "direction",
        "component",
    }


def test_bridge_bonus_is_for_ends_of_edges_between_communities() -> None:
    """Three cliques in a row: the ends of the two joints have it, nobody else."""
    graph = networkx.disjoint_union_all([networkx.complete_graph(6)] * 3)
    graph.add_edge(5, 6)
    graph.add_edge(11, 12, weight=1.0)
    graph.add_edge(10, 13, weight=1.0)
    bonus = bridge_bonus(Graph.from_networkx(graph.to_directed()))
    assert bonus.nonzero().squeeze(1).tolist() == [5, 6, 10, 11, 12, 13]
    assert bonus[5] == bonus[6] == 1.0, "without it the graph falls apart"
    assert bool((bonus[[10, 11, 12, 13]] < 1).all())
    whole = bridge_bonus(Graph.from_networkx(networkx.complete_graph(8).to_directed()))
    assert not whole.any()


def index_of(
    columns: Callable[..., IndexInput], weights: dict[str, float], **overrides: Any
) -> MemoryIndex:
    return MemoryIndex.build(columns(ATOMS), config_with(weights, **overrides))


def test_proximity_is_the_nearest_anchor_by_relevance(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    index = index_of(random_columns, WEIGHTS, **{"anchors.k": 3})
    found = index.candidates(random_questions(COUNT))
    anchors = found.reached.anchors
    assert anchors is not None
    got, bridge = found.signal("proximity"), found.signal("bridge")
    base = 0.5 * found.signal("semantic")
    cosine = index.direction @ index.direction.T
    for b in range(COUNT):
        order = base[b].sort(descending=True)
        assert anchors[b].tolist() == order.indices[:3].tolist()
        deviation = float(base[b].std(correction=0))
        for a in range(ATOMS):
            near = [
                max(0.0, float(cosine[i, a])) * np.exp((v - float(order.values[0])) / deviation)
                for i, v in zip(order.indices[:3].tolist(), order.values[:3].tolist(), strict=True)
            ]
            assert float(got[b, a]) == pytest.approx(max(near), abs=1e-4)
        assert got[b, anchors[b, 0]] == pytest.approx(1.0, abs=1e-5)
    assert float(got.min()) >= 0 and float(got.max()) <= 1
    assert torch.equal(bridge, index.bridge_bonus[None].expand(COUNT, -1))
    padded = torch.cat([torch.full((COUNT, 3), -1), torch.arange(ATOMS).expand(COUNT, -1)], dim=1)
    reached = found.reached
    narrow = Candidates(found.memory, found.query, found.config, padded, reached=reached)
    torch.testing.assert_close(narrow.signal("proximity")[:, 3:], got)
    assert not narrow.signal("proximity")[:, :3].any()
    torch.testing.assert_close(narrow.signal("bridge")[:, 3:], bridge)


def test_proximity_of_candidates_and_masks(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    """Excluded atoms are no anchors; few candidates give the values that all of them give."""
    allowed = torch.arange(ATOMS)[None] % 3 > 0
    query = replace(random_questions(COUNT), allowed=allowed)
    dense = index_of(random_columns, WEIGHTS)
    large = index_of(random_columns, WEIGHTS, **{"rank.exhaustive_up_to": 1, "rank.candidates": 60})
    every = dense.candidates(query, k=5)
    anchors = every.reached.anchors
    assert anchors is not None
    assert bool(allowed[0][anchors[anchors >= 0]].all())
    some = large.candidates(query, k=5)
    assert some.rows is not None
    rows = some.rows.clamp(min=0)
    known = some.rows >= 0
    for name in ("proximity", "bridge"):
        values = every.signal(name).gather(1, rows)
        torch.testing.assert_close(some.signal(name)[known], values[known])
    found = dense(QueryBatch(query.embedding, allowed=allowed), k=30)
    assert bool(allowed[0][found.rows[found.rows >= 0]].all())


def test_proximity_to_another_component(
    random_columns: Callable[..., IndexInput],
) -> None:
    """Two rings without an edge between them: nothing of the one is near an anchor in the other."""
    ring = torch.arange(20)
    source = torch.cat([ring, ring + 20])
    target = torch.cat([(ring + 1) % 20, (ring + 1) % 20 + 20])
    edges = EdgeBlock.of(source, target, EdgeType.SIMILARITY, 1.0)
    data = random_columns(ATOMS, 0, edges=edges, num_nodes=ATOMS)
    index = MemoryIndex.build(data, config_with(WEIGHTS, **{"anchors.k": 1}))
    found = index.candidates(QueryBatch(data.embeddings[:30:10]))
    assert found.reached.anchors is not None
    assert found.reached.anchors.tolist() == [[0], [10], [20]]
    near = found.signal("proximity") > 0
    side = torch.arange(ATOMS) >= 20
    assert not near[0][side].any() and not near[1][side].any() and not near[2][~side].any()
    assert bool(near[0][[1, 19]].all() and near[2][[21, 39]].all())


def test_routing_tensors_only_for_who_asks(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    plain = index_of(random_columns, {"semantic": 1.0, "activation": 1.0})
    assert plain.direction is None and plain.bridge_bonus is None
    state = {k: v for k, v in plain.state_dict().items() if k != "weights"}
    assert not state.keys() & {"direction", "component", "bridge_bonus"}
    late = MemoryIndex.from_state_dict(state, config_with(WEIGHTS))
    early = index_of(random_columns, WEIGHTS)
    assert torch.equal(late.direction, early.direction)
    assert torch.equal(late.bridge_bonus, early.bridge_bonus)
    assert {"direction", "component", "bridge_bonus"} <= early.state_dict().keys()
    asked = random_questions(COUNT)
    full = early(asked, k=10)
    half = MemoryIndex.from_state_dict(early.half().state_dict(), early.config)(asked, k=10)
    assert (full.rows == half.rows).float().mean() > 0.8


def test_routing_tensors_are_in_the_snapshot(tmp_path: Path) -> None:
    atoms, questions, _ = planted()
    with opened(tmp_path / "m", config=config_with(WEIGHTS)) as memory:
        memory.add(atoms)
        before = memory.index.direction.cpu()
        first = [hit.id for hit in memory.retrieve(questions[0]).hits]
    with opened(tmp_path / "m", config=config_with(WEIGHTS)) as memory:
        kept = memory.store.load_snapshot(verify=True)
        assert kept is not None and torch.equal(kept[0]["direction"], before)
        assert torch.equal(memory.index.direction.cpu(), before)
        assert [hit.id for hit in memory.retrieve(questions[0]).hits] == first


def test_routing_weights_are_fitted_and_judged_on_other_questions() -> None:
    """The answer is the turn after the one that shares the words: the graph finds it."""
    atoms, questions, evidence = planted()
    start = {"semantic": 0.5, "proximity": 0.0, "bridge": 0.0, "length": 5.0}
    links = {"link.similarity_k": 0, "anchors.k": 1}
    with opened(config=config_with(start, **links)) as memory:
        memory.add(atoms)
        asked = [*questions, questions[0]]
        report = memory.learning.fit(
            asked, [*evidence, evidence[0]], validation_fraction=0.3, seed=3
        )
        assert report.keys() == start.keys() and memory.config.rank.weights == report
        assert report["proximity"] > 0
        held = report.held_out
        assert held is not None and held.questions in (18, 19)
        assert held.after > held.before
        mean, low, high = held.difference
        assert mean == pytest.approx(held.after - held.before) and low <= mean <= high
        again = memory.learning.fit(questions, evidence)
        assert again.held_out is None and again.keys() == start.keys()
        for share, message in ((1.0, "share"), (-0.1, "share"), (0.001, "hold some")):
            with pytest.raises(InputError, match=message):
                memory.learning.fit(questions, evidence, validation_fraction=share)
        with pytest.raises(InputError, match="2 questions and 1 lists"):
            memory.learning.fit(questions[:2], evidence[:1], validation_fraction=0.5)
        assert memory.config.rank.weights == again, "what failed changed nothing"
