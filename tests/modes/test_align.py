"""Alignment of modes: scipy's angles, every matching tried, and a concept in two memories."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.modes.find import find_modes
from graphmem_torch.modes.search import align_modes, principal_angles


def axes(dim: int, count: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dim, count, generator=g, dtype=torch.float64)).Q


@pytest.mark.parametrize(("p", "q"), [(1, 1), (3, 3), (2, 5), (5, 2), (6, 6)])
def test_angles(p: int, q: int) -> None:
    """Subspaces made to have them; an arc cosine would lose half of the digits of a small one."""
    whole, wide, narrow = axes(9, 9, 0), max(p, q), min(p, q)
    turned = min(narrow, 9 - wide)
    wanted = torch.zeros(narrow, dtype=torch.float64)
    wanted[narrow - turned :] = torch.linspace(1e-6, 1.5, turned, dtype=torch.float64)
    small = whole[:, :narrow] * wanted.cos()
    small[:, narrow - turned :] += whole[:, wide : wide + turned] * wanted[-turned:].sin()
    small, large = small @ axes(narrow, narrow, 1), whole[:, :wide] @ axes(wide, wide, 2)
    a, b = (large, small) if p > q else (small, large)
    np.testing.assert_allclose(principal_angles(a, b), wanted, atol=1e-12)


def test_small_angles_keep_their_digits() -> None:
    four = axes(9, 4, 0)
    a = four[:, :3]
    b = a.clone()
    b[:, 0] = np.cos(1e-9) * a[:, 0] + np.sin(1e-9) * four[:, 3]
    found = principal_angles(a, b)
    assert found.tolist() == pytest.approx([0, 0, 1e-9], abs=1e-14)
    np.testing.assert_allclose(principal_angles(a, a), np.zeros(3), atol=1e-14)
    whole = axes(6, 6, 2)
    assert principal_angles(whole[:, :2], whole[:, 2:]).tolist() == pytest.approx([np.pi / 2] * 2)


@pytest.mark.parametrize(("p", "q"), [(4, 4), (3, 5), (5, 2)])
def test_matching_is_the_best_of_all(p: int, q: int) -> None:
    g = torch.Generator().manual_seed(p)
    first, second = (
        find_modes(torch.nn.functional.normalize(torch.randn(60, 8, generator=g), dim=1), count=n)
        for n in (p, q)
    )
    found = align_modes(first, second)
    one, other = (
        torch.nn.functional.normalize(m.centroid.double(), dim=1).numpy() for m in (first, second)
    )
    cosine = one @ other.T
    short, long = sorted((len(first), len(second)))
    tall = cosine if len(first) <= len(second) else cosine.T
    best = max(
        sum(tall[i, j] for i, j in enumerate(chosen)) for chosen in permutations(range(long), short)
    )
    assert float(found.similarity.double().sum()) == pytest.approx(best, abs=1e-5)
    pairs = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
    np.testing.assert_allclose(found.similarity, [cosine[i, j] for i, j in pairs], atol=1e-6)
    assert found.similarity.tolist() == sorted(found.similarity.tolist(), reverse=True)
    assert sorted(found.first.tolist() + found.only_first.tolist()) == list(range(len(first)))
    assert sorted(found.second.tolist() + found.only_second.tolist()) == list(range(len(second)))


def test_a_concept_in_two_memories() -> None:
    g = torch.Generator().manual_seed(0)
    concepts = axes(12, 4, 3).T.float()

    def memory(which: list[int], each: int) -> torch.Tensor:
        rows = concepts[which].repeat_interleave(each, 0)
        return rows + 0.03 * torch.randn(len(rows), 12, generator=g)

    episodic, semantic = memory([0, 1, 2], 30), memory([2, 3, 0], 9)
    one, other = find_modes(episodic, count=3), find_modes(semantic, count=3)
    found = align_modes(one, other)

    def concept(centroid: torch.Tensor) -> list[int]:
        return (centroid @ concepts.T).argmax(1).tolist()

    named = list(
        zip(concept(one.centroid[found.first]), concept(other.centroid[found.second]), strict=True)
    )
    assert {pair for pair, s in zip(named, found.similarity, strict=True) if s > 0.9} == {
        (0, 0),
        (2, 2),
    }
    assert found.angles[:2].rad2deg().max() < 5
    assert found.angles[2].rad2deg() > 80


def test_encoders_that_differ() -> None:
    one, other = (find_modes(torch.eye(d), count=2) for d in (4, 5))
    with pytest.raises(InputError, match="same embedder"):
        align_modes(one, other)
