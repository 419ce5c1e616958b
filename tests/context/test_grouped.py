"""Selection under headers, against every subset."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from graphmem_torch.context.grouped import select_grouped

Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def instances(seed: int, rows: int, items: int, headers: int) -> Rows:
    g = torch.Generator().manual_seed(seed)
    values = torch.rand(rows, items, generator=g, dtype=torch.float64) ** 3
    values *= torch.rand(rows, items, generator=g) < 0.9
    costs = torch.randint(1, 12, (rows, items), generator=g)
    header = torch.randint(-1, headers, (rows, items), generator=g)
    prices = torch.randint(1, 9, (rows, headers), generator=g)
    pinned = torch.rand(rows, items, generator=g) < 0.08
    least = [cost(*row) for row in zip(pinned, costs, header, prices, strict=True)]
    room = torch.tensor(least, dtype=torch.int64) + torch.randint(0, 40, (rows,), generator=g)
    return values, costs, header, prices, room, pinned


def cost(mask: Tensor, costs: Tensor, header: Tensor, prices: Tensor) -> int:
    used = {int(place) for place in header[mask] if place >= 0}
    return int(costs[mask].sum()) + sum(int(prices[place]) for place in used)


def optimum(
    values: Tensor, costs: Tensor, header: Tensor, prices: Tensor, room: Tensor, pinned: Tensor
) -> float:
    best = 0.0
    for choice in itertools.product((False, True), repeat=len(values)):
        mask = torch.tensor(choice)
        if bool((pinned & ~mask).any()) or cost(mask, costs, header, prices) > room:
            continue
        best = max(best, float(values[mask].sum()))
    return best


@pytest.mark.parametrize(("seed", "headers"), [(0, 1), (1, 2), (2, 3), (3, 5), (4, 7)])
def test_small_ones_are_exact(seed: int, headers: int) -> None:
    rows = instances(seed, 8, 8, headers)
    found = select_grouped(*rows)
    assert found.mask.shape == (8, 8 + headers)
    for at, row in enumerate(zip(*rows, strict=True)):
        values, costs, header, prices, room, pinned = row
        mask = found.mask[at, :8]
        assert not bool((pinned & ~mask).any())
        assert int(found.cost[at]) == cost(mask, costs, header, prices) <= room
        used = {int(place) for place in header[mask] if place >= 0}
        assert found.mask[at, 8:].nonzero().flatten().tolist() == sorted(used)
        assert float(found.value[at]) == pytest.approx(float(values[mask].sum()))
        best = optimum(*row)
        assert float(found.upper_bound[at]) >= best - 1e-9
        assert float(found.value[at]) <= best + 1e-9
        if found.exact[at]:
            assert float(found.value[at]) == pytest.approx(best)
    assert int(found.exact.sum()) >= 7


@pytest.mark.parametrize("gap", [1e-3, 0.1])
def test_a_tolerated_gap_is_kept_and_told(gap: float) -> None:
    for seed in range(8):
        rows = instances(seed, 8, 8, 3)
        found = select_grouped(*rows, gap=gap)
        for at, row in enumerate(zip(*rows, strict=True)):
            best, value = optimum(*row), float(found.value[at])
            assert cost(found.mask[at, :8], *row[1:4]) <= row[4]
            assert value <= best + 1e-9 and best <= float(found.upper_bound[at]) + 1e-9
            assert not found.exact[at] or value == pytest.approx(best)


def test_without_headers_it_is_exact_whatever_gap_is_tolerated() -> None:
    values, costs, header, prices, room, pinned = instances(3, 40, 10, 1)
    rows = values, costs, header.clamp(max=-1), prices[:, :0], room, pinned
    found = select_grouped(*rows, gap=0.5)
    best = [optimum(*row) for row in zip(*rows, strict=True)]
    assert found.value.tolist() == pytest.approx(best) and bool(found.exact.all())


@pytest.mark.parametrize("headers", [20, 90])
def test_large_ones_have_a_tight_bound(headers: int) -> None:
    values, costs, header, prices, room, pinned = instances(7, 6, 150, headers)
    found = select_grouped(values, costs, header, prices, room + 100, pinned)
    assert bool((found.cost <= room + 100).all())
    assert bool((found.upper_bound >= found.value).all())
    assert float((found.gap / found.value).max()) < 0.05


def test_no_items_no_headers_no_rows_no_room() -> None:
    for rows, items, headers in ((2, 0, 0), (0, 3, 2), (2, 3, 0)):
        values, costs, header, prices, room, pinned = instances(1, rows, items, max(headers, 1))
        header = header.clamp(max=headers - 1)
        found = select_grouped(values, costs, header, prices[:, :headers], room, pinned)
        assert found.mask.shape == (rows, items + headers)
        assert bool(found.exact.all())
    values, costs, header, prices, room, pinned = instances(1, 2, 5, 2)
    found = select_grouped(values, costs, header, prices, room * 0, pinned & False)
    assert not bool(found.mask.any())
    assert bool(found.exact.all())


def test_room_for_everything() -> None:
    values, costs, header, prices, room, pinned = instances(3, 4, 30, 6)
    found = select_grouped(values, costs, header, prices, room + 10_000, pinned)
    assert torch.allclose(found.value, values.sum(1))
    assert bool(found.exact.all())
