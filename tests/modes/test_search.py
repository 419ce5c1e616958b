"""Mode retrieval against a loop over questions, modes and atoms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.modes.find import Modes, find_modes
from graphmem_torch.modes.search import atoms_read, mode_weights, search_modes, select_modes

ATOMS, DIM = 400, 10
DAY = 86_400.0


@pytest.fixture(scope="module")
def x() -> Tensor:
    g = torch.Generator().manual_seed(0)
    # One mode far larger than the others, and one of a single atom.
    group = (torch.rand(ATOMS, generator=g) ** 2 * 8).long()
    centres = 2 * torch.randn(8, DIM, generator=g)
    drawn = centres[group] + 0.7 * torch.randn(ATOMS, DIM, generator=g)
    return torch.nn.functional.normalize(drawn, dim=1)


@pytest.fixture(scope="module")
def modes(x: Tensor) -> Modes:
    time = 1.7e9 + DAY * torch.arange(ATOMS, dtype=torch.float64)
    return find_modes(x, count=7, time=time)


def questions(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))


def expected(
    modes: Modes,
    x: Tensor,
    query: Tensor,
    modes_k: int,
    per_mode: int,
    keep: np.ndarray[Any, Any] | None = None,
    **weigh: Any,
) -> list[tuple[float, int]]:
    """(cosine, mode) of every hit of one question, best first, by the definition."""
    q = query.double().numpy()
    q = q / np.linalg.norm(q)
    latest, life = modes.latest.numpy(), weigh.get("half_life_days")
    now = np.nan if life is None else np.nanmax(latest)
    weights = []
    for k in range(len(modes)):
        mean = modes.centroid[k].double().numpy()
        cosine = q @ mean / np.linalg.norm(mean)
        near = abs(cosine) if weigh.get("absolute") else max(0.0, cosine)
        decay = 1.0 if life is None else 0.5 ** ((now - latest[k]) / (life * DAY))
        weight = near * decay / (1 + float(modes.variance[k]))
        weights.append(weight if weight > 0 else cosine)
    hits = []
    label, cosines = modes.label.numpy(), x.double().numpy() @ q
    for k in sorted(range(len(modes)), key=lambda k: -weights[k])[:modes_k]:
        inside = (label == k) if keep is None else (label == k) & keep
        best = np.sort(cosines[inside])[::-1][:per_mode]
        hits += [(float(c), k) for c in best]
    return sorted(hits, reverse=True)


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize(("modes_k", "per_mode"), [(1, 1), (3, 5), (2, 100), (7, 400), (20, 9)])
def test_against_the_definition(
    x: Tensor,
    modes: Modes,
    batch: int,
    modes_k: int,
    per_mode: int,
) -> None:
    asked = questions(batch)
    found = search_modes(modes, x, asked, modes_k=modes_k, per_mode=per_mode)
    assert found.rows.shape == (batch, modes_k * per_mode)
    for b in range(min(batch, 6)):
        wanted = expected(modes, x, asked[b], modes_k, per_mode)
        rows = found.rows[b][found.rows[b] >= 0]
        count = len(rows)
        assert count == len(wanted) == len(rows.unique())
        np.testing.assert_allclose(found.scores[b, :count], [c for c, _ in wanted], atol=1e-5)
        assert found.mode[b, :count].tolist() == modes.label[rows].tolist()
        assert sorted(found.mode[b, :count].tolist()) == sorted(k for _, k in wanted)
        unit = torch.nn.functional.normalize(asked[b], dim=0)
        torch.testing.assert_close(found.scores[b, :count], x[rows] @ unit, atol=1e-5, rtol=0)
        assert (found.scores[b, count:] == -torch.inf).all()
        assert (found.mode[b, count:] == -1).all()


def test_all_modes_are_a_flat_search(x: Tensor, modes: Modes) -> None:
    asked = questions(12)
    found = search_modes(modes, x, asked, modes_k=len(modes), per_mode=10)
    flat = (torch.nn.functional.normalize(asked, dim=1) @ x.T).topk(10)
    torch.testing.assert_close(found.scores[:, :10], flat.values)
    assert torch.equal(found.rows[:, :10], flat.indices)


def test_weights(x: Tensor, modes: Modes) -> None:
    asked = questions(6)
    for weigh in (
        {},
        {"absolute": True},
        {"half_life_days": 40.0},
        {"half_life_days": 2.0, "absolute": True},
    ):
        found = search_modes(modes, x, asked, modes_k=2, per_mode=4, **weigh)
        for b in range(6):
            wanted = expected(modes, x, asked[b], 2, 4, **weigh)
            got = sorted(found.mode[b][found.mode[b] >= 0].tolist())
            assert got == sorted(k for _, k in wanted)
    assert (mode_weights(modes, asked) >= 0).all()
    opposite = -modes.centroid[:1]
    assert mode_weights(modes, opposite)[0, 0] == 0
    assert mode_weights(modes, opposite, absolute=True)[0, 0] > 0


def test_half_a_life(x: Tensor) -> None:
    """A mode of unknown time does not age; one a half-life old has half of its weight."""
    pair = torch.eye(3)[:3].repeat_interleave(4, 0)
    time = torch.tensor([0.0, DAY, torch.nan], dtype=torch.float64).repeat_interleave(4)
    modes = find_modes(pair, count=3, time=time, select="gap")
    whole = mode_weights(modes, torch.ones(1, 3))[0]
    aged = mode_weights(modes, torch.ones(1, 3), half_life_days=1.0)[0]
    share = {
        None if t != t else t: s
        for t, s in zip(modes.latest.tolist(), (aged / whole).tolist(), strict=True)
    }
    assert share == {0.0: pytest.approx(0.5), DAY: pytest.approx(1), None: pytest.approx(1)}


@pytest.mark.parametrize("batch", [1, 9])
def test_equal_content_is_one_hit(x: Tensor, modes: Modes, batch: int) -> None:
    g = torch.Generator().manual_seed(3)
    twice = torch.cat([x, x[:150]])
    first = torch.cat([torch.arange(ATOMS), torch.arange(150)])
    order = torch.randperm(len(twice), generator=g)
    twice, content = twice[order], first[order]
    seen: dict[int, int] = {}
    duplicate = torch.tensor([seen.setdefault(c, i) for i, c in enumerate(content.tolist())])
    found_modes = find_modes(twice, count=5)
    asked = questions(batch)
    found = search_modes(found_modes, twice, asked, modes_k=3, per_mode=20, duplicate=duplicate)
    allowed = torch.rand(batch, len(twice), generator=g) < 0.6
    some = search_modes(
        found_modes, twice, asked, modes_k=3, per_mode=20, duplicate=duplicate, allowed=allowed
    )
    for b in range(batch):
        keep = np.array([duplicate[i] == i for i in range(len(twice))])
        wanted = expected(found_modes, twice, asked[b], 3, 20, keep)
        rows = found.rows[b][found.rows[b] >= 0]
        assert len(rows) == len(wanted) == len(content[rows].unique())
        np.testing.assert_allclose(found.scores[b, : len(rows)], [c for c, _ in wanted], atol=1e-5)
        # Where the first copy may not be a hit, the next one stands for it.
        firsts = {int(content[i]): i for i in reversed(range(len(twice))) if allowed[b, i]}
        keep = np.array([firsts.get(int(content[i])) == i for i in range(len(twice))])
        wanted = expected(found_modes, twice, asked[b], 3, 20, keep)
        rows = some.rows[b][some.rows[b] >= 0]
        assert len(rows) == len(wanted)
        assert allowed[b, rows].all()
        np.testing.assert_allclose(some.scores[b, : len(rows)], [c for c, _ in wanted], atol=1e-5)


def test_masks(x: Tensor, modes: Modes) -> None:
    asked = questions(4)
    allowed = torch.rand(4, ATOMS, generator=torch.Generator().manual_seed(4)) < 0.3
    allowed[3] = False
    found = search_modes(modes, x, asked, modes_k=3, per_mode=6, allowed=allowed)
    for b in range(4):
        wanted = expected(modes, x, asked[b], 3, 6, allowed[b].numpy())
        rows = found.rows[b][found.rows[b] >= 0]
        assert allowed[b, rows].all()
        np.testing.assert_allclose(found.scores[b, : len(rows)], [c for c, _ in wanted], atol=1e-5)
    shared = search_modes(modes, x, asked, modes_k=3, per_mode=6, allowed=allowed[:1])
    torch.testing.assert_close(shared.rows[0], found.rows[0])


def test_atoms_read(modes: Modes) -> None:
    chosen, weight = select_modes(modes, questions(5), 3)
    assert weight.tolist() == [sorted(line, reverse=True) for line in weight.tolist()]
    wanted = [sum(int(modes.size[k]) for k in line) for line in chosen.tolist()]
    assert atoms_read(modes, chosen).tolist() == wanted
    assert select_modes(modes, questions(5), 99)[0].shape == (5, len(modes))


def test_only_the_atoms_of_chosen_modes_are_read(x: Tensor, modes: Modes) -> None:
    """Rows outside of the chosen modes may be anything, even NaN."""
    asked = questions(1)
    chosen, _ = select_modes(modes, asked, 2)
    inside = torch.isin(modes.label.long(), chosen[0])
    poisoned = torch.where(inside[:, None], x, torch.nan)
    whole = search_modes(modes, x, asked, modes_k=2, per_mode=50)
    found = search_modes(modes, poisoned, asked, modes_k=2, per_mode=50)
    assert torch.equal(found.rows, whole.rows)
    torch.testing.assert_close(found.scores, whole.scores)


def test_no_questions_and_half(x: Tensor, modes: Modes) -> None:
    none = search_modes(modes, x, questions(0), modes_k=2, per_mode=3)
    assert none.rows.shape == none.scores.shape == none.mode.shape == (0, 6)
    asked = questions(5)
    half = search_modes(modes, x.half(), asked.half(), modes_k=2, per_mode=3)
    whole = search_modes(modes, x, asked, modes_k=2, per_mode=3)
    assert half.scores.dtype == torch.float32
    torch.testing.assert_close(half.scores, whole.scores, atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": torch.randn(2, DIM + 1)}, "queries"),
        ({"queries": torch.randn(DIM)}, "queries"),
        ({"embeddings": torch.randn(3, DIM)}, r"\[400, d\]"),
        ({"modes_k": 0}, "modes_k"),
        ({"per_mode": 0}, "per_mode"),
        ({"half_life_days": -1.0}, "half_life_days"),
        ({"duplicate": torch.zeros(3, dtype=torch.int64)}, "duplicate"),
        ({"duplicate": torch.zeros(ATOMS)}, "duplicate"),
        ({"allowed": torch.ones(3, ATOMS, dtype=torch.bool)}, "allowed"),
        ({"allowed": torch.ones(2, ATOMS)}, "allowed"),
        ({"queries": torch.randn(2, DIM, requires_grad=True)}, "gradient"),
    ],
)
def test_bad_input(x: Tensor, modes: Modes, change: dict[str, Any], message: str) -> None:
    given = {"embeddings": x, "queries": questions(2), "modes_k": 2, "per_mode": 3, **change}
    with pytest.raises(InputError, match=message):
        search_modes(modes, **given)
