"""Choosing with headers, pins, needs and near-duplicates at once, against every subset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.context.choose import Choice, near_duplicates, with_headers
from graphmem_torch.context.pool import Relations, gather_pool
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError

ATOMS, PRICES = 9, torch.tensor([2, 4, 6])
HEADERS = torch.tensor([3, 5, 7, 9])


class Instance:
    """One question over nine atoms, drawn by a seed, and what each choice of them is worth."""

    def __init__(self, seed: int, *, needs: int, alike: bool, pins: int, work: int = 64) -> None:
        g = torch.Generator().manual_seed(seed)
        kinds = torch.randint(0, 4 if alike else ATOMS, (ATOMS,), generator=g)
        base = torch.eye(ATOMS)[kinds if alike else torch.arange(ATOMS)]
        noise = 0.05 * torch.randn(ATOMS, ATOMS, generator=g)
        self.vectors = torch.nn.functional.normalize(base + noise, dim=1)
        edges = torch.randint(0, ATOMS, (2, needs), generator=g)
        self.needs = [(a, b) for a, b in edges.T.tolist() if a != b]
        block = EdgeBlock.of(edges[0], edges[1], int(EdgeType.DEPENDENCY), 1.0)
        self.pinned = torch.randperm(ATOMS, generator=g)[:pins]
        rows = torch.randperm(ATOMS, generator=g)[None]
        values = torch.rand(1, ATOMS, generator=g, dtype=torch.float64)
        self.pool = gather_pool(
            rows,
            values,
            atoms=ATOMS,
            pinned=self.pinned,
            needs=Relations.of(block, ("dependency",), ATOMS),
        )
        self.costs = torch.randint(1, 12, (1, ATOMS), generator=g)
        self.groups = torch.randint(0, 3, (1, ATOMS), generator=g)
        self.choice = Choice.of(
            self.pool,
            self.costs,
            self.groups,
            PRICES,
            embeddings=self.vectors,
            redundancy=0.9,
            work=work,
        )
        # Plain numbers: every one of 512 subsets is looked at.
        near = self.vectors[self.pool.rows[0]]
        self._share = (((near @ near.T).double() - 0.9) / 0.1).clamp(0.0, 1.0).tolist()
        self._decided = self.choice.pinned[0].tolist()
        self._rows, self._values = self.pool.rows[0].tolist(), self.pool.values[0].tolist()
        self._costs, self._groups = self.costs[0].tolist(), self.groups[0].tolist()

    def cost(self, places: Sequence[int]) -> int:
        used = {self._groups[i] for i in places} if any(self._groups) else set()
        return sum(self._costs[i] for i in places) + sum(int(PRICES[group]) for group in used)

    def allowed(self, places: Sequence[int]) -> bool:
        chosen = {self._rows[i] for i in places}
        whole = all(b in chosen for a, b in self.needs if a in chosen)
        return whole and set(self.pinned.tolist()) <= chosen

    def worth(self, places: Sequence[int]) -> float:
        """Each item's value, less its share with the best better one: decided, valuable, early."""
        ranked = sorted(places, key=lambda i: (-self._decided[i], -self._values[i], i))
        return sum(
            self._values[item] * (1 - max((self._share[item][i] for i in ranked[:at]), default=0.0))
            for at, item in enumerate(ranked)
        )

    def optima(self, rooms: Sequence[int]) -> list[float]:
        """The worth of the best of all subsets that fit, for each room."""
        subsets = ([i for i in range(ATOMS) if number >> i & 1] for number in range(1 << ATOMS))
        found = [(self.cost(one), self.worth(one)) for one in subsets if self.allowed(one)]
        return [max((w for cost, w in found if cost <= room), default=0.0) for room in rooms]


def _places(mask: torch.Tensor) -> list[int]:
    return mask.nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("needs", "alike", "pins"),
    [(0, False, 0), (0, False, 2), (0, True, 0), (5, False, 1), (5, True, 1)],
)
def test_choices_are_the_best_of_all(needs: int, alike: bool, pins: int) -> None:
    for seed in range(3):
        made = Instance(seed, needs=needs, alike=alike, pins=pins)
        least = int(made.choice.least)
        assert least == made.cost(_places(made.choice.pinned[0]))
        rooms = [least, least + 9, least + 25]
        found = made.choice.choose(torch.zeros(3, dtype=torch.int64), torch.tensor(rooms))
        for at, best in enumerate(made.optima(rooms)):
            places = _places(found.mask[at])
            assert made.allowed(places)
            assert made.cost(places) <= rooms[at]
            assert float(found.value[at]) == pytest.approx(made.worth(places), abs=1e-5)
            assert float(found.upper_bound[at]) >= best - 1e-5
            if bool(found.exact[at]):
                assert float(found.value[at]) == pytest.approx(best, abs=1e-5)


