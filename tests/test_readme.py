"""README and pages of `docs`: examples print what is shown, methods are the classes'."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graphmem_torch import Layout, Memory, Scope
from tests.test_docs import ROOT

API = ROOT / "docs" / "api"
PARTS = ["facts", "graph", "themes", "learning", "upkeep", "namespaces", "aio", "tensors"]
INTEGRATIONS = ROOT / "docs" / "integrations"
EXAMPLES = [ROOT / "README.md", *sorted(API.glob("*.md")), *sorted(INTEGRATIONS.glob("*.md"))]
FRAMEWORKS = {
    "langchain": "langchain_core",
    "langgraph": "langgraph",
    "llama_index": "llama_index.core",
    "mcp": "mcp.server.mcpserver",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "pyg": "torch_geometric.llm",
}
"""Module that the examples of a page need."""

_EXAMPLE = re.compile(r"^```(?:python|py)\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.M | re.S)
_ENTRY = re.compile(r"^## ([a-z]\w*)\n\n`[Mm]emory\.(?:\w+\.)?(\w+)(\([^`]*\))?`\n\n(?=\S)", re.M)


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with closing(Memory.open(embedder="hashing")) as made:
        yield made


def _default(value: object) -> str:
    """A default value as the pages write it."""
    if isinstance(value, enum.Enum):
        return repr(value.name.lower())
    if isinstance(value, Scope | Layout):
        return f"{type(value).__name__}()"
    if value is ...:
        return "..."
    return value.__name__ if inspect.isbuiltin(value) else repr(value)


def _signature(owner: type, name: str) -> str | None:
    """The parameters of a method without their types; None for an attribute."""
    method = getattr(owner, name)
    if not callable(method):
        return None
    bound = inspect.signature(getattr(method, "__func__", method))
    shown = []
    for each in list(bound.parameters.values())[1:]:
        value = each.empty if each.default is each.empty else _Shown(_default(each.default))
        shown.append(each.replace(annotation=each.empty, default=value))
    return str(inspect.Signature(shown))


class _Shown(str):
    """A default whose `repr` is its text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    if page.name == "models.md":
        pytest.skip("its examples need a server")
    if page.parent == INTEGRATIONS and page.stem in FRAMEWORKS:
        pytest.importorskip(FRAMEWORKS[page.stem])
    for code, shown in _EXAMPLE.findall(page.read_text("utf-8")):
        exec(code, names)
        assert capsys.readouterr().out == shown, code
    left = names.get("memory")
    if isinstance(left, Memory):
        left.close()


@pytest.mark.parametrize("part", ["memory", *PARTS])
def test_page_lists_the_methods_of_its_class(part: str, memory: Memory) -> None:
    owner = Memory if part == "memory" else type(getattr(memory, part))
    entries = _ENTRY.findall((API / f"{part}.md").read_text("utf-8"))
    named = [name for name, _, _ in entries]
    assert len(named) == len(set(named))
    assert set(named) == _public(owner) - (set(PARTS) if part == "memory" else set())
    for heading, name, shown in entries:
        assert (heading, shown or None) == (name, _signature(owner, name))


def test_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 140
    assert max(map(len, lines)) <= 120
