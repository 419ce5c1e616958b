"""Near-duplicates among the items of a question."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmem_torch.context.duplicates import near_duplicates


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


def test_nothing_chosen() -> None:
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


def test_many_questions_go_tile_by_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.nn.functional.normalize(torch.rand(20, 4) + 0.5, dim=1)
    rows = torch.randint(0, 20, (7, 12), generator=torch.Generator().manual_seed(3))
    whole = near_duplicates(rows, rows >= 0, vectors, 0.9)
    monkeypatch.setattr("graphmem_torch.context.duplicates._CELLS", 1)
    tiled = near_duplicates(rows, rows >= 0, vectors, 0.9)
    for name in ("row", "item", "other"):
        assert torch.equal(getattr(whole, name), getattr(tiled, name))
