"""Messages of an adapter without its framework, or with one that is older or newer."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphmem_torch import Memory
from graphmem_torch.errors import InputError, MissingPackageError, StoreError
from graphmem_torch.integrations.framework import MemoryOwner, given_memory

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


class Owner(MemoryOwner):
    """Adapter of nothing."""

    def __init__(self, memory: Any = None, **options: Any) -> None:
        self.memory, self._owned = given_memory(memory, options)


def test_an_owner_closes_what_it_opened(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "store", embedder="hashing") as memory:
        with Owner(memory) as owner:
            owner.memory.add("The canoe is red.")
        assert len(memory) == 1  # still open
    with Owner(tmp_path / "store", embedder="hashing") as owner:
        assert len(owner.memory) == 1
    with pytest.raises(StoreError):
        len(owner.memory)
    owner.close()  # again


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embeder": "hashing"}, "got 'embeder'; did you mean 'embedder'"),
        ({"foo": 1}, "got 'foo'; choose one of them"),
        ({"Preset": "default"}, "did you mean 'preset'"),
        ({"path": "store"}, "got 'path'"),
        ({"cls": 1}, "got 'cls'"),
        ({"embedder": "hashing", "readonly": True}, "got 'readonly'"),
    ],
)
def test_unknown_options_are_one_line(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    for store in (tmp_path / "store", None):
        with pytest.raises(InputError) as caught:
            Owner(store, **options)
        said = str(caught.value)
        assert (
            said.startswith("option: expected one of preset, config, embedder") and message in said
        )
    assert not (tmp_path / "store").exists()


# Adapter, arguments before the memory, and packages of its framework.
OWNERS = [
    ("langchain.GraphMemVectorStore", (), "langchain_core"),
    ("langgraph.GraphMemStore", (), "langgraph"),
    ("llama_index.GraphMemRetriever", (), "llama_index"),
    ("llama_index.GraphMemBlock", (), "llama_index"),
    ("openai_agents.GraphMemSession", ("monday",), "agents"),
    ("pydantic_ai.GraphMemToolset", (), "pydantic_ai"),
    ("pyg.MemoryFeatureStore", (), "torch_geometric"),
]


@pytest.mark.parametrize(("adapter", "before", "package"), OWNERS)
def test_adapters_own_and_check_alike(
    adapter: str, before: tuple[str, ...], package: str, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    module, name = adapter.split(".")
    kind = getattr(import_module(f"graphmem_torch.integrations.{module}"), name)
    assert issubclass(kind, MemoryOwner)
    path = tmp_path / "store"
    with Memory.open(path, embedder="hashing") as memory:
        memory.add("The canoe is red.")
    with pytest.raises(InputError, match=r"option: expected one of .*did you mean 'embedder'"):
        kind(*before, path, embeder="hashing")
    with kind(*before, path, embedder="hashing") as opened:
        assert len(opened.memory) == 1
    with pytest.raises(StoreError):
        len(opened.memory)
    with Memory.open(path, embedder="hashing") as memory:
        with kind(*before, memory) as opened:
            assert opened.memory is memory
        assert len(memory) == 1
