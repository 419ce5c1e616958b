"""ModeTracker against modes found afresh, or computed row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.modes import Modes, ModeTracker, find_modes


def rows_of(count: int, seed: int = 0, groups: int = 5, dim: int = 16) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(groups, dim, generator=torch.Generator().manual_seed(99))
    own = centre[torch.randint(groups, (count,), generator=g)]
    return torch.nn.functional.normalize(own + 0.3 * torch.randn(count, dim, generator=g), dim=1)


def times_of(count: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    time = 1.7e9 + 1e6 * torch.rand(count, generator=g, dtype=torch.float64)
    time[::4] = math.nan
    return time


def found_in(x: Tensor, time: Tensor) -> Modes:
    return find_modes(x, count=5, time=time)


def tracker_of(x: Tensor, time: Tensor, **change) -> ModeTracker:
    return ModeTracker(found_in(x, time), x, time=time, **change)


def check(modes: Modes, x: Tensor, time: Tensor) -> None:
    """All statistics, row by row in numpy, and the eigenpairs against a fresh decomposition."""
    data, label = x.double().numpy(), modes.label.numpy()
    assert len(label) == len(data)
    assert (np.diff(modes.size.numpy()) <= 0).all() and modes.size.min() >= 1
    error = 0.0
    for k in range(len(modes)):
        own = label == k
        part = data[own]
        assert modes.size[k] == own.sum()
        mean = part.mean(0)
        np.testing.assert_allclose(modes.centroid[k].numpy(), mean, atol=1e-5)
        variance = ((part - mean) ** 2).sum(1).mean()
        error += ((part - mean) ** 2).sum()
        np.testing.assert_allclose(float(modes.variance[k]), variance, atol=1e-5)
        known = time.numpy()[own]
        known = known[~np.isnan(known)]
        if len(known):
            assert float(modes.latest[k]) == known.max()
        else:
            assert math.isnan(float(modes.latest[k]))
        members = modes.order[modes.offsets[k] : modes.offsets[k + 1]].tolist()
        assert members == np.nonzero(own)[0].tolist()
        typical = [i for i in modes.representative[k].tolist() if i >= 0]
        assert set(typical) <= set(members) and len(typical) == min(3, len(members))
    assert modes.centroid_error == pytest.approx(error / len(data), abs=1e-8)
    values = np.linalg.eigvalsh(data.T @ data / len(data))[::-1][: len(modes.spectrum.values)]
    np.testing.assert_allclose(modes.spectrum.values.numpy(), values, atol=1e-9)
    total = (data**2).sum() / len(data)
    assert modes.bound == pytest.approx(total - values.sum(), abs=1e-8)


def test_statistics_stay_exact_while_rows_come_and_go() -> None:
    x, time = rows_of(80), times_of(80)
    tracker = tracker_of(x, time, tol=1.0)
    check(tracker.modes(), x, time)
    g = torch.Generator().manual_seed(3)
    for turn in range(6):
        more, later = rows_of(25, seed=10 + turn), times_of(25, seed=10 + turn)
        tracker.add(more, later)
        x, time = torch.cat([x, more]), torch.cat([time, later])
        gone = torch.randperm(len(x), generator=g)[:17]
        tracker.remove(gone, x[gone])
        kept = torch.ones(len(x), dtype=torch.bool)
        kept[gone] = False
        x, time = x[kept], time[kept]
        check(tracker.modes(), x, time)
    assert tracker.error_bound <= 1e-6


def test_a_new_row_joins_the_nearest_centroid() -> None:
    x, time = rows_of(60), times_of(60)
    tracker = tracker_of(x, time, tol=1.0)
    centroid = tracker.modes().centroid.double()
    new = rows_of(30, seed=5)
    label = tracker.add(new)
    expected = torch.cdist(new.double(), centroid).argmin(1)
    # Numbered as by `find_modes`.
    assert torch.equal(label, expected)


def test_followed_modes_are_those_found_afresh_where_the_groups_stay() -> None:
    x, time = rows_of(120), times_of(120)
    tracker = tracker_of(x, time)
    more = rows_of(120, seed=7)
    tracker.add(more, times_of(120, seed=7))
    both = torch.cat([x, more])
    fresh = find_modes(both, count=5)
    followed = tracker.modes()
    pairs = set(zip(followed.label.tolist(), fresh.label.tolist(), strict=True))
    assert len(pairs) == len(fresh)  # the same partition
    assert tracker.drift < 0.02
    assert followed.centroid_error == pytest.approx(fresh.centroid_error, rel=1e-5)


def test_drift_is_what_it_says() -> None:
    x, time = rows_of(80), times_of(80)
    modes = found_in(x, time)
    tracker = ModeTracker(modes, x, time=time, tol=1.0)
    assert tracker.drift == pytest.approx(0.0, abs=1e-6)
    other = (
        rows_of(80, seed=4, groups=5)
        @ torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(1))).Q
    )
    tracker.add(other)
    both = torch.cat([x, other]).double().numpy()
    gram = both.T @ both
    axes = modes.spectrum.right.double().numpy()
    kept = axes.shape[1]
    best = np.linalg.eigvalsh(gram)[::-1][:kept].sum()
    lost = (best - np.trace(axes.T @ gram @ axes)) / np.trace(gram)
    grown = tracker.centroid_error * 160 / np.trace(gram) - modes.centroid_error * 80 / float(
        x.double().square().sum()
    )
    assert tracker.drift == pytest.approx(max(lost, grown), abs=1e-6)
    assert tracker.drift > 0.05


def test_drift_goes_on_from_the_last_full_pass() -> None:
    x, time = rows_of(60), times_of(60)
    first = tracker_of(x, time, tol=1.0)
    share = first.centroid_error / float(x.double().square().sum(1).mean())
    g = torch.Generator().manual_seed(2)
    strange = torch.nn.functional.normalize(torch.randn(60, 16, generator=g), dim=1)
    first.add(strange)
    both, never = torch.cat([x, strange]), torch.full((60,), math.nan).double()
    again = {"time": torch.cat([time, never]), "tol": 1.0}
    assert ModeTracker(first.modes(), both, **again).drift < 1e-6
    kept = ModeTracker(first.modes(), both, share=share, **again).drift
    grown = first.centroid_error / float(both.double().square().sum(1).mean()) - share
    assert kept == pytest.approx(grown, abs=1e-6) and kept > 0.05


def test_many_rows_at_once_join_as_one_by_one_would_choose() -> None:
    x, time = rows_of(60), times_of(60)
    tracker = tracker_of(x, time, tol=1.0)
    centroid, new = tracker.modes().centroid.double(), rows_of(5000, seed=5)  # two tiles
    label = tracker.add(new)
    assert torch.equal(label, torch.cdist(new.double(), centroid).argmin(1))
    check(tracker.modes(), torch.cat([x, new]), torch.cat([time, torch.full((5000,), math.nan)]))


def test_stale_says_that_modes_are_to_be_found_anew() -> None:
    x, time = rows_of(80), times_of(80)
    tracker = tracker_of(x, time, tol=0.05)
    same = rows_of(20, seed=8)
    tracker.add(same)
    assert not tracker.stale
    g = torch.Generator().manual_seed(2)
    strange = torch.nn.functional.normalize(torch.randn(150, 16, generator=g), dim=1)
    tracker.add(strange)
    assert tracker.stale


def test_a_mode_that_loses_all_rows_is_gone() -> None:
    x, time = rows_of(60), times_of(60)
    tracker = tracker_of(x, time, tol=1.0)
    before = len(tracker.modes())
    gone = (tracker.modes().label == 0).nonzero().flatten()
    tracker.remove(gone, x[gone])
    modes = tracker.modes()
    assert len(modes) == before - 1
    kept = torch.ones(60, dtype=torch.bool)
    kept[gone] = False
    check(modes, x[kept], time[kept])
    # Its old number is given to no new row.
    label = tracker.add(rows_of(20, seed=9))
    assert len(tracker.modes()) == before - 1 and len(label) == 20


def test_bad_input_changes_nothing() -> None:
    x, time = rows_of(40), times_of(40)
    tracker = tracker_of(x, time, tol=1.0)
    bad = rows_of(3)
    bad[1, 2] = math.nan
    with pytest.raises(InputError, match="finite"):
        tracker.add(bad)
    with pytest.raises(InputError, match="expected width 16"):
        tracker.add(torch.zeros(2, 5))
    with pytest.raises(InputError, match="float64"):
        tracker.add(rows_of(2), torch.zeros(2))
    for index, rows in (([3, 3], x[[3, 3]]), ([40], x[[0]]), ([1, 2], x[[1]])):
        with pytest.raises(InputError, match="different places"):
            tracker.remove(torch.tensor(index), rows)
    with pytest.raises(InputError, match="at least one row to stay"):
        tracker.remove(torch.arange(40), x)
    check(tracker.modes(), x, time)
    with pytest.raises(InputError, match="40 rows"):
        ModeTracker(found_in(x, time), x[:39])
    with pytest.raises(InputError, match="tol"):
        tracker_of(x, time, tol=2.0)
