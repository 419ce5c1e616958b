"""decompose: the same answer by both routes, and the route that the cost model names."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.linalg import Kernel, decompose, gram_svd, randomized_svd
from graphmem_torch.linalg.low_rank import _cheaper
from graphmem_torch.linalg.spectrum import Rows


class _Shape:
    """Interface of a slice of a memory-mapped file."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def get_shape(self) -> list[int]:
        return list(self.shape)

    def __getitem__(self, cut: slice) -> torch.Tensor:
        return torch.zeros(1, self.shape[1])


@pytest.mark.parametrize(
    ("count", "width", "route"),
    [
        (100_000, 384, "gram"),
        (1_000_000, 384, "gram"),
        (100_000, 1024, "gram"),
        (100_000, 4096, "randomized"),
        (5_000, 2048, "randomized"),
        (100, 4096, "gram"),
        (1, 1, "gram"),
    ],
)
def test_takes_the_cheaper_route(count, width, route):
    assert _cheaper(Rows(_Shape(count, width)), 4 * 60) == route


def test_blocks_of_unknown_number():
    assert _cheaper(Rows([torch.zeros(9, 384)]), 240) == "gram"
    assert _cheaper(Rows([torch.zeros(9, 4096)]), 240) == "randomized"
    assert _cheaper(Rows(iter([torch.zeros(9, 4096)])), 240) == "gram"


@pytest.mark.parametrize("method", ["auto", "gram", "randomized"])
def test_every_route_gives_the_same(method, generator):
    x = torch.randn(300, 40, generator=generator, dtype=torch.float64) @ torch.diag(
        torch.arange(1, 41).double().pow(-2)
    )
    found = decompose(x, 4, method=method, generator=generator)
    exact = gram_svd(x, 4)
    torch.testing.assert_close(found.values, exact.values)
    torch.testing.assert_close(found.right, exact.right, atol=1e-6, rtol=0)


def test_the_generator_reaches_the_random_route(generator):
    x = torch.randn(200, 60, generator=generator)
    found = decompose(x, 4, method="randomized", generator=generator.manual_seed(1))
    same = randomized_svd(x, 4, generator=generator.manual_seed(1))
    assert torch.equal(found.right, same.right)


def test_kernels_are_decomposed_at_random(generator):
    kernel = Kernel(lambda panel: 2 * panel, 30, trace=60.0)
    found = decompose(kernel, 3, generator=generator)
    torch.testing.assert_close(found.values, torch.full((3,), 2.0).double(), atol=1e-5, rtol=0)
    assert found.discarded_energy == pytest.approx(54, abs=1e-4)


@pytest.mark.parametrize(
    ("x", "change", "message"),
    [
        (torch.ones(5, 3), {"method": "lanczos"}, "method: expected one of"),
        (Kernel(lambda v: v, 4), {"method": "gram"}, "method for a kernel: expected one of"),
        (torch.ones(5, 3), {"rank": 0}, "rank: expected"),
        (torch.ones(5, 3), {"rank": 4}, "rank: expected at most"),
        (torch.ones(0, 3), {}, "at least one row"),
        ([], {}, "at least one row"),
    ],
)
def test_bad_input_is_refused_by_name(x, change, message):
    with pytest.raises(InputError, match=message):
        decompose(x, **{"rank": 2, **change})
