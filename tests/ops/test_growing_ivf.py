"""GrowingIVF against the products with all earlier rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphmem_torch.ops import knn_graph
from graphmem_torch.ops.growing_ivf import GrowingIVF, Training


def rows_of(count: int, seed: int, dim: int = 24) -> Tensor:
    x = torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(x, dim=1)


@pytest.mark.parametrize("begun", [0, 1, 50])
@pytest.mark.parametrize("least", [-1.0, 0.3])
def test_all_lists_give_all_neighbours(begun: int, least: float) -> None:
    x = torch.cat([rows_of(90, 1), rows_of(90, 1)[:30]])
    training = Training.of(x[:60], 4, least=least)
    lists = GrowingIVF(replace(training, probes=len(training.centroids)))
    labels = lists.add(x[:begun])
    values, numbers, more = lists.follow(x, 4, least=least)
    expected, near = knn_graph(x, 4, start=begun, earlier=True)
    missing = expected < least
    assert torch.equal(numbers, near.masked_fill(missing, -1))
    torch.testing.assert_close(values, expected.masked_fill(missing, -torch.inf))
    assert len(lists) == len(x)
    assert lists.follow(x, 4, least=least)[0].shape == (0, 4)  # nothing is new
    again = GrowingIVF(training)
    assert torch.equal(again.add(x), torch.cat([labels, more]))


def test_training_is_deterministic_and_measures_what_is_needed() -> None:
    x = rows_of(600, 2)
    one, other = (Training.of(x, 5, least=0.0) for _ in range(2))
    assert torch.equal(one.centroids, other.centroids) and torch.equal(one.axes, other.axes)
    assert (one.probes, one.candidates) == (other.probes, other.candidates)
    assert 5 <= one.candidates <= 256
    near = one.measured(torch.cat([x, x[:1].repeat(256, 1)]), 256, 5, least=0.0)
    assert near.probes == 1  # equal rows are in one list


def test_no_neighbour_counts() -> None:
    x = torch.eye(8)
    training = Training.of(x, 3, least=0.5)
    assert training.probes == 1
    values, numbers, _ = GrowingIVF(training).follow(x, 3, least=0.5)
    assert (numbers == -1).all() and (values == -torch.inf).all()
