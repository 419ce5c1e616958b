"""gram_svd: against numpy's SVD in float64, and what it promises about energy, memory and form."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.linalg import Gram, gram_svd, reconstruction_error
from graphmem_torch.linalg.spectrum import oriented

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def _rows(count: int, width: int, generator: torch.Generator, decay: float = 0.5) -> torch.Tensor:
    scale = torch.arange(1, width + 1).double().pow(-decay)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q
    drawn = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize((drawn * scale) @ turn, dim=1)


def _oracle(x: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left vectors, eigenvalues of E Eᵀ / N, right vectors."""
    left, singular, right = np.linalg.svd(x.double().numpy(), full_matrices=False)
    return left, singular**2 / len(x), right.T


def _sine(a: torch.Tensor, b: np.ndarray) -> float:
    """Return the sine of the largest principal angle between spans of orthonormal columns."""
    a, b = torch.linalg.qr(a.double()).Q, torch.from_numpy(np.ascontiguousarray(b))
    return float(torch.linalg.matrix_norm(a - b @ (b.T @ a), 2))


@pytest.mark.parametrize("shape", [(900, 64), (600, 300), (64, 64), (40, 90), (1, 5), (5, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(shape, dtype, generator):
    x = _rows(*shape, generator).to(dtype)
    rank = min(8, *shape)
    left, values, right = _oracle(x)
    found = gram_svd(x, rank, left=True)
    exact = 1e-13 if dtype == torch.float64 else 4e-6
    np.testing.assert_allclose(found.values.numpy(), values[:rank], rtol=exact, atol=exact)
    assert _sine(found.right, right[:, :rank]) < (1e-10 if dtype == torch.float64 else 1e-5)
    assert _sine(found.left, left[:, :rank]) < (1e-10 if dtype == torch.float64 else 1e-4)
    assert found.right.dtype == found.left.dtype == torch.promote_types(dtype, torch.float32)
    assert (found.count, found.residual.max()) == (shape[0], 0)
    # The signs of both sides belong together.
    again = found.left.double() * (found.values * found.count).sqrt() @ found.right.double().T
    best = left[:, :rank] * np.sqrt(values[:rank] * shape[0]) @ right[:, :rank].T
    np.testing.assert_allclose(again.numpy(), best, atol=2e-4)


def test_flat_spectrum_keeps_its_angle(generator):
    """Unit vectors at random: neighbouring eigenvalues differ by a few parts in ten thousand."""
    x = torch.nn.functional.normalize(torch.randn(20_000, 96, generator=generator), dim=1)
    found = gram_svd(x, 20)
    assert _sine(found.right, _oracle(x)[2][:, :20]) < 1e-5


@given(
    st.integers(1, 40), st.integers(1, 20), st.integers(0, 3), st.integers(1, 9), st.integers(0, 99)
)
def test_eckart_young(count, width, deficient, block, seed):
    """The error of the projection is the sum of the eigenvalues that follow, and nothing less."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator, dtype=torch.float64)
    x[:, : min(deficient, width - 1)] = 0
    rank = int(torch.randint(1, min(count, width) + 1, (1,), generator=generator))
    values = _oracle(x)[1]
    found = gram_svd(list(x.split(block)), rank)
    assert found.total_energy == pytest.approx(values.sum())
    assert found.discarded_energy == pytest.approx(values[rank:].sum(), abs=1e-10)
    assert reconstruction_error(x, found.right) == pytest.approx(found.discarded_energy, abs=1e-10)
    other = torch.linalg.qr(torch.randn(width, rank, generator=generator, dtype=torch.float64)).Q
    assert reconstruction_error(x, other) >= found.discarded_energy - 1e-10


def test_order_and_grouping_of_rows_do_not_matter(generator):
    x = _rows(500, 24, generator)
    found = gram_svd(x, 6, left=True)
    order = torch.randperm(500, generator=generator)
    mixed = gram_svd(list(x[order].split([1, 99, 0, 300, 100])), 6, left=True)
    torch.testing.assert_close(mixed.values, found.values)
    torch.testing.assert_close(mixed.right, found.right)
    torch.testing.assert_close(mixed.left, found.left[order])


def test_partial_grams_add_up(generator):
    x = _rows(500, 24, generator)
    found = gram_svd(Gram.of(x[:200]) + Gram.of(list(x[200:].split(50))), 6)
    torch.testing.assert_close(found.right, gram_svd(x, 6).right)
    assert found.count == 500
    with pytest.raises(InputError, match="same width"):
        Gram.zeros(3) + Gram.zeros(4)
    with pytest.raises(InputError, match="the rows themselves"):
        gram_svd(Gram.of(x), 6, left=True)


def test_holds_one_block_at_a_time():
    alive: list[weakref.ref] = []

    def blocks() -> Iterator[torch.Tensor]:
        for seed in range(12):
            # The one that the loop still names, and no other, without waiting for a collection.
            assert sum(ref() is not None for ref in alive) <= 1
            block = torch.randn(50, 16, generator=torch.Generator().manual_seed(seed))
            alive.append(weakref.ref(block))
            yield block
            del block

    found = gram_svd(blocks(), 4)
    assert (found.count, len(alive)) == (600, 12)


def test_reads_a_memory_mapped_file_by_rows(tmp_path, generator):
    from safetensors import safe_open
    from safetensors.torch import save_file

    x = _rows(9000, 20, generator).to(torch.bfloat16)  # two tiles
    save_file({"x": x}, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        found = gram_svd(file.get_slice("x"), 5, left=True)
    torch.testing.assert_close(found.left, gram_svd(x, 5, left=True).left)


def test_not_contiguous(generator):
    x = _rows(40, 400, generator).T.float()
    torch.testing.assert_close(gram_svd(x, 3).right, gram_svd(x.contiguous(), 3).right)


def test_signs_are_fixed(generator):
    right = gram_svd(_rows(90, 12, generator), 12).right
    largest = right.gather(0, right.abs().argmax(0, keepdim=True))
    assert (largest > 0).all()
    torch.testing.assert_close(oriented(-right), right)


@pytest.mark.parametrize("shape", [(30, 6), (4, 9)])
def test_degenerate_rows(shape):
    """No energy, or all of it in one direction: orthonormal right vectors, no left ones."""
    for x in (torch.zeros(shape), torch.full(shape, 2.0)):
        found = gram_svd(x, 4, left=True)
        torch.testing.assert_close(found.right.T @ found.right, torch.eye(4))
        energy = float(x.square().sum(1).mean())
        assert found.values[0] == pytest.approx(energy, abs=1e-12)
        assert found.values[1:].abs().max() <= 1e-6 * energy
        assert found.discarded_energy == pytest.approx(0, abs=1e-6)
        lit = 1.0 if energy else 0.0
        torch.testing.assert_close(found.left.norm(dim=0), torch.tensor([lit, 0.0, 0.0, 0.0]))


def _spent() -> Iterator[torch.Tensor]:
    yield torch.ones(5, 3)


@pytest.mark.parametrize(
    ("x", "rank", "message"),
    [
        (torch.ones(5, 3), 0, "rank: expected an integer of at least 1, got 0"),
        (torch.ones(5, 3), 4, r"at most min\(N, d\) = min\(5, 3\), got 4"),
        (torch.ones(2, 3), 3, r"min\(2, 3\)"),
        ([torch.ones(2, 3)], 3, r"min\(2, 3\)"),
        (torch.ones(0, 3), 1, "at least one row"),
        (torch.ones(3, 0), 1, "one column"),
        (torch.ones(3), 1, "expected a matrix"),
        ([], 1, "at least one row, got none"),
        ([torch.ones(0, 3)], 1, "at least one row, got none"),
        (torch.ones(5, 3, dtype=torch.int64), 1, "floating point"),
        (torch.ones(5, 3, requires_grad=True), 1, "no backward"),
        (torch.full((5, 3), float("nan")), 1, "finite"),
        (torch.full((5, 3), float("inf")), 1, "finite"),
        (torch.full((5, 3), 1e30), 1, "finite in float32"),
        (torch.full((2, 3), float("nan")), 1, "finite"),
        ([torch.ones(5, 3), torch.ones(5, 4)], 1, "expected width 3"),
        ([[1.0, 2.0]], 1, "expected tensors"),
        (7, 1, "matrix .* or an iterable"),
        ([torch.ones(5, 3), torch.ones(5, 3, device="meta")], 1, "one device"),
    ],
)
def test_bad_input_is_refused_by_name(x, rank, message):
    with pytest.raises(InputError, match=message):
        gram_svd(x, rank)


def test_left_vectors_need_a_second_pass():
    assert gram_svd(_spent(), 2).left is None
    with pytest.raises(InputError, match="read more than once for the left vectors"):
        gram_svd(_spent(), 2, left=True)
    with pytest.raises(InputError, match="right: expected 3 rows"):
        reconstruction_error(torch.ones(5, 3), torch.ones(4, 1))


@pytest.mark.cuda
def test_cuda_matches_cpu(generator):
    x = _rows(30_000, 96, generator).float()
    there, here = gram_svd(x.cuda(), 10, left=True), gram_svd(x, 10, left=True)
    torch.testing.assert_close(there.values.cpu(), here.values, rtol=4e-6, atol=0)
    assert _sine(there.right.cpu(), here.right.double().numpy()) < 1e-4
