"""Coverage minus length is the best there is, by trying every choice."""

from __future__ import annotations

import random

import pytest

from graphmem_torch.context.coverage import select_coverage, select_coverage_reference


@pytest.mark.parametrize("seed", range(150))
def test_the_choice_is_the_best(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"u{i}" for i in range(draw.randrange(1, 14))]
    units = [draw.sample(names, draw.randrange(len(names) + 1)) for _ in range(draw.randrange(11))]
    lengths = [draw.randrange(1, 20) for _ in units]
    weight = {name: draw.choice([0.0, 1.0, 5 * draw.random()]) for name in names}
    limit, price = draw.randrange(1, 60), draw.choice([0.0, 0.25, 1.0])
    found = select_coverage(units, lengths, weight, limit=limit, price=price)
    best = select_coverage_reference(units, lengths, weight, limit=limit, price=price)
    assert found.value == pytest.approx(best.value, abs=1e-12) == found.bound
    covered = {unit for place in found.chosen for unit in units[place]}
    total = sum(weight.values()) or 1.0
    assert found.relevance == pytest.approx(sum(weight[unit] for unit in covered) / total)
    assert found.complexity == sum(lengths[place] for place in found.chosen) / limit <= 1


def test_what_says_the_same_is_said_once() -> None:
    units, lengths = [["a", "b"], ["a", "b"], ["c"]], [6, 5, 4]
    found = select_coverage(units, lengths, {"a": 1.0, "b": 1.0, "c": 1.0}, limit=20, price=0.5)
    assert found.chosen == (1, 2)
    dear = select_coverage(units, lengths, {"a": 1.0, "b": 1.0, "c": 1.0}, limit=20, price=10.0)
    assert dear.chosen == () and dear.value == dear.bound == 0.0


def test_a_search_that_is_cut_short_says_how_far_it_may_be_from_the_best() -> None:
    draw = random.Random(3)
    names = [f"u{i}" for i in range(12)]
    units = [draw.sample(names, 3) for _ in range(10)]
    lengths, weight = [draw.randrange(3, 9) for _ in units], {name: draw.random() for name in names}
    best = select_coverage_reference(units, lengths, weight, limit=20, price=0.1)
    for work in range(8):
        found = select_coverage(units, lengths, weight, limit=20, price=0.1, work=work)
        assert found.value <= best.value + 1e-12 and best.value <= found.bound + 1e-12


def test_nothing_to_choose_from() -> None:
    for units, lengths in (([], []), ([[]], [3]), ([["a"]], [30])):
        found = select_coverage(units, lengths, {"a": 1.0}, limit=20, price=0.1)
        assert found.chosen == () and found.value == 0.0
