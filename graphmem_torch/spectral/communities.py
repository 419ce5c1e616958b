"""communities: parts of a graph that hang together more than with the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import check_choice, check_count, check_range
from graphmem_torch.spectral._block_pairs import lowest_of_components
from graphmem_torch.spectral.components import number, roots_of
from graphmem_torch.spectral.laplacian import Laplacian
from graphmem_torch.spectral.leiden import connected_parts, leiden
from graphmem_torch.spectral.sweep_cut import sweep_cut
from graphmem_torch.spectral.symmetric import undirected

__all__ = ["communities", "modularity"]

_LEVELS = 64  # of bisection at most
_RELATIVE = 0.05  # of an eigenvalue: a sweep along a rougher vector finds the same cut
_ITERATIONS = 600


def communities(
    graph: Graph,  # N nodes
    method: str = "leiden",
    *,
    resolution: float = 1.0,
    iterations: int = 1,
    conductance: float = 0.3,
    min_size: int = 10,
    generator: torch.Generator | None = None,
) -> Tensor:  # [N] int32
    """Communities of |w|, each of them connected, numbered in order of their smallest nodes.

    * "leiden": of largest modularity; see `leiden`.
    * "fiedler": recursive bisection along the Fiedler vector with a sweep cut (`mathematics.md`
      2.5; Shi and Malik 2000), all parts of a level at once, until no cut of a part has a
      conductance of at most `conductance` with `min_size` nodes on either side.

    Args:
        graph: Directions and signs are ignored; loops do not count.
        method: As above.
        resolution: Of "leiden": larger values give more communities.
        iterations: Of "leiden".
        conductance: Of "fiedler": the largest at which a part is cut.
        min_size: Of "fiedler".
        generator: Of the random choices; without one they are the same every time.

    Returns:
        An isolated node is a community of its own.

    Raises:
        InputError: For an unknown method, a constant out of range, weights that require a
            gradient, or "leiden" where its library is not installed.
    """
    check_choice("method", method, ("leiden", "fiedler"))
    check_range("conductance", conductance, 0.0, 1.0)
    check_count("min_size", min_size)
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    if method == "leiden":
        place = generator.device
        seed = int(torch.randint(2**31, (), generator=generator, device=place))
        return leiden(graph, resolution=resolution, iterations=iterations, seed=seed)
    return _bisected(graph, conductance, min_size, generator)


def modularity(
    graph: Graph,
    label: Tensor,  # [N]
    *,
    resolution: float = 1.0,
) -> float:
    """Newman's modularity of a partition, on |w|: the share of weight inside beyond chance."""
    low, high, weight = undirected(graph)
    exact = weight.double().abs()
    total = float(exact.sum())
    if total == 0:
        return 0.0
    owner = label.long()
    volume = exact.new_zeros(int(owner.max()) + 1)
    volume.index_add_(0, owner[low], exact).index_add_(0, owner[high], exact)
    inside = float(exact[owner[low] == owner[high]].sum())
    return inside / total - resolution * float((volume / (2 * total)).square().sum())


def _bisected(
    graph: Graph, conductance: float, min_size: int, generator: torch.Generator
) -> Tensor:  # [N] int32
    low, high, weight = undirected(graph)
    weight = weight.abs()
    nodes = graph.num_nodes
    label = number(roots_of(low, high, nodes)) if nodes else low
    # Only what may still be cut is looked at: `open_node` are its nodes, by their own numbers.
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
