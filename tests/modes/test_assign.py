"""How many modes by each rule, written out in numpy; planted groups found by each assignment."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.linalg.gram import gram_svd
from graphmem_torch.modes.assign import (
    ASSIGNMENTS,
    assign_modes,
    numerical_rank,
    predicted_counts,
    select_count,
    spectral_exponent,
    varimax,
)


def planted(
    groups: int = 5, each: int = 60, dim: int = 24, noise: float = 0.08
) -> tuple[Tensor, Tensor]:
    """Unit rows around orthogonal directions, groups of falling size, and their true labels."""
    g = torch.Generator().manual_seed(1)
    axes = torch.linalg.qr(torch.randn(dim, groups, generator=g)).Q.T
    sizes = [each + 12 * (groups - i) for i in range(groups)]
    label = torch.arange(groups).repeat_interleave(torch.tensor(sizes))
    label = label[torch.randperm(len(label), generator=g)]
    rows = axes[label] + noise * torch.randn(len(label), dim, generator=g)
    return torch.nn.functional.normalize(rows, dim=1), label


def same_partition(one: Tensor, other: Tensor) -> bool:
    pairs = {(a, b) for a, b in zip(one.tolist(), other.tolist(), strict=True)}
    return len(pairs) == len(one.unique()) == len(other.unique())


@pytest.mark.parametrize("assign", ASSIGNMENTS)
def test_planted_groups(assign: str) -> None:
    x, truth = planted()
    found = assign_modes(
        x, gram_svd(x, 5), assign=assign, generator=torch.Generator().manual_seed(0)
    )
    assert found.shape == truth.shape
    assert same_partition(found, truth)


def test_turned_axes_find_groups_that_principal_axes_mix(generator: torch.Generator) -> None:
    """Groups of equal size: the eigenvalues coincide and any turn of the axes is as good."""
    axes = torch.linalg.qr(torch.randn(20, 6, generator=generator)).Q.T
    truth = torch.arange(6).repeat(40)
    x = axes[truth] + 0.02 * torch.randn(240, 20, generator=generator)
    spectrum = gram_svd(x, 6)
    for assign in ("varimax", "kmeans"):
        assert same_partition(assign_modes(x, spectrum, assign=assign, generator=generator), truth)


def test_sign_by_definition(generator: torch.Generator) -> None:
    x = torch.randn(70, 9, generator=generator)
    found = assign_modes(x, gram_svd(x, 4), assign="sign", generator=generator)
    kernel = x.double().numpy() @ x.double().numpy().T / 70
    entries = np.linalg.eigh(kernel).eigenvectors[:, ::-1][:, :4]
    axis = np.abs(entries).argmax(1)
    negative = np.take_along_axis(entries, axis[:, None], 1)[:, 0] < 0
    # An eigenvector has no sign of its own, so labels may be swapped in pairs.
    assert np.array_equal(found.numpy() // 2, axis)
    assert same_partition(found, torch.from_numpy(2 * axis + negative))


def test_varimax_is_a_turn_that_raises_its_criterion(generator: torch.Generator) -> None:
    simple = torch.zeros(120, 4)
    simple[torch.arange(120), torch.arange(120) % 4] = 1 + torch.rand(120, generator=generator)
    hidden = torch.linalg.qr(torch.randn(4, 4, generator=generator)).Q
    loadings = simple @ hidden
    turn = varimax(loadings)
    torch.testing.assert_close(turn.T @ turn, torch.eye(4), atol=1e-5, rtol=0)

    def criterion(a: Tensor) -> float:
        return float(a.square().var(dim=0, unbiased=False).sum())

    assert criterion(loadings @ turn) == pytest.approx(criterion(simple), rel=1e-3)
    assert criterion(loadings @ turn) > criterion(loadings)
    assert varimax(torch.ones(3, 1)).abs().item() == pytest.approx(1)


@pytest.mark.parametrize("assign", ASSIGNMENTS)
def test_labels_do_not_depend_on_tiles_or_precision(assign: str) -> None:
    x, _ = planted(noise=0.2)
    spectrum = gram_svd(x, 5)

    def labels(rows: Tensor) -> Tensor:
        return assign_modes(
            rows, spectrum, assign=assign, generator=torch.Generator().manual_seed(0)
        )

    whole = labels(x)
    assert torch.equal(labels(x), whole)
    assert (labels(x.half()) == whole).float().mean() > 0.98
    # A row further away from the others' centre keeps the mode that its direction has.
    if assign != "sign":
        assert torch.equal(labels(x.double()), whole)


def test_unknown_method() -> None:
    x, _ = planted()
    with pytest.raises(InputError, match="assign: expected one of"):
        assign_modes(x, gram_svd(x, 2), assign="leiden", generator=torch.Generator())


def spectrum_of(seed: int, count: int = 30) -> torch.Tensor:
    drawn = np.random.default_rng(seed).gamma(0.7, size=count)
    return torch.from_numpy(np.sort(drawn)[::-1].copy())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epsilon", [0.5, 0.1, 0.01, 1e-9])
def test_energy(seed: int, epsilon: float) -> None:
    values = spectrum_of(seed).numpy()
    wanted = next(
        k
        for k in range(1, len(values) + 1)
        if values[:k].sum() >= (1 - epsilon) * values.sum() - 1e-12
    )
    found = select_count(
        torch.from_numpy(values), float(values.sum()), (99, 30), select="energy", epsilon=epsilon
    )
    assert found == wanted


@pytest.mark.parametrize("shape", [(30, 900), (500, 30), (30, 30)])
def test_gcv(shape: tuple[int, int]) -> None:
    n, d = shape
    for seed in range(5):
        values = spectrum_of(seed).numpy()
        scores = {
            k: values[k:].sum() / ((1 - k / n) * (1 - k / d)) ** 2 for k in range(1, min(shape))
        }
        wanted = min(scores, key=lambda k: scores[k])
        total = float(values.sum())
        assert select_count(torch.from_numpy(values), total, shape, select="gcv") == wanted


@pytest.mark.parametrize("shape", [(20, 900), (500, 30), (30, 30), (1, 9)])
def test_gcv_as_printed(shape: tuple[int, int]) -> None:
    """It ends at the number of columns wherever there are more rows."""
    n, d = shape
    for seed in range(5):
        values = spectrum_of(seed).numpy()[: min(shape)]
        scores = {
            k: max(0.0, values[k:].sum()) / (1 - k / n) ** 2
            for k in range(1, min(n, len(values) + 1))
        }
        wanted = min(scores, key=lambda k: scores[k]) if scores else 1
        total = float(values.sum())
        found = select_count(torch.from_numpy(values), total, shape, select="gcv_published")
        assert found == wanted
        if n > d:
            assert found == len(values)


def test_gap_counts_the_fall_to_nothing() -> None:
    three = torch.tensor([1.0, 0.9, 0.8])
    assert select_count(three, 2.7, (50, 40), select="gap") == 3
    # There are others behind these three: what is below the third is not known.
    assert select_count(torch.tensor([1.0, 0.9, 0.3]), 2.7, (50, 40), select="gap") == 2
    assert select_count(torch.tensor([5.0, 1.0, 0.9, 0.8]), 7.7, (50, 40), select="gap") == 1
    assert select_count(torch.tensor([5.0]), 7.7, (50, 40), select="gap") == 1


@pytest.mark.parametrize("select", ["energy", "gcv", "gcv_published", "gap"])
def test_one_eigenvalue(select: str) -> None:
    assert select_count(torch.tensor([2.0]), 2.0, (1, 1), select=select) == 1
    assert select_count(torch.tensor([2.0]), 2.0, (9, 5), select=select) == 1


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.5])
def test_exponent_of_a_power_law(exponent: float) -> None:
    values = 7.0 * torch.arange(1, 200, dtype=torch.float64) ** -exponent
    assert spectral_exponent(values) == pytest.approx(exponent)


def test_predictions() -> None:
    assert predicted_counts(2.0, 0.01) == pytest.approx((100.0, 10.0))
    assert predicted_counts(3.0, 0.01) == pytest.approx((10.0, 0.01 ** (-1 / 3)))
    assert predicted_counts(1.0, 0.1)[0] == math.inf
    assert predicted_counts(-0.1, 0.1) == (math.inf, math.inf)
    assert all(math.isnan(value) for value in predicted_counts(math.nan, 0.1))
    assert predicted_counts(1.1, 1e-300) == (math.inf, pytest.approx(1e-300 ** (-1 / 1.1)))
    assert math.isnan(spectral_exponent(torch.tensor([1.0, 0.5])))
    assert math.isnan(spectral_exponent(torch.tensor([1.0, 0.5, 0.0, 0.0])))


def test_predicted_order_is_that_of_the_tail() -> None:
    """A hundred times less energy left out takes 100^(1/(s-1)) times as many modes."""
    s = 3.0
    values = torch.arange(1, 100_001, dtype=torch.float64) ** -s
    few, many = (
        select_count(values, float(values.sum()), (10**6, 10**6), epsilon=e) for e in (1e-4, 1e-6)
    )
    ratio = predicted_counts(s, 1e-6)[0] / predicted_counts(s, 1e-4)[0]
    assert many / few == pytest.approx(ratio, rel=0.05)


def test_numerical_rank() -> None:
    values = torch.tensor([1.0, 0.5, 1e-3, 1e-9, 0.0], dtype=torch.float64)
    assert numerical_rank(values) == 3
    assert numerical_rank(values, torch.float64) == 4
    assert numerical_rank(torch.zeros(4)) == 0
    assert numerical_rank(torch.zeros(0)) == 0


def test_select_bad_input() -> None:
    values = torch.tensor([1.0, 0.5])
    for epsilon in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(InputError, match="epsilon"):
            select_count(values, 1.5, (5, 5), epsilon=epsilon)
    with pytest.raises(InputError, match="select"):
        select_count(values, 1.5, (5, 5), select="elbow")
    with pytest.raises(InputError, match="values"):
        select_count(values[:0], 0.0, (5, 5))
