"""propagate: fast path and kernel against the reference, the reference against dense numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import propagate
from graphmem_torch.ops.propagate import fan_scale, propagate_reference
from tests.kernels import kernels

kernel = kernels("propagate")
product = kernels("spmm")

REDUCE = pytest.mark.parametrize("reduce", ["sum", "max"])


def _dense(
    graph: Graph, a: np.ndarray, retention: float, spread: float, reduce: str, fan: np.ndarray
) -> np.ndarray:
    """The formula, edge by edge."""
    out = retention * a.astype(np.float64)
    edges = zip(graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True)
    for j, i, w in edges:
        sent = spread * w * a[:, j] / fan[j]
        out[:, i] = out[:, i] + sent if reduce == "sum" else np.maximum(out[:, i], sent)
    return out


def _inputs(shape: tuple[int, int, int], seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    activation = torch.rand(shape[:2], generator=generator)
    activation[torch.rand(shape[:2], generator=generator) < 0.3] = 0.0
    return activation, torch.rand(shape[:2], generator=generator) < 0.6


def _even(shape: tuple[int, int, int]) -> bool:
    """About half of the shapes; with it each shape meets one thing by either reduction."""
    return sum(shape) % 2 == 0


def _tensors(graph: Graph) -> tuple[torch.Tensor, ...]:
    return (
        graph.indptr,
        graph.source,
        graph.target,
        graph.weight,
        graph.out_indptr,
        graph.out_edge,
    )


@REDUCE
@pytest.mark.parametrize("fan", ["degree", "sqrt", "none"])
@pytest.mark.parametrize("signed", [False, True])
def test_matches_the_formula(random_graph, shape, reduce, fan, signed):
    graph = random_graph(*shape[1:], signed=signed)
    activation, _ = _inputs(shape)
    degree = np.maximum(graph.out_degree.numpy(), 1)
    divisor = {"degree": degree, "sqrt": np.sqrt(degree), "none": np.ones_like(degree)}[fan]
    expected = _dense(graph, activation.numpy(), 0.4, 0.7, reduce, divisor)
    got = propagate(graph, activation, retention=0.4, spread=0.7, reduce=reduce, fan=fan)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)


@REDUCE
def test_propagate_masked_node_only_keeps_its_own(random_graph, shape, reduce):
    graph = random_graph(*shape[1:], signed=True)
    activation, mask = _inputs(shape)
    got = propagate(graph, activation, reduce=reduce, mask=mask)
    free = propagate(graph, activation, reduce=reduce)
    torch.testing.assert_close(got, torch.where(mask, free, 0.5 * activation))


def test_fan_can_be_given(random_graph):
    graph = random_graph(9, 30)
    activation, _ = _inputs((2, 9, 30))
    same = propagate(graph, activation, fan=graph.out_degree.clamp(min=1))
    torch.testing.assert_close(same, propagate(graph, activation))


@REDUCE
def test_kernel_matches_the_reference(
    random_graph: Callable[..., Graph],
    shape: tuple[int, int, int],
    reduce: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Outputs are poisoned with NaN, and hubs begin at 16 edges, so that small graphs have some.

    Each shape and each reduction has met a mask and a hub, which are not there together.
    """
    masked = _even(shape) == (reduce == "max")
    hub = not masked
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = random_graph(*shape[1:], signed=True, hub=hub).to(device)
    activation, mask = (t.to(device) for t in _inputs(shape))
    empty_like, empty = torch.empty_like, torch.empty
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: empty_like(*a, **k).fill_(torch.nan))
    monkeypatch.setattr(torch, "empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))
    scale = fan_scale(graph, 0.8, "degree")
    rest = (torch.tensor(0.5, device=device), reduce == "max", mask if masked else None)
    got = kernel.launch_propagate(*_tensors(graph), activation, scale, *rest, piece=16)
    expected = propagate_reference(
        graph.source, graph.target, graph.weight, activation, scale, *rest
    )
    torch.testing.assert_close(got, expected)


@REDUCE
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_kernel_accumulates_half_precision_in_float32(random_graph, reduce, dtype):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = random_graph(20, 300, signed=True, hub=True).to(device)
    activation, mask = (t.to(device) for t in _inputs((3, 20, 300)))
    activation = activation.to(dtype)
    scale = fan_scale(graph, 0.8, "degree")
    rest = (torch.tensor(0.5, device=device), reduce == "max", mask)
    got = kernel.launch_propagate(*_tensors(graph), activation, scale, *rest, piece=16)
    exact = propagate_reference(
        graph.source, graph.target, graph.weight.double(), activation.double(), scale.double(),
        *rest,
    )  # fmt: skip
    assert got.dtype == dtype
    torch.testing.assert_close(got, exact.to(dtype))


@REDUCE
@pytest.mark.parametrize("masked", [False, True])
def test_gradients(random_graph, reduce, masked):
    graph = random_graph(6, 20, signed=True)
    generator = torch.Generator().manual_seed(3)
    activation = torch.rand(3, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = graph.weight.double().requires_grad_()
    fan = (torch.rand(6, generator=generator, dtype=torch.float64) + 0.5).requires_grad_()
    mask = torch.rand(3, 6, generator=generator) < 0.7 if masked else None
    retention, spread = torch.tensor([0.4, 0.7], dtype=torch.float64).requires_grad_().unbind()

    def run(a, w, f, r, s):
        learned = graph.with_weight(w)
        return propagate(learned, a, retention=r, spread=s, reduce=reduce, fan=f, mask=mask)

    assert torch.autograd.gradcheck(run, (activation, weight, fan, retention, spread))
    named = partial(propagate, graph, reduce=reduce, fan="sqrt", mask=mask)
    assert torch.autograd.gradcheck(lambda a, s: named(a, spread=s), (activation, spread))


def _patterns(graph: Graph, questions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three patterns of weights, each without a third of the edges, and one a row, in no order."""
    generator = torch.Generator().manual_seed(9)
    factor = torch.rand(3, graph.num_edges, generator=generator)
    weight = graph.weight * torch.where(factor < 1 / 3, 0.0, factor)
    return weight, torch.randint(0, 3, (questions,), generator=generator)


@REDUCE
@pytest.mark.parametrize("fans", [("degree", "sqrt"), ("none", "given")])
def test_a_row_may_be_a_setting(random_graph, shape, reduce, fans):
    """Rows with their own constants and edges are what each of them is by itself.

    Each shape has met every fan, and so has each reduction.
    """
    fan = fans[_even(shape) == (reduce == "max")]
    graph = random_graph(*shape[1:], signed=True)
    activation, mask = _inputs(shape)
    weight, pattern = _patterns(graph, shape[0])
    generator = torch.Generator().manual_seed(2)
    retention, spread = torch.rand(2, shape[0], generator=generator)
    given = torch.rand(shape[:2], generator=generator) + 0.5
    got = propagate(
        graph,
        activation,
        retention=retention,
        spread=spread,
        reduce=reduce,
        fan=given if fan == "given" else fan,
        mask=mask,
        weight=weight,
        pattern=pattern,
    )
    for b, p in enumerate(pattern.tolist()):
        alone = propagate(
            graph.select(weight[p] != 0).with_weight(weight[p][weight[p] != 0]),
            activation[b, None],
            retention=float(retention[b]),
            spread=float(spread[b]),
            reduce=reduce,
            fan=given[b] if fan == "given" else fan,
            mask=mask[b, None],
        )
        torch.testing.assert_close(got[b, None], alone)


@REDUCE
def test_kernel_of_rows_that_are_settings_matches_the_reference(random_graph, shape, reduce):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = random_graph(*shape[1:], signed=True, hub=True).to(device)
    activation, mask = (t.to(device) for t in _inputs(shape))
    weight, pattern = (t.to(device) for t in _patterns(graph.to("cpu"), shape[0]))
    generator = torch.Generator().manual_seed(2)
    scale = torch.rand(shape[:2], generator=generator).to(device)
    retention = torch.rand(shape[0], generator=generator).to(device)
    tensors = list(_tensors(graph))
    tensors[3] = weight
    # Constants of each row with one reduction, of all rows with the other.
    if _even(shape) == (reduce == "max"):
        scale, retention = scale[0], retention[0]
    rest = (scale, retention, reduce == "max", mask, pattern)
    got = kernel.launch_propagate(*tensors, activation, *rest, piece=16)
    expected = propagate_reference(graph.source, graph.target, weight, activation, *rest)
    torch.testing.assert_close(got, expected)


@REDUCE
def test_gradients_of_rows_that_are_settings(random_graph, reduce):
    graph = random_graph(5, 14)
    generator = torch.Generator().manual_seed(3)
    activation, fan = torch.rand(2, 4, 5, generator=generator, dtype=torch.float64) + 0.3
    mask = torch.rand(4, 5, generator=generator) < 0.8
    weight, pattern = _patterns(graph, 4)
    constants = torch.rand(2, 4, generator=generator, dtype=torch.float64)
    there = weight.nonzero(as_tuple=True)  # a maximum jumps where an edge appears
    values = weight.double()[there]

    def run(a, f, w, c):
        weights = torch.zeros_like(weight, dtype=torch.float64).index_put(there, w)
        return propagate(
            graph, a, fan=f, retention=c[0], spread=c[1], reduce=reduce, mask=mask,
            weight=weights, pattern=pattern,
        )  # fmt: skip

    inputs = tuple(t.detach().requires_grad_() for t in (activation, fan, values, constants))
    assert torch.autograd.gradcheck(run, inputs)


def test_edge_that_is_not_there_learns_of_a_sum(random_graph):
    """A gain that starts at 0 would stay there without."""
    graph, activation = random_graph(5, 14), _inputs((1, 5, 14))[0]
    weight = torch.zeros(1, graph.num_edges, requires_grad=True)
    which = torch.zeros(1, dtype=torch.int64)
    propagate(
        graph, activation, fan="none", spread=1.0, weight=weight, pattern=which
    ).sum().backward()
    expected = activation[0, graph.source.long()]
    torch.testing.assert_close(weight.grad[0], expected)


@REDUCE
def test_gradients_in_half_precision_are_those_of_float32(random_graph, reduce):
    """A maximum rounded to half equals none of its terms; its gradient must not vanish."""
    graph = random_graph(9, 40)
    activation = _inputs((3, 9, 40))[0].bfloat16().float()
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        a = activation.detach().to(dtype).requires_grad_()
        retention = torch.tensor(0.3, requires_grad=True)
        propagate(graph, a, retention=retention, reduce=reduce).sum().backward()
        found.append((a.grad.float(), retention.grad))
    torch.testing.assert_close(*found, rtol=2e-2, atol=1e-2)


def test_propagate_second_derivative_is_refused(random_graph):
    graph = random_graph(6, 20)
    activation = torch.rand(2, 6, requires_grad=True)
    out = propagate(graph, activation).square().sum()
    with pytest.raises(InputError, match="propagate_backward: expected no gradient"):
        torch.autograd.grad(out, activation, create_graph=True)


@REDUCE
def test_constants_may_be_tensors(random_graph, reduce):
    graph = random_graph(9, 30)
    activation, _ = _inputs((2, 9, 30))
    got = propagate(
        graph, activation, retention=torch.tensor(0.4), spread=torch.tensor(0.7), reduce=reduce
    )
    expected = propagate(graph, activation, retention=0.4, spread=0.7, reduce=reduce)
    torch.testing.assert_close(got, expected)


def test_equal_terms_of_a_maximum_share_the_gradient():
    graph = Graph.from_edges(torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
    activation = torch.tensor([[1.0, 1.0, 0.0]], requires_grad=True)
    propagate(graph, activation, spread=1.0, reduce="max")[0, 2].backward()
    assert activation.grad.tolist() == [[0.5, 0.5, 0.0]]


@REDUCE
def test_opcheck(random_graph, reduce):
    graph = random_graph(7, 20)
    activation, mask = _inputs((3, 7, 20))
    tensors = list(_tensors(graph))
    tensors[3] = tensors[3].clone().requires_grad_()
    scale = fan_scale(graph, 0.8, "degree").requires_grad_()
    retention = torch.tensor(0.5, requires_grad=True)
    args = (*tensors, activation.requires_grad_(), scale, retention, reduce == "max", mask, None)
    torch.library.opcheck(torch.ops.graphmem.propagate.default, args)
    weight, pattern = _patterns(graph, 3)
    rows = torch.rand(3, 7, requires_grad=True), torch.rand(3, requires_grad=True)
    args = (*tensors[:3], weight, *tensors[4:], activation, *rows, reduce == "max", mask, pattern)
    torch.library.opcheck(torch.ops.graphmem.propagate.default, args)


@REDUCE
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_is_kept_and_half_is_computed_in_float32(random_graph, reduce, dtype):
    graph = random_graph(17, 60)
    activation = _inputs((3, 17, 60))[0].to(dtype)
    got = propagate(graph, activation, reduce=reduce)
    assert got.dtype == dtype
    exact = propagate(graph, activation.double(), reduce=reduce)
    torch.testing.assert_close(got, exact.to(dtype), rtol=1e-2, atol=1e-3)


@given(st.integers(1, 20), st.integers(0, 60), st.integers(1, 20), st.integers(0, 10**6))
def test_mass_is_balanced(nodes, edges, questions, seed):
    """With fan = degree and weights 1, what arrives is `spread` times what nodes with edges had."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    graph = Graph.from_edges(index, num_nodes=nodes)
    activation = torch.rand(questions, nodes, generator=generator)
    sent = (activation * (graph.out_degree > 0)).sum(1)
    got = propagate(graph, activation, retention=0.25, spread=0.6).sum(1)
    torch.testing.assert_close(got, 0.25 * activation.sum(1) + 0.6 * sent)


@given(st.integers(1, 20), st.integers(0, 60), st.sampled_from(["sum", "max"]), st.integers(0, 999))
def test_renumbering_the_nodes_renumbers_the_result(nodes, edges, reduce, seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    weight = torch.rand(edges, generator=generator)
    activation = torch.rand(2, nodes, generator=generator)
    new = torch.randperm(nodes, generator=generator)
    renamed = torch.empty_like(activation)
    renamed[:, new] = activation
    before = propagate(Graph.from_edges(index, weight, num_nodes=nodes), activation, reduce=reduce)
    after = propagate(Graph.from_edges(new[index], weight, num_nodes=nodes), renamed, reduce=reduce)
    torch.testing.assert_close(after[:, new], before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": torch.zeros(9)}, r"floating point \[B, 9\]"),
        ({"activation": torch.zeros(2, 8)}, r"\[B, 9\]"),
        ({"activation": torch.zeros(2, 9, dtype=torch.int64)}, "floating point"),
        ({"retention": -0.1}, r"retention: expected a number in \[0\.0"),
        ({"spread": float("nan")}, "spread: expected a number in"),
        ({"retention": torch.ones(9)}, r"retention: expected floating point \[2\].* give a number"),
        ({"spread": torch.ones(2, 1)}, r"spread: expected floating point \[\].* give a number"),
        ({"spread": torch.tensor(1)}, "spread: expected floating point"),
        ({"reduce": "mean"}, "'sum', 'max', got 'mean'"),
        ({"fan": "log"}, "'degree', 'sqrt', 'none'"),
        ({"fan": torch.ones(3)}, r"fan: expected \[9\]"),
        ({"fan": torch.ones(3, 9)}, r"fan: expected \[2, 9\]"),
        ({"weight": torch.ones(1, 20)}, "pattern: expected a tensor beside weight, got None"),
        ({"pattern": torch.zeros(2).long()}, "weight: expected a tensor beside pattern, got None"),
        (
            {"weight": torch.ones(1, 3), "pattern": torch.zeros(2).long()},
            r"weight: expected floating point \[P, \d+\].* got .*\[1, 3\]",
        ),
        (
            {"weight": torch.ones(3, 20), "pattern": torch.tensor([0, 3]), "fan": "none"},
            r"pattern: expected numbers in 0\.\.2, got 3; give the pattern of each row",
        ),
        ({"mask": torch.ones(2, 9)}, r"bool \[2, 9\]"),
        ({"mask": torch.ones(1, 9, dtype=torch.bool)}, r"bool \[2, 9\]"),
    ],
)
def test_bad_input_is_refused_by_name(random_graph, change, message):
    arguments = {"activation": torch.zeros(2, 9), **change}
    with pytest.raises(InputError, match=message):
        propagate(random_graph(9, 20), **arguments)


def test_any_memory_layout_gives_a_plain_result(random_graph):
    graph = random_graph(9, 30)
    turned = torch.rand(9, 4, generator=torch.Generator().manual_seed(0)).T
    got = propagate(graph, turned)
    assert got.is_contiguous()
    torch.testing.assert_close(got, propagate(graph, turned.contiguous()))


def test_propagate_without_questions_or_nodes(random_graph):
    assert propagate(random_graph(5, 9), torch.zeros(0, 5)).shape == (0, 5)
    assert propagate(random_graph(0, 0), torch.zeros(2, 0)).shape == (2, 0)


@pytest.mark.cuda
@REDUCE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_cuda_matches_cpu_and_runs_in_a_cuda_graph(random_graph, reduce, dtype):
    graph = random_graph(5000, 60_000, hub=True)
    activation, mask = _inputs((17, 5000, 0))
    activation, away = activation.to(dtype), graph.to("cuda")
    there = (activation.to("cuda"), mask.to("cuda"))
    # In float64: the sequential float32 sum of a hub of 30,000 edges is off by 1e-3.
    expected = propagate(graph, activation.double(), reduce=reduce, mask=mask).to(dtype)
    tolerance = {"rtol": max(1e-5, torch.finfo(dtype).eps), "atol": 1e-5}
    got = propagate(away, there[0], reduce=reduce, mask=there[1])
    torch.testing.assert_close(got.cpu(), expected, **tolerance)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        got = propagate(away, there[0], reduce=reduce, mask=there[1])
    captured.replay()
    torch.testing.assert_close(got.cpu(), expected, **tolerance)
