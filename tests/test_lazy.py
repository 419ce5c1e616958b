"""Patterns that are compiled at their first use."""

from __future__ import annotations

import ast
import copy
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import graphmem_torch
from graphmem_torch.errors import MissingPackageError
from graphmem_torch.lazy import lazy_pattern

LAZY = type(lazy_pattern(""))


@pytest.mark.parametrize(
    ("expression", "flags", "text"),
    [
        (r"(?P<day>\d+)\.", 0, "am 3. und 14. Mai"),
        (r"[a-z]+", re.IGNORECASE, "One two THREE"),
        (r"^b.*$", re.MULTILINE, "a\nbc\nbd"),
        (r"", 0, "ab"),
        (r"(a)|(b)", 0, "xbxa"),
    ],
)
def test_a_pattern_answers_as_a_compiled_one(expression: str, flags: int, text: str) -> None:
    ours, theirs = lazy_pattern(expression, flags), re.compile(expression, flags)
    for _ in range(2):
        assert ours.findall(text) == theirs.findall(text)
        assert [m.span() for m in ours.finditer(text)] == [m.span() for m in theirs.finditer(text)]
        assert ours.split(text) == theirs.split(text) and ours.sub("-", text) == theirs.sub(
            "-", text
        )
        assert (ours.match(text) is None) == (theirs.match(text) is None)
        assert (ours.pattern, ours.flags, ours.groups) == (expression, theirs.flags, theirs.groups)
        assert ours.groupindex == theirs.groupindex


def test_a_pattern_that_is_wrong_fails_at_its_first_use_only() -> None:
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        wrong.search("a")
    copied = copy.copy(lazy_pattern("a+"))
    assert copied.findall("baa") == ["aa"]
    with pytest.raises(AttributeError):
        lazy_pattern("a").foo  # type: ignore[attr-defined]  # noqa: B018


def _patterns(value: Any, depth: int = 3) -> Iterator[Any]:
    if isinstance(value, LAZY):
        yield value
    elif isinstance(value, type) and value.__module__.startswith("graphmem_torch"):
        yield from _patterns(dict(vars(value)), depth)
    elif depth and isinstance(value, Mapping):
        for each in [*value.values()]:
            yield from _patterns(each, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for each in value:
            yield from _patterns(each, depth - 1)


def test_every_pattern_of_the_package_compiles() -> None:
    seen = {}
    for found in pkgutil.walk_packages(graphmem_torch.__path__, "graphmem_torch."):
        if ".kernels." in found.name or found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except MissingPackageError:  # an adapter of a framework that is not installed
            continue
        for pattern in _patterns(dict(vars(module))):
            seen[id(pattern)] = pattern
    assert len(seen) > 200
    for pattern in seen.values():
        re.compile(pattern.pattern, pattern.flags)


def test_no_module_compiles_a_pattern_when_it_is_imported() -> None:
    eager = [
        f"{path.name}:{node.lineno}"
        for path in Path(graphmem_torch.__path__[0]).rglob("*.py")
        for node in _run_at_import(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("re.compile", "regex.compile")
    ]
    assert not eager, f"{eager}: write lazy_pattern"


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes outside of functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _run_at_import(child)