def test_without_work_the_bound_still_holds() -> None:
    for seed in range(6):
        quick = Instance(seed, needs=0, alike=False, pins=0, work=0)
        found = quick.choice.choose(torch.tensor([0]), torch.tensor([30]))
        (best,) = quick.optima([30])
        assert float(found.value) <= best + 1e-9 <= float(found.upper_bound) + 2e-9


def test_copies_beyond_what_was_chosen_do_not_crowd_out_the_rest() -> None:
    """Fifty copies of the best memory and four others: one copy and all the others come."""
    vectors = torch.eye(5)[torch.tensor([0] * 50 + [1, 2, 3, 4])]
    rows = torch.arange(54)[None]
    values = torch.tensor([[0.02] * 50 + [0.01] * 4], dtype=torch.float64)
    choice = Choice.of(
        gather_pool(rows, values, atoms=54),
        torch.full((1, 54), 7),
        torch.zeros(1, 54, dtype=torch.int64),
        PRICES,
        embeddings=vectors,
        redundancy=0.95,
    )
    found = choice.choose(torch.zeros(3, dtype=torch.int64), torch.tensor([36, 80, 1 << 40]))
    assert found.mask[:, 50:].all() and found.mask[:, :50].sum(1).tolist() == [1, 1, 1]
    assert found.value.tolist() == pytest.approx([0.06] * 3)
    assert found.exact.all()


@pytest.mark.parametrize("room", [30, 1 << 40])
@pytest.mark.parametrize("known", [1, 2])
def test_what_needs_more_than_the_pool_lists_stays_out(room: int, known: int) -> None:
    """A chain of five from atom 0, of which the pool may list too few; atom 6 needs nothing."""
    block = EdgeBlock.of(torch.arange(5), torch.arange(1, 6), int(EdgeType.DEPENDENCY), 1.0)
    needs = Relations.of(block, ("dependency",), ATOMS)
    pool = gather_pool(
        torch.tensor([[0, 6]]),
        torch.tensor([[0.9, 0.1]], dtype=torch.float64),
        atoms=ATOMS,
        needs=needs,
        limit=known,
    )
    costs = torch.ones_like(pool.rows)
    choice = Choice.of(
        pool, costs, torch.zeros_like(costs), PRICES, embeddings=torch.eye(ATOMS), redundancy=2.0
    )
    found = choice.choose(torch.tensor([0]), torch.tensor([room]))
    assert pool.rows[found.mask].tolist() == [6]


def test_a_pinned_item_that_needs_more_than_the_pool_lists_is_an_error() -> None:
    block = EdgeBlock.of(torch.arange(5), torch.arange(1, 6), int(EdgeType.DEPENDENCY), 1.0)
    pool = gather_pool(
        torch.tensor([[6]]),
        torch.ones(1, 1, dtype=torch.float64),
        atoms=ATOMS,
        pinned=torch.tensor([0]),
        needs=Relations.of(block, ("dependency",), ATOMS),
        limit=2,
    )
    costs = torch.ones_like(pool.rows)
    with pytest.raises(InputError, match=r"context\.pool.*pinned memories need"):
        Choice.of(pool, costs, costs * 0, PRICES, embeddings=torch.eye(ATOMS), redundancy=2.0)


def test_pairs_are_those_of_the_cosines() -> None:
    g = torch.Generator().manual_seed(0)
    base = torch.randn(6, 8, generator=g)
    vectors = torch.nn.functional.normalize(
        base.repeat(3, 1) + 0.15 * torch.randn(18, 8, generator=g), dim=1
    )
    rows = torch.stack([torch.randperm(18, generator=g) for _ in range(4)])
    rows[3, 9:] = -1
    chosen = (torch.rand(4, 18, generator=g) < 0.6) & (rows >= 0)
    found = near_duplicates(rows, chosen, vectors, 0.9)
    cosine = (vectors @ vectors.T).numpy().astype(np.float64)
    near = (cosine >= 0.9)[rows[:, :, None], rows[:, None]] & (rows >= 0).numpy()[:, None]
    picked = chosen.numpy()
    repeated = [
        any(near[b, i, j] and picked[b, i] and picked[b, j] for i in range(18) for j in range(i))
        for b in range(4)
    ]
    assert True in repeated
    expected = {
        (b, i, j): min(1.0, max(0.0, (cosine[rows[b, i], rows[b, j]] - 0.9) / 0.1))
        for b in range(4)
        for i in range(18)
        for j in range(18)
        if repeated[b] and i < j and rows[b, i] >= 0 and near[b, i, j]
    }
    keys = zip(found.row.tolist(), found.item.tolist(), found.other.tolist(), strict=True)
    got = dict(zip(keys, found.share.tolist(), strict=True))
    assert got.keys() == expected.keys() != set()
    for key, share in expected.items():
        assert got[key] == pytest.approx(share, abs=1e-4)


