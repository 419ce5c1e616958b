"""Structure: what the Laplacian of a graph says about it, all of it at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import StructureConfig
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.eigenpairs import pairs_beyond_null
from graphmem_torch.spectral.balance import Frustration, frustration
from graphmem_torch.spectral.bridge import Bridges, bridges
from graphmem_torch.spectral.community import communities, modularity
from graphmem_torch.spectral.electrical import ElectricalNetwork
from graphmem_torch.spectral.links import suggest_links
from graphmem_torch.spectral.resistance import Frontiers, centrality, frontiers

__all__ = ["Structure", "structure_of"]

_TOL = 1e-5  # residual of the eigenpairs
_MAX_ITER = 2000


@dataclass(frozen=True, eq=False)
class Structure:
    """Spectrum, communities, bridges, frontiers and frustration of a graph of N nodes.

    All but the frustration is of |w|, the larger of both directions (`docs/mathematics.md` 2.1,
    2.5).

    Attributes:
        graph: The graph.
        settings: Settings by which it was analysed.
        values: `[k]`, ascending, the smallest eigenvalues of the normalised Laplacian beyond its
            zeros, of which there is one for each component.
        vectors: `[N, k]`, orthonormal; the first one, the Fiedler vector, parts the graph where
            it hangs together least.
        residual: `[k]`; an eigenvalue lies within it of each value.
        component: `[N]` int64.
        community: `[N]` int32, each connected.
        centrality: `[N]`; large means remote (`docs/mathematics.md` 2.4).
        centrality_error: `[N]`, relative; 0 where it is exact.
        bridges: Existing edges between communities, the most needed first.
        links: Suggested links between communities, greedily.
        frontiers: Remote nodes that little ties to the rest.
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
        """How many components there are."""
        return int(self.component.max()) + 1 if self.component.numel() else 0

    @property
    def gap(self) -> float:
        """μ_2: 0 where the graph is not connected."""
        return float(self.values[0]) if self.num_components == 1 and len(self.values) else 0.0

    @property
    def fiedler(self) -> Tensor:  # [N]
        """The first eigenvector beyond the zeros; zeros where there is none."""
        if self.vectors.shape[1]:
            return self.vectors[:, 0]
        return self.vectors.new_zeros(self.graph.num_nodes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON; nodes by their names where there are any."""
        parts = torch.bincount(self.component).tolist()
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
            "frontiers": _listed_frontiers(self.frontiers, self.names),
            "contradictory": _listed_contradictions(self.frustration),
            "converged": self.converged,
        }


def structure_of(
    graph: Graph,  # N nodes
    settings: StructureConfig | None = None,
    names: Sequence[str] | None = None,
    *,
    start: Tensor | None = None,  # [N, m]
    network: ElectricalNetwork | None = None,
) -> Structure:
    """The structure of a graph; see `Structure`.

    Args:
        graph: Any, with or without edges.
        settings: Settings of the analyses; by default those of `StructureConfig`.
        names: Names of the nodes.
        start: Vectors near the eigenvectors, as those of a graph that has changed since; they save
            products and change no result beyond its residual.
        network: Electrical network of the graph, by whose settings the sketches are then made.

    Raises:
        InputError: For weights that require a gradient, names that do not fit the nodes, or a
            missing library for communities.
    """
    if names is not None and len(names) != graph.num_nodes:
        raise InputError(
            f"names: expected one for each of the {graph.num_nodes} nodes, got {len(names)}; give "
            "them in the order of the nodes"
        )
    settings = settings or StructureConfig()
    generator = torch.Generator().manual_seed(0)
    network = network or ElectricalNetwork(graph, columns=settings.columns, generator=generator)
    null = network.operator.null_space()
    pairs = pairs_beyond_null(
        network.operator,
        min(settings.eigenpairs, graph.num_nodes - null.count),
        null,
        tol=_TOL,
        generator=generator,
        max_iter=_MAX_ITER,
        start=start,
    )
    assert pairs.vectors is not None
    if pairs.converged and len(pairs.values):
        network.least = float(pairs.values[0]) / 2
    label = communities(graph, settings.communities, resolution=settings.resolution)
    remote = centrality(graph, network=network)
    needed = bridges(graph, label, settings.top, network=network)
    links = suggest_links(graph, label, settings.top, network=network)
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
        frontiers=frontiers(graph, settings.top, centrality=remote.values),
        frustration=frustration(graph),
        converged=pairs.converged and remote.converged and needed.converged and links.converged,
        names=names,
    )


_Names = Sequence[str] | None


def _listed_pairs(found: Bridges, names: _Names) -> list[dict[str, Any]]:
    """Each pair with its score; one of infinity is None, as JSON has none."""
    return [
        {
            "source": _name(source, names),
            "target": _name(target, names),
            "weight": weight,
            "score": score if math.isfinite(score) else None,
            "side": side,
        }
        for source, target, weight, score, side in zip(
            *found.pairs.tolist(),
            found.weight.tolist(),
            found.score.tolist(),
            found.side.tolist(),
            strict=True,
        )
    ]


def _listed_frontiers(found: Frontiers, names: _Names) -> list[dict[str, Any]]:
    """Each frontier with its score and what that is made of."""
    return [
        {"node": _name(node, names), "score": score, "centrality": remote, "degree": degree}
        for node, score, remote, degree in zip(
            found.node.tolist(),
            found.score.tolist(),
            found.centrality.tolist(),
            found.degree.tolist(),
            strict=True,
        )
    ]


def _listed_contradictions(found: Frustration) -> list[dict[str, Any]]:
    """Each component that is not balanced, the worst first."""
    worst = found.contradictory
    sizes = torch.bincount(found.component, minlength=len(found.value))
    return [
        {"component": part, "frustration": value, "contradictions": against, "nodes": nodes}
        for part, value, against, nodes in zip(
            worst.tolist(),
            found.value[worst].tolist(),
            found.contradictions[worst].tolist(),
            sizes[worst].tolist(),
            strict=True,
        )
    ]


def _name(node: int, names: _Names) -> str | int:
    return node if names is None else names[node]
