"""spread_activation: every method against the rounds written out in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, propagate, spread_activation
from graphmem_torch.ops.propagate import fan_scale
from graphmem_torch.ops.spread import Rule, spread_frontier

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
    mask: torch.Tensor | None = None,
    kind: torch.Tensor | None = None,
    spare: int = 0,
) -> np.ndarray:
    """The rounds of `docs/mathematics.md` 4, node by node."""

    def fired(x: float) -> float:
        return 1 / (1 + math.exp(-5 * (x - 0.5)))

    kinds = [0] * graph.num_nodes if kind is None else kind.tolist()

    def inhibited(u: list[float]) -> list[float]:
        if not inhibition:
            return u
        left = list(u)
        for own in set(kinds):
            rivals = sorted((x for x, k in zip(u, kinds, strict=True) if k == own), reverse=True)
            strength, best = inhibition, rivals[:top]
            there = [x for x in rivals[:spare] if x > 0]
            above = sum(v - there[-1] for v in best if v > there[-1]) if there else 0.0
            if above:
                strength = min(strength, there[-1] / (2 * above))
            for i, x in enumerate(u):
                if kinds[i] == own:
                    left[i] = max(0.0, x - strength * sum(max(v - x, 0.0) for v in best))
        return left

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
            if firing != "once":
                u = inhibited(u)
            if firing == "sigmoid":
                u = [fired(x) if t else 0.0 for x, t in zip(u, touched, strict=True)]
            elif firing == "zeroed":
                u = [fired(x) - fired(0) for x in u]
            a = u
        if firing == "once" and rounds:
            a = [fired(x) - fired(0) for x in inhibited(a)]
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
def test_matches_the_rounds_written_out(random_graph, method, reduce, firing, inhibition, masked):
    graph = random_graph(23, 50)
    anchors = _anchors(4, 23, 5)
    mask = _anchors(4, 23, 6) == 0 if masked else None
    settings = {"rounds": 3, "reduce": reduce, "inhibition": inhibition, "top": 3, "firing": firing}
    got = spread_activation(graph, anchors, mask=mask, method=method, **settings)
    expected = _written_out(graph, anchors, mask=mask, **settings)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(got.numpy() == 0, expected == 0)


@METHODS
@pytest.mark.parametrize("firing", ["sigmoid", "zeroed", "once", "linear"])
@pytest.mark.parametrize("rounds", [0, 1, 3])
@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize("spare", [0, 4])
def test_kinds_and_firing_match_the_rounds_written_out(
    random_graph, method, firing, rounds, kinds, spare
):
    graph, anchors = random_graph(31, 90), _anchors(4, 31, 5)
    kind = _anchors(1, 31, 9)[0] > 0 if kinds else None
    settings = {"rounds": rounds, "reduce": "sum", "inhibition": 0.15, "top": 3, "firing": firing}
    settings |= {"kind": kind, "spare": spare}
    got = spread_activation(graph, anchors, method=method, **settings)
    expected = _written_out(graph, anchors, **settings)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(got.numpy() == 0, expected == 0)


@METHODS
@pytest.mark.parametrize("firing", ["zeroed", "once"])
def test_spread_silence_is_exactly_zero(method, firing):
    """Inhibition takes node 1 to 0, and unlike with `sigmoid` it fires nothing."""
    graph = Graph.from_edges(torch.tensor([[0], [1]]), torch.tensor([0.01]), num_nodes=3)
    start = torch.tensor([[1.0, 0.0, 0.0]])
    got = spread_activation(graph, start, rounds=1, inhibition=1.0, firing=firing, method=method)
    assert got[0, 1:].tolist() == [0.0, 0.0]
    assert got[0, 0].item() == pytest.approx(1 / (1 + math.exp(0)) - 1 / (1 + math.exp(2.5)))


@METHODS
def test_spread_concepts_do_not_silence_turns(method):
    """Three hubs of the other kind take node 3 to 0, but not where kinds compete apart."""
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=5)
    u = torch.tensor([[9.0, 8.0, 8.0, 1.0, 0.9]])
    settings = {"rounds": 1, "retention": 1.0, "firing": "linear", "method": method}
    assert spread_activation(graph, u, **settings)[0, 3:].tolist() == [0.0, 0.0]
    kind = torch.tensor([True, True, True, False, False])
    got = spread_activation(graph, u, kind=kind, **settings)
    assert got[0, 3:].tolist() == pytest.approx([1.0, 0.9 - 0.15 * 0.1])


@METHODS
def test_spread_isolated_anchor_ends_below_the_gate(method):
    """0.6 ends at 0.104 after three rounds: the gate measures whether the graph reinforced it."""
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    got = spread_activation(graph, torch.tensor([[0.6, 0.0, 0.0]]), method=method)
    assert got[0, 0].item() == pytest.approx(0.104, abs=5e-4)
    assert got[0, 1:].tolist() == [0.0, 0.0]


@METHODS
def test_spread_reached_node_that_falls_to_zero_still_fires(method):
    """Inhibition takes node 1 to 0; it was reached, so it fires sigmoid(-gain * threshold)."""
    graph = Graph.from_edges(torch.tensor([[0], [1]]), torch.tensor([0.01]), num_nodes=3)
    got = spread_activation(
        graph, torch.tensor([[1.0, 0.0, 0.0]]), rounds=1, inhibition=1.0, method=method
    )
    assert got[0, 1].item() == pytest.approx(1 / (1 + math.exp(2.5)))
    assert got[0, 2].item() == 0.0


@given(
    st.integers(1, 30),
    st.integers(0, 80),
    st.integers(1, 9),
    st.integers(0, 10**6),
    st.sampled_from(["sum", "max"]),
    st.sampled_from(["sigmoid", "zeroed", "once", "linear"]),
    st.sampled_from([0, 3]),
    st.booleans(),
)
def test_frontier_equals_dense(nodes, edges, questions, seed, reduce, firing, spare, kinds):
    generator = torch.Generator().manual_seed(seed)
    graph = Graph.from_edges(
        torch.randint(0, nodes, (2, edges), generator=generator),
        torch.rand(edges, generator=generator),
        num_nodes=nodes,
    )
    anchors = _anchors(questions, nodes, seed)
    settings = {"reduce": reduce, "firing": firing, "spare": spare}
    settings["kind"] = _anchors(1, nodes, seed + 1)[0] > 0 if kinds else None
    dense = spread_activation(graph, anchors, method="dense", **settings)
    frontier = spread_activation(graph, anchors, method="frontier", **settings)
    torch.testing.assert_close(frontier, dense)
    sparse = spread_activation(graph, SparseRows.from_dense(anchors), **settings)
    assert isinstance(sparse, SparseRows)
    torch.testing.assert_close(sparse.to_dense(), dense)


@pytest.mark.parametrize("cost", [1e-6, 20.0, 1e6])
def test_spread_frontier_goes_on_densely_when_that_is_cheaper(random_graph, cost):
    graph = random_graph(50, 300)
    anchors = _anchors(3, 50, 7)
    found = spread_frontier(
        graph,
        SparseRows.from_dense(anchors),
        lambda node: fan_scale(graph, 0.8, "degree", node=node),
        rounds=3,
        retention=0.5,
        maximum=False,
        rule=Rule(0.15, 7, "sigmoid", 5.0, 0.5),
        mask=None,
        step=lambda a, allowed: propagate(graph, a, mask=allowed),
        followed_cost=cost,
        dense_values=100,  # two questions at a time
    )
    expected = spread_activation(graph, anchors, method="dense")
    torch.testing.assert_close(found.to_dense(), expected)


def test_auto_follows_the_frontier_of_a_large_graph(random_graph, largest):
    """In 30,000 nodes a few anchors reach little; from all nodes on, dense rounds are cheaper."""
    small = random_graph(23, 50)
    graph = Graph.from_edges(small.edge_index, small.weight, type=small.type, num_nodes=30_000)
    few = torch.nn.functional.pad(_anchors(4, 23, 5), (0, 30_000 - 23))
    start = SparseRows.from_dense(few)
    with largest() as seen:
        found = spread_activation(graph, start)
    assert seen.elements <= 30_001
    expected = spread_activation(graph, few, method="dense")
    torch.testing.assert_close(found.to_dense(), expected)
    torch.testing.assert_close(spread_activation(graph, few), expected)


@pytest.mark.parametrize("fan", ["degree", "sqrt", "none", "given"])
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_sparse_rows_make_nothing_of_the_size_of_the_graph(random_graph, largest, fan, reduce):
    """1 million nodes, 200 with edges: 64 questions would be 64 million numbers."""
    small = random_graph(200, 900)
    large = Graph.from_edges(small.edge_index, small.weight, type=small.type, num_nodes=1_000_000)
    place = torch.randint(200, (64, 5), generator=torch.Generator().manual_seed(0))
    found = []
    for graph in (small, large):
        start = SparseRows.of(place, torch.full((64, 5), 0.7), graph.num_nodes)
        divisor = torch.full((graph.num_nodes,), 3.0) if fan == "given" else fan
        with largest() as seen:
            found.append(spread_activation(graph, start, fan=divisor, reduce=reduce))
    assert seen.elements < 200_000
    torch.testing.assert_close(found[1].narrowed(200).to_dense(), found[0].to_dense())
    assert len(found[1].key) == len(found[0].key)


def test_spread_without_rounds_changes_nothing(random_graph):
    anchors = _anchors(2, 9, 1)
    for method in ("dense", "frontier"):
        got = spread_activation(random_graph(9, 20), anchors, rounds=0, method=method)
        torch.testing.assert_close(got, anchors)


@pytest.mark.parametrize(
    ("reduce", "firing", "masked"),
    [
        ("sum", "sigmoid", False),
        ("sum", "linear", True),
        ("max", "sigmoid", True),
        ("max", "linear", False),
        ("sum", "zeroed", False),
        ("sum", "once", True),
    ],
)
def test_gradients_flow_through_all_rounds(random_graph, reduce, firing, masked):
    graph = random_graph(5, 12)
    drawn = torch.rand(2, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    anchors = (drawn + 0.1).requires_grad_()  # all different: no kink of a maximum is met
    weight = graph.weight.double().requires_grad_()
    fan = graph.out_degree.double().clamp(min=1).requires_grad_()
    mask = _anchors(2, 5, 6) == 0 if masked else None
    names = ("retention", "spread", "inhibition", "gain", "threshold")
    start = torch.tensor([0.5, 0.8, 0.02, 5.0, 0.5], dtype=torch.float64)
    constants = start.requires_grad_().unbind()

    def run(a, w, f, *values):
        learned = dict(zip(names, values, strict=True))
        return spread_activation(
            graph.with_weight(w), a, reduce=reduce, firing=firing, fan=f, mask=mask, **learned
        )

    assert torch.autograd.gradcheck(run, (anchors, weight, fan, *constants))


@pytest.mark.parametrize("name", ["activation", "fan", "retention", "inhibition", "gain"])
def test_spread_gradient_through_the_frontier_is_refused(random_graph, name):
    graph = random_graph(8, 20)
    value = {"activation": _anchors(2, 8, 4), "fan": torch.ones(8)}.get(name, torch.tensor(0.5))
    inputs = {"activation": _anchors(2, 8, 4), name: value.requires_grad_()}
    assert spread_activation(graph, **inputs).requires_grad
    sparse = SparseRows.from_dense(inputs["activation"])
    for other in ({"method": "frontier"}, {"activation": sparse}):
        with pytest.raises(
            InputError, match="expected a dense tensor and method 'dense' for a gradient"
        ):
            spread_activation(graph, **{**inputs, **other})
    with torch.no_grad():
        assert not spread_activation(graph, method="frontier", **inputs).requires_grad


@METHODS
def test_constants_may_be_tensors(random_graph, method):
    graph, anchors = random_graph(23, 50), _anchors(4, 23, 5)
    numbers = {"retention": 0.4, "spread": 0.7, "inhibition": 0.1, "gain": 4.0, "threshold": 0.3}
    tensors = {name: torch.tensor(value) for name, value in numbers.items()}
    got = spread_activation(graph, anchors, method=method, **tensors)
    expected = spread_activation(graph, anchors, method=method, **numbers)
    torch.testing.assert_close(got, expected)


def test_inhibition_of_a_tensor_that_is_zero_is_the_same_everywhere():
    """It is not looked at, so that it lifts what a negative edge brought to 0, as any strength."""
    graph = Graph.from_edges(torch.tensor([[0], [1]]), torch.tensor([-1.0]), num_nodes=3)
    found = [
        spread_activation(
            graph,
            torch.tensor([[1.0, 0.0, 0.0]]),
            rounds=1,
            inhibition=torch.tensor(0.0),
            firing="linear",
            method=method,
        )
        for method in ("dense", "frontier")
    ]
    torch.testing.assert_close(*found)


_SETTINGS = [
    {"rounds": 1, "retention": 0.2, "firing": "linear", "inhibition": 0.0},
    {"rounds": 3, "spread": 0.4, "gain": 3.0, "threshold": 0.1},
    {"rounds": 2, "inhibition": 0.4, "threshold": 0.3},
    {"rounds": 3, "firing": "linear", "inhibition": 0.05},
    {"rounds": 0},
]
_PLAIN = {"rounds": 3, "retention": 0.5, "spread": 0.8, "firing": "sigmoid", "inhibition": 0.15}
_PLAIN |= {"gain": 5.0, "threshold": 0.5}


def _grid(questions: int) -> dict[str, torch.Tensor]:
    """The settings as constants of rows, one setting after the other."""
    rows = {name: [{**_PLAIN, **one}[name] for one in _SETTINGS] for name in _PLAIN}
    rows["firing"] = [name == "sigmoid" for name in rows["firing"]]
    return {n: torch.tensor(v).repeat_interleave(questions) for n, v in rows.items()}


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("fan", ["degree", "sqrt"])
@pytest.mark.parametrize("spare", [0, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_grid_of_settings_is_a_batch(random_graph, reduce, fan, spare, masked):
    """Each setting by itself, over the edges that its pattern has."""
    graph, anchors = random_graph(23, 90, signed=True), _anchors(20, 23, 5)
    generator = torch.Generator().manual_seed(1)
    weight = graph.weight * (torch.rand(2, graph.num_edges, generator=generator) < 0.7)
    mask = _anchors(20, 23, 6) == 0 if masked else None
    settings, count = {"reduce": reduce, "fan": fan, "spare": spare, "top": 3}, len(_SETTINGS)
    patterns = torch.tensor([1, 0, 1, 0, 0])
    got = spread_activation(
        graph,
        anchors.repeat(count, 1),
        mask=None if mask is None else mask.repeat(count, 1),
        weight=weight,
        pattern=patterns.repeat_interleave(20),
        **_grid(20),
        **settings,
    )
    for place, (one, p) in enumerate(zip(_SETTINGS, patterns.tolist(), strict=True)):
        there = weight[p] != 0
        own = graph.select(there).with_weight(weight[p][there])
        alone = spread_activation(own, anchors, mask=mask, method="dense", **settings, **one)
        torch.testing.assert_close(got[20 * place : 20 * place + 20], alone)


def test_grid_without_rows_nodes_or_edges(random_graph):
    for graph, rows in ((random_graph(9, 20), 0), (random_graph(0, 0), 3), (random_graph(4, 0), 3)):
        found = spread_activation(
            graph,
            torch.zeros(rows, graph.num_nodes),
            rounds=torch.full((rows,), 2),
            gain=torch.full((rows,), 4.0),
            weight=torch.ones(2, graph.num_edges),
            pattern=torch.zeros(rows, dtype=torch.int64),
            spare=3,
        )
        assert found.shape == (rows, graph.num_nodes) and not found.any()


def test_grid_with_a_gradient_is_the_same(random_graph):
    """All rows go together then, as on a device."""
    graph = random_graph(23, 90, signed=True)
    anchors = _anchors(4, 23, 5).repeat(len(_SETTINGS), 1)
    weight = graph.weight * torch.tensor([[1.0], [0.5]])
    which = torch.arange(len(anchors)) % 2
    settings = {"weight": weight, "pattern": which, **_grid(4)}
    expected = spread_activation(graph, anchors, **settings)
    got = spread_activation(graph, anchors.clone().requires_grad_(), **settings)
    torch.testing.assert_close(got.detach(), expected)


def test_inhibition_spares_what_is_next_to_hubs():
    """Three hubs silence all else at 0.15; sparing 5 leaves the fifth exactly half of its own."""
    u = torch.tensor([[9.0, 8.0, 8.0, 1.0, 0.8, 0.6, 0.0]])
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=7)
    settings = {"rounds": 1, "retention": 1.0, "firing": "linear", "top": 3}
    silenced = spread_activation(graph, u, **settings)
    assert silenced[0, 3:].tolist() == [0.0] * 4
    spared = spread_activation(graph, u, spare=5, **settings)
    assert spared[0, 4].item() == pytest.approx(0.4)
    assert spared[0, 5].item() < 0.3
    for few in (torch.zeros(1, 7), torch.tensor([[1.0, 0, 0, 0, 0, 0, 0]])):
        torch.testing.assert_close(spread_activation(graph, few, spare=5, **settings), few)
    even = torch.tensor([[1.0, 0.95, 0.9, 0.9, 0.9, 0.85, 0.85]])
    torch.testing.assert_close(
        spread_activation(graph, even, spare=5, **settings),
        spread_activation(graph, even, **settings),
    )


def test_gains_of_edge_types_are_learned_through_all_rounds(random_graph):
    """The gains that made an activation are found again from it."""
    graph, anchors = random_graph(30, 120), _anchors(16, 30, 5)
    settings = {"firing": "linear", "inhibition": 0.0, "fan": "sqrt", "rounds": 3}

    def spread_with(gains: torch.Tensor) -> torch.Tensor:
        learned = graph.with_weight(graph.weight * gains[graph.type.long()])
        return spread_activation(learned, anchors, **settings)

    truth = torch.tensor([1.0, 0.2, 0.6])
    wanted, gains = spread_with(truth), torch.full((3,), 0.5, requires_grad=True)
    optimizer = torch.optim.LBFGS([gains], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = (spread_with(gains) - wanted).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    torch.testing.assert_close(gains.detach(), truth, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": torch.ones(3)}, r"rounds: expected int64 \[2\]"),
        ({"rounds": torch.tensor(2)}, r"rounds: expected int64 \[2\]"),
        ({"firing": torch.ones(2)}, r"firing: expected bool \[2\]"),
        ({"spare": -1}, "spare: expected an integer of at least 0"),
        (
            {"gain": torch.ones(2), "method": "frontier"},
            "rows that differ, got 'frontier'",
        ),
    ],
)
def test_bad_rows_of_a_grid_are_refused_by_name(random_graph, change, message):
    with pytest.raises(InputError, match=message):
        spread_activation(random_graph(9, 20), torch.zeros(2, 9), **change)
    sparse = SparseRows.from_dense(torch.zeros(2, 9))
    with pytest.raises(InputError, match="rows that differ, got SparseRows"):
        spread_activation(random_graph(9, 20), sparse, fan=torch.ones(2, 9))


def test_spread_anchors_are_left_alone(random_graph):
    anchors = _anchors(2, 9, 1)
    before = anchors.clone()
    for method in ("dense", "frontier"):
        spread_activation(random_graph(9, 30), anchors, method=method)
        torch.testing.assert_close(anchors, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": -1}, "rounds: expected an integer of at least 0"),
        ({"top": 0}, "top: expected"),
        ({"inhibition": -0.1}, "inhibition: expected a number in"),
        (
            {"inhibition": torch.ones(1)},
            r"inhibition: expected floating point \[2\].* give a number",
        ),
        ({"gain": float("nan")}, "gain: expected a number in"),
        ({"firing": "step"}, "'sigmoid', 'zeroed', 'once', 'linear', got 'step'"),
        ({"method": "fast"}, "'auto', 'dense', 'frontier', got 'fast'"),
        ({"reduce": "mean"}, "'sum', 'max', got 'mean'"),
        ({"reduce": "mean", "method": "frontier"}, "'sum', 'max', got 'mean'"),
        ({"activation": torch.zeros(2, 3)}, r"\[B, 9\]"),
        ({"mask": torch.zeros(2, 9)}, r"bool \[2, 9\]"),
        ({"kind": torch.ones(2, 9, dtype=torch.bool)}, r"kind: expected bool \[9\]"),
        (
            {"mask": torch.ones(1, 9, dtype=torch.bool), "method": "frontier"},
            r"mask: expected bool \[2, 9\] on cpu, got torch.bool \[1, 9\]",
        ),
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
