"""Pages whose nodes are placed in few steps: `tests/spectral/test_layout.py` looks at places."""

from __future__ import annotations

import pytest

from graphmem_torch.spectral import layout as module


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 30)
    monkeypatch.setitem(module.layout.__kwdefaults__, "iterations", 10)
