"""spread_activation: every method against the rounds written out in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, frontier, spread, spread_activation

METHODS = pytest.mark.parametrize("method", ["dense", "frontier", "auto"])


def _written_out(
    graph: Graph,
    activation: torch.Tensor,
    *,
    rounds: int,
    reduce: str,
    inhibition: float,
    top: int,
    firing: str,
    mask: torch.Tensor | None,
) -> np.ndarray:
    """The rounds of `mathematics.md` section 4, node by node."""
    edges = list(
        zip(graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True)
    )
    fan = graph.out_degree.tolist()
    rows = []
    for b, row in enumerate(activation.double().tolist()):
        a, touched = row, [x != 0 for x in row]
        for _ in range(rounds):
            u = [0.5 * x for x in a]
            for j, i, w in edges:
                if mask is None or mask[b, i]:
                    sent = 0.8 * w * a[j] / fan[j]
                    u[i] = u[i] + sent if reduce == "sum" else max(u[i], sent)
            touched = [t or x != 0 for t, x in zip(touched, u, strict=True)]
            best = sorted(u, reverse=True)[:top]
            if inhibition:
                u = [max(0.0, x - inhibition * sum(max(v - x, 0.0) for v in best)) for x in u]
            if firing == "sigmoid":
                u = [
                    1 / (1 + math.exp(-5 * (x - 0.5))) if t else 0.0
                    for x, t in zip(u, touched, strict=True)
                ]
            a = u
        rows.append(a)
    return np.array(rows).reshape(activation.shape)


def _anchors(questions: int, nodes: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    value = torch.rand(questions, nodes, generator=generator)
    return torch.where(torch.rand(questions, nodes, generator=generator) < 0.2, value, 0.0)


@METHODS
@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("firing", ["sigmoid", "linear"])
@pytest.mark.parametrize("inhibition", [0.0, 0.15])
@pytest.mark.parametrize("masked", [False, True])
def test_matches_the_rounds_written_out(
    random_graph, method, reduce, firing, inhibition, masked, monkeypatch
):
    monkeypatch.setattr(spread, "_FRONTIER_FROM", 0)
    graph = random_graph(23, 50)
    anchors = _anchors(4, 23, 5)
    mask = _anchors(4, 23, 6) == 0 if masked else None
    settings = {"rounds": 3, "reduce": reduce, "inhibition": inhibition, "top": 3, "firing": firing}
    got = spread_activation(graph, anchors, mask=mask, method=method, **settings)
    expected = _written_out(graph, anchors, mask=mask, **settings)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(got.numpy() == 0, expected == 0)


@METHODS
def test_an_isolated_anchor_ends_below_the_gate(method):
    """0.6 ends at 0.104 after three rounds: the gate measures whether the graph reinforced it."""
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    got = spread_activation(graph, torch.tensor([[0.6, 0.0, 0.0]]), method=method)
    assert got[0, 0].item() == pytest.approx(0.104, abs=5e-4)
    assert got[0, 1:].tolist() == [0.0, 0.0]


@METHODS
def test_a_reached_node_that_falls_to_zero_still_fires(method):
    """Inhibition takes node 1 to 0; it was reached, so it fires sigmoid(-gain * threshold)."""
    graph = Graph.from_edges(torch.tensor([[0], [1]]), torch.tensor([0.01]), num_nodes=3)
    got = spread_activation(
        graph, torch.tensor([[1.0, 0.0, 0.0]]), rounds=1, inhibition=1.0, method=method
    )
    assert got[0, 1].item() == pytest.approx(1 / (1 + math.exp(2.5)))
    assert got[0, 2].item() == 0.0


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 30),
    st.integers(0, 80),
    st.integers(1, 9),
    st.integers(0, 10**6),
    st.sampled_from(["sum", "max"]),
    st.sampled_from(["sigmoid", "linear"]),
)
def test_frontier_equals_dense(nodes, edges, questions, seed, reduce, firing):
    generator = torch.Generator().manual_seed(seed)
    graph = Graph.from_edges(
        torch.randint(0, nodes, (2, edges), generator=generator),
        torch.rand(edges, generator=generator),
        num_nodes=nodes,
    )
    anchors = _anchors(questions, nodes, seed)
    settings = {"reduce": reduce, "firing": firing}
    dense = spread_activation(graph, anchors, method="dense", **settings)
    frontier = spread_activation(graph, anchors, method="frontier", **settings)
    torch.testing.assert_close(frontier, dense)
    sparse = spread_activation(graph, SparseRows.from_dense(anchors), **settings)
    assert isinstance(sparse, SparseRows)
    torch.testing.assert_close(sparse.to_dense(), dense)


def test_the_frontier_goes_on_densely_when_that_is_cheaper(random_graph, monkeypatch):
    graph = random_graph(50, 300)
    anchors = _anchors(3, 50, 7)
    expected = spread_activation(graph, anchors, method="dense")
    monkeypatch.setattr(spread, "_FRONTIER_FROM", 0)
    monkeypatch.setattr(frontier, "_DENSE", 100)  # two questions at a time
    for cost in (1e-6, 20.0, 1e6):
        monkeypatch.setattr(frontier, "_FOLLOWED", cost)
        torch.testing.assert_close(spread_activation(graph, anchors), expected)


def test_no_rounds_change_nothing(random_graph):
    anchors = _anchors(2, 9, 1)
    for method in ("dense", "frontier"):
        got = spread_activation(random_graph(9, 20), anchors, rounds=0, method=method)
        torch.testing.assert_close(got, anchors)


@pytest.mark.parametrize("firing", ["sigmoid", "linear"])
def test_gradients_flow_through_all_rounds(random_graph, firing):
    graph = random_graph(8, 20)
    anchors = (_anchors(2, 8, 4).double() + 0.1).requires_grad_()
    weight = graph.weight.double().requires_grad_()

    def run(a, w):
        return spread_activation(graph.with_weight(w), a, firing=firing, inhibition=0.02)

    assert torch.autograd.gradcheck(run, (anchors, weight))
    for other in ({"method": "frontier"}, {"activation": SparseRows.from_dense(anchors)}):
        with pytest.raises(InputError, match="a gradient needs a dense activation"):
            spread_activation(graph, **{"activation": anchors, **other})


def test_the_anchors_are_left_alone(random_graph):
    anchors = _anchors(2, 9, 1)
    before = anchors.clone()
    for method in ("dense", "frontier"):
        spread_activation(random_graph(9, 30), anchors, method=method)
        torch.testing.assert_close(anchors, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": -1}, "rounds must be an integer of at least 0"),
        ({"top": 0}, "top must be"),
        ({"inhibition": -0.1}, "inhibition must be in"),
        ({"firing": "step"}, "'sigmoid', 'linear'; got 'step'"),
        ({"method": "fast"}, "'auto', 'dense', 'frontier'; got 'fast'"),
        ({"reduce": "mean"}, "'sum', 'max'; got 'mean'"),
        ({"reduce": "mean", "method": "frontier"}, "'sum', 'max'; got 'mean'"),
        ({"activation": torch.zeros(2, 3)}, "9 columns"),
        ({"mask": torch.zeros(2, 9)}, "bool matrix"),
    ],
)
def test_bad_input_is_refused_by_name(random_graph, change, message):
    with pytest.raises(InputError, match=message):
        spread_activation(random_graph(9, 20), **{"activation": torch.zeros(2, 9), **change})


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["dense", "frontier"])
def test_cuda_matches_cpu(random_graph, method):
    graph = random_graph(3000, 20_000)
    anchors = torch.where(_anchors(5, 3000, 2) > 0.95, 1.0, 0.0)
    there = spread_activation(graph.to("cuda"), anchors.cuda(), method=method)
    torch.testing.assert_close(there.cpu(), spread_activation(graph, anchors))
