"""Structure: all analyses by the Laplacian of a graph in one result."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_range
from graphmem_torch.config import StructureConfig
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import number, switching, undirected
from graphmem_torch.linalg.eigenpairs import pairs_beyond_null
from graphmem_torch.linalg.laplacians import Laplacian
from graphmem_torch.spectral.bridge import Bridges, bridges
from graphmem_torch.spectral.community import communities, modularity
from graphmem_torch.spectral.component_pairs import lowest_of_components
from graphmem_torch.spectral.electrical import ElectricalNetwork
from graphmem_torch.spectral.links import suggest_links
from graphmem_torch.spectral.resistance import Frontiers, centrality, frontiers

__all__ = ["Frustration", "Structure", "frustration", "structure_of"]

_log = logging.getLogger(__name__)

_TOL = 1e-5  # residual of the eigenpairs
_MAX_ITER = 2000


@dataclass(frozen=True, eq=False)
class Frustration:
    """Balance of every component, in order of its smallest node.

    Attributes:
        component: `[N]` int64.
        value: `[C]` float64, smallest eigenvalue of the signed normalised Laplacian; exactly 0 for
            a balanced component.
        residual: `[C]` float64; the eigenvalue is within it of `value`.
        contradictions: `[C]` int64, number of negative edges.
        camp: `[N]` int8: 1 or -1 in a balanced component, whose edges are positive inside a camp
            and negative between camps; the smallest node is in camp 1. 0 in an unbalanced one.
        lean: `[N]` float32: `camp`, or in an unbalanced component the entry of its eigenvector over
            √d, whose sign is the camp that a node is closer to.
    """

    component: Tensor
    value: Tensor
    residual: Tensor
    contradictions: Tensor
    camp: Tensor
    lean: Tensor

    @property
    def contradictory(self) -> Tensor:
        """`[c]` int64, unbalanced components, the most frustrated first."""
        worst = torch.argsort(self.value, descending=True, stable=True)
        return worst[self.value[worst] > 0]


def frustration(
    graph: Graph,  # N nodes
    *,
    tol: float = 1e-8,
    max_iter: int = 4000,
) -> Frustration:
    """Return the smallest eigenvalue of the signed Laplacian of each component.

    See `docs/mathematics.md` 2.2. It is 0 exactly if the component is balanced: it splits into two
    camps with positive weights inside and negative ones across (Harary 1953; Kunegis et al. 2010).
    Balance is decided by a two-colouring, not by the size of a float. Eigenvalues are computed only
    for unbalanced components, all at once, in float64.

    Args:
        graph: Directions are ignored; loops do not count.
        tol: Maximum residual of the eigenpairs.
        max_iter: Maximum block products.

    Raises:
        InputError: The weights require a gradient or a constant is out of range.
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


