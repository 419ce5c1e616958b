"""`docs/cli.md` is the commands', and every page writes commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from graphmem_torch.cli.main import COMMANDS
from graphmem_torch.cli.reference import page
from graphmem_torch.cli.syntax import leaves
from tests.test_docs import PAGES, ROOT

FILES = [*PAGES, ROOT / "Makefile", *ROOT.glob(".ci/*"), *ROOT.glob("configs/*.yaml")]
SOURCES = sorted((ROOT / "graphmem_torch").rglob("*.py"))
LEAVES = dict(leaves(COMMANDS))
GROUPS = {path.partition(" ")[0] for path in LEAVES if " " in path}

# As far as a comment, the end of code, or the end of a sentence in prose.
_COMMAND = re.compile(r"(?<![\w./-])graphmem (?P<words>[a-z][a-z-]+\b[^#`\n]*)")
_PROSE = re.compile(r"`graphmem (?P<words>[a-z][a-z-]+\b[^`]*)`")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w.-]*|-k)(?![\w-])")


def _bad_commands(text: str, pattern: re.Pattern[str] = _COMMAND) -> list[str]:
    """Commands and options in a text that there are not."""
    bad = []
    for found in pattern.finditer(text):
        words = found["words"].split()
        path = " ".join(words[:2]) if words[0] in GROUPS else words[0]
        if path in GROUPS:
            continue
        if path not in LEAVES:
            bad.append(f"graphmem {path}: no such command")
            continue
        known = {name for each in LEAVES[path].params for name in each.opts} | {"--help"}
        named = _OPTION.findall(found["words"])
        bad += [
            f"graphmem {path} {name}: no such option"
            for name in named
            if name not in known and not name.startswith("--config.")
        ]
    return bad


def test_the_reference_is_that_of_the_commands() -> None:
    said = (ROOT / "docs/cli.md").read_text("utf-8")
    assert said == page(), "run python -m graphmem_torch.cli.reference > docs/cli.md"


def test_the_reference_has_every_command_and_option() -> None:
    text = page()
    for path, leaf in LEAVES.items():
        assert f"# graphmem {path}\n" in text
        for param in leaf.params:
            if isinstance(param, click.Option):
                assert f"| `{max(param.opts, key=len)}" in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_write_commands_that_there_are(path: Path) -> None:
    text = path.read_text("utf-8")
    fences = "".join(re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL))
    lines = text if path.suffix != ".md" else fences
    pattern = _COMMAND if path.suffix == ".md" else _PROSE
    bad = _bad_commands(lines, pattern) + _bad_commands(text, _PROSE)
    assert not bad, "\n".join(bad)


def test_messages_write_commands_that_there_are() -> None:
    bad = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in SOURCES
        for each in _bad_commands(path.read_text("utf-8"), _PROSE)
    ]
    assert not bad, "\n".join(bad)


def test_commands_that_are_bad_are_found() -> None:
    good = "graphmem query x --store y -k 3  # --nope\ngraphmem atoms get a --store y\n"
    assert _bad_commands(good + "`graphmem eval`, graphmem store check --receipt FILE") == []
    assert _bad_commands("graphmem stats --store x\ngraphmem query q --k 3\n") == [
        "graphmem stats: no such command",
        "graphmem query --k: no such option",
    ]
