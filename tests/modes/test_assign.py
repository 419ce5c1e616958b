"""Assignments: planted groups are found, by each method as it is defined."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.linalg.gram import gram_svd
from graphmem_torch.modes.assign import ASSIGNMENTS, assign_modes, varimax


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
