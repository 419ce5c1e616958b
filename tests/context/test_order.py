"""Orders: what comes first, by relevance, by time, by what leads to what."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.context.order import arrange, check_order, edges_among, topological_order
from graphmem_torch.context.pool import Relations
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError

NAN = math.nan


def edges(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def times(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def ordered(*given: Tensor) -> list[int]:
    return topological_order(*given).tolist()


@pytest.mark.parametrize("seed", range(30))
def test_the_earliest_of_what_is_ready_comes_next(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 40, (1,), generator=g))
    pairs = torch.randint(0, n, (2, 2 * n), generator=g)
    pairs = pairs[:, pairs[0] < pairs[1]]
    label = torch.randperm(n, generator=g)
    pairs = label[pairs]
    time = torch.randint(0, 6, (n,), generator=g).double()
    tie = torch.randint(0, 3, (n,), generator=g)
    graph = nx.DiGraph(pairs.T.tolist())
    graph.add_nodes_from(range(n))
    want = nx.lexicographical_topological_sort(
        graph, key=lambda i: (float(time[i]), int(tie[i]), i)
    )
    assert ordered(pairs, time, tie) == list(want)


@given(st.data())
def test_edges_point_forward_and_cycles_stay_together(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    node = st.integers(0, n - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=24))
    time = data.draw(st.lists(st.sampled_from([NAN, 0.0, 1.0, 2.0]), min_size=n, max_size=n))
    order = ordered(edges(*pairs), times(*time))
    assert sorted(order) == list(range(n))
    graph = nx.DiGraph(pairs)
    graph.add_nodes_from(range(n))
    group = {i: k for k, part in enumerate(nx.strongly_connected_components(graph)) for i in part}
    place = {item: at for at, item in enumerate(order)}
    assert all(place[a] < place[b] for a, b in pairs if group[a] != group[b])
    runs = [key for key, _ in itertools.groupby(order, key=group.__getitem__)]
    assert len(runs) == len(set(runs))
    for _, run in itertools.groupby(order, key=group.__getitem__):
        known = [time[i] for i in run if not math.isnan(time[i])]
        assert known == sorted(known)


def test_without_edges_time_then_tie_then_place_decide() -> None:
    assert ordered(edges(), times(2, 1, 1, 0), torch.tensor([0, 5, 4, 9])) == [3, 2, 1, 0]
    assert ordered(edges(), times(1, 1, 1)) == [0, 1, 2]
    assert ordered(edges(), times()) == []


def test_self_loops_and_edges_named_twice_change_nothing() -> None:
    assert ordered(edges((0, 0), (1, 0), (1, 0), (2, 2)), times(0, 1, 2)) == [1, 0, 2]


def test_a_cycle_is_unfolded_by_time_at_the_place_of_its_first() -> None:
    chain = edges((1, 2), (2, 3), (3, 1), (3, 0))
    assert ordered(chain, times(0, 7, 5, 9, 6)) == [2, 1, 3, 0, 4]
    everything = edges((0, 1), (1, 2), (2, 0))
    assert ordered(everything, times(3, 2, 1)) == [2, 1, 0]


def test_an_unknown_time_is_that_of_what_it_leads_to_or_follows() -> None:
    # 3 is needed by 1 and would otherwise hold it back; 4 follows from 0.
    assert ordered(edges((3, 1), (0, 4)), times(1, 2, 3, NAN, NAN)) == [0, 4, 3, 1, 2]
    assert ordered(edges(), times(NAN, 1, NAN)) == [1, 0, 2]
    assert ordered(edges((0, 1), (1, 2)), times(NAN, NAN, NAN)) == [0, 1, 2]
    assert ordered(edges((0, 1), (1, 0)), times(NAN, NAN)) == [0, 1]


def test_a_long_chain_and_a_large_batch() -> None:
    n = 10_000
    chain = torch.stack([torch.arange(1, n), torch.arange(n - 1)])
    assert ordered(chain, torch.arange(n).double()) == list(range(n))[::-1]
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    assert ordered(ring, torch.arange(n).double()) == list(range(n))


@pytest.mark.parametrize(
    ("pairs", "time", "tie", "word"),
    [
        (edges((0, 2)), times(0, 1), None, "numbers in 0..1"),
        (edges((-1, 0)), times(0, 1), None, "numbers in 0..1"),
        (edges((0, 1)).float(), times(0, 1), None, "int64"),
        (torch.zeros(3, 1, dtype=torch.int64), times(0, 1), None, r"\[2, E\]"),
        (edges(), times(0, 1), torch.zeros(3), "3"),
    ],
)
def test_bad_input(pairs: Tensor, time: Tensor, tie: Tensor | None, word: str) -> None:
    with pytest.raises(InputError, match=word):
        topological_order(pairs, time, tie)


STORED = torch.tensor([4, 0, 9, 2, 7])
TIME = torch.tensor([30.0, 10.0, 20.0, math.nan, 20.0], dtype=torch.float64)
PLACE = torch.tensor([2.0, 0.5, 0.0, 3.0, 1.0])
NONE = torch.zeros(2, 0, dtype=torch.int64)


def test_by_relevance_and_by_time() -> None:
    by = {"place": PLACE, "time": TIME, "stored": STORED, "edges": NONE}
    assert arrange("relevance", **by).tolist() == [2, 1, 4, 0, 3]
    # What has no time stands behind what was stored before it.
    assert arrange("time", **by).tolist() == [1, 3, 4, 2, 0]


def test_the_first_of_all_without_a_time() -> None:
    time = torch.tensor([math.nan, 5.0, math.nan], dtype=torch.float64)
    stored = torch.tensor([0, 1, 2])
    for order in ("time", "topological"):
        found = arrange(order, place=stored, time=time, stored=stored, edges=NONE)
        assert found.tolist() == [0, 1, 2]


def test_by_what_comes_first() -> None:
    edges = torch.tensor([[0, 2], [1, 3]])
    found = arrange("topological", place=PLACE, time=TIME, stored=STORED, edges=edges).tolist()
    assert found.index(0) < found.index(1)
    assert found.index(2) < found.index(3)
    by_time = arrange("time", place=PLACE, time=TIME, stored=STORED, edges=edges)
    assert by_time.tolist() == [1, 3, 4, 2, 0]


def test_only_relations_between_what_was_chosen() -> None:
    block = EdgeBlock.of([0, 3, 1], [3, 5, 4], int(EdgeType.DEPENDENCY), 1.0)
    relations = Relations.of(block, ("dependency",), 6)
    rows = torch.tensor([5, 0, 3])
    assert edges_among(rows, relations).T.tolist() == [[2, 1], [0, 2]]
    assert edges_among(rows[:0], relations).shape == (2, 0)


def test_unknown_orders() -> None:
    with pytest.raises(InputError, match="expected one of 'relevance', 'time', 'topological'"):
        check_order("chronological")
