"""The online detectors: what they tell of streams whose switches are known, and how they go on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.modes import EnergyDrift, RegimeDetector
from graphmem_torch.modes.detectors import Detector, alarms
from graphmem_torch.modes.regime import LaggedMoments, advance, log_evidence, slow_modes

MAKERS = [lambda: RegimeDetector(12), lambda: EnergyDrift(12)]


def stream(
    regimes: int, length: int, dim: int = 12, noise: float = 0.6, seed: int = 0
) -> torch.Tensor:  # [regimes * length, dim]
    """Unit rows around a centre of their own for each regime."""
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(regimes, dim, generator=g).repeat_interleave(length, 0)
    rows = centre + noise * torch.randn(regimes * length, dim, generator=g)
    return torch.nn.functional.normalize(rows, dim=1)


@pytest.mark.parametrize("make", MAKERS)
def test_cutting_the_stream_changes_nothing(make) -> None:
    x = stream(15, 9)
    whole = make().update(x)
    detector = make()
    parts = [detector.update(part) for part in x.split([1, 0, 40, 3, 91])]
    for name in ("statistic", "alarm", "position"):
        got = torch.cat([getattr(part, name) for part in parts])
        torch.testing.assert_close(got, getattr(whole, name), rtol=1e-4, atol=1e-5)
    detector = make()
    single = torch.stack([detector.update(row).statistic for row in x])
    torch.testing.assert_close(single, whole.statistic, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
def test_a_kept_state_goes_on_where_it_was(make) -> None:
    x = stream(15, 9, seed=1)
    first = make()
    first.update(x[:70])
    state = first.state_dict()
    second = make()
    second.load_state_dict(state)
    expected, got = first.update(x[70:]), second.update(x[70:])
    assert torch.equal(got.statistic, expected.statistic)
    assert torch.equal(got.alarm, expected.alarm)
    assert torch.equal(got.position, expected.position)
    # What was given away is a copy.
    third = make()
    third.load_state_dict(state)
    assert torch.equal(third.update(x[70:]).statistic, expected.statistic)


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_that_comes_later_is_looked_at(make) -> None:
    x = stream(12, 10, seed=2)
    other = x.clone()
    other[80:] = stream(4, 10, seed=3)
    assert torch.equal(make().update(x).statistic[:80], make().update(other).statistic[:80])


@pytest.mark.parametrize("make", MAKERS)
def test_odd_streams(make) -> None:
    empty = make().update(torch.empty(0, 12))
    assert [len(part) for part in empty] == [0, 0, 0]
    short = make().update(stream(1, 2))
    assert not short.alarm.any()
    assert not make().update(stream(1, 1)[0]).alarm
    zero = make().update(torch.zeros(60, 12))
    assert not zero.alarm.any() and (zero.statistic == -math.inf).all()
    same = make().update(stream(1, 1).expand(120, 12))
    assert not same.statistic.isnan().any() and not same.alarm.any()
    gap = stream(12, 10)
    gap[55] = 0
    found = make().update(gap)
    assert not found.statistic.isnan().any() and not found.alarm[55]


@pytest.mark.parametrize("make", MAKERS)
def test_bad_input_is_refused_and_leaves_no_trace(make) -> None:
    x = stream(8, 8)
    detector = make()
    detector.update(x[:32])
    bad = x[32:].clone()
    bad[7, 3] = math.nan
    with pytest.raises(InputError, match="at step 7;"):
        detector.update(bad)
    with pytest.raises(InputError, match="encoder of the stream"):
        detector.update(torch.zeros(4, 11))
    with pytest.raises(InputError, match="floating"):
        detector.update(torch.zeros(4, 12, dtype=torch.int64))
    with pytest.raises(InputError, match=r"got list"):
        detector.update([1.0, 2.0])  # type: ignore[arg-type]
    expected = make()
    expected.update(x[:32])
    assert torch.equal(detector.update(x[32:]).statistic, expected.update(x[32:]).statistic)
    with pytest.raises(InputError, match="state: expected"):
        type(detector)(13).load_state_dict(detector.state_dict())


def test_spectral_detector_finds_switches_with_few_false_alarms() -> None:
    x = stream(60, 8, noise=0.45, dim=12)
    detector = RegimeDetector(12, rank=8)
    detector.update(x)
    detector.restart()
    fresh = stream(40, 8, noise=0.45, seed=6)
    found = detector.update(fresh)
    alarm = found.alarm.nonzero().flatten()
    lag = alarm % 8
    assert (lag <= 1).double().mean() > 0.85
    hit = {int(a) // 8 for a, late in zip(alarm, lag, strict=True) if late <= 1}
    assert len(hit) > 0.85 * 39
    # The place that is told is the switch itself or, without lag, next to it.
    assert ((found.position[alarm] % 8) == 0).double().mean() > 0.8
    assert (alarm - found.position[alarm] <= detector.lag).all()


def test_run_lengths_against_adams_and_mackay_by_hand() -> None:
    g = np.random.default_rng(0)
    z, p, hazard = g.normal(size=(9, 2)), np.array([0.7, 0.3]), 0.2

    def likelihood(rows: np.ndarray) -> float:
        """Log density of the rows of one regime: exchangeable Gaussians, mean integrated out."""
        total = 0.0
        for k in range(2):
            cov = (1 - p[k]) * np.eye(len(rows)) + p[k]
            _, det = np.linalg.slogdet(2 * np.pi * cov)
            total -= 0.5 * (det + rows[:, k] @ np.linalg.solve(cov, rows[:, k]))
        return total

    # Every way to cut the nine steps, by enumeration.
    joint = np.full(9, -np.inf)
    for cuts in range(1 << 8):
        begins = [0, *(i + 1 for i in range(8) if cuts >> i & 1)]
        ends = [*begins[1:], 9]
        value = sum(likelihood(z[a:b]) for a, b in zip(begins, ends, strict=True))
        value += sum(math.log(hazard if cuts >> i & 1 else 1 - hazard) for i in range(8))
        joint[9 - begins[-1] - 1] = np.logaddexp(joint[9 - begins[-1] - 1], value)
    expected = joint - np.logaddexp.reduce(joint)

    evidence = log_evidence(torch.tensor(z), 9, torch.tensor(p), 12)
    start = torch.full((1, 12), -torch.inf, dtype=torch.float64)
    start[:, 0] = 0
    log_run, heads = advance(start, evidence[None], hazard)
    torch.testing.assert_close(log_run[0, :9], torch.tensor(expected), rtol=1e-9, atol=1e-9)
    assert (log_run[0, 9:] == -torch.inf).all()
    torch.testing.assert_close(heads[0, -1], torch.tensor(expected[:2]), rtol=1e-9, atol=1e-9)


def test_published_rule_against_a_loop() -> None:
    x = stream(6, 9).double().numpy()
    window, modes = 16, 8
    found = EnergyDrift(12).update(torch.tensor(x))
    energies: list[np.ndarray] = []
    drifts: list[float] = []
    for t in range(len(x)):
        if t + 1 < window:
            assert found.statistic[t] == -math.inf
            continue
        rows = x[t + 1 - window : t + 1]
        values, vectors = np.linalg.eigh(rows @ rows.T / window)
        values, vectors = values[::-1][:modes], vectors[:, ::-1][:, :modes]
        nearest = np.abs(vectors * np.sqrt(values)).argmax(1)
        energies.append(values * np.bincount(nearest, minlength=modes))
        if len(energies) < 2:
            continue
        a, b = energies[-2:]
        drifts.append(float(np.linalg.norm(b - a) / np.linalg.norm(a)))
        if len(drifts) <= 10:
            assert found.statistic[t] == -math.inf
        else:
            usual = sorted(drifts[-11:-1])[4]  # torch takes the lower middle of ten
            expected = drifts[-1] / max(usual, 1e-3)
            assert float(found.statistic[t]) == pytest.approx(expected, rel=1e-3)


def test_two_alarms_in_a_row_are_one() -> None:
    above = torch.tensor([[1, 1, 1, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0, 0, 1]], dtype=torch.bool)
    alarm, streak = alarms(above, torch.tensor([0, 1]))
    assert alarm.int().tolist() == [[1, 0, 1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0, 0, 1]]
    assert streak.tolist() == [4, 1]
    alarm, streak = alarms(above[:, :2], torch.tensor([1, 2]))
    assert alarm.int().tolist() == [[0, 1], [0, 1]] and streak.tolist() == [3, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: RegimeDetector(0),
        lambda: RegimeDetector(4, rank=0),
        lambda: RegimeDetector(4, hazard=0.0),
        lambda: EnergyDrift(0),
    ],
)
def test_bad_settings(make) -> None:
    with pytest.raises(InputError):
        make()


def test_slow_modes_lie_in_what_the_rows_span() -> None:
    g = torch.Generator().manual_seed(1)
    rows = torch.randn(40, 5, generator=g) @ torch.randn(5, 64, generator=g)
    moments = LaggedMoments.zeros(64)
    moments.add_(torch.zeros(0, 64), rows)
    axes = slow_modes(moments, 20).axes.numpy()
    centred = rows.double().numpy() - rows.double().numpy().mean(0)
    span = np.linalg.svd(centred, full_matrices=False)[2][:5]
    outside = axes - span.T @ (span @ axes)
    # Rounding is no direction: a row that is new there would be taken for anything but old.
    assert np.abs(outside).max() < 1e-3 * np.abs(axes).max()
    variance = ((centred @ axes) ** 2).mean(0)
    assert all(abs(v - 1) < 1e-3 or v < 1e-9 for v in variance) and (variance > 0.5).sum() == 5


@pytest.mark.parametrize("make", MAKERS)
def test_a_stream_that_stands_still_raises_no_alarm(make) -> None:
    row = torch.nn.functional.normalize(stream(1, 1), dim=1)
    for scale in (1.0, 1e-6, 1e6):
        assert not make().update(scale * row.expand(300, -1)).alarm.any()


@pytest.mark.parametrize("make", MAKERS)
def test_a_state_that_lacks_a_part_is_refused(make) -> None:
    detector = make()
    detector.update(stream(3, 5))
    whole = detector.state_dict()
    for name in make().state_dict().keys() - {"rows"}:
        with pytest.raises(InputError, match="create the"):
            make().load_state_dict({k: v for k, v in whole.items() if k not in (name, "rows")})
    with pytest.raises(InputError, match="create the"):
        make().load_state_dict({})


def test_detectors_are_detectors() -> None:
    assert all(isinstance(make(), Detector) for make in MAKERS)


def test_a_stream_without_switches_raises_no_burst_when_modes_are_first_found() -> None:
    # Modes of few wide rows fit these rows alone: what comes next would look like something new.
    for seed in range(3):
        assert (
            int(
                RegimeDetector(384)
                .update(stream(1, 160, dim=384, noise=2.0, seed=seed))
                .alarm.sum()
            )
            == 0
        )
