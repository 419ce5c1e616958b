"""spread_activation: rounds of propagation, inhibition and firing, dense or on the frontier."""

from __future__ import annotations

from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import (
    check_choice,
    check_count,
    check_mask,
    check_node_rows,
    needs_gradient,
)
from graphmem_torch.ops._scalar import check_scalar
from graphmem_torch.ops.firing import Rule, dense_rounds
from graphmem_torch.ops.frontier import spread_frontier
from graphmem_torch.ops.propagate import REDUCE, Fan, Reduce, fan_scale, propagate
from graphmem_torch.ops.sparse_rows import SparseRows, check_sparse_rows

__all__ = ["Firing", "Method", "spread_activation"]

Firing = Literal["sigmoid", "linear"]
Method = Literal["auto", "dense", "frontier"]
Rows = TypeVar("Rows", Tensor, SparseRows)

_FRONTIER_FROM = 20_000  # nodes from which following only the active ones can pay


def spread_activation(
    graph: Graph,  # N nodes
    activation: Rows,  # [B, N], >= 0
    *,
    rounds: int = 3,
    retention: float | Tensor = 0.5,  # or []
    spread: float | Tensor = 0.8,  # or []
    reduce: Reduce = "sum",
    fan: Fan | Tensor = "degree",
    inhibition: float | Tensor = 0.15,  # or []
    top: int = 7,
    firing: Firing = "sigmoid",
    gain: float | Tensor = 5.0,  # or []
    threshold: float | Tensor = 0.5,  # or []
    mask: Tensor | None = None,  # [B, N] bool
    method: Method = "auto",
) -> Rows:  # [B, N], as `activation` is
    """Spreads the activation of the anchors over the graph; `mathematics.md` section 4.

    Every round is `propagate`, `inhibit`, firing. `sigmoid`: a_i = sigmoid(gain (u_i - threshold))
    on the nodes that activation has reached; the others stay exactly 0, because sigmoid(0) is not 0
    and would switch the whole graph on. `linear`: a_i = u_i.

    Args:
        graph: Edges carry activation from `source` to `target`.
        activation: The anchors' activation, 0 elsewhere. As `SparseRows` the answer is sparse too,
            and no matrix of B x N is formed but where dense rounds are cheaper; inhibition takes B
            times the active nodes of the question that has most.
        rounds: How often.
        retention: As for `propagate`.
        spread: As for `propagate`.
        reduce: As for `propagate`.
        fan: As for `propagate`.
        inhibition: Strength of `inhibit`; the number 0 leaves it out.
        top: Size of `inhibit`.
        firing: What a node makes of what it received; see above.
        gain: Of the sigmoid.
        threshold: Of the sigmoid.
        mask: As for `propagate`.
        method: `dense` computes all nodes and is differentiable, in the constants too where they
            are tensors; `frontier` follows the edges of
            active nodes only, in time that does not depend on N but for the answer itself; `auto`
            decides by the number of active nodes and takes `dense` when a gradient is asked for.
            The results agree to rounding.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, constants out of range, unknown
            names, or a gradient through `frontier`.
    """
    if isinstance(activation, SparseRows):
        check_sparse_rows("activation", activation, graph)
    else:
        check_node_rows("activation", activation, graph)
    check_count("rounds", rounds, 0)
    check_count("top", top)
    check_choice("reduce", reduce, REDUCE)
    check_choice("firing", firing, get_args(Firing))
    check_choice("method", method, get_args(Method))
    sparse = isinstance(activation, SparseRows)
    start = activation.value if isinstance(activation, SparseRows) else activation
    for name, value in (("retention", retention), ("spread", spread), ("inhibition", inhibition)):
        check_scalar(name, value, start)
    for name, value in (("gain", gain), ("threshold", threshold)):
        check_scalar(name, value, start, low=-torch.inf)
    constants = (retention, spread, inhibition, gain, threshold)
    differentiable = needs_gradient(start, graph.weight, fan, *constants)
    if differentiable and (sparse or method == "frontier"):
        raise InputError(
            "a gradient needs a dense activation and method 'dense'; got "
            f"{'SparseRows' if sparse else repr(method)}. Change it."
        )
    if mask is not None:
        check_mask(mask, activation.shape, graph)
    small = graph.num_nodes < _FRONTIER_FROM or (start.is_cuda and not sparse)
    dense = method == "dense" or (method == "auto" and (differentiable or small))
    rule = Rule(inhibition, top, firing == "sigmoid", gain, threshold)

    def step(a: Tensor, allowed: Tensor | None) -> Tensor:
        return propagate(
            graph, a, retention=retention, spread=spread, reduce=reduce, fan=fan, mask=allowed
        )

    if dense:
        a = activation.to_dense() if isinstance(activation, SparseRows) else activation
        a = dense_rounds(lambda u: step(u, mask), a, a != 0, rounds, rule)
        return SparseRows.from_dense(a) if isinstance(activation, SparseRows) else a
    found = spread_frontier(
        graph,
        activation if isinstance(activation, SparseRows) else SparseRows.from_dense(activation),
        lambda node: fan_scale(graph, spread, fan, node=node),
        rounds=rounds,
        retention=retention.item() if isinstance(retention, Tensor) else retention,
        maximum=reduce == "max",
        rule=rule,
        mask=mask,
        step=None if method == "frontier" else step,
    )
    return found if isinstance(activation, SparseRows) else found.to_dense()
