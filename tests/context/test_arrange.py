"""The order in which chosen memories are read."""

from __future__ import annotations

import math

import pytest
import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.context.order import arrange, check_order, edges_among
from graphmem_torch.context.pool import Relations
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError

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
    with pytest.raises(InputError, match="expected one of relevance, time, topological"):
        check_order("chronological")
