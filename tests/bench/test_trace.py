from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from bench.trace import Fragment, fragments, members, parts, settings, sizes, traced

FILES = {
    "__init__.py": "",
    "memory/__init__.py": "",
    "memory/facade.py": """
from made_up.memory.lower import Facts, Kept, _Hidden, total
from made_up.memory.parts.themes import Themes

class Facade:
    name = "facade"

    def __init__(self):
        self.facts, self.kept, self._hidden = Facts(), Kept(), _Hidden()
        self.themes = Themes()
        self.hidden = self._hidden

    def ask(self, numbers):
        return self.inner([sorted(numbers, key=lambda number: -number)])

    def inner(self, rows):
        return [total(row) for row in rows]
""",
    "memory/lower.py": """
from made_up.store.kept import Kept

class Facts:
    def change(self): ...
    def _private(self): ...

class _Hidden:
    pass

def total(row):
    return row[0] + total(row[1:]) if row else 0
""",
    "memory/parts/__init__.py": "",
    "memory/parts/themes.py": "class Themes:\n    def list(self): ...\n",
    "store/__init__.py": "",
    "store/kept.py": "class Kept:\n    def rows(self): ...\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, ModuleType]]:
    """The folder of a made-up package, and its module `facade`."""
    folder = tmp_path / "made_up"
    for name, source in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder, import_module("made_up.memory.facade")
    for name in [name for name in sys.modules if name.split(".")[0] == "made_up"]:
        del sys.modules[name]


def test_calls_counted_by_hand(tree: tuple[Path, ModuleType]) -> None:
    folder, module = tree
    facade = module.Facade()
    found = traced(lambda: facade.ask([1, 2]), folder)
    assert {name for _, name, _ in found.functions} == {
        "Facade.ask",
        "Facade.ask.<locals>.<lambda>",
        "Facade.inner",
        "total",
    }
    assert {(Path(a).name, Path(b).name) for a, b in found.pairs} == {("facade.py", "lower.py")}
    # ask, inner, and `total` of two numbers, one and none
    assert found.counts() == {"functions": 4, "files": 2, "pairs": 1, "deepest": 5}


def test_calls_elsewhere_do_not_count(tree: tuple[Path, ModuleType]) -> None:
    folder, module = tree
    facade = module.Facade()
    assert traced(lambda: sizes([]), folder).counts()["functions"] == 0
    found = traced(lambda: facade.ask([1, 2]), folder / "store")
    assert found.counts() == {"functions": 0, "files": 0, "pairs": 0, "deepest": 0}


def test_an_error_passes_and_ends_the_trace(tree: tuple[Path, ModuleType]) -> None:
    with pytest.raises(ZeroDivisionError):
        traced(lambda: 1 // 0, tree[0])
    assert sys.getprofile() is None


def test_parts_are_public_classes_beside_the_facade(tree: tuple[Path, ModuleType]) -> None:
    facade = tree[1].Facade()
    assert members(type(facade)) == ["ask", "inner", "name"]
    found = {name: members(kind) for name, kind in parts(facade).items()}
    assert found == {"facts": ["change"], "themes": ["list"]}


def test_sizes(tmp_path: Path) -> None:
    for name, lines in (("a", 600), ("b", 601), ("c", 900)):
        (tmp_path / f"{name}.py").write_text("x = 1\n" * lines)
    found = sizes(sorted(tmp_path.iterdir()))
    assert (found["files"], found["lines"]) == (3, 2101)
    folder = tmp_path.name
    assert list(found["above_600"].items()) == [(f"{folder}/c.py", 900), (f"{folder}/b.py", 601)]


def test_settings_are_the_leaves() -> None:
    @dataclass
    class Inner:
        first: int = 1
        second: dict[str, int] = field(default_factory=dict)

    @dataclass
    class Outer:
        name: str = ""
        inner: Inner = field(default_factory=Inner)

    assert settings(Outer()) == 3


SOURCE = '''"""What a module is about."""

KEPT = 3
"""Of a constant."""

OPEN: bool = True
"""Whether the constant is open."""


class Store:
    """Table of rows.

    Attributes:
        rows: Of the table, and so on
            Those of a second line do not count.
        open, shut: Whether it is open.
        state: Whether it is "open" or "shut".
        size: Number of rows.

    Of a later paragraph.
    """

    open: bool
    state: str

    def read(self, *names: str, quick: bool = False) -> list[str]:
        """Return the rows.

        Args:
            names: Likewise.
            quick: Whether to be quick.

        Raises:
            OSError: What the disk says.
        """

    def empty(self) -> bool:
        """Whether there are no rows."""

    def name(self) -> str:
        """As it was given."""

    def count(self) -> int:
        """How many rows there are."""

    def first(self) -> str:
        """There is a row."""

    def ask(self) -> str:
        """Ask for Ofelia, not Of or Astrid."""
'''


def test_fragments_found_by_hand() -> None:
    assert sorted(fragments(SOURCE), key=lambda each: (each.line, each.name)) == [
        Fragment(1, "", "What", "What a module is about."),
        Fragment(4, "", "Of", "Of a constant."),
        Fragment(11, "rows", "Of", "Of the table, and so on"),
        Fragment(11, "state", "Whether", 'Whether it is "open" or "shut".'),
        Fragment(27, "names", "Likewise", "Likewise."),
        Fragment(38, "", "Whether", "Whether there are no rows."),
        Fragment(41, "", "As", "As it was given."),
        Fragment(44, "", "How", "How many rows there are."),
        Fragment(47, "", "There is", "There is a row."),
    ]
