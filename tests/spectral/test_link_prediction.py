"""Foretold edges: signals against their definitions, and edges of a pattern found again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral.link_prediction import (
    MAX_DENSE,
    LinkSignals,
    adjacency,
    fit_links,
    linear_autoencoder,
    nearest_nodes,
    predict_links,
    sparse_product,
    steep_shares,
)


def _pattern(seed: int = 0) -> tuple[Graph, Tensor]:
    """60 users and 20 things; users of one of two kinds use the things of that kind."""
    chance = torch.Generator().manual_seed(seed)
    kind = torch.arange(60) % 2
    likely = kind[:, None] == torch.arange(20) % 2
    used = torch.rand(60, 20, generator=chance) < torch.where(likely, 0.7, 0.03)
    user, thing = used.nonzero(as_tuple=True)
    return Graph.from_edges(torch.stack([user + 20, thing]), num_nodes=80), likely


def test_signals_are_what_they_are_called() -> None:
    graph, _ = _pattern()
    chance = torch.Generator().manual_seed(1)
    view = torch.nn.functional.normalize(torch.randn(80, 6, generator=chance), dim=1)
    signals = LinkSignals(graph, [view])
    tile = signals.tile(20, 45).double().numpy()
    assert tile.shape == (25, 80, signals.count)

    dense = np.zeros((80, 80))
    dense[tuple(graph.edge_index.numpy())] = 1.0
    out, inward = dense.sum(1), dense.sum(0)
    inverse = np.linalg.inv(dense.T @ dense + 10.0 * np.eye(80))
    autoencoder = -inverse / np.diag(inverse)
    np.fill_diagonal(autoencoder, 0.0)
    fan, fame = np.maximum(out, 1), np.maximum(inward, 1)
    two = (dense / np.sqrt(fan)[:, None]) @ (dense / np.sqrt(fame))
    shared = dense * np.sqrt(np.log(81 / (inward + 1)))
    shared /= np.maximum(np.linalg.norm(shared, axis=1, keepdims=True), 1e-12)
    strong = [dense @ autoencoder, two]
    for x in (shared, view.double().numpy()):
        cosine = x @ x.T
        np.fill_diagonal(cosine, -np.inf)
        votes = np.zeros_like(cosine)
        for i, row in enumerate(cosine):
            best = np.argsort(-row, kind="stable")[:20]
            weight = (np.maximum(row[best], 0) / max(row[best[0]], 1e-9)) ** 4
            votes[i, best] = weight / max(weight.sum(), 1e-9)
        strong.append(votes @ dense)
    rows = slice(20, 45)
    for place, expected in enumerate(strong):
        # Ties among the nearest may be broken either way, so the users are compared, whose are few.
        np.testing.assert_allclose(tile[..., place], expected[rows], atol=2e-5)
        logs = np.log(np.maximum(expected[rows], 0) + 1e-3)
        np.testing.assert_allclose(tile[..., 4 + place], logs, atol=2e-2)
    plain = [
        np.broadcast_to(np.log1p(inward), (25, 80)),
        np.broadcast_to(np.log1p(out), (25, 80)),
        np.broadcast_to(np.log1p(out[rows, None]), (25, 80)),
        (view[rows] @ view.T).double().numpy(),
    ]
    for place, expected in enumerate(plain):
        np.testing.assert_allclose(tile[..., 8 + place], expected, atol=1e-5)


def test_missing_edges_of_a_pattern_are_foretold() -> None:
    graph, likely = _pattern()
    chance = torch.Generator().manual_seed(2)
    order = torch.cat([torch.arange(20), torch.arange(20, 80)])
    found = predict_links(graph, k=50, order=order, generator=chance)
    user, thing = found.pairs
    assert bool((user > thing).all())
    inside = (user >= 20) & (thing < 20)
    right = likely[(user - 20).clamp(min=0), thing.clamp(max=19)] & inside
    assert int(right.sum()) >= 45
    assert bool((found.probability.diff() <= 0).all())
    present = set(map(tuple, graph.edge_index.T.tolist()))
    assert not present & set(map(tuple, found.pairs.T.tolist()))


def test_the_same_seed_gives_the_same_pairs() -> None:
    graph, _ = _pattern()
    first, again = (
        predict_links(graph, k=5, generator=torch.Generator().manual_seed(7)) for _ in range(2)
    )
    assert torch.equal(first.pairs, again.pairs)


def test_without_order_neither_direction_of_an_edge_is_suggested() -> None:
    graph, _ = _pattern()
    found = predict_links(graph, k=10_000, generator=torch.Generator().manual_seed(7))
    assert found.pairs.shape[1] == 80 * 79 - 2 * graph.num_edges
    both = {frozenset(pair) for pair in graph.edge_index.T.tolist()}
    assert not both & {frozenset(pair) for pair in found.pairs.T.tolist()}


def test_tiny_graphs_are_fitted_too() -> None:
    graph = Graph.from_edges(torch.tensor([[1, 2, 3, 3, 4], [0, 0, 1, 2, 3]]))
    found = predict_links(graph, k=3, generator=torch.Generator().manual_seed(0))
    assert found.pairs.shape == (2, 3) and bool(found.probability.isfinite().all())


def test_nearest_leave_out_the_node_itself() -> None:
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), dim=1)
    column, share = nearest_nodes(x, 5)
    assert column[:, 0].tolist() == [1, 0, 1]
    torch.testing.assert_close(share.sum(1), torch.ones(3))
    again, same = nearest_nodes(x, 5, sparse=True)
    assert torch.equal(again, column)
    torch.testing.assert_close(same, share)
    assert steep_shares(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": torch.arange(3)}, "order"),
        ({"order": -torch.arange(80)}, "fall along every edge"),
        ({"views": [torch.zeros(3, 2)]}, "views"),
        ({"views": [torch.full((80, 2), torch.nan)]}, "views: expected finite"),
        ({"place": torch.full((80,), torch.inf)}, "place: expected finite"),
    ],
)
def test_bad_input(change: dict[str, object], message: str) -> None:
    graph, _ = _pattern()
    with pytest.raises(InputError, match=message):
        fit_links(graph, **change)  # type: ignore[arg-type]


def test_too_few_edges() -> None:
    with pytest.raises(InputError, match="2 edges"):
        predict_links(Graph.from_edges(torch.tensor([[0], [1]])))
    graph, _ = _pattern()
    with pytest.raises(InputError, match="k"):
        predict_links(graph, k=0)
    full = Graph.from_edges(torch.tensor([[1, 2, 2], [0, 0, 1]]))
    with pytest.raises(InputError, match="some edge to be absent"):
        predict_links(full, order=torch.arange(3))


def test_parallel_edges_count_once() -> None:
    ends = torch.tensor([[1, 1, 2], [0, 0, 1]])
    graph = Graph.from_edges(ends, torch.tensor([0.3, -2.0, 5.0]), type=torch.tensor([1, 4, 4]))
    assert adjacency(graph).tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("shape", [(1, 5, 3), (7, 4, 1), (6, 6, 6)])
def test_sparse_product_is_the_product(shape: tuple[int, int, int]) -> None:
    chance = torch.Generator().manual_seed(1)
    rows, inner, columns = shape
    left = torch.randn(rows, inner, generator=chance).relu()
    right = torch.randn(inner, columns, generator=chance)
    torch.testing.assert_close(sparse_product(left, right), left @ right)


def test_large_graphs_are_refused() -> None:
    empty = torch.empty(2, 0, dtype=torch.int64)
    with pytest.raises(InputError, match=str(MAX_DENSE)):
        adjacency(Graph.from_edges(empty, num_nodes=MAX_DENSE + 1))


@pytest.mark.parametrize("penalty", [0.5, 10.0])
def test_every_column_is_a_ridge_regression_on_the_others(penalty: float) -> None:
    chance = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(torch.randint(12, (2, 40), generator=chance), num_nodes=15)
    dense = np.zeros((15, 15))
    for user, used in graph.edge_index.T.tolist():
        dense[user, used] = 1.0
    found = linear_autoencoder(graph, penalty=penalty).numpy()
    for column in range(15):  # the last three have no edges
        others = [i for i in range(15) if i != column]
        x, y = dense[:, others], dense[:, column]
        # min |x b - y|² + penalty |b|²
        best = np.linalg.solve(x.T @ x + penalty * np.eye(14), x.T @ y)
        np.testing.assert_allclose(found[others, column], best, atol=1e-5)
        assert found[column, column] == 0.0


def test_edges_of_several_types_count_once() -> None:
    ends = torch.tensor([[0, 0, 0, 1], [1, 1, 2, 2]])
    once = Graph.from_edges(ends)
    twice = Graph.from_edges(ends, type=torch.tensor([0, 4, 0, 0]))
    assert twice.num_edges == once.num_edges + 1
    assert torch.equal(linear_autoencoder(once), linear_autoencoder(twice))


def test_no_edges_foretell_nothing() -> None:
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=4)
    assert not linear_autoencoder(graph).any()


def test_a_penalty_must_be_positive() -> None:
    graph = Graph.from_edges(torch.tensor([[0], [1]]))
    with pytest.raises(InputError, match="penalty"):
        linear_autoencoder(graph, penalty=0.0)
