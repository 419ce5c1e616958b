"""pagerank against networkx, igraph and the linear system it solves; bounds and certificates."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import Solution, SparseRows, pagerank, personalized_pagerank
from graphmem_torch.ops.pagerank import LargestValues, RunningPageRank, pushes
from graphmem_torch.ops.power_iteration import power_iteration, power_iteration_reference

METHODS = pytest.mark.parametrize("method", ["power", "push"])


def _networkx(graph: Graph) -> nx.DiGraph:
    drawn = nx.DiGraph()
    drawn.add_nodes_from(range(graph.num_nodes))
    for j, i, w in zip(
        graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True
    ):
        known = drawn.get_edge_data(j, i, {"weight": 0.0})["weight"]
        drawn.add_edge(j, i, weight=known + abs(w))
    return drawn


def _exact(graph: Graph, seeds: torch.Tensor, damping: float = 0.85) -> np.ndarray:
    """The linear system, solved densely."""
    nodes = graph.num_nodes
    walk = np.zeros((nodes, nodes))
    source, target = graph.source.numpy(), graph.target.numpy()
    np.add.at(walk, (target, source), graph.weight.abs().numpy().astype(np.float64))
    out = walk.sum(0)
    rows = []
    for row in seeds.numpy().astype(np.float64):
        start = row / max(row.sum(), 1e-300)
        moves = np.where(out > 0, walk / np.where(out > 0, out, 1), start[:, None])
        rows.append(np.linalg.solve(np.eye(nodes) - damping * moves, (1 - damping) * start))
    return np.array(rows)


def _drawn(nodes: int, edges: int, seed: int) -> tuple[Graph, torch.Tensor]:
    """A graph and three questions with few seeds, in float64."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    graph = Graph.from_edges(index, torch.rand(edges, generator=generator), num_nodes=nodes)
    seeds = torch.rand(3, nodes, generator=generator, dtype=torch.float64)
    seeds[torch.rand(3, nodes, generator=generator) < 0.7] = 0.0
    seeds[:, 0] += 0.1
    return graph, seeds


@pytest.mark.parametrize("damping", [0.5, 0.85, 0.99])
@pytest.mark.parametrize("size", [(1, 0), (9, 0), (30, 25), (40, 200)])
def test_matches_networkx(random_graph, size, damping):
    graph = random_graph(*size, signed=True)
    found = pagerank(graph, damping=damping, tol=1e-6, max_iter=3000)
    expected = nx.pagerank(_networkx(graph), alpha=damping, tol=1e-12, max_iter=5000)
    assert found.converged
    got, expected = found.values.numpy(), [expected[i] for i in range(size[0])]
    np.testing.assert_allclose(got, expected, atol=2e-6 / (1 - damping))


@METHODS
@pytest.mark.parametrize("questions", [1, 3, 16])
def test_personalized_matches_networkx(random_graph, questions, method):
    graph = random_graph(30, 60)
    generator = torch.Generator().manual_seed(2)
    seeds = torch.rand(questions, 30, generator=generator)
    seeds[seeds < 0.8] = 0.0
    seeds[:, 0] = 0.1
    found = personalized_pagerank(graph, seeds, tol=1e-7, max_iter=500, method=method)
    assert found.converged
    for row, got in zip(seeds.tolist(), found.values.numpy(), strict=True):
        weights = {i: x for i, x in enumerate(row) if x}
        expected = nx.pagerank(_networkx(graph), personalization=weights, tol=1e-12, max_iter=5000)
        np.testing.assert_allclose(got, [expected[i] for i in range(30)], atol=2e-6)


def _solved(graph: Graph, weight: torch.Tensor, seeds: torch.Tensor, damping: float):
    """The linear system as matrices, for autograd."""
    walk = weight.new_zeros(graph.num_nodes, graph.num_nodes)
    walk = walk.index_put((graph.target, graph.source), weight.abs(), accumulate=True)
    out = walk.sum(0)
    total = seeds.sum(1, keepdim=True)
    start = seeds / torch.where(total > 0, total, 1.0)
    moves = torch.where(out > 0, walk / torch.where(out > 0, out, 1.0), start[:, :, None])
    eye = torch.eye(graph.num_nodes, dtype=weight.dtype)
    return torch.linalg.solve(eye - damping * moves, (1 - damping) * start)


