"""frustration: how far a signed graph is from two camps that agree inside and disagree across."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_range
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.component import number, switching, undirected
from graphmem_torch.spectral.component_pairs import lowest_of_components
from graphmem_torch.spectral.laplacians import Laplacian

__all__ = ["Frustration", "frustration"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Frustration:
    """Balance of every component, in order of its smallest node.

    Attributes:
        component: `[N]` int64.
        value: `[C]` float64: smallest eigenvalue of the signed normalised Laplacian, exactly 0
            where the component is balanced.
        residual: `[C]` float64; the eigenvalue is within it of `value`.
        contradictions: `[C]` int64, negative edges.
        camp: `[N]` int8: 1 and -1 in a component that is balanced (an edge inside a camp agrees,
            one across contradicts; the smallest node is in camp 1), 0 in one that is not.
        lean: `[N]` float32: in an unbalanced component the entry of its eigenvector over √d, whose
            sign is the camp a node leans to; elsewhere `camp`.
    """

    component: Tensor
    value: Tensor
    residual: Tensor
    contradictions: Tensor
    camp: Tensor
    lean: Tensor

    @property
    def contradictory(self) -> Tensor:
        """`[c]` int64, the unbalanced components, the most frustrated first."""
        worst = torch.argsort(self.value, descending=True, stable=True)
        return worst[self.value[worst] > 0]


def frustration(
    graph: Graph,  # N nodes
    *,
    tol: float = 1e-8,
    max_iter: int = 4000,
) -> Frustration:
    """Smallest eigenvalue of the signed Laplacian of every component (`docs/mathematics.md` 2.2).

    It is 0 exactly where the component is balanced, that is, splits into two camps with positive
    weights inside and negative ones across (Harary 1953; Kunegis et al. 2010). Balance is decided
    by a two-colouring, not by the size of a float; eigenvalues are computed of the unbalanced
    components only, all at once, in float64.

    Args:
        graph: Directions are ignored; loops do not count.
        tol: Residual asked of the eigenpairs.
        max_iter: Block products.

    Raises:
        InputError: If the weights require a gradient or a constant is out of range.
    """
    check_range("tol", tol, 0.0)
    check_count("max_iter", max_iter)
    generator = torch.Generator().manual_seed(0)
    low, high, weight = undirected(graph)
    nodes = graph.num_nodes
    root, camp = switching(low, high, weight < 0, nodes)
    component = number(root)
    count = int(component.max()) + 1 if nodes else 0
    against = torch.bincount(component[low[weight < 0]], minlength=count)
    value = torch.zeros(count, dtype=torch.float64, device=low.device)
    residual, lean = torch.zeros_like(value), camp.float()
    odd = (camp == 0).nonzero().squeeze(1)
    if odd.numel():
        place = torch.full_like(component, -1)
        place[odd] = torch.arange(odd.numel(), device=low.device)
        inside = place[low] >= 0
        operator = Laplacian(
            place[low[inside]],
            place[high[inside]],
            weight[inside],
            odd.numel(),
            normalized=True,
            dtype=torch.float64,
        )
        found = lowest_of_components(operator, tol=tol, generator=generator, max_iter=max_iter)
        if not bool((found.residual <= tol).all()):
            _log.warning(
                "Frustration: after %d products %d of %d unbalanced components have a residual "
                "above %.1e: raise max_iter or tol",
                found.iterations,
                int((found.residual > tol).sum()),
                operator.num_components,
                tol,
            )
        owner = torch.unique(component[odd])
        value[owner], residual[owner] = found.values, found.residual
        lean[odd] = (found.vectors / operator.degree.sqrt()).float()
        lean[odd] *= torch.where(lean[root[odd]] < 0, -1.0, 1.0)
    return Frustration(component, value, residual, against, camp.to(torch.int8), lean)
