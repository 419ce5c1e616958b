"""The size of a tile of work, by device."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.ops.tiles import free_bytes, tile_elements

CUDA = torch.device("cuda:0")


def test_tile_elements_of_a_cpu_are_as_asked():
    assert tile_elements(torch.device("cpu"), 1000) == 1000
    assert tile_elements(torch.device("cpu"), 1000, free=80 << 30) == 1000


@pytest.mark.parametrize(("gigabytes", "expected"), [(80, 1 << 28), (24, 1 << 26), (8, 1 << 24)])
def test_tile_elements_of_a_gpu_follow_its_free_memory(gigabytes, expected):
    assert tile_elements(CUDA, 1 << 23, free=gigabytes * 10**9) == expected


def test_tile_elements_of_a_full_gpu_are_those_of_a_cpu():
    assert tile_elements(CUDA, 1 << 23, free=0) == 1 << 23


@pytest.mark.cuda
def test_free_bytes_count_what_torch_holds_unused():
    before = free_bytes(CUDA)
    held = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    assert before - free_bytes(CUDA) >= 1 << 28
    del held
    assert abs(free_bytes(CUDA) - before) < 1 << 27
