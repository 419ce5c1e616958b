"""layout: positions in the plane for the nodes of a graph, grouped by community.

Communities are discs whose area is proportional to their nodes, packed without overlap near linked
ones (`_packing`). Inside its disc, a node is pulled to its neighbours and pushed out of crowded
areas. The pressure comes from a grid: a step costs O(N + E + cells).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_tensor
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import undirected

__all__ = ["GraphLayout", "layout", "pack_discs"]
_GAP = 2.0  # minimum distance of two discs
_WIDE = 1.25  # above 1 makes the whole wider than high
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))


def pack_discs(
    radius: Tensor,  # [K]
    low: Tensor,  # [M] disc at one end of each link
    high: Tensor,  # [M] disc at the other end
    weight: Tensor,  # [M] > 0
    *,
    steps: int = 300,
    most: int = 256,
    generator: torch.Generator | None = None,
) -> Tensor:  # [K, 2]
    """Return centres of K discs that do not overlap.

    The `most` largest are pulled together by the links between them relative to area, and to the
    middle, and pushed apart if they overlap (all pairs, for some steps). The others, usually single
    nodes without links, lie around them in a sunflower spiral (Vogel 1979).
    """
    count = len(radius)
    if count == 0:
        return radius.new_zeros(0, 2)
    order = torch.argsort(radius, descending=True, stable=True)
    large = order[:most]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count, device=order.device)
    inside = (rank[low] < most) & (rank[high] < most) & (low != high)
    links = _links(rank[low[inside]], rank[high[inside]], weight[inside], radius[large])
    centre = torch.zeros(count, 2, device=radius.device)
    centre[large] = _packed(radius[large], links, steps, generator)
    rest = order[most:]
    if len(rest):
        edge = float((centre[large].norm(dim=1) + radius[large]).max()) + 2 * _GAP
        place = torch.arange(len(rest), device=radius.device) + 0.5
        step = 2 * float(radius[rest].max()) + _GAP
        distance = (edge**2 + place * (step**2 / 0.8)).sqrt()
        angle = place * _GOLDEN_ANGLE
        centre[rest] = torch.stack([distance * angle.cos(), distance * angle.sin()], 1)
    middle = (centre * radius.square()[:, None]).sum(0) / radius.square().sum().clamp(min=1e-12)
    return centre - middle


def _links(low: Tensor, high: Tensor, weight: Tensor, radius: Tensor) -> Tensor:  # [K, K]
    """Return links between discs over the root of both areas, scaled to at most 1 per disc."""
    count = len(radius)
    links = torch.zeros(count * count, device=radius.device)
    links.index_add_(0, low * count + high, weight.float())
    links = links.view(count, count)
    links = (links + links.T) / (radius[:, None] * radius).clamp(min=1e-12)
    return links / links.amax(1, keepdim=True).clamp(min=1e-12)


def _packed(radius: Tensor, links: Tensor, steps: int, generator: torch.Generator | None) -> Tensor:
    count = len(radius)
    spread = float((radius + _GAP).square().sum().sqrt()) if count else 0.0
    start = torch.randn(count, 2, generator=generator).to(radius.device)
    # Start from the smooth end of the links' spectrum, which places linked discs side by side.
    both = (links + links.T) / 2
    root = both.sum(1).clamp(min=1e-6).rsqrt()
    if count > 3:
        _, vectors = torch.linalg.eigh(torch.diag((root > 0).float()) - root[:, None] * both * root)
        start = vectors[:, 1:3] * math.sqrt(count) + 0.05 * start
    place = start * spread * 0.6
    middle = torch.tensor([2 - _WIDE, _WIDE], device=radius.device)  # pull to the axes
    touch = radius[:, None] + radius + _GAP
    mass = radius.square()
    share = mass / (mass[:, None] + mass).clamp(min=1e-12)  # [i, j]: of an overlap, what i moves
    for step in range(steps if count > 1 else 0):
        left = 1 - step / steps
        distance = _distance(place)
        pull = _along(place, both * (distance - touch).clamp(min=0) / distance)
        overlap = (touch - distance).clamp(min=0).fill_diagonal_(0)
        push = _along(place, overlap * share / distance)
        place = place - 0.12 * left * pull / (1 + both.sum(1, keepdim=True))
        place = place - 0.02 * left * place * middle + (0.5 + 0.2 * (1 - left)) * push
    return _separated(place, touch, share)


def _separated(place: Tensor, touch: Tensor, share: Tensor) -> Tensor:
    """Remove the remaining overlaps without other forces; finally, by scaling up."""
    for _ in range(200):
        distance = _distance(place)
        overlap = (touch - distance).clamp(min=0).fill_diagonal_(0)
        if float(overlap.amax() if overlap.numel() else 0.0) < 0.05:
            break
        place = place + 0.5 * _along(place, overlap * share / distance)
    distance = _distance(place).fill_diagonal_(math.inf)
    needed = ((touch - 0.6 * _GAP) / distance).amax()
    return place * max(1.0, min(float(needed), 4.0))


def _distance(place: Tensor) -> Tensor:  # [K, 2] -> [K, K]
    x, y = place.unbind(1)
    return torch.hypot(x[:, None] - x, y[:, None] - y).clamp(min=1e-6)


def _along(place: Tensor, size: Tensor) -> Tensor:  # [K, 2], [K, K] -> [K, 2]
    """Return the sum over j of `size[i, j]` times the vector from j to i."""
    return size.sum(1, keepdim=True) * place - size @ place


_ROOM = 1.35  # area of a disc over the area its nodes need at unit distance
_OUTSIDE = 0.1  # pull of an edge between communities, relative to one inside
_DIFFUSION = 30  # rounds that bring linked nodes together before the forces start
_CALM = 0.6  # density below which nothing pushes
_CELL = 0.5  # side of a grid cell, relative to the distance of nodes
_MOST_CELLS = 1024  # maximum cells along one side of the grid


@dataclass(frozen=True, eq=False)
class GraphLayout:
    """Positions in the plane; the unit is the mean distance of neighbouring nodes.

    Attributes:
        position: [N, 2] float32; the centre of all nodes is the origin.
        centre: [K, 2] float32, of each community's disc.
        radius: [K] float32.
    """

    position: Tensor
    centre: Tensor
    radius: Tensor


def layout(
    graph: Graph,  # N nodes, E edges
    label: Tensor,  # [N] integers in 0..K-1: each node's community
    *,
    iterations: int = 100,
    generator: torch.Generator | None = None,
) -> GraphLayout:
    """Place the nodes of a graph in the plane, community by community.

    Each disc starts with random places diffused along the edges (power iterations with I - L/2, the
    smooth end of the Laplacian's spectrum; Koren 2003). Then follow `iterations` steps of
    attraction along edges and pressure, the gradient of the nodes' density with decreasing blur
    (force-directed placement as in Fruchterman and Reingold 1991, the far field on a mesh).

    Args:
        graph: Directions and signs are ignored.
        label: Community of each node; a number without nodes gets a disc without area.
        iterations: Steps of the forces, at least 1; discs take three times as many.
        generator: Random generator for the start; the global one when omitted.

    Raises:
        InputError: Labels have the wrong shape or type, or there are no iterations.
    """
    check_count("iterations", iterations)
    nodes = graph.num_nodes
    do = "give every node the number of its community"
    check_tensor("label", label, "integers", (nodes,), do)
    if bool((label < 0).any()):
        raise InputError(f"label: expected numbers of at least 0, got {int(label.min())}; {do}")
    label = label.long()
    low, high, weight = undirected(graph)
    weight = weight.abs()
    size = torch.bincount(label)
    radius = (size * (_ROOM / math.pi)).sqrt()
    links = label[low], label[high], weight
    centre = pack_discs(radius, *links, steps=3 * iterations, generator=generator)
    if not nodes:
        return GraphLayout(centre.new_zeros(0, 2), centre, radius)
    pull = _Pull(low, high, weight, label)
    own = centre[label]
    reach = (radius[label] - 0.5).clamp(min=0.0)
    place = own + _filled(_diffused(pull, label, size, generator), label, size) * reach[:, None]
    for step in range(iterations):
        left = 1 - step / iterations
        # Blur decreases: first whole regions move, in the end single nodes keep their distance.
        push = _pressure(place, blur=0.7 + 2.5 * left * left)
        noise = torch.randn(nodes, 2, generator=generator).to(place)  # separates nodes at one place
        inner = place - own + 0.3 * left * pull(place) + 1.2 * push + 0.1 * left * noise
        inner = inner - _mean(inner, label, size)
        if step % 5 == 0:
            even = _filled(inner, label, size) * reach[:, None]
            inner = inner + left * (even - inner)
        place = own + _inside(inner, reach)
    return GraphLayout(place, centre, radius)


class _Pull:
    """Mean vector from a node to its neighbours; long ones and those outside count less."""

    def __init__(self, low: Tensor, high: Tensor, weight: Tensor, label: Tensor) -> None:
        self.source, self.target = torch.cat([low, high]), torch.cat([high, low])
        outside = label[self.source] != label[self.target]
        self.weight = weight.repeat(2) * torch.where(outside, _OUTSIDE, 1.0)
        degree = self.weight.new_zeros(len(label)).index_add_(0, self.source, self.weight)
        self.weight = self.weight / degree[self.source]

    def __call__(self, place: Tensor, longest: float = 6.0) -> Tensor:  # [N, 2] -> [N, 2]
        step = place[self.target] - place[self.source]
        step *= (self.weight / (1 + step.norm(dim=1) / longest))[:, None]
        return torch.zeros_like(place).index_add_(0, self.source, step)


def _diffused(
    pull: _Pull, label: Tensor, size: Tensor, generator: torch.Generator | None
) -> Tensor:  # [N, 2]
    """Return random places in each community, smoothed along its edges and spread out again."""
    nodes = len(label)
    place = torch.randn(nodes, 2, generator=generator).to(label.device)
    inner = label[pull.source] == label[pull.target]
    source, target, weight = pull.source[inner], pull.target[inner], pull.weight[inner, None]
    share = torch.zeros(nodes, 1, device=label.device).index_add_(0, source, weight)
    for _ in range(_DIFFUSION):
        mean = torch.zeros_like(place).index_add_(0, source, weight * place[target])
        place = 0.5 * place + 0.5 * (mean + (1 - share) * place)
        place = _whitened(place, label, size)
    return place


def _filled(place: Tensor, label: Tensor, size: Tensor) -> Tensor:  # [N, 2] in the unit disc
    """Set each node's distance by its rank in its community, which fills the disc evenly."""
    distance = place.norm(dim=1)
    order = torch.argsort(label.double() * 2 + distance / (distance + 1))
    first = offsets_of(size)[label[order]]
    rank = torch.empty_like(distance)
    rank[order] = (torch.arange(len(label), device=label.device) - first + 0.5) / size[label[order]]
    return place * (rank.sqrt() / distance.clamp(min=1e-12))[:, None]


def _mean(value: Tensor, label: Tensor, size: Tensor) -> Tensor:  # [N, c] -> [N, c]
    """Return the mean of each node's community."""
    total = value.new_zeros(len(size), value.shape[1]).index_add_(0, label, value)
    return (total / size.clamp(min=1)[:, None])[label]


def _whitened(place: Tensor, label: Tensor, size: Tensor) -> Tensor:
    """Centre and whiten each community: two orthogonal axes of unit variance."""
    x, y = (place - _mean(place, label, size)).split(1, dim=1)
    x = x * _mean(x * x, label, size).clamp(min=1e-12).rsqrt()
    y = y - _mean(x * y, label, size) * x
    y = y * _mean(y * y, label, size).clamp(min=1e-12).rsqrt()
    return torch.cat([x, y], 1)


def _pressure(place: Tensor, *, blur: float) -> Tensor:  # [N, 2] -> [N, 2]
    """Return the downhill direction of the nodes' density, which is 1 at unit distance.

    Args:
        place: [N, 2] positions.
        blur: Standard deviation of the kernel of the density.
    """
    low = place.amin(0) - 2
    extent = float((place.amax(0) - low).max()) + 2
    cells = min(_MOST_CELLS, math.ceil(extent / _CELL) + 1)
    cell = extent / (cells - 1)
    at = (place - low) / cell
    corner = at.floor().long().clamp(0, cells - 2)
    share = at - corner
    x, y = share.unbind(1)
    density = torch.zeros(cells * cells, device=place.device)
    flat = corner[:, 1] * cells + corner[:, 0]
    corners = ((0, (1 - x) * (1 - y)), (1, x * (1 - y)), (cells, (1 - x) * y), (cells + 1, x * y))
    for offset, part in corners:
        density.index_add_(0, flat + offset, part)
    # No finer than the grid allows.
    width = max(blur / cell, 0.8)
    field = _blurred(density.view(1, 1, cells, cells), width)[0, 0] / cell**2
    # Uncrowded nodes do not push, or all would end at the rim.
    field = (field - _CALM).clamp(min=0)
    down_y, down_x = torch.gradient(field, spacing=cell)
    slope = -torch.stack([down_x.reshape(-1), down_y.reshape(-1)], 1)
    push = sum(part[:, None] * slope[flat + offset] for offset, part in corners)
    assert isinstance(push, Tensor)
    push = push * blur
    return push / (1 + push.norm(dim=1, keepdim=True))


def _blurred(image: Tensor, width: float) -> Tensor:  # [1, 1, G, G]
    half = math.ceil(3 * width)
    kernel = torch.exp(-0.5 * (torch.arange(-half, half + 1, device=image.device) / width) ** 2)
    kernel = (kernel / kernel.sum()).view(1, 1, 1, -1)
    image = torch.nn.functional.conv2d(image, kernel, padding=(0, half))
    return torch.nn.functional.conv2d(image, kernel.mT, padding=(half, 0))


def _inside(vector: Tensor, reach: Tensor) -> Tensor:  # [N, 2], [N] -> [N, 2]
    """Clip vectors to the length `reach`."""
    return vector * (reach / vector.norm(dim=1).clamp(min=1e-12)).clamp(max=1.0)[:, None]
