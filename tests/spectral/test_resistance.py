"""effective_resistance against networkx, the pseudo-inverse and Kirchhoff's rules."""

from __future__ import annotations

import logging

import networkx as nx
import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral import (
    ElectricalNetwork,
    components,
    effective_resistance,
    laplacian,
    resistance_embedding,
)

METHODS = ["exact", "cg", "sketch", "truncated"]


def _resistances(graph, adjacency):
    """All of them by the pseudo-inverse of D - W."""
    weight = adjacency(graph, signed=False)
    inverse = np.linalg.pinv(np.diag(weight.sum(1)) - weight)
    own = inverse.diagonal()
    return own[:, None] + own[None, :] - 2 * inverse


def _all_pairs(nodes):
    return torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).T


@pytest.mark.parametrize("method", ["exact", "cg"])
def test_matches_networkx(random_graph, adjacency, method):
    graph = random_graph(25, 200, signed=True)
    plain = nx.from_numpy_array(adjacency(graph, signed=False))
    # networkx weights are resistances unless inverted.
    expected = nx.resistance_distance(plain, weight="weight", invert_weight=False)
    pairs = _all_pairs(25)
    found = effective_resistance(graph, pairs, method)
    assert found.converged
    wanted = [expected[i][j] for i, j in pairs.T.tolist()]
    np.testing.assert_allclose(found.values.numpy(), wanted, rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("scaling", ["degree", "published"])
@pytest.mark.parametrize(
    ("method", "tolerance"), [("exact", 1e-9), ("cg", 5e-6), ("sketch", 0.05), ("truncated", 1e-4)]
)
def test_all_methods_agree_with_the_definition(
    random_graph, dense_laplacian, generator, method, tolerance, scaling
):
    """On three components and isolated nodes, by the sum over eigenpairs as it is written."""
    graph = random_graph(40, 130, copies=3)
    pairs = _all_pairs(120)[:, ::37]
    network = ElectricalNetwork(graph, columns=4096, generator=generator)
    options = {"scaling": scaling, "modes": 120, "network": network}
    found = effective_resistance(graph, pairs, method, **options)
    values, vectors = np.linalg.eigh(dense_laplacian(graph, signed=False))
    strength = laplacian(graph, signed=False).degree.numpy()
    scale = np.ones(120) if scaling == "published" else 1 / np.sqrt(np.maximum(strength, 1e-30))
    live = values > 1e-9
    rows = scale[:, None] * vectors[:, live]
    label = components(graph).numpy()
    i, j = pairs.numpy()
    wanted = ((rows[i] - rows[j]) ** 2 / values[live]).sum(1)
    wanted = np.where(i == j, 0, np.where(label[i] == label[j], wanted, np.inf))
    got = found.values.double().numpy()
    assert (np.isinf(got) == np.isinf(wanted)).all()
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(got[finite], wanted[finite], rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_series_and_parallel(graph_of, method, generator):
    """Two unit resistors and one of 1/2 in a row; a ring of four."""
    graph = graph_of(
        [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7), (7, 4)], [1.0, -1.0, 2.0, 1, 1, 1, 1]
    )
    pairs = torch.tensor([[0, 3], [4, 5], [6, 4], [2, 2], [0, 4]])
    network = ElectricalNetwork(graph, columns=20_000, generator=generator)
    found = effective_resistance(graph, pairs, method, network=network)
    expected = [2.5, 0.75, 1.0, 0.0, torch.inf]
    # In a truncated sum that has all modes nothing is missing.
    assert found.values.tolist() == pytest.approx(
        expected, rel=0.05 if method == "sketch" else 1e-5
    )
    assert found.values.shape == found.residual.shape == (5,)


def test_truncated_keeps_its_promise(random_graph, adjacency, generator):
    graph = random_graph(600, 4000)
    pairs = torch.randint(0, 600, (2, 300), generator=generator)
    exact = effective_resistance(graph, pairs, "exact").values
    network = ElectricalNetwork(graph, generator=generator)
    found = effective_resistance(graph, pairs, "truncated", modes=20, network=network)
    finite = exact.isfinite() & (exact > 0)
    error = ((found.values - exact) / exact).abs()[finite]
    assert (error <= found.residual[finite]).all()
    assert error.mean() < 0.1


def test_sketch_is_as_exact_as_it_says(random_graph, generator):
    graph = random_graph(1500, 9000)
    pairs = graph.edge_index
    exact = effective_resistance(graph, pairs, "exact").values
    network = ElectricalNetwork(graph, columns=128, generator=generator)
    found = effective_resistance(graph, pairs, "sketch", network=network)
    finite = exact.isfinite() & (exact > 0)
    error = ((found.values - exact) / exact).abs()[finite]
    assert found.converged
    assert error.square().mean().sqrt() < 1.2 * found.residual[finite].square().mean().sqrt()


def test_foster(random_graph):
    """The sum of w R over the edges is N minus the number of components (Foster 1949)."""
    graph = random_graph(300, 900, seed=4)
    operator = laplacian(graph, signed=False)
    found = effective_resistance(graph, torch.stack([operator.low, operator.high]), "cg")
    total = (operator.weight * found.values).sum()
    assert float(total) == pytest.approx(300 - operator.num_components, rel=1e-5)


def test_auto_takes_pairs_by_gradients_and_many_by_a_sketch(random_graph, generator):
    graph = random_graph(1100, 6000)
    pairs = torch.randint(0, 1100, (2, 2500), generator=generator)
    few = effective_resistance(graph, pairs[:, :5])
    assert few.residual.max() <= 1e-6
    network = ElectricalNetwork(graph, columns=256, generator=generator)
    many = effective_resistance(graph, pairs, network=network)
    assert many.residual.max() > 1e-4
    again = effective_resistance(graph, pairs[:, :5].repeat(1, 600))
    assert torch.equal(again.values, few.values.repeat(600)), "five different pairs are few"


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("shape", [(2, 0), (0, 2)])
def test_no_pairs(random_graph, method, shape):
    pairs = torch.zeros(shape, dtype=torch.int64)
    assert effective_resistance(random_graph(9, 20), pairs, method).values.shape == (0,)
    empty = Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64))
    assert effective_resistance(empty, pairs, method).values.shape == (0,)


