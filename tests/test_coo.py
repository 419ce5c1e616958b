"""Sizes that 32 and 64 bits do not hold are refused, with what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmem_torch.coo import MAX_TYPE, expect_keyed, int32_offsets
from graphmem_torch.errors import InputError


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
