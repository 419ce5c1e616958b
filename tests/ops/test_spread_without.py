"""Activation with each node left out in turn, against asking with a mask for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.ops import spread_activation
from graphmem_torch.ops.spread import Rule
from graphmem_torch.ops.spread_without import spread_without


def masks(left: Tensor, nodes: int, mask: Tensor | None) -> Tensor:
    there = torch.ones(len(left), nodes, dtype=torch.bool)
    there = there if mask is None else there & mask
    for row, node in enumerate(left.tolist()):
        if node >= 0:
            there[row, node] = False
    return there


def drawn(nodes: int, edges: int, generator: torch.Generator) -> tuple[Graph, Tensor]:
    """A graph with doubles, loops and edges of weight 0, and a start at a fifth of the nodes."""
    index = torch.randint(nodes, (2, edges), generator=generator)
    weight = torch.rand(edges, generator=generator).round(decimals=1)
    start = torch.rand(nodes, generator=generator)
    start *= torch.rand(nodes, generator=generator) < 0.2
    return Graph.from_edges(index, weight, num_nodes=nodes), start


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("firing", ["sigmoid", "zeroed", "once", "linear"])
@pytest.mark.parametrize(
    ("inhibition", "spare", "kinds"), [(0.0, 0, False), (0.15, 0, False), (0.15, 5, True)]
)
@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 4])
def test_rows_are_spreads_with_a_mask_each(
    rounds: int,
    inhibition: float,
    spare: int,
    kinds: bool,
    firing: Any,
    reduce: Any,
    generator: torch.Generator,
) -> None:
    for place, (nodes, edges) in enumerate([(1, 0), (1, 3), (6, 9), (30, 60), (40, 400)]):
        graph, start = drawn(nodes, edges, generator)
        masked = (place + rounds) % 2 == 0
        mask = torch.rand(nodes, generator=generator) < 0.8 if masked else None
        left = torch.arange(-1, nodes)
        wanted = torch.randint(nodes, (3,), generator=generator)
        kind = torch.rand(nodes, generator=generator) < 0.4 if kinds else None
        constants: dict[str, Any] = {"retention": 0.5, "spread": 0.8, "reduce": reduce}
        expected = spread_activation(
            graph,
            start.repeat(len(left), 1),
            rounds=rounds,
            fan="sqrt",
            inhibition=inhibition,
            top=4,
            spare=spare,
            kind=kind,
            firing=firing,
            gain=5.0,
            threshold=0.5,
            mask=masks(left, nodes, mask),
            **constants,
        )
        rule = Rule(inhibition, 4, firing, 5.0, 0.5, spare, kind)
        got = spread_without(
            graph, start, left, wanted, rounds=rounds, fan="sqrt", rule=rule, mask=mask, **constants
        )
        torch.testing.assert_close(got, expected[:, wanted])


def test_what_one_node_alone_led_to_is_not_reached() -> None:
    """A chain by hand: without its middle the end stays at 0, and does not fire sigmoid(0)."""
    index = torch.tensor([[0, 1, 0, 0], [1, 2, 3, 4]])
    graph = Graph.from_edges(index, torch.tensor([1e-4, 1.0, 1.0, 1.0]), num_nodes=5)
    start = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    for rounds in (2, 3):
        found = spread_without(
            graph,
            start,
            torch.tensor([-1, 1, 3]),
            torch.tensor([2]),
            rounds=rounds,
            retention=0.5,
            spread=0.8,
            reduce="sum",
            fan="none",
            rule=Rule(0.0, 7, "sigmoid", 5.0, 0.5),
        )
        assert found[1] == 0.0
        assert found[0] == found[2] > 0.05


def test_nothing_left_out_gives_no_row(generator: torch.Generator) -> None:
    graph, start = drawn(6, 9, generator)
    found = spread_without(
        graph,
        start,
        torch.empty(0, dtype=torch.int64),
        torch.tensor([0, 5]),
        rounds=3,
        retention=0.5,
        spread=0.8,
        reduce="sum",
        fan="degree",
        rule=Rule(0.15, 7, "sigmoid", 5.0, 0.5),
    )
    assert found.shape == (0, 2)
