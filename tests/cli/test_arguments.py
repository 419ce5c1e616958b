"""Words of the command line: values, options, and one plain line about what is wrong."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from graphmem_torch.cli.main import COMMANDS, main
from graphmem_torch.cli.syntax import COUNT, COUNTS, JSON, PATH, TIME, leaves

LEAVES = dict(leaves(COMMANDS))
EVERY = [(path, param) for path, leaf in LEAVES.items() for param in leaf.params]
NAMES = [f"{path} {param.name}" for path, param in EVERY]
MARKUP = re.compile(r"\[/?\w+\]|[\u2500-\u257f]|\x1b|<class|NoneType|instantiat|Traceback")
SAMPLE = {
    COUNT: ("3", 3),
    COUNTS: ("3,40", (3, 40)),
    PATH: ("x", Path("x")),
    JSON: ('{"a": 1}', {"a": 1}),
}
SAMPLE |= {TIME: ("1970-01-02", 86400.0)}


def _label(param: click.Parameter) -> str:
    is_option = isinstance(param, click.Option)
    return max(param.opts, key=len) if is_option else param.human_readable_name


def _sample(param: click.Parameter) -> tuple[str, Any]:
    """A word for a parameter, and the value that it means."""
    if param.type in SAMPLE:
        return SAMPLE[param.type]
    first = param.type.name.split("|")[0]
    word = first if "|" in param.type.name else "some text"
    return word, word


def _words(param: click.Parameter) -> tuple[list[str], Any]:
    """Words that give a parameter, and the value that they mean."""
    if isinstance(param, click.Option) and param.is_flag:
        return [_label(param)], True
    word, value = _sample(param)
    count = 2 if param.nargs == 2 or param.nargs == -1 else 1
    value = (value,) * count if count == 2 or param.multiple else value
    label = [_label(param)] if isinstance(param, click.Option) else []
    return [*label, *[word] * count], value


def _needed(path: str, but: str | None) -> list[str]:
    """Words for what a command cannot do without."""
    needed = [each for each in LEAVES[path].params if each.required and each.name != but]
    return [word for each in needed for word in _words(each)[0]]


def _refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line about words that cannot be used."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1 and len(lines[0]) <= 220, err
    assert lines[0].startswith("graphmem: error: ")
    assert not MARKUP.search(lines[0]), lines[0]
    assert "expected" in lines[0] and "got" in lines[0] and "; " in lines[0]
    return lines[0].removeprefix("graphmem: error: ")


def _read(path: str, words: list[str]) -> dict[str, Any]:
    """The parameters of a command by name."""
    return LEAVES[path].make_context(path, [*words]).params


@pytest.mark.parametrize(("path", "param"), EVERY, ids=NAMES)
def test_every_argument_is_read(path: str, param: click.Parameter) -> None:
    words, value = _words(param)
    needed = _needed(path, param.name)
    if not param.expose_value:  # `--help-config` prints
        return
    if isinstance(param, click.Option):
        orders = [[*words, *needed], [*needed, *words]]
        if len(words) == 2 and param.nargs == 1 and words[0] != "-k":
            orders.append([f"{words[0]}={words[1]}", *needed])
    else:  # an argument that is needed stands before those that are not
        orders = [[*words, *needed] if param.required else [*needed, *words]]
    for order in orders:
        assert _read(path, order)[str(param.name)] == value


@pytest.mark.parametrize(("path", "param"), EVERY, ids=NAMES)
def test_every_argument_that_is_wrong_is_named_in_one_line(
    path: str, param: click.Parameter, capsys: pytest.CaptureFixture[str]
) -> None:
    needed, label = _needed(path, param.name), _label(param).split()[0]
    if param.required:
        line = _refused([*path.split(), *needed], capsys)
        assert "got none" in line and (line.startswith(label) or path == "facts supersede")
    if isinstance(param, click.Option):
        if param.is_flag:
            assert label in _refused([*path.split(), f"{label}=maybe", *needed], capsys)
        else:
            assert label in _refused([*path.split(), *needed, label], capsys)
        if param.nargs == 2:
            line = _refused([*path.split(), *needed, label, "2024"], capsys)
            assert line.startswith(f"{label}: expected 2 values")
    if param.type in (COUNT, COUNTS, TIME, JSON) or "|" in param.type.name:
        own = [label] if isinstance(param, click.Option) else []
        line = _refused([*path.split(), *needed, *own, "{nope"], capsys)
        assert (line.startswith(label) and "{nope" in line) or "JSON" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("query --store x -k abc q", "-k: expected a whole number, got 'abc'; write -k N"),
        ("query --store x --trase q", "did you mean --trace?"),
        ("query --store x 'q' '--(k)' 3", "--(k): expected an option of graphmem query, got"),
        ("query --store x q --1st", "--1st: expected an option of graphmem query, got"),
        ("query --store x q --storage y", "did you mean --store?"),
        ("query --store '' q", "--store: expected a path, got ''"),
        ("query --store x -foo", "expected an option of graphmem query"),
        ("context --store x --budget 9 who is it", "got 'is' besides"),
        ("index --store x --formta text f", "did you mean --format?"),
        ("index --store x --format jsnl f", "did you mean 'jsonl'?"),
        ("eval locmo", "did you mean 'locomo'?"),
        ("eval wikipedia --json x", "see --help"),
        ("eval compare a b --cv", "--cv: expected nothing for compare"),
        ("eval locomo a --json x", "expected nothing for locomo"),
        ("qurey x", "did you mean `graphmem query`?"),
        ("stats --store x", "did you mean `graphmem store stats`?"),
        ("atoms stat --store x", "did you mean `graphmem store stats`?"),
        ("atoms gets x --store x", "did you mean `graphmem atoms get`?"),
        ("atoms", "graphmem atoms: expected a command, got none; choose one of get, list,"),
        ("wibblewobble", "see graphmem --help"),
        ("--verbose", "--verbose: expected an option of graphmem, got an unknown one"),
        ("", "graphmem: expected a command, got none"),
        ("store stats extra --store x", "expected options alone, got 'extra' besides"),
        ("query --store x --config.rank.k", "--config.rank.k: expected a value, got none"),
        ("query --store x q --config.rank.kk 3", "did you mean 'rank.k'?"),
        ("query --store x q --preset synaps", "did you mean 'synapse'?"),
        ("store reembed --store x", "--embedder: expected the name of an encoder, got none"),
    ],
)
def test_mistyped_words(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in _refused(shlex.split(words), capsys)


def test_values_that_look_like_options() -> None:
    def read(*words: str) -> dict[str, Any]:
        return _read("atoms update", ["--store", "x", *words])

    assert read("a", "--text", "-5")["text"] == "-5"
    assert read("a", "--text", "-hello")["text"] == "-hello"
    assert read("a", "--text=--hello")["text"] == "--hello"
    assert read("a", "--text", "--hello there")["text"] == "--hello there"
    assert read("--", "--id")["id"] == "--id"
    assert read("--", "-5")["id"] == "-5"
    assert _read("atoms list", ["--store", "x", "--order", "-time"])["order"] == "-time"
    assert _read("query", ["-", "--store", "x", "--", "--k"])["questions"] == ("-", "--k")


def test_an_option_given_again(
    store: Path, reply: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    first = reply("query", "Who?", "--store", store, "-k", "1", "-k", "3")
    assert len(first["results"][0]["hits"]) == 3
    kinds = reply("query", "Who?", "--store", store, "--kind", "turn", "--kind", "chunk")
    assert kinds["results"][0]["hits"]
    twice = ["--as-of", "2024", "--as-of", "2025"]
    assert len(reply("query", "Who?", "--store", store, *twice)["results"]) == 2
    for words in (["context", "Who?", "--budget", "99"], ["explain", "Who?"]):
        assert main([*words, "--store", str(store), *twice]) == 2
        assert "--as-of: expected it once, got it 2 times; leave one" in capsys.readouterr().err


def test_help_is_printed_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-h"], ["query", "x", "-k", "3", "-h"], ["atoms"], *map(str.split, LEAVES)):
        assert main([*words, "--help"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("Usage: graphmem")
        assert all(len(line) <= 80 for line in out.splitlines()), out


def test_the_commands_fit_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30
    words = " ".join(lines).split()
    assert all(name in words for path in LEAVES for name in path.split())


def test_every_command_has_one_line_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    for group in ("atoms", "facts", "store", ""):
        assert main([*group.split(), "--help"]) == 0
        listed = capsys.readouterr().out.split("\nCommands:\n")[1].split("\n\n")[0]
        names = [line.split()[0] for line in listed.splitlines()]
        paths = [path.split() for path in LEAVES if path.startswith(group)]
        assert names == [path[-1] for path in paths if len(path) == len(f"{group} x".split())]


def test_every_command_and_option_says_what_it_does() -> None:
    """In a sentence that begins with a verb."""
    for path, leaf in LEAVES.items():
        options = [each for each in leaf.params if isinstance(each, click.Option)]
        for text in [leaf.help, *(each.help for each in options)]:
            assert text and re.match(r"([a-z, .]+: [a-z]|[A-Z])", text), (path, text)
