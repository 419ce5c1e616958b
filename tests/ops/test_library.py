"""Common properties of every registered operation."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from contextlib import contextmanager
from types import ModuleType

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from graphmem_torch import ops
from graphmem_torch.errors import InputError, MissingPackageError
from graphmem_torch.ops import knn_graph, topk_cosine
from graphmem_torch.ops._library import import_kernels, on_device_of_input


def _unit(rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.nn.functional.normalize(torch.randn(rows, 8, generator=generator), dim=1)


def test_register_operation_without_a_gradient_refuses_inputs_that_need_one():
    rows = _unit(20).requires_grad_()
    with pytest.raises(InputError, match="knn_graph: expected no gradient"):
        knn_graph(rows, 3)
    with torch.no_grad():
        values, near = knn_graph(rows, 3)
    nearest = (rows @ rows.T).fill_diagonal_(-2).argmax(1)
    assert torch.equal(near[:, 0], nearest)
    assert not values.requires_grad


def test_register_operation_without_a_gradient_can_be_compiled():
    keys = _unit(20)

    @torch.compile(backend="aot_eager")
    def doubled(queries: torch.Tensor) -> torch.Tensor:
        return topk_cosine(queries * 1.0, keys, 3)[0] * 2

    torch.testing.assert_close(doubled(keys[:2]), topk_cosine(keys[:2], keys, 3)[0] * 2)


@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="the only device has number 0")
@pytest.mark.parametrize(("current", "entered"), [(0, ["cuda:1", "left"]), (1, [])])
def test_register_launcher_runs_with_the_device_of_its_tensors_current(current, entered):
    seen = []

    @contextmanager
    def guard(device):
        seen.append(str(device))
        yield
        seen.append("left")

    def launch(number, x):
        assert seen == entered[:1]
        return number * x

    run = on_device_of_input(launch, current=lambda: current, guard=guard)
    with FakeTensorMode():
        assert run(2, torch.ones(3, device="cuda:1")).device == torch.device("cuda:1")
    assert seen == entered


def test_modules_of_operations_can_be_reached_beside_functions_of_their_name():
    names = [module.name for module in pkgutil.iter_modules(ops.__path__)]
    shadowed = set()
    for name in names:
        module = importlib.import_module(f"graphmem_torch.ops.{name}")
        assert isinstance(module, ModuleType)
        if getattr(ops, name) is not module:
            assert getattr(module, name) is getattr(ops, name)
            shadowed.add(name)
    assert {"pagerank", "knn_graph", "spmm"} <= shadowed


def test_kernels_without_triton_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'graphmem-torch\[triton\]'"):
        import_kernels("of an operation not launched yet")
