"""bridges: edges between communities whose loss would increase resistance the most."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_range, check_tensor
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import undirected
from graphmem_torch.linalg.linear_systems import panel
from graphmem_torch.spectral.electrical import ElectricalNetwork, NodePairs, Sides
from graphmem_torch.spectral.resistance import check_pairs

__all__ = ["Bridges", "bridge_scores", "bridges"]

_log = logging.getLogger(__name__)

_MANY = 512  # minimum pairs for which the sketch is the default
_SPARE = 4  # the sketch leaves this many times `top` pairs to exact solution
_LEAST = 32  # and at least this many
_TILE = 1024  # pairs whose rows of a dense inverse are gathered at once


@dataclass(frozen=True, eq=False)
class Bridges:
    """Pairs of nodes and the effect of an edge between them on the total effective resistance.

    Attributes:
        pairs: `[2, P]` int64.
        score: `[P]` float64: increase without an existing edge, or decrease with an absent one; inf
            for a cut edge and between components.
        side: `[P]` int64: nodes of the smaller part that a cut edge attaches, or that an absent
            edge would join; 0 for finite scores. Orders infinite scores.
        weight: `[P]` float32: weight of an existing edge, signed; else the assumed weight.
        exists: `[P]` bool.
        error: `[P]` float64, relative error of the score: rounding, the tolerance, or one standard
            deviation.
        converged: Whether conjugate gradients reached their tolerance.
    """

    pairs: Tensor
    score: Tensor
    side: Tensor
    weight: Tensor
    exists: Tensor
    error: Tensor
    converged: bool = True

    def __len__(self) -> int:
        """Number of pairs P."""
        return self.pairs.shape[1]

    def take(self, place: Tensor) -> Bridges:  # [k] integers or [P] bool
        """Return some of the pairs, in the given order."""
        columns = ("score", "side", "weight", "exists", "error")
        parts = {name: getattr(self, name)[place] for name in columns}
        return replace(self, pairs=self.pairs[:, place], **parts)

    def order(self) -> Tensor:  # [P] int64
        """Return the best pairs first: by score, infinite ones by side; ties keep their order."""
        order = torch.argsort(self.side, descending=True, stable=True)
        return order[torch.argsort(self.score[order], descending=True, stable=True)]


def bridge_scores(
    graph: Graph,  # N nodes
    pairs: Tensor | None = None,  # [2, P] or [P, 2] integers
    method: str = "auto",
    *,
    weight: float = 1.0,
    tol: float = 1e-10,
    network: ElectricalNetwork | None = None,
) -> Bridges:
    """Return the change of the total effective resistance by edges (`docs/mathematics.md` 2.5).

    With L = D - W on |w|, b = e_i - e_j, R = b'L⁺b and n nodes in the component, the loss of an
    edge of weight w increases Σ_{i<j} R_ij by n w ‖L⁺b‖² / (1 - wR). A new edge decreases it by n w
    ‖L⁺b‖² / (1 + wR) (Sherman and Morrison 1950; Ghosh, Boyd and Saberi 2008, section 2). Cut
    edges, for which wR = 1, are found exactly, not by rounding.

    * "exact": dense pseudo-inverse in float64, up to 20,000 nodes.
    * "cg": conjugate gradients in float64 with the pairs as columns.
    * "sketch": random projections for any number of pairs. If wR is nearer to 1 than their noise, 1
    - wR is taken as that noise, which makes the score too small rather than too large.
    * "auto": "exact" up to 1,024 nodes, else "cg" up to 512 pairs, else "sketch".

    Args:
        graph: Signs and directions are ignored; loops carry nothing.
        pairs: Node numbers; every undirected edge once when omitted.
        method: One of the above.
        weight: Assumed weight of an absent edge.
        tol: Relative error of R for "cg"; its root bounds roughly that of the score.
        network: Network of the graph, whose settings then apply; by default one of 128 columns.

    Returns:
        The pairs in their order; a pair of equal nodes has score 0.

    Raises:
        InputError: Pairs have a wrong shape or dtype or are out of range, weights require a
            gradient, or a constant is out of range.
    """
    check_choice("method", method, ("auto", "exact", "cg", "sketch"))
    check_range("tol", tol, 0.0)
    if not 0 < weight < float("inf"):
        raise InputError(f"weight: expected a finite number above 0, got {weight}; try 1.0")
    low, high, strength = undirected(graph)
    ends = torch.stack([low, high]) if pairs is None else check_pairs(pairs, graph)
    network = network or ElectricalNetwork(graph, columns=128)
    if method == "auto":
        few = "cg" if ends.shape[1] <= _MANY else "sketch"
        method = "exact" if network.small else few
    asked = NodePairs(ends, network.operator)
    forms = _FORMS[method](network, asked.sides, tol)
    if not forms.converged:
        _log.warning(
            "Bridge scores by %r are less exact than requested after %d iterations: raise max_iter "
            "or tol, or drop negligible edges",
            method,
            forms.iterations,
        )
    return _assembled(network, strength, ends, asked, forms, weight)


def bridges(
    graph: Graph,  # N nodes
    label: Tensor,  # [N] integers
    top: int = 10,
    *,
    network: ElectricalNetwork | None = None,
) -> Bridges:
    """Return the existing edges between communities that matter most to the graph, best first.

    Cut edges come first, ordered by the size of the part they cut off. Of many other edges, a
    sketch selects the best `4 top`, at least 32, which are solved exactly. Scores are thus exact;
    an edge is wrongly omitted only if its score is within the sketch's noise of the last.

    Args:
        graph: Signs and directions are ignored.
        label: Community of every node.
        top: Maximum number of edges.
        network: Network of the graph, whose settings then apply.

    Raises:
        InputError: The labels do not fit the graph or a constant is out of range.
    """
    check_count("top", top)
    check_labels(label, graph)
    network = network or ElectricalNetwork(graph)
    low, high = network.operator.low, network.operator.high
    crossing = (label[low] != label[high]).nonzero().squeeze(1)
    ends = torch.stack([low[crossing], high[crossing]])
    if not network.small:
        side = network.cut[crossing]
        if int((side > 0).sum()) >= top:  # finite scores cannot be among the best
            best = torch.argsort(side, descending=True, stable=True)[:top]
            ends = ends[:, best]
        elif ends.shape[1] > _MANY:
            rough = bridge_scores(graph, ends, "sketch", network=network)
            ends = ends[:, rough.order()[: max(_SPARE * top, _LEAST)]]
    method = "exact" if network.small else "cg"
    found = bridge_scores(graph, ends, method, network=network)
    return found.take(found.order()[:top])


def check_labels(label: Tensor, graph: Graph) -> None:
    """Raise `InputError` unless every node has an integer label, on the graph's device."""
    do = "compute them for this graph"
    check_tensor("label", label, "integers", (graph.num_nodes,), do, device=graph.device)


