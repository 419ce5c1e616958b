"""The documents that ship: every citation, link, path and command in and of them resolves."""

from __future__ import annotations

import pydoc
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import graphmem_torch
from bench.trace import fragments
from graphmem_torch.config import Config
from graphmem_torch.ops import Solution

PACKAGE = "graphmem_torch"
ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for pattern in (
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "docs/**/*.md",
        "bench/**/README.md",
    )
    for path in ROOT.glob(pattern)
)
CITING = sorted(
    path
    for folder in ("graphmem_torch", "kernels", "bench", "tests", "configs")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".yaml"} and path != Path(__file__).resolve()
)

FOLDERS = {p.parent.name for p in (ROOT / PACKAGE).glob("*/__init__.py")} - {"config"} | {
    field.name for field in fields(Config)
}

WORDED = sorted(
    path for folder in (PACKAGE, "kernels", "bench") for path in (ROOT / folder).rglob("*.py")
)

# A page of docs/ and the sections named behind it: "`docs/mathematics.md` 1.1 to 1.6 and 8.2".
_NUMBER = r"\d+(?:\.\d+)?"
_CITATION = re.compile(
    rf"(?<![\w./-])(?P<path>[\w./-]*\w\.md)`?(?P<sections>(?:\s+#?\s*{_NUMBER}(?:\s*(?:,|and|to)\s+{_NUMBER})*)?)"
)
_HEADING = re.compile(rf"^#+ ({_NUMBER}) ", re.MULTILINE)
_LINKED_SECTIONS = re.compile(
    rf"\]\((?P<path>[\w./-]+\.md)\)\s+(?P<sections>{_NUMBER}(?:\s*(?:,|and|to)\s+{_NUMBER})*)"
)
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_OWN = re.compile(r"(?:graphmem_torch|kernels|bench|configs|tests|docs)/[\w./*<>{},-]*")
_PLACEHOLDER = re.compile(r"[A-Z]{2,}|<\w+>")
_NAME = re.compile(r"`([a-z_]+(?:\.\w+)+)`")
_SOURCE = re.compile(r"\b(?:graphmem_torch|kernels|bench|configs|tests)/[\w/]+\.(?:py|yaml|md)\b")
_MODULE = re.compile(r"python -m (bench[\w.]*|graphmem_torch[\w.]*)")


@cache
def _sections(page: Path) -> set[str]:
    """Numbers of a page's headings."""
    return set(_HEADING.findall(page.read_text("utf-8")))


def _bad_citations(text: str, root: Path = ROOT) -> list[str]:
    """Return the wrong citations of Markdown pages in source text."""
    bad = []
    for found in _CITATION.finditer(text):
        path, named = found["path"], re.findall(_NUMBER, found["sections"])
        page = root / path
        if "/" not in path:  # a file of some test, unless it is meant as a page
            if named or (root / "docs" / path).is_file():
                bad.append(f"{path}: not below docs/")
        elif not page.is_file():
            bad.append(f"{path}: no such page")
        elif path.startswith("docs/"):
            known = _sections(page)
            if known and not named:
                bad.append(f"{path}: without a section")
            bad += [f"{path} {number}: no such section" for number in named if number not in known]
    return bad


def _bad_links(page: Path, text: str) -> list[str]:
    """Relative links that lead nowhere."""
    bad = []
    for target in _LINK.findall(text):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if not there.exists():
                bad.append(f"{target}: no such file")
            elif anchor and anchor not in _anchors(there):
                bad.append(f"{target}: no such heading")
    for found in _LINKED_SECTIONS.finditer(text):
        there = page.parent / found["path"]
        known = _sections(there) if there.is_file() else set()
        named = re.findall(_NUMBER, found["sections"])
        bad += [f"{found['path']} {each}: no such section" for each in named if each not in known]
    return bad


