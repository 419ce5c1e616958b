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


def all_lists(training: Training) -> Training:
    """Return the training with thresholds that every list and row exceeds."""
    return replace(training, gaps=torch.tensor([-torch.inf]), losses=torch.tensor([10.0]))


@pytest.mark.parametrize("begun", [0, 1, 50])
@pytest.mark.parametrize("least", [-1.0, 0.3])
def test_all_lists_give_all_neighbours(begun: int, least: float) -> None:
    x = torch.cat([rows_of(90, 1), rows_of(90, 1)[:30]])
    lists = GrowingIVF(all_lists(Training.of(x[:60], 4, least=least)))
    lists.add(x[:begun])
    values, numbers = lists.follow(x, 4, least=least)
    expected, near = knn_graph(x, 4, start=begun, earlier=True)
    missing = expected < least
    assert torch.equal(numbers, near.masked_fill(missing, -1))
    torch.testing.assert_close(values, expected.masked_fill(missing, -torch.inf))
    assert len(lists) == len(x)
    assert lists.follow(x, 4, least=least)[0].shape == (0, 4)  # nothing is new


@pytest.mark.parametrize("known", [0, 70, 200])
def test_lists_that_are_packed_late_give_the_same(known: int) -> None:
    """Labels are enough to continue; rows are packed when their list is first searched."""
    x = rows_of(300, 4)
    training = Training.of(x[:200], 5, least=0.0)
    own = GrowingIVF(training)
    own.add(x[:200])
    values, numbers = own.follow(x, 5, least=0.0)
    later = GrowingIVF(training, own.labels[:known])
    later.add(x[known:200])
    assert torch.equal(later.labels, own.labels[:200])
    again = [later.follow(x[:end], 5, least=0.0) for end in (201, 230, 300)]
    assert torch.equal(torch.cat([each[1] for each in again]), numbers)
    torch.testing.assert_close(torch.cat([each[0] for each in again]), values)
    assert torch.equal(later.labels, own.labels)


def test_training_is_deterministic_and_follows_what_is_measured() -> None:
    x = rows_of(600, 2)
    one, other = (Training.of(x, 5, least=0.0) for _ in range(2))
    for name in ("axes", "centroids", "gaps", "losses"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    # Equal rows are in one list, the nearest: fewer lists are enough.
    copies = torch.cat([x, x[:1].repeat(4000, 1)])
    near = one
    for _ in range(20):
        near = near.measured(copies, len(x), 256, 5, least=0.0)
    assert near.reach > one.reach
    assert len(near.gaps) == len(one.gaps) or len(near.gaps) == 1024 * 5


@pytest.mark.parametrize("copies", [300, 5000])
def test_of_many_equal_rows_the_lowest_numbers(copies: int) -> None:
    """More equal rows than candidates are compared in full."""
    own = rows_of(3, 6)
    x = own[torch.arange(copies) % 3]
    lists = GrowingIVF(Training.of(x[:200], 4, least=0.5))
    lists.add(x[: copies - 40])
    _, numbers = lists.follow(x, 4, least=0.5)
    for row, found in enumerate(numbers.tolist(), copies - 40):
        assert found == [row % 3 + 3 * place for place in range(4)]


def test_no_neighbour_counts() -> None:
    x = torch.eye(8)
    training = Training.of(x, 3, least=0.5)
    assert training.reach == torch.inf
    values, numbers = GrowingIVF(training).follow(x, 3, least=0.5)
    assert (numbers == -1).all() and (values == -torch.inf).all()
