"""What the command line makes of words: as tyro reads them, and in one plain line what is wrong."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tyro

from graphmem_torch.cli.arguments import Argument, arguments_of, parse_arguments
from graphmem_torch.cli.main import COMMANDS, main
from graphmem_torch.errors import InputError

EVERY = [(name, each) for name, kind in COMMANDS.items() for each in arguments_of(kind)]
NAMES = [f"{name} {each.label}" for name, each in EVERY]
MARKUP = re.compile(r"\[/?\w+\]|[\u2500-\u257f]|\x1b|<class|NoneType|instantiat|Traceback")
SAMPLE = {int: "3", str: "2024", Path: "x"}


def _value(argument: Argument) -> list[str]:
    """Words that fit an argument."""
    if argument.is_flag:
        return []
    values = [argument.choices[0] if argument.choices else SAMPLE[kind] for kind in argument.types]
    return values * 2 if argument.many and not argument.appended else values


def _needed(kind: type, but: str) -> list[str]:
    """Words for what a command cannot do without, positional ones last."""
    words: list[str] = []
    for each in sorted(arguments_of(kind), key=lambda each: each.positional):
        if each.required and each.field != but:
            words += [*([] if each.positional else [each.label]), *_value(each)]
    return words


def _refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line about words that cannot be used."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1 and len(lines[0]) <= 200, err
    assert lines[0].startswith("graphmem: error: ")
    assert not MARKUP.search(lines[0]), lines[0]
    assert "expected" in lines[0] and "got" in lines[0] and "; " in lines[0]
    return lines[0].removeprefix("graphmem: error: ")


@pytest.mark.parametrize(("name", "argument"), EVERY, ids=NAMES)
def test_every_argument_is_read_as_tyro_reads_it(name: str, argument: Argument) -> None:
    kind: Any = COMMANDS[name]
    own = [*([] if argument.positional else [argument.label]), *_value(argument)]
    needed = _needed(kind, argument.field)
    words = [*needed, *own] if argument.positional else [*own, *needed]
    if argument.many and not argument.appended and not argument.positional:
        words = [*needed, *own]
    marks = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes)
    wanted = tyro.cli(kind, args=words, config=marks)
    assert parse_arguments(kind, name, words) == wanted
    if not argument.positional and not argument.is_flag and len(argument.types) == 1:
        word = f"{argument.label.replace('-', '_').replace('__', '--', 1)}={_value(argument)[0]}"
        words = [word, *needed]
        assert parse_arguments(kind, name, words) == tyro.cli(kind, args=words, config=marks)


@pytest.mark.parametrize(("name", "argument"), EVERY, ids=NAMES)
def test_every_argument_that_is_wrong_is_named_in_one_line(
    name: str, argument: Argument, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = _needed(COMMANDS[name], argument.field)
    if argument.required:
        line = _refused([name, *needed], capsys)
        assert "expected a value, got none" in line
        assert argument.positional or line.startswith(argument.label)
    if argument.is_flag:
        assert argument.label in _refused([name, f"{argument.label}=maybe", *needed], capsys)
    elif not argument.positional:
        assert argument.label in _refused([name, *needed, argument.label], capsys)
    wrong = "[bold]nope[/bold]" if argument.choices else "abc"
    if argument.types == (int,) or argument.choices:
        own = [wrong] if argument.positional else [argument.label, wrong]
        line = main([name, *needed, *own]), capsys.readouterr().err
        assert line[0] == 2 and len(line[1].splitlines()) == 1
        assert argument.label in line[1] and wrong in line[1]
    if len(argument.types) == 2:
        line = _refused([name, *needed, argument.label, "2024"], capsys)
        assert line == f"{argument.label}: expected 2 values, got '2024'; write {argument.usage}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("query --store x --k abc q", "--k: expected a whole number, got 'abc'; write --k N"),
        ("query --store x --trase q", "did you mean --trace?"),
        ("query --store x q --(k) 3", "--(k): expected an option of graphmem query, got"),
        ("query --store x q --1st", "--1st: expected an option of graphmem query, got"),
        ("query --store x q --storage y", "did you mean --store?"),
        ("query --store '' q", "--store: expected a path, got ''"),
        ("query --store x -foo", "-foo: expected an option"),
        ("context --store x --budget 9 who is it", "got 'is' besides"),
        ("index --store x --formta text f", "did you mean --format?"),
        ("index --store x --format jsnl f", "did you mean 'jsonl'?"),
        ("eval locmo", "did you mean 'locomo'?"),
        ("eval wikipedia --json x", "see graphmem eval --help"),
        ("qurey x", "did you mean 'query'?"),
        ("", "command: expected a command, got none"),
        ("stats extra --store x", "expected options alone, got 'extra' besides"),
        ("query --store x --config.rank.k", "--config.rank.k: expected a value, got none"),
    ],
)
def test_what_is_mistyped(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in _refused(shlex.split(words), capsys)


def test_values_that_look_like_options() -> None:
    kind: Any = COMMANDS["update"]

    def read(*words: str) -> Any:
        return parse_arguments(kind, "update", ["--store", "x", *words])

    assert read("a", "--text", "-5").text == "-5"
    assert read("a", "--text", "-hello").text == "-hello"
    assert read("a", "--text=--hello").text == "--hello"
    assert read("a", "--text", "--hello there").text == "--hello there"
    assert read("--", "--id").id == "--id"
    assert read("-5").id == "-5"
    with pytest.raises(InputError, match="--text: expected a value"):
        read("a", "--text", "--kind", "note")


def test_an_option_given_again(store: Path, reply: Callable[..., Any]) -> None:
    first = reply("query", "Who?", "--store", store, "--k", "1", "--k", "3")
    assert len(first["results"][0]["hits"]) == 3
    kinds = reply("query", "Who?", "--store", store, "--kind", "turn", "--kind", "chunk")
    assert kinds["results"][0]["hits"]


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["-h"], ["query", "--help"], ["query", "x", "--k", "abc", "-h"]):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 0
        assert "usage: graphmem" in capsys.readouterr().out
