"""Graph against scipy.sparse, networkx and plain Python."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
import subprocess
import sys
from collections import defaultdict

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.coo import pointers
from graphmem_torch.errors import InputError
from graphmem_torch.graph import GRAPH_PARTS, Graph, Stored
from graphmem_torch.ops.appendable_graph import AppendableGraph

EDGES = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 6),
        st.integers(0, 2),
        st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]),
    ),
    max_size=40,
)


def _graph(edges: list[tuple[int, int, int, float]], nodes: int = 7) -> Graph:
    columns = torch.tensor([e[:3] for e in edges], dtype=torch.int64).reshape(-1, 3).T
    weight = torch.tensor([e[3] for e in edges])
    return Graph.from_edges(columns[:2], weight, type=columns[2], num_nodes=nodes)


def _listed(graph: Graph) -> list[tuple[int, int, int, float]]:
    columns = (graph.source, graph.target, graph.type, graph.weight)
    return list(zip(*(c.tolist() for c in columns), strict=True))


@given(EDGES)
def test_parallel_edges_merge_into_the_strongest_and_the_first_on_a_tie(edges):
    best: dict[tuple[int, int, int], float] = {}
    for source, target, kind, weight in edges:
        key = (target, source, kind)
        if key not in best or abs(weight) > abs(best[key]):
            best[key] = weight
    expected = [(s, t, k, w) for (t, s, k), w in sorted(best.items())]
    assert _listed(_graph(edges)) == expected


@given(EDGES)
def test_both_compressions_agree_with_scipy(edges):
    graph = _graph(edges)
    dense = np.zeros((7, 7))
    for source, target, _, weight in _listed(graph):
        dense[target, source] += weight
    arrays = (graph.weight.numpy(), graph.source.numpy(), graph.indptr.numpy())
    assert np.allclose(scipy.sparse.csr_array(arrays, shape=(7, 7)).toarray(), dense)
    indptr, edge = graph.by_source()
    arrays = (graph.weight[edge].numpy(), graph.target[edge].numpy(), indptr.numpy())
    assert np.allclose(scipy.sparse.csr_array(arrays, shape=(7, 7)).toarray(), dense.T)
    assert graph.out_degree.tolist() == np.diff(indptr.numpy()).tolist()
    assert graph.in_degree.sum() == graph.num_edges


@given(EDGES, st.integers(0, 4), st.sampled_from(["source", "target"]))
def test_topk_edges_keeps_the_strongest_of_every_node(edges, k, by):
    graph = _graph(edges)
    own = defaultdict(list)
    for edge in _listed(graph):
        own[edge[by == "target"]].append(edge)
    kept = [e for out in own.values() for e in sorted(out, key=lambda e: -abs(e[3]))[:k]]
    assert sorted(_listed(graph.topk_edges(k, by=by, ties="first"))) == sorted(kept)
    fair = _listed(graph.topk_edges(k, by=by))
    assert set(fair) <= set(_listed(graph))

    def strengths(chosen):
        return sorted((edge[by == "target"], abs(edge[3])) for edge in chosen)

    assert strengths(fair) == strengths(kept)
    assert fair == _listed(graph.topk_edges(k, by=by))


def test_topk_edges_prefers_no_node_where_weights_are_equal():
    """20 of 100 equal edges of each of 400 nodes are kept: every target as often as any other."""
    source = torch.arange(400).repeat_interleave(100)
    target = 400 + torch.arange(100).repeat(400)
    graph = Graph.from_edges(torch.stack([source, target]))
    kept = graph.topk_edges(20)
    assert kept.out_degree[:400].unique().tolist() == [20]
    # 400 draws of probability 0.2: mean 80, standard deviation 8.
    assert (kept.in_degree[400:] - 80).abs().max() < 40
    assert abs(float(kept.in_degree[400:450].sum()) - 4000) < 300


@given(EDGES, st.lists(st.booleans(), min_size=40, max_size=40))
def test_selecting_is_filtering(edges, drawn):
    graph = _graph(edges)
    mask = torch.tensor(drawn[: graph.num_edges], dtype=torch.bool)
    expected = [e for e, keep in zip(_listed(graph), mask.tolist(), strict=True) if keep]
    chosen = graph.select(mask)
    assert _listed(chosen) == expected
    assert chosen.num_nodes == graph.num_nodes


def test_any_integers_and_layout_give_the_same_graph():
    drawn = torch.randint(0, 7, (40, 2), generator=torch.Generator().manual_seed(0))
    expected = _listed(Graph.from_edges(drawn.T.contiguous()))
    for dtype in (torch.int64, torch.int32, torch.uint8):
        assert _listed(Graph.from_edges(drawn.to(dtype).T)) == expected


def test_a_gradient_flows_to_the_edge_that_wins():
    weight = torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64, requires_grad=True)
    graph = Graph.from_edges(torch.tensor([[0, 0, 1], [1, 1, 0]]), weight)
    (graph.weight * torch.tensor([3.0, 5.0])).sum().backward()
    assert weight.grad.tolist() == [0.0, 5.0, 3.0]


def test_another_default_dtype_changes_nothing():
    expected = _listed(_graph([(0, 1, 0, 0.5), (0, 1, 0, 0.7)]))
    torch.set_default_dtype(torch.float64)
    try:
        edges = torch.tensor([[0, 0], [1, 1]])
        found = Graph.from_edges(edges, torch.tensor([0.5, 0.7], dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)
    assert _listed(found) == expected


def test_dtypes_are_as_documented():
    graph = _graph([(0, 1, 2, 0.5)])
    assert (graph.indptr.dtype, graph.source.dtype, graph.target.dtype) == (torch.int32,) * 3
    assert (graph.out_indptr.dtype, graph.out_edge.dtype) == (torch.int32,) * 2
    assert (graph.weight.dtype, graph.type.dtype) == (torch.float32, torch.uint8)
    assert graph.edge_index.tolist() == [[0], [1]]


def test_no_edges_and_no_nodes():
    none = torch.empty(2, 0, dtype=torch.int64)
    assert Graph.from_edges(none).num_nodes == 0
    graph = Graph.from_edges(none, num_nodes=3)
    assert graph.indptr.tolist() == [0, 0, 0, 0]
    assert graph.topk_edges(2).num_edges == 0


def test_time_follows_the_edge_that_wins():
    graph = Graph.from_edges(
        torch.tensor([[0, 0, 1], [1, 1, 0]]),
        torch.tensor([0.1, 0.9, 0.3]),
        time=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
    )
    assert graph.time is not None
    assert graph.time.tolist() == [3.0, 2.0]
    assert graph.select(graph.weight > 0.5).time.tolist() == [2.0]


def test_weights_can_be_replaced_and_learned():
    graph = _graph([(0, 1, 0, 0.5), (1, 2, 0, 0.7)])
    weight = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    assert graph.with_weight(weight).weight is weight
    with pytest.raises(InputError, match=r"floating point \[2\] .*got torch.float32 \[3\]"):
        graph.with_weight(torch.ones(3))


def test_weights_that_are_not_finite_are_refused_everywhere():
    graph = _graph([(0, 1, 0, 0.5), (1, 2, 0, 0.7)])
    for bad in (torch.nan, torch.inf, -torch.inf):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            weight = torch.tensor([1.0, bad], dtype=dtype)
            for each in (weight, weight.clone().requires_grad_()):
                with pytest.raises(InputError, match=r"weight: expected finite .* at edge 1"):
                    graph.with_weight(each)
    large = graph.with_weight(torch.tensor([1.0, 1e200], dtype=torch.float64))
    assert large.weight.tolist() == [1.0, 1e200]
    with pytest.raises(InputError, match=r"in the range of torch.float16, got 1e\+200 at edge 1"):
        large.to(torch.float16)
    with pytest.raises(InputError, match=r"in the range of torch.float32, got 1e\+200 at edge 1"):
        Graph.from_edges(graph.edge_index, large.weight)
    with pytest.raises(InputError, match=r"weight: expected real numbers, got torch\.complex64"):
        Graph.from_edges(graph.edge_index, torch.tensor([1.0, 1j]))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"weight": None}, "weight: expected a number, got None at the edge \\('a', 'b'\\)"),
        ({"weight": "heavy"}, "weight: expected a number, got 'heavy'"),
        ({"weight": float("nan")}, "weight: expected finite numbers, got nan"),
        ({"type": 1.5}, "type: expected a whole number, got 1.5"),
        ({"type": float("inf")}, "type: expected a whole number, got inf"),
        ({"type": "3"}, "type: expected a whole number, got '3'"),
    ],
)
def test_bad_attributes_of_networkx_are_refused_by_name(attributes, message):
    drawn = nx.DiGraph()
    drawn.add_edge("a", "b", **attributes)
    with pytest.raises(InputError, match=message):
        Graph.from_networkx(drawn)


def _same(one: Graph, other: Graph) -> bool:
    parts = [(getattr(one, name), getattr(other, name)) for name in GRAPH_PARTS]
    if one.time is not None and other.time is not None:
        parts.append((one.time.nan_to_num(-1.0), other.time.nan_to_num(-1.0)))
    equal = all(a.dtype == b.dtype and torch.equal(a, b) for a, b in parts)
    timed = (one.time is None) == (other.time is None)
    return equal and timed and one.num_nodes == other.num_nodes


def _several() -> list[Graph]:
    drawn = torch.randint(0, 9, (2, 40), generator=torch.Generator().manual_seed(1))
    time = torch.where(torch.arange(40) % 3 == 0, torch.nan, torch.arange(40).double())
    graph = Graph.from_edges(drawn, torch.rand(40) - 0.5, type=drawn[0] % 4, num_nodes=12)
    timed = Graph.from_edges(drawn, type=drawn[1], time=time, num_nodes=9)
    wide = graph.with_weight(torch.full((graph.num_edges,), 1e200, dtype=torch.float64))
    return [graph, timed, wide, Graph.from_edges(torch.empty(2, 0, dtype=torch.int64))]


@pytest.mark.parametrize("place", range(4))
def test_a_graph_is_copied_pickled_and_saved_exactly(place):
    graph = _several()[place]
    for found in (copy.copy(graph), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert _same(found, graph)
    file = io.BytesIO()
    torch.save({"graph": graph, "x": torch.ones(2)}, file)
    file.seek(0)
    assert _same(torch.load(file, weights_only=True)["graph"], graph)
    if graph.num_edges:
        assert copy.deepcopy(graph).weight.data_ptr() != graph.weight.data_ptr()
    weight = graph.weight.clone().requires_grad_()
    assert copy.deepcopy(graph.with_weight(weight)).weight.requires_grad


def test_a_file_cannot_bring_columns_of_no_graph():
    """What the constructor takes unchecked is checked when it comes from a file."""
    graph = _several()[0]
    source = graph.source.clone()
    source[0] = 99
    weight = torch.full_like(graph.weight, torch.nan)
    for changed, message in (
        ({"source": source}, r"edge_index: expected numbers in 0\.\.11, got 99"),
        ({"weight": weight}, "weight: expected finite"),
        ({"target": graph.target.flip(0)}, "edge_index: expected sorted edges"),
        ({"type": graph.type[1:]}, "type: expected"),
    ):
        file = io.BytesIO()
        torch.save(dataclasses.replace(graph, **changed), file)
        file.seek(0)
        with pytest.raises(InputError, match=message):
            torch.load(file, weights_only=True)


def test_a_graph_is_sent_to_another_process_and_back(tmp_path):
    graph = _several()[1]
    torch.save(graph, tmp_path / "graph.pt")
    code = (
        "import sys, torch\n"
        "from graphmem_torch import Graph\n"
        "graph = torch.load(sys.argv[1], weights_only=True)\n"
        "assert isinstance(graph, Graph)\n"
        "torch.save(graph.with_weight(graph.weight * 2), sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "graph.pt")], check=True)
    found = torch.load(tmp_path / "graph.pt", weights_only=True)
    assert _same(found, graph.with_weight(graph.weight * 2))


def test_lists_that_grow_are_saved_as_a_graph():
    source, target = torch.tensor([[0, 0, 2], [1, 2, 0]])
    stored = Stored(source.int(), target.int(), torch.tensor([0.5, 1.0, 2.0]), source.byte())
    listed = AppendableGraph(torch.tensor([0, 2, 2]), torch.tensor([2, 0, 1]), stored)
    file = io.BytesIO()
    torch.save(listed, file)
    file.seek(0)
    expected = Graph.from_edges(
        torch.stack([source, target]), stored.weight, type=stored.type, num_nodes=3
    )
    wide = listed.to(torch.float64).to(torch.float32)
    for found in (torch.load(file, weights_only=True), copy.deepcopy(listed), listed.cpu(), wide):
        assert type(found) is Graph
        assert _same(found, expected)


def test_cpu_is_to_cpu():
    for graph in _several():
        assert _same(graph.cpu(), graph)
        assert _same(graph.cpu(), graph.to("cpu"))
        assert graph.to("meta").device.type == "meta"


def test_to_a_dtype_moves_the_weights_only():
    graph = Graph.from_edges(
        torch.tensor([[0, 1], [1, 2]]), torch.tensor([0.1, 0.2]), time=torch.tensor([1.5, 2.5])
    )
    for moved in (graph.to(torch.float16), graph.to("cpu", torch.float16)):
        assert moved.weight.dtype == torch.float16
        assert (moved.indptr.dtype, moved.type.dtype) == (torch.int32, torch.uint8)
        assert moved.time.dtype == torch.float64
    assert graph.to(dtype=torch.float64).weight.tolist() == graph.weight.double().tolist()
    assert graph.to("cpu").weight.dtype == torch.float32


@pytest.mark.parametrize("timed", [False, True])
def test_a_saved_graph_comes_back_bit_by_bit(tmp_path, timed):
    pytest.importorskip("safetensors")
    drawn = torch.randint(0, 30, (2, 200), generator=torch.Generator().manual_seed(0))
    time = torch.where(torch.arange(200) % 3 == 0, torch.nan, torch.arange(200).double())
    graph = Graph.from_edges(drawn, type=drawn[0] % 4, time=time if timed else None, num_nodes=40)
    graph = graph.with_weight(torch.randn(graph.num_edges, dtype=torch.float64))
    graph.save(tmp_path / "graph.safetensors")
    found = Graph.load(str(tmp_path / "graph.safetensors"))
    assert found.num_nodes == 40
    for name in ("indptr", "source", "target", "weight", "type", "out_indptr", "out_edge"):
        assert torch.equal(getattr(found, name), getattr(graph, name))
    assert found.weight.dtype == torch.float64
    if timed:
        assert torch.equal(found.time.nan_to_num(-1), graph.time.nan_to_num(-1))
    assert [path.name for path in tmp_path.iterdir()] == ["graph.safetensors"]


def test_a_truncated_or_foreign_file_is_refused(tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    path = tmp_path / "graph.safetensors"
    _graph([(0, 1, 0, 0.5), (4, 2, 1, 1.0)]).save(path)
    whole = path.read_bytes()
    for part in (whole[:-3], whole[:20], b"", b"not tensors at all"):
        path.write_bytes(part)
        with pytest.raises(InputError, match=r"expected a whole safetensors file, got .*save it"):
            Graph.load(path)
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(InputError, match=r"expected a file of Graph.save .* with no format"):
        Graph.load(path)
    with pytest.raises(FileNotFoundError):
        Graph.load(tmp_path / "none")
    said = {"format": "graphmem_torch.Graph 1", "num_nodes": "3"}
    columns = {"weight": torch.ones(2), "type": torch.zeros(2, dtype=torch.uint8)}
    save_file({"edge_index": torch.tensor([[1, 0], [2, 1]]), **columns}, path, metadata=said)
    with pytest.raises(InputError, match="expected sorted edges"):
        Graph.load(path)
    save_file({"edge_index": torch.tensor([[0, 1], [1, 9]]), **columns}, path, metadata=said)
    with pytest.raises(InputError, match=r"in 0\.\.2, got 9"):
        Graph.load(path)


def test_repr_says_what_is_there():
    time = torch.tensor([1.0, torch.nan, 3.0])
    graph = Graph.from_edges(
        torch.tensor([[0, 1, 2], [1, 2, 3]]),
        torch.tensor([0.5, -1.0, 2.0]),
        type=torch.tensor([1, 1, 7]),
        time=time,
    )
    assert repr(graph) == (
        "Graph(num_nodes=4, num_edges=3, types={1: 2, 7: 1}, weight=float32 in [-1, 2], timed=2, "
        "device='cpu')"
    )
    none = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    assert repr(none) == "Graph(num_nodes=3, num_edges=0, device='cpu')"


def test_more_edges_than_an_int32_counts_are_refused():
    with pytest.raises(InputError, match="at most 2147483647"):
        Graph.from_edges(torch.empty(2, 1 << 31, dtype=torch.int32, device="meta"))
    with pytest.raises(InputError, match="edges: expected at most 2,147,483,647 in one graph"):
        pointers(torch.empty(1 << 31, dtype=torch.int32, device="meta"), 3)


def test_from_networkx():
    drawn = nx.DiGraph()
    drawn.add_edge("a", "b", weight=0.5, type=3)
    drawn.add_edge("c", "a")
    assert _listed(Graph.from_networkx(drawn)) == [(2, 0, 0, 1.0), (0, 1, 3, 0.5)]
    assert Graph.from_networkx(nx.path_graph(3)).num_edges == 4
    assert Graph.from_networkx(nx.DiGraph()).num_nodes == 0
    parallel = nx.MultiGraph([("a", "b", {"weight": 0.5}), ("a", "b", {"weight": -2.0})])
    parallel.add_edge("b", "b", weight=3.0)
    parallel.add_node("alone")
    found = Graph.from_networkx(parallel)
    assert _listed(found) == [(1, 0, 0, -2.0), (0, 1, 0, -2.0), (1, 1, 0, 3.0)]
    assert found.num_nodes == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"edge_index": torch.zeros(3, 2, dtype=torch.int64)},
            r"integers \[2, E\], got torch.int64 \[3, 2\]",
        ),
        ({"edge_index": torch.zeros(2, 2)}, r"integers \[2, E\], got torch.float32"),
        (
            {"edge_index": torch.zeros(2, 2, dtype=torch.complex128)},
            r"integers \[2, E\], got torch.complex",
        ),
        ({"edge_index": torch.tensor([[0, 9], [1, 1]])}, r"in 0\.\.4, got 9"),
        ({"edge_index": torch.tensor([[0, -1], [1, 1]])}, r"in 0\.\.4, got -1"),
        ({"weight": torch.tensor([1.0, float("nan")])}, "finite numbers, got nan at edge 1"),
        ({"weight": torch.tensor([1.0])}, r"weight: expected \[2\] .*got torch.float32 \[1\]"),
        ({"weight": torch.ones(2, device="meta")}, "weight: expected .* on cpu, got .* on meta"),
        ({"type": torch.tensor([0, 300])}, r"in 0\.\.255, got 300"),
        ({"type": torch.tensor([0.0, 0.5])}, "type: expected integers, got torch.float32"),
        ({"type": torch.zeros(2, dtype=torch.int64, device="meta")}, "type: expected .* on cpu"),
        ({"time": torch.zeros(3)}, r"time: expected \[2\]"),
        ({"num_nodes": -1}, r"num_nodes: expected 0\.\."),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    good = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "num_nodes": 5}
    with pytest.raises(InputError, match=message):
        Graph.from_edges(**{**good, **change})


def test_bad_arguments_of_methods():
    graph = _graph([(0, 1, 0, 0.5)])
    with pytest.raises(InputError, match="k: expected an integer of at least 0, got -1"):
        graph.topk_edges(-1)
    with pytest.raises(InputError, match="by: expected one of 'source', 'target', got 'both'"):
        graph.topk_edges(1, by="both")
    with pytest.raises(InputError, match="ties: expected one of 'fair', 'first', got 'last'"):
        graph.topk_edges(1, ties="last")
    with pytest.raises(InputError, match=r"dtype: expected a floating-point type, got torch.int64"):
        graph.to(torch.int64)
    with pytest.raises(InputError, match="mask: expected bool"):
        graph.select(torch.ones(1))


@pytest.mark.cuda
def test_moving_there_and_back():
    graph = _graph([(0, 1, 0, 0.5), (4, 2, 1, 1.0)])
    there = graph.to("cuda")
    assert there.device.type == graph.cuda().device.type == "cuda"
    assert _same(there.cpu(), graph)
    with pytest.raises(InputError, match="weight: expected finite"):
        there.with_weight(there.weight / 0)
    assert _same(pickle.loads(pickle.dumps(there)).cpu(), graph)
    assert _listed(there.topk_edges(1).to("cpu")) == _listed(graph.topk_edges(1))


def test_zeroed_keeps_edges() -> None:
    graph = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), weight=torch.tensor([1.0, 2, 3]))
    mask = graph.source == 1
    found = graph.zeroed(mask)
    assert torch.equal(found.weight, torch.where(mask, 0.0, graph.weight))
    assert torch.equal(found.edge_index, graph.edge_index)
    with pytest.raises(InputError, match="mask"):
        graph.zeroed(mask[:2])
