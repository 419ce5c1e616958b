"""What needs what, by the edges between memories."""

from __future__ import annotations

import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.context.pool import Relations
from graphmem_torch.edges import EdgeBlock


def of(*edges: tuple[int, int, EdgeType], types: tuple[str, ...]) -> Relations:
    source, target, kind = zip(*edges, strict=True)
    block = EdgeBlock.of(source, target, torch.tensor(kind), 1.0)
    return Relations.of(block, types, 5)


def test_each_type_says_which_end_comes_first() -> None:
    found = of(
        (0, 1, EdgeType.DEPENDENCY),
        (0, 2, EdgeType.DEPENDENCY),
        (3, 0, EdgeType.CAUSES),
        (4, 1, EdgeType.ELABORATES),
        (2, 4, EdgeType.SIMILARITY),
        types=("dependency", "causes", "elaborates"),
    )
    place, first = found.before(torch.tensor([4, 0, 2]))
    pairs = sorted(zip(place.tolist(), first.tolist(), strict=True))
    assert pairs == [(0, 1), (1, 1), (1, 2), (1, 3)]
    assert len(found) == 4


def test_concepts_and_loops_are_left_out() -> None:
    found = of((0, 0, EdgeType.DEPENDENCY), (1, 5, EdgeType.DEPENDENCY), types=("dependency",))
    assert len(found) == 0
    place, first = found.before(torch.tensor([0, 1]))
    assert place.tolist() == first.tolist() == []


def test_no_types() -> None:
    assert len(of((0, 1, EdgeType.DEPENDENCY), types=())) == 0
    assert len(Relations.of(EdgeBlock.empty(), ("dependency",), 0)) == 0
