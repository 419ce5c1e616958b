from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.report.graph_layout import GraphLayout, layout, pack_discs


def _seed(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def _planted(parts: int, size: int, seed: int = 0) -> tuple[Graph, Tensor]:
    """Groups with dense links inside and few between, and a ring inside each group."""
    generator = _seed(seed)
    nodes = parts * size
    label = torch.arange(nodes) // size
    ring = torch.arange(nodes)
    following = label * size + (ring + 1) % size
    random = torch.randint(nodes, (2, nodes // 4), generator=generator)
    edges = torch.cat([torch.stack([ring, following]), random], 1)
    return Graph.from_edges(edges, num_nodes=nodes), label


@cache
def _laid(parts: int, size: int) -> tuple[Graph, Tensor, GraphLayout]:
    """A planted graph and its layout, which several tests look at."""
    graph, label = _planted(parts, size)
    return graph, label, layout(graph, label, generator=_seed())


def _check_discs(found: GraphLayout, label: Tensor) -> None:
    """By all pairs of discs, and each node by its own."""
    for i in range(len(found.radius)):
        for j in range(i):
            apart = math.dist(found.centre[i].tolist(), found.centre[j].tolist())
            assert apart >= float(found.radius[i] + found.radius[j]) - 1e-3
    inside = (found.position - found.centre[label]).norm(dim=1)
    assert bool((inside <= found.radius[label] + 1e-4).all())
    assert bool(found.position.isfinite().all())


@pytest.mark.parametrize(("parts", "size"), [(1, 30), (2, 3), (4, 60), (40, 5), (2, 300)])
def test_discs_hold_their_nodes_and_do_not_overlap(parts: int, size: int) -> None:
    _, label, found = _laid(parts, size)
    _check_discs(found, label)


def test_discs_of_very_different_sizes_do_not_overlap() -> None:
    label = torch.cat([torch.zeros(300), torch.ones(2), torch.arange(2, 60)]).long()
    edges = torch.randint(len(label), (2, 200), generator=_seed())
    graph = Graph.from_edges(edges, num_nodes=len(label))
    _check_discs(layout(graph, label, generator=_seed()), label)


def test_more_discs_than_are_moved_by_forces_do_not_overlap() -> None:
    radius, none = torch.rand(200, generator=_seed()) + 0.5, torch.zeros(0, dtype=torch.int64)
    links = none, none, none.float()
    centre = pack_discs(radius, *links, steps=2, most=60, generator=_seed())
    apart = torch.cdist(centre, centre).fill_diagonal_(math.inf)
    assert bool((apart >= radius[:, None] + radius - 1e-3).all())


def test_linked_nodes_lie_nearer_than_others_of_their_community() -> None:
    graph, label, found = _laid(4, 60)
    source, target = graph.edge_index
    own = (label[source] == label[target]) & (source != target)
    linked = (found.position[source] - found.position[target]).norm(dim=1)[own].mean()
    distance = torch.cdist(found.position, found.position)
    others = distance[(label[:, None] == label) & (distance > 0)].mean()
    assert float(linked) < 0.6 * float(others)


def test_linked_communities_lie_nearer_than_others() -> None:
    size, parts = 20, 8
    label = torch.arange(size * parts) // size
    # A chain of communities.
    ends = torch.cat([torch.stack([label * size, torch.arange(size * parts)])], 1)
    chain = [[i * size + n, (i + 1) * size + n] for i in range(parts - 1) for n in range(size)]
    edges = torch.cat([ends, torch.tensor(chain).T], 1)
    found = layout(Graph.from_edges(edges, num_nodes=size * parts), label, generator=_seed())
    apart = torch.cdist(found.centre, found.centre)
    step = torch.diagonal(apart, 1).mean()
    assert float(step) < 0.75 * float(apart[apart > 0].mean())


def test_nodes_keep_their_distance() -> None:
    _, _, found = _laid(2, 300)
    nearest = torch.cdist(found.position, found.position).fill_diagonal_(math.inf).amin(1)
    # Points thrown at random at this density have a tenth quantile of 0.18.
    assert float(nearest.quantile(0.1)) > 0.35
    assert float(nearest.median()) > 0.6


def test_the_leaves_of_a_star_have_places_of_their_own() -> None:
    hub = torch.zeros(50, dtype=torch.int64)
    graph = Graph.from_edges(torch.stack([hub, torch.arange(1, 51)]))
    found = layout(graph, torch.zeros(51, dtype=torch.int64), generator=_seed())
    assert float(torch.pdist(found.position).min()) > 0.05


def test_the_same_seed_gives_the_same_picture() -> None:
    graph, label = _planted(5, 20)
    first, second = (layout(graph, label, iterations=20, generator=_seed(3)) for _ in range(2))
    assert torch.equal(first.position, second.position)


def test_negative_and_reversed_edges_pull_like_others() -> None:
    graph, label = _planted(3, 20)
    other = Graph.from_edges(graph.edge_index.flip(0), -graph.weight, num_nodes=60)
    first = layout(graph, label, iterations=10, generator=_seed())
    second = layout(other, label, iterations=10, generator=_seed())
    assert torch.allclose(first.centre, second.centre, atol=1e-3)


def test_odd_graphs() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    empty = layout(Graph.from_edges(none, num_nodes=0), torch.zeros(0, dtype=torch.int64))
    assert empty.position.shape == (0, 2) and empty.centre.shape == (0, 2)
    one = layout(Graph.from_edges(none, num_nodes=1), torch.zeros(1, dtype=torch.int64))
    assert torch.allclose(one.position, one.centre) and bool(one.centre.isfinite().all())
    # A community number that nobody has, and a node that is its own neighbour.
    loop = Graph.from_edges(torch.tensor([[0], [0]]), num_nodes=2)
    found = layout(loop, torch.tensor([0, 3]), iterations=10, generator=_seed())
    assert found.radius.tolist()[1:3] == [0.0, 0.0]
    _check_discs(found, torch.tensor([0, 3]))


@pytest.mark.parametrize(
    "label", [torch.zeros(2, dtype=torch.int64), torch.zeros(3), torch.tensor([0, -1, 0])]
)
def test_labels_that_do_not_fit(label: Tensor) -> None:
    graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(InputError, match="label: expected "):
        layout(graph, label)


def test_no_iterations() -> None:
    graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(InputError, match="iterations"):
        layout(graph, torch.zeros(3, dtype=torch.int64), iterations=0)
