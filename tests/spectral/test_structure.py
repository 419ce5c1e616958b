"""Structure: of a graph, of a changed graph, and of a memory."""

from __future__ import annotations

import json
import math
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.config import config_from_dict
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.linalg.eigenpairs import pairs_beyond_null
from graphmem_torch.memory import Memory
from graphmem_torch.spectral import laplacian, modularity
from graphmem_torch.spectral.structure import Structure, structure_of

SIZES = {"eigenpairs": 6, "top": 5}


def _planted(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Two components: five planted parts of 24 nodes, and two of 20."""
    one = nx.planted_partition_graph(5, 24, 0.35, 0.02, seed=seed)
    other = nx.planted_partition_graph(2, 20, 0.4, 0.02, seed=seed + 1)
    edges = [*one.edges, *((i + 120, j + 120) for i, j in other.edges)]
    rng = np.random.default_rng(seed)
    index = torch.tensor(edges).T.contiguous()
    return index, torch.from_numpy(rng.uniform(0.3, 1.0, len(edges))).float(), 160


def _graph(seed: int = 0) -> Graph:
    index, weight, nodes = _planted(seed)
    return Graph.from_edges(index, weight, num_nodes=nodes)


def _normalised(graph: Graph) -> np.ndarray:
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    ends = graph.source.numpy(), graph.target.numpy()
    np.maximum.at(matrix, ends, np.abs(graph.weight.numpy()))
    matrix = np.maximum(matrix, matrix.T)
    np.fill_diagonal(matrix, 0)
    root = np.sqrt(np.maximum(matrix.sum(1), 1e-300))
    return np.diag((matrix.sum(1) > 0).astype(float)) - matrix / root[:, None] / root


def _same(one: Structure, other: Structure) -> None:
    """Everything that has one answer is that answer; communities are as good."""
    assert torch.allclose(one.values, other.values, atol=2e-5)
    assert torch.equal(one.component, other.component)
    assert torch.allclose(one.centrality, other.centrality, rtol=1e-5, atol=1e-8)
    assert one.frontiers.node.tolist() == other.frontiers.node.tolist()
    assert torch.allclose(one.frustration.value, other.frustration.value, atol=1e-7)
    quality = [modularity(s.graph, s.community) for s in (one, other)]
    assert quality[0] > quality[1] - 0.02
    assert adjusted_rand_score(one.community, other.community) > 0.9


def test_values_and_vectors_against_numpy() -> None:
    graph = _graph()
    found = structure_of(graph, **SIZES)
    values = np.linalg.eigvalsh(_normalised(graph))
    assert found.num_components == 2 and found.gap == 0.0
    np.testing.assert_allclose(found.values.numpy(), values[2:8], atol=1e-5)
    residual = (
        _normalised(graph) @ found.vectors.numpy() - found.vectors.numpy() * found.values.numpy()
    )
    assert np.linalg.norm(residual, axis=0).max() < 1e-4
    assert found.converged


def test_communities_bridges_and_links_fit_together() -> None:
    graph = _graph()
    found = structure_of(graph, **SIZES)
    truth = np.concatenate([np.repeat(np.arange(5), 24), np.repeat([5, 6], 20)])
    assert adjusted_rand_score(truth, found.community) > 0.9
    peer = nx.Graph(list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)))
    for i, j in found.bridges.pairs.T.tolist():
        assert peer.has_edge(i, j) and found.community[i] != found.community[j]
    for i, j in found.links.pairs.T.tolist():
        assert not peer.has_edge(i, j) and found.community[i] != found.community[j]
        assert found.component[i] == found.component[j]


def test_links_lower_the_total_resistance_by_what_they_say_one_after_another() -> None:
    graph = _graph(3)
    found = structure_of(graph, **SIZES).links

    def total(extra: torch.Tensor) -> float:
        """Sum of the resistances inside both components."""
        sizes, whole = (120, 40), 0.0
        matrix = np.zeros((160, 160))
        matrix[graph.source, graph.target] = graph.weight
        matrix[extra[0], extra[1]] = 1.0
        matrix = np.maximum(matrix, matrix.T)
        for part, size in zip(np.split(np.arange(160), [120]), sizes, strict=True):
            inner = matrix[np.ix_(part, part)]
            values = np.linalg.eigvalsh(np.diag(inner.sum(1)) - inner)
            whole += size * (1 / values[1:]).sum()
        return whole

    falls = [total(found.pairs[:, :k]) - total(found.pairs[:, : k + 1]) for k in range(len(found))]
    np.testing.assert_allclose(found.score.numpy(), falls, rtol=1e-6)


def test_no_single_link_is_better_than_the_first_one() -> None:
    graph = Graph.from_edges(torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]))
    first = structure_of(graph, **SIZES).links.pairs[:, 0].tolist()
    matrix = np.diag(np.ones(6), 1)
    matrix += matrix.T

    def total(i: int, j: int) -> float:
        changed = matrix.copy()
        changed[i, j] = changed[j, i] = 1.0
        return float((1 / np.linalg.eigvalsh(np.diag(changed.sum(1)) - changed)[1:]).sum())

    label = structure_of(graph, **SIZES).community
    pairs = [(i, j) for i in range(7) for j in range(i + 2, 7) if label[i] != label[j]]
    assert tuple(first) == min(pairs, key=lambda pair: total(*pair))


def test_start_of_a_graph_that_has_changed_since_takes_fewer_products() -> None:
    peer = nx.random_regular_graph(6, 1500, seed=0)
    index = torch.tensor(list(peer.edges)).T.contiguous()
    before = structure_of(Graph.from_edges(index), eigenpairs=4, top=1, columns=4).vectors
    operator = laplacian(Graph.from_edges(index[:, 1:], num_nodes=1500), signed=False)
    cold, warm = (
        pairs_beyond_null(
            operator,
            4,
            operator.null_space(),
            tol=1e-5,
            generator=torch.Generator().manual_seed(0),
            max_iter=2000,
            start=start,
        )
        for start in (None, before)
    )
    assert cold.converged and warm.converged and warm.iterations < cold.iterations
    assert torch.allclose(warm.values, cold.values, atol=2e-5)


@pytest.mark.parametrize("nodes", [0, 1, 159, 161])
def test_start_changes_no_result_beyond_its_residual(nodes: int) -> None:
    index, weight, count = _planted()
    before = structure_of(Graph.from_edges(index, weight, num_nodes=count), **SIZES)
    inside = (index < nodes).all(0)
    graph = Graph.from_edges(index[:, inside], weight[inside], num_nodes=nodes)
    start = torch.zeros(nodes, before.vectors.shape[1])
    start[: min(nodes, count)] = before.vectors[:nodes]
    _same(structure_of(graph, **SIZES, start=start), structure_of(graph, **SIZES))


@pytest.mark.parametrize(
    ("edges", "weights", "nodes"),
    [
        ([], [], 0),
        ([], [], 1),
        ([], [], 4),
        ([(0, 0), (1, 1)], [1.0, -1.0], 2),
        ([(0, 1)], [-1.0], 2),
        ([(0, 1), (1, 2), (0, 2), (0, 1), (1, 0)], [-1.0, -1.0, -1.0, -0.5, -0.2], 4),
    ],
)
def test_odd_graphs(edges: list[tuple[int, int]], weights: list[float], nodes: int) -> None:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    graph = Graph.from_edges(index, torch.tensor(weights), num_nodes=nodes)
    found = structure_of(graph)
    assert found.community.shape == (nodes,) and found.vectors.shape[0] == nodes
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["nodes"] == nodes


def test_edges_of_weight_zero_are_none() -> None:
    index = torch.tensor([[0, 1, 0, 3, 4, 3, 6, 7, 6, 9], [1, 2, 2, 4, 5, 5, 7, 8, 8, 10]])
    weight = torch.ones(10)
    weight[9] = 0
    found = structure_of(Graph.from_edges(index, weight), **SIZES)
    assert found.community.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4]
    bare = structure_of(Graph.from_edges(index, torch.zeros(10)), **SIZES)
    assert bare.community.tolist() == list(range(11))


def test_names_must_fit() -> None:
    with pytest.raises(InputError, match="names"):
        structure_of(_graph(), names=["a"])


def _memory(path: Path | None = None) -> Memory:
    settings = {
        "embedder": {"name": "hashing:32", "token_dim": 0},
        "link": {"similarity_k": 0, "concepts": "pattern"},
    }
    return Memory.open(path, config=config_from_dict(settings))


def _claims() -> list[Atom]:
    """Two topics of four claims each, one dependency between them, and one contradiction."""
    atoms = []
    for topic in "ab":
        for i in range(4):
            edges = tuple(Link(f"{topic}{j}", EdgeType.SUPPORTS) for j in range(i))
            atoms.append(Atom(f"{topic}{i}", f"Claim {i} of {topic} about Rome.", edges=edges))
    atoms[5] = Atom("b1", atoms[5].text, edges=(Link("b0", EdgeType.CONTRADICTS),))
    atoms[7] = Atom("b3", atoms[7].text, edges=(*atoms[7].edges, Link("a3", EdgeType.DEPENDENCY)))
    return atoms


def test_structure_of_a_memory_names_its_atoms_and_follows_the_store(tmp_path: Path) -> None:
    with _memory(tmp_path / "store") as memory:
        memory.add(_claims())
        found = memory.graph.structure()
        assert found.graph.num_nodes == 8  # concepts are no nodes
        assert memory.graph.structure() is found
        plain = found.as_dict()
        bridge = plain["bridges"][0]
        assert {bridge["source"], bridge["target"]} == {"a3", "b3"}
        assert bridge["score"] is None and bridge["side"] == 4
        assert plain["communities"] == [4, 4]
        assert plain["contradictory"][0]["contradictions"] == 1
        assert plain["contradictory"][0]["frustration"] > 0
        json.dumps(plain, allow_nan=False)
        memory.add(Atom("c", "Claim of c.", edges=(Link("a0"), Link("b0"))))
        after = memory.graph.structure()
        assert after.graph.num_nodes == 9
        anew = memory.graph.structure(refresh=True)
        assert anew is not after
        assert torch.allclose(after.values, anew.values, atol=2e-5)
        assert all(math.isfinite(score) for score in after.bridges.score.tolist())
    with Memory.open(tmp_path / "store", mode="r") as memory:
        assert memory.graph.structure().graph.num_nodes == 9


def test_concepts_are_nodes_where_a_caller_says_so() -> None:
    with _memory() as memory:
        memory.add(_claims())
        plain = memory.graph.structure().graph.num_nodes
        assert memory.graph.structure(concepts=True).graph.num_nodes > plain
        assert memory.graph.structure().graph.num_nodes == plain


def test_an_empty_memory_has_an_empty_structure() -> None:
    with _memory() as memory:
        assert memory.graph.structure().as_dict()["nodes"] == 0
        memory.add(Atom("a", "First."))
        assert memory.graph.structure().as_dict()["nodes"] == 1
