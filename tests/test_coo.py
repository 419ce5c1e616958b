"""Sizes that 32 and 64 bits do not hold are refused, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.coo import (
    MAX_TYPE,
    edge_keys,
    expect_keyed,
    int32_offsets,
    isin_pairs,
    unique_pairs,
)
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.index.activation_graph import _Arcs
from graphmem_torch.memory.edge_writes import _keys


def test_offsets_beyond_32_bits_are_refused() -> None:
    most = 2**31 - 1
    found = int32_offsets(torch.tensor([most - 1, 1]))
    assert found.dtype == torch.int32 and found.tolist() == [0, most - 1, most]
    assert int32_offsets(torch.empty(0, dtype=torch.int64)).tolist() == [0]
    with pytest.raises(InputError, match=r"at most 2,147,483,647 .*got 2,147,483,648; divide it"):
        int32_offsets(torch.tensor([most, 1]))


def test_keys_of_arcs_are_exact_up_to_the_number_of_nodes_that_is_refused() -> None:
    most = 189_812_531
    expect_keyed(most)
    largest = ((most - 1) * most + (most - 1)) * (MAX_TYPE + 1) + MAX_TYPE
    last = np.array([most - 1], dtype=np.int64)
    assert ((last * most + last) * (MAX_TYPE + 1) + MAX_TYPE).tolist() == [largest]
    beyond = most + 1
    assert (beyond * beyond - 1) * (MAX_TYPE + 1) + MAX_TYPE > np.iinfo(np.int64).max
    with pytest.raises(InputError, match=r"at most 189,812,531 .*got 189,812,532; divide it"):
        expect_keyed(beyond)


@pytest.mark.parametrize("make", [torch.tensor, np.array])
def test_keys_of_edges_rise_with_source_target_and_type(make: Callable[[list[int]], Any]) -> None:
    most = 189_812_531
    ends = [0, 1, most // 2, most - 1]
    edges = [(s, t, kind) for s in ends for t in ends for kind in (0, 7, MAX_TYPE)]
    keys = edge_keys(*(make(list(column)) for column in zip(*edges, strict=True)), most)
    assert keys.tolist() == [(s * most + t) * 256 + kind for s, t, kind in edges]
    assert sorted(keys.tolist()) == keys.tolist() and keys.tolist()[-1] < 2**63
    with pytest.raises(InputError, match="shards"):
        edge_keys(make([0]), make([0]), make([0]), most + 1)


def test_edges_of_nodes_that_no_key_numbers_are_refused() -> None:
    """Arcs of the index, edges to connect and edges added again, by shapes alone."""
    high = 190_000_000
    one = np.array([high - 1], dtype=np.int64)
    arcs = _Arcs(one, one, np.zeros(1, np.uint8), np.ones(1, np.float32))
    assert arcs.key(189_812_531).dtype == np.int64
    with pytest.raises(InputError, match=r"shards \(`graphmem index --shards`\)"):
        arcs.key(high)
    edge = EdgeBlock.of(torch.tensor([high]), torch.tensor([0]), EdgeType.SIMILARITY, 1.0)
    with pytest.raises(InputError, match="shards"):
        _keys(edge, high)


def test_pairs_of_numbers_that_no_key_holds_are_refused() -> None:
    most = 3_037_000_499
    pairs = torch.tensor([[most - 1, 0], [most - 1, most - 1]])
    assert isin_pairs(pairs, pairs[:, :1]).tolist() == [True, False]
    found, place = unique_pairs(pairs[:, [0, 1, 0]])
    assert found.tolist() == [[0, most - 1], [most - 1, most - 1]] and place.tolist() == [1, 0, 1]
    for check in (lambda x: isin_pairs(x, x), unique_pairs):
        with pytest.raises(InputError, match=r"below 3,037,000,499, got 3,037,000,499"):
            check(pairs + 1)