@pytest.mark.parametrize(("edges", "damping"), [(0, 0.85), (12, 0.6), (60, 0.85)])
def test_gradient_is_that_of_the_linear_system(edges, damping):
    """Through nodes without edges, edges of weight 0 and below, and a row without seeds."""
    graph, seeds = _drawn(20, edges, 3)
    generator = torch.Generator().manual_seed(4)
    weight = torch.randn(graph.num_edges, generator=generator, dtype=torch.float64)
    weight[::7] = 0.0
    seeds[1] = 0.0
    toward = torch.randn(seeds.shape, generator=generator, dtype=torch.float64)
    leaves = weight.requires_grad_(), seeds.requires_grad_()
    found = personalized_pagerank(
        graph.with_weight(weight), seeds, damping=damping, tol=1e-13, max_iter=2000
    )
    assert not found.residual.requires_grad
    expected = _solved(graph, weight, seeds, damping)
    torch.testing.assert_close(found.values, expected)
    ours = torch.autograd.grad((found.values * toward).sum(), leaves)
    theirs = torch.autograd.grad((expected * toward).sum(), leaves)
    torch.testing.assert_close(ours[0], theirs[0])
    there = torch.tensor([True, False, True])  # where all seeds are 0 it jumps
    torch.testing.assert_close(ours[1][there], theirs[1][there])
    assert not ours[1][1].any()


def test_gradient_of_the_largest_and_of_a_push():
    graph, seeds = _drawn(30, 90, 5)
    weight = graph.weight.double().requires_grad_()
    learned = graph.with_weight(weight)
    rows = SparseRows.from_dense(seeds.requires_grad_())
    top = personalized_pagerank(learned, rows, tol=1e-13, max_iter=2000, k=4)
    assert top.indices is not None
    expected = _solved(graph, weight, seeds, 0.85).gather(1, top.indices)
    torch.testing.assert_close(top.values, expected)
    ours, own = torch.autograd.grad(top.values.square().sum(), (weight, seeds))
    theirs, every = torch.autograd.grad(expected.square().sum(), (weight, seeds))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(own, every.where(seeds > 0, 0.0))  # rows have no entry elsewhere
    with pytest.raises(InputError, match="'power' where a gradient is asked for"):
        personalized_pagerank(learned, seeds.detach(), method="push", k=4)
    with torch.no_grad():
        assert personalized_pagerank(learned, seeds, method="push", k=4).converged


@METHODS
def test_matches_igraph(random_graph, method):
    igraph = pytest.importorskip("igraph")
    graph = random_graph(60, 240, hub=True)
    drawn = igraph.Graph(60, edges=graph.edge_index.T.numpy(), directed=True)
    reset = torch.zeros(1, 60, dtype=torch.float64)
    reset[0, [3, 7]] = torch.tensor([1.0, 2.0]).double()
    expected = drawn.personalized_pagerank(reset=reset[0].tolist(), weights=graph.weight.tolist())
    found = personalized_pagerank(graph, reset, tol=1e-9, max_iter=500, method=method)
    # igraph restarts a walk that cannot go on at the seeds as well.
    np.testing.assert_allclose(found.values[0].numpy(), expected, atol=1e-6)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(1, 25), st.integers(0, 80), st.integers(0, 10**6))
def test_pagerank_is_a_distribution_and_solves_its_equation(nodes, edges, seed):
    graph, seeds = _drawn(nodes, edges, seed)
    expected = _exact(graph, seeds)
    for method in ("power", "push"):
        found = personalized_pagerank(graph, seeds, tol=1e-8, max_iter=500, method=method)
        assert found.converged
        assert (found.values >= 0).all()
        np.testing.assert_allclose(found.values.numpy(), expected, atol=1e-7)


@given(st.integers(2, 25), st.integers(0, 80), st.integers(0, 10**6), st.integers(1, 12))
def test_pagerank_residual_bounds_the_error(nodes, edges, seed, rounds):
    graph, seeds = _drawn(nodes, edges, seed)
    expected = _exact(graph, seeds)
    ways = [
        {"method": "power", "tol": 0.0, "max_iter": rounds},
        {"method": "push", "epsilon": 0.3**rounds},
    ]
    for way in ways:
        found = personalized_pagerank(graph, seeds, **way)
        error = np.abs(found.values.numpy() - expected).sum(1)
        assert (error <= found.residual.numpy() / 0.15 + 1e-12).all()


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(2, 25), st.integers(0, 80), st.integers(0, 10**6), st.integers(1, 12))
def test_pagerank_certifies_the_true_top(nodes, edges, seed, rounds):
    graph, seeds = _drawn(nodes, edges, seed)
    expected = _exact(graph, seeds)
    k = 1 + seed % min(5, nodes)
    background = pagerank(graph).values
    ways = [
        {"method": "power", "tol": 0.0, "max_iter": rounds},
        {"method": "push", "epsilon": 0.3**rounds},
        {"method": "push", "epsilon": 0.3**rounds, "background": background},
    ]
    for way in ways:
        found = personalized_pagerank(graph, seeds, k=k, **way)
        for row, kept, certain in zip(expected, found.indices, found.certified, strict=True):
            inside = np.zeros(nodes, dtype=bool)
            inside[kept[kept >= 0].numpy()] = True
            if certain and not inside.all():
                assert row[~inside].max() <= row[inside].min() + 1e-12


