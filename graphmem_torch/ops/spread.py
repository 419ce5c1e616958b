"""spread_activation: rounds of propagation, inhibition and firing, dense or on the frontier."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import check_choice, check_count, check_node_rows, check_range
from graphmem_torch.ops.firing import Rule, dense_rounds
from graphmem_torch.ops.frontier import spread_frontier
from graphmem_torch.ops.propagate import REDUCE, Fan, Reduce, fan_scale, propagate

__all__ = ["Firing", "Method", "spread_activation"]

Firing = Literal["sigmoid", "linear"]
Method = Literal["auto", "dense", "frontier"]

_FRONTIER_FROM = 20_000  # nodes from which following only the active ones can pay


def spread_activation(
    graph: Graph,  # N nodes
    activation: Tensor,  # [B, N], >= 0
    *,
    rounds: int = 3,
    retention: float = 0.5,
    spread: float = 0.8,
    reduce: Reduce = "sum",
    fan: Fan | Tensor = "degree",
    inhibition: float = 0.15,
    top: int = 7,
    firing: Firing = "sigmoid",
    gain: float = 5.0,
    threshold: float = 0.5,
    mask: Tensor | None = None,  # [B, N] bool
    method: Method = "auto",
) -> Tensor:  # [B, N]
    """Spreads the activation of the anchors over the graph; `mathematics.md` section 4.

    Every round is `propagate`, `inhibit`, firing. `sigmoid`: a_i = sigmoid(gain (u_i - threshold))
    on the nodes that activation has reached; the others stay exactly 0, because sigmoid(0) is not 0
    and would switch the whole graph on. `linear`: a_i = u_i.

    Args:
        graph: Edges carry activation from `source` to `target`.
        activation: The anchors' activation, 0 elsewhere.
        rounds: How often.
        retention: As for `propagate`.
        spread: As for `propagate`.
        reduce: As for `propagate`.
        fan: As for `propagate`.
        inhibition: Strength of `inhibit`; 0 leaves it out.
        top: Size of `inhibit`.
        firing: What a node makes of what it received; see above.
        gain: Of the sigmoid.
        threshold: Of the sigmoid.
        mask: As for `propagate`.
        method: `dense` computes all nodes and is differentiable; `frontier` follows the edges of
            active nodes only, in time that does not depend on N but for the answer itself; `auto`
            decides by the number of active nodes and takes `dense` when a gradient is asked for.
            The results agree to rounding.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, constants out of range, unknown
            names, or a gradient through `frontier`.
    """
    check_node_rows("activation", activation, graph)
    check_count("rounds", rounds, 0)
    check_count("top", top)
    for name, value in (("retention", retention), ("spread", spread), ("inhibition", inhibition)):
        check_range(name, value, 0.0)
    check_choice("reduce", reduce, REDUCE)
    check_choice("firing", firing, get_args(Firing))
    check_choice("method", method, get_args(Method))
    learned = [activation, graph.weight, *([fan] if isinstance(fan, Tensor) else [])]
    differentiable = torch.is_grad_enabled() and any(t.requires_grad for t in learned)
    if method == "frontier" and differentiable:
        raise InputError(
            "method must be 'dense' where a gradient is asked for; got 'frontier'. Change it."
        )
    if mask is not None:
        check_node_rows("mask", mask, graph, boolean=True)
    rule = Rule(inhibition, top, firing == "sigmoid", gain, threshold)
    small = graph.num_nodes < _FRONTIER_FROM or activation.is_cuda
    if method == "dense" or (method == "auto" and (differentiable or small)):

        def step(a: Tensor) -> Tensor:
            return propagate(
                graph, a, retention=retention, spread=spread, reduce=reduce, fan=fan, mask=mask
            )

        return dense_rounds(step, activation, activation != 0, rounds, rule)
    return spread_frontier(
        graph,
        activation,
        fan_scale(graph, spread, fan),
        rounds=rounds,
        retention=retention,
        maximum=reduce == "max",
        rule=rule,
        mask=mask,
        forced=method == "frontier",
    )
