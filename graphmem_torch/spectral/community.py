"""communities: parts of a graph that are connected more strongly inside than to the rest."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_range
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import InputError, optional_import
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.component import compress, number, roots_of, undirected
from graphmem_torch.linalg.eigenpairs import lanczos
from graphmem_torch.linalg.laplacians import Laplacian, laplacian
from graphmem_torch.ops.solution import Solution
from graphmem_torch.spectral.component_pairs import lowest_of_components

__all__ = ["SweepCut", "communities", "connected_parts", "fiedler", "modularity", "sweep_cut"]


class SweepCut(NamedTuple):
    """Best cut of every component.

    Attributes:
        side: `[N]` bool, whether a node is on the side of the small values.
        conductance: `[C]` float64, weight of the cut over the smaller volume; inf without a cut.
    """

    side: Tensor
    conductance: Tensor


def sweep_cut(
    low: Tensor,  # [M] int64
    high: Tensor,  # [M] int64
    weight: Tensor,  # [M], > 0
    component: Tensor,  # [N] int64 in 0..C-1
    value: Tensor,  # [N]
    *,
    count: int,
    min_size: int = 1,
) -> SweepCut:
    """Return the cut {value <= t} of least conductance of each component.

    Cheeger's inequality: along any vector of Rayleigh quotient ρ of the normalised Laplacian
    (divided by √d) it is at most √(2 ρ) (Chung 1997, theorem 2.2; Spielman and Teng 2007).

    Args:
        low: First ends of undirected edges, inside components.
        high: Second ends of the edges.
        weight: Weights of the edges.
        component: Component of every node.
        value: Value by which the nodes are ordered.
        count: C.
        min_size: Minimum nodes on each side.
    """
    nodes, device = component.shape[0], component.device
    order = torch.argsort(value, stable=True)
    order = order[torch.argsort(component[order], stable=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(nodes, device=device)
    exact = weight.double()
    degree = exact.new_zeros(nodes).index_add_(0, low, exact).index_add_(0, high, exact)
    first, last = torch.minimum(place[low], place[high]), torch.maximum(place[low], place[high])
    # An edge is cut between its two ends; components are contiguous, so sums cancel at borders.
    step = exact.new_zeros(nodes).index_add_(0, first, exact).index_add_(0, last, -exact)
    cut = step.cumsum(0).clamp(min=0)
    owner = component[order]
    size = torch.bincount(component, minlength=count)
    start = offsets_of(size)
    running = degree[order].cumsum(0)
    before = torch.cat([running.new_zeros(1), running])[start]
    volume = degree.new_zeros(count).index_add_(0, component, degree)
    below = running - before[owner]
    rank = torch.arange(nodes, device=device) - start[owner] + 1
    smaller = torch.minimum(below, volume[owner] - below)
    allowed = (rank >= min_size) & (size[owner] - rank >= max(min_size, 1)) & (smaller > 0)
    conductance = torch.where(allowed, cut / smaller, torch.inf)
    best = conductance.new_full((count,), torch.inf)
    best = best.scatter_reduce(0, owner, conductance, "amin")
    at = torch.where((conductance == best[owner]) & allowed, rank, nodes + 1)
    split = size.new_full((count,), nodes + 1).scatter_reduce(0, owner, at, "amin")
    side = torch.zeros(nodes, dtype=torch.bool, device=device)
    side[order] = (rank <= split[owner]) & (split[owner] <= nodes)
    return SweepCut(side, best)


def _leiden(graph: Graph, resolution: float, seed: int) -> Tensor:  # [N] int32
    """Find communities of large modularity on the CPU, by one thread, so that seeds reproduce."""
    if not 0 < resolution < float("inf"):
        raise InputError(f"resolution: expected a finite number above 0, got {resolution}; try 1.0")
    library = optional_import(
        "graspologic_native",
        "method='leiden'",
        "graspologic-native",
        "choose method='fiedler'",
    )
    low, high, weight = undirected(graph)
    if low.numel() == 0:
        return torch.arange(graph.num_nodes, dtype=torch.int32, device=graph.device)
    indptr, column, edge = compress(low, high, graph.num_nodes)
    strength = weight.double().abs()
    strength = strength / strength.max()  # subnormal weights would vanish in the library's sums
    _, found = library.leiden_csr(
        indptr.to("cpu", torch.int64).numpy(),
        column.cpu().numpy(),
        strength[edge].cpu().numpy(),
        graph.num_nodes,
        resolution=resolution,
        iterations=1,
        seed=seed,
    )
    node = torch.tensor(list(found.keys()), dtype=torch.int64)
    label = torch.arange(len(found), len(found) + graph.num_nodes)
    label[node] = torch.tensor(list(found.values()), dtype=torch.int64)
    return connected_parts(label.to(graph.device), low, high)


def connected_parts(
    label: Tensor,  # [N] integers
    low: Tensor,  # [M]
    high: Tensor,  # [M]
) -> Tensor:  # [N] int32
    """Return the connected parts of every label, numbered in order of their smallest nodes."""
    inside = label[low] == label[high]
    root = roots_of(low[inside], high[inside], label.shape[0])
    return number(root).to(torch.int32)


def fiedler(
    graph: Graph,  # N >= 2 nodes
    *,
    tol: float = 1e-6,
    generator: torch.Generator | None = None,
    max_iter: int = 2000,
) -> Solution:  # values [], vectors [N]
    """Return the spectral gap μ_2 and Fiedler vector φ_2 of the normalised Laplacian of |w|.

    `docs/mathematics.md` 2.4; Fiedler 1973. In a graph of several components μ_2 is exactly 0. The
    vector, in the null space and orthogonal to D^1/2 1, separates the largest component (values >=
    0) from all others (values <= 0). Its sign is otherwise arbitrary; the entry of largest
    magnitude is positive.

    Args:
        graph: Signs and directions are ignored.
        tol: Tolerance, as for `lanczos`.
        generator: Random generator, as for `lanczos`.
        max_iter: Maximum block products, as for `lanczos`.

    Returns:
        `values` a scalar, `vectors` `[N]` of unit length, `residual` a scalar.

    Raises:
        InputError: The graph has fewer than two nodes.
    """
    if graph.num_nodes < 2:
        raise InputError(f"graph: expected at least 2 nodes, got {graph.num_nodes}; add nodes")
    operator = laplacian(graph, signed=False)
    null = operator.null_space()
    if null.count > 1:
        mass = torch.where(operator.degree > 0, operator.degree, 1.0)
        nodes = torch.bincount(operator.component)
        share = torch.where(operator.component == nodes.argmax(), mass, 0.0)
        # D^1/2 times one value per side, chosen so that it is orthogonal to D^1/2 1.
        side = torch.where(share > 0, mass.sum() - share.sum(), -share.sum())
        vector = mass.sqrt() * side
        vector = (vector / vector.norm()).to(operator.dtype)
        residual = operator.matmul(vector[:, None]).norm()
        return Solution(vector.new_zeros(()), vector, residual, 0, True)
    found = lanczos(operator, 2, tol=tol, generator=generator, max_iter=max_iter)
    assert found.vectors is not None
    vector = found.vectors[:, 1]
    vector = vector * torch.sign(vector[vector.abs().argmax()])
    return Solution(found.values[1], vector, found.residual[1], found.iterations, found.converged)


_LEVELS = 64  # maximum levels of bisection
_RELATIVE = 0.05  # of an eigenvalue: a sweep along a less exact vector finds the same cut
_ITERATIONS = 600


def communities(
    graph: Graph,  # N nodes
    method: str = "leiden",
    *,
    resolution: float = 1.0,
    conductance: float = 0.3,
    min_size: int = 10,
    generator: torch.Generator | None = None,
) -> Tensor:  # [N] int32
    """Return communities of |w|, each connected, numbered in order of their smallest nodes.

    * "leiden": communities of largest modularity (Traag, Waltman and van Eck 2019); contradictions
      count as connections, because both ends have the same topic.
    * "fiedler": recursive bisection along the Fiedler vector with a sweep cut
      (`docs/mathematics.md` 2.5; Shi and Malik 2000), all parts of a level at once. It ends when no
      cut has a conductance of at most `conductance` and `min_size` nodes on either side.

    Args:
        graph: Directions and signs are ignored; loops do not count.
        method: "leiden" or "fiedler".
        resolution: Resolution of "leiden": larger values give more communities.
        conductance: Largest conductance at which "fiedler" cuts a part.
        min_size: Minimum nodes that "fiedler" leaves on either side.
        generator: Random generator; without one, results are the same every time.

    Returns:
        Community of every node; an isolated node is its own community.

    Raises:
        InputError: The method is unknown, a constant is out of range, weights require a gradient,
            or the library of "leiden" is not installed.
    """
    check_choice("method", method, ("leiden", "fiedler"))
    check_range("conductance", conductance, 0.0, 1.0)
    check_count("min_size", min_size)
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    if method == "leiden":
        place = generator.device
        seed = int(torch.randint(2**31, (), generator=generator, device=place))
        return _leiden(graph, resolution, seed)
    return _bisected(graph, conductance, min_size, generator)


def modularity(graph: Graph, label: Tensor) -> float:  # label [N]
    """Return Newman's modularity of a partition of |w|: share of weight inside beyond chance."""
    low, high, weight = undirected(graph)
    exact = weight.double().abs()
    total = float(exact.sum())
    if total == 0:
        return 0.0
    owner = label.long()
    volume = exact.new_zeros(int(owner.max()) + 1)
    volume.index_add_(0, owner[low], exact).index_add_(0, owner[high], exact)
    inside = float(exact[owner[low] == owner[high]].sum())
    return inside / total - float((volume / (2 * total)).square().sum())


