"""Structure: what the Laplacian of a graph says about it, kept up to date as the graph changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import StructureConfig
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.listing import listed_contradictions, listed_frontiers, listed_pairs
from graphmem_torch.spectral import (
    Bridges,
    Frontiers,
    Frustration,
    bridges,
    centrality,
    communities,
    frontiers,
    frustration,
    modularity,
    suggest_links,
)
from graphmem_torch.spectral.changes import Changes, changes_between
from graphmem_torch.spectral.lanczos import pairs_beyond_null
from graphmem_torch.spectral.touched import centrality_after, communities_after
from graphmem_torch.spectral.workspace import Potentials, Workspace

__all__ = ["Structure", "structure_of"]

_TOL = 1e-5  # residual of the eigenpairs
_MAX_ITER = 2000


@dataclass(frozen=True, eq=False)
class Structure:
    """Spectrum, communities, bridges, frontiers and frustration of a graph of N nodes.

    All but the frustration is of |w|, the larger of both directions (`mathematics.md` 2.1, 2.5).

    Attributes:
        graph: The graph.
        settings: By which it was analysed.
        values: `[k]`, ascending, the smallest eigenvalues of the normalised Laplacian beyond its
            zeros, of which there is one for each component.
        vectors: `[N, k]`, orthonormal; the first one, the Fiedler vector, parts the graph where
            it hangs together least.
        residual: `[k]`; an eigenvalue lies within it of each value.
        component: `[N]` int64.
        community: `[N]` int32, each connected.
        centrality: `[N]`; large means remote (`mathematics.md` 2.4).
        centrality_error: `[N]`, relative; 0 where it is exact.
        bridges: Existing edges between communities, the most needed first.
        links: Suggested links between communities, greedily.
        frontiers: Remote nodes that little ties to the rest.
        frustration: Balance of each component's signs.
        converged: Whether every iteration reached its tolerance.
        potentials: Solved columns, from which a refresh starts: in a large graph about 300 of them,
            1.2 kB a node.
        names: Of the nodes, or None.
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
    potentials: Potentials
    names: Sequence[str] | None = None

    @property
    def num_components(self) -> int:
        """How many components there are."""
        return int(self.component.max()) + 1 if self.component.numel() else 0

    @property
    def num_communities(self) -> int:
        """How many communities there are."""
        return int(self.community.max()) + 1 if self.community.numel() else 0

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

    def refreshed(
        self,
        graph: Graph,
        kept: Tensor | None = None,  # [N'] int64
        names: Sequence[str] | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Structure:
        """The structure of the graph as it has become, from the one it had.

        Eigenpairs, sketches and solved columns start from the old ones; communities are found anew
        where edges or nodes came or went (everywhere once that is half of the nodes), and so is
        the frustration, of the whole graph. All is iterated to the tolerances of a fresh analysis:
        scores are exact to 1e-4, a centrality of a component that changed is that of a fresh
        sketch with the same signs to 5e-3. Communities of an equal modularity may be others, and
        with them bridges and links. Without a change the old results stay as they are.

        Args:
            graph: The new graph.
            kept: For each of its nodes the number it had, -1 where it is new; without it the first
                nodes are the old ones.
            names: Of its nodes.
            generator: Of the random starts and sketches; without one always the same.

        Raises:
            InputError: If `kept` or the names do not fit.
        """
        _check_names(names, graph)
        old, new = self.graph.num_nodes, graph.num_nodes
        if kept is None:
            kept = torch.arange(new, device=graph.device)
            kept = torch.where(kept < old, kept, -1)
        changes = changes_between(self.graph, graph, kept)
        if changes.nothing:
            return replace(self, graph=graph, names=names)
        return _analysed(graph, self.settings, names, _generator(generator), self, changes)

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
            "bridges": listed_pairs(self.bridges, self.names),
            "links": listed_pairs(self.links, self.names),
            "frontiers": listed_frontiers(self.frontiers, self.names),
            "contradictory": listed_contradictions(self.frustration),
            "converged": self.converged,
        }


def structure_of(
    graph: Graph,  # N nodes
    settings: StructureConfig | None = None,
    names: Sequence[str] | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Structure:
    """The structure of a graph; see `Structure`.

    Args:
        graph: Any, with or without edges.
        settings: Defaults are those of `StructureConfig`.
        names: Of the nodes.
        generator: Of the random starts and sketches; without one always the same.

    Raises:
        InputError: For weights that require a gradient, names that do not fit the nodes, or a
            missing library for communities.
    """
    _check_names(names, graph)
    return _analysed(graph, settings or StructureConfig(), names, _generator(generator), None, None)


def _check_names(names: Sequence[str] | None, graph: Graph) -> None:
    if names is not None and len(names) != graph.num_nodes:
        raise InputError(
            f"names must be one for each of the {graph.num_nodes} nodes; got {len(names)}. Give "
            "them in the order of the nodes."
        )


def _generator(given: torch.Generator | None) -> torch.Generator:
    return torch.Generator().manual_seed(0) if given is None else given


def _analysed(
    graph: Graph,
    settings: StructureConfig,
    names: Sequence[str] | None,
    generator: torch.Generator,
    before: Structure | None,
    changes: Changes | None,
) -> Structure:
    workspace = Workspace(
        graph,
        generator=generator,
        before=None if before is None else before.potentials,
        changes=changes,
    )
    operator = workspace.operator
    null = operator.null_space()
    start = None
    if before is not None and changes is not None:
        start = changes.carried(before.vectors, 0.0)
    pairs = pairs_beyond_null(
        operator,
        min(settings.eigenpairs, graph.num_nodes - null.count),
        null,
        tol=_TOL,
        generator=generator,
        max_iter=_MAX_ITER,
        start=start,
    )
    assert pairs.vectors is not None
    if pairs.converged and len(pairs.values):
        workspace.least = float(pairs.values[0]) / 2
    if before is None or changes is None:
        label = communities(graph, settings.communities, resolution=settings.resolution)
        remote = centrality(graph, columns=settings.columns, workspace=workspace)
    else:
        label = communities_after(
            changes, before.community, settings.communities, resolution=settings.resolution
        )
        remote = centrality_after(
            changes,
            before.centrality,
            before.centrality_error,
            columns=settings.columns,
            workspace=workspace,
        )
    needed = bridges(graph, label, settings.top, columns=settings.columns, workspace=workspace)
    links = suggest_links(graph, label, settings.top, columns=settings.columns, workspace=workspace)
    return Structure(
        graph=graph,
        settings=settings,
        values=pairs.values,
        vectors=pairs.vectors,
        residual=pairs.residual,
        component=operator.component,
        community=label,
        centrality=remote.values,
        centrality_error=remote.residual,
        bridges=needed,
        links=links,
        frontiers=frontiers(graph, settings.top, centrality=remote.values),
        frustration=frustration(graph),
        converged=pairs.converged and remote.converged and needed.converged and links.converged,
        potentials=workspace.potentials,
        names=names,
    )
