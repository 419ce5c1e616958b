"""inhibit: fast path and kernel against the formula in plain Python."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops import inhibit
from graphmem_torch.ops.inhibit import inhibit_reference
from graphmem_torch.ops.spread import Rule
from tests.kernels import kernels

kernel = kernels("inhibit")


def _plain(row: list[float], strength: float, top: int) -> list[float]:
    strongest = sorted(row, reverse=True)[:top]
    return [max(0.0, u - strength * sum(max(v - u, 0.0) for v in strongest)) for u in row]


ROWS = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5, 0.7, 1.0, 2.0]), min_size=1, max_size=30)


@given(ROWS, st.sampled_from([0.0, 0.05, 0.15, 1.0]), st.integers(1, 12))
def test_matches_the_formula(row, strength, top):
    u = torch.tensor([row], dtype=torch.float64)
    expected = torch.tensor([_plain(row, strength, top)], dtype=torch.float64)
    torch.testing.assert_close(inhibit(u, strength=strength, top=top), expected)
    torch.testing.assert_close(inhibit_reference(u, strength, top), expected)


@given(ROWS, st.integers(1, 12))
def test_order_is_kept_and_nothing_rises(row, top):
    u = torch.tensor([row])
    got = inhibit(u, top=top)
    order = u.argsort(dim=1, stable=True)
    assert (got <= u + 1e-6).all()
    assert (got.gather(1, order).diff() >= -1e-6).all()
    assert got.max() == pytest.approx(max(row))


@pytest.mark.parametrize(
    ("rows", "length", "top", "dtype"),
    [
        (1, 1, 7, torch.float32),
        (3, 17, 1, torch.float32),
        (2, 17, 70, torch.float32),
        (1, 1500, 7, torch.float32),
        (5, 3, 2, torch.float32),
        (2, 1, 1, torch.float64),
        (3, 17, 7, torch.float16),
        (2, 17, 70, torch.float16),
        (1, 1500, 3, torch.bfloat16),
    ],
    ids=str,
)
def test_kernel_matches_the_reference(rows, length, dtype, top, generator, monkeypatch):
    """Outputs are poisoned with NaN; a row is shared by several programs where it is long."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    u = torch.rand(rows, length, generator=generator)
    u = torch.where(u < 0.3, 0.0, u).to(device, dtype)
    strength = torch.tensor(0.15, device=device)
    empty_like, empty = torch.empty_like, torch.empty
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: empty_like(*a, **k).fill_(torch.nan))
    monkeypatch.setattr(torch, "empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))
    got = kernel.launch_inhibit(u, strength, top)
    assert got.dtype == dtype
    exact = inhibit_reference(u.to(torch.promote_types(dtype, torch.float32)), strength, top)
    torch.testing.assert_close(got, exact.to(dtype))


def test_every_row_may_have_a_strength_of_its_own(generator):
    u, strength = torch.rand(4, 30, generator=generator), torch.tensor([0.0, 0.05, 0.15, 1.0])
    got = inhibit(u, strength=strength, top=5)
    rows = [
        inhibit(row[None], strength=own, top=5)
        for row, own in zip(u, strength.tolist(), strict=True)
    ]
    torch.testing.assert_close(got, torch.cat(rows))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    by_kernel = kernel.launch_inhibit(u.to(device), strength.to(device), 5)
    torch.testing.assert_close(by_kernel.cpu(), got)


def test_kernel_inhibits_each_kind_by_its_own(generator):
    """As `Rule` asks for it: what is not of a kind is 0 in its row, and neither gives nor takes."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    u, kind = torch.rand(4, 300, generator=generator), torch.rand(300, generator=generator) < 0.3
    expected = torch.zeros_like(u)
    for row, values in enumerate(u.tolist()):
        for own in (True, False):
            place = (kind == own).nonzero().flatten()
            expected[row, place] = torch.tensor(_plain([values[i] for i in place], 0.15, 5))
    strength = torch.tensor(0.15, device=device)
    parts = (
        kernel.launch_inhibit(each.to(device), strength, 5).cpu()
        for each in (u.where(kind, 0.0), u.masked_fill(kind, 0.0))
    )
    torch.testing.assert_close(sum(parts), expected)
    rule = Rule(0.15, 5, "linear", 5.0, 0.5, kind=kind)
    torch.testing.assert_close(rule.inhibited(u), expected)


def test_kernel_with_ties_and_equal_rows():
    u = torch.tensor([[1.0, 1.0, 1.0, 0.5, 0.5], [0.0] * 5, [2.0] * 5])
    if torch.cuda.is_available():
        u = u.cuda()
    got = kernel.launch_inhibit(u, torch.tensor(0.15, device=u.device), 2)
    torch.testing.assert_close(got, inhibit_reference(u, 0.15, 2))


@pytest.mark.parametrize("top", [1, 4, 20])
def test_gradient(generator, top):
    u = torch.rand(3, 9, generator=generator, dtype=torch.float64).requires_grad_()
    strength = torch.tensor(0.07, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, s: inhibit(x, strength=s, top=top), (u, strength))
    own = torch.tensor([0.02, 0.07, 0.1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, s: inhibit(x, strength=s, top=top), (u, own))


def test_opcheck(generator):
    u = torch.rand(3, 9, generator=generator).requires_grad_()
    strength = torch.tensor(0.15, requires_grad=True)
    torch.library.opcheck(torch.ops.graphmem.inhibit.default, (u, strength, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_is_computed_in_float32(generator, dtype):
    u = torch.rand(3, 50, generator=generator).to(dtype)
    got = inhibit(u)
    assert got.dtype == dtype
    torch.testing.assert_close(got, inhibit(u.float()).to(dtype))


def test_empty():
    assert inhibit(torch.zeros(0, 4)).shape == (0, 4)
    assert inhibit(torch.zeros(4, 0)).shape == (4, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"u": torch.zeros(3)}, r"floating point \[B, N\]"),
        ({"top": 0}, "top: expected an integer of at least 1, got 0"),
        ({"strength": -1.0}, "strength: expected a number in"),
        ({"strength": float("nan")}, "strength: expected a number in"),
        ({"strength": torch.ones(3)}, r"strength: expected floating point \[2\].* give a number"),
        ({"strength": torch.ones(2, 1)}, r"strength: expected floating point \[\].* give a number"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    with pytest.raises(InputError, match=message):
        inhibit(**{"u": torch.zeros(2, 3), **change})


def test_inhibit_second_derivative_is_refused():
    u = torch.rand(2, 5, requires_grad=True)
    with pytest.raises(InputError, match="inhibit_backward: expected no gradient"):
        torch.autograd.grad(inhibit(u).square().sum(), u, create_graph=True)


@pytest.mark.cuda
def test_cuda_of_more_nodes_than_blocks_fit_the_second_axis_of_a_grid():
    u = torch.rand(1, 65_536 * 1024 + 3, device="cuda")
    strongest = u.topk(7).values
    for part in (slice(0, 1000), slice(-1000, None)):
        expected = inhibit_reference(torch.cat([strongest, u[:, part]], dim=1), 0.15, 7)[:, 7:]
        torch.testing.assert_close(inhibit(u)[:, part], expected)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("top", [7, 100])
def test_cuda_matches_cpu_and_runs_in_a_cuda_graph(generator, dtype, top):
    u = torch.rand(9, 70_001, generator=generator).to(dtype)
    there, expected = u.cuda(), inhibit(u, top=top)
    torch.testing.assert_close(inhibit(there, top=top).cpu(), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = inhibit(there, top=top)
    graph.replay()
    torch.testing.assert_close(got.cpu(), expected)
