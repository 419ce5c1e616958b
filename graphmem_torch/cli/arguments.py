"""Arguments of a command: from the words of a shell to the fields of a dataclass.

The fields say all there is to say (type, `Positional`, `UseAppendAction`, `arg`), as for tyro,
which prints the help. Its own errors are boxes of several lines that speak of Python's types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional, Suppress, UseAppendAction

from graphmem_torch.errors import InputError, nearest

__all__ = ["Argument", "arguments_of", "parse_arguments"]

T = TypeVar("T")

_POSITIONAL, _SUPPRESSED, _APPENDED = (
    get_args(mark)[1] for mark in (Positional[str], Suppress[str], UseAppendAction[str])
)
_FITS = 60  # characters of choices that are listed in a message
_METAVARS = {int: "N", float: "NUMBER", Path: "PATH"}
_EXPECTED = {int: "a whole number", float: "a number", Path: "a path"}


@dataclass(frozen=True)
class Argument:
    """Argument of the command line for one field of a command.

    Attributes:
        field: Name of the field.
        label: Name in messages: the option, or the metavar of a positional argument.
        metavar: Name of its values in usage.
        types: Type of each value; one type for all where `many`.
        choices: The values that do; empty: any of the type.
        many: Whether it takes any number of values.
        positional: Whether it has no option.
        appended: Whether each use of the option adds a value.
        required: Whether there is no default.
    """

    field: str
    label: str
    metavar: str
    types: tuple[type, ...]
    choices: tuple[str, ...] = ()
    many: bool = False
    positional: bool = False
    appended: bool = False
    required: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.types == (bool,)

    @property
    def usage(self) -> str:
        """Usage of the argument, as help and messages show it."""
        if self.is_flag:
            return self.label
        return self.metavar if self.positional else f"{self.label} {self.metavar}"


def arguments_of(kind: type) -> list[Argument]:
    """The arguments of a command, a dataclass, in the order of its fields."""
    hints = get_type_hints(kind, include_extras=True)
    listed = []
    for each in fields(kind):
        marks = getattr(hints[each.name], "__metadata__", ())
        if _SUPPRESSED in marks:
            continue
        own = next((mark for mark in marks if hasattr(mark, "metavar")), None)
        types, choices, many = _values(hints[each.name])
        name = getattr(own, "name", None) or each.name
        written = " ".join(_METAVARS.get(kind, "TEXT") for kind in types) + " ..." * many
        metavar = getattr(own, "metavar", None) or "|".join(choices) or written
        positional = _POSITIONAL in marks
        listed.append(
            Argument(
                field=each.name,
                label=_label(name, metavar, positional),
                metavar=metavar,
                types=types,
                choices=choices,
                many=many,
                positional=positional,
                appended=_APPENDED in marks,
                required=each.default is MISSING and each.default_factory is MISSING,
            )
        )
    return listed


def parse_arguments(kind: type[T], program: str, words: Sequence[str]) -> T:
    """A command from the words after its name.

    Options are `--name VALUE` or `--name=VALUE`, with "-" or "_" between words. An option of
    several values takes words up to the next option; after "--" nothing is an option. An option
    that is given again counts anew, or adds its value where `UseAppendAction` says so.

    Args:
        kind: The command, a dataclass.
        program: Name of the command, for messages.
        words: The words.

    Raises:
        InputError: An unknown option, a missing argument, or a value that does not fit.
    """
    arguments = arguments_of(kind)
    options = {each.label: each for each in arguments if not each.positional}
    given: dict[str, Any] = {}
    loose: list[str] = []
    end = words.index("--") if "--" in words else len(words)
    at = 0
    while at < end:
        word, at = words[at], at + 1
        if not _is_option(word, "-"):
            loose.append(word)
            continue
        name, equals, value = word.partition("=")
        option = options.get("--" + name.lstrip("-").replace("_", "-"))
        if option is None or not name.startswith("--"):
            raise _unknown_option(name, options, program)
        values = [value] if equals else []
        if option.is_flag and equals:
            raise InputError(
                f"{option.label}: expected no value, got {value!r:.60}; write {option.label} alone"
            )
        wanted = len(option.types) - len(values) if not option.is_flag else 0
        open_end = option.many and not option.appended and not equals
        while at < end and (wanted > 0 or open_end) and not _is_option(words[at]):
            values.append(words[at])
            wanted, at = wanted - 1, at + 1
        read = True if option.is_flag else _read(option, values, program)
        given[option.field] = given.get(option.field, ()) + read if option.appended else read
    loose += words[end + 1 :]
    given |= _positionals([each for each in arguments if each.positional], loose, program)
    missing = [each for each in arguments if each.required and each.field not in given]
    if missing:
        shown = (
            [each for each in arguments if each.positional] if missing[0].positional else missing
        )
        usage = " ".join([*[program] * missing[0].positional, *(each.usage for each in shown)])
        known = f"write {usage}" if len(usage) <= _FITS else f"see {program} --help"
        raise InputError(f"{missing[0].label}: expected a value, got none; {known}")
    return kind(**given)


def _label(name: str, metavar: str, positional: bool) -> str:
    if positional:
        return name.upper() if "|" in metavar else metavar
    return "--" + name.replace("_", "-")


def _values(hint: Any) -> tuple[tuple[type, ...], tuple[str, ...], bool]:
    """The types of the values of a field, the choices, and whether there may be any number."""
    while hasattr(hint, "__metadata__"):
        hint = hint.__origin__
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
        return _values(hint)
    if get_origin(hint) is Literal:
        return (str,), tuple(get_args(hint)), False
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        return (inner[:1], (), True) if inner[-1] is Ellipsis else (inner, (), False)
    return (hint,), (), False


def _is_option(word: str, mark: str = "--") -> bool:
    """Whether a word is an option; "-", a negative number, and what has blanks are values."""
    name = word.partition("=")[0]
    if not name.startswith(mark) or len(name.split()) != 1:
        return False
    return name.lstrip("-")[:1].isalpha() or (name.startswith("--") and any(map(str.isalnum, name)))


def _unknown_option(name: str, known: Iterable[str], program: str) -> InputError:
    close = nearest(name, [*known, "--help"], cutoff=0.7)
    do = f"did you mean {close}?" if close else f"{program} --help lists them"
    return InputError(f"{name:.60}: expected an option of {program}, got an unknown one; {do}")


def _positionals(arguments: Sequence[Argument], words: list[str], program: str) -> dict[str, Any]:
    """The values of the positional arguments, of which the last may take any number."""
    given: dict[str, Any] = {}
    for argument in arguments:
        count = len(words) if argument.many else len(argument.types)
        if argument.many or words:
            given[argument.field] = _read(argument, words[:count], program)
            words = words[count:]
    if words:
        names = " ".join(each.metavar for each in arguments)
        wanted = f"{names:.60} alone" if names else "options alone"
        raise InputError(
            f"{program}: expected {wanted}, got {words[0]!r:.60} besides; leave it out, or write "
            "what has blanks in quotes"
        )
    return given


def _read(argument: Argument, values: Sequence[str], program: str) -> Any:
    """The value of a field from the words for it."""
    types = argument.types * len(values) if argument.many else argument.types
    if len(values) < len(types) or (argument.many and not values and not argument.positional):
        got = ", ".join(f"{value!r:.40}" for value in values) or "none"
        count = "a value" if len(argument.types) == 1 else f"{len(types)} values"
        raise InputError(
            f"{argument.label}: expected {count}, got {got}; write {argument.usage:.120}"
        )
    read = tuple(
        _converted(argument, kind, value, program)
        for kind, value in zip(types, values, strict=True)
    )
    return read if argument.many or len(argument.types) > 1 else read[0]


def _converted(argument: Argument, kind: type, value: str, program: str) -> Any:
    if argument.choices:
        if value in argument.choices:
            return value
        listed = ", ".join(argument.choices)
        close = nearest(value, argument.choices)
        do = f"did you mean {close!r}?" if close else "choose one of them"
        if len(listed) > _FITS:
            listed = "those that --help lists"
            do = do if close else f"see {program} --help"
        raise InputError(f"{argument.label}: expected one of {listed}, got {value!r:.60}; {do}")
    try:
        if kind is Path and not value:
            raise ValueError(value)
        return kind(value)
    except ValueError as error:
        raise InputError(
            f"{argument.label}: expected {_EXPECTED.get(kind, 'a text')}, got {value!r:.60}; write "
            f"{argument.usage:.120}"
        ) from error
