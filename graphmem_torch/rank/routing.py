"""Routing buffers: properties of the graph, computed once for an index and read per question."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import components, undirected
from graphmem_torch.ops.pagerank import pagerank

__all__ = [
    "ROUTING_PARTS",
    "bridge_bonus",
    "published_resistance",
    "relative_pagerank",
    "resistance_directions",
    "routing_parts",
    "routing_tensors",
    "sign_changes",
]

ROUTING_PARTS = {
    "proximity": ("direction", "component"),
    "bridge": ("bridge_bonus",),
    "inverse_resistance": ("resistance_far", "resistance_null", "resistance_scale", "component"),
    "sign_change": ("sign_change",),
    "pagerank": ("pagerank",),
    "strength": ("pagerank",),
}
"""Buffers of the index by the signal that reads them; only a preset that uses it has them."""

_CENTRAL = ("pagerank", "strength")
_COLUMNS = 64
_LEAST = 1e-6  # minimum share of the largest weight; weaker, decayed edges are dropped
_EQUAL = 1e-6  # relative difference up to which scores are equal


def routing_tensors(
    graph: Graph,
    node: Tensor,  # [A] int64
    signals: Iterable[str],
) -> dict[str, Tensor]:
    """Compute the buffers that the named signals read, for the graph's nodes that are atoms.

    Random draws go row by row from a fixed seed, so the same rows give the same buffers. A memory
    stored in another order gives others, within the difference of two sketches of `_COLUMNS`
    columns or two runs of Leiden.
    """
    named = set(signals)
    tensors: dict[str, Tensor] = {}
    if not named.isdisjoint(_CENTRAL):
        tensors["pagerank"] = relative_pagerank(graph, node)
    if not named & ROUTING_PARTS.keys() - {*_CENTRAL}:
        return tensors
    graph = _carrying(graph)
    if "proximity" in named:
        direction, component = resistance_directions(graph, node)
        tensors.update(direction=direction, component=component)
    if "bridge" in named:
        tensors["bridge_bonus"] = bridge_bonus(graph)[node]
    if "inverse_resistance" in named:
        tensors.update(published_resistance(graph, node))
    if "sign_change" in named:
        tensors["sign_change"] = sign_changes(graph)[node]
    return tensors


def routing_parts(signals: Iterable[str]) -> set[str]:
    """Return the names of the buffers that the named signals read."""
    return {part for name in signals for part in ROUTING_PARTS.get(name, ())}


def relative_pagerank(
    graph: Graph,
    node: Tensor,  # [A] int64
    values: Tensor | None = None,  # [N]
) -> Tensor:  # [A]
    """Return PageRank of the nodes that are atoms, relative to the largest of them.

    Args:
        graph: The conducting graph.
        node: The node that each atom is.
        values: Known values proportional to PageRank.
    """
    if not len(node):
        return torch.zeros(0, device=node.device)
    own = (pagerank(graph).values if values is None else values)[node].float()
    return own / own.max().clamp(min=torch.finfo(own.dtype).tiny)


def resistance_directions(
    graph: Graph,
    node: Tensor,  # [A] int64
    *,
    columns: int = _COLUMNS,
) -> tuple[Tensor, Tensor]:  # [A, c], [A] int32
    """Return unit vectors whose cosine is electrical nearness, and the components of atoms.

    In a large graph effective resistance is 1/d_i + 1/d_j for any pair (von Luxburg et al. 2014).
    The remainder is a squared distance of points. Seen from their centre, the cosine of two points
    is their pseudo-inverse kernel without the local part, relative to their sizes (the cosine of
    Fouss et al. 2007). So neither poorly nor richly connected atoms are preferred.
    """
    from graphmem_torch.spectral.resistance import resistance_embedding

    found = resistance_embedding(graph, columns)
    points, component = found.far[node], found.component[node]
    count = int(component.max()) + 1 if len(node) else 0
    size = torch.bincount(component, minlength=count).clamp(min=1)[:, None]
    centre = points.new_zeros(count, columns).index_add_(0, component, points) / size
    seen = points - centre[component]
    length = seen.norm(dim=1, keepdim=True)
    # A component of one atom, or of equally connected atoms, has no direction.
    least = 1e-4 * points.norm(dim=1, keepdim=True)
    direction = torch.where(length > least, seen / length.clamp(min=1e-30), 0.0)
    return direction.contiguous(), component.to(torch.int32)


def published_resistance(
    graph: Graph,
    node: Tensor,  # [A] int64
    *,
    columns: int = _COLUMNS,
) -> dict[str, Tensor]:
    """Compute the columns that `resistances` reads: `docs/mathematics.md` 2.6, "As printed".

    Returns:
        `resistance_far` [A, c], rows z of a random projection of A L^+ A; `resistance_null` [A],
        entries v of the null vectors; `resistance_scale` [A], 1 / sqrt(degree), 0 for an isolated
        atom; `component` [A] int32.
    """
    generator = torch.Generator().manual_seed(0)
    from graphmem_torch.spectral.electrical import ElectricalNetwork

    network = ElectricalNetwork(graph, columns=columns, generator=generator)
    operator = network.operator
    return {
        "resistance_far": network.edge_sketch.rows[node].contiguous(),
        "resistance_null": operator.null_space().value[node].float(),
        "resistance_scale": torch.where(operator.degree > 0, operator.scale, 0.0)[node].float(),
        "component": operator.component[node].to(torch.int32),
    }


def sign_changes(graph: Graph) -> Tensor:  # [N] float32
    """Return 1 for the nodes with an edge across which the Fiedler vector changes its sign.

    The published bonus (Spectral Memory, section 4.4), in the largest component. Over several
    components the vector separates these, and no edge joins them.
    """
    low, high, weight = undirected(graph)
    changes = torch.zeros(graph.num_nodes, device=graph.device)
    if not len(low):
        return changes
    component = components(graph)
    inside = component == torch.bincount(component).argmax()
    number = inside.cumsum(0) - 1
    kept = inside[low]
    low, high = low[kept], high[kept]
    ends = torch.stack([number[low], number[high]])
    part = Graph.from_edges(ends, weight[kept], num_nodes=int(inside.sum()))
    positive = torch.zeros_like(inside)
    from graphmem_torch.spectral.community import fiedler

    vector = fiedler(part).vectors
    assert vector is not None
    positive[inside] = vector >= 0
    across = positive[low] != positive[high]
    changes[low[across]] = changes[high[across]] = 1.0
    return changes


def bridge_bonus(graph: Graph) -> Tensor:  # [N] float32 in [0, 1]
    """Return how much each node's edges into other communities hold the graph together.

    The published bonus goes to the nodes where the Fiedler vector changes sign. Here it is the
    share of edges between communities that score at most as high as the node's best one
    (`docs/mathematics.md` 2.5): 1 for the ends of the strongest bridge, 0 for nodes without an edge
    to another community.
    """
    low, high, _ = undirected(graph)
    bonus = torch.zeros(graph.num_nodes, device=graph.device)
    if low.numel() == 0:
        return bonus
    from graphmem_torch.spectral.bridge import bridge_scores
    from graphmem_torch.spectral.community import communities
    from graphmem_torch.spectral.electrical import ElectricalNetwork

    # Leiden comes from a library; both methods find connected communities.
    label = communities(graph, "leiden" if find_spec("graspologic_native") else "fiedler")
    across = label[low] != label[high]
    if not bool(across.any()):
        return bonus
    pairs = torch.stack([low[across], high[across]])
    score = bridge_scores(graph, pairs, network=ElectricalNetwork(graph, columns=_COLUMNS)).score
    ordered = score.sort().values
    # Equal edges differ by rounding, which must not rank them.
    above = torch.searchsorted(ordered, score * (1 + _EQUAL), right=True)
    share = (above / len(score)).float()
    for ends in pairs:
        bonus = bonus.scatter_reduce(0, ends, share, "amax")
    return bonus


def _carrying(graph: Graph) -> Graph:
    """Drop the edges whose weight is negligible."""
    if graph.num_edges == 0:
        return graph
    strength = graph.weight.abs()
    return graph.select(strength > _LEAST * strength.max())