class _Forms(NamedTuple):
    """Forms b' L⁺ b and ‖L⁺ b‖² `[Q]` of pairs b = e_i - e_j inside components, L = D - W on |w|.

    Includes the relative errors of both, shared or `[Q]`, and the iterations.
    """

    resistance: Tensor
    square: Tensor
    resistance_error: float | Tensor
    square_error: float
    iterations: int
    converged: bool


def _exact_forms(network: ElectricalNetwork, sides: Sides, tol: float) -> _Forms:
    inverse, error = network.combinatorial_inverse(max(tol, 1e-6))
    own, first, second = inverse.diagonal(), sides.first, sides.second
    resistance = own[first] + own[second] - 2 * inverse[first, second]
    tiles = zip(first.split(_TILE), second.split(_TILE), strict=True)
    square = torch.cat([(inverse[i] - inverse[j]).square().sum(1) for i, j in tiles])
    return _Forms(resistance, square, error, 2 * error, 0, error <= max(tol, 1e-6))


def _solved_forms(network: ElectricalNetwork, sides: Sides, tol: float) -> _Forms:
    """Solve by conjugate gradients; the error of ‖L⁺b‖² may be the root of that of R."""
    nodes = network.graph.num_nodes
    resistance = network.exact.degree.new_zeros(len(sides))
    square, most, settled = torch.zeros_like(resistance), 0, True
    width = panel(nodes, network.graph.device)
    for start in range(0, len(sides), width):
        run = slice(start, start + width)
        i, j = sides.first[run], sides.second[run]
        column = torch.arange(len(i), device=i.device)
        currents = resistance.new_zeros(nodes, len(i))
        currents[i, column], currents[j, column] = 1.0, -1.0
        voltage, done, reached = network.potentials(currents, tol)
        resistance[run] = voltage[i, column] - voltage[j, column]
        square[run] = voltage.square().sum(0)
        most, settled = max(most, done), settled and reached
    error = max(tol, torch.finfo(torch.float64).eps)
    return _Forms(resistance, square, error, error**0.5, most, settled)


def _sketched_forms(network: ElectricalNetwork, sides: Sides, tol: float) -> _Forms:
    """Estimate by random projections without a tolerance; errors are one standard deviation."""
    del tol
    found, sketch = network.by_sketch(sides), network.node_sketch
    unit = replace(sides, a=torch.ones_like(sides.a), b=torch.ones_like(sides.b))
    square = unit.squares(sketch.rows, sketch.rows.new_ones(network.columns, 1))[:, 0].double()
    return _Forms(
        found.value.double(),
        square / network.unit**2,
        found.error.double(),
        (2 / network.columns) ** 0.5,
        max(sketch.iterations, found.iterations),
        sketch.converged and found.converged,
    )


_FORMS = {"exact": _exact_forms, "cg": _solved_forms, "sketch": _sketched_forms}


def _assembled(
    network: ElectricalNetwork,
    strength: Tensor,  # [M] signed
    ends: Tensor,  # [2, P]
    asked: NodePairs,
    forms: _Forms,
    supposed: float,
) -> Bridges:
    operator = network.operator
    low, high = ends
    edge = operator.edge_between(low, high)
    exists = edge >= 0
    pad = torch.nn.functional.pad  # padding is read at -1, where there is no edge
    weight = pad(strength, (0, 1), value=supposed)[edge]
    cut = pad(network.cut, (0, 1))[edge]
    size = torch.bincount(operator.component, minlength=1)
    first, second = operator.component[low], operator.component[high]
    joined = torch.where(asked.apart, torch.minimum(size[first], size[second]), cut)
    resistance, off = asked.spread(forms.resistance, torch.inf), forms.resistance_error
    if isinstance(off, Tensor):
        off = asked.spread(off, 0.0)
    share = (weight.double().abs() * resistance).where(~asked.apart, 0.0)
    least = (off * share).clamp(min=torch.finfo(torch.float64).eps)
    left = torch.where(exists, torch.maximum(1 - share, least), 1 + share)
    score = size[first] * weight.double().abs() * asked.spread(forms.square, 0.0) / left
    infinite = joined > 0
    error = forms.square_error + share * off / left
    return Bridges(
        ends,
        torch.where(infinite, torch.inf, score),
        joined,
        weight.float(),
        exists,
        torch.where(infinite, 0.0, error),
        forms.converged,
    )