@METHODS
def test_only_the_largest_values_have_indices(method):
    graph, seeds = _drawn(9, 30, 3)
    whole = personalized_pagerank(graph, seeds, method=method)
    few = personalized_pagerank(graph, seeds, method=method, k=3)
    assert type(whole) is Solution and type(few) is LargestValues
    names = [{field.name for field in fields(kind)} for kind in (LargestValues, Solution)]
    assert names[0] - names[1] == {"indices", "certified"}
    # A push of which k values are kept stops earlier.
    expected = whole.values.gather(1, few.indices)
    torch.testing.assert_close(few.values, expected, atol=0.01, rtol=0.0)


@METHODS
def test_rounding_of_long_sums_certifies_nothing(method):
    """100,000 nodes send a to one hub, half of them 2.002 a to another: that one is larger."""
    count = 100_000
    node, half = torch.arange(count), torch.arange(count // 2)
    hubs = torch.full((count,), count), torch.full((count // 2,), count + 1)
    edges = torch.stack([torch.cat([node, half, node]), torch.cat([*hubs, node + count + 2])])
    second = torch.where(node < count // 2, 0.5005, 0.0)
    weight = torch.cat([torch.full((count,), 0.25), second[half], 0.75 - second])
    graph = Graph.from_edges(edges, weight, num_nodes=2 * count + 2)
    seeds = SparseRows.of(node[None], torch.ones(1, count), graph.num_nodes)
    found = personalized_pagerank(graph, seeds, k=1, tol=1e-8, method=method, epsilon=1e-12)
    assert found.indices.tolist() == [[count + 1]] or not found.certified.item()
    if method == "push":
        assert found.certified.item()


@METHODS
def test_pagerank_largest_are_those_of_all(random_graph, method):
    graph = random_graph(40, 150)
    seeds = torch.rand(4, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole = personalized_pagerank(graph, seeds, tol=1e-12, max_iter=500)
    found = personalized_pagerank(
        graph, seeds, tol=1e-12, max_iter=500, k=7, method=method, epsilon=1e-12
    )
    best = whole.values.topk(7)
    torch.testing.assert_close(found.values, best.values, atol=1e-9, rtol=0)
    assert found.indices.tolist() == best.indices.tolist()
    assert found.certified.all()


@METHODS
def test_pagerank_all_nodes_can_be_asked_for(random_graph, method):
    graph = random_graph(9, 60)
    found = personalized_pagerank(graph, torch.ones(2, 9), k=9, method=method, epsilon=1e-6)
    assert found.indices.sort(1).values.tolist() == [list(range(9))] * 2
    assert found.certified.all()


@METHODS
def test_fewer_nodes_than_asked_for_end_with_none(method):
    graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), num_nodes=9)
    seeds = torch.zeros(1, 9).index_fill_(1, torch.tensor([1]), 1.0)
    found = personalized_pagerank(graph, seeds, k=4, method=method, epsilon=1e-6)
    assert found.indices.tolist() == [[1, 2, -1, -1]]
    assert found.values[0, 2:].tolist() == [0.0, 0.0]
    assert found.values.sum() == pytest.approx(1.0, abs=1e-4)


@METHODS
def test_sparse_seeds_are_the_same_seeds(random_graph, method):
    graph = random_graph(30, 90)
    place = torch.tensor([[3, 9, -1], [-1, -1, -1], [29, 0, 5]])
    seeds = SparseRows.of(place, torch.rand(3, 3) + 0.1, 30)
    found = personalized_pagerank(graph, seeds, method=method)
    same = personalized_pagerank(graph, seeds.to_dense(), method=method)
    torch.testing.assert_close(found.values, same.values)
    assert found.values[1].tolist() == [0.0] * 30


@METHODS
def test_seeds_are_left_as_they_are(random_graph, method):
    seeds = torch.full((1, 30), 2.0)
    personalized_pagerank(random_graph(30, 90), seeds, method=method)
    assert (seeds == 2.0).all()


@METHODS
def test_nodes_without_edges_reach_the_tolerance_too(method):
    """Each holds less than the limit of an edge, all of them together all the mass."""
    graph = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=5000)
    found = personalized_pagerank(graph, torch.ones(1, 5000), tol=1e-3, method=method)
    assert found.converged
    assert found.residual.item() <= 1e-3
    assert found.values.sum() == pytest.approx(1.0, abs=1e-2)


@METHODS
def test_pagerank_size_of_the_seeds_does_not_matter(random_graph, method):
    graph, seeds = random_graph(9, 30), torch.zeros(1, 9)
    seeds[0, [2, 5]] = 1.0
    expected = personalized_pagerank(graph, seeds, method=method)
    for size in (1e-42, 1e30):
        found = personalized_pagerank(graph, seeds * size, method=method)
        torch.testing.assert_close(found.values, expected.values)


def test_pagerank_push_allocates_nothing_of_the_size_of_the_graph(random_graph, largest):
    small = random_graph(200, 900)
    large = Graph.from_edges(small.edge_index, small.weight, num_nodes=1_000_000)
    seeds = SparseRows.of(torch.arange(64)[:, None], torch.ones(64, 1), 1_000_000)
    with largest() as seen:
        personalized_pagerank(large, seeds, k=30)
    assert seen.elements < 600_000


@METHODS
def test_pagerank_without_nodes(random_graph, method):
    found = personalized_pagerank(random_graph(0, 0), torch.zeros(2, 0), method=method)
    assert found.values.shape == (2, 0)
    assert found.converged


@pytest.mark.parametrize("weight", [torch.nan, 3e38])
def test_weights_without_a_finite_sum_are_refused(weight):
    graph = Graph.from_edges(torch.tensor([[0, 0, 1], [1, 2, 0]]))
    with pytest.raises(InputError, match="finite"):
        pagerank(graph.with_weight(torch.full((3,), weight)))


def test_pagerank_without_questions(random_graph):
    graph = random_graph(9, 20)
    assert personalized_pagerank(graph, torch.zeros(0, 9)).values.shape == (0, 9)
    found = personalized_pagerank(graph, torch.zeros(0, 9), k=2, method="push")
    assert (found.indices.shape, found.certified.shape) == ((0, 2), (0,))


def test_auto_pushes_where_the_graph_is_large_and_seeds_are_few(random_graph):
    graph = random_graph(200, 900)
    few, many = torch.zeros(1, 200), torch.ones(1, 200)
    few[0, 5] = 1.0
    limits = {"large": 100, "dear": 300}
    assert pushes(graph, few, 0.85, 3, **limits)
    assert pushes(graph, SparseRows.from_dense(few), 0.85, 3, **limits)
    assert not pushes(graph, many, 0.85, 3, **limits)
    assert not pushes(graph, few, 0.85, 4, **limits)
    assert not pushes(graph, few, 1.0, 3, **limits)
    assert not pushes(graph, few, 0.85, 3)
    assert personalized_pagerank(graph, few, k=3).residual.item() <= 1e-6


def test_push_does_only_the_full_questions_again(random_graph):
    """One question of 65 needs a larger table; the values do not depend on its company."""
    hub = torch.stack([torch.zeros(2999, dtype=torch.int64), torch.arange(1, 3000)])
    graph = Graph.from_edges(
        torch.cat([hub, torch.stack([hub[1][:1500], hub[1][:1500] + 1])], dim=1), num_nodes=3000
    )
    seeds = SparseRows.of(torch.arange(65)[:, None], torch.ones(65, 1), 3000)
    found = personalized_pagerank(graph, seeds, k=5, method="push", epsilon=1e-5)
    assert found.converged
    for question in (0, 1, 64):
        one = SparseRows.of(torch.tensor([[question]]), torch.ones(1, 1), 3000)
        alone = personalized_pagerank(graph, one, k=5, method="push", epsilon=1e-5)
        torch.testing.assert_close(found.values[question], alone.values[0])
        torch.testing.assert_close(found.residual[question], alone.residual[0])
        assert bool(found.certified[question]) == bool(alone.certified[0])
    exact = personalized_pagerank(graph, seeds, method="power", tol=1e-9)
    torch.testing.assert_close(
        found.values, exact.values.gather(1, found.indices.clamp(min=0)), atol=1e-3, rtol=0
    )


def test_pagerank_background_finds_the_hubs():
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 3000, (2, 24_000), generator=generator)
    index[1, ::2] = (torch.rand(12_000, generator=generator) ** 4 * 300).long()
    graph = Graph.from_edges(index, num_nodes=3000)
    seeds = SparseRows.of(torch.arange(1000, 1010)[:, None], torch.ones(10, 1), 3000)
    exact = personalized_pagerank(graph, seeds, k=20, tol=1e-8, method="power")
    shared = []
    for background in (None, pagerank(graph).values):
        found = personalized_pagerank(
            graph, seeds, k=20, method="push", epsilon=3e-3, background=background
        )
        same = (found.indices[:, :, None] == exact.indices[:, None, :]).any(2)
        shared.append(same.float().mean().item())
        error = (found.values[:, 0] - exact.values[:, 0]).abs()
        assert (error <= found.residual / 0.15).all()
    assert shared[1] > max(0.9, shared[0] + 0.1), shared


def test_pagerank_question_without_seeds_gets_zeros(random_graph):
    seeds = torch.zeros(2, 9)
    seeds[1, 3] = 2.0
    found = personalized_pagerank(random_graph(9, 20), seeds)
    assert found.values[0].tolist() == [0.0] * 9
    assert found.values[1].sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("tol", [0.0, 1e-6])
def test_power_matches_its_reference(random_graph, shape, tol):
    """Measuring less often may add rounds, but never ends before the tolerance is met."""
    graph = random_graph(*shape[1:])
    seeds = torch.rand(shape[:2], generator=torch.Generator().manual_seed(1)).double()
    args = (graph.indptr, graph.source, graph.weight.double(), seeds, 0.85, tol, 30)
    values, residual, rounds = power_iteration(*args)
    expected, remaining, least = power_iteration_reference(*args)
    assert rounds <= 30
    assert tol == 0 or rounds >= least
    torch.testing.assert_close(values, expected, atol=1e-5 if tol else 1e-12, rtol=0)
    assert (residual <= remaining + 1e-12).all()


def test_opcheck(random_graph):
    graph = random_graph(9, 30)
    args = (graph.indptr, graph.source, graph.weight, torch.ones(2, 9), 0.85, 1e-6, 50)
    torch.library.opcheck(torch.ops.graphmem.pagerank.default, args)


@METHODS
def test_stopping_early_is_said(random_graph, caplog, method):
    seeds = torch.ones(2, 30)
    with caplog.at_level(logging.WARNING):
        found = personalized_pagerank(
            random_graph(30, 90), seeds, tol=1e-12, max_iter=2, method=method
        )
    assert (found.converged, found.iterations) == (False, 2)
    assert (found.residual > 1e-12).all()
    assert "raise max_iter or" in caplog.text


@METHODS
def test_edges_that_hardly_weigh_anything_lose_no_mass(method):
    # exp(-rho dt) over a year is subnormal in float32; its only edge still takes everything along.
    edges = torch.tensor([[0, 1, 2], [1, 2, 1]])
    graph = Graph.from_edges(edges, torch.tensor([1e-40, 1.0, 1e-45]), num_nodes=4)
    found = personalized_pagerank(graph, torch.ones(1, 4), method=method)
    assert found.converged
    drawn = nx.DiGraph(edges.T.tolist())
    drawn.add_node(3)
    equal = nx.pagerank(drawn, tol=1e-10, max_iter=1000)
    assert found.values[0].tolist() == pytest.approx([equal[i] for i in range(4)], abs=1e-5)


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_extreme_damping(random_graph, damping):
    graph = random_graph(9, 60)
    seeds = torch.rand(2, 9, generator=torch.Generator().manual_seed(0))
    found = personalized_pagerank(graph, seeds, damping=damping, k=3, max_iter=2000)
    assert found.values.isfinite().all()
    assert found.certified.tolist() == [damping == 0.0] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"damping": 1.5}, "damping: expected a number in"),
        ({"damping": 1.0, "method": "push"}, "damping: expected below 1 for push"),
        ({"tol": -1.0}, "tol: expected a number in"),
        ({"max_iter": 0}, "max_iter: expected an integer"),
        ({"k": 0}, "k: expected an integer of at least 1"),
        ({"k": 10}, "k: expected at most 9"),
        ({"method": "fast"}, "method: expected one of"),
        ({"epsilon": -0.1}, "epsilon: expected a number in"),
        ({"background": torch.ones(8)}, r"background: expected \[9\]"),
        ({"seeds": torch.full((1, 9), -1.0)}, "finite and not negative"),
        ({"seeds": torch.full((1, 9), torch.nan)}, "finite and not negative"),
        ({"seeds": torch.zeros(9)}, r"floating point \[B, 9\]"),
        ({"seeds": SparseRows.of(torch.tensor([[1]]), -torch.ones(1, 1), 9)}, "not negative"),
        ({"seeds": SparseRows.of(torch.tensor([[1]]), torch.ones(1, 1), 8)}, r"\[B, 9\]"),
    ],
)
def test_bad_input_is_refused_by_name(random_graph, change, message):
    with pytest.raises(InputError, match=message):
        personalized_pagerank(random_graph(9, 20), **{"seeds": torch.ones(1, 9), **change})


