"""Pools: relations, and needs followed to their ends."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.special import softmax

from graphmem_torch.atoms import EdgeType
from graphmem_torch.context.pool import Pool, Relations, gather_pool, values_from_scores
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError


def needing(edges: torch.Tensor, atoms: int) -> Relations:
    block = EdgeBlock.of(edges[0], edges[1], int(EdgeType.DEPENDENCY), 1.0)
    return Relations.of(block, ("dependency",), atoms)


def named(pool: Pool, question: int) -> set[int]:
    return {row for row in pool.rows[question].tolist() if row >= 0}


def required(pool: Pool, question: int) -> set[tuple[int, int]]:
    row, item, need = pool.requires[:, pool.requires[0] == question]
    ends = (pool.rows[row, end].tolist() for end in (item, need))
    return set(zip(*ends, strict=True))


def test_needs_are_followed_to_their_ends() -> None:
    g = torch.Generator().manual_seed(2)
    for _ in range(30):
        edges = torch.randint(0, 25, (2, 20), generator=g)
        rows = torch.stack([torch.randperm(25, generator=g)[:4] for _ in range(3)])
        rows[0, 2:] = -1
        rows[2] = -1
        pinned = torch.tensor([24, 3])
        values = torch.rand(3, 4, generator=g, dtype=torch.float64)
        pool = gather_pool(rows, values, atoms=25, pinned=pinned, needs=needing(edges, 25))
        graph = nx.DiGraph([(a, b) for a, b in edges.T.tolist() if a != b])
        graph.add_nodes_from(range(25))
        for question in range(3):
            start = {row for row in rows[question].tolist() if row >= 0} | {24, 3}
            closure = start.union(*(nx.descendants(graph, row) for row in start))
            assert named(pool, question) == closure
            assert required(pool, question) == set(graph.subgraph(closure).edges)
            found = pool.rows[question]
            assert sorted(found[pool.pinned[question]].tolist()) == [3, 24]
            assert pool.values[question, :4].tolist() == [
                value if row >= 0 else 0.0
                for row, value in zip(rows[question].tolist(), values[question], strict=True)
            ]
            assert float(pool.values[question, 4:].sum()) == 0
        assert not bool(pool.barred.any())


def test_what_is_needed_stands_before_what_needs_it() -> None:
    edges = torch.tensor([[1, 4, 2], [4, 5, 6]])
    rows = torch.tensor([[0, 1, 2]])
    pool = gather_pool(rows, torch.ones(1, 3), atoms=7, needs=needing(edges, 7))
    order = pool.rows[0, pool.place[0].argsort()].tolist()
    assert order == [0, 5, 4, 1, 6, 2]


def test_nothing_is_needed_or_pinned_that_is_not_there_for_the_question() -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    rows = torch.tensor([[0], [0]])
    allowed = torch.tensor([[True, True, False, True], [True, False, True, False]])
    pool = gather_pool(
        rows,
        torch.ones(2, 1),
        atoms=4,
        pinned=torch.tensor([3]),
        needs=needing(edges, 4),
        allowed=allowed,
    )
    assert [named(pool, 0), named(pool, 1)] == [{0, 1, 3}, {0}]
    alike = gather_pool(rows, torch.ones(2, 1), atoms=4, needs=None, allowed=allowed[:1])
    assert named(alike, 1) == {0}


def test_an_item_that_needs_too_much_is_barred() -> None:
    chain = torch.stack([torch.arange(1, 30), torch.arange(2, 31)])
    rows = torch.tensor([[0, 1]])
    pool = gather_pool(rows, torch.ones(1, 2), atoms=31, needs=needing(chain, 31), limit=5)
    assert pool.rows.shape[1] <= 2 + 5
    barred = pool.rows[0, pool.barred[0]].tolist()
    assert len(barred) == 1
    # Whatever leads there is barred with it, by what it requires.
    assert nx.has_path(nx.DiGraph([*required(pool, 0), (1, 1)]), 1, barred[0])


def test_no_questions_no_atoms() -> None:
    empty = gather_pool(torch.zeros(0, 3).long(), torch.zeros(0, 3), atoms=5)
    assert empty.rows.shape == (0, 3)
    none = gather_pool(
        torch.zeros(2, 0).long(), torch.zeros(2, 0), atoms=0, pinned=torch.zeros(0).long()
    )
    assert none.rows.shape == (2, 0)
    padding = gather_pool(torch.full((1, 2), -1), torch.ones(1, 2), atoms=5)
    assert padding.rows.tolist() == [[-1, -1]]
    assert float(padding.values.sum()) == 0


def of(*edges: tuple[int, int, EdgeType], types: tuple[str, ...]) -> Relations:
    source, target, kind = zip(*edges, strict=True)
    block = EdgeBlock.of(source, target, torch.tensor(kind), 1.0)
    return Relations.of(block, types, 5)


def test_each_type_says_which_end_comes_first() -> None:
    found = of(
        (0, 1, EdgeType.DEPENDENCY),
        (0, 2, EdgeType.DEPENDENCY),
        (3, 0, EdgeType.CAUSES),
        (4, 1, EdgeType.ELABORATES),
        (2, 4, EdgeType.SIMILARITY),
        types=("dependency", "causes", "elaborates"),
    )
    place, first = found.before(torch.tensor([4, 0, 2]))
    pairs = sorted(zip(place.tolist(), first.tolist(), strict=True))
    assert pairs == [(0, 1), (1, 1), (1, 2), (1, 3)]
    assert len(found) == 4


def test_concepts_and_loops_are_left_out() -> None:
    found = of((0, 0, EdgeType.DEPENDENCY), (1, 5, EdgeType.DEPENDENCY), types=("dependency",))
    assert len(found) == 0
    place, first = found.before(torch.tensor([0, 1]))
    assert place.tolist() == first.tolist() == []


def test_no_types() -> None:
    assert len(of((0, 1, EdgeType.DEPENDENCY), types=())) == 0
    assert len(Relations.of(EdgeBlock.empty(), ("dependency",), 0)) == 0


INF = float("inf")


def test_share_is_the_softmax_at_a_temperature() -> None:
    scores = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 4
    expected = softmax(scores.double().numpy() / 1.5, axis=1)
    np.testing.assert_allclose(values_from_scores(scores, kind="share"), expected, rtol=1e-12)


def test_share_is_monotone_and_sums_to_one_without_what_is_not_there() -> None:
    scores = torch.tensor([[3.0, -INF, 1.0, 2.0]])
    values = values_from_scores(scores, kind="share", temperature=0.5)
    assert values[0, 1] == 0
    assert values.sum().item() == pytest.approx(1.0)
    assert values[0].argsort(descending=True).tolist() == [0, 3, 2, 1]


def test_rank_knows_no_scale() -> None:
    scores = torch.tensor([[0.1, 0.3, 0.2], [5.0, 70.0, 6.0]])
    values = values_from_scores(scores, kind="rank")
    expected = np.array([1 / 3, 1, 1 / 2]) / (1 + 1 / 2 + 1 / 3)
    np.testing.assert_allclose(values, [expected, expected], rtol=1e-12)


def test_rank_of_equal_scores_goes_by_place() -> None:
    values = values_from_scores(torch.zeros(1, 3), kind="rank")
    assert values[0, 0] > values[0, 1] > values[0, 2] > 0


def test_score_is_taken_as_it_is_but_never_below_zero() -> None:
    scores = torch.tensor([[2.5, -1.0, -INF, 0.0]])
    assert values_from_scores(scores, kind="score").tolist() == [[2.5, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("kind", ["share", "rank", "score"])
@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (1, 1)])
def test_odd_shapes_and_rows_without_candidates(kind: str, shape: tuple[int, int]) -> None:
    values = values_from_scores(torch.full(shape, -INF), kind=kind)  # type: ignore[arg-type]
    assert values.shape == shape
    assert values.dtype == torch.float64
    assert bool((values == 0).all())


def test_far_scores_stay_finite() -> None:
    values = values_from_scores(torch.tensor([[1e30, -1e30, 0.0]]), kind="share")
    assert values.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("bad", [float("nan"), INF])
def test_scores_that_are_no_scores(bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        values_from_scores(torch.tensor([[1.0, bad]]))


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match=r"\[B, k\]"):
        values_from_scores(torch.zeros(3))
    with pytest.raises(InputError, match="temperature"):
        values_from_scores(torch.zeros(1, 3), kind="share", temperature=0.0)
    with pytest.raises(InputError, match="kind"):
        values_from_scores(torch.zeros(1, 3), kind="rang")  # type: ignore[arg-type]
