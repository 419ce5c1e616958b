"""A grid of settings of spreading activation as one batch, beside a loop over the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.perf.contest import Race, Size, sizes
from bench.perf.inputs import memory_graph
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows, spread_activation
from graphmem_torch.ops.propagate import fan_scale

_TYPES = 4
_CAPS = (5, 15, 10_000)
_FANS = ("degree", "sqrt", "none")


@dataclass(frozen=True)
class _Setting:
    """Row of the grid; `edges` are the gains of the types and the maximum edges of a node."""

    edges: int
    anchors: int
    fan: str
    constants: dict[str, Any]


def _drawn(size: Size) -> tuple[Graph, Tensor, list[tuple[Tensor, int]], list[_Setting]]:
    """Return the graph, the anchors [Q, N] by rank, the kinds of edges, and the settings."""
    generator = torch.Generator().manual_seed(1)
    plain = memory_graph(size["n"], degree=size["e"] // size["n"])
    kind = torch.randint(_TYPES, (plain.num_edges,), generator=generator)
    graph = Graph.from_edges(plain.edge_index, plain.weight, type=kind, num_nodes=size["n"])

    def pick(values: Any) -> Any:
        return values[int(torch.randint(len(values), (), generator=generator))]

    kinds = [
        (torch.rand(_TYPES, generator=generator).round(decimals=1), pick(_CAPS))
        for _ in range(size["patterns"])
    ]
    settings = [
        _Setting(
            place % len(kinds),
            pick((size["seeds"] // 2 + 1, size["seeds"])),
            pick(_FANS),
            {
                "rounds": pick((1, 2, 3)),
                "retention": pick((0.2, 0.5, 0.8)),
                "spread": pick((0.4, 0.8, 1.0)),
                "inhibition": pick((0.0, 0.05, 0.15)),
                "firing": pick(("sigmoid", "linear")),
                "gain": pick((3.0, 5.0)),
                "threshold": pick((0.1, 0.5)),
            },
        )
        for place in range(size["settings"])
    ]
    anchors = torch.randint(size["n"], (size["questions"], size["seeds"]), generator=generator)
    values = torch.rand(anchors.shape, generator=generator).sort(descending=True).values + 0.5
    start = torch.stack(
        [
            SparseRows.of(anchors[:, :count], values[:, :count], size["n"]).to_dense()
            for count in (size["seeds"] // 2 + 1, size["seeds"])
        ]
    )
    return graph, start, kinds, settings


def _weights(graph: Graph, gains: Tensor, cap: int) -> Tensor:  # [E]
    """Return the weights times the gains of their types, for the strongest edges of each node."""
    weight = graph.weight * gains.to(graph.device)[graph.type.long()]
    order = weight.argsort(descending=True, stable=True)
    order = order[graph.source[order].argsort(stable=True)]
    rank = torch.empty_like(order)
    own = graph.source[order].long()
    rank[order] = torch.arange(len(order), device=order.device) - graph.out_indptr[own]
    return torch.where(rank < cap, weight, 0.0)


@pytest.mark.parametrize("size", sizes("spread_grid"), ids=str)
def test_spread_grid(race: Race, size: Size) -> None:
    """All settings, all questions; the loop has what it saves, too: edges of weight 0 left out."""
    graph, start, kinds, settings = _drawn(size)
    graph, start = graph.to(size.device), start.to(size.device)
    questions, few = size["questions"], size["seeds"] // 2 + 1

    def activation(one: _Setting) -> Tensor:
        return start[0 if one.anchors == few else 1]

    def own_graph(edges: int) -> Graph:
        weight = _weights(graph, *kinds[edges])
        there = weight != 0
        return graph.select(there).with_weight(weight[there])

    def rows(values: list[Any]) -> Tensor:
        return torch.tensor(values, device=size.device).repeat_interleave(questions)

    def together() -> Tensor:
        weight = torch.stack([_weights(graph, *kind) for kind in kinds])
        pattern = rows([one.edges for one in settings])
        constants = {
            name: [one.constants[name] for one in settings] for name in settings[0].constants
        }
        constants["firing"] = [name == "sigmoid" for name in constants["firing"]]
        own = rows([_FANS.index(one.fan) for one in settings])
        degree = fan_scale(graph, 1.0, "degree", rows=len(own), weight=weight, pattern=pattern)
        power = torch.tensor([-1.0, -0.5, 0.0], device=size.device)[own]
        return spread_activation(
            graph,
            torch.cat([activation(one) for one in settings]),
            fan=degree.pow_(power[:, None]),
            weight=weight,
            pattern=pattern,
            **{name: rows(values) for name, values in constants.items()},
        )

    def one_by_one(graphs: list[Graph] | None = None) -> Tensor:
        return torch.cat(
            [
                spread_activation(
                    own_graph(one.edges) if graphs is None else graphs[one.edges],
                    activation(one),
                    fan=one.fan,
                    **one.constants,
                )
                for one in settings
            ]
        )

    made = [own_graph(edges) for edges in range(len(kinds))]
    truth = one_by_one(made).double()
    race(
        ours=together,
        peers={"loop": one_by_one, "loop, graphs made before": lambda: one_by_one(made)},
        accuracy=lambda result: float((result - truth).abs().max() / truth.max()),
        measure="relative error",
        at_most=1e-5,
        target={"loop": 1 / 20},
    )