@pytest.mark.cuda
def test_cuda_matches_cpu(random_graph):
    graph = random_graph(3000, 20_000)
    there = pagerank(graph.to("cuda"))
    torch.testing.assert_close(there.values.cpu(), pagerank(graph).values)


@pytest.mark.cuda
def test_push_on_cuda_matches_cpu(random_graph):
    graph = random_graph(3000, 20_000, hub=True)
    seeds = torch.zeros(65, 3000)
    seeds[torch.arange(65), torch.arange(65) * 7] = 1.0
    exact = personalized_pagerank(graph, seeds, method="power", tol=1e-7).values
    found = personalized_pagerank(graph.to("cuda"), seeds.cuda(), k=10, method="push", epsilon=1e-7)
    assert found.indices is not None and float(found.residual.max()) < 0.1
    # In which order nodes are pushed differs; what is left at them bounds what is missing.
    missed = exact.gather(1, found.indices.cpu()) - found.values.cpu()
    assert (missed.abs() <= found.residual.cpu()[:, None] / 0.15 + 1e-6).all()
    best = exact.topk(10).values
    torch.testing.assert_close(found.values.cpu(), best, atol=3e-4, rtol=1e-3)


def _moments(seed: int) -> Iterator[tuple[Graph, list[int]]]:
    """A graph that grows and changes, and the nodes that other edges leave than before."""
    random = np.random.default_rng(seed)
    edges: dict[int, dict[int, float]] = {}
    nodes = 0
    for _ in range(25):
        nodes += int(random.integers(0, 6)) if nodes else 3
        changed = random.choice(nodes, size=min(nodes, 4), replace=False).tolist()
        for node in changed:
            ends = random.choice(nodes, size=int(random.integers(0, min(nodes, 6))), replace=False)
            edges[node] = {int(end): float(random.uniform(-1, 1)) for end in ends}
        listed = [(a, b, w) for a, out in edges.items() for b, w in out.items()]
        index = torch.tensor([(a, b) for a, b, _ in listed], dtype=torch.int64).reshape(-1, 2).T
        weight = torch.tensor([w for *_, w in listed], dtype=torch.float32)
        yield Graph.from_edges(index, weight, num_nodes=nodes), changed


