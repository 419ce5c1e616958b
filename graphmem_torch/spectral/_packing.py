"""Discs without overlap, near the discs that they are linked with."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["pack_discs"]

_MOST = 256  # discs that are moved by forces; the smallest beyond them lie around in a spiral
_GAP = 2.0  # least distance between two discs
_WIDE = 1.25  # above 1 the whole becomes wider than high
_STEPS = 300
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))


def pack_discs(
    radius: Tensor,  # [K]
    low: Tensor,  # [M] disc at one end of each link
    high: Tensor,  # [M] disc at the other end
    weight: Tensor,  # [M] > 0
    *,
    generator: torch.Generator | None = None,
) -> Tensor:  # [K, 2]
    """Centres of K discs that do not overlap.

    The largest are drawn together in proportion to the links between them, by area, and to the
    middle, and pushed apart where they overlap (all pairs of at most 256); the others, as a rule
    single nodes without a link, lie around them in a sunflower spiral (Vogel 1979).
    """
    count = len(radius)
    if count == 0:
        return radius.new_zeros(0, 2)
    order = torch.argsort(radius, descending=True, stable=True)
    large = order[:_MOST]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count, device=order.device)
    inside = (rank[low] < _MOST) & (rank[high] < _MOST) & (low != high)
    links = _links(rank[low[inside]], rank[high[inside]], weight[inside], radius[large])
    centre = torch.zeros(count, 2, device=radius.device)
    centre[large] = _packed(radius[large], links, generator)
    rest = order[_MOST:]
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
    """Links between two discs by the root of both areas, the strongest of a disc at most 1."""
    count = len(radius)
    links = torch.zeros(count * count, device=radius.device)
    links.index_add_(0, low * count + high, weight.float())
    links = links.view(count, count)
    links = (links + links.T) / (radius[:, None] * radius).clamp(min=1e-12)
    return links / links.amax(1, keepdim=True).clamp(min=1e-12)


def _packed(radius: Tensor, links: Tensor, generator: torch.Generator | None) -> Tensor:
    count = len(radius)
    spread = float((radius + _GAP).square().sum().sqrt()) if count else 0.0
    start = torch.randn(count, 2, generator=generator).to(radius.device)
    # The smooth end of the links' spectrum: discs that are linked begin side by side.
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
    for step in range(_STEPS):
        left = 1 - step / _STEPS
        distance = _distance(place)
        pull = _along(place, both * (distance - touch).clamp(min=0) / distance)
        overlap = (touch - distance).clamp(min=0).fill_diagonal_(0)
        push = _along(place, overlap * share / distance)
        place = place - 0.12 * left * pull / (1 + both.sum(1, keepdim=True))
        place = place - 0.02 * left * place * middle + (0.5 + 0.2 * (1 - left)) * push
    return _separated(place, touch, share)


def _separated(place: Tensor, touch: Tensor, share: Tensor) -> Tensor:
    """Overlaps that are left go, without any other force; at last by growing the whole."""
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
    """The sum over j of `size[i, j]` times the vector from j to i."""
    return size.sum(1, keepdim=True) * place - size @ place
