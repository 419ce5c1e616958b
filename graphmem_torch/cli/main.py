"""The command line: options in, one command run, every error told in one line.

Exit codes: 0 done; 1 `check` found a problem; 2 an error of input, store or options; 3 `index
--skip-bad` left something out; 130 interrupted; 141 nobody reads the output any more.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Annotated, Any, Union

import tyro
from tyro.conf import subcommand

from graphmem_torch.cli import interrupt_as_usual, leave_at_once
from graphmem_torch.cli.arguments import parse_arguments
from graphmem_torch.cli.ask import AnswerQuestion, CompileContext, Evaluate, Explain, Query
from graphmem_torch.cli.atoms import (
    Archive,
    Compact,
    Delete,
    Export,
    Forget,
    Get,
    GiveFeedback,
    ListMemories,
    Restore,
    ShowChanges,
    ShowHistory,
    SplitName,
    Supersede,
    Update,
)
from graphmem_torch.cli.demo import Demo
from graphmem_torch.cli.options import Command, import_own, print_json, print_text
from graphmem_torch.cli.stores import (
    Check,
    Classify,
    Consolidate,
    Import,
    Index,
    ListNamespaces,
    Reembed,
    ShowLearned,
    Stats,
    WriteReport,
)
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import ConfigError, GraphMemError, InputError, nearest
from graphmem_torch.text.visible import visible
from graphmem_torch.version import __version__

__all__ = ["COMMANDS", "main"]
COMMANDS = {
    "index": Index,
    "query": Query,
    "context": CompileContext,
    "answer": AnswerQuestion,
    "explain": Explain,
    "get": Get,
    "list": ListMemories,
    "update": Update,
    "supersede": Supersede,
    "split-name": SplitName,
    "history": ShowHistory,
    "changes": ShowChanges,
    "delete": Delete,
    "archive": Archive,
    "restore": Restore,
    "forget": Forget,
    "compact": Compact,
    "export": Export,
    "import": Import,
    "feedback": GiveFeedback,
    "learned": ShowLearned,
    "namespaces": ListNamespaces,
    "reembed": Reembed,
    "classify": Classify,
    "consolidate": Consolidate,
    "stats": Stats,
    "check": Check,
    "report": WriteReport,
    "eval": Evaluate,
    "demo": Demo,
}
"""The commands by name."""

_DESCRIPTION = """Long-term memory for LLM agents.

