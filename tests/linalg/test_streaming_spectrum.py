"""StreamingSpectrum: what it says after any adding and removing is what a fresh start says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.linalg import StreamingSpectrum, reconstruction_error
from graphmem_torch.linalg.gram import leading_eigenpairs


def _rows(count: int, width: int, generator: torch.Generator, decay: float = 1.0) -> torch.Tensor:
    scale = torch.arange(1, width + 1).double().pow(-decay)
    drawn = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(drawn * scale, dim=1)


def _fresh(x: torch.Tensor, rank: int) -> torch.Tensor:
    """Eigenvalues of Eᵀ E / N, padded with zeros."""
    values = torch.linalg.svdvals(x.double()) ** 2 / len(x)
    return torch.cat([values, values.new_zeros(rank)])[:rank]


def _assert_fresh(stream: StreamingSpectrum, x: torch.Tensor) -> None:
    rank = min(stream.rank, len(x))
    fresh = _fresh(x, rank)
    off = (stream.values - fresh).abs().max()
    assert off <= stream.error_bound + 8 * torch.finfo(torch.float64).eps * fresh[0]  # its own
    assert stream.count == len(x)
    energy = float(x.double().square().sum(1).mean())
    assert stream.spectrum().total_energy == pytest.approx(energy)
    measured = reconstruction_error(x.double(), stream.vectors)
    left_out = stream.spectrum().discarded_energy
    assert measured == pytest.approx(left_out, abs=rank * stream.error_bound + 1e-12)
    unit = stream.vectors.T @ stream.vectors
    torch.testing.assert_close(unit, torch.eye(unit.shape[0]).double(), atol=1e-10, rtol=0)


STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 40), st.booleans()), min_size=1, max_size=8
)


@given(STEPS, st.sampled_from([0.0, 1.0, 4.0]), st.integers(0, 99))
def test_any_history_ends_like_a_fresh_start(steps, decay, seed):
    """Rows are removed in another order and grouping than they came in."""
    generator = torch.Generator().manual_seed(seed)
    stream = StreamingSpectrum(2, 30)
    rows = torch.empty(0, 30, dtype=torch.float64)
    for adds, count, looks in steps:
        if adds:
            fresh = _rows(count, 30, generator, decay)
            stream.add(fresh)
            rows = torch.cat([rows, fresh])
        else:
            rows = rows[torch.randperm(len(rows), generator=generator)]
            gone, rows = rows[:count], rows[count:]
            stream.remove(gone)
        if looks and len(rows):
            _assert_fresh(stream, rows)
    if len(rows):
        _assert_fresh(stream, rows)


def test_gram_stays_within_tolerance_over_many_updates(generator):
    """A window of 300 rows that moves 200 times."""
    stream = StreamingSpectrum(5, 40)
    rows = _rows(300 + 200 * 7, 40, generator, 0.3).float()
    stream.add(rows[:300])
    for start in range(0, 200 * 7, 7):
        stream.add(rows[300 + start : 307 + start])
        stream.remove(rows[start : start + 7])
    assert stream.error_bound < 1e-9
    _assert_fresh(stream, rows[-300:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_precision_is_summed_in_float64(dtype, generator):
    rows = _rows(120, 20, generator).to(dtype)
    stream = StreamingSpectrum(4, 20)
    for part in rows.split([1, 60, 59]):
        stream.add(part)
    _assert_fresh(stream, rows)
    assert stream.error_bound < 1e-10


def test_a_new_direction_is_not_missed(generator):
    """The old vectors know nothing of it, nor do their products."""
    stream = StreamingSpectrum(3, 600)
    rows = _rows(400, 600, generator, 1.5)
    rows[:, -1] = 0
    stream.add(rows)
    before = stream.values
    alone = torch.zeros(150, 600, dtype=torch.float64)
    alone[:, -1] = 1.0
    stream.add(alone)
    _assert_fresh(stream, torch.cat([rows, alone]))
    assert (stream.vectors[-1].abs() > 0.999).sum() == 1
    assert not torch.allclose(before, stream.values)


def test_error_bound_tells_the_rounding_that_long_rows_leave_behind(generator):
    rows = _rows(50, 12, generator)
    stream = StreamingSpectrum(3, 12)
    stream.add(rows)
    before = stream.error_bound
    stream.add(rows[:5] * 1e6)
    stream.remove(rows[:5] * 1e6)
    off = (stream.values - _fresh(rows, 3)).abs().max()
    assert 1e3 * before < off <= stream.error_bound


@pytest.mark.parametrize("rank", [1, 9, 40, 60])
def test_leading_eigenpairs_are_those_of_numpy(rank, generator):
    rows = _rows(200, 60, generator, 0.5)
    matrix = rows.T @ rows
    values, vectors = leading_eigenpairs(matrix, rank)
    wanted = np.linalg.eigvalsh(matrix.numpy())[::-1][:rank]
    np.testing.assert_allclose(values.numpy(), wanted, rtol=1e-12)
    torch.testing.assert_close(matrix @ vectors, vectors * values, atol=1e-12, rtol=0)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(rank).double(), atol=1e-12, rtol=0)


def test_removing_everything_forgets_everything(generator):
    stream = StreamingSpectrum(2, 8)
    rows = _rows(9, 8, generator)
    stream.add(rows * 1e8)
    stream.remove(rows.flip(0) * 1e8)
    assert stream.count == 0
    with pytest.raises(InputError, match="rows: expected at least one"):
        _ = stream.values
    stream.add(rows)
    _assert_fresh(stream, rows)


def test_few_and_degenerate_rows():
    stream = StreamingSpectrum(3, 6)
    stream.add(torch.zeros(0, 6))
    stream.add(torch.eye(6)[:1])
    assert stream.values.tolist() == [1.0]
    stream.add(torch.eye(6)[:1].expand(4, 6))
    torch.testing.assert_close(stream.values, torch.tensor([1.0, 0.0, 0.0]).double())
    zeros = StreamingSpectrum(2, 6)
    zeros.add(torch.zeros(5, 6))
    found = zeros.spectrum()
    assert (found.values.abs().max(), found.total_energy, found.discarded_energy) == (0, 0, 0)


def test_rows_that_never_came_are_noticed(generator):
    stream = StreamingSpectrum(2, 6)
    stream.add(torch.eye(6)[:3])
    stream.remove(torch.eye(6)[4:5])
    with pytest.raises(InputError, match="rows that were added"):
        stream.spectrum()


@pytest.mark.parametrize("action", ["add", "remove"])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.ones(6), r"floating point \[N, d\]"),
        (torch.ones(1, 5), "expected width 6"),
        (torch.ones(1, 6, dtype=torch.int32), "floating point"),
        (torch.ones(1, 6, requires_grad=True), "no backward"),
        (torch.full((1, 6), float("nan")), "finite"),
        (torch.full((1, 6), float("inf")), "finite"),
        (torch.full((1, 6), 1e200, dtype=torch.float64), "finite squares"),
        ([[1.0] * 6], "expected tensors"),
    ],
)
def test_bad_rows_change_nothing(action, rows, message, generator):
    good = _rows(9, 6, generator)
    stream = StreamingSpectrum(2, 6)
    stream.add(good)
    with pytest.raises(InputError, match=message):
        getattr(stream, action)(rows)
    _assert_fresh(stream, good)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank: expected an integer"),
        ({"rank": 7}, "rank: expected at most dim = 6, got 7"),
        ({"dim": 0}, "dim: expected an integer"),
    ],
)
def test_bad_constants_are_refused_by_name(change, message):
    with pytest.raises(InputError, match=message):
        StreamingSpectrum(**{"rank": 2, "dim": 6, **change})


def test_more_cannot_go_than_came():
    stream = StreamingSpectrum(2, 6)
    stream.add(torch.ones(2, 6))
    with pytest.raises(InputError, match="some of the 2 present, got 3"):
        stream.remove(torch.ones(3, 6))


@pytest.mark.cuda
def test_cuda_matches_cpu(generator):
    rows = _rows(900, 600, generator).float()
    there, here = StreamingSpectrum(5, 600, device="cuda"), StreamingSpectrum(5, 600)
    for stream in (there, here):
        stream.add(rows)
        stream.remove(rows[:200])
    torch.testing.assert_close(there.values.cpu(), here.values, rtol=1e-5, atol=0)
