"""Successors of a memory as lists, against the same in compressed arrays."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import load_config
from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.graph import Graph, Stored
from graphmem_torch.index.activation_graph import ActivationGraph, activation_graph
from graphmem_torch.index.buffers import Listed
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.ops.appendable_graph import AppendableGraph
from graphmem_torch.ops.postings import PostingLists
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.ops.sparse_rows import SparseRows
from graphmem_torch.ops.spread import spread_activation
from graphmem_torch.rank.paths import strongest_paths
from graphmem_torch.rank.query import QueryBatch

SPREAD = replace(load_config("synapse").spread, max_edges=3)
TYPES = (EdgeType.TEMPORAL, EdgeType.SIMILARITY, EdgeType.ABSTRACTION)
EDGE = st.tuples(
    st.integers(0, 6), st.integers(0, 6), st.sampled_from(TYPES), st.sampled_from([0.3, 0.5, 0.9])
)
STEPS = st.lists(st.tuples(st.lists(EDGE, max_size=6), st.integers(0, 3)), max_size=5)


def block(edges: list[tuple[int, int, EdgeType, float]]) -> EdgeBlock:
    source, target, type, weight = zip(*edges, strict=True) if edges else ((),) * 4
    ends = torch.tensor(source, dtype=torch.int64), torch.tensor(target, dtype=torch.int64)
    return EdgeBlock(*ends, torch.tensor(type, dtype=torch.uint8), torch.tensor(weight).float())


def assert_same(graph: Graph, other: Graph) -> None:
    for field in fields(Graph):
        one, two = getattr(graph, field.name), getattr(other, field.name)
        assert torch.equal(one, two) if isinstance(one, Tensor) else one == two, field.name
    assert graph.num_edges == other.num_edges


@given(STEPS)
def test_what_conducts_follows_every_history(steps: list) -> None:
    """Edges that come and go one after another; a graph that was given out stays as it is."""
    conducting, held, nodes = ActivationGraph(SPREAD), [], 0
    given_out: list[tuple[Graph, Graph]] = []
    for added, cuts in steps:
        nodes = max([nodes, *(max(source, target) + 1 for source, target, _, _ in added)])
        held += added
        cut = [held.pop(0) for _ in range(min(cuts, len(held)))]
        time, order = torch.full((nodes,), torch.nan, dtype=torch.float64), torch.full((nodes,), -1)
        conducting.follow(block(added), block(cut), time, order)
        given_out.append((conducting.graph, activation_graph(block(held), time, SPREAD)))
    for graph, expected in given_out:
        assert_same(graph, expected)


def listed_graph(graph: Graph) -> AppendableGraph:
    """The same graph as lists in reverse order, with an entry that is none between two of them."""
    count = graph.out_degree.long()
    first = (offsets_of(count.flip(0) + 1)[:-1]).flip(0)
    place = ranges(first, count)[1]
    columns = []
    for column in graph.stored:
        spread = torch.full((int((count + 1).sum()),), 1, dtype=column.dtype)
        columns.append(spread.index_copy(0, place, column[graph.out_edge]))
    return AppendableGraph(first, count, Stored(*columns))


def listed_postings(index: MemoryIndex, name: str) -> PostingLists:
    state = index.state_dict()
    indptr, docs, counts = (state[f"{name}_{part}"] for part in ("indptr", "docs", "counts"))
    df = indptr.diff()
    first = (offsets_of(df.flip(0) + 1)[:-1]).flip(0)
    place, size = ranges(first, df)[1], int((df + 1).sum())
    docs, counts = (torch.zeros(size).int().index_copy(0, place, each) for each in (docs, counts))
    return PostingLists(first, df, docs, counts)


def random_graph(nodes: int, edges: int) -> Graph:
    g = torch.Generator().manual_seed(nodes)
    ends = torch.randint(0, nodes, (2, edges), generator=g)
    weight = torch.rand(edges, generator=g) + 0.1
    type = torch.randint(0, 4, (edges,), generator=g)
    return Graph.from_edges(ends, weight, type=type, num_nodes=nodes)


@pytest.mark.parametrize("nodes", [40, 21_000])  # dense rounds, and the frontier
def test_spreading_and_paths_are_those_of_the_compressed_graph(nodes: int) -> None:
    graph = random_graph(nodes, 4 * nodes)
    listed = listed_graph(graph)
    assert listed.device == graph.device and len(listed.fan()) == nodes
    start = SparseRows.of(torch.tensor([[1, 5, -1], [7, 30, 39]]), torch.rand(2, 3), nodes)
    spread, expected = (spread_activation(each, start, rounds=3) for each in (listed, graph))
    assert torch.equal(spread.key, expected.key) and torch.equal(spread.value, expected.value)
    rows = torch.stack([expected.to_dense()[b].topk(9).indices for b in range(2)])
    path, known = (strongest_paths(each, start, rows, rounds=3) for each in (listed, graph))
    assert ((path >= 0) == (known >= 0)).all() and (known >= 0).any()
    for column, other in zip(listed.stored, graph.stored, strict=True):
        assert torch.equal(column[path[path >= 0]], other[known[known >= 0]])
    if nodes > 100:
        assert "_compact" not in listed.__dict__  # nobody had to compress it
    assert_same(listed, graph)
    ones = listed.unweighted()
    assert_same(ones, graph.unweighted())
    twice = 2 * graph.weight
    assert_same(listed.with_weight(twice), graph.with_weight(twice))
    mask = graph.type == 1
    assert_same(listed.select(mask), graph.select(mask))
    assert listed.to(torch.float64).weight.dtype == torch.float64


@pytest.fixture(scope="module")
def pair(
    random_columns: Callable[..., IndexInput],
) -> tuple[MemoryIndex, Callable[[], MemoryIndex]]:
    index = MemoryIndex.build(random_columns(40), load_config("default", {"anchors.k": 3}))
    listed = Listed(
        listed_graph(index.graph), *(listed_postings(index, n) for n in ("bm25", "session_bm25"))
    )
    state = index.state_dict()
    tensors = {name: part for name, part in state.items() if name not in listed.to_tensors()}
    return index, lambda: MemoryIndex(tensors, index.config, listed)


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index,
        deepcopy,
        lambda index: index.to("cpu"),
        lambda index: index.to(torch.float64).float(),
        lambda index: MemoryIndex.from_state_dict(index.state_dict(), index.config),
    ],
)
def test_an_index_of_lists_answers_as_one_of_buffers(
    pair: tuple[MemoryIndex, Callable[[], MemoryIndex]],
    random_questions: Callable[..., QueryBatch],
    change: Callable[[MemoryIndex], MemoryIndex],
) -> None:
    index, made = pair
    other = change(made())
    with torch.inference_mode():  # what it compresses then is of use outside of it
        other(random_questions(12), k=7, paths=True)
    for questions in (random_questions(), random_questions(12)):
        found, expected = (each(questions, k=7, paths=True) for each in (other, index))
        assert torch.equal(found.rows, expected.rows)
        torch.testing.assert_close(found.scores, expected.scores)
        assert torch.equal(found.paths >= 0, expected.paths >= 0)
    assert other.num_nodes == index.num_nodes and repr(other) == repr(index)


def test_a_state_dict_of_lists_is_that_of_buffers(
    pair: tuple[MemoryIndex, Callable[[], MemoryIndex]],
) -> None:
    index, made = pair
    expected = index.state_dict()
    for found in (made().state_dict(), made().half().float().state_dict()):
        assert found.keys() == expected.keys()
    found = made().state_dict()
    assert all(torch.equal(found[name], part) for name, part in expected.items())
    halves, other = (each.half().state_dict() for each in (made(), deepcopy(index)))
    assert all(torch.equal(halves[name], part) for name, part in other.items())
    assert {name for name, _ in made().named_buffers()} >= {"graph_source", "bm25_docs"}
