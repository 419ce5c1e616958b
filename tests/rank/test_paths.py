"""The strongest path against the enumeration of every chain, hops against scipy."""

from __future__ import annotations

import itertools

import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops import SparseRows
from graphmem_torch.rank.paths import discounted, hop_discount, strongest_paths
from tests.graphs import hop_distances

sparse = SparseRows.from_dense
FANS = {"degree": lambda d: d, "sqrt": lambda d: d**0.5, "none": lambda d: 1.0}


def random_graph(nodes: int, edges: int, seed: int) -> Graph:
    g = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=g)
    weight = torch.rand(edges, generator=g) * 3 + 0.1
    return Graph.from_edges(index, weight, type=index.sum(0) % 2, num_nodes=nodes)


def best_chain(
    graph: Graph, start: list[float], node: int, rounds: int, spread: float, fan: str
) -> tuple[float, tuple[int, ...]]:
    """Strength and edges of the strongest chain into `node`, by trying all of them."""
    source, target = graph.source.tolist(), graph.target.tolist()
    degree = torch.bincount(graph.source.long(), minlength=graph.num_nodes).tolist()
    gain = [
        spread * float(w) / FANS[fan](degree[s]) for w, s in zip(graph.weight, source, strict=True)
    ]
    chains = {0: [()]}
    best: tuple[float, tuple[int, ...]] = (start[node], ())
    for length in range(1, rounds + 1):
        chains[length] = [
            (*chain, edge)
            for chain, edge in itertools.product(chains[length - 1], range(len(source)))
            if not chain or target[chain[-1]] == source[edge]
        ]
        for chain in chains[length]:
            strength = start[source[chain[0]]]
            for edge in chain:
                strength *= gain[edge]
            if target[chain[-1]] == node and strength > best[0] * (1 + 1e-5):
                best = (strength, chain)
    return best


@pytest.mark.parametrize("fan", list(FANS))
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_strongest_paths_every_chain(fan: str, rounds: int, seed: int) -> None:
    nodes = 7
    graph = random_graph(nodes, 13, seed)
    g = torch.Generator().manual_seed(100 + seed)
    start = torch.rand(2, nodes, generator=g) * (torch.rand(2, nodes, generator=g) < 0.4)
    rows = torch.tensor([[*range(nodes), -1], [-1, *reversed(range(nodes))]])
    paths = strongest_paths(graph, sparse(start), rows, rounds=rounds, spread=0.9, fan=fan)
    assert paths.shape == (2, nodes + 1, rounds)
    for b in range(2):
        for row, path in zip(rows[b].tolist(), paths[b].tolist(), strict=True):
            edges = tuple(edge for edge in path if edge >= 0)
            if row < 0:
                assert edges == ()
                continue
            strength, chain = best_chain(graph, start[b].tolist(), row, rounds, 0.9, fan)
            assert edges == (chain if strength > 0 else ())


def test_strongest_paths_unreached_and_empty() -> None:
    graph = Graph.from_edges(torch.tensor([[0], [1]]), torch.tensor([1.0]), num_nodes=3)
    start = torch.tensor([[1.0, 0.0, 0.0]])
    paths = strongest_paths(graph, sparse(start), torch.tensor([[2, 1, 0, -1]]), rounds=2)
    assert [[e for e in path if e >= 0] for path in paths[0].tolist()] == [[], [0], [], []]
    empty = strongest_paths(
        graph, sparse(start[:0]), torch.empty(0, 4, dtype=torch.int64), rounds=2
    )
    assert empty.shape == (0, 4, 2)


def test_strongest_paths_to_nothing() -> None:
    graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    rows = torch.empty(1, 0, dtype=torch.int64)
    paths = strongest_paths(graph, sparse(torch.tensor([[1.0, 0.0, 0.0]])), rows, rounds=2)
    assert paths.shape == (1, 0, 2)


def test_strongest_paths_an_anchor_is_explained_only_by_what_brings_more() -> None:
    edges = torch.tensor([[0, 0], [1, 2]])
    graph = Graph.from_edges(edges, torch.tensor([1.0, 1.0]), num_nodes=3)
    start = torch.tensor([[1.0, 0.3, 0.9]])
    paths = strongest_paths(
        graph,
        sparse(start),
        torch.tensor([[1, 2]]),
        rounds=1,
        spread=0.8,
        fan="none",
    )
    # 0.8 arrives at both: more than 0.3, less than 0.9.
    assert paths.tolist() == [[[0], [-1]]]


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
@pytest.mark.parametrize("nodes", [50, 30_000])
def test_hop_discount_is_that_of_breadth_first_search(hops: int, nodes: int) -> None:
    g = torch.Generator().manual_seed(hops)
    edges = torch.randint(0, nodes, (2, 3 * nodes), generator=g)
    edges = torch.cat([edges, torch.zeros_like(edges), edges[:, :9]], dim=1)  # loops, duplicates
    hub = torch.stack([torch.full((40,), 3), torch.randint(0, nodes, (40,), generator=g)])
    edges = torch.cat([edges, hub, hub.flip(0)], dim=1)
    graph = Graph.from_edges(edges, torch.rand(edges.shape[1], generator=g) + 0.1, num_nodes=nodes)
    seeds = torch.randint(0, nodes, (4, 2), generator=g)
    seeds[0], seeds[1, 1], seeds[2] = 3, -1, -1
    mask = torch.rand(4, nodes, generator=g) < 0.8
    for allowed in (None, mask):
        got = hop_discount(graph, seeds, hops=hops, discount=0.7, mask=allowed).to_dense()
        everyone = torch.ones_like(mask) if allowed is None else allowed
        for row in range(4):
            own = [s for s in seeds[row].tolist() if s >= 0]
            torch.testing.assert_close(
                got[row], 0.7 ** hop_distances(edges, own, hops, everyone[row])
            )


def test_hop_discount_of_one_counts_every_hop_alike() -> None:
    graph = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    got = hop_discount(graph, torch.tensor([[0]]), hops=2, discount=1.0)
    assert got.to_dense().tolist() == [[1.0, 1.0, 1.0, 0.0]]


@pytest.mark.parametrize("discount", [0.0, -0.5, 1.5])
def test_hop_discount_refuses_what_is_no_discount(discount: float) -> None:
    graph = Graph.from_edges(torch.tensor([[0], [1]]))
    with pytest.raises(InputError, match=r"discount: expected above 0 and at most 1"):
        hop_discount(graph, torch.tensor([[0]]), hops=1, discount=discount)


def test_discounted_keeps_a_negative_cosine() -> None:
    got = discounted(torch.tensor([0.5, -0.5]), torch.tensor([0.9, 0.9]))
    torch.testing.assert_close(got, torch.tensor([0.45, -0.5]))
