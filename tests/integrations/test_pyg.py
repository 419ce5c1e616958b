"""Graphs to and from PyG, and its `RAGQueryLoader` over a memory."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch import Memory
from graphmem_torch.atoms import EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.graph import GRAPH_PARTS, Graph
from graphmem_torch.integrations.pyg import (
    MemoryFeatureStore,
    MemoryGraphStore,
    TypedGraph,
    from_memory,
    from_pyg,
    to_pyg,
)
from tests.memories import ids

data = pytest.importorskip("torch_geometric.data")
llm = pytest.importorskip("torch_geometric.llm")

TEXTS = [
    "Ada Lovelace lives in Lisbon.",
    "Bertrand Russell likes Lisbon and Ada Lovelace.",
    "Nora flies to Lisbon.",
    "Nora met Bertrand Russell.",
    "The weather in Porto is fine.",
    "Nothing happened today.",
]


def _graph(seed: int = 0, nodes: int = 9, edges: int = 30) -> Graph:
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, edges), generator=draw)
    time = torch.where(torch.arange(edges) % 3 == 0, torch.nan, torch.arange(edges).double())
    kind = torch.randint(0, 14, (edges,), generator=draw)
    weight = torch.randn(edges, generator=draw)
    return Graph.from_edges(ends, weight, type=kind, time=time, num_nodes=nodes + 2)


def _same(one: Graph, other: Graph) -> bool:
    parts = [(getattr(one, name), getattr(other, name)) for name in GRAPH_PARTS]
    if one.time is not None and other.time is not None:
        parts.append((one.time.nan_to_num(-1.0), other.time.nan_to_num(-1.0)))
    equal = all(a.dtype == b.dtype and torch.equal(a, b) for a, b in parts)
    return equal and (one.time is None) == (other.time is None)


def _equal(one: Any, other: Any) -> bool:
    """Whether two graphs of PyG have the same stores, attributes, dtypes and values."""
    stores = list(zip(one.stores, other.stores, strict=True))
    if type(one) is not type(other):
        return False
    if hasattr(one, "edge_types"):
        assert (one.node_types, one.edge_types) == (other.node_types, other.edge_types)
    for left, right in stores:
        if {*left.keys()} != {*right.keys()}:
            return False
        for name, value in left.items():
            known = right[name]
            if not isinstance(value, torch.Tensor):
                equal = value == known
            else:
                equal = value.dtype == known.dtype and torch.equal(
                    *(torch.nan_to_num(v) if v.is_floating_point() else v for v in (value, known))
                )
            if not equal:
                return False
    return True


def _hetero() -> Any:
    made = data.HeteroData()
    made["user"].x = torch.randn(3, 4)
    made["item"].x, made["item"].y = torch.randn(2, 7), torch.tensor([1, 0])
    made["item"].title = ["saw", "oar"]
    made["tag"].num_nodes = 2
    buys = made["user", "buys", "item"]
    buys.edge_index = torch.tensor([[2, 0, 1], [1, 0, 1]])
    buys.edge_weight = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    buys.edge_attr = torch.randn(3, 2)
    back = made["item", "rev_buys", "user"]
    back.edge_index = torch.tensor([[1, 0], [0, 2]])
    back.edge_time = torch.tensor([torch.nan, 9.0], dtype=torch.float64)
    made["user", "knows", "user"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    made["user", "likes", "item"].edge_index = torch.tensor([[2], [1]], dtype=torch.int32)
    made["user", "likes", "item"].edge_weight = torch.tensor([7])
    return made


def test_heterogeneous_data_there_and_back() -> None:
    made = _hetero()
    found = from_pyg(made)
    assert _equal(to_pyg(found), made)
    assert _same(from_pyg(to_pyg(found)).graph, found.graph)
    assert found.kinds == ("user", "item", "tag") and found.graph.num_nodes == 7
    assert found.kind is not None and found.kind.tolist() == [0, 0, 0, 1, 1, 2, 2]
    graph = found.graph
    columns = (graph.source, graph.target, graph.type, graph.weight)
    assert {*zip(*(c.tolist() for c in columns), strict=True)} == {
        *[(2, 4, 0, 1.0), (0, 3, 0, 0.5), (1, 4, 0, 0.25)],
        *[(4, 0, 1, 1.0), (3, 2, 1, 1.0), (2, 4, 3, 7.0)],
    }
    assert graph.time is not None and graph.time.nansum() == 9
    flat = made.to_homogeneous(node_attrs=[], edge_attrs=[])
    expected = {*zip(*flat.edge_index.tolist(), flat.edge_type.tolist(), strict=True)}
    assert {each[:3] for each in zip(*(c.tolist() for c in columns), strict=True)} == expected


@pytest.mark.parametrize(
    "made",
    [
        lambda e: {"edge_weight": torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)},
        lambda e: {"edge_weight": torch.tensor([1, 1 << 40, 3])},
        lambda e: {"edge_weight": torch.tensor([0.5, 2.0, 1.0], dtype=torch.bfloat16)},
        lambda e: {"edge_weight": torch.tensor([True, False, True])},
        lambda e: {"edge_attr": torch.randn(3)},
        lambda e: {"edge_attr": torch.randn(3, 1)},
        lambda e: {"edge_attr": torch.randn(3, 4), "x": torch.randn(5, 2)},
        lambda e: {"edge_time": torch.tensor([5, 6, 7]), "edge_type": torch.tensor([3, 0, 255])},
        lambda e: {"edge_time": torch.tensor([1.5, torch.nan, 2.0])},
        lambda e: {"y": torch.arange(5), "train_mask": torch.arange(5) > 2, "name": [*"abcde"]},
    ],
)
def test_data_there_and_back(made: Callable[[Any], dict[str, Any]]) -> None:
    edges = torch.tensor([[3, 0, 2], [0, 1, 1]])
    given = data.Data(edge_index=edges, num_nodes=5, **made(edges))
    assert _equal(to_pyg(from_pyg(given)), given)
    assert _equal(to_pyg(copy.deepcopy(from_pyg(given))), given)


@given(st.integers(0, 10_000))
def test_a_graph_there_and_back(seed: int) -> None:
    graph = _graph(seed)
    made = to_pyg(graph)
    assert (made.edge_weight.dtype, made.edge_type.dtype) == (torch.float32, torch.int64)
    assert _same(from_pyg(made).graph, graph)
    draw = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 3, (graph.num_nodes,), generator=draw)
    mixed = TypedGraph(graph, ("turn", "concept", "person"), kind)
    made = to_pyg(mixed)
    found = from_pyg(made)
    assert _same(found.graph, graph)
    assert found.kind is not None and torch.equal(found.kind, kind)
    assert _equal(to_pyg(found), made)
    for source, name, target in made.edge_types:
        store = made[source, name, target]
        (number,) = {*store.edge_type.tolist()}
        assert name == EdgeType(number).name.lower()
        ends = [made[k].n_id[i] for k, i in zip((source, target), store.edge_index, strict=True)]
        known = {*zip(*graph.edge_index.tolist(), graph.type.tolist(), strict=True)}
        assert {(int(s), int(t), number) for s, t in zip(*ends, strict=True)} <= known


def test_weights_of_another_type_are_not_rounded_on_the_way_back() -> None:
    given = data.Data(
        edge_index=torch.tensor([[0], [1]]), edge_weight=torch.tensor([3]), num_nodes=2
    )
    found = from_pyg(given)
    learned = TypedGraph(
        found.graph.with_weight(torch.tensor([0.25])), nodes=found.nodes, layout=found.layout
    )
    assert to_pyg(learned).edge_weight.tolist() == [0.25]
    fewer = TypedGraph(found.graph.select(torch.tensor([False])), layout=found.layout)
    with pytest.raises(InputError, match="graph: expected the 1 edges that from_pyg read, got 0"):
        to_pyg(fewer)


def test_a_gradient_flows_to_the_weights_of_pyg() -> None:
    weight = torch.tensor([0.5, 2.0], requires_grad=True)
    given = data.Data(edge_index=torch.tensor([[1, 0], [0, 1]]), edge_weight=weight, num_nodes=2)
    (from_pyg(given).graph.weight * torch.tensor([3.0, 5.0])).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [3.0, 5.0]


def _with(change: Callable[[Any], None]) -> Any:
    made = _hetero()
    change(made)
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: setattr(h, "title", "shop"), "got title;"),
        (lambda h: setattr(h["tag"], "scale", 2.0), "got scale of tag;"),
        (
            lambda h: setattr(h["user", "buys", "item"], "note", "x"),
            r"got note of \('user', 'buys'",
        ),
        (
            lambda h: setattr(h["user", "knows", "user"], "edge_index", None),
            "edge_index of .*knows",
        ),
        (
            lambda h: setattr(h["user", "buys", "item"], "edge_weight", torch.tensor([1, 2])),
            r"edge_weight of \('user', 'buys', 'item'\): expected \[3\], one for each edge, got",
        ),
        (
            lambda h: setattr(
                h["user", "buys", "item"], "edge_weight", torch.tensor([1.0, torch.nan, 1.0])
            ),
            r"edge_weight of .*buys.* expected finite numbers, got nan at edge 1",
        ),
        (
            lambda h: setattr(
                h["user", "buys", "item"], "edge_time", torch.tensor([1, 2, (1 << 53) + 1])
            ),
            r"edge_time of .*buys.*float64 holds exactly",
        ),
        (
            lambda h: setattr(
                h["user", "buys", "item"], "edge_index", torch.tensor([[0, 9, 1], [0, 1, 1]])
            ),
            r"edge_index of .*buys.* in 0\.\.2, got 9",
        ),
        (
            lambda h: setattr(
                h["user", "buys", "item"], "edge_index", torch.tensor([[0, 1, 0], [1, 1, 1]])
            ),
            r"edge_index of .*buys.* expected each edge once",
        ),
        (
            lambda h: setattr(h["user", "to", "none"], "edge_index", torch.tensor([[0], [0]])),
            "edge_index of .*expected nodes of 'none', got no such node type",
        ),
        (lambda h: delattr(h["tag"], "num_nodes"), "num_nodes of 'tag': expected"),
    ],
)
def test_what_a_graph_cannot_hold_is_named(change: Callable[[Any], None], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        from_pyg(_with(change))
    assert "\n" not in str(error.value)


def test_other_input_is_refused_and_attributes_can_be_dropped() -> None:
    with pytest.raises(InputError, match="data: expected a Data or HeteroData, got dict"):
        from_pyg({})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="edge_index: expected the edges, got none"):
        from_pyg(data.Data(num_nodes=3))
    edges = torch.tensor([[0, 0], [1, 1]])
    with pytest.raises(InputError, match=r"expected each edge once in a type, got \[0, 1\] again"):
        from_pyg(data.Data(edge_index=edges, num_nodes=2))
    typed = data.Data(edge_index=edges, edge_type=torch.tensor([0, 256]), num_nodes=2)
    with pytest.raises(InputError, match=r"edge_type: expected numbers in 0\.\.255, got 256"):
        from_pyg(typed)
    typed.edge_type = torch.tensor([0, 255])
    assert from_pyg(typed).graph.num_edges == 2
    many = data.HeteroData()
    many["a"].num_nodes = 2
    for number in range(257):
        many["a", str(number), "a"].edge_index = edges[:, :1]
    with pytest.raises(InputError, match="at most 256 edge types, got 257"):
        from_pyg(many)
    made = _with(lambda h: setattr(h, "title", "shop"))
    assert from_pyg(made, drop="title").nodes == from_pyg(made, drop=["title"]).nodes
    left = to_pyg(from_pyg(made, drop=["title", "x"]))
    assert left["user"].num_nodes == 3 and "x" not in left["user"] and "title" not in left["item"]
    assert to_pyg(from_pyg(data.HeteroData())).node_types == []
    graph = _graph()
    with pytest.raises(InputError, match=r"kind: expected numbers in 0\.\.1, got 2"):
        to_pyg(TypedGraph(graph, ("a", "b"), torch.full((graph.num_nodes,), 2)))
    with pytest.raises(InputError, match=r"kind: expected integers \[11\], got None"):
        to_pyg(TypedGraph(graph, ("a", "b")))
    with pytest.raises(InputError, match="kinds: expected each name once, got a, a"):
        to_pyg(TypedGraph(graph, ("a", "a"), torch.zeros(graph.num_nodes, dtype=torch.int64)))
    with pytest.raises(InputError, match="graph: expected a Graph or TypedGraph, got Data; from_"):
        to_pyg(typed)


@pytest.fixture(scope="module")
def memory() -> Memory:
    made = Memory.open(embedder="hashing")
    made.add([{"id": f"a{i}", "text": t, "time": 1e9 + i} for i, t in enumerate(TEXTS)])
    return made


def _loader(memory: Memory | Path, config: dict[str, Any] | None = None, **more: Any) -> Any:
    stores = MemoryFeatureStore(memory), MemoryGraphStore()
    return llm.RAGQueryLoader(stores, config=config, **more)


def test_a_query_gives_the_subgraph_of_its_hits(memory: Memory) -> None:
    found = _loader(memory, {"k_nodes": 2, "num_neighbors": [3, 2]}).query("Who lives in Lisbon?")
    assert [n for n, s in zip(found.id, found.seed.tolist(), strict=True) if s] == ids(
        memory.retrieve("Who lives in Lisbon?", k=2)
    )
    atoms = {name: memory.get(name) for name in found.id if not name.startswith("concept:")}
    for name, text, kind, when in zip(
        found.id, found.text, found.kind, found.time.tolist(), strict=True
    ):
        assert kind == "concept" or (text, when) == (atoms[name].text, atoms[name].time)
    assert torch.allclose(found.x.norm(dim=1), torch.ones(len(found.id)), atol=1e-5)
    # All conducting edges between these nodes, with their weights and types, and no others.
    graph = memory.index.graph
    ends = (graph.source, graph.target, graph.type, graph.weight)
    among = {*found.node_idx.tolist()}
    expected = {e for e in zip(*(c.tolist() for c in ends), strict=True) if {*e[:2]} <= among}
    ends = found.node_idx[found.edge_index]
    columns = (*ends.tolist(), found.edge_type.tolist(), found.edge_weight.tolist())
    assert {*zip(*columns, strict=True)} == expected
    assert torch.allclose(found.edge_attr.sum(1), found.edge_weight)
    assert found.edge_attr.argmax(1).tolist() == found.edge_type.tolist()
    found.validate()
    assert from_pyg(found).graph.num_edges == len(expected)


def test_a_sample_is_what_a_plain_walk_finds(memory: Memory) -> None:
    graph, store = memory.index.graph, MemoryGraphStore(MemoryFeatureStore(memory))
    leaving: dict[int, list[tuple[float, int]]] = {}
    for source, target, weight in zip(
        graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True
    ):
        leaving.setdefault(source, []).append((-abs(weight), target))
    for widths in ([2], [3, 2], [-1, 1], [-1, -1, -1], [0], []):
        frontier, reached, sizes = [0, 4], [0, 4], [2]
        for width in widths:
            out: set[int] = set()
            for node in frontier:
                ranked = sorted(leaving.get(node, []))
                out |= {target for _, target in (ranked if width < 0 else ranked[:width])}
            frontier = sorted(out - {*reached})
            reached += frontier
            sizes.append(len(frontier))
        sample = store.sample_subgraph(torch.tensor([0, 4]), num_neighbors=widths)
        assert sample.node.tolist() == reached
        assert sample.num_sampled_nodes == sizes
    both = store.sample_subgraph([0], torch.tensor([[0], [4]]), num_neighbors=[2])
    assert both.node.tolist()[:2] == [0, 4]


def test_several_questions_join_their_hits(memory: Memory) -> None:
    features = MemoryFeatureStore(memory)
    nodes, vectors = features.retrieve_seed_nodes(["Lisbon?", "Porto?"], k_nodes=2)
    single = [features.retrieve_seed_nodes(q, k_nodes=2)[0].tolist() for q in ("Lisbon?", "Porto?")]
    assert {*nodes.tolist()} == {*single[0], *single[1]}
    assert vectors.shape == (2, memory.store.dim)
    only, _ = features.retrieve_seed_nodes("Lisbon?", where={"id": "a2"})
    assert memory.store.atoms(only.tolist())[0].id == "a2"
    edges = features.retrieve_seed_edges("Lisbon?", k_nodes=4)
    graph = memory.index.graph
    known = {*zip(graph.source.tolist(), graph.target.tolist(), strict=True)}
    assert edges.shape[1] and {*zip(*edges.tolist(), strict=True)} <= known

    class Documents:
        def query(self, query: str) -> list[str]:
            return ["The weather in Porto."]

    loader = _loader(memory, {"k_nodes": 1}, vector_retriever=Documents(), augment_query=True)
    found = loader.query("Who met Bertrand?")
    assert found.text_context == ["The weather in Porto."]
    assert {"a3", "a4"} <= {*found.id}
    batch = data.Batch.from_data_list([loader.query("Porto"), loader.query("Nora")])
    assert batch.num_graphs == 2


def test_configuration_is_checked_by_name(memory: Memory) -> None:
    loader = _loader(memory)
    assert loader.feature_store.config["k_nodes"] == 4
    loader.config = {"k_nodes": 1, "num_neighbors": [0]}
    assert loader.query("Porto").num_nodes == 1
    for config, message in (
        ({"k_node": 1}, "did you mean 'k_nodes'"),
        ({"k_nodes": 0}, "k_nodes: expected an integer of at least 1, got 0"),
        ({"num_neighbors": 3}, "num_neighbors: expected a number for each hop, got 3"),
        ({"num_neighbors": [-2]}, "num_neighbors: expected an integer of at least -1, got -2"),
    ):
        with pytest.raises(InputError, match=message):
            loader.config = config
    store = loader.graph_store
    with pytest.raises(InputError, match="edge_index: expected the edges of the memory"):
        store.edge_index = torch.zeros(2, 1, dtype=torch.int64)
    store.edge_index = store.edge_index.contiguous()
    with pytest.raises(InputError, match="feature_store: expected a MemoryFeatureStore, got dict"):
        store.register_feature_store({})
    with pytest.raises(InputError, match="features: expected a MemoryFeatureStore, got none"):
        MemoryGraphStore().sample_subgraph([0])
    with pytest.raises(InputError, match="seed_nodes: expected numbers in"):
        store.sample_subgraph([10_000])


def test_a_path_is_opened_to_read_and_closed(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "m", embedder="hashing") as made:
        made.add(TEXTS[:3])
        with MemoryFeatureStore(made) as features:
            pass
        assert len(made) == 3  # an open memory stays open
    with MemoryFeatureStore(tmp_path / "m", embedder="hashing") as features:
        loader = llm.RAGQueryLoader((features, MemoryGraphStore()))
        before = loader.query("Nora flies").id
        with Memory.open(tmp_path / "m", embedder="hashing") as other:
            other.add({"id": "new", "text": "Nora flies to Lagos."})
        assert "new" not in before and "new" in loader.query("Nora flies to Lagos").id
    assert features.memory.store.closed


def test_an_empty_memory_and_one_that_changes_meanwhile() -> None:
    with Memory.open(embedder="hashing") as made:
        features, store = MemoryFeatureStore(made), MemoryGraphStore()
        loader = llm.RAGQueryLoader((features, store))
        found = loader.query("anything")
        assert found.num_nodes == 0 and found.edge_index.shape == (2, 0)
        made.add([{"id": f"a{i}", "text": t} for i, t in enumerate(TEXTS)])
        sample = store.sample_subgraph(features.retrieve_seed_nodes("Lisbon")[0])
        before = features.load_subgraph(sample).id
        made.delete("a1")  # and the concepts of no other memory
        left = features.load_subgraph(sample)
        assert "a1" in before and left.num_nodes == len(left.id)
        assert left.id == [name for name in before if name in made.store.ids()]
        left.validate()

        errors: list[BaseException] = []

        def ask() -> None:
            try:
                for _ in range(20):
                    loader.query("Lisbon").validate()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(10):
            made.add({"id": f"b{number}", "text": f"Lisbon and Nora, number {number}."})
            if number:
                made.delete(f"b{number - 1}")
        for thread in threads:
            thread.join()
        assert not errors


@pytest.mark.parametrize("query", [None, 5, {"a"}, {}, b"", b"a", [None], "", " ", ["Lisbon", ""]])
def test_a_question_that_is_none_is_one_line(memory: Memory, query: Any) -> None:
    with pytest.raises(InputError, match=r"^(query|question): expected"):
        _loader(memory).query(query)


@pytest.mark.parametrize("given", ["path", None, 5, Path("path"), {}])
def test_the_graph_of_something_else_is_one_line(given: Any) -> None:
    with pytest.raises(InputError, match=r"^memory: expected an open `Memory`, got"):
        from_memory(given)
    if not isinstance(given, str | Path):
        with pytest.raises(InputError, match=r"^memory: expected a path or a `Memory`, got"):
            MemoryFeatureStore(given)


def test_the_graph_of_a_memory_as_heterogeneous_data(memory: Memory) -> None:
    found = from_memory(memory)
    made = to_pyg(found)
    assert made["chunk"].id == [f"a{i}" for i in range(6)]
    assert made["chunk"].text == TEXTS
    assert made["chunk"].time.tolist() == [1e9 + i for i in range(6)]
    assert {*made.node_types} == {"chunk", "concept"}
    assert found.graph.num_edges == memory.index.graph.num_edges
    assert _equal(to_pyg(from_pyg(made)), made)
    grown = Memory.open(embedder="hashing")
    grown.add([{"id": f"a{i}", "text": t} for i, t in enumerate(TEXTS)])
    grown.add("Ada Lovelace met Nora in Porto.")
    grown.delete("a0")
    mixed = from_memory(grown)
    assert mixed.graph.num_nodes == grown.store.num_nodes
    assert _same(from_pyg(to_pyg(mixed)).graph, mixed.graph)