Every field of the configuration can be overridden: --config.SECTION.FIELD VALUE; `graphmem COMMAND
--help-config` lists them with the values of the preset."""
_PREFIX = "--config."
_HELP = "--help-config"
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
_MARKERS = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes)


@dataclass(frozen=True)
class _Overrides:
    config: Config


class _Shown(logging.Formatter):
    """Messages in which a terminal obeys nothing, whatever the file they speak of is called."""

    def format(self, record: logging.LogRecord) -> str:
        """One message, or a message and its traceback."""
        return visible(super().format(record))


class _Messages(io.FileIO):
    """Standard error, which no work fails for: of a full disk, or a terminal that is gone."""

    def write(self, data: Any) -> int:
        """The number of bytes that are done with."""
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError:
            return len(data)


def _ready_streams() -> None:
    """Makes the standard streams fit for use; idempotent.

    In place of one that is closed stands the null device, else the next file that is opened, such
    as the database, would have its number and get what is written there. A message that cannot be
    written is lost, and the work goes on. A character that cannot be shown is replaced.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):  # nothing has its number
                os.fstat(number)
                continue
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for good
    stderr = sys.stderr
    if _is_standard_error(stderr):
        raw = io.BufferedWriter(_Messages(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _is_standard_error(stream: object) -> bool:
    """Whether a stream writes to the process's standard error, and fails when that does."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # PYTHONUNBUFFERED leaves out the buffer
    return isinstance(raw, io.FileIO) and not isinstance(raw, _Messages) and raw.fileno() == 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code.

    Args:
        arguments: Without the program's name; those of the process by default.
    """
    _ready_streams()
    handler = logging.StreamHandler()
    handler.setFormatter(_Shown("graphmem: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    given = list(sys.argv[1:] if arguments is None else arguments)
    command: Command | None = None
    leave_at_once()
    try:
        command = _parse(given)
        # The slow part of what the commands import; not above, so that `--help` needs none.
        import_module("torch")
        for name in command.imports:
            import_own(name)
        interrupt_as_usual()
        code = command.run()
        sys.stdout.flush()
        return code
    except GraphMemError as error:
        return _fail(str(error), _wants_json(command, given))
    except BrokenPipeError:
        # The reader has gone (`graphmem query ... | head`); what is still buffered goes nowhere,
        # else the interpreter complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.strerror is None:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{where}{error.strerror}", _wants_json(command, given))
    except KeyboardInterrupt:
        left = Command.after_interrupt if command is None else command.after_interrupt
        print(f"\ngraphmem: interrupted; {left}", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        interrupt_as_usual()


def _fail(message: str, as_json: bool) -> int:
    message = " ".join(message.split())
    print_text(f"graphmem: error: {message}", to_reader=True)
    if as_json:
        print_json({"error": message})
    return 2


def _wants_json(command: Command | None, arguments: list[str]) -> bool:
    """Whether a program reads standard output; of `eval`, `--json` names a file."""
    if command is not None:
        return getattr(command, "json", False) is True
    return "--json" in arguments and arguments[:1] != ["eval"]


def _parse(arguments: list[str]) -> Command:
    """The command with its options; prints help, and exits then as tyro does.

    Raises:
        InputError: No command, an unknown one, or arguments that do not fit it.
    """
    if arguments[:1] == ["--version"]:
        print(f"graphmem {__version__}")
        raise SystemExit(0)
    overrides, arguments = _configuration(arguments)
    name, *words = arguments or [""]
    end = words.index("--") if "--" in words else len(words)
    if name.startswith(("-h", "--help", "--tyro-")):
        commands: Any = Union[  # noqa: UP007 - made at run time
            tuple(Annotated[kind, subcommand(name)] for name, kind in COMMANDS.items())
        ]
        tyro.cli(
            commands, prog="graphmem", description=_DESCRIPTION, args=arguments, config=_MARKERS
        )
    if name not in COMMANDS:
        close = nearest(name, COMMANDS)
        do = f"did you mean {close!r}?" if close else "`graphmem --help` lists them"
        got = f"{name!r:.60}" if arguments else "none"
        raise InputError(f"command: expected a command, got {got}; {do}")
    # The options of the other commands are not looked at: that would take ten times as long.
    kind: Any = COMMANDS[name]
    if not {"-h", "--help"}.isdisjoint(words[:end]):
        tyro.cli(kind, prog=f"graphmem {name}", args=["--help"], config=_MARKERS)
    command: Command = parse_arguments(kind, f"graphmem {name}", words)
    return replace(command, overrides=overrides)


def _configuration(arguments: list[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """Takes the `--config.*` options out; None where there are none.

    They are read on their own, because they change the preset that is named beside them, because a
    mapping such as the signals' weights takes keys that the preset has not, and because seven
    commands with fifty fields each would make `--help` unreadable.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = iter(arguments[:end])
    rest: list[str] = []
    overrides: dict[str, Any] = {}
    for option in options:
        if not option.startswith(_PREFIX):
            rest.append(option)
            continue
        name, equals, value = option.removeprefix(_PREFIX).partition("=")
        given = value if equals else next(options, None)
        if given is None:
            raise ConfigError(f"{option}: expected a value, got none; write {option} VALUE")
        overrides[name.replace("-", "_")] = _value(given)
    if _HELP in rest:
        default = _Overrides(load_config(_preset(rest), overrides))
        tyro.cli(_Overrides, prog="graphmem COMMAND", default=default, args=["--help"])
    if not overrides:
        return None, arguments
    return overrides, rest + arguments[end:]


def _preset(options: list[str]) -> str:
    for here, after in zip(options, [*options[1:], ""], strict=True):
        if here == "--preset":
            return after
        if here.startswith("--preset="):
            return here.partition("=")[2]
    return "default"


def _value(text: str) -> Any:
    """A number, a YAML value, or else the text itself."""
    import yaml

    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
