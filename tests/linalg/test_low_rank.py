"""randomized_svd: near the optimum by numpy, honest about what is left, on rows and kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.linalg import Kernel, gram_svd, randomized_svd, reconstruction_error
from graphmem_torch.linalg.low_rank import block_krylov


def _rows(count: int, width: int, generator: torch.Generator, decay: float = 1.0) -> torch.Tensor:
    scale = torch.arange(1, width + 1).double().pow(-decay)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q
    drawn = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize((drawn * scale) @ turn, dim=1)


def _rbf(x: torch.Tensor, gamma: float) -> Kernel:
    """exp(-gamma |x_i - x_j|²) / N, made 64 rows at a time."""

    def product(panel: torch.Tensor) -> torch.Tensor:
        tiles = [torch.exp(-gamma * torch.cdist(part, x) ** 2) @ panel for part in x.split(64)]
        return torch.cat(tiles) / len(x)

    return Kernel(product, len(x), trace=1.0, dtype=x.dtype)


@pytest.mark.parametrize("shape", [(1500, 128), (300, 200), (60, 150), (9, 9), (1, 5), (5, 1)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_near_the_optimum(shape, dtype, generator):
    x = _rows(*shape, generator).to(dtype)
    rank = min(8, *shape)
    values = np.linalg.svd(x.double().numpy(), compute_uv=False) ** 2 / len(x)
    found = randomized_svd(x, rank, generator=generator)
    tail = values[rank:].sum()
    assert tail - 1e-6 <= found.discarded_energy <= tail * 1.001 + 1e-6
    np.testing.assert_allclose(found.values.numpy(), values[:rank], rtol=2e-3, atol=1e-6)
    assert found.total_energy == pytest.approx(values.sum(), rel=1e-6)
    assert (found.values.diff() <= 0).all()
    torch.testing.assert_close(found.right.T @ found.right, torch.eye(rank).to(found.right.dtype))


def test_agrees_with_scipy(generator):
    sparse = pytest.importorskip("scipy.sparse.linalg")
    x = _rows(800, 90, generator, decay=2.0)
    singular = sparse.svds(x.numpy(), k=5, which="LM", random_state=0)[1][::-1]
    found = randomized_svd(x, 5, generator=generator)
    np.testing.assert_allclose((found.values * found.count).sqrt().numpy(), singular, rtol=1e-10)


@given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 3), st.integers(0, 99))
def test_energy_left_is_the_error_of_the_projection(count, width, iterations, seed):
    """Whatever was found: never better than Eckart and Young, and never a wrong claim."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator, dtype=torch.float64)
    rank = int(torch.randint(1, min(count, width) + 1, (1,), generator=generator))
    found = randomized_svd(x, rank, oversample=2, iterations=iterations, generator=generator)
    values = torch.linalg.svdvals(x) ** 2 / count
    measured = reconstruction_error(x, found.right)
    assert found.discarded_energy == pytest.approx(measured, abs=1e-10)
    assert measured >= float(values[rank:].sum()) - 1e-10
    # An eigenvalue lies within the residual of every value found.
    padded = torch.cat([values, torch.zeros(width)])
    distance = (padded[None] - found.values[:, None]).abs().amin(1)
    assert (distance <= found.residual + 1e-10).all()


def test_more_iterations_leave_less(generator):
    x = _rows(1000, 150, generator, decay=0.5)
    left = [
        randomized_svd(x, 10, iterations=i, generator=generator.manual_seed(3)).discarded_energy
        for i in range(4)
    ]
    assert left == sorted(left, reverse=True)
    optimum = gram_svd(x, 10).discarded_energy
    assert left[0] > optimum + 1e-5 > left[3]


def test_blocks_and_order_of_rows_do_not_matter(generator):
    x = _rows(400, 60, generator, decay=2.0)
    found = randomized_svd(x, 5, generator=generator.manual_seed(1))
    order = torch.randperm(400, generator=generator)
    blocks = list(x[order].split([1, 199, 0, 200]))
    mixed = randomized_svd(blocks, 5, generator=generator.manual_seed(1))
    torch.testing.assert_close(mixed.values, found.values)
    torch.testing.assert_close(mixed.right, found.right, atol=1e-6, rtol=0)


def test_a_generator_makes_it_repeatable(generator):
    x = _rows(200, 40, generator, decay=0.2)
    a, b = (randomized_svd(x, 4, generator=generator.manual_seed(7)) for _ in range(2))
    assert torch.equal(a.right, b.right)
    other = randomized_svd(x, 4, iterations=0, generator=generator.manual_seed(8))
    assert not torch.equal(a.right, other.right)


def test_exact_where_the_subspace_fills_everything(generator):
    x = _rows(200, 30, generator, decay=0.0)
    found, exact = randomized_svd(x, 6, generator=generator), gram_svd(x, 6)
    torch.testing.assert_close(found.values, exact.values)
    torch.testing.assert_close(found.right, exact.right, atol=1e-8, rtol=0)
    assert found.residual.max() < 1e-12


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_rows_of_low_rank(rank, generator):
    """Later blocks of the subspace hold nothing but rounding."""
    x = torch.randn(300, 3, generator=generator) @ torch.randn(3, 200, generator=generator)
    found = randomized_svd(x, rank, generator=generator)
    energy = float(x.double().square().sum(1).mean())
    assert found.discarded_energy >= 0
    assert (found.values[3:] < 1e-6 * energy).all()
    torch.testing.assert_close(found.right.T @ found.right, torch.eye(rank))
    if rank >= 3:
        assert found.discarded_energy < 1e-6 * energy


