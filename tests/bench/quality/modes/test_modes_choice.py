"""How a setting is chosen from its curve, and the race that times it."""

from __future__ import annotations

import random

import torch

from graphmem_torch.quality.modes.clock import race
from graphmem_torch.quality.modes.curve import cheapest, leave_one_out, pareto_front


def test_the_front_holds_what_nothing_beats() -> None:
    chance = random.Random(1)
    points = {i: (chance.randrange(6) / 6, chance.randrange(6) / 6) for i in range(40)}
    front = pareto_front(points)
    for name, (quality, cost) in points.items():
        beaten = any(
            q >= quality and c <= cost and (q, c) != (quality, cost) for q, c in points.values()
        )
        assert ((quality, cost) in {points[i] for i in front}) == (not beaten), name
    assert [points[i][1] for i in front] == sorted(points[i][1] for i in front)


def test_the_cheapest_of_those_that_lose_next_to_nothing() -> None:
    points = {"a": (0.50, 1.0), "b": (0.495, 0.4), "c": (0.48, 0.1), "d": (0.497, 0.4)}
    assert cheapest(points, 0.5) == "d"
    assert cheapest(points, 0.5, tolerance=0.03) == "c"
    assert cheapest(points, 0.9) == "a"  # none is good enough: the best


def test_a_group_is_judged_by_a_choice_that_did_not_see_it() -> None:
    group = torch.tensor([0, 0, 1, 1, 2])
    reference = torch.ones(5, dtype=torch.float64)
    cost = {"cheap": torch.full((5,), 0.1).double(), "dear": torch.full((5,), 0.9).double()}
    # Cheap fails only in group 0: the others, chosen with group 0 in view, must be dear.
    cheap = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    found = leave_one_out({"cheap": cheap, "dear": reference}, cost, reference, group)
    assert found is not None
    assert found.chosen == ["cheap", "dear", "dear"]
    assert found.quality.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert torch.allclose(found.cost, torch.tensor([0.1, 0.1, 0.9, 0.9, 0.9]).double())
    alone = torch.zeros(5, dtype=torch.int64)
    assert leave_one_out({"cheap": cheap}, cost, reference, alone) is None


def test_every_call_of_a_race_is_made_equally_often() -> None:
    made: dict[str, list[int]] = {"a": [], "b": []}
    found = race({name: calls.append for name, calls in made.items()}, 3)
    assert made == {"a": [0, 0, 1, 2], "b": [0, 0, 1, 2]}
    assert found.keys() == made.keys() and all(value >= 0 for value in found.values())