@dataclass(frozen=True, eq=False)
class Structure:
    """Spectrum, communities, bridges, frontiers and frustration of a graph of N nodes.

    All but the frustration use |w|, the larger of both directions (`docs/mathematics.md` 2.1, 2.5).

    Attributes:
        graph: The graph.
        settings: Settings of the analysis.
        values: `[k]`, ascending, the smallest eigenvalues of the normalised Laplacian beyond its
            zeros, one of which belongs to each component.
        vectors: `[N, k]`, orthonormal; the first, the Fiedler vector, splits the graph at its
            weakest connection.
        residual: `[k]`; an eigenvalue lies within it of each value.
        component: `[N]` int64.
        community: `[N]` int32, each connected.
        centrality: `[N]`; large means remote (`docs/mathematics.md` 2.4).
        centrality_error: `[N]`, relative; 0 where it is exact.
        bridges: Existing edges between communities, the most important first.
        links: Suggested links between communities, greedily.
        frontiers: Remote nodes that are weakly connected to the rest.
        frustration: Balance of each component's signs.
        converged: Whether every iteration reached its tolerance.
        names: Names of the nodes, or None.
    """

    graph: Graph
    settings: StructureConfig
    values: Tensor
    vectors: Tensor
    residual: Tensor
    component: Tensor
    community: Tensor
    centrality: Tensor
    centrality_error: Tensor
    bridges: Bridges
    links: Bridges
    frontiers: Frontiers
    frustration: Frustration
    converged: bool
    names: Sequence[str] | None = None

    @property
    def num_components(self) -> int:
        """Number of components."""
        return int(self.component.max()) + 1 if self.component.numel() else 0

    @property
    def gap(self) -> float:
        """μ_2; 0 if the graph is not connected."""
        return float(self.values[0]) if self.num_components == 1 and len(self.values) else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; nodes by their names, if any."""
        parts = torch.bincount(self.component).tolist()
        remote, signs = self.frontiers, self.frustration
        worst = signs.contradictory
        sizes = torch.bincount(self.community.long()).tolist()
        return {
            "nodes": self.graph.num_nodes,
            "edges": self.graph.num_edges,
            "components": parts,
            "gap": self.gap,
            "eigenvalues": self.values.tolist(),
            "communities": sizes,
            "modularity": modularity(self.graph, self.community) if sizes else 0.0,
            "bridges": _listed_pairs(self.bridges, self.names),
            "links": _listed_pairs(self.links, self.names),
            "frontiers": _listed(
                self.names,
                node=remote.node,
                score=remote.score,
                centrality=remote.centrality,
                degree=remote.degree,
            ),
            "contradictory": _listed(
                None,
                component=worst,
                frustration=signs.value[worst],
                contradictions=signs.contradictions[worst],
                nodes=torch.bincount(signs.component, minlength=len(signs.value))[worst],
            ),
            "converged": self.converged,
        }


def structure_of(
    graph: Graph,  # N nodes
    settings: StructureConfig | None = None,
    names: Sequence[str] | None = None,
    *,
    start: Tensor | None = None,  # [N, m]
    network: ElectricalNetwork | None = None,
    eigenpairs: int = 20,
    top: int = 10,
    columns: int = 64,
) -> Structure:
    """Analyse the structure of a graph; see `Structure`.

    Args:
        graph: Any graph, with or without edges.
        settings: Settings of the analyses; by default those of `StructureConfig`.
        names: Names of the nodes.
        start: Vectors near the eigenvectors, such as those before a change of the graph; they save
            products and change no result beyond its residual.
        network: Electrical network of the graph, whose settings the sketches then use.
        eigenpairs: Number of the Laplacian's lowest eigenpairs beyond its zeros.
        top: Maximum number of bridges, suggested links and frontiers.
        columns: Columns of the random sketches that estimate resistances in a large graph.

    Raises:
        InputError: Weights require a gradient, names do not fit the nodes, or the library for
            communities is missing.
    """
    if names is not None and len(names) != graph.num_nodes:
        raise InputError(
            f"names: expected one for each of the {graph.num_nodes} nodes, got {len(names)}; give "
            "them in the order of the nodes"
        )
    settings = settings or StructureConfig()
    generator = torch.Generator().manual_seed(0)
    network = network or ElectricalNetwork(graph, columns=columns, generator=generator)
    null = network.operator.null_space()
    pairs = pairs_beyond_null(
        network.operator,
        min(eigenpairs, graph.num_nodes - null.count),
        null,
        tol=_TOL,
        generator=generator,
        max_iter=_MAX_ITER,
        start=start,
    )
    assert pairs.vectors is not None
    if pairs.converged and len(pairs.values):
        network.least = float(pairs.values[0]) / 2
    label = communities(graph, settings.communities)
    remote = centrality(graph, network=network)
    needed = bridges(graph, label, top, network=network)
    links = suggest_links(graph, label, top, network=network)
    return Structure(
        graph=graph,
        settings=settings,
        values=pairs.values,
        vectors=pairs.vectors,
        residual=pairs.residual,
        component=network.operator.component,
        community=label,
        centrality=remote.values,
        centrality_error=remote.residual,
        bridges=needed,
        links=links,
        frontiers=frontiers(graph, top, centrality=remote.values),
        frustration=frustration(graph),
        converged=pairs.converged and remote.converged and needed.converged and links.converged,
        names=names,
    )


def _listed(names: Sequence[str] | None, **columns: Tensor) -> list[dict[str, Any]]:
    """Return a row for each entry of the columns, with nodes by their names.

    An infinite score is None, because JSON has no infinity.
    """
    plain = {name: column.tolist() for name, column in columns.items()}
    for name in {"source", "target", "node"} & plain.keys():
        plain[name] = plain[name] if names is None else [names[node] for node in plain[name]]
    if "score" in plain:
        plain["score"] = [score if math.isfinite(score) else None for score in plain["score"]]
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def _listed_pairs(found: Bridges, names: Sequence[str] | None) -> list[dict[str, Any]]:
    ends = {"source": found.pairs[0], "target": found.pairs[1]}
    return _listed(names, **ends, weight=found.weight, score=found.score, side=found.side)