def test_zero_rows():
    found = randomized_svd(torch.zeros(20, 8), 3)
    assert (found.values.abs().max(), found.total_energy, found.discarded_energy) == (0, 0, 0)
    torch.testing.assert_close(found.right.T @ found.right, torch.eye(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_implicit_kernel_matches_its_dense_form(dtype, generator):
    x = _rows(500, 12, generator).to(dtype)
    dense = torch.exp(-2.0 * torch.cdist(x.double(), x.double()) ** 2) / 500
    values, vectors = torch.linalg.eigh(dense)
    found = randomized_svd(_rbf(x, 2.0), 6, iterations=3, generator=generator)
    near = 1e-8 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found.values, values.flip(0)[:6], atol=near, rtol=0)
    assert found.discarded_energy == pytest.approx(float(values[:-6].sum()), abs=6 * near)
    span = vectors.flip(1)[:, :6].T @ found.left.double()
    assert torch.linalg.svdvals(span).min() > 1 - 1e-4
    assert found.right is None and found.left.dtype == dtype


def test_recency_weighted_kernel(generator):
    """sqrt(w) E Eᵀ sqrt(w) / N as a product is the kernel of the weighted rows."""
    x = _rows(400, 30, generator)
    weight = torch.exp(-torch.arange(400) / 100.0).sqrt().double()[:, None]
    kernel = Kernel(
        lambda panel: weight * (x @ (x.T @ (weight * panel))) / 400, 400, dtype=torch.float64
    )
    found = randomized_svd(kernel, 5, generator=generator)
    exact = gram_svd(weight * x, 5, left=True)
    torch.testing.assert_close(found.values, exact.values, rtol=1e-6, atol=1e-9)
    assert found.total_energy is None and found.discarded_energy is None
    span = exact.left.T @ found.left
    torch.testing.assert_close(span.abs(), torch.eye(5).double(), atol=1e-3, rtol=0)


def test_products_are_few_and_in_blocks(generator):
    seen: list[tuple[int, ...]] = []

    def product(panel: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(panel.shape))
        return panel

    randomized_svd(Kernel(product, 200), 5, oversample=4, iterations=2, generator=generator)
    assert seen == [(200, 9)] * 4


def test_krylov_residual_is_the_true_one(generator):
    root = torch.randn(80, 80, generator=generator, dtype=torch.float64)
    matrix = root @ root.T
    start = torch.randn(80, 6, generator=generator, dtype=torch.float64)
    found = block_krylov(lambda panel: matrix @ panel, start, 4, 5)
    rest = (matrix @ found.vectors - found.vectors * found.values[:5]).norm(dim=0)
    torch.testing.assert_close(found.residual, rest)
    assert found.asymmetry < 1e-12
    assert (found.values[:5] <= torch.linalg.eigvalsh(matrix).flip(0)[:5] + 1e-9).all()


X = torch.ones(5, 3)


@pytest.mark.parametrize(
    ("x", "change", "message"),
    [
        (X, {"rank": 0}, "rank: expected an integer of at least 1"),
        (X, {"rank": 4}, r"at most min\(N, d\) = min\(5, 3\)"),
        ([X[:2]], {"rank": 3}, r"min\(2, 3\)"),
        (X, {"oversample": -1}, "oversample: expected"),
        (X, {"iterations": -1}, "iterations: expected"),
        (torch.ones(0, 3), {}, "at least one row"),
        ([], {}, "at least one row"),
        ([torch.ones(0, 3)], {}, "at least one row"),
        (iter([X]), {}, "read more than once"),
        (X.long(), {}, "floating point"),
        (X.clone().requires_grad_(), {}, "no backward"),
        (X * math.nan, {}, "expected finite"),
        (X * math.inf, {}, "expected finite"),
        (Kernel(lambda v: v, 0), {}, "size: expected"),
        (Kernel(lambda v: v, 2), {"rank": 3}, "rank: expected at most"),
        (Kernel(lambda v: v[:1], 4), {}, "product: expected to return"),
        (Kernel(lambda v: v, 4, dtype=torch.float16), {}, "dtype: expected"),
        (Kernel(lambda v: v * math.nan, 4), {}, "expected finite"),
        (Kernel(lambda v: -v, 4), {}, "symmetric positive semidefinite"),
        (Kernel(lambda v: torch.cat([v[1:], -v[:1]]), 9), {}, "symmetric positive semidefinite"),
    ],
)
def test_bad_input_is_refused_by_name(x, change, message):
    with pytest.raises(InputError, match=message):
        randomized_svd(x, **{"rank": 2, **change})


@pytest.mark.cuda
def test_cuda_matches_cpu(generator):
    x = _rows(5000, 200, generator, decay=2.0).float()
    here = randomized_svd(x, 6, generator=generator.manual_seed(2))
    there = randomized_svd(x.cuda(), 6, generator=generator.manual_seed(2))
    torch.testing.assert_close(there.values.cpu(), here.values, rtol=1e-4, atol=1e-7)