def _anchors(page: Path) -> set[str]:
    """Return the anchors of headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def _bad_paths(text: str, root: Path = ROOT) -> list[str]:
    """Files and modules of the repository that a page names and that are not there."""
    prose = _FENCE.sub("", text)
    named = {path for code in _CODE.findall(prose) for path in _OWN.findall(code)}
    bad = []
    for path in sorted(named):
        known = path.rstrip(".,")
        if _PLACEHOLDER.search(known):  # ops/NAME.py: the folder has to be there
            known = _PLACEHOLDER.split(known)[0].rpartition("/")[0]
        if not any(any(root.glob(each.rstrip("/"))) for each in _braced(known)):
            bad.append(f"{path}: no such file")
    for module in sorted(set(_MODULE.findall(text))):
        place = root / module.rstrip(".").replace(".", "/")
        if not place.with_suffix(".py").is_file() and not (place / "__main__.py").is_file():
            bad.append(f"python -m {module}: no such module")
    return bad


def _braced(path: str) -> Iterator[str]:
    """`a/{b,c}` as `a/b` and `a/c`."""
    head, brace, rest = path.partition("{")
    if not brace:
        yield path
        return
    options, _, tail = rest.partition("}")
    for option in options.split(","):
        yield from _braced(head + option + tail)


def _bad_names(text: str, root: Path = ROOT) -> list[str]:
    """Files, modules, functions and settings that source text names and that are not there."""
    bad = [f"{path}: no such file" for path in _SOURCE.findall(text) if not (root / path).is_file()]
    for name in sorted(set(_NAME.findall(text))):
        if name.partition(".")[0] in FOLDERS and not (_is_setting(name) or _is_object(name)):
            bad.append(f"{name}: no such name")
    return bad


def _is_setting(name: str) -> bool:
    section, _, field = name.partition(".")
    return hasattr(getattr(Config(), section, None), field)


def _is_object(name: str) -> bool:
    found: object = graphmem_torch
    at = PACKAGE
    for part in name.split("."):
        at = f"{at}.{part}"
        if not hasattr(found, part) and (not hasattr(found, "__path__") or find_spec(at) is None):
            return False
        found = getattr(found, part, None) or import_module(at)
    return True


def test_names_in_the_source_resolve() -> None:
    bad = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in [*CITING, *PAGES]
        if "tests" not in path.parts and path.parent not in {ROOT, ROOT / "docs/api"}  # examples
        for each in _bad_names(path.read_text("utf-8"))
    ]
    assert not bad, "\n".join(bad)


def test_names_that_are_bad_are_found(small: Path) -> None:
    good = "`ops.knapsack`, `text.terms.terms`, `spread.rounds`, `bench.there`, bench/there.py"
    assert _bad_names(good, small) == []
    assert _bad_names("`ops.gone`, `spread.gone`, `rank.gone.x`, bench/gone.py", small) == [
        "bench/gone.py: no such file",
        "ops.gone: no such name",
        "rank.gone.x: no such name",
        "spread.gone: no such name",
    ]


def _fragments(path: Path) -> list[str]:
    """Return the descriptions of a file that begin like clauses, each with its place."""
    found = fragments(path.read_text(encoding="utf-8"))
    return [f"{path.relative_to(ROOT)}:{each.line}: {each.name} {each.text}" for each in found]


def test_descriptions_are_no_fragments() -> None:
    assert len(WORDED) > 300
    assert [each for path in WORDED for each in _fragments(path)] == []


def test_citations_resolve() -> None:
    bad = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in CITING
        for each in _bad_citations(path.read_text("utf-8"))
    ]
    assert len(CITING) > 100
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_names_what_is_there(page: Path) -> None:
    text = page.read_text("utf-8")
    bad = _bad_links(page, text) + _bad_paths(text)
    bad += [each for each in _bad_citations(text) if each.endswith("no such section")]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("name", ["architecture", "evaluation", "mathematics"])
def test_sections_are_numbered_once(name: str) -> None:
    numbers = _HEADING.findall((ROOT / "docs" / f"{name}.md").read_text("utf-8"))
    assert numbers and len(numbers) == len(set(numbers))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "bench").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# Page\n\n## 2 Two\n\n### 2.1 One of two\n")
    (tmp_path / "bench" / "there.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(`docs/page.md` 2)", []),
        ("`docs/page.md` 2 and 2.1; Author 2011, section 4", []),
        ("`docs/page.md`\n    2.1.", []),
        ("# see docs/page.md 2.1, 2.", []),
        ("`docs/page.md` 2.2", ["docs/page.md 2.2: no such section"]),
        ("`docs/page.md` 2 to 2.3", ["docs/page.md 2.3: no such section"]),
        ("`docs/page.md` 2, 3", ["docs/page.md 3: no such section"]),
        ("`docs/page.md`, somewhere", ["docs/page.md: without a section"]),
        ("`docs/gone.md` 2", ["docs/gone.md: no such page"]),
        ("`page.md`", ["page.md: not below docs/"]),
        ("`gone.md` 2", ["gone.md: not below docs/"]),
        ("notes.md", []),
    ],
)
def test_citations_that_are_bad_are_found(small: Path, text: str, expected: list[str]) -> None:
    assert _bad_citations(text, small) == expected


def test_links_that_are_bad_are_found(small: Path) -> None:
    page = small / "docs" / "page.md"
    good = "[a](../bench/there.py) [b](https://a.b) [c](page.md#2-two) [d](#2-two) [e](page.md) 2"
    assert _bad_links(page, good) == []
    assert _bad_links(page, "[a](../bench/gone.py) [c](page.md#3-three) [e](page.md) 2, 4") == [
        "../bench/gone.py: no such file",
        "page.md#3-three: no such heading",
        "page.md 4: no such section",
    ]


def test_paths_that_are_bad_are_found(small: Path) -> None:
    good = (
        "`bench/there.py`, `bench/{there,gone}.py`, `bench/*.py`, `bench/NAME.py`, `docs/page.md`"
    )
    assert _bad_paths(f"{good}, `python -m bench.there --x`", small) == []
    assert _bad_paths("`bench/gone.py` `tests/NAME.py` `python -m bench.gone`", small) == [
        "bench/gone.py: no such file",
        "tests/NAME.py: no such file",
        "python -m bench.gone: no such module",
    ]


def test_the_solution_of_a_solver_has_the_parts_that_architecture_lists() -> None:
    (listed,) = re.findall(
        r"`Solution\((.*?)\)`", (ROOT / "docs/architecture.md").read_text("utf-8")
    )
    assert listed.split(", ") == [field.name for field in fields(Solution)]


def test_help_of_a_memory_is_read_at_once() -> None:
    text = pydoc.render_doc(graphmem_torch.Memory, renderer=pydoc.plaintext)
    assert len(text.splitlines()) <= 300