def test_a_threshold_of_one_takes_only_the_same() -> None:
    vectors = torch.eye(3)[torch.tensor([0, 1, 0])]
    rows = torch.tensor([[0, 1, 2]])
    found = near_duplicates(rows, rows >= 0, vectors, 1.0)
    assert [found.item.tolist(), found.other.tolist(), found.share.tolist()] == [[0], [2], [1.0]]


def test_near_vectors_alone_do_not_make_near_duplicates() -> None:
    vectors = torch.eye(3)[torch.tensor([0, 0, 0, 1])]
    rows = torch.tensor([[3, 0, 1, 2], [0, 3, 1, -1]])

    def repeats(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (one == 0) & (other == 2) | (one == 2) & (other == 0)

    found = near_duplicates(rows, rows >= 0, vectors, 0.9, repeats)
    pairs = zip(found.row.tolist(), found.item.tolist(), found.other.tolist(), strict=True)
    assert {*pairs} == {(0, 1, 3)}
    assert len(near_duplicates(rows[1:], rows[1:] >= 0, vectors, 0.9, repeats).row) == 0


def test_nothing_chosen_repeats_nothing() -> None:
    rows = torch.tensor([[0, 1, 2]])
    assert len(near_duplicates(rows, rows < 0, torch.eye(3), 0.5).row) == 0
    assert len(near_duplicates(rows[:0], rows[:0] >= 0, torch.eye(3), 0.5).row) == 0


def test_questions_that_repeat_nothing_are_not_compared() -> None:
    vectors = torch.eye(3)[torch.tensor([0, 0, 1, 2])]
    rows = torch.tensor([[0, 1, 2], [2, 3, 1], [0, 2, 1]])
    chosen = torch.tensor([[True, True, False], [True, True, False], [True, True, False]])
    found = near_duplicates(rows, chosen, vectors, 0.9)
    assert set(zip(found.row.tolist(), found.item.tolist(), found.other.tolist(), strict=True)) == {
        (0, 0, 1)
    }


def test_many_questions_go_tile_by_tile() -> None:
    vectors = torch.nn.functional.normalize(torch.rand(20, 4) + 0.5, dim=1)
    rows = torch.randint(0, 20, (7, 12), generator=torch.Generator().manual_seed(3))
    whole = near_duplicates(rows, rows >= 0, vectors, 0.9)
    tiled = near_duplicates(rows, rows >= 0, vectors, 0.9, cells=1)
    for name in ("row", "item", "other"):
        assert torch.equal(getattr(whole, name), getattr(tiled, name))


def test_shared_headers_are_told_from_those_of_one() -> None:
    costs = torch.tensor([[10, 20, 30, 40, 0], [1, 2, 3, 0, 0]])
    groups = torch.tensor([[2, 1, 2, 0, -1], [0, 0, 0, -1, -1]])
    found = with_headers(costs, groups, HEADERS)
    # Group 1 and the one without a label are alone; where nothing has one there is no header.
    assert found.costs.tolist() == [[10, 25, 30, 43, 0], [1, 2, 3, 0, 0]]
    assert found.header.tolist() == [[0, -1, 0, -1, -1], [-1] * 5]
    assert found.prices.tolist() == [[7], [0]]


def test_every_choice_pays_what_it_is_written_under() -> None:
    g = torch.Generator().manual_seed(0)
    groups = torch.randint(-1, 4, (40, 9), generator=g)
    costs = torch.randint(1, 30, (40, 9), generator=g).masked_fill(groups < 0, 0)
    found = with_headers(costs, groups, HEADERS)
    for row in range(40):
        labels = set(groups[row].tolist()) - {-1}
        for _ in range(8):
            mask = (torch.rand(9, generator=g) < 0.5) & (groups[row] >= 0)
            used = set(groups[row][mask].tolist())
            if labels <= {0}:
                used = set()
            expected = int(costs[row][mask].sum()) + sum(int(HEADERS[group]) for group in used)
            places = {place for place in found.header[row][mask].tolist() if place >= 0}
            paid = int(found.costs[row][mask].sum())
            assert paid + sum(int(found.prices[row, place]) for place in places) == expected


def test_headers_of_nothing() -> None:
    none = torch.zeros(0, 3, dtype=torch.int64)
    assert with_headers(none, none, HEADERS).prices.shape == (0, 0)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    assert with_headers(empty, empty, HEADERS).costs.shape == (2, 0)