@cache
def _history() -> list[tuple[Graph, list[int]]]:
    return list(_moments(0))


@cache
def _right(graph: Graph) -> np.ndarray:  # [N]
    """By networkx."""
    network = nx.DiGraph()
    network.add_nodes_from(range(graph.num_nodes))
    ends = zip(*(c.tolist() for c in (graph.source, graph.target, graph.weight)), strict=True)
    network.add_weighted_edges_from((a, b, abs(w)) for a, b, w in ends)
    found = nx.pagerank(network, alpha=0.85, tol=1e-13, max_iter=2000)
    return np.array([found[node] for node in range(graph.num_nodes)])


@pytest.mark.parametrize("epsilon", [1e-2, 1e-5])
def test_running_pagerank_is_within_its_bound_after_every_change(epsilon: float) -> None:
    moments = _history()
    running = RunningPageRank.of(moments[0][0], epsilon=epsilon)
    for (before, _), (graph, changed) in pairwise(moments):
        held = running.values, running.values.clone()
        running.follow(before, graph, torch.tensor(changed))
        assert torch.equal(*held)
        share = running.values.numpy() / running.values.sum().item()
        assert np.abs(share - _right(graph)).sum() <= 2 * running.error + 1e-6
        # No value is below 0.15; what `pagerank` itself is off by comes on top.
        assert running.error <= epsilon / (0.15 - epsilon) + 1e-5


def test_running_pagerank_refuses_constants_out_of_range() -> None:
    with pytest.raises(InputError, match="damping"):
        RunningPageRank(damping=1.5)