def _bisected(
    graph: Graph, conductance: float, min_size: int, generator: torch.Generator
) -> Tensor:  # [N] int32
    low, high, weight = undirected(graph)
    weight = weight.abs()
    nodes = graph.num_nodes
    label = number(roots_of(low, high, nodes)) if nodes else low
    # Only parts that may still be cut are examined: `open_node` lists their nodes.
    open_node = torch.arange(nodes, device=low.device)
    for _ in range(_LEVELS):
        size = torch.bincount(label[open_node]) if open_node.numel() else open_node
        large = size >= 2 * min_size
        open_node = open_node[large[label[open_node]]] if open_node.numel() else open_node
        if open_node.numel() == 0:
            break
        place = torch.full((nodes,), -1, dtype=torch.int64, device=low.device)
        place[open_node] = torch.arange(open_node.numel(), device=low.device)
        inside = (place[low] >= 0) & (label[low] == label[high])
        first, second, strength = place[low[inside]], place[high[inside]], weight[inside]
        part = Laplacian(
            first, second, strength, open_node.numel(), normalized=True, dtype=torch.float32
        )
        found = lowest_of_components(
            part,
            tol=1e-4,
            relative=_RELATIVE,
            generator=generator,
            max_iter=_ITERATIONS,
        )
        root = part.degree.clamp(min=torch.finfo(torch.float64).tiny).sqrt()
        cut = sweep_cut(
            first,
            second,
            strength,
            part.component,
            found.vectors.double() / root,
            count=part.num_components,
            min_size=min_size,
        )
        split = (cut.conductance <= conductance)[part.component]
        if not bool(split.any()):
            break
        fresh = label.clone()
        fresh[open_node] = label[open_node] + torch.where(split & cut.side, nodes, 0)
        label = connected_parts(fresh, low, high).long()
        open_node = open_node[split]
    return connected_parts(label, low, high)
