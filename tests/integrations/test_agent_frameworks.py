"""Adapters without their framework, or with one that lacks a name: one line each."""

from __future__ import annotations

import importlib
import sys

import pytest

from graphmem_torch.errors import MissingPackageError

FRAMEWORKS = {
    "llama_index": (
        "llama_index",
        "llama_index.core.memory",
        "BaseMemoryBlock",
        "llama-index-core",
    ),
    "openai_agents": ("agents", "agents", "SessionSettings", "openai-agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic_ai", "FunctionToolset", "pydantic-ai-slim"),
}


@pytest.mark.parametrize("adapter", FRAMEWORKS)
def test_adapter_without_its_framework(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = FRAMEWORKS[adapter][0]
    for name in [package, *(each for each in sys.modules if each.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, f"graphmem_torch.integrations.{adapter}", raising=False)
    extra = adapter.replace("_", "-")
    with pytest.raises(
        MissingPackageError, match=rf"got none; .*graphmem-torch\[{extra}\]"
    ) as error:
        importlib.import_module(f"graphmem_torch.integrations.{adapter}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("adapter", FRAMEWORKS)
def test_adapter_of_another_version(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, module, name, distribution = FRAMEWORKS[adapter]
    pytest.importorskip(package)
    monkeypatch.delattr(importlib.import_module(module), name)
    monkeypatch.delitem(sys.modules, f"graphmem_torch.integrations.{adapter}", raising=False)
    with pytest.raises(MissingPackageError, match=rf"{distribution}: expected >=.*{name}") as error:
        importlib.import_module(f"graphmem_torch.integrations.{adapter}")
    assert "\n" not in str(error.value)
