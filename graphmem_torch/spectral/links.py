"""suggest_links: absent edges that would lower the total effective resistance the most."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.laplacians import Laplacian
from graphmem_torch.linalg.linear_systems import panel
from graphmem_torch.spectral.bridge import Bridges, check_labels
from graphmem_torch.spectral.electrical import ElectricalNetwork

__all__ = ["suggest_links"]

_TOL = 1e-10  # relative error of the resistances
_CANDIDATES = 128  # nodes whose pairs are all examined in a large graph


def suggest_links(
    graph: Graph,  # N nodes
    label: Tensor | None = None,  # [N] integers
    top: int = 10,
    *,
    network: ElectricalNetwork | None = None,
) -> Bridges:
    """Return the links that lower the total effective resistance the most, one by one.

    Each is the best after adding those before it: it decreases the total by n ‖L⁺b‖² / (1 + R),
    with the current L⁺ updated in rank one (Sherman and Morrison 1950; greedy as in Ghosh, Boyd and
    Saberi 2008, section 6). So no two links close the same gap, and the scores add up.

    Up to 1,024 nodes, every pair is examined. In a larger graph, a sketch selects 128 candidates:
    the nodes of largest ‖L⁺e_i‖, those farthest from the first of them, and the first ones of the
    largest communities. Their columns of L⁺ are then solved exactly.

    Args:
        graph: Signs and directions are ignored. Pairs lie inside one component, because joining any
            nodes of two components lowers the total from infinity.
        label: Communities; only pairs of two communities are suggested.
        top: Maximum number of links.
        network: Network of the graph, whose settings then apply.

    Returns:
        Links in the order of adding; `score` is the decrease that each one adds.

    Raises:
        InputError: Labels do not fit, or a constant is out of range.
    """
    check_count("top", top)
    if label is not None:
        check_labels(label, graph)
    network = network or ElectricalNetwork(graph)
    operator, settled = network.operator, True
    if network.small:
        node = (operator.degree > 0).nonzero().squeeze(1)
        potential = network.combinatorial_inverse(1e-6)[0][:, node]
    else:
        node = _candidates(network, label)
        potential, settled = _columns(network, node)
    allowed = _absent(operator, node, label)
    return _greedy(potential, node, allowed, operator, top, settled)


def _candidates(network: ElectricalNetwork, label: Tensor | None) -> Tensor:  # [c] ascending
    operator, rows = network.operator, network.node_sketch.rows
    size = torch.bincount(operator.component)[operator.component]
    remote = rows.square().sum(1) * size
    order = torch.argsort(remote, descending=True, stable=True)
    taken = [order[: _CANDIDATES // 2]]
    first = order[0]
    apart = (rows - rows[first]).square().sum(1)
    apart = torch.where(operator.component == operator.component[first], apart, -1.0)
    taken.append(torch.argsort(apart, descending=True, stable=True)[: _CANDIDATES // 4])
    if label is not None:
        owner = torch.unique(label, return_inverse=True)[1]
        groups = torch.bincount(owner)
        best = remote.new_zeros(len(groups)).scatter_reduce(0, owner, remote, "amax")
        leading = order[(remote == best[owner])[order]]
        leading = leading[torch.argsort(groups[owner[leading]], descending=True, stable=True)]
        taken.append(leading[: _CANDIDATES // 4])
    node = torch.unique(torch.cat(taken))
    return node[operator.degree[node] > 0]


def _columns(network: ElectricalNetwork, node: Tensor) -> tuple[Tensor, bool]:  # [N, c] float64
    """Return L⁺ e_i of some nodes, L = D - W."""
    nodes = network.graph.num_nodes
    out = network.exact.degree.new_empty(nodes, len(node))
    width, settled = panel(nodes, node.device), True
    for start in range(0, len(node), width):
        some = node[start : start + width]
        unit = out.new_zeros(nodes, len(some))
        unit[some, torch.arange(len(some), device=some.device)] = 1
        out[:, start : start + width], _, reached = network.potentials(unit, _TOL)
        settled = settled and reached
    return out, settled


def _absent(operator: Laplacian, node: Tensor, label: Tensor | None) -> Tensor:  # [c, c] bool
    """Return the absent pairs i < j of nodes in one component and two communities."""
    count = len(node)
    part = operator.component[node]
    allowed = (part[:, None] == part).triu(1)
    if label is not None:
        allowed &= label[node][:, None] != label[node]
    place = torch.full((operator.shape[0],), -1, dtype=torch.int64, device=node.device)
    place[node] = torch.arange(count, device=node.device)
    low, high = place[operator.low], place[operator.high]
    inside = (low >= 0) & (high >= 0)
    allowed[low[inside], high[inside]] = False  # `node` ascends, so low < high here too
    return allowed


def _greedy(
    potential: Tensor,  # [N, c] columns of L⁺
    node: Tensor,
    allowed: Tensor,
    operator: Laplacian,
    top: int,
    settled: bool,
) -> Bridges:
    count = len(node)
    size = torch.bincount(operator.component)[operator.component[node]].double()
    reach, gram = potential[node], potential.T @ potential
    chosen: list[Tensor] = []
    scores: list[Tensor] = []
    for _ in range(min(top, int(allowed.sum()))):
        resistance = _distances(reach)
        square = _distances(gram).clamp(min=0)
        score = size[:, None] * square / (1 + resistance)
        score = torch.where(allowed, score, -1.0)
        at = score.argmax()
        i, j = at // count, at % count
        chosen.append(torch.stack([node[i], node[j]]))
        scores.append(score[i, j])
        allowed[i, j] = False
        # L⁺ decreases by g gᵀ / (1 + R), g = L⁺ b.
        factor = 1 / (1 + resistance[i, j])
        step, image, length = reach[:, i] - reach[:, j], gram[:, i] - gram[:, j], square[i, j]
        outer = torch.outer(step, image)
        gram = gram - factor * (outer + outer.T) + factor**2 * length * torch.outer(step, step)
        reach = reach - factor * torch.outer(step, step)
    pairs = torch.stack(chosen, 1) if chosen else node.new_empty(2, 0)
    found = pairs.shape[1]
    score = torch.stack(scores) if scores else potential.new_empty(0)
    return Bridges(
        pairs,
        score,
        torch.zeros(found, dtype=torch.int64, device=node.device),
        torch.ones(found, device=node.device),
        torch.zeros(found, dtype=torch.bool, device=node.device),
        torch.zeros_like(score),
        settled,
    )


def _distances(matrix: Tensor) -> Tensor:  # [c, c] -> [c, c]
    diagonal = matrix.diagonal()
    return diagonal[:, None] + diagonal - 2 * matrix