@pytest.mark.parametrize("method", METHODS)
def test_nodes_without_edges(method):
    graph = Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
    found = effective_resistance(graph, torch.tensor([[0, 1, 2], [0, 2, 1]]), method)
    assert found.values.tolist() == [0.0, torch.inf, torch.inf]


def test_stopping_early_is_said(caplog):
    nodes = 3000
    graph = Graph.from_edges(torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]))
    with caplog.at_level(logging.WARNING):
        network = ElectricalNetwork(graph, max_iter=40)
        found = effective_resistance(graph, torch.tensor([[0], [nodes - 1]]), "cg", network=network)
    assert not found.converged
    assert "raise max_iter or tol" in caplog.text


@pytest.mark.parametrize("thread", [1e-2, 1e-6, 1e-8])
def test_clusters_on_a_thread(generator, caplog, thread):
    """The one edge between them has resistance 1 / w; float32 alone would be off by up to 11."""
    index = torch.randint(0, 500, (2, 4_000), generator=generator)
    weight = torch.rand(4_000, generator=generator) + 0.1
    index = torch.cat([index, index + 500, torch.tensor([[0], [500]])], 1)
    graph = Graph.from_edges(index, torch.cat([weight, weight, torch.tensor([thread])]))
    bridge = torch.tensor([[0, 5], [500, 700]])
    found = effective_resistance(graph, bridge, "cg")
    exact = max(1e-6, float(found.residual[0]))
    assert float(found.values[0]) * thread == pytest.approx(1, rel=exact)
    with caplog.at_level(logging.WARNING):
        network = ElectricalNetwork(graph, columns=256, generator=generator)
        rough = effective_resistance(graph, bridge, "sketch", network=network)
    off = abs(float(rough.values[0]) * thread - 1)
    assert off < 5 * float(rough.residual[0]) or not rough.converged
    assert rough.converged or "weakly connected" in caplog.text


@pytest.mark.parametrize("method", ["truncated", "exact"])
def test_a_gap_below_rounding_is_said(graph_of, caplog, method):
    """Two cliques of 150 on a thread of 1e-15."""
    clique = torch.combinations(torch.arange(150))
    pairs = [*clique.tolist(), *(clique + 150).tolist(), [0, 150]]
    graph = graph_of(pairs, [1.0] * (len(pairs) - 1) + [1e-15])
    with caplog.at_level(logging.WARNING):
        try:
            found = effective_resistance(graph, torch.tensor([[0], [150]]), method, modes=3)
        except InputError as error:
            assert "float64 resolves" in str(error)
            return
    assert not found.converged
    assert (found.values > 0).all()
    assert caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": torch.zeros(3, 3, dtype=torch.int64)}, r"pairs: expected integers \[2, P\]"),
        ({"pairs": torch.zeros(2, 3)}, "pairs: expected integers"),
        ({"pairs": torch.tensor([[0], [9]])}, r"numbers in 0\.\.8, got 9"),
        ({"pairs": torch.tensor([[0], [-1]])}, r"numbers in 0\.\.8, got -1"),
        ({"method": "guess"}, "method: expected one of"),
        ({"scaling": "none"}, "scaling: expected one of"),
        ({"modes": 0}, "modes: expected an integer"),
        ({"tol": -1.0}, "tol: expected a number in"),
    ],
)
def test_bad_input_is_refused_by_name(random_graph, change, message):
    with pytest.raises(InputError, match=message):
        effective_resistance(random_graph(9, 20), **{"pairs": torch.tensor([[0], [1]]), **change})


def test_learned_weights_are_refused(random_graph):
    graph = random_graph(9, 20)
    learned = graph.with_weight(graph.weight.clone().requires_grad_())
    with pytest.raises(InputError, match="without a gradient"):
        effective_resistance(learned, torch.tensor([[0], [1]]))


def test_resistance_embedding_has_the_resistances_as_distances(random_graph, adjacency, generator):
    graph = random_graph(30, 150, signed=True)
    found = resistance_embedding(graph, 4096, generator=generator)
    weight, truth = adjacency(graph, signed=False), _resistances(graph, adjacency)
    near, far = found.near.double().numpy(), found.far.double().numpy()
    across = ((far[:, None] - far) ** 2).sum(2)
    got = near[:, None] + near - 2 * weight * np.outer(near, near) + across
    pairs = np.triu_indices(30, 1)
    assert found.component.tolist() == [0] * 30
    np.testing.assert_allclose(got[pairs], truth[pairs], rtol=0.03)
    again = resistance_embedding(graph, 8)
    assert torch.equal(again.far, resistance_embedding(graph, 8).far), "the same every time"
    assert again.far.shape == (30, 8)
    with pytest.raises(InputError, match="columns"):
        resistance_embedding(graph, 0)


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["cg", "exact"])
def test_cuda_matches_cpu(random_graph, generator, method):
    graph = random_graph(1500, 20_000)
    pairs = torch.randint(0, 1500, (2, 200), generator=generator)
    there = effective_resistance(graph.to("cuda"), pairs.cuda(), method)
    here = effective_resistance(graph, pairs, method)
    torch.testing.assert_close(there.values.cpu(), here.values, rtol=1e-5, atol=1e-6)
