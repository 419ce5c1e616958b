"""Structure: what the Laplacian of a graph says about it, kept up to date as the graph changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import StructureConfig
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.lanczos import pairs_beyond_null
from graphmem_torch.ops.solution import Solution
from graphmem_torch.spectral._pseudo_inverse import SMALL
from graphmem_torch.spectral.bridges import Bridges, bridges
from graphmem_torch.spectral.centrality import Frontiers, centrality, frontiers
from graphmem_torch.spectral.changes import Changes, changes_between
from graphmem_torch.spectral.communities import communities, connected_parts, modularity
from graphmem_torch.spectral.components import undirected
from graphmem_torch.spectral.frustration import Frustration, frustration
from graphmem_torch.spectral.links import suggest_links
from graphmem_torch.spectral.workspace import Potentials, Workspace

__all__ = [
    "Structure",
    "centrality_after",
    "communities_after",
    "listed_contradictions",
    "listed_frontiers",
    "listed_pairs",
    "structure_of",
]
_Names = Sequence[str] | None


def listed_pairs(found: Bridges, names: _Names) -> list[dict[str, Any]]:
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


def listed_frontiers(found: Frontiers, names: _Names) -> list[dict[str, Any]]:
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


def listed_contradictions(found: Frustration) -> list[dict[str, Any]]:
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


_MOST = 0.5  # share of the nodes in changed communities from which all are found anew


def communities_after(
    changes: Changes,
    label: Tensor,  # [N] of the old nodes
    method: str,
    *,
    resolution: float = 1.0,
) -> Tensor:  # [N'] int32
    """Communities anew where edges or nodes came or went, the others as they were.

    The changed communities are taken apart together, as a graph of their own. Modularity weighs
    chance by the weight of the whole graph, so there the resolution is their share of it.

    Args:
        changes: From the old graph to the new one.
        label: Old communities, numbered from 0.
        method: As for `communities`.
        resolution: As for `communities`.
    """
    graph = changes.graph
    count = int(label.max()) + 1 if label.numel() else 0
    carried = changes.carried(label, -1).long()
    changed = torch.zeros(count + 1, dtype=torch.bool, device=label.device)
    changed[carried[changes.touched]] = True
    region = changed[carried] | (carried < 0)
    if float(region.float().mean()) > _MOST:
        return communities(graph, method, resolution=resolution)
    part, node = changes.induced(region)
    low, high, weight = undirected(graph)
    strength = weight.double().abs()
    share = float(strength[region[low] & region[high]].sum() / strength.sum())
    # Without a weight there (NaN where there is none at all) every node is its own community.
    fresh = communities(part, method, resolution=resolution * share if share > 0 else 1.0)
    carried[node] = fresh.long() + count
    return connected_parts(carried, low, high)


def centrality_after(
    changes: Changes,
    values: Tensor,  # [N] of the old nodes
    error: Tensor,  # [N] relative
    *,
    columns: int,
    workspace: Workspace,
) -> Solution:  # values [N'], residual [N']
    """Centralities anew in components that changed: they depend on nothing outside.

    In a large graph all are estimated again, from the old sketch, and those components keep theirs.

    Args:
        changes: From the old graph to the new one.
        values: Old centralities.
        error: And their errors.
        columns: As for `centrality`.
        workspace: Of the new graph, begun from the old one.
    """
    label = workspace.operator.component
    changed = torch.zeros(changes.graph.num_nodes, dtype=torch.bool, device=label.device)
    changed[label[changes.touched]] = True
    inside = changed[label]
    carried, carried_error = changes.carried(values, 0.0), changes.carried(error, 0.0)
    if changes.graph.num_nodes > SMALL:
        found = centrality(changes.graph, "sketch", columns=columns, workspace=workspace)
        fresh, fresh_error = found.values[inside], found.residual[inside]
    else:
        found = centrality(changes.induced(inside)[0], "exact")
        fresh, fresh_error = found.values, found.residual
    carried[inside] = fresh.to(carried.dtype)
    carried_error[inside] = fresh_error.to(carried_error.dtype)
    return Solution(carried, None, carried_error, found.iterations, found.converged)


_TOL = 1e-5  # residual of the eigenpairs
_MAX_ITER = 2000


@dataclass(frozen=True, eq=False)
class Structure:
    """Spectrum, communities, bridges, frontiers and frustration of a graph of N nodes.

    All but the frustration is of |w|, the larger of both directions (`docs/mathematics.md` 2.1,
    2.5).

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
        centrality: `[N]`; large means remote (`docs/mathematics.md` 2.4).
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
