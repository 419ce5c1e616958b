"""Syntax of the command line on click: values, errors of one line, help in sections.

`Tree` and `Leaf` are click's group and command. They raise `InputError` in place of click's usage
errors, so that every error of the command line reads alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click

from graphmem_torch.cli.settings_options import HELP_CONFIG, show_settings, take_overrides
from graphmem_torch.errors import InputError, nearest

__all__ = [
    "ADDRESS",
    "COUNT",
    "COUNTS",
    "JSON",
    "OVERRIDES",
    "PATH",
    "TIME",
    "Leaf",
    "Option",
    "Tree",
    "Value",
    "choice",
    "leaves",
    "option",
    "time_of",
    "usage_of",
]

_LISTED = 60  # maximum length of the choices in a message
_WIDTH = 80  # columns of help
_HELP = {"help_option_names": ["-h", "--help"]}


class Value(click.ParamType):
    """Type of an argument whose values a function reads."""

    def __init__(self, metavar: str, read: Callable[[str, str], Any]) -> None:
        """Make a type.

        Args:
            metavar: Name of a value in help.
            read: Function from a text and the label of the argument to a value or `InputError`.
        """
        self.name = metavar
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text; a default, which is no text, stays unchanged."""
        return self._read(value, _label(param)) if isinstance(value, str) else value


def _count(text: str, label: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{label}: expected a whole number, got {text!r:.60}; write {label} N"
        ) from None


def _counts(text: str, label: str) -> tuple[int, ...]:
    return tuple(_count(part.strip(), label) for part in text.split(","))


def _path(text: str, label: str) -> Path:
    if not text:
        raise InputError(f"{label}: expected a path, got ''; name a file or folder")
    return Path(text)


def time_of(text: str, label: str) -> float:
    """Read a date, a date with a time, or seconds since the epoch; four digits are a year."""
    from graphmem_torch.text.times import parse_time

    text = text.strip()
    dated = len(text) in (len("2024"), len("20240204"))
    seconds = text.isascii() and text.isdigit() and not dated
    return parse_time(float(text) if seconds else text, label)


def _json(text: str, label: str) -> Any:
    from graphmem_torch.readers.source import parse_json

    return parse_json(text, label)


def _address(text: str, label: str) -> tuple[str, int]:
    """Read `HOST:PORT`; an IPv6 address may be in brackets."""
    host, colon, port = text.rpartition(":")
    if not (colon and host.strip("[]") and port.isascii() and port.isdigit() and int(port) < 65536):
        raise InputError(
            f"{label}: expected HOST:PORT, got {text!r:.60}; write {label} 127.0.0.1:8765"
        )
    return host.strip("[]"), int(port)


def _chosen(choices: Sequence[str], text: str, label: str) -> str:
    if text in choices:
        return text
    listed = ", ".join(choices)
    close = nearest(text, choices)
    do = f"did you mean {close!r}?" if close else "choose one of them"
    if len(listed) > _LISTED:
        listed, do = "those that --help lists", do if close else "see --help"
    raise InputError(f"{label}: expected one of {listed}, got {text!r:.60}; {do}")


COUNT = Value("N", _count)
COUNTS = Value("N,N", _counts)
PATH = Value("PATH", _path)
TIME = Value("TIME", time_of)
JSON = Value("JSON", _json)
ADDRESS = Value("HOST:PORT", _address)


def choice(*choices: str) -> Value:
    """Return the type of an argument that has one of some values."""
    return Value("|".join(choices), partial(_chosen, choices))


class Option(click.Option):
    """Option with its section in the help."""

    def __init__(
        self, *args: Any, section: str = "Options", once: bool = False, **kwargs: Any
    ) -> None:
        """Make an option.

        Args:
            args: Positional arguments of `click.Option`.
            section: Heading in the help.
            once: Whether a repeated option is an error; else the last value counts.
            kwargs: Keyword arguments of `click.Option`.
        """
        kwargs.setdefault("metavar", None if kwargs.get("is_flag") else _metavar(kwargs))
        super().__init__(*args, **kwargs)
        self.section, self.once = section, once


def _metavar(given: dict[str, Any]) -> str:
    kind = given.get("type")
    return kind.name if isinstance(kind, Value) else "TEXT"


option = partial(click.option, cls=Option)
"""Decorator that adds an `Option` to a command."""


def _refuse_repeated(order: Sequence[click.Parameter]) -> None:
    """Raise `InputError` if an option with `once` is among them twice."""
    for each, count in Counter(order).items():
        if getattr(each, "once", False) and count > 1:
            raise InputError(f"{_label(each)}: expected it once, got it {count} times; leave one")


