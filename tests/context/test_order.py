"""topological_order: against networkx, Kahn's definition and every permutation."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmem_torch.context.order import topological_order
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


@settings(deadline=None, max_examples=150)
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
        (edges((0, 2)), times(0, 1), None, "below 2"),
        (edges((-1, 0)), times(0, 1), None, "below 2"),
        (edges((0, 1)).float(), times(0, 1), None, "int64"),
        (torch.zeros(3, 1, dtype=torch.int64), times(0, 1), None, r"\[2, E\]"),
        (edges(), times(0, 1), torch.zeros(3), "3"),
    ],
)
def test_bad_input(pairs: Tensor, time: Tensor, tie: Tensor | None, word: str) -> None:
    with pytest.raises(InputError, match=word):
        topological_order(pairs, time, tie)
