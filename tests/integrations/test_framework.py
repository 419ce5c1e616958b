"""Messages of an adapter without its framework, or with one that is older or newer."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest

from graphmem_torch.errors import MissingPackageError

ADAPTERS = {
    "langgraph": ("langgraph", "langgraph.store.base", "langgraph-checkpoint"),
    "langchain": ("langchain_core", "langchain_core.vectorstores", "langchain-core"),
}


@pytest.mark.parametrize("extra", ADAPTERS)
def test_a_missing_framework_is_one_line(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root, module, _ = ADAPTERS[extra]
    for name in (root, module):
        monkeypatch.setitem(sys.modules, name, None)
    for name in (extra, "langchain_embeddings"):
        monkeypatch.delitem(sys.modules, f"graphmem_torch.integrations.{name}", raising=False)
    with pytest.raises(ImportError) as caught:
        import_module(f"graphmem_torch.integrations.{extra}")
    assert str(caught.value) == (
        f"{root}: expected the package for its adapter, got none; "
        f"pip install 'graphmem-torch[{extra}]'"
    )


@pytest.mark.parametrize("extra", ADAPTERS)
def test_another_version_is_one_line(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root, module, distribution = ADAPTERS[extra]
    if find_spec(root) is None:
        pytest.skip(f"needs {root}")
    import_module(module)
    monkeypatch.setitem(sys.modules, module, ModuleType(module))  # has none of the names
    monkeypatch.delitem(sys.modules, f"graphmem_torch.integrations.{extra}", raising=False)
    with pytest.raises(MissingPackageError) as caught:
        import_module(f"graphmem_torch.integrations.{extra}")
    said = str(caught.value)
    assert said.startswith(f"{distribution}: expected >=") and "\n" not in said
    assert "cannot import name" in said
    assert said.endswith(f"pip install 'graphmem-torch[{extra}]'")