class Leaf(click.Command):
    """Command that does something.

    Attributes:
        after_interrupt: State after Ctrl-C, for the message.
    """

    def __init__(
        self, *args: Any, after_interrupt: str = "nothing was changed", **kwargs: Any
    ) -> None:
        """Make a command; see `click.Command`."""
        super().__init__(*args, **{"context_settings": _HELP, **kwargs})
        self.after_interrupt = after_interrupt
        self.allow_extra_args = True  # `parse_args` reports their errors

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words after the name of the command, `--config.*` options among them.

        Raises:
            InputError: An option is unknown or repeated, an argument is missing, or a value is
                invalid.
        """
        ctx.meta[OVERRIDES], args = take_overrides(args)
        with _plain_errors(ctx):
            given, _, order = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeated(order)
            if given.get(HELP_CONFIG):
                show_settings(given.get("preset") or "default", ctx.meta[OVERRIDES])
                ctx.exit()
            super().parse_args(ctx, args)
        if ctx.args:
            names = " ".join(usage_of(each) for each in self.params if not _is_option(each))
            raise InputError(
                f"{ctx.command_path}: expected {names[:_LISTED] or 'options'} alone, got "
                f"{ctx.args[0]!r:.60} besides; leave it out, or quote what has blanks"
            )
        return ctx.args

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            KeyboardInterrupt: Ctrl-C, with the state after it.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(self.after_interrupt) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section under its heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if isinstance(each, click.Option) and record is not None:
                sections.setdefault(getattr(each, "section", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


OVERRIDES = "graphmem_torch.cli.overrides"
"""Key of the `--config.*` options in the `meta` of a context."""


class _Commands(dict[str, Any]):
    """Commands by name; one that is given as `module:attribute` is imported at its first use."""

    def __getitem__(self, name: str) -> click.Command:
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, attribute = found.split(":")
            found = self[name] = getattr(import_module(module), attribute)
        return cast(click.Command, found)

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)
        return self[name] if isinstance(found, str) else found

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


class Tree(click.Group):
    """Group of commands in the order in which they were added."""

    command_class = Leaf

    def __init__(
        self, *args: Any, commands: Mapping[str, str | click.Command] | None = None, **kwargs: Any
    ) -> None:
        """Make a group; see `click.Group`.

        Args:
            args: Positional arguments of `click.Group`.
            commands: Commands by name; a text `module:attribute` is imported at its first use.
            kwargs: Keyword arguments of `click.Group`.
        """
        super().__init__(*args, **{"context_settings": _HELP, **kwargs})
        self.commands = _Commands(commands or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in their order."""
        return [*self.commands]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options of the group itself; its command gets the rest.

        Raises:
            InputError: There is no command, or an option is unknown.
        """
        if not args:
            raise InputError(
                f"{ctx.command_path}: expected a command, got none; choose one of "
                f"{', '.join(self.commands)}"
            )
        self.commands.get(args[0])  # imported before Ctrl-C raises, see `leave_at_once`
        with _plain_errors(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names.

        Raises:
            InputError: There is none; names the nearest in the whole tree.
        """
        name = args[0]
        if name not in self.commands:
            root = ctx.find_root()
            paths = {path: path.rpartition(" ")[2] for path, _ in leaves(root.command)}
            close = nearest(name, [*self.commands, *paths.values()], cutoff=0.7)
            here = f"{ctx.command_path} {close}"
            there = [f"{root.info_name} {path}" for path, last in paths.items() if last == close]
            known = here if close in self.commands else there[0] if there else None
            do = f"did you mean `{known}`?" if known else f"see {ctx.command_path} --help"
            raise InputError(f"{ctx.command_path}: expected a command, got {name!r:.60}; {do}")
        return name, self.commands[name], args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the groups with the names of their commands."""
        listed = [*self.commands.values()]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (str(each.name), each.get_short_help_str(_WIDTH))
                    for each in listed
                    if not isinstance(each, Tree)
                ]
            )
        groups = [each for each in listed if isinstance(each, Tree)]
        if groups:
            with formatter.section("Groups of commands"):
                rows = [
                    ((str(each.name), str(each.help)), ("", " ".join(each.commands)))
                    for each in groups
                ]
                formatter.write_dl([row for pair in rows for row in pair])


def leaves(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every leaf below a command with its words, such as `atoms get`."""
    if not isinstance(command, Tree):
        yield path, command
        return
    for name, each in command.commands.items():
        yield from leaves(each, f"{path} {name}".strip())


def _is_option(param: click.Parameter) -> bool:
    return isinstance(param, click.Option)


def _label(param: click.Parameter | None) -> str:
    """Name of a parameter in messages: its option, or the metavar of an argument."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return "value" if param is None else (param.metavar or str(param.name).upper()).split()[0]


@contextmanager
def _plain_errors(ctx: click.Context) -> Iterator[None]:
    """Raise click's usage errors as `InputError`."""
    try:
        yield
    except click.UsageError as error:
        raise InputError(_message(error, ctx)) from error


def _message(error: click.UsageError, ctx: click.Context) -> str:
    path, command = ctx.command_path, ctx.command
    options = {
        name: each
        for each in command.params
        if isinstance(each, click.Option)
        for name in each.opts
    }
    if isinstance(error, click.NoSuchOption):
        close = nearest(error.option_name, [*options, "--help"], cutoff=0.7)
        do = f"did you mean {close}?" if close else f"{path} --help lists them"
        name = f"{error.option_name:.60}"
        return f"{name}: expected an option of {path}, got an unknown one; {do}"
    if isinstance(error, click.BadOptionUsage) and (own := options.get(error.option_name)):
        if own.is_flag:
            return f"{error.option_name}: expected no value, got one; write it alone"
        count = "a value" if own.nargs == 1 else f"{own.nargs} values"
        usage = f"{error.option_name} {own.metavar}"
        return f"{error.option_name}: expected {count}, got fewer; write {usage}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        label = _label(error.param)
        usage = " ".join(usage_of(each) for each in command.params if each.required)
        known_usage = f"write {path} {usage}" if len(usage) <= _LISTED else f"see {path} --help"
        count = "at least one" if error.param.nargs == -1 else "a value"
        return f"{label}: expected {count}, got none; {known_usage}"
    return f"{path}: expected other arguments, got {error.format_message()}; see {path} --help"


def usage_of(param: click.Parameter) -> str:
    """Return the usage of a parameter: `--store DIR`, `ID ...`."""
    if isinstance(param, click.Option):
        return _label(param) if param.is_flag else f"{_label(param)} {param.metavar}"
    return param.metavar or str(param.name).upper()
