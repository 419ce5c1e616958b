"""find_modes: statistics against numpy, the guarantee, and odd data."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.linalg.gram import gram_svd
from graphmem_torch.modes.find import (
    MODE_PARTS,
    Modes,
    find_modes,
    modes_from_tensors,
    modes_of,
    modes_to_tensors,
)


def rows(count: int = 90, dim: int = 12, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(6, dim, generator=g)
    drawn = centres[torch.randint(0, 6, (count,), generator=g)]
    drawn = drawn + 0.6 * torch.randn(count, dim, generator=g)
    return torch.nn.functional.normalize(drawn, dim=1)


def times(count: int) -> Tensor:
    g = torch.Generator().manual_seed(5)
    time = 1.7e9 + 1e7 * torch.rand(count, dtype=torch.float64, generator=g)
    time[torch.randint(0, count, (count // 3,), generator=g)] = torch.nan
    return time


@pytest.mark.parametrize("assign", ["kmeans", "sign", "varimax"])
def test_statistics(assign: str) -> None:
    x, time = rows(), times(90)
    modes = find_modes(x, count=5, assign=assign, time=time)
    e, label = x.double().numpy(), modes.label.numpy()
    assert sorted(set(label.tolist())) == list(range(len(modes)))
    assert modes.size.tolist() == sorted(modes.size.tolist(), reverse=True)
    for k in range(len(modes)):
        inside = np.flatnonzero(label == k)
        assert len(inside) == modes.size[k] > 0
        begin, end = modes.offsets[k : k + 2].tolist()
        assert modes.order[begin:end].tolist() == inside.tolist()
        mean = e[inside].mean(0)
        np.testing.assert_allclose(modes.centroid[k], mean, atol=1e-6)
        spread = ((e[inside] - mean) ** 2).sum(1).mean()
        assert float(modes.variance[k]) == pytest.approx(spread, abs=1e-6)
        known = time[inside][~time[inside].isnan()]
        latest = float(modes.latest[k])
        assert latest == float(known.max()) if len(known) else np.isnan(latest)
        projection = e[inside] @ mean
        typical = [i for i in modes.representative[k].tolist() if i >= 0]
        assert len(typical) == min(3, len(inside))
        assert set(typical) <= set(inside.tolist())
        np.testing.assert_allclose(
            e[typical] @ mean, np.sort(projection)[::-1][: len(typical)], atol=1e-6
        )
    kept = (modes.size.double() * modes.centroid.double().square().sum(1)).sum() / 90
    assert float(modes.energy.sum()) == pytest.approx(float(kept), abs=1e-6)
    assert float(modes.energy.sum()) + modes.centroid_error == pytest.approx(1, abs=1e-6)


def test_guarantee() -> None:
    """The bound is the optimum, the measured error meets it; centroids are no such projection."""
    x = rows()
    for count in (1, 4, 11):
        modes = find_modes(x, count=count)
        singular = np.linalg.svd(x.double().numpy(), compute_uv=False)
        assert modes.bound == pytest.approx((singular[count:] ** 2).sum() / 90, abs=1e-6)
        assert modes.measured_error == pytest.approx(modes.bound, abs=1e-6)
        means = modes.centroid.double()[modes.label.long()]
        error = float((x.double() - means).square().sum(1).mean())
        assert modes.centroid_error == pytest.approx(error, abs=1e-6)
        assert modes.centroid_error > modes.bound


def test_rules_and_exponent() -> None:
    g = torch.Generator().manual_seed(3)
    left = torch.linalg.qr(torch.randn(200, 16, generator=g, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(16, 16, generator=g, dtype=torch.float64)).Q
    values = torch.arange(1, 17, dtype=torch.float64) ** -2.0
    x = left * (200 * values).sqrt() @ right.T
    share = values.cumsum(0) / values.sum()
    for epsilon in (0.3, 0.05):
        modes = find_modes(x, select="energy", epsilon=epsilon)
        wanted = int((share < 1 - epsilon).sum()) + 1
        assert len(modes.spectrum.values) == wanted
        assert modes.exponent == pytest.approx(2.0, abs=1e-6)
        assert modes.predicted == pytest.approx((1 / epsilon, epsilon**-0.5), rel=1e-5)
    assert len(find_modes(x, select="gap").spectrum.values) == 1


def test_labels_of_ones_own() -> None:
    x = rows()
    label = torch.randint(0, 4, (90,), generator=torch.Generator().manual_seed(2)) * 10 - 7
    modes = modes_of(x, label, gram_svd(x, 3))
    assert len(modes) == len(label.unique())
    for k in range(len(modes)):
        assert len(label[modes.label == k].unique()) == 1


@pytest.mark.parametrize("label", [torch.zeros(3, dtype=torch.int64), torch.zeros(90)])
def test_labels_that_do_not_fit(label: Tensor) -> None:
    x = rows()
    with pytest.raises(InputError, match="label"):
        modes_of(x, label, gram_svd(x, 3))


def test_more_modes_than_rank(caplog: pytest.LogCaptureFixture) -> None:
    flat = rows(50, 3)
    x = torch.nn.functional.pad(flat, (0, 7))
    with caplog.at_level(logging.WARNING):
        modes = find_modes(x, count=9)
    assert "9 modes were asked for, but the rows have rank 3: 3 are kept" in caplog.text
    assert len(modes.spectrum.values) == 3
    assert modes.bound == pytest.approx(0, abs=1e-6)
    assert len(find_modes(x, count=50).spectrum.values) == 3
    for select in ("energy", "gcv", "gap"):
        assert 1 <= len(find_modes(x, select=select).spectrum.values) <= 3


@pytest.mark.parametrize("assign", ["kmeans", "sign", "varimax"])
@pytest.mark.parametrize("select", ["energy", "gcv", "gap"])
def test_all_equal(assign: str, select: str) -> None:
    modes = find_modes(rows(1).expand(20, -1), assign=assign, select=select)
    assert modes.size.tolist() == [20]
    assert float(modes.variance) == pytest.approx(0, abs=1e-10)
    assert modes.bound == pytest.approx(0, abs=1e-6)
    assert modes.representative.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("assign", ["kmeans", "sign", "varimax"])
@pytest.mark.parametrize("count", [None, 1, 3])
def test_one_row(assign: str, count: int | None) -> None:
    modes = find_modes(rows(1), assign=assign, count=count)
    assert modes.size.tolist() == [1]
    assert modes.representative.tolist() == [[0, -1, -1]]
    assert modes.latest.isnan().all()
    assert modes.label.tolist() == [0]


def test_some_rows_are_zero() -> None:
    x = rows()
    x[::7] = 0
    modes = find_modes(x, count=4)
    assert int(modes.size.sum()) == 90
    assert modes.centroid.isfinite().all()


def test_wide_rows_by_count_and_seeds() -> None:
    """More columns than rows, more than are decomposed whole; and one seed, one result."""
    x = torch.nn.functional.normalize(torch.randn(40, 1500), dim=1)
    modes = find_modes(x, count=6, generator=torch.Generator().manual_seed(4))
    again = find_modes(x, count=6, generator=torch.Generator().manual_seed(4))
    assert torch.equal(modes.label, again.label)
    singular = np.linalg.svd(x.double().numpy(), compute_uv=False)
    assert modes.bound >= (singular[6:] ** 2).sum() / 40 - 1e-6
    assert modes.measured_error == pytest.approx(modes.bound, abs=1e-5)


def test_half_precision_is_read_in_float() -> None:
    x = rows()
    modes = find_modes(x.half(), count=4)
    assert modes.centroid.dtype == torch.float32
    assert (modes.label == find_modes(x.half().float(), count=4).label).all()


def test_state_survives_half_precision() -> None:
    modes = find_modes(rows(), count=5, time=times(90))
    parts = modes_to_tensors(modes)
    assert tuple(sorted(parts)) == tuple(sorted(MODE_PARTS))
    halved = {
        name: part.half() if part.is_floating_point() else part for name, part in parts.items()
    }
    for kept, tolerance in ((parts, 0.0), (halved, 1e-3)):
        again = modes_from_tensors(kept)
        assert _exact(again) == _exact(modes)
        torch.testing.assert_close(again.spectrum.values, modes.spectrum.values, rtol=0, atol=0)
        torch.testing.assert_close(
            again.centroid.float(), modes.centroid, atol=tolerance, rtol=tolerance
        )


def _exact(modes: Modes) -> list[Any]:
    return [
        modes.label.tolist(),
        modes.order.tolist(),
        modes.latest.nan_to_num(-1.0).tolist(),
        modes.exponent,
        modes.predicted,
        modes.bound,
        modes.measured_error,
        modes.centroid_error,
        modes.spectrum.total_energy,
        modes.spectrum.discarded_energy,
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(4, 3)}, "not zero"),
        ({"x": torch.zeros(0, 3)}, "at least one row"),
        ({"x": torch.zeros(3)}, "rows: expected"),
        ({"x": torch.ones(3, 3, dtype=torch.int64)}, "floating point"),
        ({"x": torch.full((3, 3), torch.nan)}, "finite"),
        ({"x": torch.ones(3, 3, requires_grad=True)}, "gradient"),
        ({"x": [[1.0, 2.0]]}, "tensor"),
        ({"count": 0}, "count"),
        ({"count": 2.5}, "count"),
        ({"select": "elbow"}, "select"),
        ({"assign": "leiden"}, "assign"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 0.0, "count": 3}, "epsilon"),
        ({"epsilon": 1.0, "count": 3}, "epsilon"),
        ({"epsilon": "a"}, "epsilon"),
        ({"time": [0.0] * 90}, "time"),
        ({"time": torch.zeros(90)}, "time"),
        ({"time": torch.zeros(3, dtype=torch.float64)}, "time"),
    ],
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_modes(**{"x": rows(), **change})
