"""Headers as what the entries of a group share."""

from __future__ import annotations

import torch

from graphmem_torch.context.headers import with_headers

PRICES = torch.tensor([3, 5, 7, 9])


def test_shared_headers_are_told_from_those_of_one() -> None:
    costs = torch.tensor([[10, 20, 30, 40, 0], [1, 2, 3, 0, 0]])
    groups = torch.tensor([[2, 1, 2, 0, -1], [0, 0, 0, -1, -1]])
    found = with_headers(costs, groups, PRICES)
    # Group 1 and the one without a label are alone; where nothing has one there is no header.
    assert found.costs.tolist() == [[10, 25, 30, 43, 0], [1, 2, 3, 0, 0]]
    assert found.header.tolist() == [[0, -1, 0, -1, -1], [-1] * 5]
    assert found.prices.tolist() == [[7], [0]]


def test_every_choice_pays_what_it_is_written_under() -> None:
    g = torch.Generator().manual_seed(0)
    groups = torch.randint(-1, 4, (40, 9), generator=g)
    costs = torch.randint(1, 30, (40, 9), generator=g).masked_fill(groups < 0, 0)
    found = with_headers(costs, groups, PRICES)
    for row in range(40):
        labels = set(groups[row].tolist()) - {-1}
        for _ in range(8):
            mask = (torch.rand(9, generator=g) < 0.5) & (groups[row] >= 0)
            used = set(groups[row][mask].tolist())
            if labels <= {0}:
                used = set()
            expected = int(costs[row][mask].sum()) + sum(int(PRICES[group]) for group in used)
            places = {place for place in found.header[row][mask].tolist() if place >= 0}
            paid = int(found.costs[row][mask].sum())
            assert paid + sum(int(found.prices[row, place]) for place in places) == expected


def test_nothing() -> None:
    none = torch.zeros(0, 3, dtype=torch.int64)
    assert with_headers(none, none, PRICES).prices.shape == (0, 0)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    assert with_headers(empty, empty, PRICES).costs.shape == (2, 0)
